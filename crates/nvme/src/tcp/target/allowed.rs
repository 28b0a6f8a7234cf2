//! The list of hosts that may connect, by address, network or name, with their rights.
//!
//! Invariant: a host has the rights of all entries that match it, combined. Absent: keys (`auth`),
//! and DNS names, which are resolved before the list is made.

use crate::controller::Rights;
use std::net::IpAddr;

/// Hosts that may connect, with their rights.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Any host, with all rights; the server then listens on a loopback address.
    pub anybody: bool,
    /// The hosts that may connect, with their rights.
    pub hosts: Vec<AllowedHost>,
}

/// An entry of the list.
#[derive(Clone, Debug)]
pub struct AllowedHost {
    /// The hosts that it matches.
    pub who: Who,
    /// Their rights to namespaces.
    pub rights: Rights,
}

/// Hosts matched by an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// All hosts that connect from an address.
    Address(IpAddr),
    /// All hosts with an address in a network.
    Network(Network),
    /// The host with a name (NQN).
    Name(String),
}

impl From<Who> for AllowedHost {
    fn from(who: Who) -> Self {
        let rights = Rights::ALL;
        Self { who, rights }
    }
}

/// A network of addresses with the same prefix, such as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Parses a network; `None` if it is invalid, or has bits set after its prefix.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let network = Self {
            address: address.parse().ok()?,
            prefix: prefix.parse().ok()?,
        };
        // Bits set after the prefix are more likely a mistake than intended, so they are refused.
        let (bits, len) = bits_of(network.address);
        let is_network =
            network.prefix <= len && (network.prefix == len || bits << network.prefix == 0);
        is_network.then_some(network)
    }

    fn has(&self, address: IpAddr) -> bool {
        let ((ours, len), (theirs, other)) = (bits_of(self.address), bits_of(address));
        // A shift by all 128 bits is undefined, and a prefix of 0 matches everything.
        len == other && (self.prefix == 0 || (ours ^ theirs) >> (128 - self.prefix) == 0)
    }
}

/// The bits of an address, left-aligned, and their number.
fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

impl Allowed {
    /// Returns true if this address may connect at all; names on the list are checked later.
    pub(crate) fn address(&self, address: IpAddr) -> bool {
        let may = |who: &Who| matches!(who, Who::Name(_)) || who.has_address(address);
        self.anybody || self.hosts.iter().any(|host| may(&host.who))
    }

    /// Rights of a host; `None` if it may not connect.
    pub(crate) fn rights(&self, address: IpAddr, name: &str) -> Option<Rights> {
        if self.anybody {
            return Some(Rights::ALL);
        }

        // A host may match by its address and by its name: both entries count.
        let is_meant = |who: &Who| {
            who.has_address(address) || matches!(who, Who::Name(known) if known == name)
        };
        let entries = self.hosts.iter().filter(|host| is_meant(&host.who));
        entries
            .map(|host| host.rights.clone())
            .reduce(|one, other| one.or(&other))
    }

    /// Numbers of the namespaces that the entries list.
    pub fn namespaces_listed(&self) -> impl Iterator<Item = u32> {
        self.hosts.iter().flat_map(|host| host.rights.listed())
    }
}

impl Who {
    /// An IPv4 address mapped to IPv6 (`::ffff:192.0.2.1`) matches as IPv4.
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
