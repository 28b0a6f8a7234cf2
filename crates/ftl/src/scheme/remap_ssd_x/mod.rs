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

use super::room::references_beyond;
use super::segments::groups::{self, GroupedEntries, SegmentGroups};
use crate::config::Config;
use crate::config::guard::Guard;
use crate::config::kind::{HostBytes, SchemeFacts};
use crate::contract::{
    CopiesOf, GroupInfo, Inspect, LookAhead, Occupancy, OwnerLookup, OwnerRef, Ownership, Persist,
    Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::RecoveryError;
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::stats::{Counter, Demotion, SchemeCounters};
use crate::superblock::Superblocks;
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
pub(super) const SPEC: SchemeSpec = SchemeSpec::new(
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
.with_check(|config, _| groups::check(config, "an entry of two slots", SLOT_WORDS));

/// Runs gathered at a time: usually as many as the other owners of a page moved by garbage
/// collection.
const RUNS_MAX: usize = 16;

/// The end of a superblock's group.
#[derive(Clone, Debug, Default)]
struct GroupEnd {
    /// The entry stored last, if it can be extended.
    open: Option<OpenExtent>,
    /// True if two of the group's entries may be adjacent, so that they can be joined.
    may_join: bool,
}

/// DRAM state of the scheme.
pub(super) struct RemapSsdX {
    groups: SegmentGroups,
    ends: Vec<GroupEnd>,
    gathered: Vec<RemapRun>,
    scratch: Vec<RemapExtent>,
    valid_extents: ValidExtents,
}

impl RemapSsdX {
    /// All segments free and zero.
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        Self {
            groups: SegmentGroups::new(config, geometry, SLOT_WORDS),
            ends: vec![GroupEnd::default(); geometry.superblocks() as usize],
            gathered: Vec::new(),
            scratch: Vec::new(),
            valid_extents: ValidExtents::default(),
        }
    }
}

impl Persist for RemapSsdX {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        // Gathered runs take slots that are not counted yet, and making room reclaims.
        self.issue(core);
        self.make_sure_of_room(core, ppn, may_reclaim)
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
            self.groups.expect_one_more(&core.blocks, sb);
            if self.groups.segments.free() >= self.groups.reserve() {
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
        if self.gathered.len() == RUNS_MAX || self.groups.segments.free() <= self.gathered.len() {
            self.issue(core);
        }
        if self.groups.segments.free() == 0 && !self.groups.has(sb, 1) {
            return false;
        }

        self.groups.expect_one_more(&core.blocks, sb);
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

    fn prepare(&mut self, core: &mut Core, entries: u32) {
        self.issue(core);
        self.make_room_for(core, entries);
    }

    fn references_without_room<'a>(
        &'a self,
        tables: &'a Tables,
        blocks: &'a Superblocks,
    ) -> Option<CopiesOf<'a>> {
        Some(references_beyond(
            self.groups.room_to_move(),
            tables,
            blocks,
        ))
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

        let words = self.groups.words_in(sb);
        if words == 0 {
            return;
        }
        media.charge_loads(words, Purpose::Gc);

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
        self.groups.forget(media, ended, sb);
        self.ends[sb.0 as usize] = GroupEnd::default();
    }
}

impl Recover for RemapSsdX {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        self.read_back(core, witnesses)
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.regain(core);
        true
    }
}

impl Inspect for RemapSsdX {
    fn occupancy(&self, _: &Superblocks) -> Occupancy {
        self.groups.occupancy()
    }

    fn usage(&self, blocks: &Superblocks) -> Usage {
        self.groups.usage(self.valid(blocks))
    }

    fn check(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction> {
        self.check_groups(blocks)?;
        if !self.gathered.is_empty() {
            return Err(Contradiction("a run is gathered and not stored".into()));
        }
        self.check_mappings(tables, media)
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        Some(self.groups.describe(sb))
    }
}

impl LookAhead for RemapSsdX {
    #[inline]
    fn look_ahead(&self, media: &Media, ppn: Ppn) {
        self.groups.look_ahead(media, ppn);
    }
}
