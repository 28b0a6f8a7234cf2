//! Segment groups: a local log in segments for each superblock, and the reclaiming of their room.
//!
//! Active GC takes the group that promises the most free slots, rewrites its valid entries into
//! free segments and releases the old ones (FAST'21 §4.4). The form of an entry, and how the valid
//! ones are found, are the scheme's (`GroupedEntries`).
//!
//! Invariants: free segments never fall below the number that migrating the fullest group takes
//! (`reserve`), so that flash GC and NVRAM GC always find room; released segments are zeroed only
//! after everything that superseded their entries is durable. Absent: the contents of slots.

use super::{SegmentChain, Segments};
use crate::config::Config;
use crate::contract::{GroupInfo, Occupancy, Usage};
use crate::core::Core;
use crate::error::ConfigError;
use crate::error::Contradiction;
use crate::mapping::ended::EndedFilters;
use crate::stats::Demotion;
use crate::superblock::{RegionChanges, RegionPeaks, Superblocks};
use remap_ssd_media::{After, Geometry, Media, Ppn, Purpose, SbId};

/// Groups that an atomic command is expected to begin segments of.
const SEGMENTS_BEGUN: u32 = 4;

/// Active GC pays only if more than one page in this many that entries name is invalid.
const INVALID_SHARE: u64 = 20;

/// Groups tried in search of one that frees a segment.
const TRIES: usize = 4;

/// Free segments beyond those for migrating the fullest group: covers the partly filled segments of
/// a migration interrupted by a power cut.
const SLACK: usize = 4;

/// A victim's entries go to the groups of two superblocks, an old and a new one, in every zone of
/// shared pages.
fn slack(config: &Config) -> usize {
    SLACK + 2 * config.gc_opens().saturating_sub(2)
}

/// Checks the sizes of a log whose segments must hold a head and the given entries.
pub(crate) fn check(config: &Config, entries: &str, slot_words: usize) -> Result<(), ConfigError> {
    let (bytes, slot) = (config.segment_bytes as usize, slot_words * 8);
    if !bytes.is_multiple_of(8) || bytes < 3 * slot {
        return Err(ConfigError(format!(
            "segment_bytes = {bytes} must be a multiple of 8 and hold a head and {entries}: at least {}",
            3 * slot
        )));
    }

    let least = slack(config) + 4;
    if config.log_bytes / (bytes as u64) < least as u64 {
        return Err(ConfigError(format!(
            "log_bytes = {} is smaller than one segment per open superblock and what GC needs: use at least {} bytes or smaller segments",
            config.log_bytes,
            least * bytes
        )));
    }

    Ok(())
}

/// The entries of one superblock.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentGroup {
    pub chain: SegmentChain,
    /// Pages that its entries name, valid or not.
    pub covered: u64,
    /// Number of invalid pages below which rewriting gains nothing.
    pub reclaim_pays_from: u64,
}

pub(crate) struct SegmentGroups {
    pub segments: Segments,
    all: Vec<SegmentGroup>,
    /// Changes of groups that grew or were rewritten, and the largest promise of a group, by
    /// region.
    changed: RegionChanges,
    peaks: RegionPeaks,
    /// Slots used in all groups, and pages that their entries name.
    pub used: u64,
    pub covered: u64,
    /// Number of valid slots from which on remaps are refused.
    watermark: u64,
    /// Upper bound of the remapped LPNs of a superblock.
    fullest: u32,
    /// Segments for migrating such a superblock's group.
    fullest_segments: usize,
    /// Free segments beyond those for migrating the fullest group.
    pub slack: usize,
    /// Number of invalid pages below which active GC gains nothing.
    reclaim_pays_from: u64,
    /// Slots with an unreadable word at recovery.
    pub damaged: Vec<usize>,
}

impl SegmentGroups {
    /// All segments free and zero.
    pub(crate) fn new(config: &Config, geometry: &Geometry, slot_words: usize) -> Self {
        let segments = Segments::new(config, geometry, slot_words);
        Self {
            watermark: (config.watermark * segments.capacity_slots() as f64) as u64,
            segments,
            all: vec![SegmentGroup::default(); geometry.superblocks() as usize],
            changed: RegionChanges::new(geometry.superblocks()),
            peaks: RegionPeaks::new(geometry.superblocks()),
            used: 0,
            covered: 0,
            fullest: 0,
            fullest_segments: 0,
            slack: slack(config),
            reclaim_pays_from: 0,
            damaged: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn chain(&self, sb: SbId) -> &SegmentChain {
        &self.all[sb.0 as usize].chain
    }

    /// The chains of all superblocks, in order.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &SegmentChain> {
        self.all.iter().map(|group| &group.chain)
    }

    /// Slots used in a group.
    #[inline]
    pub(crate) fn used_in(&self, sb: SbId) -> u32 {
        self.segments.used(self.chain(sb))
    }

    /// Words of the used slots of a group, without heads: the scheme knows its segments. Reading
    /// them is the cost of finding owners (FAST'21 §4.4).
    pub(crate) fn words_in(&self, sb: SbId) -> usize {
        self.used_in(sb) as usize * self.segments.slot_words
    }

    /// First words of a group's used slots, oldest first.
    pub(crate) fn places(&self, sb: SbId) -> impl Iterator<Item = usize> {
        let chain = self.chain(sb);
        (0..chain.segments.len()).flat_map(|index| self.segments.places(chain, index))
    }

    /// Returns true if `slots` consecutive slots are available without a new segment.
    #[inline]
    pub(crate) fn has(&self, sb: SbId, slots: u32) -> bool {
        self.segments.has(self.chain(sb), slots)
    }

    /// Slots that a collection may take. Each superblock being filled may have a partly filled segment.
    pub(crate) fn room_to_move(&self) -> u64 {
        let segments = self.segments.free().saturating_sub(self.slack) as u64;
        segments * u64::from(self.segments.slots)
    }

    /// Free segments that only GC may use.
    #[inline]
    pub(crate) fn reserve(&self) -> usize {
        self.fullest_segments + self.slack
    }

    fn set_fullest(&mut self, remapped: u32) {
        self.fullest = remapped;
        self.fullest_segments = remapped.div_ceil(self.segments.slots) as usize;
    }

    /// The reserve grows with the fullest group: one more entry of this superblock must be
    /// migratable, too.
    #[inline]
    pub(crate) fn expect_one_more(&mut self, blocks: &Superblocks, sb: SbId) {
        let remapped = blocks.owners(sb).remapped + 1;
        if remapped > self.fullest {
            self.set_fullest(remapped);
        }
    }

    /// Allocates the slots for an entry that names `pages` pages; returns their first word. Room
    /// must have been reserved.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        media: &mut Media,
        now: u64,
        sb: SbId,
        (slots, pages): (u32, u32),
        purpose: Purpose,
    ) -> usize {
        let group = &mut self.all[sb.0 as usize];
        let before = self.segments.used(&group.chain);
        let at = self
            .segments
            .take(media, now, &mut group.chain, sb, slots, purpose);
        // The rest of a segment that stays unused counts as used, too. One slot leaves no rest.
        self.used += match slots {
            1 => 1,
            _ => u64::from(self.segments.used(&group.chain) - before),
        };
        group.covered += u64::from(pages);
        self.covered += u64::from(pages);
        self.changed.note(sb);
        at
    }

    /// The entries of a group name this many more pages.
    #[inline]
    pub(crate) fn cover(&mut self, sb: SbId, pages: u32) {
        self.all[sb.0 as usize].covered += u64::from(pages);
        self.covered += u64::from(pages);
    }

    /// Sets a group that is empty so far.
    pub(crate) fn put(&mut self, sb: SbId, chain: SegmentChain, covered: u64) {
        self.used += u64::from(self.segments.used(&chain));
        self.covered += covered;
        self.all[sb.0 as usize] = SegmentGroup {
            chain,
            covered,
            reclaim_pays_from: 0,
        };
    }

    /// Takes a group out: to rewrite it (`replace`), or because its entries are stored elsewhere.
    pub(crate) fn remove(&mut self, sb: SbId) -> SegmentChain {
        self.used -= u64::from(self.used_in(sb));
        let group = std::mem::take(&mut self.all[sb.0 as usize]);
        self.covered -= group.covered;
        group.chain
    }

    /// Puts the rewritten chain of a group in the place of the old one, and releases that.
    ///
    /// 1. entries at their new place  2. zeroes at the old one (`release` waits for everything
    ///    before it). Cut between: both are read, and are equal; if their numbers differ, the new
    ///    ones are larger.
    pub(crate) fn replace(
        &mut self,
        core: &mut Core,
        sb: SbId,
        old: &SegmentChain,
        chain: SegmentChain,
        covered: u64,
    ) {
        self.put(sb, chain, covered);
        self.changed.note(sb);
        core.tables.ended.start_over(sb);

        // Charged as one store of the kept entries: they are collected and written together.
        core.media
            .charge_stores(self.words_in(sb), Purpose::Gc, After::NOTHING);
        self.segments.release(&mut core.media, &old.segments);
    }

    /// Notes that rewriting a group frees no segment until `more` further pages of it are invalid.
    pub(crate) fn gains_nothing(&mut self, blocks: &Superblocks, sb: SbId, more: usize) {
        let group = &mut self.all[sb.0 as usize];
        let invalid = group
            .covered
            .saturating_sub(u64::from(blocks.owners(sb).remapped));
        group.reclaim_pays_from = invalid + more as u64;
    }

    /// Releases a group whose entries are stored elsewhere now, after everything issued before. Its
    /// sequence numbers continue: recovery may still find the segments that are being zeroed.
    pub(crate) fn drain(&mut self, media: &mut Media, sb: SbId) {
        let old = self.remove(sb);
        self.all[sb.0 as usize].chain = old.continued();
        self.segments.release(media, &old.segments);
    }

    /// Releases the group of an erased superblock. Sequence numbers start over with the next
    /// incarnation; its head's WSN distinguishes old segments from new ones.
    pub(crate) fn forget(&mut self, media: &mut Media, ended: &mut EndedFilters, sb: SbId) {
        let old = self.remove(sb);
        self.segments.release(media, &old.segments);
        ended.start_over(sb);

        // Segments have become free, so reclaiming may pay again.
        self.reclaim_pays_from = 0;
    }

    /// Zeroes the slots that were unreadable at recovery.
    pub(crate) fn heal(&mut self, media: &mut Media) {
        self.segments.heal(media, std::mem::take(&mut self.damaged));
    }

    fn invalid(&self, blocks: &Superblocks) -> u64 {
        self.covered.saturating_sub(blocks.remapped_total())
    }

    /// Estimate of the slots that rewriting a group frees, assuming the same fraction of valid
    /// pages in all its entries; `None` if it cannot free a segment. It increases only when owners
    /// are lost or the group changes.
    // Inlined in the search for the best group, so that it divides only by constants.
    #[inline(always)]
    fn promise(&self, blocks: &Superblocks, sb: SbId, pages_max: u32) -> Option<u32> {
        let group = &self.all[sb.0 as usize];
        let remapped = u64::from(blocks.owners(sb).remapped);

        // At best the valid pages fill whole entries. A group that cannot free a segment even then
        // is not read. Most groups end here.
        let fewer = (group.chain.segments.len() as u64).checked_sub(1)?;
        let least = remapped.div_ceil(u64::from(pages_max));
        if least > fewer * u64::from(self.segments.slots) {
            return None;
        }

        let invalid = group.covered.saturating_sub(remapped);
        if invalid < group.reclaim_pays_from {
            return None;
        }
        // At most the number of used slots. An entry of one page takes one slot.
        let freed = if pages_max == 1 {
            invalid
        } else {
            u64::from(self.segments.used(&group.chain)) * invalid / group.covered.max(1)
        };
        Some(freed as u32)
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        Occupancy {
            used_bytes: self.segments.used_bytes(),
            capacity_bytes: self.segments.capacity_bytes(),
        }
    }

    /// Used and valid bytes, given the number of valid slots.
    pub(crate) fn usage(&self, valid: u64) -> Usage {
        let largest = self.chains().map(|chain| chain.segments.len()).max();
        Usage {
            capacity_bytes: self.segments.capacity_bytes(),
            used_bytes: self.segments.used_bytes(),
            valid_bytes: valid * self.segments.slot_words as u64 * 8,
            entry_room_bytes: self.segments.room_bytes(self.segments.count()),
            gc_reserve_bytes: self.segments.room_bytes(self.reserve()),
            largest_group_bytes: self.segments.bytes(largest.unwrap_or(0)),
            largest_group_seen_bytes: self.segments.longest_bytes(),
            ..Usage::default()
        }
    }

    pub(crate) fn describe(&self, sb: SbId) -> GroupInfo {
        let SegmentGroup { chain, covered, .. } = &self.all[sb.0 as usize];
        GroupInfo {
            segments: chain.segments.clone(),
            entries: self.segments.used(chain),
            pages: *covered,
            flash_pages: 0,
        }
    }

    /// Prefetches the next slot of the group of a page that will be remapped soon.
    #[inline]
    pub(crate) fn look_ahead(&self, media: &Media, ppn: Ppn) {
        let chain = self.chain(media.geometry().superblock(ppn));
        media.prefetch_word(self.segments.next_word(chain));
    }

    /// Checks that each segment is in one place, and the sums over all groups.
    pub(crate) fn check_sums(&self) -> Result<(), Contradiction> {
        self.segments.check(self.chains())?;
        let used = self.chains().map(|chain| self.segments.used(chain));
        let used: u64 = used.map(u64::from).sum();
        let covered: u64 = self.all.iter().map(|group| group.covered).sum();
        if (used, covered) != (self.used, self.covered) {
            return Err(Contradiction(format!(
                "{used} slots and {covered} pages in groups, {} and {} counted",
                self.used, self.covered
            )));
        }
        Ok(())
    }
}

/// A scheme whose entries are in segment groups: what depends on the form of an entry.
pub(crate) trait GroupedEntries {
    /// Slots of the largest entry.
    const SLOTS_MAX: u32;
    /// Pages that the largest entry names.
    const PAGES_MAX: u32;

    fn groups(&self) -> &SegmentGroups;
    fn groups_mut(&mut self) -> &mut SegmentGroups;

    /// Slots of valid entries, in all groups.
    fn valid(&self, blocks: &Superblocks) -> u64;

    /// Returns false if the free segments cannot take the valid entries of this group. Those are
    /// rewritten before the old segments are free.
    fn fits(&self, _blocks: &Superblocks, _sb: SbId) -> bool {
        true
    }

    /// Replaces a group's entries by its valid ones, if that frees a segment.
    fn rewrite(&mut self, core: &mut Core, sb: SbId) -> bool;

    /// Ensures room for the largest entry that names `ppn`: `Persist::admit`.
    #[inline]
    fn make_sure_of_room(
        &mut self,
        core: &mut Core,
        ppn: Ppn,
        may_reclaim: bool,
    ) -> Result<(), Demotion> {
        let (groups, sb) = (self.groups(), core.geometry.superblock(ppn));
        if self.valid(&core.blocks) >= groups.watermark {
            return Err(Demotion::Watermark);
        }
        if groups.chain(sb).is_numbered_out() {
            return Err(Demotion::NvramFull);
        }

        let groups = self.groups_mut();
        groups.expect_one_more(&core.blocks, sb);
        // An available slot takes nothing from the free segments.
        if groups.has(sb, Self::SLOTS_MAX) && groups.segments.free() >= groups.reserve() {
            return Ok(());
        }
        if groups.segments.free() > groups.reserve() || self.make_room(core, sb, may_reclaim) {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    /// Makes room for an entry of `sb` without using the reserve.
    #[cold]
    fn make_room(&mut self, core: &mut Core, sb: SbId, may_reclaim: bool) -> bool {
        // The last attempt found no worthwhile group. Until more entries are invalid the result is
        // the same, and this is called for each refused remap.
        let groups = self.groups_mut();
        if groups.invalid(&core.blocks) < groups.reclaim_pays_from {
            return false;
        }

        groups.set_fullest(core.blocks.remapped_max() + 1);
        loop {
            let groups = self.groups();
            let spare = groups.segments.free() as i64 - groups.reserve() as i64;
            if spare > 0 || (spare == 0 && groups.has(sb, Self::SLOTS_MAX)) {
                return true;
            }
            if !may_reclaim {
                return false;
            }
            let invalid = groups.invalid(&core.blocks);
            if invalid * INVALID_SHARE <= groups.covered || !self.reclaim_one(core) {
                let groups = self.groups_mut();
                groups.reclaim_pays_from = invalid + 2 * u64::from(groups.segments.slots);
                return false;
            }
        }
    }

    /// Makes room for an atomic command of `entries` entries, as far as reclaiming pays: within the command nothing is reclaimed.
    fn make_room_for(&mut self, core: &mut Core, entries: u32) {
        // The fullest group may grow by as many, and the reserve with it; and groups begin segments.
        let more = 2 * entries.div_ceil(self.groups().segments.slots) + SEGMENTS_BEGUN;
        loop {
            let groups = self.groups_mut();
            if groups.segments.free() as i64 >= groups.reserve() as i64 + i64::from(more) {
                return;
            }
            groups.set_fullest(core.blocks.remapped_max() + 1);
            let invalid = groups.invalid(&core.blocks);
            if invalid < groups.reclaim_pays_from || invalid * INVALID_SHARE <= groups.covered {
                return;
            }
            if !self.reclaim_one(core) {
                let groups = self.groups_mut();
                groups.reclaim_pays_from = invalid + 2 * u64::from(groups.segments.slots);
                return;
            }
        }
    }

    /// After recovery:
    /// 1. zeroes in damaged slots, after the pages of their doubts
    /// 2. the reserve, which depends on the fullest group
    /// 3. reclaiming until GC has its reserve again, as far as possible.
    fn regain(&mut self, core: &mut Core) {
        let groups = self.groups_mut();
        groups.heal(&mut core.media);
        groups.set_fullest(core.blocks.remapped_max());

        // Migrating may take a number if entries were unreadable; a device without numbers needs no
        // reserve, since it collects nothing.
        while !core.clock.is_used_up()
            && self.groups().segments.free() < self.groups().reserve()
            && self.reclaim_one(core)
        {}
    }

    /// Reclaims the group with the largest promise among those that may free a segment.
    fn reclaim_one(&mut self, core: &mut Core) -> bool {
        for _ in 0..TRIES {
            let (groups, blocks) = (self.groups(), &core.blocks);
            let best = groups.peaks.largest(
                blocks.regions_with(&groups.changed),
                |sb| groups.promise(blocks, sb, Self::PAGES_MAX),
                |sb| self.fits(blocks, sb),
            );
            let Some(sb) = best else { return false };

            core.media.charge_loads(groups.words_in(sb), Purpose::Gc);
            // A promise is an estimate: if a group gains nothing, another one is tried.
            if self.rewrite(core, sb) {
                core.stats.metadata_gc_runs += 1;
                return true;
            }
        }
        false
    }

    /// Checks the groups' sums, that each has an entry for each of its remapped LPNs, and the
    /// cached promises.
    fn check_groups(&self, blocks: &Superblocks) -> Result<(), Contradiction> {
        let groups = self.groups();
        groups.check_sums()?;
        for (sb, owners) in blocks.iter_owners() {
            let covered = groups.all[sb.0 as usize].covered;
            if u64::from(owners.remapped) > covered {
                return Err(Contradiction(format!(
                    "{sb:?} has {} remapped LPNs and entries of {covered}",
                    owners.remapped
                )));
            }
        }

        groups
            .peaks
            .check(blocks.regions_with(&groups.changed), |sb| {
                groups.promise(blocks, sb, Self::PAGES_MAX)
            })
    }
}
