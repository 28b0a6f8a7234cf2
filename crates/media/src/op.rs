//! The record of what the firmware asked of the media, for the timing model.
//!
//! Invariant: an operation starts after everything its [`After`] names has ended; the power rail
//! and the timing model read the same field, so a wait can be neither forgotten nor free. Absent:
//! durations.

use crate::geometry::Ppn;
use std::ops::Range;

/// Names one clearing of an NVRAM range, or the erases of one superblock, so that reuse can wait
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ClearId(pub u64);

/// What must be durable before an operation may begin. Small, because it travels with every
/// operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    clear: ClearId,
    page: Ppn,
    pages: u16,
    all: bool,
    fence: bool,
}

impl Default for After {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl After {
    /// Waits for nothing in particular.
    pub const NOTHING: Self = Self {
        clear: ClearId(0),
        page: NO_PAGE,
        pages: 0,
        all: false,
        fence: false,
    };
    /// Waits for everything issued before.
    pub const ALL: Self = Self {
        all: true,
        ..Self::NOTHING
    };
    /// Every NVRAM store issued before.
    pub const FENCE: Self = Self {
        fence: true,
        ..Self::NOTHING
    };
    /// The program of a page, and of the page itself only.
    #[inline]
    pub const fn page(ppn: Ppn) -> Self {
        Self::pages(ppn, 1)
    }
    /// The programs of `count` pages from `first` on, and of these pages only.
    #[inline]
    pub const fn pages(first: Ppn, count: u16) -> Self {
        Self {
            page: first,
            pages: count,
            ..Self::NOTHING
        }
    }
    /// A clearing of an NVRAM range, or the erases of a superblock.
    #[inline]
    pub const fn clear(id: ClearId) -> Self {
        Self {
            clear: id,
            ..Self::NOTHING
        }
    }
    /// Both. Of two runs of pages or two clearings only one can be named.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        // An operation has room for one name of each kind. A caller that needs two waits for more:
        // a fence, or everything.
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
        }
    }
    /// Whether it waits for everything.
    #[inline]
    pub fn is_all(self) -> bool {
        self.all
    }
    /// Whether it waits for every store.
    #[inline]
    pub fn is_fence(self) -> bool {
        self.fence
    }
    /// Pages, from the first to the one after the last.
    #[inline]
    pub fn named_pages(self) -> Range<u32> {
        self.page.0..self.page.0 + u32::from(self.pages)
    }
    /// The clearing that is waited for, if one is.
    #[inline]
    pub fn named_clear(self) -> Option<ClearId> {
        (self.clear.0 != 0).then_some(self.clear)
    }
}

/// On whose behalf an operation is done. Only the first kind delays a command's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// A host command depends on it: it is acknowledged only once this has ended.
    Host,
    /// Garbage collection or wear levelling.
    Gc,
    /// Metadata of the firmware itself.
    Meta,
}

/// Kinds of operations on the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Read one flash page of die `die`.
    Read,
    /// Program one flash page of die `die`.
    Program,
    /// GC's copies to consecutive pages of one row, from `page` on die `die` on: for each of
    /// `sources`, read that page, then program the next one. A row is one record, since most of
    /// what a device in steady state does is this.
    CopyRow,
    /// Erase one block of die `die`.
    Erase,
    /// Read `amount` flash pages spread evenly over all dies.
    ScanFlash,
    /// Read `amount` bytes of NVRAM.
    NvRead,
    /// Write `amount` bytes of NVRAM.
    NvWrite,
    /// Zero `amount` bytes of NVRAM; `clear` of a later operation may name it by `clear_id`.
    NvClear,
    /// The owners of a victim's pages are being looked up: what follows for GC waits until the
    /// scans recorded since `LookupBegin` have ended.
    LookupBegin,
    /// The end of a lookup.
    LookupEnd,
    /// Takes no time itself; the command waits for what `after` names.
    Wait,
}

/// One operation on the media, as charged by the timing model.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What is done, which decides what it occupies: a die, a channel, the NVRAM's port.
    pub kind: OpKind,
    /// For whom it is done.
    pub purpose: Purpose,
    /// Die, for flash operations on one die.
    pub die: u16,
    /// Pages or bytes; for `CopyRow` the number of the first page that is read.
    pub amount: u32,
    /// The flash page, for `Read` and `Program`; for `CopyRow` the first one programmed.
    pub page: Ppn,
    /// For `CopyRow`, the pages read: bit n stands for page `amount` + n, bit 0 is set.
    pub sources: u64,
    /// Whether it waits for everything before: `After::all`.
    pub after_all: bool,
    /// Whether it waits for the fence: `After::fence`.
    pub after_fence: bool,
    /// First page of `After::pages`, or `NO_PAGE`.
    pub after_page: Ppn,
    /// Pages of `After::pages`, or 0.
    pub after_pages: u16,
    /// `After::clear` of this operation; for `NvClear` and `Erase` its own name, which several
    /// erases may share (it ends when the last of them does). Names only grow. 0 is none.
    pub clear_id: ClearId,
}

/// Stands where an operation names no page.
pub const NO_PAGE: Ppn = Ppn(u32::MAX);

impl Op {
    /// An operation with nothing but a kind, a purpose and what it waits for.
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
            after_page: after.page,
            after_pages: after.pages,
            clear_id: after.clear,
        }
    }
}
