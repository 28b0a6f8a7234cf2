//! NVMe qualified names of subsystems (NVMe 2.0 section 4.5), and the randomness of new ones.
//!
//! Absent: names of hosts, which `remap-ssd-nvme` checks.

use crate::error::ServiceError;
use std::hash::{BuildHasher, Hasher};

/// A unique number, from the system's randomness.
pub(crate) fn random() -> u64 {
    // Each `RandomState` has its own keys, seeded by the system.
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

/// Returns true if it can be an NVMe qualified name.
pub(crate) fn is_nqn(text: &str) -> bool {
    text.starts_with("nqn.") && text.len() <= 223
}

/// The error for another text.
pub(crate) fn no_nqn(text: &str) -> ServiceError {
    ServiceError::usage(format_args!(
        "`{text}` is no NQN: it begins with `nqn.` and has at most 223 bytes"
    ))
}

/// A unique name: a random UUID.
pub(crate) fn new_nqn() -> String {
    let (a, b) = (random(), random());
    // Version 4 and variant 10, as RFC 9562 places them.
    let version = (a & 0x0fff) | 0x4000;
    let variant = (b >> 48 & 0x3fff) | 0x8000;
    let (first, second, last) = (a >> 32, a >> 16 & 0xffff, b & 0xffff_ffff_ffff);
    format!(
        "nqn.2014-08.org.nvmexpress:uuid:{first:08x}-{second:04x}-{version:04x}-{variant:04x}-{last:012x}"
    )
}
