//! What all connections know: the subsystem, who may connect, and the associations to join.
//!
//! Absent: connections.

use crate::auth::Keyring;
use crate::controller::{Association, Subsystem};
use crate::tcp::quota::{Full, Quotas, Seat, Shares};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Who may connect.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Anybody who can reach the address, which is then a loopback one.
    pub anybody: bool,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Networks.
    pub networks: Vec<Network>,
    /// Host names (NQNs).
    pub names: Vec<String>,
}

/// All addresses that begin with the same bits, `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// A network from its text; `None` if that is none, or names bits behind its prefix.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let network = Self {
            address: address.parse().ok()?,
            prefix: prefix.parse().ok()?,
        };
        let (bits, len) = bits_of(network.address);
        let is_network =
            network.prefix <= len && (network.prefix == len || bits << network.prefix == 0);
        is_network.then_some(network)
    }

    fn has(&self, address: IpAddr) -> bool {
        let ((ours, len), (theirs, other)) = (bits_of(self.address), bits_of(address));
        len == other && (self.prefix == 0 || (ours ^ theirs) >> (128 - self.prefix) == 0)
    }
}

/// The bits of an address, the first one highest, and how many there are.
fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

impl Allowed {
    /// Whether this address may connect at all.
    pub fn address(&self, address: IpAddr) -> bool {
        self.anybody || !self.names.is_empty() || self.lists(address)
    }
    pub(super) fn host(&self, address: IpAddr, name: &str) -> bool {
        self.anybody || self.lists(address) || self.names.iter().any(|known| known == name)
    }
    /// An IPv4 address that reached a socket of IPv6 (`::ffff:192.0.2.1`) is that IPv4 address.
    fn lists(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let known = &self.addresses;
        known.iter().any(|known| known.to_canonical() == address)
            || self.networks.iter().any(|network| network.has(address))
    }
}

/// The address that discovery announces, if address translation makes it differ from the one that
/// hosts reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// Address.
    pub address: IpAddr,
    /// Port; the one they reached us at if not given.
    pub port: Option<u16>,
}

/// The address as the host knows it: IPv4-mapped IPv6 addresses become IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What all connections know.
pub struct Port {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) allowed: Allowed,
    pub(super) keyring: Option<Arc<Keyring>>,
    advertised: Option<Advertised>,
    associations: Mutex<HashMap<u16, Weak<Association>>>,
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
        };
        let quotas = Arc::new(Quotas::new(shares));
        Self {
            subsystem,
            allowed,
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
    /// The subsystem.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }
    /// Who may connect.
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }
    fn associations(&self) -> MutexGuard<'_, HashMap<u16, Weak<Association>>> {
        self.associations
            .lock()
            .expect("nothing under this lock can fail")
    }
    pub(super) fn find(&self, cntlid: u16) -> Option<Arc<Association>> {
        self.associations().get(&cntlid)?.upgrade()
    }
    pub(super) fn enter(&self, association: &Arc<Association>) {
        let mut all = self.associations();
        all.retain(|_, other| other.strong_count() > 0);
        all.insert(association.cntlid(), Arc::downgrade(association));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let has = |network: &str, address: &str| {
            let allowed = Allowed {
                networks: vec![Network::parse(network).expect("a network")],
                ..Allowed::default()
            };
            allowed.address(address.parse().expect("an address"))
        };

        assert!(has("192.0.2.0/24", "192.0.2.255") && !has("192.0.2.0/24", "192.0.3.0"));
        assert!(has("192.0.2.0/24", "::ffff:192.0.2.7") && !has("192.0.2.0/24", "c000:207::"));
        assert!(has("192.0.2.4/30", "192.0.2.7") && !has("192.0.2.4/30", "192.0.2.8"));
        assert!(has("192.0.2.7/32", "192.0.2.7") && !has("192.0.2.7/32", "192.0.2.6"));
        assert!(has("0.0.0.0/0", "203.0.113.1") && !has("0.0.0.0/0", "2001:db8::1"));
        assert!(has("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!has("2001:db8::/33", "2001:db8:8000::1"));
        assert!(has("::/0", "2001:db8::1") && has("2001:db8::1/128", "2001:db8::1"));

        for wrong in [
            "192.0.2.0",
            "192.0.2.1/24",
            "192.0.2.0/33",
            "x/8",
            "::1/64",
            "::/129",
            "1.2.3.4/",
        ] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}
