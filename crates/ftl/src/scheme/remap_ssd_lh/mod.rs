//! Remap-SSD with local logs on two media (TCAD'22, "LH"): NVRAM segments, and flash pages for the
//! overflow.
//!
//! Entries go to the superblock's segments as in Remap-SSD. When NVRAM fills, the largest group is
//! moved out: its valid entries are programmed to pages of the superblock (`group_log`) and its
//! segments become free. So NVRAM is a buffer for current remaps, and no remap is refused for lack
//! of it; the reference counter is the only limit.
//!
//! Invariants: of entries with the same LPN and page, those on flash are older than those in
//! segments; the log on flash is large enough for every LPN to be remapped. Absent: segments and
//! their recovery (`remap_ssd`), pages and their recovery (`group_log`), collecting NVRAM in place:
//! a group is filtered when it is moved out.

use super::group_log::{self, DESTAGES, GroupLog, LogShape, keep_valid};
use super::remap_ssd::{self, RemapSsd, append_in_force};
use crate::config::kind::{HostBytes, SchemeFacts};
use crate::config::{ATOMIC_PAGES_MAX, Config, EntrySize};
use crate::contract::{
    FlashNeed, GroupInfo, Inspect, LookAhead, Occupancy, OwnerLookup, OwnerRef, Ownership, Persist,
    Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::{ConfigError, RecoveryError};
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::entry::RmmEntry;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use remap_ssd_media::{Geometry, Media, Ppn, Purpose, SbId};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec {
    flash_need,
    ..SchemeSpec::new(
        SchemeFacts {
            name: "remap-ssd-lh",
            spans_all_dies: true,
            counters: group_log::COUNTERS,
            host_bytes_per_page: HostBytes {
                dedup: 15,
                plain: 0,
            },
            ..SchemeFacts::DURABLE
        },
        |config, geometry| Box::new(RemapSsdLh::new(config, geometry)),
    )
    .with_nvram_log()
    .with_check(check)
};

/// One segment in this many is kept free, so that the zeroing of the next one is complete when it
/// is needed.
const FREE_SHARE: u64 = 32;
const FREE_MAX: u64 = 64;

/// DRAM state of the scheme.
pub(super) struct RemapSsdLh {
    nvram: RemapSsd,
    flash: GroupLog,
    free_min: usize,
    all: Vec<RmmEntry>,
    kept: Vec<[u64; 2]>,
}

fn shape(config: &Config, geometry: &Geometry) -> LogShape {
    // Every LPN remapped, and one partly filled page for each group.
    let pages = (config.lpns as usize).div_ceil(LogShape::slots(config))
        + geometry.superblocks().min(config.lpns) as usize;
    LogShape::new(config, geometry, pages)
}

/// Superblocks of the log on flash.
pub(super) fn flash_need(config: &Config, geometry: &Geometry) -> FlashNeed {
    shape(config, geometry).superblocks(config, geometry)
}

pub(super) fn check(config: &Config, geometry: &Geometry) -> Result<(), ConfigError> {
    remap_ssd::check(config)?;
    // No group leaves NVRAM during an atomic command: each of its entries may take a segment.
    let pages = ATOMIC_PAGES_MAX
        .min(config.data_pages(geometry) / 2)
        .min(config.dealloc_slots / 2);
    let least = u64::from(pages) + 2;
    if config.entry == EntrySize::Bytes24 && RemapSsd::segments(config) < least {
        return Err(ConfigError(format!(
            "log_bytes = {} is too small for atomic remaps of {pages} pages: use at least {} bytes or smaller segments",
            config.log_bytes,
            least * u64::from(config.segment_bytes)
        )));
    }
    Ok(())
}

impl RemapSsdLh {
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        Self {
            nvram: RemapSsd::new(config, geometry),
            flash: GroupLog::new(shape(config, geometry), config, geometry),
            free_min: (RemapSsd::segments(config) / FREE_SHARE).clamp(1, FREE_MAX) as usize,
            all: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Destages groups until more than `free` segments are free.
    #[cold]
    fn make_room(&mut self, core: &mut Core, free: usize) {
        while self.nvram.free_segments() <= free && self.destage(core) {}
    }

    /// Moves the largest group to flash; returns false if there is none, or no room.
    fn destage(&mut self, core: &mut Core) -> bool {
        let Some(sb) = self.nvram.largest_group() else {
            return false;
        };
        self.all.clear();
        self.kept.clear();
        self.nvram.entries_in(
            &core.tables,
            &mut core.media,
            &mut core.clock,
            sb,
            &mut self.all,
        );
        keep_valid(&mut core.tables, sb, &self.all, &mut self.kept);

        let pages = self.kept.len().div_ceil(self.flash.slots());
        // Room is reserved before anything is charged or counted: without room nothing has
        // happened.
        if pages > 0 && !self.flash.secure(core, pages) {
            return false;
        }

        core.stats.scheme.add(DESTAGES, 1);
        core.media
            .charge_loads(self.nvram.words_in(sb), Purpose::Gc);

        // 1. the entries, each after the page it names  2. their pages on flash, after all stores
        // 3. zeroes in the segments, after everything, including the witnesses that made the other
        // entries invalid. Cut before 2 or during it: the segments have the entries. Between 2 and
        // 3: both have them. If the pages do not suffice: like a cut during 2.
        for entries in self.kept.chunks(self.flash.slots()) {
            if !self.flash.append(core, sb, entries) {
                return false;
            }
        }
        self.nvram.drain(&mut core.media, sb);
        true
    }
}

impl Persist for RemapSsdLh {
    #[inline]
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        let sb = core.geometry.superblock(ppn);
        if self.nvram.is_numbered_out(sb) || self.flash.is_numbered_out(sb) {
            return Err(Demotion::NvramFull);
        }

        // Destaged slightly ahead: a segment released now is zeroed only after everything before.
        if self.nvram.free_segments() <= self.free_min && may_reclaim {
            self.make_room(core, self.free_min);
        }
        if self.nvram.has_room_for(core.geometry, ppn) {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    #[inline]
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.nvram.persist(core, remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        if !self.nvram.has_room_for(core.geometry, remapping.ppn) {
            self.make_room(core, 0);
        }
        self.nvram.persist_moved(core, remapping)
    }

    fn prepare(&mut self, core: &mut Core, entries: u32) {
        self.make_room(core, entries as usize);
    }

    fn give_back(&mut self, core: &mut Core) -> bool {
        self.flash.give_back(core)
    }
}

impl Ownership for RemapSsdLh {
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup {
            tables,
            media,
            clock,
            sb,
            out,
        } = lookup;

        self.flash.charge_read(media, sb);
        let words = self.nvram.words_in(sb);
        if words > 0 {
            media.charge_loads(words, Purpose::Gc);
        }

        self.all.clear();
        let readable = self.flash.read(media, sb, &mut self.all);
        self.nvram
            .entries_in(tables, media, clock, sb, &mut self.all);
        if !readable {
            append_in_force(tables, clock, sb, &mut self.all);
        }
        out.extend(self.all.iter().map(OwnerRef::of));
    }

    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        counters: &mut SchemeCounters,
        sb: SbId,
    ) {
        self.nvram.forget(media, ended, counters, sb);
        self.flash.forget(media.geometry(), sb);
    }
}

impl Recover for RemapSsdLh {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        // Flash first: of entries with the same LPN and page those in segments are newer.
        self.flash.replay(core, witnesses)?;
        self.nvram.replay(core, witnesses)
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.nvram.heal(&mut core.media);
        true // Room is made on demand.
    }
}

impl Inspect for RemapSsdLh {
    fn occupancy(&self, blocks: &Superblocks) -> Occupancy {
        self.nvram.occupancy(blocks)
    }

    fn usage(&self, blocks: &Superblocks) -> Usage {
        let usage = self.nvram.usage(blocks);
        // Entries on flash take no room here.
        Usage {
            valid_bytes: usage.valid_bytes.min(usage.used_bytes),
            ..usage
        }
    }

    fn check(&self, tables: &Tables, _: &Superblocks, media: &Media) -> Result<(), Contradiction> {
        self.nvram.check_segments()?;
        self.flash
            .check(tables, media, |sb| self.nvram.peek(media, sb))
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        let flash_pages = self.flash.pages_of(sb) as u32;
        self.nvram.describe(sb).map(|group| GroupInfo {
            flash_pages,
            ..group
        })
    }
}

impl LookAhead for RemapSsdLh {
    #[inline]
    fn look_ahead(&self, media: &Media, ppn: Ppn) {
        self.nvram.look_ahead(media, ppn);
    }
}
