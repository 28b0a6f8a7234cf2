//! The paths by which hosts reach a subsystem, and the ANA state of each (asymmetric namespace
//! access, Base 2.0 §8.1).
//!
//! All namespaces are in one group, whose state is the portal's: a host with two portals uses the
//! better one, and fails over when an operator declares one inaccessible. Invariants: a portal's
//! state applies only to hosts connected by it; while a portal is inaccessible, no command that is
//! checked there is executed, and hosts are directed to other paths; commands checked before are
//! finished. Absent: sockets (`tcp::server`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a host is connected to its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Fabrics,
    /// Over a bus, with queues in memory.
    Bus,
}

/// The ANA group of all namespaces.
pub(super) const GROUP: u32 = 1;
/// Maximum duration of a change of state, in seconds: ANATT.
pub(super) const TRANSITION_SECONDS: u8 = 10;

/// ANA state of a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnaState {
    /// A path as good as any.
    Optimized = 1,
    /// It works; hosts prefer others.
    NonOptimized = 2,
    /// No command to a namespace is executed here.
    Inaccessible = 3,
}

impl AnaState {
    /// All states, with their names for operators.
    pub const NAMES: [(&str, Self); 3] = [
        ("optimized", Self::Optimized),
        ("non-optimized", Self::NonOptimized),
        ("inaccessible", Self::Inaccessible),
    ];

    /// Its name for operators.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1].0
    }
}

/// An address at which hosts reach the subsystem.
#[derive(Debug)]
pub struct Portal {
    address: SocketAddr,
    state: AtomicU8,
    changes: AtomicU64,
}

impl Portal {
    /// A portal in the optimized state.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            state: AtomicU8::new(AnaState::Optimized as u8),
            changes: AtomicU64::new(0),
        }
    }

    /// Address and port that hosts connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns true if no command to a namespace is executed here.
    #[inline]
    pub(super) fn is_inaccessible(&self) -> bool {
        self.state.load(Relaxed) == AnaState::Inaccessible as u8
    }

    /// Its current state.
    pub fn state(&self) -> AnaState {
        AnaState::NAMES[usize::from(self.state.load(Relaxed)) - 1].1
    }

    fn set(&self, state: AnaState) {
        // Setting the same state again is no change, and hosts are not notified.
        if self.state.swap(state as u8, Relaxed) != state as u8 {
            self.changes.fetch_add(1, Relaxed);
        }
    }

    /// Returns true if a connection with this local address came by this portal.
    pub(super) fn has(&self, local: SocketAddr) -> bool {
        let is_any = self.address.ip().is_unspecified();
        self.address == local || is_any && self.address.port() == local.port()
    }
}

/// The address and portal by which a host has connected.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The address reported by discovery.
    pub address: SocketAddr,
    /// The portal of the connection.
    pub portal: Arc<Portal>,
}

impl From<SocketAddr> for Reached {
    fn from(address: SocketAddr) -> Self {
        let portal = Arc::new(Portal::new(address));
        Self { address, portal }
    }
}

/// The portals of a subsystem, in the order in which they were opened.
#[derive(Default)]
pub(super) struct Portals(Mutex<Vec<Arc<Portal>>>);

/// Changes of its portal that a controller has reported to its host.
#[derive(Clone, Copy, Default)]
pub(super) struct AnaReported {
    /// Number of changes that the host has read.
    pub changes: u64,
    /// True if an event was reported, and the log page has not been read since.
    is_event_out: bool,
}

impl AnaReported {
    /// The initial value: the host knows the current state.
    pub(super) fn all(portal: &Portal) -> Self {
        Self {
            changes: portal.changes.load(Relaxed),
            is_event_out: false,
        }
    }

    /// Returns true if an event is due after changes of the portal. It counts as sent from then on.
    pub(super) fn event(&mut self, portal: &Portal) -> bool {
        // Several changes before the host reads are one event: the host reads the current state.
        let is_due = !self.is_event_out && portal.changes.load(Relaxed) != self.changes;
        self.is_event_out |= is_due;
        is_due
    }
}

impl Portals {
    fn locked(&self) -> MutexGuard<'_, Vec<Arc<Portal>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, address: SocketAddr) {
        self.locked().push(Arc::new(Portal::new(address)));
    }

    pub(super) fn all(&self) -> Vec<Arc<Portal>> {
        self.locked().clone()
    }

    /// The portal of a connection with this local address.
    pub(super) fn of(&self, local: SocketAddr) -> Arc<Portal> {
        let portals = self.locked();
        // A connection by any other address gets a portal of its own, whose state cannot be set.
        let found = portals.iter().find(|portal| portal.has(local));
        found
            .cloned()
            .unwrap_or_else(|| Arc::new(Portal::new(local)))
    }

    /// Sets the state of a portal, or of all without an address. Returns the number of portals set.
    pub(super) fn set(&self, address: Option<SocketAddr>, state: AnaState) -> usize {
        let portals = self.locked();
        let meant = portals
            .iter()
            .filter(|portal| address.is_none_or(|address| portal.address == address));
        meant.map(|portal| portal.set(state)).count()
    }
}
