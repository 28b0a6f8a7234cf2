//! Content identities: small numbers that are equal exactly when contents are.
//!
//! A digest seen for the first time gets the next number, and so does every content that nobody
//! recorded (a partial write, a trace without digests); the two never share one. Numbers are dense, so
//! that tables may keep them in fewer bits.
//! Invariants: one number per distinct digest; a fresh number is never given again.
//! Absent: identities across readers. A trace in several files is read as their concatenation.

use std::hash::Hasher;

use rustc_hash::FxHashMap;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::record::DIGEST_BYTES;

#[derive(Debug)]
pub(super) struct Identities {
    next: u64,
    /// Contents known by one MD5.
    by_md5: FxHashMap<[u8; DIGEST_BYTES], u64>,
    /// Contents known by eight, through a 128-bit hash of them: a chance collision among a billion
    /// contents has a probability of 10^-21, and an eighth of the memory is needed.
    by_md5s: FxHashMap<u128, u64>,
}

impl Identities {
    /// Identities counted from `base + 1`.
    pub fn above(base: u64) -> Self {
        Self {
            next: base + 1,
            by_md5: FxHashMap::default(),
            by_md5s: FxHashMap::default(),
        }
    }

    /// An identity that nothing else has or will have.
    pub fn fresh(&mut self) -> u64 {
        let identity = self.next;
        self.next += 1;
        identity
    }

    /// The identity of the content with this digest, or these digests one per sector.
    pub fn of(&mut self, digests: &[u8]) -> u64 {
        let next = self.next;
        let identity = match <[u8; DIGEST_BYTES]>::try_from(digests) {
            Ok(md5) => *self.by_md5.entry(md5).or_insert(next),
            Err(_) => *self.by_md5s.entry(hash(digests)).or_insert(next),
        };
        if identity == next {
            self.next += 1;
        }
        identity
    }

    /// Every identity given so far is below this one.
    pub fn end(&self) -> u64 {
        self.next
    }
}

fn hash(digests: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(digests);
    hasher.finish128().as_u128()
}
