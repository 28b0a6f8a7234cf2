//! The paths by which hosts reach a subsystem, and the ANA state of each (asymmetric namespace
//! access, Base 2.0 §8.1).
//!
//! All namespaces are in one group, whose state is the portal's: a host with two portals uses the
//! better one, and fails over when an operator declares one inaccessible. Invariants: a portal's
//! state applies only to hosts connected by it; while a portal is inaccessible, no command that is
//! checked there is executed, and hosts are directed to other paths; commands checked before are
//! finished. Absent: sockets (`tcp::server`).

use super::association::Association;
use super::features::fid;
use super::reservations::fid as reservation_fid;
use super::subsystem::Subsystem;
use crate::spec::NSID_ALL;
use crate::spec::ana::{AnaGroup, AnaHead, RETURN_GROUPS_ONLY};
use crate::spec::command::{FeatureCdw10, Sqe};
use crate::spec::identify::blank;
use crate::spec::log::{event, lid};
use crate::spec::management::sel;
use crate::spec::opcode::admin;
use crate::spec::status::Status;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use zerocopy::IntoBytes;

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
    fn has(&self, local: SocketAddr) -> bool {
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
    changes: u64,
    /// True if an event was reported, and the log page has not been read since.
    is_event_out: bool,
}

impl AnaReported {
    /// The initial value: the host knows the current state.
    pub fn all(portal: &Portal) -> Self {
        Self {
            changes: portal.changes.load(Relaxed),
            is_event_out: false,
        }
    }
}

impl Subsystem {
    /// Adds a portal.
    pub fn add_portal(&self, address: SocketAddr) {
        self.all_portals().push(Arc::new(Portal::new(address)));
    }

    /// All portals, in the order in which they were opened.
    pub fn portals(&self) -> Vec<Arc<Portal>> {
        self.all_portals().clone()
    }

    fn all_portals(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Portal>>> {
        self.portals
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The portal of a connection with this local address.
    pub(crate) fn portal_of(&self, local: SocketAddr) -> Arc<Portal> {
        let portals = self.all_portals();
        // A connection by any other address gets a portal of its own, whose state cannot be set.
        let found = portals.iter().find(|portal| portal.has(local));
        found
            .cloned()
            .unwrap_or_else(|| Arc::new(Portal::new(local)))
    }

    /// Sets the state of a portal, or of all without an address. Returns the number of portals set.
    pub fn set_ana_state(&self, address: Option<SocketAddr>, state: AnaState) -> usize {
        let portals = self.all_portals();
        let meant = portals
            .iter()
            .filter(|portal| address.is_none_or(|address| portal.address == address));
        meant.map(|portal| portal.set(state)).count()
    }
}

/// Returns true for features that are unavailable while namespaces are inaccessible (Base 2.2
/// figure 589, NVM Command Set 1.2 figure 133).
fn is_of_namespace(sqe: &Sqe) -> bool {
    matches!(
        FeatureCdw10::from_bits(sqe.cdw10).fid(),
        fid::ERROR_RECOVERY | reservation_fid::NOTIFICATION_MASK | reservation_fid::PERSISTENCE
    )
}

impl Association {
    /// Checks that this portal executes its host's commands now.
    ///
    /// # Errors
    /// Asymmetric Access Inaccessible: the host may try another portal.
    #[inline]
    pub(super) fn must_be_accessible(&self) -> Result<(), Status> {
        if self.portal.state.load(Relaxed) == AnaState::Inaccessible as u8 {
            Err(Status::ACCESS_INACCESSIBLE)
        } else {
            Ok(())
        }
    }

    /// Checks that this portal executes an admin command now. While it is inaccessible, commands
    /// that name a namespace are refused (Base 2.2 §8.1.1.6), except for those listed in §8.1.1.10:
    /// Identify, log pages, and features not specific to a namespace.
    ///
    /// # Errors
    /// Asymmetric Access Inaccessible: the host may try another portal.
    pub(super) fn must_be_accessible_for(&self, sqe: &Sqe) -> Result<(), Status> {
        // Discovery has no namespaces, and works by every portal.
        if self.discovery {
            return Ok(());
        }

        let is_concerned = match sqe.head().opcode() {
            admin::FORMAT | admin::NAMESPACE_ATTACHMENT => true,
            // A new namespace has no number yet.
            admin::NAMESPACE_MANAGEMENT => sqe.cdw10 as u8 & 0xf != sel::CREATE,
            admin::GET_FEATURES => is_of_namespace(sqe),
            admin::SET_FEATURES => is_of_namespace(sqe) || sqe.nsid == NSID_ALL,
            _ => false,
        };
        if is_concerned {
            self.must_be_accessible()
        } else {
            Ok(())
        }
    }

    /// The log page of asymmetric access, as this controller's host sees it.
    pub(super) fn ana_page(&self, specific: u8, retained: bool) -> Vec<u8> {
        let portal = &self.portal;
        // The count first: a later change then causes one event too many rather than too few.
        let reported = AnaReported::all(portal);
        if !retained {
            self.state().ana_reported = reported;
        }

        let mut head: AnaHead = blank();
        (head.chgcnt, head.ngrps) = (reported.changes, 1);

        // A host that needs only the states need not read all numbers.
        let with_namespaces = specific & RETURN_GROUPS_ONLY == 0;
        let listed: Vec<u32> = self
            .namespaces()
            .filter(|_| with_namespaces)
            .map(|namespace| namespace.nsid)
            .collect();
        let mut group: AnaGroup = blank();
        group.anagrpid = GROUP;
        group.nnsids = listed.len() as u32;
        group.chgcnt = reported.changes;
        group.state = portal.state() as u8;

        let mut page = [head.as_bytes(), group.as_bytes()].concat();
        page.extend(listed.iter().flat_map(|nsid| nsid.to_le_bytes()));
        page
    }

    /// The result of an event that is due after a change of the portal, if there is one.
    pub(super) fn ana_event(&self) -> Option<u64> {
        // Several changes before the host reads are one event: the host reads the current state.
        let mut state = self.state();
        let has_changed = self.portal.changes.load(Relaxed) != state.ana_reported.changes;
        if !has_changed || state.ana_reported.is_event_out || !state.features.wants_ana_events() {
            return None;
        }
        state.ana_reported.is_event_out = true;
        Some(event::NOTICE | event::ANA_CHANGE << 8 | u64::from(lid::ANA) << 16)
    }

    /// Addresses listed by discovery: the one that the host has reached, and those of other portals
    /// that it can probably reach.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let mut all = vec![self.address];
        // Behind address translation, only the advertised address can be reached.
        if !self.portal.has(self.address) {
            return all;
        }
        let others = self.subsystem.portals();

        // A loopback address is listed only for hosts that use loopback, and "any address" never.
        let can_be = |address: SocketAddr| {
            !address.ip().is_unspecified()
                && (self.address.ip().is_loopback() || !address.ip().is_loopback())
        };
        let others = others
            .iter()
            .filter(|portal| !Arc::ptr_eq(portal, &self.portal) && can_be(portal.address));
        all.extend(others.map(|portal| portal.address));
        all
    }
}
