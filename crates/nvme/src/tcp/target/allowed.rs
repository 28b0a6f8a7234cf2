//! The list of hosts that may connect, by address, network or name, and what each may do.
//!
//! Invariant: a host may do what any of the entries that it matches allows. Absent: keys (`auth`),
//! and the names of the DNS: whoever makes a list looks them up.

use crate::controller::Rights;
use std::net::IpAddr;

/// Which hosts may connect, and what each may do.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Anybody who can reach the address, which is then a loopback one, with all rights.
    pub anybody: bool,
    /// The hosts that may; each with its rights.
    pub hosts: Vec<AllowedHost>,
}

/// An entry of the list.
#[derive(Clone, Debug)]
pub struct AllowedHost {
    /// How the host is told from others.
    pub who: Who,
    /// Which commands it may send, and to which namespaces.
    pub rights: Rights,
}

/// Which hosts an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// All hosts that connect from an address.
    Address(IpAddr),
    /// Those with an address in a network.
    Network(Network),
    /// The one of a name (NQN).
    Name(String),
}

impl From<Who> for AllowedHost {
    fn from(who: Who) -> Self {
        let rights = Rights::ALL;
        Self { who, rights }
    }
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
        // A prefix with bits behind it is more often a mistake than a wish, so it is refused.
        let (bits, len) = bits_of(network.address);
        let is_network =
            network.prefix <= len && (network.prefix == len || bits << network.prefix == 0);
        is_network.then_some(network)
    }

    fn has(&self, address: IpAddr) -> bool {
        let ((ours, len), (theirs, other)) = (bits_of(self.address), bits_of(address));
        // A shift by all 128 bits is not defined, and a prefix of 0 has everything.
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
    /// Whether this address may connect at all: with names on the list that is known later.
    pub fn address(&self, address: IpAddr) -> bool {
        let may = |who: &Who| matches!(who, Who::Name(_)) || who.has_address(address);
        self.anybody || self.hosts.iter().any(|host| may(&host.who))
    }

    /// What a host may do; `None` if it may not connect.
    pub fn rights(&self, address: IpAddr, name: &str) -> Option<Rights> {
        if self.anybody {
            return Some(Rights::ALL);
        }

        // A host may be meant by its address and by its name: both entries count.
        let is_meant = |who: &Who| {
            who.has_address(address) || matches!(who, Who::Name(known) if known == name)
        };
        let entries = self.hosts.iter().filter(|host| is_meant(&host.who));
        entries
            .map(|host| host.rights.clone())
            .reduce(|one, other| one.or(&other))
    }

    /// The numbers of namespaces that the entries list.
    pub fn namespaces_listed(&self) -> impl Iterator<Item = u32> {
        self.hosts.iter().flat_map(|host| host.rights.listed())
    }
}

impl Who {
    /// An IPv4 address that reached a socket of IPv6 (`::ffff:192.0.2.1`) is that IPv4 address.
    fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            Self::Address(known) => known.to_canonical() == address,
            Self::Network(network) => network.has(address),
            Self::Name(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let has = |network: &str, address: &str| {
            let allowed = Allowed {
                hosts: vec![Who::Network(Network::parse(network).expect("a network")).into()],
                anybody: false,
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

    #[test]
    fn a_host_may_do_what_any_of_its_entries_allows() {
        let entry = |who, rights| AllowedHost {
            who,
            rights: Rights::parse(rights).expect(rights),
        };
        let network = Network::parse("192.0.2.0/24").expect("a network");
        let allowed = Allowed {
            hosts: vec![
                entry(Who::Network(network), "1:ro,2:ro"),
                entry(Who::Name("nqn.a".into()), "1:rw"),
                Who::Address("192.0.2.9".parse().expect("an address")).into(),
            ],
            anybody: false,
        };
        let rights = |address: &str, name| {
            let address = address.parse().expect("an address");
            allowed.rights(address, name).map(|all| all.to_string())
        };

        assert_eq!(rights("192.0.2.1", "nqn.b").as_deref(), Some("1:ro,2:ro"));
        assert_eq!(rights("192.0.2.1", "nqn.a").as_deref(), Some("1:rw,2:ro"));
        assert_eq!(rights("192.0.3.1", "nqn.a").as_deref(), Some("1:rw"));
        assert_eq!(rights("192.0.3.1", "nqn.b"), None);
        assert_eq!(rights("192.0.2.9", "nqn.b").as_deref(), Some("all:rw"));
    }
}
