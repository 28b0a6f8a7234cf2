//! Pages that collection copies, as far as they have come: runs, and runs whose pages cross the channel at once.
//!
//! Invariant: of a run's pages, those in the buffer are the first of those that have arrived. Absent: what happens to
//! them (`copies`, `crossings`).

use remap_ssd_media::Ppn;
use remap_ssd_media::op::NO_PAGE;

/// The pages of a run.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// The first page that is read: bit n of `sources` stands for page `from` + n.
    pub from: Ppn,
    pub sources: u64,
    /// The first copy; the others follow it.
    pub to: Ppn,
    /// Number of pages, of those that have crossed the channel, and of those that are in the buffer.
    pub count: u16,
    pub arrived: u16,
    pub entered: u16,
    /// The die to whose buffer they go.
    pub die: u16,
    pub crossing: Crossing,
    /// Something waits for one of its pages, or has.
    pub is_awaited: bool,
    /// Planes with pages, one bit each.
    pub planes: u8,
}

impl Run {
    /// Marks the absence of a run.
    pub(super) const ABSENT: Self = Self {
        from: NO_PAGE,
        sources: 0,
        to: NO_PAGE,
        count: 0,
        arrived: 0,
        entered: 0,
        die: 0,
        crossing: Crossing::NONE,
        is_awaited: false,
        planes: 0,
    };

    /// Pages enter the buffer; returns the index of the first one.
    pub(super) fn enter(&mut self, pages: u16) -> u16 {
        self.entered += pages;
        self.entered - pages
    }

    /// True if only one page of 4 KiB is read.
    pub(super) fn is_single(&self) -> bool {
        self.count == 1
    }

    /// The page from which the copy at `index` is read.
    pub(super) fn source(&self, index: u16) -> Ppn {
        let mut left = self.sources;
        for _ in 0..index {
            left &= left - 1;
        }
        Ppn(self.from.0 + left.trailing_zeros())
    }
}

/// What an operation waits for.
#[derive(Clone, Copy)]
pub(super) enum Before {
    Nothing,
    /// The end of a node.
    End(u32),
    /// A page of a run.
    Page(u32, PageStep),
}

/// A step of a page of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PageStep {
    /// It has crossed the channel.
    Crosses(u16),
    /// It is in the buffer.
    Enters(u16),
}

/// What has happened: all events before `now`, and those at `now` of leaves below `leaves`.
#[derive(Clone, Copy, Default)]
pub(super) struct Past {
    now: u64,
    leaves: usize,
}

/// Pages of a run that cross at once.
#[derive(Clone, Copy)]
pub(super) struct Crossing {
    /// When the first one began, and how long each takes.
    pub since: u64,
    pub page_ns: u64,
    /// The leaf of their channel.
    pub channel: u32,
    /// Number of pages, and of those that have arrived.
    pub pages: u16,
    pub arrived: u16,
}

impl Crossing {
    /// No pages.
    pub(super) const NONE: Self = Self {
        since: 0,
        page_ns: 0,
        channel: 0,
        pages: 0,
        arrived: 0,
    };

    /// True if there are pages that cross.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.pages > 0
    }

    /// When the next page has crossed, and the leaf of its channel.
    pub(super) fn next(&self) -> (u64, u32) {
        let pages = u64::from(self.arrived) + 1;
        (self.since + pages * self.page_ns, self.channel)
    }

    /// Pages that have crossed but have not arrived, without the last one.
    pub(super) fn due(&self, past: Past) -> u16 {
        let time = past.now - self.since;
        let mut crossed = time / self.page_ns;
        if crossed * self.page_ns == time && self.channel as usize >= past.leaves {
            crossed = crossed.saturating_sub(1);
        }
        crossed.min(u64::from(self.pages) - 1) as u16 - self.arrived
    }
}

/// Runs whose pages cross at once.
#[derive(Default)]
pub(super) struct Crossings {
    pub past: Past,
    /// By the die to whose buffer they go.
    pub runs: Vec<Vec<u32>>,
    /// By die: nothing arrives before this time.
    pub next: Vec<u64>,
}

impl Crossings {
    pub(super) fn new(dies: usize) -> Self {
        Self {
            past: Past::default(),
            runs: vec![Vec::new(); dies],
            next: vec![u64::MAX; dies],
        }
    }

    /// All events until `now` of leaves below `leaves` have happened.
    #[inline]
    pub(super) fn passes(&mut self, now: u64, leaves: usize) {
        if now > self.past.now {
            self.past = Past { now, leaves };
        } else {
            self.past.leaves = self.past.leaves.max(leaves);
        }
    }

    /// True if pages may have crossed the channel to a die that have not arrived.
    #[inline]
    pub(super) fn may_arrive(&self, die: u16) -> bool {
        self.next[usize::from(die)] <= self.past.now
    }

    pub(super) fn remove(&mut self, die: u16, run: u32) {
        self.runs[usize::from(die)].retain(|other| *other != run);
    }
}
