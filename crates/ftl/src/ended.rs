//! Which remaps into a superblock may have ended: a filter that spares reclaiming most of its L2P
//! lookups.
//!
//! When a mapping made by a remap ends, a bit picked by its LPN is set in the filter of the
//! superblock it pointed into. A scheme that goes through the entries it keeps for a superblock
//! need ask the L2P table about those only whose bit is set: a clear bit says that nothing about
//! this LPN has changed since `start_over`. DRAM only; after power-on every superblock is unknown
//! until its first `start_over`.
//!
//! Invariant: if `may_have_ended(sb, lpn)` is false, then of the entries that were in force at the
//! last `start_over(sb)`, and of those added since, every one for this LPN is in force. Absent:
//! which entries there are (the scheme's).

use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{Geometry, Lpn, SbId};

/// The filters of all superblocks.
pub struct EndedFilters {
    bits: Slab<u64>,
    /// Have the scheme's entries been sorted out since power-on?
    known: Vec<bool>,
    /// Words of one filter, a power of two.
    words: usize,
}

/// The filter of one superblock.
#[derive(Clone, Copy)]
pub struct EndedIn<'a> {
    /// A power of two of words; one word of all ones if nothing is known.
    bits: &'a [u64],
}

/// Of a filter of so many words, the word that has the bit of an LPN: the LPN's lowest bits say
/// which, so that bits are found without multiplying, and neighbours never share one.
#[inline(always)]
fn word_of(lpn: Lpn, words: usize) -> usize {
    (lpn.index() / 64) & (words - 1)
}

impl EndedFilters {
    /// One bit a flash page or more; nothing is known.
    pub fn new(geometry: &Geometry) -> Self {
        // As many bits as pages: a superblock has about one entry a page, so that few bits are
        // shared by LPNs that are in it.
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
    pub fn note(&mut self, sb: SbId, lpn: Lpn) {
        // Bits are only ever set here: a false positive costs a lookup, a false negative would keep
        // a dead entry.
        let word = self.word(sb, lpn);
        self.bits[word] |= 1 << (lpn.0 % 64);
    }

    /// The scheme keeps no entry for this superblock that is not in force.
    pub fn start_over(&mut self, sb: SbId) {
        let first = self.word(sb, Lpn::ZERO);
        self.bits[first..first + self.words].fill(0);
        self.known[sb.0 as usize] = true;
    }

    /// The filter of one superblock.
    pub fn of(&self, sb: SbId) -> EndedIn<'_> {
        let first = self.word(sb, Lpn::ZERO);
        EndedIn {
            bits: if self.known[sb.0 as usize] {
                &self.bits[first..first + self.words]
            } else {
                &[u64::MAX]
            },
        }
    }

    /// Has `start_over` been called for it?
    pub fn is_known(&self, sb: SbId) -> bool {
        self.known[sb.0 as usize]
    }

    /// Is the bit of this LPN set? For a known superblock the same as `may_have_ended`, for those
    /// who go through the entries of all superblocks together.
    #[inline(always)]
    pub fn is_noted(&self, sb: SbId, lpn: Lpn) -> bool {
        self.bits[self.word(sb, lpn)] >> (lpn.0 % 64) & 1 == 1
    }

    /// Asks for the cache line of a bit.
    #[inline(always)]
    pub fn prefetch(&self, sb: SbId, lpn: Lpn) {
        prefetch(&self.bits, self.word(sb, lpn));
    }
}

impl EndedIn<'_> {
    /// May an entry for this LPN be no longer in force?
    #[inline(always)]
    pub fn may_have_ended(&self, lpn: Lpn) -> bool {
        self.bits[word_of(lpn, self.bits.len())] >> (lpn.0 % 64) & 1 == 1
    }
}
