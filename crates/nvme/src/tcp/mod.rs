//! NVMe/TCP: a target that serves a subsystem, and a client.
//!
//! ```text
//! buffer    what has arrived and not been used
//! wire      bytes to PDUs and back, digests
//! quota     what hosts may take of the server
//! target    one connection's state machine: bytes in, bytes out, no socket
//! server    sockets, threads, the clock
//! patience  writing to a peer that may not read
//! notice    how often a line is worth writing that peers can cause
//! client    the other end
//! ```

mod buffer;
pub mod client;
pub mod notice;
mod patience;
mod quota;
pub mod server;
pub mod target;
pub mod wire;
