//! The device as NVMe: records, a controller, and the TCP transport.
//!
//! ```text
//! spec        records and bits as in the specifications, nothing else
//! auth        keys; DH-HMAC-CHAP: messages, both sides; no I/O
//! tls         TLS 1.3 with a key given to both ends
//! controller  commands in, statuses and data out; no I/O, no clock
//! tcp         NVMe/TCP: target and client; sockets at the edge
//! process     detects state inherited by `fork`
//! ```
//! Absent: persistence of remaps, and trust in any input from hosts.

#![warn(unreachable_pub)]

pub mod auth;
pub mod controller;
pub mod process;
pub mod spec;
pub mod tcp;
pub mod tls;

pub use remap_ssd_media::Escaped;
