//! Addresses and DNS names to listen on, and their lookup.
//!
//! Invariant: a name stands for all of its addresses, each once. Absent: who may connect
//! (`access`).

use crate::error::ServiceError;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A listening address: an address or a name, and a port.
#[derive(Clone, Debug)]
pub struct ListenAt {
    /// The address or the name, as given.
    pub(crate) host: String,
    port: u16,
}

impl FromStr for ListenAt {
    type Err = ServiceError;

    /// Parses `ADDRESS:PORT`, `[ADDRESS]:PORT` or `NAME:PORT`.
    fn from_str(text: &str) -> Result<Self, ServiceError> {
        // An address with its port, IPv6 in brackets; otherwise the last colon ends a name.
        if let Ok(address) = text.parse::<SocketAddr>() {
            let (host, port) = (address.ip().to_string(), address.port());
            return Ok(Self { host, port });
        }
        let name = text.rsplit_once(':').filter(|(host, _)| is_name(host));
        let parsed = name.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        let (host, port) = parsed.ok_or_else(|| {
            ServiceError::usage(
                "an address and a port, 192.0.2.1:4420 or [2001:db8::1]:4420, or a name and a port",
            )
        })?;
        Ok(Self { host, port })
    }
}

impl ListenAt {
    /// Resolves it to all of its current addresses.
    ///
    /// # Errors
    /// There is no such name, or it cannot be looked up now.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, ServiceError> {
        let found = if let Ok(address) = self.host.parse::<IpAddr>() {
            vec![address]
        } else {
            addresses_of(&self.host)
                .map_err(|why| ServiceError::usage(format_args!("--listen {}: {why}", self.host)))?
        };
        Ok(found
            .into_iter()
            .map(|address| SocketAddr::new(address, self.port))
            .collect())
    }
}

/// Returns true if a text may be a DNS name.
pub(crate) fn is_name(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.bytes().all(may_be)
}

/// Why a name has no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("the name cannot be looked up now (the name server does not answer)")]
    Unavailable,
    #[error("no such name")]
    Unknown,
    #[error("the name has no address")]
    WithoutAddress,
}

/// The current addresses of a name, without duplicates.
pub(crate) fn addresses_of(name: &str) -> Result<Vec<IpAddr>, LookupError> {
    let found = (name, 0).to_socket_addrs().map_err(|error| {
        // The reason is only in the system's text.
        if error.to_string().contains("Temporary failure") {
            LookupError::Unavailable
        } else {
            LookupError::Unknown
        }
    })?;

    let mut known = BTreeSet::new();
    let each: Vec<IpAddr> = found
        .map(|one| one.ip())
        .filter(|one| known.insert(*one))
        .collect();

    if each.is_empty() {
        Err(LookupError::WithoutAddress)
    } else {
        Ok(each)
    }
}
