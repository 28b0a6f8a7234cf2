//! Limits on resources used by peers.
//!
//! Absent: accounting (`quota` for connected queues, `half_open` for the rest).

use super::quota::Shares;
use std::time::Duration;

/// Default of the memory for connections, in bytes: 512 MiB.
pub const MEMORY_BYTES_DEFAULT: usize = 512 << 20;
/// Minimum to serve a host with an admin queue, an I/O queue and large commands.
pub const MEMORY_BYTES_MIN: usize = 16 << 20;

/// Limits on resources used by peers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum connections with a queue.
    pub connected: usize,
    /// Maximum connections of one host, by its name.
    pub connected_of_host: usize,
    /// Maximum connections from one address.
    pub connected_of_address: usize,
    /// Maximum connections without a queue, or not authenticated where they must be; the oldest
    /// make room for new ones. One address may have three quarters of them.
    pub half_open: usize,
    /// Memory of all connections: buffers, unsent output, partly received data. One host may use
    /// half.
    pub memory_bytes: usize,
    /// Time for a connection to connect a queue; with TLS, from the end of its handshake.
    pub connect_within: Duration,
    /// Time for a TLS handshake.
    pub handshake_within: Duration,
    /// Time for a connection to authenticate, from its beginning, where it must.
    pub authenticate_within: Duration,
    /// Time for a host to read the next 64 KiB of output, or the rest.
    pub send_within: Duration,
    /// Time for a host to send requested data, or the rest of a PDU.
    pub data_within: Duration,
    /// Time for which a command waits for memory before it fails.
    pub memory_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // More queues than a host with 64 processors opens, and room for several such hosts at
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
            // Twice the time until a host that does not read is dropped, and less than the time-out
            // of hosts: Linux resets the controller after 30 s.
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
