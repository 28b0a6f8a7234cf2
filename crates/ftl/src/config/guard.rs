//! The list of guards: every ordering constraint and check that protects data, by name.
//!
//! Each guard can be switched off, and the power-cut campaign must then find a violation: a guard
//! whose absence no test notices protects nothing, or is not tested. Guards are consulted on cold
//! paths only.

use crate::error::UnknownChoice;
use crate::names;
use remap_ssd_media::After;
use std::fmt;
use std::str::FromStr;

macro_rules! guards {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A guard that protects data.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Guard { $($(#[$doc])* $variant,)* }

        impl Guard {
            /// Every guard, in the order of declaration.
            pub const LIST: &[Guard] = &[$(Guard::$variant),*];
            /// Name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Guard::$variant => $name,)* }
            }
        }
    };
}

guards! {
    /// A victim's blocks are erased only after everything issued before is durable.
    EraseWaits = "erase-waits",
    /// A superblock is marked dead in NVRAM before its first block is erased.
    DeadBeforeErase = "dead-before-erase",
    /// A superblock is opened only if enough others stay free whatever a cut undoes.
    ReserveStaysFree = "reserve-stays-free",
    /// Data pages wait for their superblock's head.
    HeadBeforeData = "head-before-data",
    /// Tail pages wait for the data pages they describe.
    TailAfterData = "tail-after-data",
    /// Pages of an earlier incarnation of a superblock are ignored.
    Incarnations = "incarnations",
    /// A remapping entry waits for the page it names.
    EntryAfterPage = "entry-after-page",
    /// An entry of several pages waits for all of them, not only for the first.
    RunAfterPages = "run-after-pages",
    /// An entry is extended only after the pages it gains.
    ExtensionAfterPage = "extension-after-page",
    /// An entry is extended only after it was stored as a whole.
    ExtensionAfterEntry = "extension-after-entry",
    /// An entry is extended only by a page whose WSN follows the entry's last.
    ExtensionInTime = "extension-in-time",
    /// Entries gathered by a command are stored before the deallocations of its sources.
    GatheredFirst = "gathered-first",
    /// Entries with a torn bit missing are ignored.
    TornBits = "torn-bits",
    /// Segments are zeroed before use.
    SegmentZeroed = "segment-zeroed",
    /// A released segment is zeroed only after everything that superseded its entries is durable.
    ClearWaits = "clear-waits",
    /// Segments of an earlier incarnation of a superblock are ignored.
    StaleSegments = "stale-segments",
    /// A page of entries waits for the entries' stores, and so for the pages they name.
    GroupPageAfterEntries = "group-page-after-entries",
    /// A page that supersedes its group's earlier pages waits for everything.
    RewriteWaits = "rewrite-waits",
    /// Pages of entries whose superblock has been erased since are ignored.
    StaleGroupPages = "stale-group-pages",
    /// GC persists the other references of a page that it moves.
    OtherReferences = "other-references",
    /// Deallocations are persisted before they are acknowledged.
    Deallocations = "deallocations",
    /// A half of the deallocation log is reset only after its bitmap pages are durable.
    DeallocFlush = "dealloc-flush",
    /// Recovery persists the deallocations that are known only from a relocation's entry.
    RelocatedSources = "relocated-sources",
    /// A write without effect waits for the earlier write it relies on.
    NoEffectWaits = "no-effect-waits",
    /// An atomic remap takes effect only once its commit is durable.
    Commit = "commit",
    /// A write of several pages takes effect as a whole.
    UntornWrites = "untorn-writes",
    /// The pages of such a write wait for the word that names it.
    OpenBeforePages = "open-before-pages",
    /// It ends only once all of its pages are durable.
    CommitAfterPages = "commit-after-pages",
    /// A page that is moved with another number than its own waits for the writes in progress.
    MovedAfterWrites = "moved-after-writes",
    /// Aborted atomic remaps stay aborted.
    AbortedStay = "aborted-stay",
    /// The slot of a superseded entry is overwritten only after the witness that superseded it is
    /// durable.
    SlotReuse = "slot-reuse",
    /// A slot of the write buffer is filled again only after its former page is superseded by a durable witness.
    BufferReuse = "buffer-reuse",
    /// A page in the write buffer counts only once its content is whole.
    BufferWhole = "buffer-whole",
    /// No bitmap lists an LPN as deallocated whose newest page is in the write buffer.
    BufferedExist = "buffered-exist",
    /// A flush, or another command that is durable when it is acknowledged, waits for the pages that it writes back from
    /// a volatile write buffer.
    FlushWaits = "flush-waits",
    /// A page is listed in the file map only once its data is durable.
    FsAfterData = "fs-after-data",
    /// Entries of the file map from before its last reset are ignored.
    FsGenerations = "fs-generations",
    /// An entry of the file map counts only if all of its words landed.
    FsWhole = "fs-whole",
    /// A slot of the file map in which part of an entry landed is not reused before the next reset.
    FsTornPlaces = "fs-torn-places",
    /// A page that its home owns by a commit record moves with a new number for both.
    HomesRenewed = "homes-renewed",
    /// A commit record that gathers pages is stored before anything is reclaimed.
    RecordBeforeReclaim = "record-before-reclaim",
    /// A commit record refers to the newest page that was written for its home before it.
    RecordNewest = "record-newest",
    /// A page that shared another LPN's flash page is copied into its block with a new number.
    UnsharedRenewed = "unshared-renewed",
    /// A capacitor's energy suffices to save the whole contents of its DRAM.
    CapacitorEnergy = "capacitor-energy",
    /// DRAM contents count only once all entries are in it and the save area on flash is ready.
    ArmedLast = "armed-last",
    /// Damaged words are zeroed only after the pages that mark the LPNs in doubt.
    MendingWaits = "mending-waits",
    /// Word lines are filled before their pages are acknowledged.
    LinesFilled = "lines-filled",
    /// A page counts only once all pages that share its word line are programmed.
    WholeLines = "whole-lines",
    /// Virtual time resumes above every WSN found on the media.
    TimeResumes = "time-resumes",
}

/// The guards that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards(u64);

impl Guards {
    /// The set of all guards.
    pub const ALL: Self = Self(u64::MAX);

    /// The set without one guard, for campaigns.
    pub fn without(guard: Guard) -> Self {
        Self(!(1 << guard as u64))
    }
    /// Returns true if the guard is on.
    #[inline]
    pub(crate) fn has(self, guard: Guard) -> bool {
        self.0 >> (guard as u64) & 1 == 1
    }

    /// `after` if the guard is on; otherwise nothing.
    #[inline]
    pub(crate) fn waits(self, guard: Guard, after: After) -> After {
        if self.has(guard) {
            after
        } else {
            After::NOTHING
        }
    }

    /// Constraint for zeroing a damaged word: 1. the pages that mark the LPNs in doubt  2. zeroes.
    /// Cut between: recovery finds the same doubt again, or the pages, which are newer.
    pub(crate) fn after_doubts(self) -> After {
        self.waits(Guard::MendingWaits, After::ALL)
    }
}

impl Default for Guards {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Guard {
    type Err = UnknownChoice;
    fn from_str(name: &str) -> Result<Self, UnknownChoice> {
        names::find("guard", name, Self::LIST, Self::name)
    }
}
