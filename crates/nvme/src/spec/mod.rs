//! Bits and records of NVMe Base 2.0, NVM Command Set 1.0, NVMe over Fabrics and NVMe/TCP 1.0. No
//! behaviour.
//!
//! Names are the specifications', so a field or constant has a comment only where its name does not
//! say it all.

#![allow(missing_docs, reason = "the specification's names")]

pub mod ana;
pub mod auth;
pub mod bus;
pub mod command;
pub mod fabrics;
pub mod identify;
pub mod log;
pub mod management;
pub mod opcode;
pub mod pdu;
pub mod reservation;
pub mod status;

/// The namespace number that stands for all namespaces (Base 2.0 §3.2.1.1).
pub const NSID_ALL: u32 = 0xffff_ffff;

/// A block address or length that is 64 bits in two dwords.
#[inline]
pub fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
