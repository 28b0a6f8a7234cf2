//! NVRAM in segments of equal size, each owned by one superblock while in use (FAST'21 §4.3).
//!
//! Invariants: a segment is in one chain or free; it is zeroed before use, and its head is durable
//! before its slots; it is zeroed again only after everything that superseded its slots is durable.
//! Absent: the contents of slots, when segments are allocated or released, and recovery
//! (`recover`).

pub(super) mod groups;
mod head;
mod recover;

use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::layout::NvramLayout;
use crate::error::Contradiction;
use head::{SegmentHead, SegmentLink};
use remap_ssd_media::{After, ClearId, Geometry, Media, Purpose, SbId};
use std::collections::VecDeque;
use std::ops::Range;

/// Limit of a group's sequence numbers: 30 bits. They grow throughout the incarnation, however few
/// segments the group has.
const SEQUENCE_END: u32 = 1 << 30;
/// From this number on, segments are reserved for garbage collection and rewriting.
const SEQUENCE_HOSTS: u32 = SEQUENCE_END - (1 << 26);

pub(super) struct Segments {
    pub guards: Guards,
    base: usize,
    segment_words: usize,
    pub slot_words: usize,
    /// Slots of a segment after its head, which occupies the first.
    pub slots: u32,
    count: u32,
    /// Free segments, longest free first, with the zeroing to wait for.
    free: VecDeque<(u32, ClearId)>,
    /// The longest chain so far.
    longest: usize,
    /// Segments with an unknown owner: their first word was unreadable at recovery.
    orphans: Vec<u32>,
    /// Second words of heads that were unreadable at recovery, and their reconstructed values.
    links: Vec<(usize, SegmentLink)>,
}

/// The segments of one superblock, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentChain {
    pub segments: Vec<u32>,
    /// Slots used in the last segment.
    used: u32,
    /// First word of the next slot.
    end: usize,
    /// Sequence number of the next segment.
    sequence: u32,
    /// Zeroing of the last segment, which its slots must wait for.
    pub clear: ClearId,
}

impl SegmentChain {
    /// An empty chain that continues the sequence numbers.
    pub(super) fn continued(&self) -> Self {
        Self {
            sequence: self.sequence,
            ..Self::default()
        }
    }

    /// Returns true if the sequence numbers are nearly used up. Then host remaps must be demoted to
    /// copies until the superblock is collected.
    #[inline]
    pub(super) fn is_numbered_out(&self) -> bool {
        self.sequence >= SEQUENCE_HOSTS
    }
}

impl Segments {
    /// All segments, free and zero.
    pub(super) fn new(config: &Config, geometry: &Geometry, slot_words: usize) -> Self {
        let segment_words = config.segment_bytes as usize / 8;
        let count = (config.log_bytes / u64::from(config.segment_bytes)) as u32;
        Self {
            guards: config.guards,
            base: NvramLayout::new(config, geometry).scheme,
            segment_words,
            slot_words,
            slots: (segment_words / slot_words) as u32 - 1,
            count,
            free: (0..count)
                .map(|segment| (segment, ClearId::default()))
                .collect(),
            longest: 0,
            orphans: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Number of free segments.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Bytes of `segments` segments.
    pub(super) fn bytes(&self, segments: usize) -> u64 {
        segments as u64 * self.segment_words as u64 * 8
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.bytes(self.count as usize)
    }

    /// Number of all segments.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes available for entries in `segments` segments, without their heads.
    pub(super) fn room_bytes(&self, segments: usize) -> u64 {
        segments as u64 * u64::from(self.slots) * self.slot_words as u64 * 8
    }

    /// Bytes of the segments in chains.
    pub(super) fn used_bytes(&self) -> u64 {
        self.bytes(self.count as usize - self.free.len())
    }

    /// Bytes of the longest chain so far.
    pub(super) fn longest_bytes(&self) -> u64 {
        self.bytes(self.longest)
    }

    pub(super) fn capacity_slots(&self) -> u64 {
        u64::from(self.count) * u64::from(self.slots)
    }

    fn word(&self, segment: u32) -> usize {
        self.base + segment as usize * self.segment_words
    }

    fn slot_word(&self, segment: u32, slot: u32) -> usize {
        self.word(segment) + (slot as usize + 1) * self.slot_words
    }

    /// Slots allocated, including those left over at the end of a segment.
    pub(super) fn used(&self, chain: &SegmentChain) -> u32 {
        match chain.segments.len() as u32 {
            0 => 0,
            len => (len - 1) * self.slots + chain.used,
        }
    }

    /// Returns true if `slots` consecutive slots are available without a new segment.
    #[inline]
    pub(super) fn has(&self, chain: &SegmentChain, slots: u32) -> bool {
        !chain.segments.is_empty() && chain.used + slots <= self.slots
    }

    /// Address of the next slot, if it needs no new segment.
    #[inline]
    pub(super) fn next_word(&self, chain: &SegmentChain) -> usize {
        chain.end
    }

    /// Allocates consecutive slots in one segment; returns their first word. Room must have been
    /// reserved.
    #[inline]
    pub(super) fn take(
        &mut self,
        media: &mut Media,
        now: u64,
        chain: &mut SegmentChain,
        sb: SbId,
        slots: u32,
        purpose: Purpose,
    ) -> usize {
        if !self.has(chain, slots) {
            self.grow(media, now, chain, sb, purpose);
        }

        let at = chain.end;
        chain.end += slots as usize * self.slot_words;
        chain.used += slots;
        at
    }

    /// Allocates slots for records of their size that move within their chain, and stores the
    /// records; the caller charges them. `after` returns each record's constraint, given its
    /// segment's zeroing.
    pub(super) fn take_run<const W: usize>(
        &mut self,
        media: &mut Media,
        now: u64,
        chain: &mut SegmentChain,
        sb: SbId,
        records: &[[u64; W]],
        after: impl Fn(ClearId, &[u64; W]) -> After,
    ) {
        debug_assert_eq!(W, self.slot_words);
        let mut left = records;
        while !left.is_empty() {
            let (at, slots) = self.take_some(media, now, chain, sb, left.len());
            let (stored, rest) = left.split_at(slots);
            media.store_records(at, stored, Purpose::Gc, |record| after(chain.clear, record));
            left = rest;
        }
    }

    /// Allocates up to `most` consecutive slots in one segment; returns their first word and their
    /// number.
    #[inline(always)]
    fn take_some(
        &mut self,
        media: &mut Media,
        now: u64,
        chain: &mut SegmentChain,
        sb: SbId,
        most: usize,
    ) -> (usize, usize) {
        if !self.has(chain, 1) {
            self.grow(media, now, chain, sb, Purpose::Gc);
        }
        let slots = most.min((self.slots - chain.used) as usize);
        let at = chain.end;
        chain.used += slots as u32;
        chain.end += slots * self.slot_words;
        (at, slots)
    }

    /// Moves the records at these words within their chain, unchanged. The caller charges them.
    /// `after` as in `take_run`.
    #[inline(always)]
    pub(super) fn move_run<const W: usize>(
        &mut self,
        media: &mut Media,
        now: u64,
        chain: &mut SegmentChain,
        sb: SbId,
        mut run: Range<usize>,
        after: impl Fn(ClearId, &[u64; W]) -> After,
    ) {
        debug_assert_eq!(W, self.slot_words);
        while !run.is_empty() {
            let (at, slots) = self.take_some(media, now, chain, sb, run.len() / W);
            let end = run.start + slots * W;
            media.move_records(run.start..end, at, Purpose::Gc, |record| {
                after(chain.clear, record)
            });
            run.start = end;
        }
    }

    fn grow(
        &mut self,
        media: &mut Media,
        now: u64,
        chain: &mut SegmentChain,
        sb: SbId,
        purpose: Purpose,
    ) {
        let (segment, clear) = self.free.pop_front().expect("a free segment was secured");
        // 1. zeroes  2. segment metadata  3. slots. Cut before 2: the segment is free. Slots that
        // landed before the metadata would be read as another superblock's.
        let zeroed = self.guards.has(Guard::SegmentZeroed);
        let after = if zeroed {
            After::clear(clear)
        } else {
            After::NOTHING
        };

        if let Some(&last) = chain.segments.last() {
            // The next-link is late, since the successor is known only now.
            let link = SegmentLink::of(chain.sequence - 1).with_next(segment + 1);
            // No wait: the link is a hint for inspection, and recovery uses the sequence numbers.
            media.store(self.word(last) + 1, link.into(), purpose, After::NOTHING);
        }

        let head = SegmentHead::new()
            .with_torn(true)
            .with_superblock(sb.0)
            .with_wsn(now);
        let link = SegmentLink::of(chain.sequence);
        media.store_record(
            self.word(segment),
            &[head.into(), link.into()],
            purpose,
            after,
        );

        media.fence();
        chain.sequence += 1;
        chain.segments.push(segment);
        self.longest = self.longest.max(chain.segments.len());
        (chain.used, chain.end, chain.clear) = (0, self.slot_word(segment, 0), clear);
    }

    /// Zeroes segments, after everything before, and appends them to the free list.
    pub(super) fn release(&mut self, media: &mut Media, segments: &[u32]) {
        let waits = self.guards.has(Guard::ClearWaits);
        for &segment in segments {
            let after = if waits { After::ALL } else { After::NOTHING };
            // The stale entries stay readable until the zeroes land. Each is equal to its copy, or
            // older than another witness.
            let clear = media.clear(self.word(segment), self.segment_words, after);
            self.free.push_back((segment, clear));
        }
    }

    /// The words of the used slots of one segment of a chain.
    pub(super) fn range(&self, chain: &SegmentChain, index: usize) -> Range<usize> {
        let last = index + 1 == chain.segments.len();
        let first = self.slot_word(chain.segments[index], 0);
        let slots = if last { chain.used } else { self.slots } as usize;
        first..first + slots * self.slot_words
    }

    /// The first words of the used slots, in order.
    pub(super) fn places(
        &self,
        chain: &SegmentChain,
        index: usize,
    ) -> impl Iterator<Item = usize> + use<> {
        self.range(chain, index).step_by(self.slot_words)
    }

    /// Prefetches the cache lines of a chain's segment.
    pub(super) fn prefetch(&self, media: &Media, chain: &SegmentChain, index: usize) {
        if let Some(&segment) = chain.segments.get(index) {
            self.prefetch_segment(media, segment);
        }
    }

    /// Prefetches the cache lines of the segment that will be allocated after `index` others.
    pub(super) fn prefetch_free(&self, media: &Media, index: usize) {
        if let Some(&(segment, _)) = self.free.get(index) {
            self.prefetch_segment(media, segment);
        }
    }

    fn prefetch_segment(&self, media: &Media, segment: u32) {
        let at = self.word(segment);
        media.prefetch_words(at..at + self.segment_words);
    }

    /// Checks that every segment is either free or in exactly one of these chains.
    pub(super) fn check<'a>(
        &self,
        chains: impl Iterator<Item = &'a SegmentChain>,
    ) -> Result<(), Contradiction> {
        let mut seen = vec![false; self.count as usize];
        let taken: Vec<u32> = chains
            .flat_map(|chain| chain.segments.iter().copied())
            .collect();
        for segment in taken
            .into_iter()
            .chain(self.free.iter().map(|(segment, _)| *segment))
        {
            if std::mem::replace(&mut seen[segment as usize], true) {
                return Err(Contradiction(format!("segment {segment} is in two places")));
            }
        }

        match seen.iter().position(|seen| !seen) {
            Some(lost) => Err(Contradiction(format!(
                "segment {lost} is neither free nor in a group"
            ))),
            None => Ok(()),
        }
    }
}
