//! Bits and records of NVMe Base 2.0, NVM Command Set 1.0, NVMe over Fabrics and NVMe/TCP 1.0. No
//! behaviour.
//!
//! Names are the specifications', so a field or constant has a comment only if its name is not
//! sufficient.

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

/// The namespace number that means all namespaces (Base 2.0 §3.2.1.1).
pub(crate) const NSID_ALL: u32 = 0xffff_ffff;

/// Combines two dwords to a 64-bit value.
#[inline]
pub(crate) fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
