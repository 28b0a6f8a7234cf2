//! Filters of remaps that may have ended: they save reclaiming most of its L2P lookups.
//!
//! When a mapping made by a remap ends, a bit selected by its LPN is set in the filter of the
//! superblock it pointed into. A scheme that scans the entries it keeps for a superblock need look
//! up only those whose bit is set: a clear bit means that the LPN's mapping has not changed since
//! `start_over`. DRAM only; after power-on every superblock is unknown until its first
//! `start_over`.
//!
//! Invariant: if `may_have_ended(sb, lpn)` is false, then of the entries that were in force at the
//! last `start_over(sb)`, and of those added since, every one for this LPN is in force. Absent:
//! which entries exist (the scheme's).

use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{Geometry, Lpn, SbId};

/// The filters of all superblocks.
pub(crate) struct EndedFilters {
    bits: Slab<u64>,
    /// True once the scheme has dropped the dead entries since power-on.
    known: Vec<bool>,
    /// Words of one filter, a power of two.
    words: usize,
}

/// The filter of one superblock.
#[derive(Clone, Copy)]
pub(crate) struct EndedIn<'a> {
    /// A power of two of words; a single word of all ones if the superblock is unknown.
    bits: &'a [u64],
}

/// The word with the bit of an LPN, in a filter of `words` words. The low bits of the LPN select
/// the bit, so no multiplication is needed and neighbours never share a bit.
#[inline(always)]
fn word_of(lpn: Lpn, words: usize) -> usize {
    (lpn.index() / 64) & (words - 1)
}

impl EndedFilters {
    /// Filters with at least one bit per flash page; every superblock is unknown.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        // As many bits as pages: a superblock has about one entry a page, so few of its LPNs share
        // a bit.
        let words = geometry
            .pages_per_superblock()
            .div_ceil(64)
            .next_power_of_two();
        let superblocks = geometry.superblocks() as usize;
        let bits = Slab::zeroed(superblocks * words as usize);
        Self {
            bits,
            known: vec![false; superblocks],
            words: words as usize,
        }
    }

    #[inline(always)]
    fn word(&self, sb: SbId, lpn: Lpn) -> usize {
        sb.0 as usize * self.words + word_of(lpn, self.words)
    }

    /// A remap of this LPN into this superblock has ended.
    #[inline(always)]
    pub(crate) fn note(&mut self, sb: SbId, lpn: Lpn) {
        // Bits are only set here: a false positive costs a lookup, a false negative would keep a
        // dead entry.
        let word = self.word(sb, lpn);
        self.bits[word] |= 1 << (lpn.0 % 64);
    }

    /// Resets a filter: the scheme keeps no dead entry for this superblock.
    pub(crate) fn start_over(&mut self, sb: SbId) {
        let first = self.word(sb, Lpn::ZERO);
        self.bits[first..first + self.words].fill(0);
        self.known[sb.0 as usize] = true;
    }

    /// The filter of one superblock.
    pub(crate) fn of(&self, sb: SbId) -> EndedIn<'_> {
        let first = self.word(sb, Lpn::ZERO);
        EndedIn {
            bits: if self.known[sb.0 as usize] {
                &self.bits[first..first + self.words]
            } else {
                &[u64::MAX]
            },
        }
    }

    /// Returns true if `start_over` has been called for the superblock.
    pub(crate) fn is_known(&self, sb: SbId) -> bool {
        self.known[sb.0 as usize]
    }

    /// Returns true if the bit of this LPN is set. Same as `may_have_ended` for a known superblock;
    /// for scans over the entries of all superblocks.
    #[inline(always)]
    pub(crate) fn is_noted(&self, sb: SbId, lpn: Lpn) -> bool {
        self.bits[self.word(sb, lpn)] >> (lpn.0 % 64) & 1 == 1
    }

    /// Prefetches the cache line of a bit.
    #[inline(always)]
    pub(crate) fn prefetch(&self, sb: SbId, lpn: Lpn) {
        prefetch(&self.bits, self.word(sb, lpn));
    }
}

impl EndedIn<'_> {
    /// Returns true if an entry for this LPN may no longer be in force.
    #[inline(always)]
    pub(crate) fn may_have_ended(&self, lpn: Lpn) -> bool {
        self.bits[word_of(lpn, self.bits.len())] >> (lpn.0 % 64) & 1 == 1
    }
}
