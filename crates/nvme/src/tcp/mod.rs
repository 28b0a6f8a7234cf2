//! NVMe/TCP: a target that serves a subsystem, and a client.
//!
//! ```text
//! buffer    received bytes that are not consumed yet
//! wire      framing of PDUs, digests
//! memory_line  connections that wait for memory
//! limits    limits on resources used by peers
//! quota     limits of connections and memory per host
//! target    one connection's state machine: bytes in, bytes out, no socket
//! roster    connected hosts, for an operator
//! server    sockets, threads, the clock
//! entrance  a connection's first byte, and its TLS handshake
//! socket    a connection's bytes, with TLS or without
//! patience  writing to a peer that may stop reading
//! notice    rate limits for log lines that peers can cause
//! wording   text of those log lines
//! client    the host's side
//! ```

mod buffer;
pub mod client;
mod entrance;
mod limits;
mod memory_line;
pub mod notice;
mod patience;
mod quota;
pub mod roster;
pub mod server;
mod socket;
pub mod target;
pub mod wire;
mod wording;
