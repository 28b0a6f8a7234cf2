//! One device-wide log of remaps, on flash or in NVRAM: the usual solution before Remap-SSD.
//!
//! Finding the owners of a victim's pages means reading the whole log, and so does reclaiming it:
//! read all, rewrite the valid entries, erase or zero the rest (FAST'21 §3.3, §5.1).
//!
//! Invariant: hosts leave room for the fullest superblock's references and for beginning to rewrite
//! (`LogMedium::reserve`); nothing is reclaimed if that would gain too little, so that refusals stay
//! cheap. Absent: where the entries are (`flog`, `nlog`); per-superblock structure on the medium
//! (`index` belongs to the simulator; its cost is the scan's).

use super::index::OwnerIndex;
use super::log_entry::LogEntry;
use super::room::references_beyond;
use crate::config::Config;
use crate::config::guard::Guard;
use crate::contract::{
    CopiesOf, Inspect, LookAhead, OwnerLookup, Ownership, Persist, Remapping, Usage,
};
use crate::core::Core;
use crate::error::ConfigError;
use crate::error::Contradiction;
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use remap_ssd_media::{Geometry, Media, Ppn, Purpose, SbId};

/// Reclaiming pays only if more than one entry in this many is invalid.
const INVALID_SHARE: u64 = 20;

/// Checks that the log has at least this many bytes.
pub(super) fn check(config: &Config, least: u64) -> Result<(), ConfigError> {
    let bytes = config.log_bytes;
    if bytes < least {
        return Err(ConfigError(format!(
            "log_bytes = {bytes} is too small for a log: use at least {least}"
        )));
    }
    Ok(())
}

/// The medium of a log: how entries are stored and rewritten. `fullest` is an upper bound of a
/// superblock's remapped LPNs. A log on it also implements `Recover`.
pub(super) trait LogMedium: Send {
    /// Entries that fit.
    fn capacity(&self) -> u64;
    /// Entries stored, valid or not.
    fn entries(&self) -> u64;
    /// Entries in a page or a unit.
    fn slots(&self) -> usize;
    /// Entries for which hosts leave room.
    fn reserve(&self, fullest: u32) -> u64;
    /// Charges reading the whole log.
    fn charge_scan(&self, media: &mut Media);

    /// Returns true if no entry can be added any more.
    fn is_stuck(&self) -> bool {
        false
    }
    /// Returns true if a host may add an entry now.
    fn has_slot(&self, core: &Core, fullest: u32) -> bool {
        self.has_room(core, fullest)
    }
    /// Returns true if reclaiming is not necessary for a host's entry.
    fn has_room(&self, core: &Core, fullest: u32) -> bool;
    /// Returns true if collection may add an entry: it may use the reserve.
    fn has_room_to_move(&self, core: &Core) -> bool;
    /// Entries that a collection may add.
    fn room_to_move(&self, blocks: &Superblocks) -> u64;
    /// Returns true if there is room to begin rewriting the log.
    fn can_reclaim(&self, core: &Core) -> bool;

    /// Stores an entry, which is already in the index.
    fn append(&mut self, core: &mut Core, index: &OwnerIndex, next: &Remapping, purpose: Purpose);
    /// Reads all entries, rewrites the valid ones, and erases or zeroes the old log.
    fn reclaim(&mut self, core: &mut Core, index: &mut OwnerIndex);
    /// `Persist::give_back`.
    fn give_back(&mut self, _core: &mut Core, _index: &mut OwnerIndex) -> bool {
        false
    }

    /// Compares the log with the tables, and checks that every entry that reclaiming would not look
    /// up is in force.
    fn check(
        &self,
        index: &OwnerIndex,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction>;
}

pub(super) struct DeviceLog<M> {
    pub medium: M,
    /// Pages may have many owners, so those without room are counted.
    many_owners: bool,
    pub index: OwnerIndex,
    /// Upper bound of the remapped LPNs of a superblock.
    pub fullest: u32,
    /// Number of invalid entries below which reclaiming gains nothing.
    reclaim_pays_from: u64,
}

impl<M: LogMedium> DeviceLog<M> {
    pub(super) fn new(medium: M, config: &Config, geometry: &Geometry) -> Self {
        Self {
            medium,
            many_owners: config.has_many_owners(),
            index: OwnerIndex::new(geometry),
            fullest: 0,
            reclaim_pays_from: 0,
        }
    }

    fn invalid(&self, blocks: &Superblocks) -> u64 {
        let entries = self.medium.entries();
        entries.saturating_sub(blocks.remapped_total())
    }

    /// The superblock of a page is about to have one more remapped LPN, by a host or by collection.
    fn expect_one_more(&mut self, core: &Core, ppn: Ppn) {
        let sb = core.geometry.superblock(ppn);
        self.fullest = self.fullest.max(core.blocks.owners(sb).remapped + 1);
    }

    #[cold]
    fn make_room(&mut self, core: &mut Core, may_reclaim: bool) -> bool {
        // The last attempt found too little to gain. Only more invalid entries can change that.
        let invalid = self.invalid(&core.blocks);
        if invalid < self.reclaim_pays_from {
            return false;
        }

        self.fullest = core.blocks.remapped_max() + 1;
        if self.medium.has_room(core, self.fullest) {
            return true;
        }
        if !may_reclaim {
            return false;
        }

        if invalid * INVALID_SHARE > self.medium.entries() && self.medium.can_reclaim(core) {
            self.medium.reclaim(core, &mut self.index);
            if self.medium.has_room(core, self.fullest) {
                return true;
            }
        }

        // Not before another page of entries has become invalid: refusals must stay cheap.
        self.reclaim_pays_from = self.invalid(&core.blocks) + self.medium.slots() as u64;
        false
    }
}

impl<M: LogMedium> Persist for DeviceLog<M> {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        let capacity = self.medium.capacity() as f64;
        if core.blocks.remapped_total() as f64 >= core.config.watermark * capacity {
            return Err(Demotion::Watermark);
        }
        if self.medium.is_stuck() {
            return Err(Demotion::NvramFull);
        }

        self.expect_one_more(core, ppn);
        if self.medium.has_slot(core, self.fullest) || self.make_room(core, may_reclaim) {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.index.push(&mut core.tables, &core.blocks, remapping);
        self.medium.append(core, &self.index, remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        let has_room = self.medium.has_room_to_move(core);
        if has_room {
            if self.many_owners {
                self.expect_one_more(core, remapping.ppn);
            }
            self.persist(core, remapping, Purpose::Gc);
        }
        has_room
    }

    fn prepare(&mut self, core: &mut Core, entries: u32) {
        // A superblock may gain as many LPNs, and the reserve with it.
        let wanted = core.blocks.remapped_max() + entries;
        let invalid = self.invalid(&core.blocks);
        let pays =
            invalid >= self.reclaim_pays_from && invalid * INVALID_SHARE > self.medium.entries();
        if self.medium.has_room(core, wanted) || !pays || !self.medium.can_reclaim(core) {
            return;
        }
        self.medium.reclaim(core, &mut self.index);
        if !self.medium.has_room(core, wanted) {
            self.reclaim_pays_from = self.invalid(&core.blocks) + self.medium.slots() as u64;
        }
    }

    fn references_without_room<'a>(
        &'a self,
        tables: &'a Tables,
        blocks: &'a Superblocks,
    ) -> Option<CopiesOf<'a>> {
        let room = self.medium.room_to_move(blocks);
        self.many_owners
            .then(|| references_beyond(room, tables, blocks))
    }

    fn give_back(&mut self, core: &mut Core) -> bool {
        self.medium.give_back(core, &mut self.index)
    }
}

impl<M: LogMedium> Ownership for DeviceLog<M> {
    fn owners(&mut self, lookup: OwnerLookup) {
        self.medium.charge_scan(lookup.media);
        self.index.owners(lookup.sb, lookup.out);
    }

    fn forget(
        &mut self,
        _: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        self.index.forget(sb);
        // Entries of the ended incarnation stay in the log; it has none of the next one yet.
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
    }
}

impl<M: LogMedium> Inspect for DeviceLog<M> {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        let bytes = |entries: u64| entries * size_of::<LogEntry>() as u64;
        Usage {
            capacity_bytes: bytes(self.medium.capacity()),
            used_bytes: bytes(self.medium.entries()),
            valid_bytes: bytes(blocks.remapped_total()),
            entry_room_bytes: bytes(self.medium.capacity()),
            gc_reserve_bytes: bytes(self.medium.reserve(self.fullest)),
            ..Usage::default()
        }
    }

    fn check(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction> {
        self.medium.check(&self.index, tables, blocks, media)?;
        self.index.check(tables)
    }
}

impl<M: LogMedium> LookAhead for DeviceLog<M> {}

/// Adds an entry found by recovery to the index, if it counts. Returns false for an entry of an
/// aborted command.
pub(super) fn add_witness(
    core: &mut Core,
    index: &mut OwnerIndex,
    witnesses: &mut Witnesses,
    words: [u64; 2],
) -> bool {
    let entry = LogEntry::from_words(words);
    let is_intact = entry.is_intact() || !core.config.guards.has(Guard::TornBits);
    if !is_intact || !entry.is_current(&core.blocks, core.geometry) {
        return true;
    }

    let ppn = Ppn(entry.ppn());
    if !witnesses.remap(core, entry.lpn(), ppn, entry.wsn(), None) {
        return false;
    }
    let remapping = Remapping {
        lpn: entry.lpn(),
        ppn,
        wsn: entry.wsn(),
        source: None,
        atomic: None,
    };
    index.push_unchecked(core.geometry, &remapping);
    true
}
