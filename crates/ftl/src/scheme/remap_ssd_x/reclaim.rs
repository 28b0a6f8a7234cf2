//! Reading the groups, NVRAM garbage collection, recovery, and the check.
//!
//! Reclaiming a group rewrites its valid part (`valid`): the mappings in force. Invariant: a group
//! is rewritten only if that frees a segment, which is known before anything is stored. Absent:
//! when to reclaim (`admit`).

use super::extent::{ExtentSlot, PAGES_MAX, RemapExtent, SLOT_WORDS, lpns_named};
use super::store::after_pages;
use super::valid::ValidExtents;
use super::{ExtentGroup, RemapSsdX};
use crate::clock::WsnClock;
use crate::core::Core;
use crate::error::RecoveryError;
use crate::guard::Guard;
use crate::scheme::entry::EntryPlace;
use crate::superblock::Superblocks;
use crate::tables::Tables;
use crate::witnesses::Witnesses;
use remap_ssd_media::{After, Lpn, Media, Ppn, Purpose, SbId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Reclaiming pays only if more than one covered page in this many is invalid.
const INVALID_SHARE: u64 = 20;

/// Groups read in search of one that frees a segment.
const TRIES: usize = 4;

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

impl RemapSsdX {
    fn invalid(&self, blocks: &Superblocks) -> u64 {
        self.covered.saturating_sub(blocks.remapped_total())
    }

    /// Makes room for two slots for `sb` without using the reserve.
    #[cold]
    pub(super) fn make_room(&mut self, core: &mut Core, sb: SbId, may_reclaim: bool) -> bool {
        if self.invalid(&core.blocks) < self.reclaim_pays_from {
            return false;
        }

        self.fullest = core.blocks.remapped_max() + 1;
        loop {
            let spare = self.segments.free() as i64 - self.reserve() as i64;
            if spare > 0 || (spare == 0 && self.segments.has(&self.groups[sb.0 as usize].chain, 2))
            {
                return true;
            }
            if !may_reclaim {
                return false;
            }
            let invalid = self.invalid(&core.blocks);
            if invalid * INVALID_SHARE <= self.covered || !self.reclaim_one(core) {
                self.reclaim_pays_from = invalid + 2 * u64::from(self.segments.slots);
                return false;
            }
        }
    }

    /// After recovery: frees segments until GC has its reserve again, as far as possible.
    pub(super) fn regain(&mut self, core: &mut Core) {
        while !core.clock.is_used_up()
            && self.segments.free() < self.reserve()
            && self.reclaim_one(core)
        {}
    }

    /// Reclaims the group with the largest promise among those that may free a segment.
    fn reclaim_one(&mut self, core: &mut Core) -> bool {
        for _ in 0..TRIES {
            let blocks = &core.blocks;
            let promise = |sb: SbId| self.promise(blocks, sb);
            let best = self
                .peaks
                .largest(blocks.regions_with(&self.changed), promise, |_| true);
            let Some(sb) = best else { return false };

            // A promise is an estimate: if a group gains nothing, another one is tried.
            if self.reclaim(core, sb) {
                core.stats.metadata_gc_runs += 1;
                return true;
            }
        }
        false
    }

    /// Estimate of the slots that rewriting a group frees, assuming the same fraction of valid
    /// pages in all its extents; `None` if it cannot free a segment. It increases only when owners
    /// are lost or the group changes.
    fn promise(&self, blocks: &Superblocks, sb: SbId) -> Option<u32> {
        let group = &self.groups[sb.0 as usize];
        let (used, remapped) = (
            u64::from(self.segments.used(&group.chain)),
            u64::from(blocks.owners(sb).remapped),
        );
        let invalid = group.covered.saturating_sub(remapped);

        // At best the valid pages fill whole extents. A group that cannot free a segment even then
        // is not read. Most groups end here, so this divides only by a constant.
        let fewer = (group.chain.segments.len() as u64).checked_sub(1)?;
        let least = remapped.div_ceil(u64::from(PAGES_MAX));
        if invalid < group.reclaim_pays_from || least > fewer * u64::from(self.segments.slots) {
            return None;
        }

        // At most the number of used slots.
        Some((used * invalid / group.covered.max(1)) as u32)
    }

    /// Rewrites a group if that frees a segment.
    fn reclaim(&mut self, core: &mut Core, sb: SbId) -> bool {
        let used = self.segments.used(&self.groups[sb.0 as usize].chain);
        core.media
            .charge_loads(used as usize * SLOT_WORDS, Purpose::Gc);

        let mut valid = std::mem::take(&mut self.valid_extents);
        self.find_valid(core, sb, &mut valid);
        let gains = self.rewrite(core, sb, &valid);
        self.valid_extents = valid;
        gains
    }

    /// Replaces a group's entries by its valid ones, if that frees a segment.
    fn rewrite(&mut self, core: &mut Core, sb: SbId, valid: &ValidExtents) -> bool {
        let chain = &self.groups[sb.0 as usize].chain;
        let (used, held) = (self.segments.used(chain), chain.segments.len());
        let needed = valid.slots.len().div_ceil(self.segments.slots as usize);
        if needed >= held || needed > self.segments.free() {
            // Each page that becomes invalid saves at most one entry.
            let group = &mut self.groups[sb.0 as usize];
            let short = valid
                .slots
                .len()
                .saturating_sub((held - 1) * self.segments.slots as usize)
                .max(1);
            let invalid = group
                .covered
                .saturating_sub(u64::from(core.blocks.owners(sb).remapped));
            group.reclaim_pays_from = invalid + short as u64;
            return false;
        }

        // 1. entries at their new place  2. zeroes at the old one (`release` waits for everything
        // before it). Cut between: both are read, and are equal; if their numbers differ, the new
        // ones are larger.
        let old = std::mem::take(&mut self.groups[sb.0 as usize]);
        let mut chain = old.chain.continued();
        for slots in valid.slots.chunks(self.segments.slots as usize) {
            self.segments.take_run(
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

        self.used = self.used - u64::from(used) + u64::from(self.segments.used(&chain));
        self.covered = self.covered - old.covered + valid.pages;
        self.groups[sb.0 as usize] = ExtentGroup {
            chain,
            covered: valid.pages,
            may_join: valid.is_divided,
            // No open entry: the last one has one number for all pages, or is not the group's
            // newest.
            ..ExtentGroup::default()
        };

        self.changed.note(sb);

        core.tables.ended.start_over(sb);
        core.media
            .charge_stores(valid.slots.len() * SLOT_WORDS, Purpose::Gc, After::NOTHING);
        self.segments.release(&mut core.media, &old.chain.segments);
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
        let chain = &self.groups[sb.0 as usize].chain;
        let torn_bits = self.segments.guards.has(Guard::TornBits);
        for index in 0..chain.segments.len() {
            self.segments.prefetch(media, chain, index + 2);
            // A relocation of several pages whose sources are in the next slot.
            let mut waiting: Option<(RemapExtent, usize)> = None;

            let alone = |(extent, at): (RemapExtent, usize)| {
                ScannedSlot::Extent(extent, at..at + SLOT_WORDS)
            };
            for at in self.segments.places(chain, index) {
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
            .segments
            .read_back(&mut core.media, &core.blocks, witnesses);
        for (index, chain) in chains.into_iter().enumerate() {
            let sb = SbId(index as u32);
            self.used += u64::from(self.segments.used(&chain));
            self.groups[index] = ExtentGroup {
                chain,
                may_join: true,
                ..ExtentGroup::default()
            };

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
                            covered += u64::from(extent.pages);
                        } else {
                            witnesses.zero(words);
                        }
                    }
                    ScannedSlot::Lost(at, lpns) => {
                        self.damaged.push(at);
                        let bound = newest.iter().find(|(places, _)| places.contains(&at));
                        let newest = bound.map_or(u64::MAX, |(_, wsn)| *wsn);
                        Lpn::between(lpns).for_each(|lpn| witnesses.doubt(lpn, newest));
                    }
                    ScannedSlot::Unknown(at, first, has_sources) => {
                        self.damaged.push(at);
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
                        self.damaged.push(at);
                    }
                }
            }

            self.groups[index].covered = covered;
            self.covered += covered;
        }
        self.doubt_orphans(&mut core.media, witnesses)
    }

    /// The words of each segment of a group, and the largest possible WSN of an entry in it.
    fn newest_in(&self, media: &mut Media, sb: SbId) -> Vec<(Range<usize>, u64)> {
        let chain = &self.groups[sb.0 as usize].chain;
        let segments = 0..chain.segments.len();
        segments
            .map(|at| {
                (
                    self.segments.range(chain, at),
                    self.segments.newest_in(media, chain, at),
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
        let torn_bits = self.segments.guards.has(Guard::TornBits);
        for at in self.segments.orphaned_places() {
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

    pub(super) fn check_groups(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), String> {
        self.segments
            .check(self.groups.iter().map(|group| &group.chain))?;
        if !self.gathered.is_empty() {
            return Err("a run is gathered and not stored".into());
        }

        for (id, owners) in blocks.iter_owners() {
            let group = &self.groups[id.0 as usize];
            if u64::from(owners.remapped) > group.covered {
                return Err(format!(
                    "{id:?} has {} remapped LPNs and extents of {}",
                    owners.remapped, group.covered
                ));
            }
        }

        self.peaks.check(blocks.regions_with(&self.changed), |sb| {
            self.promise(blocks, sb)
        })?;

        let used: u64 = self
            .groups
            .iter()
            .map(|group| u64::from(self.segments.used(&group.chain)))
            .sum();
        let covered: u64 = self.groups.iter().map(|group| group.covered).sum();

        if (used, covered) != (self.used, self.covered) {
            return Err(format!(
                "{used} slots and {covered} pages in groups, {} and {} counted",
                self.used, self.covered
            ));
        }

        self.check_mappings(tables, media)
    }

    /// Checks that every mapping made by a remap is in an extent of its superblock.
    fn check_mappings(&self, tables: &Tables, media: &Media) -> Result<(), String> {
        let Some(words) = media.words() else {
            return Ok(());
        };
        let mut said = BTreeSet::new();
        let mut ends = Vec::new();
        for (id, group) in self.groups.iter().enumerate() {
            let ended = tables.ended.of(SbId(id as u32));
            let places = (0..group.chain.segments.len())
                .flat_map(|index| self.segments.places(&group.chain, index));
            for at in places {
                if let Some(ExtentSlot::Extent(extent, _)) =
                    RemapExtent::read(words[at], words[at + 1], true)
                {
                    let first = tables.geometry.page(SbId(id as u32), extent.offset).0;
                    ends.push((extent, id));
                    for (lpn, ppn) in
                        (0..extent.pages).map(|at| (extent.lpn.offset(at), first + at))
                    {
                        if !tables.map.is_remapped_at(lpn, Ppn(ppn)) && !ended.may_have_ended(lpn) {
                            return Err(format!(
                                "superblock {id} has an entry for LPN {lpn} that ended unnoticed"
                            ));
                        }
                        said.insert((lpn, ppn));
                    }
                }
            }
        }

        for (extent, id) in ends.iter().filter(|(_, id)| !self.groups[*id].may_join) {
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
                return Err(format!(
                    "superblock {id} has a neighbour of LPN {} unnoticed",
                    extent.lpn.offset(end)
                ));
            }
        }

        for lpn in Lpn::range(Lpn::ZERO, tables.map.len()) {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            if !said.contains(&(lpn, mapping.ppn.0)) {
                return Err(format!(
                    "LPN {lpn} is remapped to {:?} and no extent says so",
                    mapping.ppn
                ));
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
