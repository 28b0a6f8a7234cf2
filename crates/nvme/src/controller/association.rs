//! One host's controller: created by Connect on an admin queue, joined by Connects of I/O queues.
//!
//! Invariants: commands other than fabrics commands are refused until the host has enabled the
//! controller; an association that has been silent for its keep-alive time is closed by its admin
//! queue, which ends all its queues. Absent: connections (`tcp`).

use super::bus::Transport;
use super::changed::ChangedNamespaces;
use super::connect::ConnectRefusal;
use super::execute::FailedBlock;
use super::features::{Features, keep_alive_granted};
use super::portals::{AnaReported, Portal, Reached};
use super::reservations::NotificationQueue;
use super::rights::HostRights;
use super::standing::{CommandsUnderWay, Epoch, Standing};
use super::subsystem::Subsystem;
use super::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX};
use crate::spec::command::Sqe;
use crate::spec::fabrics::{
    Cap, Cc, ConnectCdw11, ConnectData, Crto, Csts, DISCOVERY_NQN, property,
};
use crate::spec::join;
use crate::spec::log::ErrorEntry;
use crate::spec::status::Status;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum entries of the error log.
pub(super) const ERRORS: usize = 64;
/// Maximum outstanding asynchronous event requests of a host.
pub(super) const EVENTS_MAX: usize = 4;
/// Maximum time to become ready, in half seconds. It is ready at once.
const READY_HALF_SECONDS: u8 = 20;
/// NVMe 2.0, in the format of the register VS.
pub(super) const VERSION: u32 = 0x0002_0000;

pub(super) struct AssociationState {
    pub(super) cc: Cc,
    pub(super) csts: Csts,
    pub(super) keep_alive_ms: u32,
    pub(super) heard_ns: u64,
    pub(super) features: Features,
    /// Command identifiers of waiting asynchronous event requests.
    pub(super) event_requests: VecDeque<u16>,
    /// Warnings that have been reported and still apply.
    pub(super) reported: u8,
    /// True if the host has not read SMART since the last event. Until it does, no other is sent.
    pub(super) unread: bool,
    /// Namespaces that have changed for the host.
    pub(super) changed: ChangedNamespaces,
    pub(super) errors: VecDeque<ErrorEntry>,
    pub(super) error_count: u64,
    /// I/O queues that are connected, by bits.
    pub(super) queues: u64,
    /// True if there has been an I/O queue since the last reset.
    pub(super) queues_made: bool,
    /// True if its host connected by TLS; discovery then tells it to use TLS.
    pub(super) by_tls: bool,
    /// Its notifications about reservations.
    pub(super) notifications: NotificationQueue,
    /// Changes of its portal reported so far.
    pub(super) ana_reported: AnaReported,
}

impl AssociationState {
    /// State of a controller not enabled yet, for a host last heard of at `now`.
    pub(super) fn new(
        subsystem: &Subsystem,
        transport: Transport,
        keep_alive_ms: u32,
        now: u64,
    ) -> Self {
        Self {
            cc: Cc::new(),
            csts: Csts::new(),
            keep_alive_ms: keep_alive_granted(keep_alive_ms),
            heard_ns: now,
            features: Features::new(subsystem.volatile_cache(), transport),
            event_requests: VecDeque::new(),
            reported: 0,
            unread: false,
            changed: ChangedNamespaces::default(),
            errors: VecDeque::new(),
            error_count: 0,
            queues: 0,
            queues_made: false,
            by_tls: false,
            notifications: NotificationQueue::new(&subsystem.reservations),
            ana_reported: AnaReported::default(),
        }
    }

    /// Returns true if commands are executed. After a shutdown has begun that takes a reset
    /// (CSTS.SHST, Base 2.0 §3.1.3.6).
    fn takes_commands(&self) -> bool {
        self.cc.en() && self.csts.shst() == 0
    }
}

/// The controller of one host: its queues, features and events.
pub struct Association {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) cntlid: u16,
    pub(super) discovery: bool,
    pub(super) transport: Transport,
    /// The address by which the host connected; discovery reports it.
    pub(super) address: SocketAddr,
    pub(super) portal: Arc<Portal>,
    pub(super) hostnqn: String,
    pub(super) hostid: [u8; 16],
    pub(super) rights: HostRights,
    /// The namespace that the host uses only while it holds the reservation; 0 if none.
    pub(super) holds_or_stops: AtomicU32,
    pub(super) state: Mutex<AssociationState>,
    /// Decides whether its queues may go on. A reset changes it while `state` is locked. Atomic,
    /// because every command of every queue reads it, and a lock would bounce between their
    /// processors.
    pub(super) epoch: Arc<Epoch>,
    pub(super) commands: CommandsUnderWay,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.subsystem.release_cntlid(self.cntlid);
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

/// An I/O queue of a controller, until the controller is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedQueue {
    /// Its number, as the host chose it.
    pub qid: u16,
    /// Number of entries of its submission queue.
    pub entries: u16,
    /// The controller's epoch at Connect.
    epoch: u64,
    /// True if it has taken its number.
    has_number: bool,
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
        let mut state = AssociationState::new(subsystem, Transport::Fabrics, sqe.cdw12, now);

        // The host reads the current state; only later changes are reported.
        state.ana_reported = AnaReported::all(&portal);
        let hostnqn = name(&data.hostnqn).expect("checked").to_owned();
        let association = Arc::new(Self {
            subsystem: subsystem.clone(),
            cntlid: subsystem.take_cntlid().ok_or(ConnectRefusal::BUSY)?,
            discovery,
            transport: Transport::Fabrics,
            address,
            portal,
            rights: HostRights::none(&hostnqn, &subsystem.counters.denied),
            hostnqn,
            hostid: data.hostid,
            holds_or_stops: AtomicU32::new(0),
            state: Mutex::new(state),
            epoch: Arc::default(),
            commands: CommandsUnderWay::default(),
        });
        subsystem.note_controller(&association);
        Ok((association, entries))
    }

    /// Checks a Connect on an I/O queue. The queue's number is not taken yet (`take_queue`).
    ///
    /// # Errors
    /// The refusal to answer.
    pub fn join(&self, sqe: &Sqe, data: &ConnectData) -> Result<JoinedQueue, ConnectRefusal> {
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

    /// Takes the number of an I/O queue whose connection may use it: at once, or after its host has
    /// authenticated. If several connections wait for that, the first one gets it.
    ///
    /// # Errors
    /// Another connection has taken the number, or the controller has been reset.
    pub fn take_queue(&self, queue: &mut JoinedQueue) -> Result<(), ConnectRefusal> {
        let mut state = self.state();
        // Since `join` the host may have spent seconds on authentication: another queue may have
        // been faster.
        if !self.has(queue) || self.is_closed() {
            return Err(ConnectRefusal::NOT_ENABLED);
        }
        let bit = 1 << (queue.qid - 1);
        if state.queues & bit != 0 {
            return Err(ConnectRefusal::QUEUE_IN_USE);
        }

        state.queues |= bit;
        state.queues_made = true;
        queue.has_number = true;
        Ok(())
    }

    /// Returns true if an I/O queue still exists. A reset removes all.
    pub fn has(&self, queue: &JoinedQueue) -> bool {
        self.epoch.now() == queue.epoch
    }

    /// The standing of a queue: an I/O queue, or the admin queue.
    pub fn standing(&self, queue: Option<&JoinedQueue>) -> Standing {
        match queue {
            Some(queue) => Standing::of_io_queue(&self.epoch, queue.epoch),
            None => Standing::of_admin_queue(&self.epoch),
        }
    }

    /// Handles the end of an I/O queue's connection.
    pub fn leave(&self, queue: &JoinedQueue) {
        let mut state = self.state();
        // After a reset the same bit may belong to a newer queue.
        if queue.has_number && self.has(queue) {
            state.queues &= !(1 << (queue.qid - 1));
        }
    }

    /// The controller ID, by which I/O queues join it.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }
    /// Name (NQN) of the host that connected.
    pub fn hostnqn(&self) -> &str {
        &self.hostnqn
    }
    /// Notes that its host connected by TLS.
    pub fn note_tls(&self) {
        self.state().by_tls = true;
    }
    /// Returns true if the host connected to the discovery service.
    pub fn is_discovery(&self) -> bool {
        self.discovery
    }
    /// The subsystem that the controller belongs to.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }
    pub(super) fn state(&self) -> MutexGuard<'_, AssociationState> {
        self.state.lock().expect("nothing under this lock can fail")
    }
    /// Returns true if the host has enabled it, and not shut it down since.
    pub fn is_enabled(&self) -> bool {
        self.state().takes_commands()
    }
    /// Returns true if writes may stay in a volatile cache.
    pub fn cache_enabled(&self) -> bool {
        self.subsystem.volatile_cache() && self.state().features.cache_enabled()
    }

    /// Returns true if an asynchronous event request with this identifier is outstanding.
    pub fn has_event_request(&self, cid: u16) -> bool {
        self.state().event_requests.contains(&cid)
    }

    /// Notes that the host was heard of at `now`. A queue that waited for the device reports
    /// earlier receptions, which must not undo a later one of another queue.
    pub fn heard(&self, now: u64) {
        let mut state = self.state();
        state.heard_ns = state.heard_ns.max(now);
    }

    /// Returns true if the host has been silent for too long. Received but unprocessed data count
    /// as a sign of life, so only the thread of the admin queue can tell.
    pub fn is_silent(&self, now: u64) -> bool {
        let state = self.state();
        let silence_max = u64::from(state.keep_alive_ms) * 1_000_000;
        // 0 means no keep-alive time: the host may be silent without limit.
        silence_max > 0 && now.saturating_sub(state.heard_ns) > silence_max
    }
    /// Returns true if its admin queue has ended.
    pub fn is_closed(&self) -> bool {
        self.epoch.is_ended()
    }
    /// Outstanding asynchronous event requests; a reset drops them.
    pub fn event_requests(&self) -> usize {
        self.state().event_requests.len()
    }
    /// No queue may go on from now on. Steps in progress may last a little longer (`end`).
    pub fn close(&self) {
        self.epoch.end();
    }

    /// Reads a register of the controller (Property Get).
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn property_get(&self, sqe: &Sqe) -> Result<u64, Status> {
        // The size of a property: 1 is 8 bytes, 0 is 4.
        let wide = sqe.cdw10 & 7 == 1;
        let state = self.state();

        match (sqe.cdw11, wide) {
            (property::CAP, true) => {
                let cap = Cap::new()
                    .with_mqes_z(QUEUE_ENTRIES_MAX - 1)
                    .with_cqr(true)
                    .with_css_nvm(true);
                Ok(cap
                    .with_to(READY_HALF_SECONDS)
                    .with_crms_with_media(true)
                    .into_bits())
            }
            (property::CRTO, false) => Ok(Crto::new()
                .with_with_media(READY_HALF_SECONDS.into())
                .into_bits()
                .into()),
            (property::VS, false) => Ok(VERSION.into()),
            (property::CC, false) => Ok(state.cc.into_bits().into()),
            (property::CSTS, false) => Ok(state.csts.into_bits().into()),
            _ => Err(Status::INVALID_FIELD),
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

    /// Adds an error to the log. If the failed block is unknown, the command's first block is
    /// logged.
    pub fn log_error(
        &self,
        qid: u16,
        sqe: &Sqe,
        status: Status,
        failed_block: Option<FailedBlock>,
    ) {
        let mut state = self.state();
        state.error_count += 1;

        let mut entry: ErrorEntry = crate::spec::identify::blank();
        entry.error_count = state.error_count;
        (entry.sqid, entry.cid) = (qid, sqe.head().cid());
        entry.status = status.into_bits() << 1;

        // No parameter is named: the status is enough.
        entry.parameter_location = 0xffff;

        // The first block with an error; transport 3 is TCP (Base 2.0 §5.16.1.1).
        (entry.nsid, entry.lba) = match failed_block {
            Some(FailedBlock { nsid, lba }) => (nsid, lba),
            None if qid == 0 => (sqe.nsid, 0),
            None => (sqe.nsid, join(sqe.cdw10, sqe.cdw11)),
        };
        entry.trtype = if self.transport == Transport::Fabrics {
            3
        } else {
            0
        };

        // The newest entry is the first of the log (Base 2.0 §5.16.1.2).
        state.errors.push_front(entry);
        state.errors.truncate(ERRORS);
    }
}
