//! The scheme of a configuration, and what is known of a scheme without its code.
//!
//! Invariant: whatever depends on the scheme outside `scheme/` depends on one of these facts.
//! Absent: the schemes' names and the list of them (`scheme/catalogue.rs`), and what they do
//! (`contract.rs`).

use crate::guard::Guard;

/// The medium on which a scheme keeps its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Nowhere: it has no entries, or keeps them in a DRAM that is modelled as free and unlimited.
    Nowhere,
    /// NVRAM of `log_bytes`, which recovery reads.
    Nvram,
    /// Flash pages of `log_bytes`, which recovery reads; a capacitor may cache or save them.
    Flash,
    /// Mapping tables in NVRAM, whose size follows from the geometry.
    Tables,
}

/// The colour of a scheme's curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Hue {
    Black,
    Green,
    Blue,
    Orange,
    Purple,
}

/// Memory that a scheme takes of the machine that simulates it, about, in bytes for each flash
/// page: the fingerprint store, and the list of what each superblock has remapped, for schemes
/// whose entries are not kept by superblock.
///
/// Measured, not counted: the growth of a process's resident memory from 2.4 to 4.7 million flash
/// pages, in steady state at the capacity of the presets. Absent: the NVRAM image, and the core's
/// tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    pub dedup: u64,
    pub plain: u64,
}

/// A parameter of one scheme: a key of its table in device files, `[firmware.SCHEME]`.
#[derive(Debug, PartialEq, Eq)]
pub struct SchemeKey {
    /// Its name in the table.
    pub name: &'static str,
    /// Its unit; empty where there is none.
    pub unit: &'static str,
    /// What it is where nobody says it.
    pub default: u64,
    /// Smallest value that is accepted.
    pub least: u64,
    /// Largest value that is accepted.
    pub most: u64,
    /// What it says, in a sentence or two.
    pub about: &'static str,
}

/// What is known of a scheme without its code.
#[derive(Debug, PartialEq, Eq)]
pub struct SchemeFacts {
    /// Its name on the command line and in files.
    pub name: &'static str,
    /// Does what it acknowledges survive a power cut?
    pub durable: bool,
    /// Can it remap at all? If not, the core copies.
    pub remaps: bool,
    /// Can it tell the owners of a page that moves? If not, those that the OOB does not name lose
    /// their mappings.
    pub owners_move: bool,
    /// Can a page be shared only with the home that its writer named ([`crate::Ftl::write_for`])?
    /// If so, every OOB has room for a second owner, deduplication has nothing to offer, and a
    /// workload without homes never remaps.
    pub hints: bool,
    /// Does it keep entries in superblocks of its own, which must span all dies?
    pub spans_all_dies: bool,
    /// Does deduplication miss nothing under it, as an upper bound?
    pub exact_dedup: bool,
    /// May one entry name a run of several pages?
    pub names_runs: bool,
    /// Why it works with page mapping only, if it does.
    pub needs_pages: Option<&'static str>,
    /// Medium that holds the scheme's entries.
    pub medium: Medium,
    /// Bytes of mapping tables in NVRAM that change when a page is programmed; the core charges
    /// them.
    pub table_store_bytes: u32,
    /// Guards whose absence shows under this scheme alone.
    pub guards: &'static [Guard],
    /// The colour of its curves, if it has one of its own: those of FAST'21 do.
    pub hue: Option<Hue>,
    /// Memory of the machine that simulates it.
    pub host_bytes_per_page: HostBytes,
    /// Parameters of this scheme alone.
    pub keys: &'static [&'static SchemeKey],
    /// Names of its own counters, in the order of [`crate::stats::SchemeCounters`].
    pub counters: &'static [&'static str],
}

impl SchemeFacts {
    /// A durable scheme with entries in NVRAM and nothing special: what the others are declared
    /// from.
    pub const DURABLE: Self = Self {
        name: "",
        durable: true,
        remaps: true,
        owners_move: true,
        hints: false,
        spans_all_dies: false,
        exact_dedup: false,
        names_runs: false,
        needs_pages: None,
        medium: Medium::Nvram,
        table_store_bytes: 0,
        guards: &[],
        hue: None,
        host_bytes_per_page: HostBytes {
            dedup: 41,
            plain: 19,
        },
        keys: &[],
        counters: &[],
    };
}

/// A scheme, by its facts. The constants, one for each scheme, are in `scheme/catalogue.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SchemeKind(pub(crate) &'static SchemeFacts);

impl SchemeKind {
    /// What is known of it.
    #[inline]
    pub fn facts(self) -> &'static SchemeFacts {
        self.0
    }

    /// Its own parameter of this name, if it has one.
    pub fn key(self, name: &str) -> Option<&'static SchemeKey> {
        self.0.keys.iter().copied().find(|key| key.name == name)
    }

    /// Its name on the command line and in files.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Does what it acknowledges survive a power cut?
    pub fn is_durable(self) -> bool {
        self.0.durable
    }

    /// Can a page be shared only with the home that its writer named? See [`SchemeFacts::hints`].
    #[inline]
    pub fn uses_hints(self) -> bool {
        self.0.hints
    }

    /// Does it keep entries in superblocks of its own, which must span all dies?
    pub fn keeps_entries_on_flash(self) -> bool {
        self.0.spans_all_dies
    }

    /// Memory of the machine that simulates it, in bytes for each flash page. See `HostBytes`.
    pub fn host_bytes_per_page(self, dedup: bool) -> u64 {
        let bytes = self.0.host_bytes_per_page;
        if dedup { bytes.dedup } else { bytes.plain }
    }

    /// Why it works with page mapping only, if it does.
    pub fn needs_pages(self) -> Option<&'static str> {
        self.0.needs_pages
    }
}
