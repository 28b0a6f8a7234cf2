//! Content identities: small numbers that are equal if and only if the contents are.
//!
//! A digest seen for the first time gets the next number, and so does every content without a
//! recorded digest (a partial write, a trace without digests); the two never share one. Numbers are
//! dense, so that tables may store them in fewer bits.
//!
//! Lookups of digests take most of the time of reading a trace, since each is at a random place of
//! a table larger than any cache. So the table is flat, on huge pages, and a reader that knows
//! digests in advance prefetches them (`look_ahead`). Invariants: one number per distinct digest; a
//! fresh number is never reused; there is no empty slot between a digest's home slot and its actual
//! slot, and at least a quarter of the slots are empty. Absent: identities across readers. A trace
//! in several files is read as their concatenation.

use remap_ssd_media::slab::{Slab, prefetch};
use xxhash_rust::xxh3::xxh3_128;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::record::DIGEST_BYTES;

#[derive(Debug)]
pub(super) struct Identities {
    next: u64,
    /// Contents identified by one MD5.
    by_md5: DigestTable,
    /// Contents identified by eight, through a 128-bit hash of them: a chance collision among a
    /// billion contents has a probability of 10^-21, and an eighth of the memory is needed.
    by_md5s: DigestTable,
}

/// Key of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Unknown: different from all others.
    Fresh,
    /// The digest of a page.
    Md5(Digest),
    /// The hash of its sectors' eight digests.
    Md5s(Digest),
}

impl Key {
    /// From the digest of a page, or from one digest per sector.
    pub(super) fn of(digests: &[u8]) -> Self {
        match <[u8; DIGEST_BYTES]>::try_from(digests) {
            Ok(md5) => Self::Md5(Digest::of(u128::from_le_bytes(md5))),
            Err(_) => Self::Md5s(Digest::of(xxh3_128(digests))),
        }
    }
}

impl Identities {
    /// Identities counted from `base + 1`.
    pub(super) fn above(base: u64) -> Self {
        Self {
            next: base + 1,
            by_md5: DigestTable::new(),
            by_md5s: DigestTable::new(),
        }
    }

    /// Returns the identity of the content with this key.
    #[inline]
    pub(super) fn of(&mut self, key: Key) -> u64 {
        let next = self.next;
        let identity = match key {
            Key::Fresh => next,
            Key::Md5(digest) => self.by_md5.find_or_insert(digest, next),
            Key::Md5s(digest) => self.by_md5s.find_or_insert(digest, next),
        };

        if identity == next {
            self.next += 1;
        }
        identity
    }

    /// Prefetches the slots that `of` will read.
    #[inline]
    pub(super) fn look_ahead(&self, key: Key) {
        match key {
            Key::Fresh => {}
            Key::Md5(digest) => self.by_md5.look_ahead(digest),
            Key::Md5s(digest) => self.by_md5s.look_ahead(digest),
        }
    }

    /// Returns true if a content had a digest so far.
    pub(super) fn has_digests(&self) -> bool {
        self.by_md5.used + self.by_md5s.used > 0
    }

    /// All identities given so far are below this one.
    pub(super) fn end(&self) -> u64 {
        self.next
    }
}

/// 16 bytes as two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64, u64);

impl Digest {
    fn of(value: u128) -> Self {
        Self(value as u64, (value >> 64) as u64)
    }

    /// Mixed by two multiplications: artificial digests may differ in few bits.
    #[inline]
    fn mixed(self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let first = self.0.wrapping_mul(ODD);
        (first.rotate_left(32) ^ self.1).wrapping_mul(ODD)
    }
}

/// Identities by digest: open addressing, with the home slot given by the upper bits of the hash.
///
/// So a table of twice the size has the same order, and growing is one pass over both.
struct DigestTable {
    slots: Slab<Slot>,
    /// The hash is shifted right by this number of bits.
    shift: u32,
    used: usize,
}

/// Identity 0 marks an empty slot.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Slot {
    first: u64,
    second: u64,
    identity: u64,
}

/// Size of a new table: 2^10 slots, 24 KiB.
const SLOTS_BITS_FIRST: u32 = 10;

impl DigestTable {
    fn new() -> Self {
        Self::of_bits(SLOTS_BITS_FIRST)
    }

    fn of_bits(bits: u32) -> Self {
        Self {
            slots: Slab::zeroed(1 << bits),
            shift: u64::BITS - bits,
            used: 0,
        }
    }

    #[inline]
    fn place(&self, digest: Digest) -> usize {
        (digest.mixed() >> self.shift) as usize
    }

    #[inline]
    fn look_ahead(&self, digest: Digest) {
        // A slot may straddle two cache lines.
        let place = self.place(digest);
        prefetch(&self.slots, place);
        prefetch(&self.slots, place + 1);
    }

    /// Returns the identity of `digest`; `next` if it is new.
    #[inline]
    fn find_or_insert(&mut self, digest: Digest, next: u64) -> u64 {
        // At most three quarters full, so that searches stay short.
        if self.used >= self.slots.len() / 4 * 3 {
            self.grow();
        }

        let Digest(first, second) = digest;
        // Linear probing: neighbours are mostly in one cache line.
        let mut place = self.place(digest);
        let mask = self.slots.len() - 1;
        loop {
            let slot = &mut self.slots[place & mask];
            // An empty slot ends the search: nothing is ever removed.
            if slot.identity == 0 {
                *slot = Slot {
                    first,
                    second,
                    identity: next,
                };
                self.used += 1;
                return next;
            }

            // Compares the whole digest: two contents must never become one.
            if (slot.first, slot.second) == (first, second) {
                return slot.identity;
            }
            place += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = Self::of_bits(u64::BITS - self.shift + 1);
        let smaller = std::mem::replace(self, larger);

        // One by one, which counts them again.
        for slot in smaller.slots.iter().filter(|slot| slot.identity != 0) {
            self.find_or_insert(Digest(slot.first, slot.second), slot.identity);
        }
    }
}

impl std::fmt::Debug for DigestTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_keeps_its_identity_while_the_table_grows_and_a_quarter_of_it_stays_free() {
        const DIGESTS: u64 = 5_000;
        let digest = |number: u64| Digest(number, !number);
        let mut table = DigestTable::new();

        for number in 0..DIGESTS {
            let identity = table.find_or_insert(digest(number), number + 1);
            assert_eq!(identity, number + 1);
            assert!(4 * table.used <= 3 * table.slots.len());
        }
        for number in 0..DIGESTS {
            assert_eq!(table.find_or_insert(digest(number), u64::MAX), number + 1);
        }
    }
}
