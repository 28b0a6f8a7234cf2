//! One host's controller: its registers, features, rights, queues and events.
//!
//! Invariant: commands other than fabrics commands are refused until the host has enabled the
//! controller. Absent: the subsystem (`association`), connections (`tcp`).

use super::QUEUE_ENTRIES_MAX;
use super::blocks::Namespace;
use super::changed::ChangedNamespaces;
use super::connect::ConnectRefusal;
use super::features::{Features, keep_alive_granted};
use super::issuer::FailedBlock;
use super::namespaces::Namespaces;
use super::portals::{AnaReported, Portal, Transport};
use super::reservations::rules::HostIdentity;
use super::reservations::{NotificationQueue, Reservations};
use super::rights::{Access, HostRights, Need};
use super::standing::{CommandsUnderWay, Epoch, Standing};
use crate::spec::command::Sqe;
use crate::spec::fabrics::{Cap, Cc, Crto, Csts, property};
use crate::spec::identify::NSATTR_WRITE_PROTECTED;
use crate::spec::join;
use crate::spec::log::ErrorEntry;
use crate::spec::status::Status;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
        volatile_cache: bool,
        reservations: &Reservations,
        transport: Transport,
        keep_alive_ms: u32,
        now: u64,
    ) -> Self {
        Self {
            cc: Cc::new(),
            csts: Csts::new(),
            keep_alive_ms: keep_alive_granted(keep_alive_ms),
            heard_ns: now,
            features: Features::new(volatile_cache, transport),
            event_requests: VecDeque::new(),
            reported: 0,
            unread: false,
            changed: ChangedNamespaces::default(),
            errors: VecDeque::new(),
            error_count: 0,
            queues: 0,
            queues_made: false,
            by_tls: false,
            notifications: NotificationQueue::new(reservations),
            ana_reported: AnaReported::default(),
        }
    }

    /// Returns true if commands are executed. After a shutdown has begun that takes a reset
    /// (CSTS.SHST, Base 2.0 §3.1.3.6).
    pub(super) fn takes_commands(&self) -> bool {
        self.cc.en() && self.csts.shst() == 0
    }

    /// The event of changed namespaces, if it is due and a request is waiting.
    pub(super) fn changed_event(&mut self) -> Option<(u16, u64)> {
        if !self.changed.is_news() || !self.features.namespace_events() {
            return None;
        }

        // Taken only when the event is sent: a known change must not consume a request.
        let cid = self.event_requests.pop_front()?;
        Some((cid, self.changed.report()))
    }
}

/// The controller of one host: its queues, features and events.
pub struct HostController {
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
    /// True if its host has switched the volatile cache off: a copy of the feature, for commands in progress. Changes only while
    /// `state` is locked.
    pub(super) write_through: AtomicBool,
    pub(super) state: Mutex<AssociationState>,
    /// Decides whether its queues may go on. A reset changes it while `state` is locked. Atomic,
    /// because every command of every queue reads it, and a lock would bounce between their
    /// processors.
    pub(super) epoch: Arc<Epoch>,
    pub(super) commands: CommandsUnderWay,
}

/// An I/O queue of a controller, until the controller is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedQueue {
    /// Its number, as the host chose it.
    pub qid: u16,
    /// Number of entries of its submission queue.
    pub entries: u16,
    /// The controller's epoch at Connect.
    pub(super) epoch: u64,
    /// True if it has taken its number.
    pub(super) has_number: bool,
}

impl HostController {
    pub(super) fn state(&self) -> MutexGuard<'_, AssociationState> {
        self.state.lock().expect("nothing under this lock can fail")
    }

    /// The controller ID, by which I/O queues join it.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Name (NQN) of the host that connected.
    pub(crate) fn hostnqn(&self) -> &str {
        &self.hostnqn
    }

    /// Returns true if the host connected to the discovery service.
    pub(crate) fn is_discovery(&self) -> bool {
        self.discovery
    }

    /// The host, as reservations identify it.
    pub(crate) fn host(&self) -> HostIdentity<'_> {
        HostIdentity {
            id: self.hostid,
            nqn: &self.hostnqn,
            holds_or_stops: self.holds_or_stops.load(Ordering::Acquire),
        }
    }

    /// The rights of its host.
    pub(crate) fn rights(&self) -> &HostRights {
        &self.rights
    }

    /// A namespace, if the host sees it.
    #[inline]
    pub(super) fn namespace_of(&self, all: &Namespaces, nsid: u32) -> Option<Namespace> {
        let found = all.attached(nsid, &self.rights)?;
        (self.rights.check(nsid, Need::Read).is_ok()).then_some(found)
    }

    /// Returns true if the host sees a namespace. Counts no denial: the host sent no command.
    pub(super) fn sees(&self, all: &Namespaces, nsid: u32) -> bool {
        let is_attached = all.attached(nsid, &self.rights).is_some();
        is_attached && self.rights.access(nsid) > Access::None
    }

    /// The namespaces that the host sees.
    pub(super) fn namespaces_of(&self, all: &Namespaces) -> impl Iterator<Item = Namespace> {
        let all = all.all_attached(&self.rights).into_iter();
        all.filter(|namespace| self.rights.access(namespace.nsid) > Access::None)
    }

    /// Attributes of a namespace, for Identify: write protected or not for its host.
    pub(super) fn attributes(&self, nsid: u32) -> u8 {
        // A read-only host sees the namespace as write protected, and can mount it read-only.
        match self.rights.access(nsid) {
            Access::ReadWrite => 0,
            Access::None | Access::ReadOnly => NSATTR_WRITE_PROTECTED,
        }
    }

    /// Checks that this portal executes its host's commands now.
    ///
    /// # Errors
    /// Asymmetric Access Inaccessible: the host may try another portal.
    #[inline]
    pub(super) fn must_be_accessible(&self) -> Result<(), Status> {
        if self.portal.is_inaccessible() {
            Err(Status::ACCESS_INACCESSIBLE)
        } else {
            Ok(())
        }
    }

    /// Returns true if an I/O queue still exists. A reset removes all.
    pub(crate) fn has(&self, queue: &JoinedQueue) -> bool {
        self.epoch.now() == queue.epoch
    }

    /// Takes the number of an I/O queue whose connection may use it: at once, or after its host has
    /// authenticated. If several connections wait for that, the first one gets it.
    ///
    /// # Errors
    /// Another connection has taken the number, or the controller has been reset.
    pub(crate) fn take_queue(&self, queue: &mut JoinedQueue) -> Result<(), ConnectRefusal> {
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

    /// The standing of a queue: an I/O queue, or the admin queue.
    pub fn standing(&self, queue: Option<&JoinedQueue>) -> Standing {
        match queue {
            Some(queue) => Standing::of_io_queue(&self.epoch, queue.epoch),
            None => Standing::of_admin_queue(&self.epoch),
        }
    }

    /// Handles the end of an I/O queue's connection.
    pub(crate) fn leave(&self, queue: &JoinedQueue) {
        let mut state = self.state();
        // After a reset the same bit may belong to a newer queue.
        if queue.has_number && self.has(queue) {
            state.queues &= !(1 << (queue.qid - 1));
        }
    }

    /// Notes that its host connected by TLS.
    pub(crate) fn note_tls(&self) {
        self.state().by_tls = true;
    }

    /// Returns true if the host has enabled it, and not shut it down since.
    pub fn is_enabled(&self) -> bool {
        self.state().takes_commands()
    }

    /// Returns true if an asynchronous event request with this identifier is outstanding.
    pub fn has_event_request(&self, cid: u16) -> bool {
        self.state().event_requests.contains(&cid)
    }

    /// Outstanding asynchronous event requests; a reset drops them.
    pub(crate) fn event_requests(&self) -> usize {
        self.state().event_requests.len()
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
    pub(crate) fn is_closed(&self) -> bool {
        self.epoch.is_ended()
    }

    /// No queue may go on from now on. Steps in progress may last a little longer (`end`).
    pub(crate) fn close(&self) {
        self.epoch.end();
    }

    /// Notes changed namespaces for a host that may know them.
    pub(super) fn note_changed(&self, numbers: Vec<u32>) {
        let mut state = self.state();
        // A host that has not enabled the controller reads all namespaces afterwards anyway.
        if state.cc.en() {
            state.changed.add(numbers);
        }
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

        // The first block with an error; transport 3 is TCP (Base 2.0 §5.16.1.2).
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
