//! Runs: remaps of consecutive pages that are gathered into one extent.
//!
//! Invariants: each LPN occurs once; the pages are consecutive in one superblock. A host's run has
//! consecutive numbers, or the number of its atomic command for all pages, so no other witness of
//! its LPNs has a number in between. Absent: where and when it is stored.

use super::extent::{PAGES_MAX, RemapExtent};
use crate::contract::Remapping;
use remap_ssd_media::{Lpn, Purpose, SbId};

/// Numbering of a run's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunNumbers {
    /// Consecutive, in the order of arrival; the value is the last one.
    Ticks(u64),
    /// All have the number of an atomic command.
    Command,
    /// Garbage collection gives all of them a new number: they are the mappings in force.
    Renewed,
}

/// Remaps of consecutive pages that are gathered into one entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemapRun {
    /// Superblock of the remapped pages.
    pub(crate) sb: SbId,
    /// Whether the host or garbage collection remaps.
    pub(crate) purpose: Purpose,
    extent: RemapExtent,
    descending: bool,
    numbers: RunNumbers,
}

impl RemapRun {
    /// Begins a run with a remap of a host, or with a reference moved by garbage collection.
    pub(super) fn begin(next: &Remapping, sb: SbId, offset: u32, purpose: Purpose) -> Self {
        let moved = purpose == Purpose::Gc;
        let numbers = match (moved, next.atomic) {
            (true, _) => RunNumbers::Renewed,
            (false, Some(_)) => RunNumbers::Command,
            (false, None) => RunNumbers::Ticks(next.wsn),
        };

        // The deallocation of a moved reference's source is already recorded.
        let source = next.source.filter(|_| !moved);
        let one_number = numbers != RunNumbers::Ticks(next.wsn);
        let extent = RemapExtent {
            lpn: next.lpn,
            offset,
            pages: 1,
            wsn: next.wsn,
            one_number,
            source,
        };

        Self {
            sb,
            purpose,
            extent,
            descending: false,
            numbers,
        }
    }

    /// Returns true if this remap continues the run at its end or in front of its beginning.
    pub(super) fn continues(&self, next: &Remapping, sb: SbId, offset: u32) -> bool {
        let RemapExtent { pages, wsn, .. } = self.extent;
        let in_time = match self.numbers {
            RunNumbers::Ticks(newest) => next.atomic.is_none() && next.wsn == newest + 1,
            RunNumbers::Command => next.atomic.is_some() && next.wsn == wsn,
            RunNumbers::Renewed => true,
        };
        in_time
            && sb == self.sb
            && pages < PAGES_MAX
            && (self.follows(next, offset) || self.precedes(next, offset))
    }

    /// The source to record; `None` for a reference moved by garbage collection.
    fn source_of(&self, next: &Remapping) -> Option<Lpn> {
        next.source.filter(|_| self.numbers != RunNumbers::Renewed)
    }

    fn follows(&self, next: &Remapping, offset: u32) -> bool {
        let RemapExtent {
            lpn, pages, source, ..
        } = self.extent;
        !self.descending
            && next.lpn == lpn.offset(pages)
            && offset == self.extent.offset + pages
            && self.source_of(next) == source.map(|source| source.offset(pages))
    }

    fn precedes(&self, next: &Remapping, offset: u32) -> bool {
        let RemapExtent {
            lpn, pages, source, ..
        } = self.extent;
        (self.descending || pages == 1)
            && next.lpn.offset(1) == lpn
            && offset + 1 == self.extent.offset
            && self.source_of(next).map(|source| source.offset(1)) == source
    }

    /// Adds a remap that continues the run.
    pub(super) fn add(&mut self, next: &Remapping, offset: u32) {
        if self.follows(next, offset) {
            self.extent.pages += 1;
        } else {
            // From the second page on the direction is fixed: a run in both directions would mix up
            // its numbers.
            self.descending = true;
            let source = self.extent.source.map(|source| source.back(1));
            self.extent = RemapExtent {
                lpn: next.lpn,
                offset,
                pages: self.extent.pages + 1,
                source,
                ..self.extent
            };
        }

        if let RunNumbers::Ticks(newest) = &mut self.numbers {
            *newest = next.wsn;
        }
    }

    /// The extent of the run; `tick` issues numbers.
    pub(super) fn close(&self, tick: impl FnOnce() -> u64) -> RemapExtent {
        match self.numbers {
            RunNumbers::Renewed if self.extent.pages > 1 => RemapExtent {
                wsn: tick(),
                ..self.extent
            },
            // Numbers descend from page to page: all pages get the newest. Like their own, it is
            // newer than every earlier witness of these LPNs and older than every later one.
            RunNumbers::Ticks(newest) if self.descending => RemapExtent {
                wsn: newest,
                one_number: true,
                ..self.extent
            },
            _ => self.extent,
        }
    }
}
