//! The ways by which hosts reach a subsystem, and how good each of them is (asymmetric namespace
//! access, Base 2.0 §8.1).
//!
//! All namespaces are in one group, whose state is a portal's: a host with two portals uses the
//! better one, and goes on by the other when an operator declares one inaccessible. Invariants: a
//! state is for those that come by this portal, whatever others see; while a portal is
//! inaccessible no command that is checked there is executed, and hosts are told to try elsewhere;
//! what was checked before is finished. Absent: sockets (`tcp::server`).

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

/// The group that all namespaces are in.
pub(super) const GROUP: u32 = 1;
/// How long a change of state may take at most, in seconds: ANATT.
pub(super) const TRANSITION_SECONDS: u8 = 10;

/// How good a portal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnaState {
    /// As good a way to the namespaces as any.
    Optimized = 1,
    /// It works; hosts prefer others.
    NonOptimized = 2,
    /// No command to a namespace is executed here.
    Inaccessible = 3,
}

impl AnaState {
    /// All states, with the names that operators give them.
    pub const NAMES: [(&str, Self); 3] = [
        ("optimized", Self::Optimized),
        ("non-optimized", Self::NonOptimized),
        ("inaccessible", Self::Inaccessible),
    ];

    /// Its name, as operators give it.
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
    /// A portal that is as good as any.
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

    /// How good it is now.
    pub fn state(&self) -> AnaState {
        AnaState::NAMES[usize::from(self.state.load(Relaxed)) - 1].1
    }

    fn set(&self, state: AnaState) {
        // To set the state that there is already is no change, and no news for hosts.
        if self.state.swap(state as u8, Relaxed) != state as u8 {
            self.changes.fetch_add(1, Relaxed);
        }
    }

    /// Whether a connection whose local end this is came by this portal.
    fn has(&self, local: SocketAddr) -> bool {
        let is_any = self.address.ip().is_unspecified();
        self.address == local || is_any && self.address.port() == local.port()
    }
}

/// Where a host has reached the subsystem.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The address that discovery tells it.
    pub address: SocketAddr,
    /// The portal that it has come to.
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

/// What a controller has told its host of its portal.
#[derive(Clone, Copy, Default)]
pub(super) struct AnaReported {
    /// Changes that the host has read of.
    changes: u64,
    /// An event has been reported, and the log page has not been read since.
    is_event_out: bool,
}

impl AnaReported {
    /// Of a controller whose host knows how things stand.
    pub fn all(portal: &Portal) -> Self {
        Self {
            changes: portal.changes.load(Relaxed),
            is_event_out: false,
        }
    }
}

impl Subsystem {
    /// Hosts reach it at one more address.
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

    /// The portal of a connection whose local end this is.
    pub(crate) fn portal_of(&self, local: SocketAddr) -> Arc<Portal> {
        let portals = self.all_portals();
        // A connection by an address that is no portal gets one of its own, which nobody can set.
        let found = portals.iter().find(|portal| portal.has(local));
        found
            .cloned()
            .unwrap_or_else(|| Arc::new(Portal::new(local)))
    }

    /// From now on a portal is this good; all of them without an address. How many there are.
    pub fn set_ana_state(&self, address: Option<SocketAddr>, state: AnaState) -> usize {
        let portals = self.all_portals();
        let meant = portals
            .iter()
            .filter(|portal| address.is_none_or(|address| portal.address == address));
        meant.map(|portal| portal.set(state)).count()
    }
}

/// Whether a feature is not available where namespaces are inaccessible (Base 2.2 figure 589, NVM
/// Command Set 1.2 figure 133).
fn is_of_namespace(sqe: &Sqe) -> bool {
    matches!(
        FeatureCdw10::from_bits(sqe.cdw10).fid(),
        fid::ERROR_RECOVERY | reservation_fid::NOTIFICATION_MASK | reservation_fid::PERSISTENCE
    )
}

impl Association {
    /// Whether its host's commands are executed by this portal now.
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

    /// Whether an admin command is executed by this portal now. While it is inaccessible those that
    /// name a namespace are not (Base 2.2 §8.1.1.6), except for what §8.1.1.10 lists: Identify, log
    /// pages, and features that are not a namespace's.
    ///
    /// # Errors
    /// Asymmetric Access Inaccessible: the host may try another portal.
    pub(super) fn must_be_accessible_for(&self, sqe: &Sqe) -> Result<(), Status> {
        // Discovery has no namespaces, and is reached by every portal.
        if self.discovery {
            return Ok(());
        }

        let is_concerned = match sqe.head().opcode() {
            admin::FORMAT | admin::NAMESPACE_ATTACHMENT => true,
            // One that is created has no number yet.
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
        // The count first: a change behind it makes one event too many rather than too few.
        let reported = AnaReported::all(portal);
        if !retained {
            self.state().ana_reported = reported;
        }

        let mut head: AnaHead = blank();
        (head.chgcnt, head.ngrps) = (reported.changes, 1);

        // A host that only wants to know the states need not read all numbers.
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

    /// An event that is due since the portal has changed: its result.
    pub(super) fn ana_event(&self) -> Option<u64> {
        // A portal that changes several times before the host reads is one event: the host reads
        // how it is now.
        let mut state = self.state();
        let has_changed = self.portal.changes.load(Relaxed) != state.ana_reported.changes;
        if !has_changed || state.ana_reported.is_event_out || !state.features.wants_ana_events() {
            return None;
        }
        state.ana_reported.is_event_out = true;
        Some(event::NOTICE | event::ANA_CHANGE << 8 | u64::from(lid::ANA) << 16)
    }

    /// Addresses that discovery names: the one that the host has reached, and those of the other
    /// portals that it can be expected to reach.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let mut all = vec![self.address];
        // Behind address translation only what is advertised can be reached.
        if !self.portal.has(self.address) {
            return all;
        }
        let others = self.subsystem.portals();

        // An address of this machine alone is named only to hosts that are on it, and "any address"
        // to nobody.
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
