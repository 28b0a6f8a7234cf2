//! The scheme of a configuration, and the facts about a scheme that do not need its code.
//!
//! Invariant: code outside `scheme/` that depends on the scheme depends only on these facts.
//! Absent: the schemes' names and the list of them (`scheme/catalogue.rs`), and their behaviour
//! (`contract.rs`).

use crate::config::guard::Guard;

/// Medium of a scheme's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// No entries, or entries in a DRAM that is modelled as free and unlimited.
    Nowhere,
    /// NVRAM of `log_bytes`, which recovery reads.
    Nvram,
    /// Flash pages of `log_bytes`, which recovery reads; a capacitor may cache or save them.
    Flash,
    /// Mapping tables in NVRAM, whose size follows from the geometry.
    Tables,
}

/// Colour of a scheme's curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Hue {
    Black,
    Green,
    Blue,
    Orange,
    Purple,
}

/// Approximate memory that a scheme takes on the simulating machine, in bytes per flash page: the
/// fingerprint store, and the list of remaps in each superblock for schemes that do not keep their
/// entries by superblock.
///
/// Measured as the growth of a process's resident memory from 2.4 to 4.7 million flash pages, in
/// steady state at the capacity of the presets. Absent: the NVRAM image, and the core's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    pub dedup: u64,
    pub plain: u64,
}

/// A parameter of one scheme: a key of its table `[firmware.SCHEME]` in device files.
#[derive(Debug, PartialEq, Eq)]
pub struct SchemeKey {
    /// Name in the table.
    pub name: &'static str,
    /// Unit; empty if there is none.
    pub unit: &'static str,
    /// Value if the key is absent.
    pub default: u64,
    /// Smallest value accepted.
    pub least: u64,
    /// Largest value accepted.
    pub most: u64,
    /// Description in a sentence or two.
    pub about: &'static str,
}

/// Facts about a scheme that do not need its code.
#[derive(Debug, PartialEq, Eq)]
pub struct SchemeFacts {
    /// Name on the command line and in files.
    pub name: &'static str,
    /// True if acknowledged commands survive a power cut.
    pub durable: bool,
    /// True if it remaps; otherwise the core copies.
    pub remaps: bool,
    /// True if it finds all owners of a page that moves. If not, owners that the OOB does not name
    /// lose their mappings.
    pub owners_move: bool,
    /// True if a page can be shared only with the home that its writer named
    /// ([`crate::Ftl::write_for`]). Then every OOB has room for a second owner, deduplication is of
    /// no use, and a workload without homes never remaps.
    pub hints: bool,
    /// True if it keeps entries in superblocks of its own, which must span all dies.
    pub spans_all_dies: bool,
    /// True if deduplication misses no duplicate under it: an upper bound.
    pub exact_dedup: bool,
    /// True if one entry may name a run of several pages.
    pub names_runs: bool,
    /// The reason why it supports page mapping only; `None` if it supports hybrid mapping.
    pub needs_pages: Option<&'static str>,
    /// Medium of its entries.
    pub medium: Medium,
    /// Bytes of NVRAM mapping tables that change with each programmed page; the core charges them.
    pub table_store_bytes: u32,
    /// Guards whose absence is visible under this scheme only.
    pub guards: &'static [Guard],
    /// Colour of its curves; the schemes of FAST'21 have one.
    pub hue: Option<Hue>,
    /// Memory that it takes on the simulating machine.
    pub host_bytes_per_page: HostBytes,
    /// Parameters of this scheme only.
    pub keys: &'static [&'static SchemeKey],
    /// Names of its own counters, in the order of [`crate::stats::SchemeCounters`].
    pub counters: &'static [&'static str],
}

impl SchemeFacts {
    /// A durable scheme with entries in NVRAM and no special properties: the base of the other
    /// declarations.
    pub(crate) const DURABLE: Self = Self {
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

/// A scheme, identified by its facts. The constants, one for each scheme, are in
/// `scheme/catalogue.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SchemeKind(pub(crate) &'static SchemeFacts);

impl SchemeKind {
    /// The scheme's facts.
    #[inline]
    pub fn facts(self) -> &'static SchemeFacts {
        self.0
    }

    /// The scheme's parameter of this name, if there is one.
    pub fn key(self, name: &str) -> Option<&'static SchemeKey> {
        self.0.keys.iter().copied().find(|key| key.name == name)
    }

    /// Name on the command line and in files.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns true if acknowledged commands survive a power cut.
    pub fn is_durable(self) -> bool {
        self.0.durable
    }

    /// Returns true if a page can be shared only with the home that its writer named. See
    /// [`SchemeFacts::hints`].
    #[inline]
    pub fn uses_hints(self) -> bool {
        self.0.hints
    }

    /// Returns true if it keeps entries in superblocks of its own, which must span all dies.
    pub fn keeps_entries_on_flash(self) -> bool {
        self.0.spans_all_dies
    }

    /// Memory that it takes on the simulating machine, in bytes per flash page. See `HostBytes`.
    pub fn host_bytes_per_page(self, dedup: bool) -> u64 {
        let bytes = self.0.host_bytes_per_page;
        if dedup { bytes.dedup } else { bytes.plain }
    }

    /// The reason why it supports page mapping only; `None` if it supports hybrid mapping.
    pub fn needs_pages(self) -> Option<&'static str> {
        self.0.needs_pages
    }
}
