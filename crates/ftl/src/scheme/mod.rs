//! How a remap survives a power cut: the trait, and one file or folder per system.
//!
//! The core keeps L2P, counts and the number of remapped LPNs per superblock (`Owners::remapped`), which is
//! also the number of valid entries a scheme must keep for it. A scheme makes entries durable, lists the owners
//! that may point into a superblock (stale ones allowed, a missing one is a bug) and reclaims its own room.
//! Invariant: an entry is durable only after the page it names is.
//! Absent above this folder: any scheme's name.

mod entry;
mod flog;
mod footprint;
mod group_log;
mod index;
mod l2p_only;
mod local_flash;
mod log_entry;
mod log_pages;
mod nlog;
mod none;
mod opt;
mod pebble;
pub mod remap_ssd;
mod remap_ssd_lh;
mod remap_ssd_x;
mod segments;
mod shadow_oob;
mod sift;
mod wal;

use crate::config::{Config, ConfigError};
use crate::core::Core;
use crate::glimpse::Room;
use crate::recovery::{RecoveryError, Witnesses};
use crate::stats::Demotion;
pub use entry::{CommandWord, RmmEntry};
use remap_ssd_media::{Geometry, Ppn, Purpose, SbId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemeKind {
    /// No remapping: every duplicate is a flash write.
    #[serde(rename = "none")]
    None,
    /// Remap-SSD (FAST'21): NVRAM segments owned by superblocks.
    #[serde(rename = "remap-ssd")]
    RemapSsd,
    /// One device-wide log on flash (CAFTL, Janusd, Copyless Copy, SHARE).
    #[serde(rename = "flog")]
    FLog,
    /// The same log in NVRAM.
    #[serde(rename = "nlog")]
    NLog,
    /// Owners found in O(1), without limit, not durable: the upper bound.
    #[serde(rename = "opt")]
    Opt,
    /// L2P only, without consistency of the reverse direction (JFTL, ANViL): loses mappings to GC and power cuts.
    #[serde(rename = "unsafe")]
    Unsafe,
    /// PebbleSSD (MEMSYS'17): slots for each flash page in NVRAM, updated in place.
    #[serde(rename = "pebble")]
    Pebble,
    /// Remap-SSD with one entry for a run of pages.
    #[serde(rename = "remap-ssd-x")]
    RemapSsdX,
    /// Local logs on flash, entries cached under a capacitor (FAST'21 §4.6, rejected there).
    #[serde(rename = "local-flash")]
    LocalFlash,
    /// Remap-SSD whose largest segment group goes to flash pages when NVRAM fills (TCAD'22, "LH").
    #[serde(rename = "remap-ssd-lh")]
    RemapSsdLh,
    /// WAL-SSD: a page's OOB names its future home, and a remap to it takes one commit record a command.
    #[serde(rename = "wal-ssd")]
    WalSsd,
    /// Copyless Copy (HPCC'19): entries in DRAM, saved to reserved flash by a capacitor when power fails.
    #[serde(rename = "shadow-oob")]
    ShadowOob,
}

impl SchemeKind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::None,
        Self::RemapSsd,
        Self::FLog,
        Self::NLog,
        Self::Opt,
        Self::Unsafe,
        Self::Pebble,
        Self::RemapSsdX,
        Self::LocalFlash,
        Self::RemapSsdLh,
        Self::WalSsd,
        Self::ShadowOob,
    ];
    /// Those that FAST'21 compares: what is run unless told otherwise.
    pub const FAST21: [Self; 5] = [
        Self::None,
        Self::RemapSsd,
        Self::FLog,
        Self::NLog,
        Self::Opt,
    ];

    /// Does what it acknowledges survive a power cut?
    pub fn is_durable(self) -> bool {
        !matches!(self, Self::Opt | Self::Unsafe)
    }

    /// Can a page be shared only with the home that its writer named ([`crate::Ftl::write_for`])? If so, every OOB has
    /// room for a second owner, deduplication has nothing to offer, and a workload without homes never remaps.
    pub fn uses_hints(self) -> bool {
        self == Self::WalSsd
    }

    /// Does it keep entries in superblocks of its own, which must span all dies?
    pub fn keeps_entries_on_flash(self) -> bool {
        matches!(
            self,
            Self::FLog | Self::LocalFlash | Self::RemapSsdLh | Self::ShadowOob
        )
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::RemapSsd => "remap-ssd",
            Self::FLog => "flog",
            Self::NLog => "nlog",
            Self::Opt => "opt",
            Self::Unsafe => "unsafe",
            Self::Pebble => "pebble",
            Self::RemapSsdX => "remap-ssd-x",
            Self::LocalFlash => "local-flash",
            Self::RemapSsdLh => "remap-ssd-lh",
            Self::WalSsd => "wal-ssd",
            Self::ShadowOob => "shadow-oob",
        }
    }
}

impl fmt::Display for SchemeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SchemeKind {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                format!("no scheme is named '{name}'; there are {known}")
            })
    }
}

/// One remapping to make durable.
#[derive(Clone, Copy, Debug)]
pub struct Remapping {
    /// Target LPN.
    pub lpn: u32,
    /// The page it is remapped to.
    pub ppn: Ppn,
    /// Its sequence number.
    pub wsn: u64,
    /// The LPN that loses the page, for a relocation.
    pub source: Option<u32>,
    /// First target LPN and length of the atomic command it is part of.
    pub atomic: Option<(u32, u32)>,
}

/// An LPN that may own a page of a superblock, by a remap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRef {
    /// Page offset in the superblock.
    pub offset: u32,
    /// The LPN.
    pub lpn: u32,
    /// Sequence number of the remap.
    pub wsn: u64,
    /// The LPN that lost the page, for a relocation.
    pub source: Option<u32>,
}

impl OwnerRef {
    /// What an entry of a superblock says.
    pub fn of(entry: &RmmEntry) -> Self {
        let (offset, lpn, wsn) = (entry.offset(), entry.target(), entry.wsn());
        Self {
            offset,
            lpn,
            wsn,
            source: entry.relocated_source(),
        }
    }
}

/// Superblocks that a scheme takes from the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashNeed {
    /// Held at its worst.
    pub held: u32,
    /// Free, for what it must be able to open while one superblock is collected.
    pub spare: u32,
}

/// How full a scheme's room is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// All of it; 0 if unlimited.
    pub capacity_bytes: u64,
    /// Taken by entries, valid or not.
    pub used_bytes: u64,
    /// Taken by valid entries.
    pub valid_bytes: u64,
    /// What entries can take at most: all of it but for heads of segments, and what does not fill one.
    pub entry_room_bytes: u64,
    /// Of that, what hosts leave free for garbage collection to rewrite the fullest superblock's entries; now.
    pub gc_reserve_bytes: u64,
    /// Largest segment group now.
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

/// How remaps are made durable.
pub trait RemapScheme: Send {
    /// Power has failed: what the energy of a capacitor still does, before anything is recovered. Pages programmed.
    ///
    /// # Errors
    /// What must be saved cannot be read.
    fn power_lost(&mut self, _core: &mut Core) -> Result<u64, RecoveryError> {
        Ok(0)
    }

    /// Can it remap at all? If not, the core copies.
    fn remaps(&self) -> bool {
        true
    }

    /// Can it tell the owners of a page that moves? If not, those that the OOB does not name lose their mappings.
    fn owners_move(&self) -> bool {
        true
    }

    /// Secures room for one more entry that names `ppn`, reclaiming if allowed to.
    ///
    /// # Errors
    /// Why the core must copy instead.
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion>;

    /// `admit` for a remap that is known, but for its number: it has the one that it gets if nothing is reclaimed.
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

    /// Makes one entry durable after its page, now or with `issue`; `admit_remap` has just succeeded for it.
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose);

    /// Makes an entry durable, now or with `issue`, for a reference that GC moves; `false` if there is no room and the
    /// core must copy.
    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool;

    /// Stores what `persist` and `persist_moved` have gathered. Called before anything is reclaimed or deallocated, and
    /// before the command that they are of ends.
    #[inline]
    fn issue(&mut self, _core: &mut Core) {}

    /// References to pages of a superblock that the core may have to copy, should it collect it now.
    fn unplaceable(&self, _core: &Core, _sb: SbId) -> u32 {
        0
    }
    /// An atomic command of so many pages is coming, during which nothing can be reclaimed.
    fn prepare(&mut self, _core: &mut Core, _entries: u32) {}

    /// Appends the remapped owners that pages of a superblock may have, charging the lookup. Stale ones are
    /// allowed; none may be missing. Of several with the same LPN and offset the last is the newest.
    fn owners(&mut self, core: &mut Core, sb: SbId, out: &mut Vec<OwnerRef>);

    /// A superblock has been erased: nothing points into it any more.
    fn forget(&mut self, core: &mut Core, sb: SbId);

    /// Reads everything durable back into an empty scheme. Reports all witnesses, and the LPNs in doubt because of
    /// unreadable records.
    ///
    /// # Errors
    /// Metadata that is damaged beyond repair: any LPN may be in doubt.
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError>;

    /// Recovery, after `resume`: rewrites the scheme's own flash pages that hold entries of aborted commands, as far as
    /// there is room. Entries in NVRAM have been zeroed.
    fn drop_aborted(&mut self, _core: &mut Core) {}

    /// Called when the tables are rebuilt and pages mark the LPNs in doubt. Zeroes the unreadable records, after
    /// everything else (`Core::after_doubts`), and restores the room that GC relies on. `false` if there is not enough
    /// flash space for what must be made durable. Takes no sequence number if they are used up (`Core::is_used_up`).
    fn resume(&mut self, core: &mut Core) -> bool;

    /// GC finds nothing to gain: gives superblocks back if the scheme holds more than it needs.
    fn give_back(&mut self, _core: &mut Core) -> bool {
        false
    }

    /// How full is it?
    fn usage(&self, core: &Core) -> Usage;

    /// Of that, what a time series shows. It is asked at each request, so schemes whose `usage` counts say it themselves.
    fn room(&self, core: &Core) -> Room {
        self.usage(core).into()
    }

    /// Compares its tables with the core's.
    ///
    /// # Errors
    /// What does not fit.
    fn check(&self, core: &Core) -> Result<(), String>;

    /// Bytes of mapping tables in NVRAM that change when a page is programmed; the core charges them.
    fn table_bytes(&self) -> u32 {
        0
    }

    /// A remap to this page is coming soon.
    #[inline]
    fn look_ahead(&self, _core: &Core, _ppn: Ppn) {}

    /// Lists what an inspection shows of one superblock: segments or entries.
    fn describe(&self, _sb: SbId) -> Option<GroupInfo> {
        None
    }
}

/// What an inspection shows of a segment group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupInfo {
    /// Segments, oldest first.
    pub segments: Vec<u32>,
    /// Entries in them, valid or not; slots, where entries differ in size.
    pub entries: u32,
    /// Remapped pages that they name, valid or not.
    pub pages: u64,
    /// Flash pages of entries behind them.
    pub flash_pages: u32,
}

/// Builds the configured scheme, empty.
pub fn build(config: &Config, geometry: &Geometry) -> Box<dyn RemapScheme> {
    match config.scheme {
        SchemeKind::None => Box::new(none::NoRemap),
        SchemeKind::RemapSsd => Box::new(remap_ssd::RemapSsd::new(config, geometry)),
        SchemeKind::FLog => Box::new(flog::FLog::new(config, geometry)),
        SchemeKind::NLog => Box::new(nlog::NLog::new(config, geometry)),
        SchemeKind::Opt => Box::new(opt::Opt::new(geometry)),
        SchemeKind::Unsafe => Box::new(l2p_only::L2pOnly::new(geometry)),
        SchemeKind::Pebble => Box::new(pebble::Pebble::new(config, geometry)),
        SchemeKind::RemapSsdX => Box::new(remap_ssd_x::RemapSsdX::new(config, geometry)),
        SchemeKind::LocalFlash => Box::new(local_flash::LocalFlash::new(config, geometry)),
        SchemeKind::RemapSsdLh => Box::new(remap_ssd_lh::RemapSsdLh::new(config, geometry)),
        SchemeKind::WalSsd => Box::new(wal::Wal::new(config, geometry)),
        SchemeKind::ShadowOob => Box::new(shadow_oob::ShadowOob::new(config, geometry)),
    }
}

/// Words of NVRAM the configured scheme needs.
pub fn nvram_words(config: &Config, geometry: &Geometry) -> usize {
    match config.scheme {
        SchemeKind::None | SchemeKind::Opt | SchemeKind::Unsafe => 0,
        SchemeKind::RemapSsd
        | SchemeKind::RemapSsdLh
        | SchemeKind::RemapSsdX
        | SchemeKind::NLog
        | SchemeKind::WalSsd => (config.log_bytes / 8) as usize,
        SchemeKind::FLog => flog::BUFFER_WORDS,
        SchemeKind::LocalFlash => local_flash::cache_words(config),
        SchemeKind::ShadowOob => shadow_oob::words(config, geometry),
        SchemeKind::Pebble => pebble::nvram_words(config, geometry),
    }
}

/// Bytes of mapping tables that the configured scheme keeps in NVRAM, whatever is remapped.
pub fn tables_bytes(config: &Config, geometry: &Geometry) -> u64 {
    match config.scheme {
        SchemeKind::Pebble => pebble::tables_bytes(config, geometry),
        _ => 0,
    }
}

/// Superblocks the configured scheme takes from the data.
pub fn flash_need(config: &Config, geometry: &Geometry) -> FlashNeed {
    match config.scheme {
        SchemeKind::FLog => flog::flash_need(config, geometry),
        SchemeKind::LocalFlash => local_flash::flash_need(config, geometry),
        SchemeKind::RemapSsdLh => remap_ssd_lh::flash_need(config, geometry),
        SchemeKind::ShadowOob => shadow_oob::flash_need(config, geometry),
        _ => FlashNeed::default(),
    }
}

/// Checks the configured scheme's parameters.
///
/// # Errors
/// One sentence: what cannot work and what would.
pub fn check(config: &Config, geometry: &Geometry) -> Result<(), ConfigError> {
    match config.scheme {
        SchemeKind::None | SchemeKind::Opt | SchemeKind::Unsafe => Ok(()),
        SchemeKind::RemapSsd => remap_ssd::check(config),
        SchemeKind::RemapSsdX => remap_ssd_x::check(config),
        SchemeKind::NLog => nlog::check(config),
        SchemeKind::WalSsd => wal::check(config),
        SchemeKind::FLog => flog::check(config, geometry),
        SchemeKind::Pebble => pebble::check(config, geometry),
        SchemeKind::LocalFlash => local_flash::check(config),
        SchemeKind::RemapSsdLh => remap_ssd_lh::check(config, geometry),
        SchemeKind::ShadowOob => shadow_oob::check(config, geometry),
    }
}
