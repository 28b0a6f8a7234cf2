//! Connections, for an operator: every queue with its host, and refusals.
//!
//! Invariants: a connection is listed from its Connect until it ends; counters never decrease. A
//! host is dropped by ending its associations: none of its commands has an effect afterwards, and
//! its connections end at their next PDU or tick. Absent: limits (`quota`), logs.

use crate::controller::{Association, Rights};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection with a queue.
pub(crate) struct Seated {
    number: u64,
    peer: SocketAddr,
    qid: u16,
    association: Arc<Association>,
    since_ns: u64,
    commands: AtomicU64,
}

impl Seated {
    /// Counts more executed commands.
    #[inline]
    pub(super) fn commands(&self, count: u64) {
        self.commands.fetch_add(count, Relaxed);
    }
}

/// A connection, as of the reading of the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number, as in the log.
    pub number: u64,
    /// Address that the host connected from.
    pub peer: SocketAddr,
    /// The host's name, unverified.
    pub hostnqn: String,
    /// ID of its controller.
    pub cntlid: u16,
    /// The queue; 0 is the admin queue.
    pub qid: u16,
    /// True if it is for the discovery service only.
    pub discovery: bool,
    /// Rights of its host.
    pub rights: Rights,
    /// Commands of its controller denied for lack of rights.
    pub denied: u64,
    /// Time at which its queue was connected, in the clock of the service.
    pub since_ns: u64,
    /// I/O commands executed so far; not counted with emulated latency.
    pub commands: u64,
}

/// Counters of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections that the server ended for their behaviour.
    pub dropped: u64,
    /// Connects and addresses refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

/// All connections that have a queue.
#[derive(Default)]
pub struct Roster {
    seated: Mutex<BTreeMap<u64, Arc<Seated>>>,
    tally: Mutex<Tally>,
}

/// An entry of the roster, until dropped.
pub(super) struct Entered {
    roster: Arc<Roster>,
    seated: Arc<Seated>,
}

impl Deref for Entered {
    type Target = Seated;
    fn deref(&self) -> &Seated {
        &self.seated
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.roster.seated().remove(&self.seated.number);
    }
}

impl Roster {
    fn seated(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Seated>>> {
        self.seated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tally_mut(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a connection that has just connected its queue.
    pub(super) fn enter(
        self: &Arc<Self>,
        number: u64,
        peer: SocketAddr,
        qid: u16,
        association: &Arc<Association>,
        since_ns: u64,
    ) -> Entered {
        let seated = Arc::new(Seated {
            number,
            peer,
            qid,
            association: association.clone(),
            since_ns,
            commands: AtomicU64::new(0),
        });

        self.seated().insert(number, seated.clone());

        Entered {
            roster: self.clone(),
            seated,
        }
    }

    pub(super) fn accept(&self) {
        self.tally_mut().accepted += 1;
    }

    pub(super) fn drop_one(&self) {
        self.tally_mut().dropped += 1;
    }

    /// `why` is one of a few fixed sentences, never a peer's text.
    pub(super) fn refuse(&self, why: &'static str) {
        *self.tally_mut().refused.entry(why).or_default() += 1;
    }

    /// All connections with queues, in order of arrival.
    pub fn list(&self) -> Vec<Listed> {
        let listed = |seated: &Arc<Seated>| Listed {
            number: seated.number,
            peer: seated.peer,
            hostnqn: seated.association.hostnqn().to_owned(),
            cntlid: seated.association.cntlid(),
            qid: seated.qid,
            discovery: seated.association.is_discovery(),
            rights: seated.association.rights().get(),
            denied: seated.association.rights().denied(),
            since_ns: seated.since_ns,
            commands: seated.commands.load(Relaxed),
        };
        self.seated().values().map(listed).collect()
    }

    /// The counters.
    pub fn tally(&self) -> Tally {
        self.tally_mut().clone()
    }

    /// Drops hosts: those with this name, the one with this connection number, or all (`None`).
    /// Returns the number of connections that end: none of their commands has an effect after this.
    /// A host may connect again at once.
    pub fn drop_hosts(&self, host: Option<&str>) -> usize {
        let (count, associations) = self.meant(host);
        Association::end_all(&associations);
        count
    }

    /// The number of connections and the controllers of a host.
    fn meant(&self, host: Option<&str>) -> (usize, Vec<Arc<Association>>) {
        let seated = self.seated();
        // A number means the controller of that connection, with all its queues.
        let numbered = host
            .and_then(|host| host.parse::<u64>().ok())
            .and_then(|number| seated.get(&number));
        let is_meant = |one: &Seated| match (host, numbered) {
            (None, _) => true,
            (Some(_), Some(numbered)) => Arc::ptr_eq(&numbered.association, &one.association),
            (Some(host), None) => one.association.hostnqn() == host,
        };
        let meant = seated.values().filter(|one| is_meant(one));
        let associations: Vec<_> = meant.map(|one| one.association.clone()).collect();

        // Each controller once, for any number of queues.
        let mut each = associations.clone();
        each.sort_by_key(|one| one.cntlid());
        each.dedup_by_key(|one| one.cntlid());
        (associations.len(), each)
    }
}
