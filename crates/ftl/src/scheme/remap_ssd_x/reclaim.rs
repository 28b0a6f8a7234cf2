//! Reading the groups, NVRAM garbage collection, recovery, and the check.
//!
//! Reclaiming a group rewrites its valid part (`valid`): the mappings in force. Invariant: a group
//! is rewritten only if that frees a segment, which is known before anything is stored. Absent:
//! when to reclaim (`admit`).

use super::extent::{ExtentSlot, PAGES_MAX, RemapExtent, SLOT_WORDS, lpns_named};
use super::store::after_pages;
use super::valid::ValidExtents;
use super::{GroupEnd, RemapSsdX};
use crate::clock::WsnClock;
use crate::config::guard::Guard;
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::RecoveryError;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::entry::EntryPlace;
use crate::scheme::segments::groups::{GroupedEntries, SegmentGroups};
use crate::superblock::Superblocks;
use remap_ssd_media::{After, Lpn, Media, Ppn, SbId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Result of scanning a slot of a group.
enum ScannedSlot {
    /// An extent, and the words it is stored in.
    Extent(RemapExtent, Range<usize>),
    /// The first word of the slot at this address is unreadable: these LPNs may be in doubt.
    Lost(usize, Range<Lpn>),
    /// The second word of the slot at this address is unreadable: its first word, unless that is
    /// unreadable too, and whether it holds the sources of the extent before it.
    Unknown(usize, Option<EntryPlace>, bool),
    /// An unreadable slot that is not valid.
    Nothing(usize),
}

impl GroupedEntries for RemapSsdX {
    const SLOTS_MAX: u32 = 2;
    const PAGES_MAX: u32 = PAGES_MAX;

    #[inline]
    fn groups(&self) -> &SegmentGroups {
        &self.groups
    }

    #[inline]
    fn groups_mut(&mut self) -> &mut SegmentGroups {
        &mut self.groups
    }

    /// Estimate, assuming the same fraction of valid pages in all extents.
    #[inline]
    fn valid(&self, blocks: &Superblocks) -> u64 {
        let SegmentGroups { used, covered, .. } = self.groups;
        match covered {
            0 => 0,
            _ => used * blocks.remapped_total().min(covered) / covered,
        }
    }

    fn rewrite(&mut self, core: &mut Core, sb: SbId) -> bool {
        let mut valid = std::mem::take(&mut self.valid_extents);
        self.find_valid(core, sb, &mut valid);
        let gains = self.store_valid(core, sb, &valid);
        self.valid_extents = valid;
        gains
    }
}

impl RemapSsdX {
    fn store_valid(&mut self, core: &mut Core, sb: SbId, valid: &ValidExtents) -> bool {
        let (segments, held) = (&self.groups.segments, self.groups.chain(sb).segments.len());
        let slots = segments.slots as usize;
        let needed = valid.slots.len().div_ceil(slots);
        if needed >= held || needed > segments.free() {
            // Each page that becomes invalid saves at most one entry.
            let short = valid.slots.len().saturating_sub((held - 1) * slots);
            self.groups.gains_nothing(&core.blocks, sb, short.max(1));
            return false;
        }

        let old = self.groups.remove(sb);
        let mut chain = old.continued();
        for slots in valid.slots.chunks(slots) {
            self.groups.segments.take_run(
                &mut core.media,
                core.clock.now(),
                &mut chain,
                sb,
                slots,
                |clear, [first, second]| match RemapExtent::read(*first, *second, true) {
                    Some(ExtentSlot::Extent(extent, _)) => after_pages(
                        core.config.guards,
                        core.geometry,
                        clear,
                        sb,
                        &extent,
                        extent.pages,
                    ),
                    _ => After::clear(clear),
                },
            );
        }

        self.groups.replace(core, sb, &old, chain, valid.pages);
        self.ends[sb.0 as usize] = GroupEnd {
            may_join: valid.is_divided,
            // No open entry: the last one has one number for all pages, or is not the group's
            // newest.
            open: None,
        };
        true
    }

    /// A group's extents, oldest first.
    pub(super) fn read_group(
        &mut self,
        tables: &Tables,
        media: &mut Media,
        clock: &mut WsnClock,
        sb: SbId,
        out: &mut Vec<RemapExtent>,
    ) {
        out.clear();
        let pages = tables.geometry.pages_per_superblock();
        let mut lost = false;
        self.scan(media, sb, |found| match found {
            ScannedSlot::Extent(extent, _) if extent.offset + extent.pages <= pages => {
                out.push(extent)
            }
            ScannedSlot::Extent(..) | ScannedSlot::Nothing(_) => {}
            ScannedSlot::Lost(..) | ScannedSlot::Unknown(..) => lost = true,
        });

        if lost {
            append_in_force(tables, clock, sb, out);
        }
    }

    fn scan(&self, media: &mut Media, sb: SbId, mut on: impl FnMut(ScannedSlot)) {
        let (segments, chain) = (&self.groups.segments, self.groups.chain(sb));
        let torn_bits = segments.guards.has(Guard::TornBits);
        for index in 0..chain.segments.len() {
            segments.prefetch(media, chain, index + 2);
            // A relocation of several pages whose sources are in the next slot.
            let mut waiting: Option<(RemapExtent, usize)> = None;

            let alone = |(extent, at): (RemapExtent, usize)| {
                ScannedSlot::Extent(extent, at..at + SLOT_WORDS)
            };
            for at in segments.places(chain, index) {
                let found = match (media.load(at), media.load(at + 1)) {
                    (Ok(0), Ok(0)) => None,
                    (Ok(first), Ok(second)) => match RemapExtent::read(first, second, torn_bits) {
                        Some(ExtentSlot::Sources(source, wsn)) => {
                            waiting.take().map(|(extent, first)| {
                                // With another number, the slot of sources does not belong to this
                                // extent: its own extent was torn. This remap is then a copy, not a
                                // move.
                                if extent.wsn == wsn {
                                    ScannedSlot::Extent(
                                        RemapExtent {
                                            source: Some(source),
                                            ..extent
                                        },
                                        first..at + SLOT_WORDS,
                                    )
                                } else {
                                    alone((extent, first))
                                }
                            })
                        }
                        Some(ExtentSlot::Extent(extent, false)) => Some(alone((extent, at))),
                        Some(ExtentSlot::Extent(extent, true)) => {
                            if let Some(before) = waiting.replace((extent, at)) {
                                on(alone(before));
                            }
                            continue;
                        }
                        None => None,
                    },
                    // The readable word has no torn bit, so the entry was never complete, whatever
                    // the other word holds.
                    (Err(_), Ok(word)) | (Ok(word), Err(_)) if torn_bits && word & 1 == 0 => {
                        Some(ScannedSlot::Nothing(at))
                    }
                    (Err(_), Ok(second)) => Some(ScannedSlot::Lost(at, lpns_named(second))),
                    (first, Err(_)) => {
                        let first = first.ok().map(EntryPlace::from_bits);
                        let has_sources = first
                            .zip(waiting)
                            .is_some_and(|(first, (extent, _))| extent.wsn == first.wsn());
                        Some(ScannedSlot::Unknown(at, first, has_sources))
                    }
                };

                // No sources followed.
                if let Some(before) = waiting.take() {
                    on(alone(before));
                }
                if let Some(found) = found {
                    on(found);
                }
            }

            if let Some(before) = waiting {
                on(alone(before));
            }
        }
    }

    /// Step 3 of recovery: each page of an extent is a separate witness.
    pub(super) fn read_back(
        &mut self,
        core: &mut Core,
        witnesses: &mut Witnesses,
    ) -> Result<(), RecoveryError> {
        let chains = self
            .groups
            .segments
            .read_back(&mut core.media, &core.blocks, witnesses);
        for (index, chain) in chains.into_iter().enumerate() {
            let sb = SbId(index as u32);
            self.groups.put(sb, chain, 0);
            self.ends[index].may_join = true;

            let newest = self.newest_in(&mut core.media, sb);
            // Collected first: reporting the witnesses needs the core, which the scan has borrowed.
            let mut all = Vec::new();
            self.scan(&mut core.media, sb, |found| all.push(found));

            let mut covered = 0;
            for found in all {
                match found {
                    ScannedSlot::Extent(extent, words) => {
                        // The pages of an atomic command have one number: all of them count, or
                        // none.
                        if add_remapped_pages(core, witnesses, sb, &extent) {
                            covered += extent.pages;
                        } else {
                            witnesses.zero(words);
                        }
                    }
                    ScannedSlot::Lost(at, lpns) => {
                        self.groups.damaged.push(at);
                        let bound = newest.iter().find(|(places, _)| places.contains(&at));
                        let newest = bound.map_or(u64::MAX, |(_, wsn)| *wsn);
                        Lpn::between(lpns).for_each(|lpn| witnesses.doubt(lpn, newest));
                    }
                    ScannedSlot::Unknown(at, first, has_sources) => {
                        self.groups.damaged.push(at);
                        // Sources are deallocated by a separate record, which the command waits for
                        // before it ends.
                        let may_count = first.is_none_or(|first| {
                            let is_sane = first.offset() < core.geometry.pages_per_superblock();
                            is_sane && {
                                let ppn = core.geometry.page(sb, first.offset());
                                witnesses.counts(&core.media, ppn, first.wsn())
                            }
                        });
                        if !has_sources && may_count {
                            return Err(RecoveryError::NvramDamaged { word: at + 1 });
                        }
                    }
                    ScannedSlot::Nothing(at) => {
                        self.groups.damaged.push(at);
                    }
                }
            }

            self.groups.cover(sb, covered);
        }
        self.doubt_orphans(&mut core.media, witnesses)
    }

    /// The words of each segment of a group, and the largest possible WSN of an entry in it.
    fn newest_in(&self, media: &mut Media, sb: SbId) -> Vec<(Range<usize>, u64)> {
        let chain = self.groups.chain(sb);
        let segments = 0..chain.segments.len();
        segments
            .map(|at| {
                (
                    self.groups.segments.range(chain, at),
                    self.groups.segments.newest_in(media, chain, at),
                )
            })
            .collect()
    }

    /// A segment with an unknown owner still provides the LPNs and numbers of its entries.
    fn doubt_orphans(
        &self,
        media: &mut Media,
        witnesses: &mut Witnesses,
    ) -> Result<(), RecoveryError> {
        let torn_bits = self.groups.segments.guards.has(Guard::TornBits);
        for at in self.groups.segments.orphaned_places() {
            match (media.load(at), media.load(at + 1)) {
                (Ok(first), Ok(second)) => {
                    if let Some(ExtentSlot::Extent(extent, _)) =
                        RemapExtent::read(first, second, torn_bits)
                    {
                        (0..extent.pages).for_each(|page| {
                            witnesses.doubt(extent.lpn.offset(page), extent.wsn_of(page));
                        });
                    }
                }
                (Err(_), Ok(word)) | (Ok(word), Err(_)) if torn_bits && word & 1 == 0 => {}
                (Err(_), Ok(second)) => {
                    Lpn::between(lpns_named(second)).for_each(|lpn| witnesses.doubt(lpn, u64::MAX))
                }
                (_, Err(_)) => return Err(RecoveryError::NvramDamaged { word: at + 1 }),
            }
        }
        Ok(())
    }

    /// Checks that every mapping made by a remap is in an extent of its superblock.
    pub(super) fn check_mappings(
        &self,
        tables: &Tables,
        media: &Media,
    ) -> Result<(), Contradiction> {
        let Some(words) = media.words() else {
            return Ok(());
        };
        let mut recorded = BTreeSet::new();
        let mut ends = Vec::new();
        for (id, _) in self.ends.iter().enumerate() {
            let ended = tables.ended.of(SbId(id as u32));
            for at in self.groups.places(SbId(id as u32)) {
                if let Some(ExtentSlot::Extent(extent, _)) =
                    RemapExtent::read(words[at], words[at + 1], true)
                {
                    let first = tables.geometry.page(SbId(id as u32), extent.offset).0;
                    ends.push((extent, id));
                    for (lpn, ppn) in
                        (0..extent.pages).map(|at| (extent.lpn.offset(at), first + at))
                    {
                        if !tables.map.is_remapped_at(lpn, Ppn(ppn)) && !ended.may_have_ended(lpn) {
                            return Err(Contradiction(format!(
                                "superblock {id} has an entry for LPN {lpn} that ended unnoticed"
                            )));
                        }
                        recorded.insert((lpn, ppn));
                    }
                }
            }
        }

        for (extent, id) in ends.iter().filter(|(_, id)| !self.ends[*id].may_join) {
            let first = tables.geometry.page(SbId(*id as u32), extent.offset).0;
            let (end, behind) = (extent.pages - 1, extent.pages);
            let in_force = |at: u32| {
                tables
                    .map
                    .is_remapped_at(extent.lpn.offset(at), Ppn(first + at))
            };
            let overlaps = |other: &RemapExtent| {
                (other.lpn..other.lpn.offset(other.pages)).contains(&(extent.lpn.offset(end)))
            };
            let says_both = |(other, of): &(RemapExtent, usize)| {
                of == id
                    && overlaps(other)
                    && other.lpn.offset(other.pages) > extent.lpn.offset(behind)
            };

            if in_force(end) && in_force(behind) && !ends.iter().any(says_both) {
                return Err(Contradiction(format!(
                    "superblock {id} has a neighbour of LPN {} unnoticed",
                    extent.lpn.offset(end)
                )));
            }
        }

        for lpn in Lpn::range(Lpn::ZERO, tables.map.len()) {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            if !recorded.contains(&(lpn, mapping.ppn.0)) {
                return Err(Contradiction(format!(
                    "LPN {lpn} is remapped to {:?} and no extent says so",
                    mapping.ppn
                )));
            }
        }

        Ok(())
    }
}

/// After an unreadable entry: appends extents for the remapped LPNs of the superblock, according to
/// L2P. All get new numbers, even those with a readable entry, which may be older than the
/// unreadable one. There are no more extents than before, since adjacent LPNs share one.
#[cold]
fn append_in_force(tables: &Tables, clock: &mut WsnClock, sb: SbId, out: &mut Vec<RemapExtent>) {
    let remapped = tables.remapped_in(sb);
    for run in remapped.chunk_by(|(lpn, offset), next| *next == (lpn.offset(1), offset + 1)) {
        for run in run.chunks(PAGES_MAX as usize) {
            let (lpn, offset) = run[0];
            let numbers: Vec<u64> = run.iter().map(|_| clock.tick()).collect();
            let wsn = numbers[0];
            out.push(RemapExtent {
                lpn,
                offset,
                pages: run.len() as u32,
                wsn,
                one_number: false,
                source: None,
            });
        }
    }
}

/// Reports an extent's pages, each of which is a separate witness. Returns true if they count.
fn add_remapped_pages(
    core: &mut Core,
    witnesses: &mut Witnesses,
    sb: SbId,
    extent: &RemapExtent,
) -> bool {
    let inside = core
        .geometry
        .pages_per_superblock()
        .saturating_sub(extent.offset);

    let mut counts = true;
    for at in 0..extent.pages.min(inside) {
        let ppn = core.geometry.page(sb, extent.offset + at);
        counts &= witnesses.remap(
            core,
            extent.lpn.offset(at),
            ppn,
            extent.wsn_of(at),
            extent.source_of(at),
        );
    }

    counts
}
