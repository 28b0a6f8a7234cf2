//! Content identities: small numbers that are equal exactly when contents are.
//!
//! A digest seen for the first time gets the next number, and so does every content that nobody
//! recorded (a partial write, a trace without digests); the two never share one. Numbers are dense, so
//! that tables may keep them in fewer bits.
//! Invariants: one number per distinct digest; a fresh number is never given again.
//! Absent: identities across readers. A trace in several files is read as their concatenation.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use rustc_hash::FxHashMap;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::record::DIGEST_BYTES;

#[derive(Debug)]
pub(super) struct Identities {
    next: u64,
    /// Contents known by one MD5.
    by_md5: HashMap<Md5, u64, BuildHasherDefault<Mixed>>,
    /// Contents known by eight, through a 128-bit hash of them: a chance collision among a billion
    /// contents has a probability of 10^-21, and an eighth of the memory is needed.
    by_md5s: FxHashMap<u128, u64>,
}

impl Identities {
    /// Identities counted from `base + 1`.
    pub fn above(base: u64) -> Self {
        Self {
            next: base + 1,
            by_md5: HashMap::default(),
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
            Ok(md5) => *self.by_md5.entry(Md5::of(md5)).or_insert(next),
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

/// A digest of 16 bytes as two words. Looking it up is most of reading a trace, so it is hashed by two multiplications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Md5(u64, u64);

impl Md5 {
    fn of(bytes: [u8; DIGEST_BYTES]) -> Self {
        let word = |half: [u8; 8]| u64::from_le_bytes(half);
        let [first, second] = *bytes.as_chunks::<8>().0 else {
            unreachable!("16 bytes are two words")
        };
        Self(word(first), word(second))
    }
}

impl Hash for Md5 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
        state.write_u64(self.1);
    }
}

/// Mixes the words of a digest. Digests that someone made up may differ in few bits.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a digest is two words")
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(32) ^ word).wrapping_mul(ODD);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

fn hash(digests: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(digests);
    hasher.finish128().as_u128()
}
