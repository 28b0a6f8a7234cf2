//! The rules of reservations on one namespace (Base 2.0 §8.19): registrants, the holder, the effect
//! of each command, and permissions to read and write.
//!
//! Invariants: the holder of a reservation is registered; a refused command changes nothing. A host
//! is identified by its identifier and its name together, so a host that claims another's
//! identifier is still a different host. Absent: encoding of commands (`commands`), locks and
//! durability (`mod`).

use crate::spec::status::Status;
use serde::{Deserialize, Serialize};

/// Maximum registrants of one namespace.
pub const REGISTRANTS_MAX: usize = 256;

/// A host, as identified with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostIdentity<'a> {
    /// Its identifier (HOSTID), used by reservations.
    pub id: [u8; 16],
    /// Its name (NQN), for logs and operators.
    pub nqn: &'a str,
    /// The namespace that it uses only while it holds the reservation; 0 if none.
    pub(crate) holds_or_stops: u32,
}

impl HostIdentity<'_> {
    /// A local user without NVMe, such as one of files through FUSE: it can never be registered.
    pub(crate) const LOCAL: Self = Self {
        id: [0; 16],
        nqn: "",
        holds_or_stops: 0,
    };
}

/// A host, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its identifier (HOSTID), used by reservations.
    pub id: [u8; 16],
    /// Its name (NQN), for logs and operators.
    pub nqn: String,
}

impl Host {
    pub(super) fn identity(&self) -> HostIdentity<'_> {
        HostIdentity {
            id: self.id,
            nqn: &self.nqn,
            holds_or_stops: 0,
        }
    }

    pub(super) fn is(&self, host: HostIdentity<'_>) -> bool {
        self.id == host.id && self.nqn == host.nqn
    }
}

impl From<HostIdentity<'_>> for Host {
    fn from(host: HostIdentity<'_>) -> Self {
        Self {
            id: host.id,
            nqn: host.nqn.into(),
        }
    }
}

/// Effect of a command on a namespace's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandClass {
    /// Reads blocks and changes nothing.
    Read,
    /// Changes blocks, or makes changes durable.
    Write,
}

/// Reservation types, with their RTYPE values.
#[allow(missing_docs, reason = "the specification's names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationType {
    WriteExclusive = 1,
    ExclusiveAccess = 2,
    WriteExclusiveRegistrantsOnly = 3,
    ExclusiveAccessRegistrantsOnly = 4,
    WriteExclusiveAllRegistrants = 5,
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// The type with this RTYPE value.
    pub(crate) fn of(number: u8) -> Option<Self> {
        use ReservationType::*;
        let all = [
            WriteExclusive,
            ExclusiveAccess,
            WriteExclusiveRegistrantsOnly,
            ExclusiveAccessRegistrantsOnly,
            WriteExclusiveAllRegistrants,
            ExclusiveAccessAllRegistrants,
        ];
        all.into_iter().find(|one| *one as u8 == number)
    }

    /// Returns true if reads are exclusive too. The exclusive access types have even numbers.
    fn excludes_reads(self) -> bool {
        (self as u8).is_multiple_of(2)
    }

    /// Returns true if all registrants have the rights of the holder.
    fn is_for_registrants(self) -> bool {
        // From 3 on a type is for registrants, from 5 on they all hold it.
        self as u8 >= 3
    }

    /// Returns true if all registrants are holders.
    fn is_held_by_all(self) -> bool {
        self as u8 >= 5
    }
}

/// A registered host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registrant {
    /// The host.
    pub host: Host,
    /// Its reservation key.
    pub key: u64,
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// Its type.
    pub kind: ReservationType,
    /// The holder; `None` if all registrants hold it.
    pub holder: Option<Host>,
}

/// A change of a host's registration or reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotificationType {
    /// Another host removed its registration.
    RegistrationPreempted = 1,
    /// A reservation was released, while the host is registered.
    ReservationReleased = 2,
    /// A reservation was cleared, with the host's registration.
    ReservationPreempted = 3,
}

/// Notifications caused by a command, with their receivers.
pub(crate) type Notices = Vec<(Host, NotificationType)>;

/// The reservation state of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceReservations {
    /// Counts changes of registrations; reported to hosts.
    pub generation: u32,
    /// Persist through power loss state.
    pub persists: bool,
    /// Registrants, in the order of registration.
    pub registrants: Vec<Registrant>,
    /// The reservation, if there is one.
    pub reservation: Option<Reservation>,
}

impl NamespaceReservations {
    /// Returns true if a host may execute commands of a class.
    pub(crate) fn allows(&self, host: HostIdentity<'_>, class: CommandClass) -> bool {
        // Without a reservation, registrations exclude no host.
        let Some(reservation) = &self.reservation else {
            return true;
        };
        let may_read = class == CommandClass::Read && !reservation.kind.excludes_reads();
        let is_among = reservation.kind.is_for_registrants() && self.key_of(host).is_some();
        may_read || is_among || self.holds(host)
    }

    /// Returns true if a host holds the reservation, alone or with all registrants.
    pub(crate) fn holds(&self, host: HostIdentity<'_>) -> bool {
        match &self.reservation {
            None => false,
            Some(Reservation {
                holder: Some(holder),
                ..
            }) => holder.is(host),
            Some(_) => self.key_of(host).is_some(),
        }
    }

    fn key_of(&self, host: HostIdentity<'_>) -> Option<u64> {
        let found = self.registrants.iter().find(|one| one.host.is(host));
        found.map(|one| one.key)
    }

    /// Registers a host. Repeating it with the same key is allowed.
    ///
    /// # Errors
    /// It has another key already, or there are too many registrants.
    pub(crate) fn register(&mut self, host: HostIdentity<'_>, key: u64) -> Result<Notices, Status> {
        match self.key_of(host) {
            Some(has) if has != key => return Err(Status::RESERVATION_CONFLICT),
            Some(_) => {}

            // There is no status for too many; DNR keeps the host from retrying.
            None if self.registrants.len() >= REGISTRANTS_MAX => {
                return Err(Status::INTERNAL.with_dnr(true));
            }
            None => self.registrants.push(Registrant {
                host: host.into(),
                key,
            }),
        }
        self.count();
        Ok(Notices::new())
    }

    /// Replaces a host's key; without `current`, whether or not it has one.
    ///
    /// # Errors
    /// `current` is not its key.
    pub(crate) fn replace(
        &mut self,
        host: HostIdentity<'_>,
        current: Option<u64>,
        key: u64,
    ) -> Result<Notices, Status> {
        let found = self.registrants.iter_mut().find(|one| one.host.is(host));
        match (found, current) {
            (Some(one), current) if current.is_none_or(|current| current == one.key) => {
                one.key = key;
                self.count();
                Ok(Notices::new())
            }
            (None, None) => self.register(host, key),
            _ => Err(Status::RESERVATION_CONFLICT),
        }
    }

    /// Removes a host's registration, and the reservation if it holds that.
    ///
    /// # Errors
    /// It is not registered, or not with that key.
    pub(crate) fn unregister(
        &mut self,
        host: HostIdentity<'_>,
        current: Option<u64>,
    ) -> Result<Notices, Status> {
        let has = self.key_of(host).ok_or(Status::RESERVATION_CONFLICT)?;
        if current.is_some_and(|current| current != has) {
            return Err(Status::RESERVATION_CONFLICT);
        }

        let kind = self.reservation.as_ref().map(|held| held.kind);
        self.remove(|one| one.host.is(host));
        self.count();

        // Other hosts may be waiting for a reservation of this type to end: notify them.
        let was_released = self.reservation.is_none();
        Ok(match kind {
            Some(kind) if was_released && kind.is_for_registrants() => {
                self.notices_to_others(host, NotificationType::ReservationReleased)
            }
            _ => Notices::new(),
        })
    }

    /// Acquires a reservation that no other host holds.
    ///
    /// # Errors
    /// The host is not registered with this key, or there is another reservation.
    pub(crate) fn acquire(
        &mut self,
        host: HostIdentity<'_>,
        key: u64,
        kind: ReservationType,
    ) -> Result<Notices, Status> {
        self.must_be_registered(host, key)?;

        match &self.reservation {
            None => self.reserve(host, kind),
            // The holder may acquire it again unchanged.
            Some(held) if held.kind == kind && self.holds(host) => {}
            Some(_) => return Err(Status::RESERVATION_CONFLICT),
        }
        Ok(Notices::new())
    }

    /// Removes registrations with the key `preempted`, and takes over the reservation if such a
    /// host holds it.
    ///
    /// # Errors
    /// The host is not registered with its own key, no host has the other one, or that is 0 where 0
    /// has no meaning.
    pub(crate) fn preempt(
        &mut self,
        host: HostIdentity<'_>,
        key: u64,
        preempted: u64,
        kind: ReservationType,
    ) -> Result<Notices, Status> {
        self.must_be_registered(host, key)?;

        let held = self.reservation.clone();
        let is_others = |one: &Registrant| !one.host.is(host);
        let notices = match held {
            // All registrants hold it: 0 stands for all others.
            Some(Reservation { holder: None, .. }) if preempted == 0 => {
                let notices = self.expel(host, is_others);
                self.reserve(host, kind);
                notices
            }
            Some(Reservation {
                holder: Some(holder),
                kind: before,
                // The holder's key was given: the reservation changes hands.
            }) if self.has_key(&holder, preempted) => {
                let mut notices = self.expel(host, |one| is_others(one) && one.key == preempted);
                self.reserve(host, kind);
                if before != kind {
                    notices.extend(
                        self.notices_to_others(host, NotificationType::ReservationReleased),
                    );
                }
                notices
            }
            Some(Reservation {
                holder: Some(_), ..
            }) if preempted == 0 => return Err(Status::INVALID_FIELD),
            // A key without registrants preempts no host.
            _ if !self.registrants.iter().any(|one| one.key == preempted) => {
                return Err(Status::RESERVATION_CONFLICT);
            }
            _ => self.expel(host, |one| one.key == preempted),
        };

        self.count();
        Ok(notices)
    }

    /// Releases the reservation, if the host holds it.
    ///
    /// # Errors
    /// The host is not registered with this key, or the reservation has another type.
    pub(crate) fn release(
        &mut self,
        host: HostIdentity<'_>,
        key: u64,
        kind: ReservationType,
    ) -> Result<Notices, Status> {
        self.must_be_registered(host, key)?;

        match &self.reservation {
            // A host that holds no reservation may release it without error.
            Some(held) if self.holds(host) => {
                if held.kind != kind {
                    return Err(Status::INVALID_FIELD);
                }
                self.reservation = None;
                Ok(if kind.is_for_registrants() {
                    self.notices_to_others(host, NotificationType::ReservationReleased)
                } else {
                    Notices::new()
                })
            }
            _ => Ok(Notices::new()),
        }
    }

    /// Removes all registrations and the reservation.
    ///
    /// # Errors
    /// The host is not registered with this key.
    pub(crate) fn clear(&mut self, host: HostIdentity<'_>, key: u64) -> Result<Notices, Status> {
        self.must_be_registered(host, key)?;
        let notices = self.notices_to_others(host, NotificationType::ReservationPreempted);
        self.wipe();
        Ok(notices)
    }

    /// Like `clear`, for an operator; all registrants are notified.
    pub(crate) fn clear_for_operator(&mut self) -> Notices {
        let notices =
            self.notices_to_others(HostIdentity::LOCAL, NotificationType::ReservationPreempted);
        self.wipe();
        notices
    }

    fn wipe(&mut self) {
        self.registrants.clear();
        self.reservation = None;
        self.count();
    }

    fn must_be_registered(&self, host: HostIdentity<'_>, key: u64) -> Result<(), Status> {
        if self.key_of(host) == Some(key) {
            Ok(())
        } else {
            Err(Status::RESERVATION_CONFLICT)
        }
    }

    fn has_key(&self, host: &Host, key: u64) -> bool {
        let mut all = self.registrants.iter();
        all.any(|one| one.host == *host && one.key == key)
    }

    fn reserve(&mut self, host: HostIdentity<'_>, kind: ReservationType) {
        let holder = (!kind.is_held_by_all()).then(|| host.into());
        self.reservation = Some(Reservation { kind, holder });
    }

    /// Removes registrants for `host`; the others among them are notified.
    fn expel(&mut self, host: HostIdentity<'_>, is_meant: impl Fn(&Registrant) -> bool) -> Notices {
        let gone = self.registrants.iter().filter(|one| is_meant(one));
        let others = gone.filter(|one| !one.host.is(host));
        let notices = others
            .map(|one| (one.host.clone(), NotificationType::RegistrationPreempted))
            .collect();
        self.remove(is_meant);
        notices
    }

    /// Removes registrants, and a reservation that is then without a holder.
    fn remove(&mut self, is_meant: impl Fn(&Registrant) -> bool) {
        self.registrants.retain(|one| !is_meant(one));

        let is_held = match self.reservation.as_ref().map(|held| &held.holder) {
            None => return,
            Some(Some(holder)) => self.registrants.iter().any(|one| one.host == *holder),
            Some(None) => !self.registrants.is_empty(),
        };
        if !is_held {
            self.reservation = None;
        }
    }

    fn notices_to_others(&self, host: HostIdentity<'_>, kind: NotificationType) -> Notices {
        let others = self.registrants.iter().filter(|one| !one.host.is(host));
        others.map(|one| (one.host.clone(), kind)).collect()
    }

    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}
