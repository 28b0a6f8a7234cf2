//! Remap-SSD-X: Remap-SSD with one entry for a run of pages.
//!
//! Segments, groups and their lifecycle are Remap-SSD's; an entry is an extent. Runs arise in two
//! ways. The pages of one command, or of one stretch of garbage collection, are gathered and stored
//! as one entry (`run`). A stream of duplicate writes extends the entry it stored last: one aligned
//! 8-byte store replaces the number of pages, so a cut leaves the shorter or the longer form, and
//! both are correct.
//!
//! Invariants: gathered entries are stored before anything is reclaimed and before the command's
//! deallocations; an entry is durable only after all pages it names; overwriting a page of an
//! extent changes nothing in NVRAM, since its newer witness wins; rewriting an extent stores its
//! valid part as new extents under a new number. Hosts leave enough room to rewrite the fullest
//! group page by page (`reserve`). Rewriting may take more room than it gains; if less than that is
//! free, `references_without_room` gives the number of references that collecting a superblock may
//! have to copy. Absent: an index from LPNs to entries.

mod extent;
mod reclaim;
mod run;
mod store;
mod valid;

use super::remap_ssd::slack;
use super::segments::{SegmentChain, Segments};
use crate::config::Config;
use crate::contract::{
    CopiesOf, GroupInfo, Inspect, LookAhead, Occupancy, OwnerLookup, OwnerRef, Ownership, Persist,
    Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::ended::EndedFilters;
use crate::error::{ConfigError, RecoveryError};
use crate::guard::Guard;
use crate::kind::{HostBytes, SchemeFacts};
use crate::stats::{Counter, Demotion, SchemeCounters};
use crate::superblock::{RegionChanges, RegionPeaks, Superblocks};
use crate::tables::Tables;
use crate::witnesses::Witnesses;
use extent::{RemapExtent, SLOT_WORDS};
use remap_ssd_media::{Geometry, Media, Ppn, Purpose, SbId};
use run::RemapRun;
use store::OpenExtent;
use valid::ValidExtents;

const COUNTERS: &[&str] = &["extents", "extensions", "extents_split", "extents_joined"];
/// Entries stored that name several pages.
const EXTENTS: Counter = Counter::named("extents", COUNTERS);
/// Entries extended in place.
const EXTENSIONS: Counter = Counter::named("extensions", COUNTERS);
/// Additional entries into which an extent was split when its valid part was rewritten.
const EXTENTS_SPLIT: Counter = Counter::named("extents_split", COUNTERS);
/// Extents rewritten as part of the previous one.
const EXTENTS_JOINED: Counter = Counter::named("extents_joined", COUNTERS);

/// The scheme's declaration for the catalogue.
pub const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "remap-ssd-x",
        names_runs: true,
        guards: &[
            Guard::RunAfterPages,
            Guard::ExtensionAfterPage,
            Guard::ExtensionAfterEntry,
            Guard::ExtensionInTime,
            Guard::GatheredFirst,
        ],
        counters: COUNTERS,
        host_bytes_per_page: HostBytes {
            dedup: 10,
            plain: 0,
        },
        ..SchemeFacts::DURABLE
    },
    |config, geometry| Box::new(RemapSsdX::new(config, geometry)),
)
.with_nvram_log()
.with_check(|config, _| check(config));

/// Runs gathered at a time: usually as many as the other owners of a page moved by garbage
/// collection.
const RUNS_MAX: usize = 16;

/// The entries of one superblock.
#[derive(Clone, Debug, Default)]
struct ExtentGroup {
    chain: SegmentChain,
    /// The entry stored last, if it can be extended.
    open: Option<OpenExtent>,
    /// Pages in its extents, valid or not.
    covered: u64,
    /// Number of invalid pages below which rewriting gains nothing.
    reclaim_pays_from: u64,
    /// True if two of its entries may be adjacent, so that they can be joined.
    may_join: bool,
}

/// DRAM state of the scheme.
pub struct RemapSsdX {
    segments: Segments,
    /// Free segments beyond those for rewriting the fullest group: covers partly filled ones.
    slack: usize,
    groups: Vec<ExtentGroup>,
    /// Changes of groups that grew or were rewritten, and the largest promise of a group, by
    /// region.
    changed: RegionChanges,
    peaks: RegionPeaks,
    /// Slots used in all groups, and pages covered by their extents.
    used: u64,
    covered: u64,
    /// Number of valid slots from which on remaps are refused.
    watermark: u64,
    /// Upper bound of the remapped LPNs of a superblock.
    fullest: u32,
    /// Number of invalid covered pages below which reclaiming gains nothing.
    reclaim_pays_from: u64,
    gathered: Vec<RemapRun>,
    /// Slots with an unreadable word at recovery.
    damaged: Vec<usize>,
    scratch: Vec<RemapExtent>,
    valid_extents: ValidExtents,
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let (bytes, slot) = (config.segment_bytes as usize, SLOT_WORDS * 8);
    if !bytes.is_multiple_of(8) || bytes < 3 * slot {
        return Err(ConfigError(format!(
            "segment_bytes = {bytes} must be a multiple of 8 and hold a head and an entry of two slots: at least {}",
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

impl RemapSsdX {
    /// All segments free and zero.
    pub fn new(config: &Config, geometry: &Geometry) -> Self {
        let segments = Segments::new(config, geometry, SLOT_WORDS);
        Self {
            watermark: (config.watermark * segments.capacity_slots() as f64) as u64,
            segments,
            slack: slack(config),
            groups: vec![ExtentGroup::default(); geometry.superblocks() as usize],
            changed: RegionChanges::new(geometry.superblocks()),
            peaks: RegionPeaks::new(geometry.superblocks()),
            used: 0,
            covered: 0,
            fullest: 0,
            reclaim_pays_from: 0,
            gathered: Vec::new(),
            damaged: Vec::new(),
            scratch: Vec::new(),
            valid_extents: ValidExtents::default(),
        }
    }

    /// Free segments that only GC may use.
    fn reserve(&self) -> usize {
        self.fullest.div_ceil(self.segments.slots) as usize + self.slack
    }

    /// Estimate of the valid slots, assuming the same fraction of valid pages in all extents.
    fn valid(&self, blocks: &Superblocks) -> u64 {
        match self.covered {
            0 => 0,
            covered => self.used * blocks.remapped_total().min(covered) / covered,
        }
    }
}

impl Persist for RemapSsdX {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        // Gathered runs take slots that are not counted yet, and making room reclaims.
        self.issue(core);
        if self.valid(&core.blocks) >= self.watermark {
            return Err(Demotion::Watermark);
        }

        let sb = core.geometry.superblock(ppn);
        if self.groups[sb.0 as usize].chain.is_numbered_out() {
            return Err(Demotion::NvramFull);
        }

        self.fullest = self.fullest.max(core.blocks.owners(sb).remapped + 1);
        // An entry may take two slots.
        let free = self.segments.free();
        let has = self.segments.has(&self.groups[sb.0 as usize].chain, 2);
        if free > self.reserve()
            || (has && free == self.reserve())
            || self.make_room(core, sb, may_reclaim)
        {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    #[inline]
    fn admit_remap(
        &mut self,
        core: &mut Core,
        next: &Remapping,
        may_reclaim: bool,
    ) -> Result<(), Demotion> {
        let sb = core.geometry.superblock(next.ppn);
        // Needs no slot and so no room; but the group grows, and so may the reserve.
        if self.lengthens(&core.config, core.geometry, next, sb) {
            self.fullest = self.fullest.max(core.blocks.owners(sb).remapped + 1);
            if self.segments.free() >= self.reserve() {
                return Ok(());
            }
        }
        self.admit(core, next.ppn, may_reclaim)
    }

    fn persist(&mut self, core: &mut Core, next: &Remapping, purpose: Purpose) {
        let (sb, offset) = (
            core.geometry.superblock(next.ppn),
            core.geometry.offset(next.ppn),
        );
        match self
            .gathered
            .last_mut()
            .filter(|run| run.continues(next, sb, offset))
        {
            Some(run) => run.add(next, offset),
            None => {
                // A host's remaps come in order: a run that this remap does not continue has ended.
                self.issue(core);
                self.gathered
                    .push(RemapRun::begin(next, sb, offset, purpose));
            }
        }
    }

    fn persist_moved(&mut self, core: &mut Core, next: &Remapping) -> bool {
        let (sb, offset) = (
            core.geometry.superblock(next.ppn),
            core.geometry.offset(next.ppn),
        );

        // Several at a time: the pages of a victim come row by row, and the LPNs of each further
        // owner form a separate run.
        if let Some(run) = self
            .gathered
            .iter_mut()
            .find(|run| run.continues(next, sb, offset))
        {
            run.add(next, offset);
            return true;
        }

        // Each gathered run takes a slot, and so may take a segment.
        if self.gathered.len() == RUNS_MAX || self.segments.free() <= self.gathered.len() {
            self.issue(core);
        }
        if self.segments.free() == 0 && !self.segments.has(&self.groups[sb.0 as usize].chain, 1) {
            return false;
        }

        self.fullest = self.fullest.max(core.blocks.owners(sb).remapped + 1);
        self.gathered
            .push(RemapRun::begin(next, sb, offset, Purpose::Gc));
        true
    }

    #[inline]
    fn issue(&mut self, core: &mut Core) {
        for at in 0..self.gathered.len() {
            let run = self.gathered[at];
            self.store_run(core, &run);
        }
        self.gathered.clear();
    }

    fn references_without_room<'a>(
        &'a self,
        tables: &'a Tables,
        blocks: &'a Superblocks,
    ) -> Option<CopiesOf<'a>> {
        // Each superblock being filled may have a partly filled segment.
        let slots =
            self.segments.free().saturating_sub(self.slack) as u64 * u64::from(self.segments.slots);

        Some(Box::new(move |sb| {
            // The usual case. The rest scans all pages of the superblock.
            if u64::from(blocks.owners(sb).remapped) <= slots {
                return 0;
            }

            // One owner goes into the page's OOB; each of the others takes a slot in the worst
            // case.
            let geometry = tables.geometry;
            let pages = (0..geometry.pages_per_superblock()).map(|at| geometry.page(sb, at));
            let others: u32 = pages
                .map(|ppn| tables.counts.get(ppn).saturating_sub(1))
                .sum();
            others.saturating_sub(slots as u32)
        }))
    }
}

impl Ownership for RemapSsdX {
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup {
            tables,
            media,
            clock,
            sb,
            out,
        } = lookup;

        let used = self.segments.used(&self.groups[sb.0 as usize].chain);
        if used == 0 {
            return;
        }

        media.charge_loads(used as usize * SLOT_WORDS, Purpose::Gc);

        let mut extents = std::mem::take(&mut self.scratch);
        self.read_group(tables, media, clock, sb, &mut extents);
        for extent in &extents {
            out.extend((0..extent.pages).map(|index| OwnerRef {
                offset: extent.offset + index,
                lpn: extent.lpn.offset(index),
                wsn: extent.wsn_of(index),
                source: extent.source_of(index),
            }));
        }

        self.scratch = extents;
    }

    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        let group = std::mem::take(&mut self.groups[sb.0 as usize]);
        self.used -= u64::from(self.segments.used(&group.chain));
        self.covered -= group.covered;
        self.segments.release(media, &group.chain.segments);
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
    }
}

impl Recover for RemapSsdX {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        self.read_back(core, witnesses)
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.segments
            .heal(&mut core.media, std::mem::take(&mut self.damaged));
        self.fullest = core.blocks.remapped_max();
        self.regain(core);
        true
    }
}

impl Inspect for RemapSsdX {
    fn occupancy(&self, _: &Superblocks) -> Occupancy {
        Occupancy {
            used_bytes: self.segments.used_bytes(),
            capacity_bytes: self.segments.capacity_bytes(),
        }
    }

    fn usage(&self, blocks: &Superblocks) -> Usage {
        let largest = self
            .groups
            .iter()
            .map(|group| group.chain.segments.len())
            .max()
            .unwrap_or(0);
        Usage {
            capacity_bytes: self.segments.capacity_bytes(),
            used_bytes: self.segments.used_bytes(),
            valid_bytes: self.valid(blocks) * (SLOT_WORDS * 8) as u64,
            entry_room_bytes: self.segments.room_bytes(self.segments.count()),
            gc_reserve_bytes: self.segments.room_bytes(self.reserve()),
            largest_group_bytes: self.segments.bytes(largest),
            largest_group_seen_bytes: self.segments.longest_bytes(),
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, blocks: &Superblocks, media: &Media) -> Result<(), String> {
        self.check_groups(tables, blocks, media)
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        let ExtentGroup { chain, covered, .. } = &self.groups[sb.0 as usize];
        Some(GroupInfo {
            segments: chain.segments.clone(),
            entries: self.segments.used(chain),
            pages: *covered,
            flash_pages: 0,
        })
    }
}

impl LookAhead for RemapSsdX {
    #[inline]
    fn look_ahead(&self, media: &Media, ppn: Ppn) {
        let sb = media.geometry().superblock(ppn);
        media.prefetch_word(self.segments.next_word(&self.groups[sb.0 as usize].chain));
    }
}
