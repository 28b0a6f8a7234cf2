//! NVMe/TCP: a target that serves a subsystem, and a client.
//!
//! ```text
//! wire    bytes to PDUs and back, digests
//! target  one connection's state machine: bytes in, bytes out, no socket
//! server  sockets, threads, the clock
//! client  the other end
//! ```

pub mod client;
pub mod server;
pub mod target;
pub mod wire;
