//! Remap-SSD (FAST'21 §4.2-4.5): NVRAM segments exclusively owned by flash superblocks.
//!
//! Each superblock has a segment group, a small local log of the remaps onto its pages: finding the
//! owners of a victim's pages means reading one group. Groups are reclaimed passively when their
//! superblock is erased and actively when free segments run out.
//!
//! Invariants: valid entries of a group = `Owners::remapped`; a segment is used only after it has
//! been zeroed. Absent: the owner of a page by a write (its OOB); when a group is reclaimed
//! (`segments::groups`).

mod local;
mod reclaim;

use super::entry::{CommandWord, EntryOwners, RmmEntry};
use super::room::references_beyond;
use super::segments::groups::{self, GroupedEntries, SegmentGroups};
use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::kind::{HostBytes, Hue, SchemeFacts};
use crate::contract::{
    CopiesOf, GroupInfo, Inspect, LookAhead, Occupancy, OwnerLookup, OwnerRef, Ownership, Persist,
    Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::{ConfigError, RecoveryError};
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
pub(super) use reclaim::append_in_force;
use remap_ssd_media::{After, ClearId, Geometry, Media, Ppn, Purpose, SbId};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "remap-ssd",
        hue: Some(Hue::Blue),
        host_bytes_per_page: HostBytes {
            dedup: 10,
            plain: 0,
        },
        ..SchemeFacts::DURABLE
    },
    |config, geometry| Box::new(RemapSsd::new(config, geometry)),
)
.with_nvram_log()
.with_check(|config, _| check(config));

/// DRAM state of the scheme.
pub(super) struct RemapSsd {
    groups: SegmentGroups,
    /// Pages may have many owners, so those without room are counted.
    many_owners: bool,
    scratch: Vec<RmmEntry>,
    kept: Vec<[u64; 2]>,
    gone: Vec<u32>,
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    groups::check(config, "two entries", config.entry.words())
}

impl RemapSsd {
    /// All segments free and zero.
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        Self {
            groups: SegmentGroups::new(config, geometry, config.entry.words()),
            many_owners: config.has_many_owners(),
            scratch: Vec::new(),
            kept: Vec::new(),
            gone: Vec::new(),
        }
    }

    #[inline]
    fn append(&mut self, media: &mut Media, now: u64, remapping: &Remapping, purpose: Purpose) {
        let sb = media.geometry().superblock(remapping.ppn);
        let at = self.groups.take(media, now, sb, (1, 1), purpose);

        // 1. the page  2. the entry's words, in any order. Cut during 2: a torn bit is missing and
        // the entry does not count. An entry that landed before its page would name the page
        // programmed there next.
        let segments = &self.groups.segments;
        let clear = self.groups.chain(sb).clear;
        let after = entry_after(segments.guards, clear, remapping.ppn);
        let [first, second] =
            RmmEntry::of(remapping, media.geometry().offset(remapping.ppn)).words();
        if segments.slot_words == 2 {
            media.store_record(at, &[first, second], purpose, after);
        } else {
            media.store_record(
                at,
                &[first, second, CommandWord::of(remapping).into()],
                purpose,
                after,
            );
        }
    }
}

#[inline]
fn entry_after(guards: Guards, clear: ClearId, ppn: Ppn) -> After {
    let after = After::clear(clear);
    after.and(guards.waits(Guard::EntryAfterPage, After::page(ppn)))
}

impl Persist for RemapSsd {
    #[inline]
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        self.make_sure_of_room(core, ppn, may_reclaim)
    }

    #[inline]
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(&mut core.media, core.clock.now(), remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        let sb = core.geometry.superblock(remapping.ppn);
        if !self.groups.has(sb, 1) && self.groups.segments.free() == 0 {
            return false;
        }
        // Collection may use the reserve, but the next host must see its new size.
        self.groups.expect_one_more(&core.blocks, sb);
        self.append(&mut core.media, core.clock.now(), remapping, Purpose::Gc);
        true
    }

    fn prepare(&mut self, core: &mut Core, entries: u32) {
        self.make_room_for(core, entries);
    }

    fn references_without_room<'a>(
        &'a self,
        tables: &'a Tables,
        blocks: &'a Superblocks,
    ) -> Option<CopiesOf<'a>> {
        let room = self.groups.room_to_move();
        self.many_owners
            .then(|| references_beyond(room, tables, blocks))
    }
}

impl Ownership for RemapSsd {
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup {
            tables,
            media,
            clock,
            sb,
            out,
        } = lookup;

        // The whole group, valid or not.
        let words = self.groups.words_in(sb);
        if words == 0 {
            return;
        }
        media.charge_loads(words, Purpose::Gc);

        let mut entries = std::mem::take(&mut self.scratch);
        entries.clear();
        self.read_group(tables, media, clock, sb, &mut entries);
        out.extend(entries.iter().map(|entry| OwnerRef {
            offset: entry.offset(),
            lpn: entry.target(),
            wsn: entry.wsn(),
            source: entry.relocated_source(),
        }));

        self.scratch = entries;
    }

    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        self.groups.forget(media, ended, sb);
    }
}

impl Recover for RemapSsd {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        self.read_back(core, witnesses)
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.regain(core);
        true
    }
}

impl Inspect for RemapSsd {
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
        self.check_ended(tables, blocks, media)
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        Some(self.groups.describe(sb))
    }
}

impl LookAhead for RemapSsd {
    #[inline]
    fn look_ahead(&self, media: &Media, ppn: Ppn) {
        self.groups.look_ahead(media, ppn);
    }
}
