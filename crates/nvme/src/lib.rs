//! The device as NVMe: bits, a controller, and the TCP transport.
//!
//! ```text
//! spec        records and bits as the specifications draw them, nothing else
//! auth        keys; DH-HMAC-CHAP: messages, both ends; no I/O
//! tls         TLS 1.3 with a key that both ends were given
//! controller  commands in, statuses and data out; no I/O, no clock
//! tcp         NVMe/TCP: target and client; sockets at the edge
//! process     whether something was inherited by `fork`
//! ```
//! Absent: how remaps are persisted, and anything a host can say that would be trusted.

pub mod auth;
pub mod controller;
pub mod process;
pub mod spec;
pub mod tcp;
pub mod tls;

pub use remap_ssd_media::Escaped;
