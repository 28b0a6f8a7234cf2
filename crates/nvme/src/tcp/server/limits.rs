//! What peers may take of the server.
//!
//! Absent: what is counted against the limits (`quota` for connected queues, `half_open` for the
//! rest).

use crate::tcp::quota::Shares;
use std::time::Duration;

/// Memory for connections, unless said otherwise.
pub const MEMORY_BYTES_DEFAULT: usize = 512 << 20;
/// The least that serves a host with an admin queue, an I/O queue and large commands.
pub const MEMORY_BYTES_MIN: usize = 16 << 20;

/// What peers may take of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that have connected a queue.
    pub connected: usize,
    /// Connections of one host, by its name.
    pub connected_of_host: usize,
    /// The most connections from one address.
    pub connected_of_address: usize,
    /// Connections without a queue, or not authenticated where they must be; the oldest of them
    /// make room for new ones. One address may have three quarters of them.
    pub half_open: usize,
    /// Memory of all connections: buffers, unsent output, partly received data. One host may use
    /// half of it.
    pub memory_bytes: usize,
    /// How long a connection may take to connect a queue; with TLS, from the end of its handshake.
    pub connect_within: Duration,
    /// How long a TLS handshake may take.
    pub handshake_within: Duration,
    /// How long it may take from its beginning to authenticate, where it must.
    pub authenticate_within: Duration,
    /// Time for a host to read the next 64 KiB of output, or the rest.
    pub send_within: Duration,
    /// Time for a host to send requested data, or the rest of a PDU.
    pub data_within: Duration,
    /// How long a command waits for memory that others hold before it fails.
    pub memory_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // More queues than a host with 64 processors opens, and room for several of them behind
            // one address.
            connected: 512,
            connected_of_host: 192,
            connected_of_address: 448,
            half_open: 64,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            connect_within: Duration::from_secs(5),
            handshake_within: Duration::from_secs(10),
            authenticate_within: Duration::from_secs(30),
            send_within: Duration::from_secs(10),
            data_within: Duration::from_secs(30),
            // Twice what a host that does not read has before it is dropped, and less than hosts
            // wait for a command: Linux resets the controller after 30 s.
            memory_within: Duration::from_secs(20),
        }
    }
}

impl Limits {
    pub(super) fn shares(&self) -> Shares {
        Shares {
            connections: self.connected,
            connections_of_host: self.connected_of_host,
            connections_of_address: self.connected_of_address,
            memory_bytes: self.memory_bytes,
            memory_within: self.memory_within,
        }
    }
}
