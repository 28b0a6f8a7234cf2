//! The contract between the core and a scheme: how remaps are made durable, found again and
//! recovered.
//!
//! The core keeps L2P, counts and the number of remapped LPNs per superblock (`Owners::remapped`),
//! which is also the number of valid entries a scheme must keep for it. A scheme makes entries
//! durable, lists the owners that may point into a superblock (stale ones allowed, a missing one is
//! a bug) and reclaims its own room.
//!
//! Invariant: an entry is durable only after the page it names is.
//! Absent: the schemes and their names (`scheme/`); what is known of a scheme without its code
//! (`kind.rs`).

use crate::clock::WsnClock;
use crate::config::Config;
use crate::core::Core;
use crate::ended::EndedFilters;
use crate::error::{ConfigError, RecoveryError};
use crate::kind::SchemeFacts;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use crate::tables::Tables;
use crate::witnesses::Witnesses;
use remap_ssd_media::{Geometry, Lpn, Media, Ppn, Purpose, SbId};
use serde::Serialize;

/// One remapping to make durable.
#[derive(Clone, Copy, Debug)]
pub struct Remapping {
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

/// An LPN that may own a page of a superblock, by a remap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRef {
    /// Page offset in the superblock.
    pub offset: u32,
    /// LPN that owns the page.
    pub lpn: Lpn,
    /// Sequence number of the remap.
    pub wsn: u64,
    /// The LPN that lost the page, for a relocation.
    pub source: Option<Lpn>,
}

/// Superblocks that a scheme takes from the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashNeed {
    /// Superblocks held at the worst moment.
    pub held: u32,
    /// Free, for what it must be able to open while one superblock is collected.
    pub spare: u32,
}

/// How full a scheme's room is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// All of it; 0 if unlimited.
    pub capacity_bytes: u64,
    /// AllocatedPage by entries, valid or not.
    pub used_bytes: u64,
    /// Bytes of entries that are in force.
    pub valid_bytes: u64,
    /// What entries can take at most: all of it but for heads of segments, and what does not fill
    /// one.
    pub entry_room_bytes: u64,
    /// Of that, what hosts leave free for garbage collection to rewrite the fullest superblock's
    /// entries; now.
    pub gc_reserve_bytes: u64,
    /// Bytes of the largest segment group now.
    pub largest_group_bytes: u64,
    /// Largest segment group since power-on.
    pub largest_group_seen_bytes: u64,
    /// The table from logical to physical pages, where it is kept in NVRAM.
    pub l2p_bytes: u64,
    /// The table from physical to logical pages, where it is kept in NVRAM.
    pub p2l_bytes: u64,
    /// Flash pages that a capacitor has energy to program when power fails.
    pub power_loss_pages: u64,
    /// Flash that is kept erased for them.
    pub reserved_bytes: u64,
}

/// How full a scheme's room is: two fields of `Usage`. What is used of unlimited room may be left
/// out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Occupancy {
    /// Taken by entries, valid or not.
    pub used_bytes: u64,
    /// All of it; 0 if unlimited.
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

/// What an inspection shows of a segment group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupInfo {
    /// Segments by number, oldest first.
    pub segments: Vec<u32>,
    /// Entries in them, valid or not; slots, where entries differ in size.
    pub entries: u32,
    /// Remapped pages that they name, valid or not.
    pub pages: u64,
    /// Flash pages of entries behind them.
    pub flash_pages: u32,
}

/// All that the core asks of a scheme.
pub trait RemapScheme: Persist + Ownership + Recover + Inspect + LookAhead + Send {}

impl<T: Persist + Ownership + Recover + Inspect + LookAhead + Send> RemapScheme for T {}

/// Room for entries, and making them durable.
pub trait Persist {
    /// Secures room for one more entry that names `ppn`, reclaiming if allowed to.
    ///
    /// # Errors
    /// Why the core must copy instead.
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion>;

    /// `admit` for a remap that is known, but for its number: it has the one that it gets if
    /// nothing is reclaimed.
    ///
    /// # Errors
    /// As `admit`.
    #[inline]
    fn admit_remap(
        &mut self,
        core: &mut Core,
        next: &Remapping,
        may_reclaim: bool,
    ) -> Result<(), Demotion> {
        self.admit(core, next.ppn, may_reclaim)
    }

    /// Makes one entry durable after its page, now or with `issue`; `admit_remap` has just
    /// succeeded for it.
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose);

    /// Makes an entry durable, now or with `issue`, for a reference that GC moves; `false` if there
    /// is no room and the core must copy.
    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool;

    /// Stores what `persist` and `persist_moved` have gathered. Called before anything is reclaimed
    /// or deallocated, and before the command that they are of ends.
    #[inline]
    fn issue(&mut self, _core: &mut Core) {}

    /// An atomic command of so many pages is coming, during which nothing can be reclaimed.
    fn prepare(&mut self, _core: &mut Core, _entries: u32) {}

    /// How many references to pages of a superblock the core may have to copy, should it collect it
    /// now; `None` where every reference has room. Collection asks about all superblocks.
    fn references_without_room<'a>(
        &'a self,
        _tables: &'a Tables,
        _blocks: &'a Superblocks,
    ) -> Option<CopiesOf<'a>> {
        None
    }

    /// GC finds nothing to gain: gives superblocks back if the scheme holds more than it needs.
    fn give_back(&mut self, _core: &mut Core) -> bool {
        false
    }
}

/// References that the core may have to copy, by superblock.
pub type CopiesOf<'a> = Box<dyn Fn(SbId) -> u32 + 'a>;

/// GC asks who owns the pages of a superblock, and what the scheme needs to answer.
pub struct OwnerLookup<'a> {
    /// L2P, counts and what has ended; the scheme reads them and changes none.
    pub tables: &'a Tables,
    /// Where the scheme's entries are, and what reading them is charged to.
    pub media: &'a mut Media,
    /// Gives numbers to owners that L2P names because an entry cannot be read.
    pub clock: &'a mut WsnClock,
    /// The superblock that GC collects, whose pages' owners are wanted.
    pub sb: SbId,
    /// Owners are appended here, of one page the newest last; stale ones may be among them.
    pub out: &'a mut Vec<OwnerRef>,
}

/// Who owns the pages of a superblock, by remaps.
pub trait Ownership {
    /// Appends the remapped owners that pages of the superblock may have, charging the lookup. Stale
    /// ones are allowed; none may be missing. Of several with the same LPN and offset the last is
    /// the newest.
    fn owners(&mut self, lookup: OwnerLookup);

    /// A superblock has been erased: nothing points into it any more.
    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        counters: &mut SchemeCounters,
        sb: SbId,
    );
}

/// Power failed, and the device is switched on again.
pub trait Recover {
    /// Power has failed: what the energy of a capacitor still does, before anything is recovered.
    /// Pages programmed.
    ///
    /// # Errors
    /// What must be saved cannot be read.
    fn power_lost(&mut self, _media: &mut Media) -> Result<u64, RecoveryError> {
        Ok(0)
    }

    /// Reads everything durable back into an empty scheme. Reports all witnesses, and the LPNs in
    /// doubt because of unreadable records.
    ///
    /// # Errors
    /// Metadata that is damaged beyond repair: any LPN may be in doubt.
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError>;

    /// Recovery, after `resume`: rewrites the scheme's own flash pages that hold entries of aborted
    /// commands, as far as there is room. Entries in NVRAM have been zeroed.
    fn drop_aborted(&mut self, _core: &mut Core) {}

    /// Called when the tables are rebuilt and pages mark the LPNs in doubt. Zeroes the unreadable
    /// records, after everything else (`Guards::after_doubts`), and restores the room that GC
    /// relies on. `false` if there is not enough flash space for what must be made durable. Takes
    /// no sequence number if they are used up (`WsnClock::is_used_up`).
    fn resume(&mut self, core: &mut Core) -> bool;
}

/// What is shown of a scheme, and what tests check.
pub trait Inspect {
    /// How much of the metadata's room is used and valid.
    fn usage(&self, blocks: &Superblocks) -> Usage;

    /// Of that, what a time series shows. It is asked at each request, so that schemes whose
    /// `usage` counts say it themselves.
    fn occupancy(&self, blocks: &Superblocks) -> Occupancy {
        self.usage(blocks).into()
    }

    /// Compares its tables with the core's.
    ///
    /// # Errors
    /// What does not fit.
    fn check(&self, tables: &Tables, blocks: &Superblocks, media: &Media) -> Result<(), String>;

    /// Lists what an inspection shows of one superblock: segments or entries.
    fn describe(&self, _sb: SbId) -> Option<GroupInfo> {
        None
    }
}

/// What the scheme prefetches for commands to come.
pub trait LookAhead {
    /// A remap to this page is coming soon.
    #[inline]
    fn look_ahead(&self, _media: &Media, _ppn: Ppn) {}
}

/// A scheme as the catalogue lists it: its facts, its limits and its constructor.
pub struct SchemeSpec {
    /// What is known of it without its code.
    pub facts: SchemeFacts,
    /// Builds the scheme's empty state for a device.
    pub build: fn(&Config, &Geometry) -> Box<dyn RemapScheme>,
    /// Checks its parameters. An error is one sentence: what cannot work and what would.
    pub check: fn(&Config, &Geometry) -> Result<(), ConfigError>,
    /// Words of NVRAM that it needs.
    pub nvram_words: fn(&Config, &Geometry) -> usize,
    /// Bytes of mapping tables that it keeps in NVRAM, whatever is remapped.
    pub tables_bytes: fn(&Config, &Geometry) -> u64,
    /// Superblocks that it takes from the data.
    pub flash_need: fn(&Config, &Geometry) -> FlashNeed,
}

impl SchemeSpec {
    /// A scheme with any parameters and no memory of its own: the limits that most declarations
    /// leave as they are.
    pub const fn new(
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

    /// The same with entries in NVRAM of `log_bytes`.
    pub const fn with_nvram_log(self) -> Self {
        Self {
            nvram_words: |config, _| (config.log_bytes / 8) as usize,
            ..self
        }
    }

    /// The same with these limits.
    pub const fn with_check(
        self,
        check: fn(&Config, &Geometry) -> Result<(), ConfigError>,
    ) -> Self {
        Self { check, ..self }
    }
}
