//! Reservations: which hosts may use a namespace while others must not (Base 2.0 §8.19).
//!
//! ```text
//! rules     one namespace: registrants, the reservation, who may do what
//! commands  Register, Acquire, Release and Report, and an operator's clearing
//! notices   what hosts are told: events, the log page, masks, features
//! holding   vendor: who is registered and connected; commands that end with their reservation
//! ```
//! Invariants: what is allowed changes only in a turn at the device, and each command asks at the
//! beginning of its turn and after each pause, so that once a change has been acknowledged nobody
//! whom it excludes reads or writes any more, long commands included. With persist through power
//! loss a change is durable before it is in force, and so before it is acknowledged. Where nobody
//! has registered a command costs one relaxed load. Absent: where the state is kept
//! (`ReservationStore`), connections.

mod commands;
mod holding;
mod notices;
mod rules;

pub(super) use holding::fid as holding_fid;
pub(super) use notices::{NotificationQueue, fid};
pub use rules::{
    CommandClass, Host, HostIdentity, NamespaceReservations, NotificationType, REGISTRANTS_MAX,
    ReservationType,
};

use super::namespaces::Namespace;
use super::request::IoRequest;
use super::subsystem::Subsystem;
use crate::spec::status::Status;
use rules::Notices;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state of all namespaces, by their numbers.
pub type AllReservations = BTreeMap<u32, NamespaceReservations>;

/// Notices that are remembered for hosts that have not asked yet.
const NOTICES_MAX: usize = 1024;

/// Where reservations that persist are kept.
pub trait ReservationStore: Send + Sync {
    /// Keeps these instead of those from before; they are durable then.
    ///
    /// # Errors
    /// The system's reason; those from before are kept.
    fn save(&self, all: &AllReservations) -> io::Result<()>;
}

/// Who has a command executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor<'a> {
    /// The service itself, which writes back what hosts were allowed to write.
    Service,
    /// A host, which reservations may hold back.
    Host(HostIdentity<'a>),
}

/// What a command does with a namespace, to be asked for again after each pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    pub host: HostIdentity<'a>,
    /// The one namespace it is about; `None`: all of them.
    pub nsid: Option<u32>,
    pub class: CommandClass,
}

impl<'a> Claim<'a> {
    /// What a host's command claims.
    pub fn of(host: HostIdentity<'a>, nsid: u32, request: &IoRequest) -> Self {
        // The file map is the whole device's, and one flush may be meant for all namespaces.
        let is_for_all = match request {
            IoRequest::FsReset => true,
            IoRequest::Flush => nsid == u32::MAX,
            _ => false,
        };
        Self {
            host,
            nsid: (!is_for_all).then_some(nsid),
            class: class_of(request),
        }
    }

    /// Of a command that copies from a namespace.
    pub fn to_read(host: HostIdentity<'a>, nsid: u32) -> Self {
        Self {
            host,
            nsid: Some(nsid),
            class: CommandClass::Read,
        }
    }
}

/// Whether a command is one that reads or one that writes (Base 2.0 §8.19, figure of command
/// behaviour; ours by what they do).
fn class_of(request: &IoRequest) -> CommandClass {
    match request {
        IoRequest::Read { .. }
        | IoRequest::Compare { .. }
        | IoRequest::Verify { .. }
        | IoRequest::FsMap { .. } => CommandClass::Read,
        IoRequest::Flush
        | IoRequest::Write { .. }
        | IoRequest::WriteThrough { .. }
        | IoRequest::WriteZeroes { .. }
        | IoRequest::DatasetManagement { .. }
        | IoRequest::Copy { .. }
        | IoRequest::Remap { .. }
        | IoRequest::FsWrite { .. }
        | IoRequest::FsReset => CommandClass::Write,
    }
}

/// One thing that a host is told.
#[derive(Clone, Debug)]
struct Notice {
    number: u64,
    host: Host,
    nsid: u32,
    kind: NotificationType,
}

#[derive(Default)]
struct ReservationState {
    all: AllReservations,
    notices: VecDeque<Notice>,
    /// Power cuts: what a command has prepared before one does not come into force after it.
    power_cuts: u64,
}

/// The reservations of a subsystem.
#[derive(Default)]
pub(super) struct Reservations {
    /// Whether there is a reservation anywhere. Changed in a turn at the device only, and read in
    /// turns: their lock orders both.
    is_any: AtomicBool,
    /// The number of the next notice.
    next_notice: AtomicU64,
    state: Mutex<ReservationState>,
    /// Locked by commands that change something, while that becomes durable.
    changing: Mutex<()>,
    store: Option<Box<dyn ReservationStore>>,
}

impl Reservations {
    /// As they were kept, and where to keep them from now on.
    pub fn kept(all: AllReservations, store: Box<dyn ReservationStore>) -> Self {
        let reservations = Self {
            store: Some(store),
            ..Self::default()
        };
        reservations.put_in_force(&mut reservations.state(), all);
        reservations
    }

    fn state(&self) -> MutexGuard<'_, ReservationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a reservation on any namespace. The caller has the device.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// Whether a command may do what it claims. The caller has the device.
    ///
    /// # Errors
    /// Reservation Conflict.
    pub fn check(&self, claim: &Claim<'_>) -> Result<(), Status> {
        let state = self.state();
        // A host that said so stops with its reservation, whether or not another host has one.
        let only = claim.host.holds_or_stops;
        let is_concerned = only != 0 && claim.nsid.is_none_or(|nsid| nsid == only);
        let holds = |all: &AllReservations| all.get(&only).is_some_and(|one| one.holds(claim.host));
        if is_concerned && !holds(&state.all) {
            return Err(Status::RESERVATION_CONFLICT);
        }

        // A command for all namespaces needs every one of them.
        let mut concerned = state
            .all
            .iter()
            .filter(|(nsid, _)| claim.nsid.is_none_or(|wanted| wanted == **nsid));
        if concerned.all(|(_, one)| one.allows(claim.host, claim.class)) {
            Ok(())
        } else {
            Err(Status::RESERVATION_CONFLICT)
        }
    }

    fn put_in_force(&self, state: &mut ReservationState, all: AllReservations) {
        let is_any = all.values().any(|one| one.reservation.is_some());
        state.all = all;
        self.is_any.store(is_any, Relaxed);
    }

    /// The power is cut: what does not persist is gone. The caller has the device.
    pub fn lose_power(&self) {
        let mut state = self.state();
        state.power_cuts += 1;
        let mut all = std::mem::take(&mut state.all);
        all.retain(|_, one| one.persists);
        self.put_in_force(&mut state, all);
    }
}

/// What is to be kept.
fn persistent(all: &AllReservations) -> AllReservations {
    let kept = all.iter().filter(|(_, one)| one.persists);
    kept.map(|(nsid, one)| (*nsid, one.clone())).collect()
}

impl Subsystem {
    /// With reservations as they were kept, and where to keep them from now on.
    pub fn with_reservations(
        self,
        kept: AllReservations,
        store: Box<dyn ReservationStore>,
    ) -> Self {
        let mut subsystem = self;
        subsystem.reservations = Reservations::kept(kept, store);
        subsystem
    }

    /// The reservations of a namespace, for an operator.
    pub fn reservations_of(&self, nsid: u32) -> NamespaceReservations {
        let state = self.reservations.state();
        state.all.get(&nsid).cloned().unwrap_or_default()
    }

    /// Changes the reservations of a namespace. The caller must not have the device.
    ///
    /// # Errors
    /// What `change` says, and then nothing has changed; or Internal Error, if the change could not
    /// be kept, or the power was cut meanwhile.
    pub(super) fn change_reservations(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut NamespaceReservations) -> Result<Notices, Status>,
    ) -> Result<(), Status> {
        let reservations = &self.reservations;
        // One change at a time: of two that begin from the same state the first would be lost.
        let _one = reservations
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Its reservations end with a namespace, under this lock. Whoever comes later must not
        // change those of the next one of its number.
        let nsid = namespace.nsid;
        self.must_be_unchanged(nsid, namespace.version)?;
        let (mut all, power_cuts) = {
            let state = reservations.state();
            (state.all.clone(), state.power_cuts)
        };

        // What does not persist is not written, so most changes wait for no disk.
        let before = persistent(&all);
        let notices = change(all.entry(nsid).or_default())?;
        let after = persistent(&all);

        // 1. the new state is durable  2. it is in force  3. the command is acknowledged. A cut
        //    before 1: the command did not happen. Behind 1: it did, and nobody was told.
        if let Some(store) = reservations.store.as_ref().filter(|_| before != after) {
            store.save(&after).map_err(|_| Status::INTERNAL)?;
        }

        // Nobody is within a step of a command: who is excluded from now on asks again first.
        let turn = self.device();
        let mut state = reservations.state();

        // The power was cut while the change was being kept. What was kept is in force; the host
        // learns by asking whether its change is among it.
        if state.power_cuts != power_cuts {
            reservations.put_in_force(&mut state, after);
            return Err(Status::INTERNAL);
        }
        reservations.put_in_force(&mut state, all);
        reservations.tell(&mut state, nsid, notices);

        drop(state);
        drop(turn);
        Ok(())
    }

    /// Nothing is left of the reservations of a namespace, which ends or begins: neither their
    /// generation, nor whether they persist.
    ///
    /// # Errors
    /// The change could not be kept.
    pub(super) fn forget_reservations(&self, namespace: &Namespace) -> Result<(), Status> {
        self.change_reservations(namespace, |all| {
            let notices = all.clear_for_operator();
            *all = NamespaceReservations::default();
            Ok(notices)
        })
    }

    /// Takes away all registrations and the reservation of a namespace, for an operator.
    ///
    /// # Errors
    /// The change could not be kept.
    pub(super) fn clear_reservations(&self, namespace: &Namespace) -> Result<usize, Status> {
        let mut count = 0;
        self.change_reservations(namespace, |all| {
            count = all.registrants.len();
            Ok(all.clear_for_operator())
        })?;
        Ok(count)
    }
}
