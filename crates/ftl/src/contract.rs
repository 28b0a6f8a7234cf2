//! The contract between the core and a scheme: how remaps are made durable, found again and
//! recovered.
//!
//! The core keeps L2P, reference counts and the number of remapped LPNs per superblock
//! (`Owners::remapped`), which is also the number of valid entries a scheme must keep for it. A
//! scheme makes entries durable, lists the owners that may point into a superblock (stale ones are
//! allowed, a missing one is a bug) and reclaims its own room.
//!
//! Invariant: an entry is durable only after the page it names. Absent: the schemes and their names
//! (`scheme/`); facts about a scheme that do not need its code (`kind.rs`).

use crate::clock::WsnClock;
use crate::config::Config;
use crate::config::kind::SchemeFacts;
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::{ConfigError, RecoveryError};
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use remap_ssd_media::{Geometry, Lpn, Media, Ppn, Purpose, SbId};
use serde::Serialize;

/// One remapping to make durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remapping {
    /// LPN that now reads the page.
    pub lpn: Lpn,
    /// The page it is remapped to.
    pub ppn: Ppn,
    /// Write/remap sequence number of the remap.
    pub wsn: u64,
    /// The LPN that loses the page, for a relocation.
    pub source: Option<Lpn>,
    /// First target LPN and length of the atomic command it is part of.
    pub atomic: Option<(Lpn, u32)>,
}

/// An LPN that may own a page of a superblock through a remap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerRef {
    /// Page offset in the superblock.
    pub offset: u32,
    /// LPN that owns the page.
    pub lpn: Lpn,
    /// Sequence number of the remap.
    pub wsn: u64,
    /// The LPN that lost the page, for a relocation.
    pub source: Option<Lpn>,
}

/// Flash space that a scheme takes from the data, in superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlashNeed {
    /// Held in the worst case.
    pub held: u32,
    /// Kept free for those it may open while one superblock is collected.
    pub spare: u32,
}

/// Occupancy of a scheme's room for entries, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Total size; 0 if unlimited.
    pub capacity_bytes: u64,
    /// Taken by entries, valid or not.
    pub used_bytes: u64,
    /// Bytes of entries in force.
    pub valid_bytes: u64,
    /// Room for entries: the total without segment heads and the remainders that are smaller than a
    /// segment.
    pub entry_room_bytes: u64,
    /// The part of `entry_room_bytes` that hosts must currently leave free, so that garbage
    /// collection can rewrite the entries of the fullest superblock.
    pub gc_reserve_bytes: u64,
    /// Bytes of the largest segment group at present.
    pub largest_group_bytes: u64,
    /// Largest segment group since power-on.
    pub largest_group_seen_bytes: u64,
    /// Size of the L2P table, if it is in NVRAM.
    pub l2p_bytes: u64,
    /// Size of the P2L table, if it is in NVRAM.
    pub p2l_bytes: u64,
    /// Flash pages that a capacitor has the energy to program when power fails.
    pub power_loss_pages: u64,
    /// Flash kept erased for those pages.
    pub reserved_bytes: u64,
}

/// Two fields of `Usage`. `used_bytes` may be left 0 if the room is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Occupancy {
    /// Taken by entries, valid or not.
    pub used_bytes: u64,
    /// Total size; 0 if unlimited.
    pub capacity_bytes: u64,
}

impl From<Usage> for Occupancy {
    fn from(usage: Usage) -> Self {
        Self {
            used_bytes: usage.used_bytes,
            capacity_bytes: usage.capacity_bytes,
        }
    }
}

/// A segment group as an inspection shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupInfo {
    /// Segment numbers, oldest first.
    pub segments: Vec<u32>,
    /// Entries in the segments, valid or not; slots if entries differ in size.
    pub entries: u32,
    /// Remapped pages that the entries name, valid or not.
    pub pages: u64,
    /// Flash pages of entries that continue the segments.
    pub flash_pages: u32,
}

/// Everything the core requires of a scheme.
pub(crate) trait RemapScheme:
    Persist + Ownership + Recover + Inspect + LookAhead + Send
{
}

impl<T: Persist + Ownership + Recover + Inspect + LookAhead + Send> RemapScheme for T {}

/// Makes room for entries and persists them.
pub(crate) trait Persist {
    /// Ensures room for one more entry that names `ppn`, reclaiming if `may_reclaim`.
    ///
    /// # Errors
    /// The reason why the core must copy instead.
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion>;

    /// Like `admit`, given the remap. Its WSN is provisional: it holds if nothing is reclaimed.
    ///
    /// # Errors
    /// Like `admit`.
    #[inline]
    fn admit_remap(
        &mut self,
        core: &mut Core,
        next: &Remapping,
        may_reclaim: bool,
    ) -> Result<(), Demotion> {
        self.admit(core, next.ppn, may_reclaim)
    }

    /// Persists one entry after its page, now or in `issue`. `admit_remap` has just succeeded for
    /// it.
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose);

    /// Persists an entry, now or in `issue`, for a reference that GC moves. Returns false if there
    /// is no room and the core must copy.
    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool;

    /// Stores the entries gathered by `persist` and `persist_moved`. Called before anything is
    /// reclaimed or deallocated, and before the command that they belong to ends.
    #[inline]
    fn issue(&mut self, _core: &mut Core) {}

    /// Announces an atomic command of `entries` pages, during which nothing can be reclaimed.
    fn prepare(&mut self, _core: &mut Core, _entries: u32) {}

    /// The number of references to pages of a superblock that the core may have to copy if it
    /// collects the superblock now; `None` if every reference has room. Victim selection queries
    /// all superblocks.
    fn references_without_room<'a>(
        &'a self,
        _tables: &'a Tables,
        _blocks: &'a Superblocks,
    ) -> Option<CopiesOf<'a>> {
        None
    }

    /// Called when GC finds no superblock worth collecting: releases superblocks that the scheme
    /// does not need.
    fn give_back(&mut self, _core: &mut Core) -> bool {
        false
    }
}

/// References that the core may have to copy, by superblock.
pub(crate) type CopiesOf<'a> = Box<dyn Fn(SbId) -> u32 + 'a>;

/// Arguments of an owner lookup for a superblock under collection.
pub(crate) struct OwnerLookup<'a> {
    /// L2P, counts and the filters of ended remaps; read-only for the scheme.
    pub tables: &'a Tables,
    /// Holds the scheme's entries; reads of them are charged here.
    pub media: &'a mut Media,
    /// Numbers owners that are taken from L2P because an entry cannot be read.
    pub clock: &'a mut WsnClock,
    /// The superblock that GC collects.
    pub sb: SbId,
    /// Owners are appended here, the newest of each page last; stale ones are allowed.
    pub out: &'a mut Vec<OwnerRef>,
}

/// Finds the owners of a superblock's pages through remaps.
pub(crate) trait Ownership {
    /// Appends the remapped owners that pages of the superblock may have, and charges the lookup.
    /// Stale owners are allowed; none may be missing. Of several with the same LPN and offset the
    /// last is the newest.
    fn owners(&mut self, lookup: OwnerLookup);

    /// Called after the erase of a superblock: nothing points into it any more.
    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        counters: &mut SchemeCounters,
        sb: SbId,
    );
}

/// Recovery after a power failure.
pub(crate) trait Recover {
    /// Does the work that a capacitor's energy allows after the power failure, before recovery
    /// starts. Returns the number of pages programmed.
    ///
    /// # Errors
    /// Data that must be saved cannot be read.
    fn power_lost(&mut self, _media: &mut Media) -> Result<u64, RecoveryError> {
        Ok(0)
    }

    /// Reads everything durable back into an empty scheme. Reports all witnesses, and the LPNs in
    /// doubt because of unreadable records.
    ///
    /// # Errors
    /// Metadata is damaged beyond repair: any LPN may be in doubt.
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError>;

    /// Called during recovery, after `resume`: rewrites the scheme's flash pages that hold entries
    /// of aborted commands, as far as there is room. Entries in NVRAM are already zeroed.
    fn drop_aborted(&mut self, _core: &mut Core) {}

    /// Called when the tables are rebuilt and pages mark the LPNs in doubt. Zeroes the unreadable
    /// records, after everything else (`Guards::after_doubts`), and restores the room that GC
    /// relies on. Returns false if flash space does not suffice to persist the required records.
    /// Takes no sequence numbers if they are used up (`WsnClock::is_used_up`).
    fn resume(&mut self, core: &mut Core) -> bool;
}

/// Inspection and consistency checks.
pub(crate) trait Inspect {
    /// Used and valid bytes of the metadata's room.
    fn usage(&self, blocks: &Superblocks) -> Usage;

    /// The two fields that a time series shows. Called for each request: schemes whose `usage` has
    /// to count should override it.
    fn occupancy(&self, blocks: &Superblocks) -> Occupancy {
        self.usage(blocks).into()
    }

    /// Compares the scheme's tables with the core's.
    ///
    /// # Errors
    /// A description of the first mismatch.
    fn check(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction>;

    /// The segments or entries of one superblock, for an inspection.
    fn describe(&self, _sb: SbId) -> Option<GroupInfo> {
        None
    }
}

/// Prefetches for commands that are about to arrive.
pub(crate) trait LookAhead {
    /// A remap to this page is expected soon.
    #[inline]
    fn look_ahead(&self, _media: &Media, _ppn: Ppn) {}
}

/// A scheme in the catalogue: its facts, its limits and its constructor.
pub(crate) struct SchemeSpec {
    /// Facts that do not need its code.
    pub facts: SchemeFacts,
    /// Builds the scheme's empty state for a device.
    pub build: fn(&Config, &Geometry) -> Box<dyn RemapScheme>,
    /// Checks its parameters. The error is one sentence: the problem and what would work.
    pub check: fn(&Config, &Geometry) -> Result<(), ConfigError>,
    /// Words of NVRAM that it needs.
    pub nvram_words: fn(&Config, &Geometry) -> usize,
    /// Bytes of mapping tables that it keeps in NVRAM, independent of the remaps.
    pub tables_bytes: fn(&Config, &Geometry) -> u64,
    /// Superblocks that it takes from the space for data.
    pub flash_need: fn(&Config, &Geometry) -> FlashNeed,
}

impl SchemeSpec {
    /// A scheme without limits on parameters and without NVRAM or flash of its own: the defaults of
    /// most declarations.
    pub(crate) const fn new(
        facts: SchemeFacts,
        build: fn(&Config, &Geometry) -> Box<dyn RemapScheme>,
    ) -> Self {
        Self {
            facts,
            build,
            check: |_, _| Ok(()),
            nvram_words: |_, _| 0,
            tables_bytes: |_, _| 0,
            flash_need: |_, _| FlashNeed::default(),
        }
    }

    /// Adds an NVRAM log of `log_bytes`.
    pub(crate) const fn with_nvram_log(self) -> Self {
        Self {
            nvram_words: |config, _| (config.log_bytes / 8) as usize,
            ..self
        }
    }

    /// Adds a check of parameters.
    pub(crate) const fn with_check(
        self,
        check: fn(&Config, &Geometry) -> Result<(), ConfigError>,
    ) -> Self {
        Self { check, ..self }
    }
}
