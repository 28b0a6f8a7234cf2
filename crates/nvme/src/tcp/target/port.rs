//! What all connections know: the subsystem, who may connect, and the associations to join.
//!
//! Invariant: a host has the rights that its line among the keys and the entries of the list allow
//! both, from Connect on and whenever one of the two has been replaced; the controllers of a host
//! that one of them does not name any more end then. Absent: connections.

use super::allowed::Allowed;
use crate::auth::Keyring;
use crate::controller::{Association, Rights, Subsystem};
use crate::tcp::quota::{Full, Quotas, Seat, Shares};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

/// The address that discovery announces, if address translation makes it differ from the one that
/// hosts reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The address that hosts are told to connect to.
    pub address: IpAddr,
    /// Port; the one they reached us at if not given.
    pub port: Option<u16>,
}

/// The address as the host knows it: IPv4-mapped IPv6 addresses become IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An association, and where its admin queue came from.
struct Member {
    association: Weak<Association>,
    from: IpAddr,
}

/// What all connections of a server know.
pub struct Port {
    pub(super) subsystem: Arc<Subsystem>,
    allowed: RwLock<Arc<Allowed>>,
    pub(super) keyring: Option<Arc<Keyring>>,
    advertised: Option<Advertised>,
    associations: Mutex<HashMap<u16, Member>>,
    quotas: Arc<Quotas>,
}

impl Port {
    /// A port to a subsystem.
    pub fn new(subsystem: Arc<Subsystem>, allowed: Allowed) -> Self {
        // Without a server there are no limits.
        let all = usize::MAX;
        let shares = Shares {
            connections: all,
            connections_of_host: all,
            connections_of_address: all,
            memory_bytes: all,
            memory_within: Duration::MAX,
        };
        let quotas = Arc::new(Quotas::new(shares));
        Self {
            subsystem,
            allowed: RwLock::new(Arc::new(allowed)),
            keyring: None,
            advertised: None,
            associations: Mutex::default(),
            quotas,
        }
    }
    /// The same, but discovery names another address.
    pub fn advertised(mut self, advertised: Option<Advertised>) -> Self {
        self.advertised = advertised;
        self
    }
    /// The same, but hosts must have one of these keys, and prove it on every queue of the
    /// subsystem's. Discovery, which names the subsystem and its address, asks only that the host
    /// has a key.
    pub fn authenticated(mut self, keyring: Option<Arc<Keyring>>) -> Self {
        self.keyring = keyring;
        self
    }
    /// The keys that hosts need, if they do.
    pub fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.keyring.as_ref()
    }
    /// What discovery tells a host that reached us at `local`.
    pub(super) fn address(&self, local: SocketAddr) -> SocketAddr {
        match self.advertised {
            Some(Advertised { address, port }) => {
                SocketAddr::new(address, port.unwrap_or(local.port()))
            }
            None => canonical(local),
        }
    }
    /// The same, with limits for hosts.
    pub(in crate::tcp) fn shared(mut self, shares: Shares) -> Self {
        self.quotas = Arc::new(Quotas::new(shares));
        self
    }
    pub(super) fn seat(&self, host: &str, address: IpAddr, bytes: usize) -> Result<Seat, Full> {
        self.quotas.seat(host, address, bytes)
    }
    pub(super) fn unproven_seat(&self, address: IpAddr, bytes: usize) -> Result<Seat, Full> {
        self.quotas.unproven_seat(address, bytes)
    }
    /// Connections that wait for memory now.
    pub fn waiting_for_memory(&self) -> usize {
        self.quotas.waiting()
    }
    /// The subsystem that hosts connect to.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }
    /// Who may connect, as it is now.
    pub fn allowed(&self) -> Arc<Allowed> {
        let allowed = self.allowed.read().unwrap_or_else(PoisonError::into_inner);
        allowed.clone()
    }
    /// Puts another list in its place: from now on hosts connect by this one.
    pub fn replace_allowed(&self, allowed: Allowed) {
        let mut place = self.allowed.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(allowed);
    }

    /// What a host may do; `None` if it is not on the list, or has no key where one is needed.
    pub fn rights(&self, from: IpAddr, hostnqn: &str) -> Option<Rights> {
        let by_list = self.allowed().rights(from, hostnqn)?;
        match &self.keyring {
            // Both must allow it: the list says from where, the keys say who.
            Some(keyring) => Some(keyring.find(hostnqn)?.rights.and(&by_list)),
            None => Some(by_list),
        }
    }

    /// Gives all hosts that are connected the rights that they have by now, and ends the controllers
    /// of those that may not connect any more; the names of these hosts. When this returns no command
    /// has an effect any more that its host may not have now.
    pub fn renew_rights(&self) -> BTreeSet<String> {
        let mut all = Vec::new();
        let mut ended = BTreeSet::new();
        for member in self.associations().values() {
            // The lock is held, so that no host connects between the old rights and the new.
            let Some(association) = member.association.upgrade() else {
                continue;
            };
            if !self.grant(&association, member.from) {
                association.close();
                ended.insert(association.hostnqn().to_owned());
            }
            all.push(association);
        }

        // Without the lock: hosts connect meanwhile.
        Association::settle_all(&all);
        ended
    }

    /// Gives a host the rights that it has by now; `false` if it may not connect.
    fn grant(&self, association: &Association, from: IpAddr) -> bool {
        let rights = self.rights(from, association.hostnqn());
        let may = rights.is_some();
        if let Some(rights) = rights {
            association.grant(rights);
        }
        may
    }

    fn associations(&self) -> MutexGuard<'_, HashMap<u16, Member>> {
        self.associations
            .lock()
            .expect("nothing under this lock can fail")
    }
    /// An association by its number, and where its admin queue came from.
    pub(super) fn find(&self, cntlid: u16) -> Option<(Arc<Association>, IpAddr)> {
        let all = self.associations();
        let member = all.get(&cntlid)?;
        Some((member.association.upgrade()?, member.from))
    }
    /// Enters an association, and gives its host its rights.
    pub(super) fn enter(&self, association: &Arc<Association>, from: IpAddr) {
        let member = Member {
            association: Arc::downgrade(association),
            from,
        };
        // Under the lock, so that who replaces keys or list finds it in there, or it finds those.
        let mut all = self.associations();
        if !self.grant(association, from) {
            // It has lost its line since it was looked at.
            association.close();
        }
        // Associations that are gone are removed when a new one comes, so that the map stays as
        // small as it needs to be.
        all.retain(|_, other| other.association.strong_count() > 0);
        all.insert(association.cntlid(), member);
    }
}
