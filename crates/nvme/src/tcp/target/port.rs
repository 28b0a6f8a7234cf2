//! State shared by all connections: the subsystem, access rules, and the associations to join.
//!
//! Invariant: a host has the rights allowed by both its line among the keys and its entries in the
//! list, from Connect on and after each replacement of either; if one of them no longer names the
//! host, its controllers end. Absent: connections.

use super::allowed::Allowed;
use crate::auth::Keyring;
use crate::controller::{Association, Rights, Subsystem};
use crate::tcp::quota::{Full, Quotas, Seat, Shares};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

/// The address that discovery reports, if address translation makes it differ from the one that
/// hosts reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The address for hosts to connect to.
    pub address: IpAddr,
    /// Port; if not given, the one by which the host reached us.
    pub port: Option<u16>,
}

impl FromStr for Advertised {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, port) = match text.parse::<SocketAddr>() {
            Ok(whole) => (Some(whole.ip()), Some(whole.port())),
            Err(_) => (text.parse().ok(), None),
        };
        let address = address.ok_or("an address, or an address and a port")?;
        Ok(Self { address, port })
    }
}

/// The address in the host's terms: IPv4-mapped IPv6 addresses become IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An association, and the address of its admin queue's peer.
struct Member {
    association: Weak<Association>,
    from: IpAddr,
}

/// State shared by all connections of a server.
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
    /// Sets another address for discovery to report.
    pub fn advertised(mut self, advertised: Option<Advertised>) -> Self {
        self.advertised = advertised;
        self
    }
    /// Requires hosts to have one of these keys, and to prove it on every queue of the subsystem.
    /// Discovery, which reports the subsystem and its address, only requires that the host has a
    /// key.
    pub fn authenticated(mut self, keyring: Option<Arc<Keyring>>) -> Self {
        self.keyring = keyring;
        self
    }
    /// The keys that hosts need, if they do.
    pub(crate) fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.keyring.as_ref()
    }
    /// The address that discovery reports to a host that reached us at `local`.
    pub(super) fn address(&self, local: SocketAddr) -> SocketAddr {
        match self.advertised {
            Some(Advertised { address, port }) => {
                SocketAddr::new(address, port.unwrap_or(local.port()))
            }
            None => canonical(local),
        }
    }
    /// Sets limits for hosts.
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
    /// Number of connections that wait for memory now.
    pub fn waiting_for_memory(&self) -> usize {
        self.quotas.waiting()
    }
    /// The subsystem that hosts connect to.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }
    /// The current list of hosts that may connect.
    pub(crate) fn allowed(&self) -> Arc<Allowed> {
        let allowed = self.allowed.read().unwrap_or_else(PoisonError::into_inner);
        allowed.clone()
    }
    /// Replaces the list, for all connections from now on.
    pub fn replace_allowed(&self, allowed: Allowed) {
        let mut place = self.allowed.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(allowed);
    }

    /// Rights of a host; `None` if it is not on the list, or lacks a required key.
    pub fn rights(&self, from: IpAddr, hostnqn: &str) -> Option<Rights> {
        let by_list = self.allowed().rights(from, hostnqn)?;
        match &self.keyring {
            // Both must allow it: the list knows addresses, the keys know hosts.
            Some(keyring) => Some(keyring.find(hostnqn)?.rights.and(&by_list)),
            None => Some(by_list),
        }
    }

    /// Updates the rights of all connected hosts, and ends the controllers of those that may not
    /// connect any more; returns the names of these hosts. When this returns, no command has an
    /// effect that its host's new rights do not allow.
    pub fn renew_rights(&self) -> BTreeSet<String> {
        let mut all = Vec::new();
        let mut ended = BTreeSet::new();
        for member in self.associations().values() {
            // Under the lock, so that no host connects between the old rights and the new.
            let Some(association) = member.association.upgrade() else {
                continue;
            };
            if !self.grant(&association, member.from) {
                association.close();
                ended.insert(association.hostnqn().to_owned());
            }
            all.push(association);
        }

        // Without the lock, so that hosts can connect.
        Association::settle_all(&all);
        ended
    }

    /// Gives a host its current rights; `false` if it may not connect.
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
    /// An association by its number, and the address of its admin queue's peer.
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
        // Under the lock: a replacement of keys or list finds the association here, or it finds the
        // new ones.
        let mut all = self.associations();
        if !self.grant(association, from) {
            // It has lost its entry since the check.
            association.close();
        }
        // Remove associations that are gone whenever a new one comes, so that the map stays small.
        all.retain(|_, other| other.association.strong_count() > 0);
        all.insert(association.cntlid(), member);
    }
}
