//! Half-open connections: without a queue, or with a queue not yet authenticated where it must be.
//!
//! Invariants: there are at most `max` of them, and three quarters of that from one address; the
//! oldest of the address with the most makes room for a new one. Absent: deadlines (`deadlines`).

use super::socket;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct HalfOpen {
    pub number: u64,
    pub peer: SocketAddr,
    /// The NQN in its Connect.
    pub host: Option<String>,
    /// Handle to shut it down.
    pub stream: TcpStream,
}

/// All half-open connections, the oldest first.
pub(super) struct HalfOpenConnections {
    max: usize,
    connections: Mutex<VecDeque<HalfOpen>>,
}

impl HalfOpenConnections {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            connections: Mutex::default(),
        }
    }

    fn connections(&self) -> MutexGuard<'_, VecDeque<HalfOpen>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; returns one to shut down if there are too many now.
    pub(super) fn add(&self, connection: HalfOpen) -> Option<HalfOpen> {
        let mut connections = self.connections();
        connections.push_back(connection);

        let mut of_address = HashMap::<IpAddr, usize>::new();
        for one in connections.iter() {
            *of_address.entry(one.peer.ip()).or_default() += 1;
        }

        // The address with the most pays, so that an attacker displaces only itself.
        let (address, most) = of_address.into_iter().max_by_key(|(_, count)| *count)?;
        if connections.len() <= self.max && most <= (self.max * 3).div_ceil(4) {
            return None;
        }

        // Oldest first: it has had the most time.
        let oldest = connections
            .iter()
            .position(|one| one.peer.ip() == address)?;
        connections.remove(oldest)
    }

    /// Notes the host named in its Connect.
    pub(super) fn set_host(&self, number: u64, host: &str) {
        let mut connections = self.connections();
        if let Some(one) = connections.iter_mut().find(|one| one.number == number) {
            one.host = Some(host.into());
        }
    }

    /// Returns true if it was displaced, or its host has closed it.
    pub(super) fn has_ended(&self, number: u64) -> bool {
        let connections = self.connections();
        let found = connections.iter().find(|one| one.number == number);
        found.is_none_or(|one| socket::is_closed_by_peer(&one.stream))
    }

    /// Removes a connection that has ended, or may use its queue.
    pub(super) fn remove(&self, number: u64) {
        self.connections().retain(|one| one.number != number);
    }
}
