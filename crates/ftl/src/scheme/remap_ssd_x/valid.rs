//! The valid part of a group: read from NVRAM, filtered, split and joined.
//!
//! An entry of one page is rewritten unchanged, with its number, unless it may be adjacent to
//! another: it still names the mapping in force. Entries can be adjacent or equal only if their
//! LPNs have the same distance from their pages; a bit table indexed by that distance finds the few
//! candidates. These and extents are sorted by LPN, and the resulting entries get one new number.
//! Most groups of single pages need no such table: L2P showed when an entry was added whether an
//! adjacent one exists (`GroupEnd::may_join`), and if as many entries are valid as LPNs are
//! remapped to the superblock, no two are equal.
//!
//! Invariants: each valid mapping is in one entry of the result; mappings that L2P does not confirm
//! are dropped, and only mappings that `EndedFilters` reports as unchanged are not looked up.
//! Absent: whether rewriting pays, and where the result is stored.

use super::extent::{ExtentSlot, PAGES_MAX, RemapExtent, SLOT_WORDS};
use super::{EXTENTS_JOINED, EXTENTS_SPLIT, RemapSsdX};
use crate::clock::WsnClock;
use crate::core::Core;
use crate::mapping::tables::Tables;
use crate::scheme::entry::{EntryOwners, RmmEntry};
use crate::scheme::in_force::{find_doubtful, take_out};
use crate::stats::SchemeCounters;
use remap_ssd_media::{Geometry, Lpn, Media, Ppn, SbId};

/// Prefetch distance for L2P lookups, in extents.
const AHEAD: usize = 24;

/// Prefetch distance in segments.
const SEGMENTS_AHEAD: usize = 3;

/// Bits of the distance table per entry.
const BITS: usize = 8;

/// The slots to write in a rewriting, and buffers for finding them.
#[derive(Default)]
pub(super) struct ValidExtents {
    pub slots: Vec<[u64; SLOT_WORDS]>,
    /// Pages that the slots and pieces remap.
    pub pages: u64,
    /// True if a run was too long for one entry and was divided.
    pub is_divided: bool,
    /// Indices into `slots` of the entries to look up.
    doubtful: Vec<u32>,
    distances: DistanceFilter,
    pieces: Vec<RemapExtent>,
}

/// Distances between LPN and page that occur once, and those that may occur more often.
#[derive(Default)]
struct DistanceFilter {
    once: Vec<u64>,
    twice: Vec<u64>,
    shift: u32,
}

impl DistanceFilter {
    fn clear(&mut self, entries: usize) {
        // A power of two, so that an index is the top bits of a product.
        let words = (entries * BITS).div_ceil(64).next_power_of_two();
        for bits in [&mut self.once, &mut self.twice] {
            bits.clear();
            bits.resize(words, 0);
        }
        self.shift = u32::BITS - (words * 64).trailing_zeros();
    }

    #[inline(always)]
    fn place(&self, lpn: Lpn, offset: u32) -> usize {
        (lpn.0.wrapping_sub(offset).wrapping_mul(0x9e37_79b1) >> self.shift) as usize
    }

    #[inline(always)]
    fn add(&mut self, lpn: Lpn, offset: u32) {
        let place = self.place(lpn, offset);
        let (word, bit) = (place / 64, 1 << (place % 64));
        self.twice[word] |= self.once[word] & bit;
        self.once[word] |= bit;
    }

    #[inline(always)]
    fn may_be_shared(&self, lpn: Lpn, offset: u32) -> bool {
        let place = self.place(lpn, offset);
        self.twice[place / 64] >> (place % 64) & 1 == 1
    }
}

/// Returns true for an entry of one page, which is Table 2's.
#[inline(always)]
fn is_single(first: u64, second: u64) -> bool {
    const ABOVE_FLAG: u32 = 33;
    (first & second & 1 == 1)
        & ((second >> ABOVE_FLAG == 0) | (second >> (ABOVE_FLAG - 1) & 1 == 1))
}

impl RemapSsdX {
    /// Finds the valid part of a group.
    pub(super) fn find_valid(
        &mut self,
        core: &mut Core,
        sb: SbId,
        valid_extents: &mut ValidExtents,
    ) {
        valid_extents.slots.clear();
        valid_extents.pieces.clear();
        let mut extents = std::mem::take(&mut self.scratch);
        extents.clear();

        if self.read_plain(core.geometry, &core.media, sb, valid_extents, &mut extents) {
            valid_extents.drop_ended(&core.tables, sb);
        } else {
            self.read_group(
                &core.tables,
                &mut core.media,
                &mut core.clock,
                sb,
                &mut extents,
            );
        }

        valid_extents.split(&core.tables, &mut core.stats.scheme, sb, &extents);
        // More pages than remapped LPNs: some mapping has two entries, from two remaps.
        let pieces: u32 = valid_extents.pieces.iter().map(|piece| piece.pages).sum();
        let is_single =
            valid_extents.slots.len() as u32 + pieces == core.blocks.owners(sb).remapped;
        if self.ends[sb.0 as usize].may_join || !is_single {
            valid_extents.part_neighbours();
        }

        valid_extents.pages = valid_extents.slots.len() as u64;
        valid_extents.join(&mut core.clock, &mut core.stats.scheme);
        self.scratch = extents;
    }

    /// Reads a group directly from NVRAM: entries of one page to `slots`, others to `extents`.
    /// Returns false if NVRAM must be read word by word.
    fn read_plain(
        &self,
        geometry: Geometry,
        media: &Media,
        sb: SbId,
        valid_extents: &mut ValidExtents,
        extents: &mut Vec<RemapExtent>,
    ) -> bool {
        let Some(words) = media.words() else {
            return false;
        };
        let (segments, chain) = (&self.groups.segments, self.groups.chain(sb));
        let pages = geometry.pages_per_superblock();
        for index in 0..chain.segments.len() {
            segments.prefetch(media, chain, index + SEGMENTS_AHEAD);
            segments.prefetch_free(media, index);
            let slots = words[segments.range(chain, index)]
                .as_chunks::<SLOT_WORDS>()
                .0;
            if slots.iter().fold(true, |all, [first, second]| {
                all & is_single(*first, *second)
            }) {
                valid_extents.slots.extend_from_slice(slots);
                continue;
            }

            for &[first, second] in slots {
                if is_single(first, second) {
                    valid_extents.slots.push([first, second]);
                } else if let Some(ExtentSlot::Extent(extent, _)) =
                    RemapExtent::read(first, second, true)
                    && extent.offset + extent.pages <= pages
                {
                    // Its sources, if any, are in the next slot; their deallocations are already
                    // recorded.
                    extents.push(extent);
                }
            }
        }

        true
    }
}

impl ValidExtents {
    /// Drops the entries that are no longer in force.
    fn drop_ended(&mut self, tables: &Tables, sb: SbId) {
        self.doubtful.clear();
        let lpn_of = |[_, second]: &[u64; 2]| EntryOwners::from_bits(*second).target();
        let Self {
            slots, doubtful, ..
        } = self;
        find_doubtful(
            &tables.map,
            tables.ended.of(sb),
            slots,
            lpn_of,
            |index| index as u32,
            doubtful,
        );

        let (base, pages) = (
            tables.geometry.page(sb, 0).0,
            tables.geometry.pages_per_superblock(),
        );
        let slots = &self.slots;
        self.doubtful.retain(|at| {
            let [first, second] = slots[*at as usize];
            let entry = RmmEntry::from_words(first, second);
            let (lpn, offset) = (entry.target(), entry.offset());
            !(offset < pages && tables.is_in_force(lpn, Ppn(base + offset), entry.wsn()))
        });

        take_out(&mut self.slots, &self.doubtful);
    }

    /// Moves the entries that may have an adjacent or equal one from `slots` to `pieces`.
    fn part_neighbours(&mut self) {
        let Self {
            slots,
            distances,
            pieces,
            ..
        } = self;
        // Adjacent entries have the same distance between LPN and offset. Two passes over bits show
        // which distances occur once, without sorting.
        distances.clear(slots.len() + pieces.len());
        for piece in pieces.iter() {
            distances.add(piece.lpn, piece.offset);
        }

        for [first, second] in slots.iter() {
            let entry = RmmEntry::from_words(*first, *second);
            distances.add(entry.target(), entry.offset());
        }

        slots.retain(|[first, second]| {
            let entry = RmmEntry::from_words(*first, *second);
            let (lpn, offset) = (entry.target(), entry.offset());
            let is_alone = !distances.may_be_shared(lpn, offset);
            if !is_alone {
                pieces.push(RemapExtent {
                    lpn,
                    offset,
                    pages: 1,
                    wsn: entry.wsn(),
                    one_number: false,
                    source: None,
                });
            }

            is_alone
        });
    }

    /// Collects the valid parts of extents.
    fn split(
        &mut self,
        tables: &Tables,
        counters: &mut SchemeCounters,
        sb: SbId,
        extents: &[RemapExtent],
    ) {
        let base = tables.geometry.page(sb, 0).0;
        for (index, extent) in extents.iter().enumerate() {
            if let Some(later) = extents.get(index + AHEAD) {
                tables.map.prefetch(later.lpn);
            }

            let is_valid = |at: &u32| {
                // The number matters only if it belongs to an aborted command, and all pages of
                // such a command have it.
                tables.is_in_force(
                    extent.lpn.offset(*at),
                    Ppn(base + extent.offset + at),
                    extent.wsn,
                )
            };
            let before = self.pieces.len();
            let mut at = 0;
            while let Some(first) = (at..extent.pages).find(is_valid) {
                at = (first..extent.pages)
                    .find(|at| !is_valid(at))
                    .unwrap_or(extent.pages);
                let (lpn, offset) = (extent.lpn.offset(first), extent.offset + first);
                self.pieces.push(RemapExtent {
                    lpn,
                    offset,
                    pages: at - first,
                    ..*extent
                });
            }

            let more = (self.pieces.len() - before).saturating_sub(1) as u64;
            counters.add(EXTENTS_SPLIT, more);
        }
    }

    /// Joins the pieces that have become adjacent, under a new number.
    fn join(&mut self, clock: &mut WsnClock, counters: &mut SchemeCounters) {
        self.is_divided = false;
        if self.pieces.is_empty() {
            return;
        }

        // An LPN has one mapping in force: overlapping pieces are equal where they overlap.
        self.pieces.sort_unstable_by_key(|piece| piece.lpn);
        let wsn = clock.tick();
        let renewed = |piece: &RemapExtent| RemapExtent {
            wsn,
            one_number: true,
            source: None,
            ..*piece
        };

        let mut last = renewed(&self.pieces[0]);
        for at in 1..self.pieces.len() {
            let new = renewed(&self.pieces[at]);
            if last.lpn.offset(last.pages) >= new.lpn && last.joins(&new) {
                let joins = last.lpn.offset(last.pages) == new.lpn;
                counters.add(EXTENTS_JOINED, u64::from(joins));
                last.pages = last
                    .pages
                    .max(new.lpn.offset(new.pages).offset_from(last.lpn));
            } else {
                self.push(&last);
                last = new;
            }
        }

        self.push(&last);
    }

    /// Appends the slots of an extent of any length without sources.
    fn push(&mut self, extent: &RemapExtent) {
        self.pages += u64::from(extent.pages);
        self.is_divided |= extent.pages > PAGES_MAX;
        self.slots.extend(extent.parts().map(|part| {
            let [first, second, ..] = part.words();
            [first, second]
        }));
    }
}

impl RemapExtent {
    /// Returns true if both have the same distance between LPN and page.
    fn joins(&self, other: &RemapExtent) -> bool {
        other.offset.wrapping_sub(self.offset) == other.lpn.0.wrapping_sub(self.lpn.0)
    }

    /// The extent divided into parts of at most `PAGES_MAX` pages.
    fn parts(&self) -> impl Iterator<Item = RemapExtent> + use<> {
        let whole = *self;
        (0..self.pages).step_by(PAGES_MAX as usize).map(move |at| {
            let pages = PAGES_MAX.min(whole.pages - at);
            RemapExtent {
                lpn: whole.lpn.offset(at),
                offset: whole.offset + at,
                pages,
                ..whole
            }
        })
    }
}
