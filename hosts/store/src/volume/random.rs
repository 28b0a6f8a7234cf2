//! Random bytes, for identifiers that nothing else has.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns `BYTES` random bytes, at most 256.
pub(super) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // The kernel has randomness from early in its boot on; an interrupted call is repeated.
    while getrandom(&mut bytes, GetRandomFlags::empty()).is_err() {}
    bytes
}
