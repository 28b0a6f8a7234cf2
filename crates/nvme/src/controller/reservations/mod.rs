//! Reservations: exclusive access of hosts to a namespace (Base 2.0 §8.19).
//!
//! ```text
//! rules     one namespace: registrants, the reservation, permissions
//! commands  Register, Acquire, Release and Report, and clearing by an operator
//! notices   notifications that wait for hosts, and their masks
//! features  event, log page and features of hosts
//! holding   vendor: which registrants are connected; commands that end with their reservation
//! ```
//! Invariants: permissions change only in a turn at the device, and each command checks them at the
//! beginning of its turn and after each pause. So once a change has been acknowledged, no excluded
//! host reads or writes any more, not even by a long command. With persist through power loss a
//! change is durable before it is in force, and so before it is acknowledged. Without a reservation
//! a command costs one relaxed load. Absent: storage of the state (`ReservationStore`),
//! connections.

mod commands;
mod features;
mod holding;
mod notices;
pub(super) mod rules;

pub(super) use notices::NotificationQueue;
pub(crate) use rules::{CommandClass, Host, NotificationType};
pub use rules::{HostIdentity, NamespaceReservations, REGISTRANTS_MAX, ReservationType};

use super::blocks::Namespace;
use super::namespaces::Namespaces;
use super::request::IoRequest;
use super::turn::SharedDevice;
use crate::spec::status::Status;
use rules::Notices;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state of all namespaces, by number.
pub type AllReservations = BTreeMap<u32, NamespaceReservations>;

/// Maximum notices kept for hosts that have not asked yet.
const NOTICES_MAX: usize = 1024;

/// Storage of reservations that persist.
pub trait ReservationStore: Send + Sync {
    /// Replaces the saved state; it is durable on return.
    ///
    /// # Errors
    /// The system's reason; the previous state is kept.
    fn save(&self, all: &AllReservations) -> io::Result<()>;
}

/// Use of a namespace by a command, checked again after each pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    pub host: HostIdentity<'a>,
    /// The namespace used; `None`: all of them.
    pub nsid: Option<u32>,
    pub(crate) class: CommandClass,
}

impl<'a> Claim<'a> {
    /// The claim of a host's command.
    pub(super) fn of(host: HostIdentity<'a>, nsid: u32, request: &IoRequest) -> Self {
        // The file map belongs to the whole device, and one flush may cover all namespaces.
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

    /// The claim of a command that copies from a namespace.
    pub(super) fn to_read(host: HostIdentity<'a>, nsid: u32) -> Self {
        Self {
            host,
            nsid: Some(nsid),
            class: CommandClass::Read,
        }
    }
}

/// Classifies a command as a read or a write (Base 2.0 §8.19, figure of command behaviour; vendor
/// commands by their effect).
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

/// One notification of a host.
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
    /// Power cuts: a change prepared before one does not come into force after it.
    power_cuts: u64,
}

/// The reservations of a subsystem.
#[derive(Default)]
pub(super) struct Reservations {
    /// True if there is a reservation anywhere. Changed and read only in turns at the device, whose
    /// lock orders both.
    is_any: AtomicBool,
    /// The number of the next notice.
    next_notice: AtomicU64,
    state: Mutex<ReservationState>,
    /// Locked by commands that change something, until the change is durable.
    changing: Mutex<()>,
    store: Option<Box<dyn ReservationStore>>,
}

impl Reservations {
    /// Loads a saved state; `store` keeps all later changes.
    pub(super) fn kept(all: AllReservations, store: Box<dyn ReservationStore>) -> Self {
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

    /// Returns true if any namespace has a reservation. The caller has the device.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// Checks a claim. The caller has the device.
    ///
    /// # Errors
    /// Reservation Conflict.
    pub(super) fn check(&self, claim: &Claim<'_>) -> Result<(), Status> {
        let state = self.state();
        // A host with the holding feature stops with its reservation, even if no other host has
        // one.
        let only = claim.host.holds_or_stops;
        let is_concerned = only != 0 && claim.nsid.is_none_or(|nsid| nsid == only);
        let holds = |all: &AllReservations| all.get(&only).is_some_and(|one| one.holds(claim.host));
        if is_concerned && !holds(&state.all) {
            return Err(Status::RESERVATION_CONFLICT);
        }

        // A command for all namespaces must be allowed in each.
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

    /// Handles a power cut: state that does not persist is lost. The caller has the device.
    pub(super) fn lose_power(&self) {
        let mut state = self.state();
        state.power_cuts += 1;
        let mut all = std::mem::take(&mut state.all);
        all.retain(|_, one| one.persists);
        self.put_in_force(&mut state, all);
    }

    /// The reservations of a namespace.
    pub(super) fn of(&self, nsid: u32) -> NamespaceReservations {
        let state = self.state();
        state.all.get(&nsid).cloned().unwrap_or_default()
    }

    /// Changes the reservations of a namespace. The caller must not have the device.
    ///
    /// # Errors
    /// The error of `change`, without any effect; Internal Error: the change could not be saved. Commands Aborted due to Power Loss
    /// Notification: the power was cut in the meantime.
    pub(super) fn change(
        &self,
        device: &SharedDevice,
        namespaces: &Namespaces,
        namespace: &Namespace,
        change: impl FnOnce(&mut NamespaceReservations) -> Result<Notices, Status>,
    ) -> Result<(), Status> {
        // One change at a time: of two that start from the same state, the first would be lost.
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // A namespace's reservations end with it, under this lock. A late command must not change
        // those of the next namespace with its number.
        let nsid = namespace.nsid;
        namespaces.must_be_unchanged(nsid, namespace.version)?;
        let (mut all, power_cuts) = {
            let state = self.state();
            (state.all.clone(), state.power_cuts)
        };

        // State that does not persist is not written, so most changes wait for no disk.
        let before = persistent(&all);
        let notices = change(all.entry(nsid).or_default())?;
        let after = persistent(&all);

        // 1. the new state is durable
        // 2. it is in force
        // 3. the command is acknowledged
        // A cut before 1: the command has no effect. After 1: it has, without acknowledgement.
        if let Some(store) = self.store.as_ref().filter(|_| before != after) {
            store.save(&after).map_err(|_| Status::INTERNAL)?;
        }

        // No command is within a step: a host excluded from now on is checked before its next step.
        let turn = device.turn();
        let mut state = self.state();

        // The power was cut while the change was being saved. The saved state is in force; the host
        // must ask whether it includes its change.
        if state.power_cuts != power_cuts {
            self.put_in_force(&mut state, after);
            return Err(Status::POWER_LOSS);
        }
        self.put_in_force(&mut state, all);
        self.notify(&mut state, nsid, notices);

        drop(state);
        drop(turn);
        Ok(())
    }

    /// Removes all reservation state of a namespace that is deleted or created, including the
    /// generation and the persist flag.
    ///
    /// # Errors
    /// The change could not be saved.
    pub(super) fn forget(
        &self,
        device: &SharedDevice,
        namespaces: &Namespaces,
        namespace: &Namespace,
    ) -> Result<(), Status> {
        loop {
            let forgotten = self.change(device, namespaces, namespace, |all| {
                let notices = all.clear_for_operator();
                *all = NamespaceReservations::default();
                Ok(notices)
            });
            // The namespace has no host that could ask again.
            if forgotten != Err(Status::POWER_LOSS) {
                return forgotten;
            }
        }
    }

    /// Removes all registrations and the reservation of a namespace, for an operator.
    ///
    /// # Errors
    /// The change could not be saved.
    pub(super) fn clear(
        &self,
        device: &SharedDevice,
        namespaces: &Namespaces,
        namespace: &Namespace,
    ) -> Result<usize, Status> {
        let mut count = 0;
        self.change(device, namespaces, namespace, |all| {
            count = all.registrants.len();
            Ok(all.clear_for_operator())
        })?;
        Ok(count)
    }
}

/// The state to be saved.
fn persistent(all: &AllReservations) -> AllReservations {
    let kept = all.iter().filter(|(_, one)| one.persists);
    kept.map(|(nsid, one)| (*nsid, one.clone())).collect()
}
