//! The granularity of the mapping table: what it is, what it takes, and with what it works.
//!
//! Invariant: of a hybrid device that passed `check`, some superblock can be collected at less than it gains (`Config::check`).
//! Absent: the tables (`map`, `block_map`).

use crate::config::{Config, ConfigError};
use crate::scheme::SchemeKind;
use crate::superblock::Stream;
use remap_ssd_media::Geometry;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What an entry of the mapping table stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Granularity {
    /// A page.
    #[default]
    #[serde(rename = "page")]
    Page,
    /// A block of pages in order, with an extension for those that are elsewhere (Copyless Copy §II).
    #[serde(rename = "hybrid")]
    Hybrid,
}

impl Granularity {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Page, Self::Hybrid];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Hybrid => "hybrid",
        }
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Granularity {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                format!("no mapping is named '{name}'; there are {known}")
            })
    }
}

/// Bytes of an entry of a page table, or of the table of blocks: a flash page and the LR bit.
const CELL_BYTES: u64 = 4;
/// Bytes of an entry of an extension: which page of the block, the flash page, and a link to the next entry.
const ENTRY_BYTES: u64 = 8;
/// Entries of the extension, at least.
const ENTRIES_MIN: u32 = 16;
/// Superblocks that putting blocks in order may open while one superblock is collected.
const ORDERED: usize = 2;

impl SchemeKind {
    /// Why it works with page mapping only, if it does.
    pub fn needs_pages(self) -> Option<&'static str> {
        match self {
            Self::Pebble => Some("keeps a table of pages in NVRAM"),
            Self::WalSsd => Some("names a page's second owner in the page"),
            Self::Unsafe => Some("does not know who owns a page that moves"),
            _ => None,
        }
    }
}

impl Config {
    /// Is the device mapped by blocks?
    pub fn is_hybrid(&self) -> bool {
        self.mapping == Granularity::Hybrid
    }

    /// Entries that the extension of the table of blocks has room for. The block that is being written in order may
    /// take one for each of its pages besides.
    pub fn extension_entries(&self) -> u32 {
        ((f64::from(self.lpns) * self.extension) as u32).max(ENTRIES_MIN)
    }

    /// Bytes of DRAM of the mapping table. Hybrid: the table of blocks, two bits a page (in place, remapped), the extension,
    /// and a cell for each bitmap of deallocations.
    pub fn mapping_bytes(&self) -> u64 {
        if !self.is_hybrid() {
            return CELL_BYTES * u64::from(self.lpns + self.chunks());
        }
        let blocks = self.lpns.div_ceil(self.block_pages);
        let entries = u64::from(self.extension_entries() + self.block_pages);
        CELL_BYTES * u64::from(blocks + self.chunks())
            + u64::from(self.lpns).div_ceil(4)
            + ENTRY_BYTES * entries
    }

    /// Superblocks that moving a victim's pages may open: one in each zone, and for blocks that are put in order.
    pub fn gc_opens(&self) -> usize {
        self.gc_policy.zones() + if self.is_hybrid() { ORDERED } else { 0 }
    }

    /// The streams of those.
    pub fn gc_streams(&self) -> Vec<Stream> {
        let zones = self.gc_policy.zones() + usize::from(self.is_hybrid());
        (0..zones).map(|zone| self.gc_stream(zone)).collect()
    }

    /// Pages that logical pages may keep from being collected, and pages of a superblock that are of use. Hybrid: a block
    /// holds the places of all its pages, whoever has been written elsewhere, and every entry of the extension may hold one
    /// more; what is left of a superblock in which a block has no place is lost.
    pub(crate) fn pages_needed(&self, geometry: &Geometry) -> (u64, u64) {
        let (pages, data) = (
            u64::from(self.lpns) + u64::from(self.chunks()),
            u64::from(self.data_pages(geometry)),
        );
        if !self.is_hybrid() {
            return (pages, data);
        }
        let block = u64::from(self.block_pages);
        let pages = pages.next_multiple_of(block) + u64::from(self.extension_entries()) + block;
        (pages, data.saturating_sub(block - 1))
    }

    /// Checks what hybrid mapping works with.
    ///
    /// # Errors
    /// One sentence: what cannot work and what would.
    pub(crate) fn check_mapping(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        if !(0.0..=1.0).contains(&self.extension) {
            return fail(format!("extension = {} must be 0 to 1", self.extension));
        }
        if !self.is_hybrid() {
            return Ok(());
        }

        if let Some(why) = self.scheme.needs_pages() {
            return fail(format!(
                "scheme {} {why} and works with mapping = page only",
                self.scheme
            ));
        }
        if self.gc_policy.zones() > 1 {
            return fail(format!(
                "gc_policy = {} sorts pages into zones, and hybrid mapping puts them in order: use greedy or cost-benefit",
                self.gc_policy
            ));
        }
        if geometry.groups() > 1 {
            return fail(
                "hybrid mapping puts blocks in order in one superblock at a time: leave superblock_dies out".into(),
            );
        }
        let most = (self.data_pages(geometry) / 2).min(4096);
        if !(2..=most).contains(&self.block_pages) {
            return fail(format!(
                "block_pages = {} must be 2 to {most}: half of the data pages of a superblock, 4096 at most",
                self.block_pages
            ));
        }
        Ok(())
    }
}
