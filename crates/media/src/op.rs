//! The record of the firmware's media operations, for the timing model.
//!
//! Invariant: an operation starts after everything named by its [`After`] has completed; the power
//! rail and the timing model read the same field, so a wait can be neither forgotten nor free.
//! Absent: durations.

use crate::geometry::Ppn;
use std::ops::Range;

/// ID of one clearing of an NVRAM range, of the erases of one superblock, or of named stores, so that
/// later operations can wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ClearId(pub u64);

/// The operations that must be durable before another one begins. Small, because every operation
/// carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    clear: ClearId,
    page: Ppn,
    pages: u16,
    all: bool,
    fence: bool,
    own: bool,
}

const _: () = assert!(size_of::<After>() <= 24);

impl Default for After {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl After {
    /// Waits for nothing.
    pub const NOTHING: Self = Self {
        clear: ClearId(0),
        page: NO_PAGE,
        pages: 0,
        all: false,
        fence: false,
        own: false,
    };
    /// The stores of the current command: those of the purpose `Host` since the last [`OpKind::NvMark`] of that purpose.
    pub const OWN_STORES: Self = Self {
        own: true,
        ..Self::NOTHING
    };
    /// Waits for all earlier operations.
    pub const ALL: Self = Self {
        all: true,
        ..Self::NOTHING
    };
    /// All earlier NVRAM stores.
    pub const FENCE: Self = Self {
        fence: true,
        ..Self::NOTHING
    };
    /// The program of one page.
    #[inline]
    pub const fn page(ppn: Ppn) -> Self {
        Self::pages(ppn, 1)
    }
    /// The programs of `count` pages from `first` on.
    #[inline]
    pub const fn pages(first: Ppn, count: u16) -> Self {
        Self {
            page: first,
            pages: count,
            ..Self::NOTHING
        }
    }
    /// A clearing of an NVRAM range, the erases of a superblock, or named stores.
    #[inline]
    pub const fn clear(id: ClearId) -> Self {
        Self {
            clear: id,
            ..Self::NOTHING
        }
    }
    /// Both. Only one run of pages and one ID can be named.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        // An operation has room for one name of each kind. A caller that needs two must wait for
        // more: a fence, or everything.
        debug_assert!(
            self.pages == 0 || other.pages == 0 || self.named_pages() == other.named_pages()
        );
        debug_assert!(self.clear.0 == 0 || other.clear.0 == 0 || self.clear == other.clear);

        Self {
            clear: if self.clear.0 == 0 {
                other.clear
            } else {
                self.clear
            },
            page: if self.pages == 0 {
                other.page
            } else {
                self.page
            },
            pages: if self.pages == 0 {
                other.pages
            } else {
                self.pages
            },
            all: self.all || other.all,
            fence: self.fence || other.fence,
            own: self.own || other.own,
        }
    }
    /// Returns true if it waits for everything.
    #[inline]
    pub(crate) fn is_all(self) -> bool {
        self.all
    }
    /// Returns true if it waits for every store.
    #[inline]
    pub(crate) fn is_fence(self) -> bool {
        self.fence
    }
    /// Returns true if it waits for the stores of the current command.
    #[inline]
    pub(crate) fn is_own(self) -> bool {
        self.own
    }
    /// Pages, from the first to the one after the last.
    #[inline]
    pub(crate) fn named_pages(self) -> Range<u32> {
        self.page.0..self.page.0 + u32::from(self.pages)
    }
    /// The clearing to wait for, if any.
    #[inline]
    pub fn named_clear(self) -> Option<ClearId> {
        (self.clear.0 != 0).then_some(self.clear)
    }
}

/// The purpose of an operation. Only the first kind delays a command's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// A host command depends on it: it is acknowledged only after this has completed.
    Host,
    /// Pages of the host leave the write buffer: their commands have been acknowledged.
    WriteBack,
    /// Garbage collection or wear levelling.
    Gc,
    /// The firmware's own metadata.
    Meta,
}

/// Kinds of operations on the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Read one flash page of die `die`.
    Read,
    /// Read a page of the mapping table on die `die`: the later operations of its command wait for it.
    ReadTable,
    /// Program one flash page of die `die`.
    Program,
    /// GC's copies to consecutive pages of one row, from `page` on die `die` on, or of one word line of that die: for
    /// each of `sources`, read that page, then program the next one. A row is one record, since these
    /// copies are most of the operations of a device in steady state.
    CopyRow,
    /// Erase one block of die `die`.
    Erase,
    /// Read `amount` flash pages spread evenly over all dies.
    ScanFlash,
    /// Read `amount` bytes of NVRAM.
    NvRead,
    /// Write `amount` bytes of NVRAM.
    NvWrite,
    /// Write a word of NVRAM that `clear` of a later operation may name by `clear_id`.
    NvMark,
    /// Zero `amount` bytes of NVRAM; `clear` of a later operation may name it by `clear_id`.
    NvClear,
    /// Begins the lookup of the owners of a victim's pages: later GC operations wait until the
    /// scans recorded since `LookupBegin` have completed.
    LookupBegin,
    /// The end of a lookup.
    LookupEnd,
    /// Takes no time; the command waits for the operations of `after`.
    Wait,
}

impl OpKind {
    /// Returns true if `clear_id` is the operation's own name; otherwise the operation waits for it.
    #[inline(always)]
    pub fn is_named(self) -> bool {
        matches!(self, Self::NvClear | Self::NvMark | Self::Erase)
    }
}

/// What the correction of a page's bit errors took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This number of retries; 0 on flash without bit errors.
    Retries(u8),
    /// All retries and soft decoding.
    Soft,
    /// All retries and soft decoding, and the page is still wrong.
    Failed,
}

/// One operation on the media, as charged by the timing model.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The kind, which determines the resource used: a die, a channel, the NVRAM's port.
    pub kind: OpKind,
    /// Its purpose.
    pub purpose: Purpose,
    /// Die, for flash operations on one die.
    pub die: u16,
    /// Pages or bytes; for `CopyRow` the number of the first page read. For `Read`, the pages of 4 KiB that leave the die if
    /// those of a larger indirection unit are not all wanted, else 0. For `Program`, 1 in SLC mode, else 0.
    pub amount: u32,
    /// The flash page, for `Read`, `ReadTable` and `Program`; for `CopyRow` the first one programmed, for `Erase` the block's
    /// first.
    pub page: Ppn,
    /// For `CopyRow`, the pages read: bit n stands for page `amount` + n, bit 0 is set.
    pub sources: u64,
    /// True if it waits for all earlier operations: `After::all`.
    pub after_all: bool,
    /// True if it waits for the fence: `After::fence`.
    pub after_fence: bool,
    /// True if it waits for the stores of its command: `After::OWN_STORES`.
    pub after_own: bool,
    /// For `Read`, the correction of its bit errors.
    pub outcome: ReadOutcome,
    /// First page of `After::pages`, or `NO_PAGE`.
    pub after_page: Ppn,
    /// Pages of `After::pages`, or 0.
    pub after_pages: u16,
    /// `After::clear` of this operation; for `NvClear` and `Erase` its own ID, which several erases
    /// may share (it completes with the last of them). IDs only grow. 0 is none.
    pub clear_id: ClearId,
}

/// Marks an operation that names no page.
pub const NO_PAGE: Ppn = Ppn(u32::MAX);

impl Op {
    /// An operation with only a kind, a purpose and its predecessors.
    #[inline]
    pub fn new(kind: OpKind, purpose: Purpose, after: After) -> Self {
        Self {
            kind,
            purpose,
            die: 0,
            amount: 0,
            page: NO_PAGE,
            sources: 0,
            after_all: after.all,
            after_fence: after.fence,
            after_own: after.own,
            outcome: ReadOutcome::Retries(0),
            after_page: after.page,
            after_pages: after.pages,
            clear_id: after.clear,
        }
    }
}
