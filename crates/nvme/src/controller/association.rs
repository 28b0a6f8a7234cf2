//! The association of a host with the subsystem: created by Connect on an admin queue, joined by
//! Connects of I/O queues.
//!
//! Invariant: an association that has been silent for its keep-alive time is closed by its admin
//! queue, which ends all its queues. Absent: the state of the controller (`host`), connections
//! (`tcp`).

use super::blocks::Namespace;
use super::changed::ChangedNamespaces;
use super::connect::ConnectRefusal;
use super::controllers::settle_all;
use super::features::Features;
use super::host::{AssociationState, HostController, JoinedQueue};
use super::issuer::{Actor, Issuer};
use super::portals::{AnaReported, Reached, Transport};
use super::request::{IoCommand, IoRequest};
use super::rights::{HostRights, Rights};
use super::standing::CommandsUnderWay;
use super::subsystem::Subsystem;
use super::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX};
use crate::spec::command::Sqe;
use crate::spec::fabrics::{Cc, ConnectCdw11, ConnectData, DISCOVERY_NQN, property};
use crate::spec::join;
use crate::spec::opcode::io;
use crate::spec::status::Status;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A host's association with a subsystem: the controller that the host created, and the subsystem.
pub struct Association {
    pub(super) subsystem: Arc<Subsystem>,
    controller: Arc<HostController>,
}

impl Deref for Association {
    type Target = HostController;

    fn deref(&self) -> &HostController {
        &self.controller
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.subsystem.controllers.release_id(self.cntlid);
    }
}

/// Text of a fixed-size field; `None` if it is unterminated or no NQN.
fn name(field: &[u8; 256]) -> Option<&str> {
    let len = field.iter().position(|byte| *byte == 0)?;
    // A qualified name has at most 223 bytes, though the field is longer.
    std::str::from_utf8(&field[..len])
        .ok()
        .filter(|text| text.len() <= 223 && text.starts_with("nqn."))
}

/// Checks the fields common to all Connects; returns the queue and its number of entries.
fn checked(sqe: &Sqe, data: &ConnectData) -> Result<(u16, u16), ConnectRefusal> {
    // Record format 0 in bits 15:0 of dword 10, the queue in 31:16.
    let (format, qid) = (sqe.cdw10 as u16, (sqe.cdw10 >> 16) as u16);
    let sqsize_z = ConnectCdw11::from_bits(sqe.cdw11).sqsize_z();
    if format != 0 {
        return Err(ConnectRefusal::FORMAT);
    }

    // A queue of one entry could not tell "full" from "empty", so it is too small.
    if !(1..QUEUE_ENTRIES_MAX).contains(&sqsize_z) {
        return Err(ConnectRefusal::QUEUE_SIZE);
    }
    if name(&data.hostnqn).is_none() {
        return Err(ConnectRefusal::HOST_NAME);
    }
    Ok((qid, sqsize_z + 1))
}

impl Association {
    /// Connect on an admin queue: returns a new controller and the queue's number of entries. Its
    /// host has no rights until they are granted (`grant`).
    ///
    /// # Errors
    /// The refusal to answer.
    pub fn connect(
        subsystem: &Arc<Subsystem>,
        sqe: &Sqe,
        data: &ConnectData,
        reached: impl Into<Reached>,
        now: u64,
    ) -> Result<(Arc<Self>, u16), ConnectRefusal> {
        let (qid, entries) = checked(sqe, data)?;
        let wanted = name(&data.subnqn).ok_or(ConnectRefusal::SUBSYSTEM)?;
        let discovery = wanted == DISCOVERY_NQN;

        if qid != 0 {
            return Err(ConnectRefusal::QUEUE);
        }

        // Controllers are created at Connect: a host asks for any, never for a specific one.
        if data.cntlid != 0xffff {
            return Err(ConnectRefusal::CONTROLLER);
        }
        if !(discovery || wanted == subsystem.nqn()) {
            return Err(ConnectRefusal::SUBSYSTEM);
        }

        let Reached { address, portal } = reached.into();

        // Dword 12 of Connect is the host's keep-alive time-out (Base 2.0 §6.3).
        let mut state = AssociationState::new(
            subsystem.volatile_cache(),
            &subsystem.reservations,
            Transport::Fabrics,
            sqe.cdw12,
            now,
        );

        // The host reads the current state; only later changes are reported.
        state.ana_reported = AnaReported::all(&portal);

        let hostnqn = name(&data.hostnqn).expect("checked").to_owned();
        let controller = HostController {
            cntlid: subsystem
                .controllers
                .take_id()
                .ok_or(ConnectRefusal::BUSY)?,
            discovery,
            transport: Transport::Fabrics,
            address,
            portal,
            rights: HostRights::none(&hostnqn, &subsystem.counters.denied),
            hostnqn,
            hostid: data.hostid,
            holds_or_stops: AtomicU32::new(0),
            write_through: AtomicBool::new(false),
            state: Mutex::new(state),
            epoch: Arc::default(),
            commands: CommandsUnderWay::default(),
        };
        Ok((Self::of(subsystem, controller), entries))
    }

    /// The association of a new controller, which is noted under the ID that it has taken.
    pub(super) fn of(subsystem: &Arc<Subsystem>, controller: HostController) -> Arc<Self> {
        let controller = Arc::new(controller);
        subsystem.controllers.note(&controller);
        Arc::new(Self {
            subsystem: subsystem.clone(),
            controller,
        })
    }

    /// Checks a Connect on an I/O queue. The queue's number is not taken yet (`take_queue`).
    ///
    /// # Errors
    /// The refusal to answer.
    pub(crate) fn join(
        &self,
        sqe: &Sqe,
        data: &ConnectData,
    ) -> Result<JoinedQueue, ConnectRefusal> {
        let (qid, entries) = checked(sqe, data)?;
        // An I/O queue belongs to the host that created the controller, identified by its number
        // and both names.
        if data.cntlid != self.cntlid {
            return Err(ConnectRefusal::CONTROLLER);
        }
        if name(&data.subnqn) != Some(self.subsystem.nqn()) {
            return Err(ConnectRefusal::SUBSYSTEM);
        }
        if data.hostid != self.hostid || name(&data.hostnqn) != Some(&self.hostnqn) {
            return Err(ConnectRefusal::OTHER_HOST);
        }

        let state = self.state();
        if !state.takes_commands() || self.is_closed() {
            return Err(ConnectRefusal::NOT_ENABLED);
        }
        if self.discovery || qid == 0 || qid > IO_QUEUES_MAX.min(state.features.queues()) {
            return Err(ConnectRefusal::QUEUE);
        }

        // Checked, but not taken: a host that never authenticates must not hold the number.
        if state.queues >> (qid - 1) & 1 == 1 {
            return Err(ConnectRefusal::QUEUE_IN_USE);
        }

        Ok(JoinedQueue {
            qid,
            entries,
            epoch: self.epoch.now(),
            has_number: false,
        })
    }

    /// The subsystem that the controller belongs to.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }

    /// Its host, as the issuer of a command.
    #[inline]
    pub fn issuer(&self) -> Issuer<'_> {
        Issuer {
            actor: Actor::Host(self.host()),
            rights: self.rights(),
            write_through: &self.write_through,
        }
    }

    /// Writes a register (Property Set): only CC is writable, to enable, reset or shut down.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn property_set(&self, sqe: &Sqe) -> Result<(), Status> {
        if sqe.cdw11 != property::CC || sqe.cdw10 & 7 != 0 {
            return Err(Status::INVALID_FIELD);
        }

        let cc = Cc::from_bits(join(sqe.cdw12, sqe.cdw13) as u32);
        // Page size 4 KiB, the NVM command set, entries of 64 and 16 bytes.
        let possible = cc.mps() == 0 && cc.css() == 0 && cc.ams() == 0;
        let sized = self.discovery || (cc.iosqes() == 6 && cc.iocqes() == 4);

        let shuts_down = {
            let mut state = self.state();
            let begins = cc.shn() != 0 && state.cc.shn() == 0 && state.cc.en();
            if begins {
                state.csts.set_shst(1);
                self.epoch.shut_down();
            }
            begins && !self.discovery
        };

        // 1. no command begins any more
        // 2. commands in progress have ended
        // 3. everything executed is flushed
        // 4. the host reads that the shutdown is complete
        // A command acknowledged later was executed before 3, so that nothing acknowledged is lost.
        // The lock is not held during this: every queue takes it when it hears from its host.
        let kept = if shuts_down {
            self.settle();
            self.subsystem.flush_all()
        } else {
            Ok(())
        };

        let mut state = self.state();
        let resets = state.cc.en() && !cc.en();
        if let Err(status) = kept {
            state.csts.set_cfs(true);
            return Err(status);
        }

        // Settings are checked when the controller is enabled. A wrong one shows as a fatal status,
        // which a host looks for while it waits for readiness.
        if cc.en() && !state.cc.en() && !(possible && sized) {
            state.csts.set_cfs(true);
            return Err(Status::INVALID_FIELD);
        }

        if resets {
            // A reset: outstanding requests, settings and I/O queues are dropped.
            (state.queues, state.queues_made) = (0, false);
            self.epoch.advance();
            self.holds_or_stops.store(0, Ordering::Release);
            state.event_requests.clear();
            state.features = Features::new(self.subsystem.volatile_cache(), self.transport);
            self.write_through.store(false, Ordering::Release);
            (state.reported, state.unread) = (0, false);
            state.changed = ChangedNamespaces::default();
            state.notifications.reset(&self.subsystem.reservations);
            state.ana_reported = AnaReported::all(&self.portal);
        }

        // Everything was flushed above, so a shutdown is complete as soon as it is announced. Only
        // a reset undoes it.
        let stays = state.cc.en() && cc.en() && state.csts.shst() != 0;
        state
            .csts
            .set_shst(if cc.shn() != 0 || stays { 2 } else { 0 });
        state.cc = cc;
        state.csts.set_rdy(cc.en());
        drop(state);

        // The host reads CSTS.RDY after this answer: by then no command of the I/O queues may have
        // an effect (Base 2.0 §3.7.2).
        if resets {
            self.settle();
        }
        Ok(())
    }

    /// Checks an I/O command.
    ///
    /// # Errors
    /// The status to answer.
    #[inline(always)]
    pub fn io_command(&self, sqe: &Sqe) -> Result<IoCommand, Status> {
        self.must_be_accessible()?;
        let head = sqe.head();
        // A flush may name all namespaces at once (NVM 1.0 §7.2).
        if head.opcode() == io::FLUSH && sqe.nsid == u32::MAX && head.fuse() == 0 {
            return Ok(IoCommand::FLUSH_ALL);
        }

        let namespace = self.namespace(sqe.nsid).ok_or(Status::INVALID_NAMESPACE)?;
        // Take the lock only for the one command that depends on the state.
        let copy_formats = if head.opcode() == io::COPY {
            self.state().features.copy_formats()
        } else {
            0
        };

        let request = IoRequest::parse(sqe, &namespace, copy_formats)?;
        // Check rights last: an invalid command gets the same answer for every host that sees the
        // namespace.
        self.rights.check_request(sqe.nsid, &request)?;
        Ok(IoCommand::new(request, &namespace))
    }

    /// Gives its host other rights, from the next command on: commands in progress are checked
    /// again before they are executed. A host that has enabled the event is notified of changed
    /// namespaces.
    pub fn grant(&self, rights: Rights) {
        // Only namespaces whose access differs have changed for this host.
        let before = self.rights.get();
        let all = self
            .subsystem
            .namespaces
            .all_attached(&self.rights)
            .into_iter();
        let changed = all
            .map(|namespace| namespace.nsid)
            .filter(|nsid| before.access(*nsid) != rights.access(*nsid))
            .collect();

        // The rights first, then the event: a host that reads at once sees the new state.
        self.rights.set(rights);
        self.note_changed(changed);
    }

    /// A namespace, if its host sees it.
    #[inline]
    pub(super) fn namespace(&self, nsid: u32) -> Option<Namespace> {
        self.namespace_of(&self.subsystem.namespaces, nsid)
    }

    /// The namespaces that its host sees.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = Namespace> {
        self.namespaces_of(&self.subsystem.namespaces)
    }

    /// Ends the controller: none of its queues goes on from now on, and commands in progress have
    /// ended when this returns. The caller must not have the device.
    pub(crate) fn end(&self) {
        self.close();
        self.settle();
    }

    /// Ends several controllers, waiting for the device only once.
    pub fn end_all(all: &[Arc<Self>]) {
        all.iter().for_each(|one| one.close());
        Self::settle_all(all);
    }

    /// Waits for the end of every step begun before these controllers ended, or before their hosts
    /// got other rights.
    pub(crate) fn settle_all(all: &[Arc<Self>]) {
        if let Some(first) = all.first() {
            let ended = all.iter().map(|one| -> &HostController { one });
            settle_all(&first.subsystem.device, ended);
        }
    }

    pub(super) fn settle(&self) {
        // The discovery service has no namespaces to change.
        if !self.discovery {
            self.subsystem.device.turnstile.pass();
            self.commands.settle();
        }
    }
}
