//! Page allocation: the open superblock of each stream.
//!
//! Invariant: pages are allocated in order, skipping the head, holes left by a power cut first.
//! Absent: which superblock is opened next (`open`).

use super::{Stream, SuperblockState, Superblocks};
use crate::config::Config;
use crate::config::guard::Guard;
use crate::dies::DieMask;
use remap_ssd_media::{After, Lpn, Oob, PageSlot, Ppn, SbId};
use std::collections::VecDeque;

impl Config {
    /// The stream for pages moved to a zone.
    pub(crate) fn gc_stream(&self, zone: usize) -> Stream {
        if self.is_hybrid() {
            // Pages that move individually go to the stream of pages written individually.
            [Stream::Host, Stream::Gc][zone]
        } else if zone == 0 && self.gc_joins_host {
            Stream::Host
        } else {
            Stream::ZONES[zone]
        }
    }

    /// The streams that collection writes to.
    pub(crate) fn gc_streams(&self) -> Vec<Stream> {
        let zones = self.gc_policy.zones() + usize::from(self.is_hybrid());
        (0..zones).map(|zone| self.gc_stream(zone)).collect()
    }
}

/// A page allocated for a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocatedPage {
    /// Flash page, block and die.
    pub slot: PageSlot,
    pub sb: SbId,
    /// Incarnation of its superblock.
    pub incarnation: u32,
    /// Ordering constraint of its program.
    pub after: After,
}

impl AllocatedPage {
    #[inline(always)]
    pub(crate) fn ppn(&self) -> Ppn {
        self.slot.ppn
    }
    #[inline(always)]
    pub(crate) fn oob(&self, lpn: Lpn, wsn: u64) -> Oob {
        Oob::new(lpn, wsn, self.incarnation)
    }
}

/// A superblock that a stream is filling.
#[derive(Clone, Debug)]
pub(crate) struct OpenSuperblock {
    /// Superblock number.
    pub sb: SbId,
    pub incarnation: u32,
    /// Next offset to allocate, and its row and die.
    pub next: u32,
    pub row: u32,
    pub die: u32,
    /// First offset of the tail's place.
    pub end: u32,
    /// Page offset of the head.
    pub head: u32,
    /// Excluded blocks.
    pub skipped: DieMask,
    /// Offsets below `next` that a power cut left unprogrammed, in order.
    pub holes: VecDeque<u32>,
}

impl Superblocks {
    /// Returns true if the stream has an open superblock in this one's group of dies.
    pub(crate) fn is_open_beside(&self, stream: Stream, sb: SbId) -> bool {
        let (group, stream) = (self.geometry.group(sb), stream as usize);
        let slot = if group == self.turn[stream] {
            &self.open[stream]
        } else {
            &self.waiting[stream][group as usize]
        };
        slot.is_some()
    }

    /// Switches to the next group of dies for a stream's next page.
    #[inline(always)]
    fn rotate(&mut self, stream: Stream) {
        if self.geometry.groups() > 1 {
            self.rotate_groups(stream as usize);
        }
    }

    fn rotate_groups(&mut self, stream: usize) {
        // The open superblock of the group in turn is kept separate from the others, so that
        // devices with one group, nearly all, need no table lookup per page.
        let turn = self.turn[stream] as usize;
        let next = (turn + 1) % self.geometry.groups() as usize;
        self.waiting[stream][turn] = self.open[stream].take();
        self.open[stream] = self.waiting[stream][next].take();
        self.turn[stream] = next as u32;
    }

    /// The open superblock that supplies the stream's next page.
    pub(crate) fn open(&self, stream: Stream) -> Option<&OpenSuperblock> {
        self.open[stream as usize].as_ref()
    }

    /// Resumes filling a superblock that recovery found open.
    pub(crate) fn resume(&mut self, stream: Stream, open: OpenSuperblock) {
        assert!(!self.is_open_beside(stream, open.sb));
        self.get_mut(open.sb).state = SuperblockState::Open;
        let (group, stream) = (self.geometry.group(open.sb), stream as usize);
        if group == self.turn[stream] {
            self.open[stream] = Some(open);
        } else {
            self.waiting[stream][group as usize] = Some(open);
        }
    }

    /// Allocates the next page of a stream's open superblock, with the constraint of its program;
    /// `None` if the superblock is full or none is open.
    #[inline(always)]
    pub(crate) fn take(&mut self, stream: Stream) -> Option<AllocatedPage> {
        let open = self.open[stream as usize].as_mut()?;
        let dies = self.geometry.dies();
        loop {
            // Holes first: a block is programmed in row order, so a later page of that block would
            // be refused before them.
            let (offset, row, die) = if open.holes.is_empty() {
                if open.next >= open.end {
                    return None;
                }
                let taken = (open.next, open.row, open.die);
                open.next += 1;
                open.die += 1;
                if open.die == dies {
                    (open.die, open.row) = (0, open.row + 1);
                }
                taken
            } else {
                let offset = open.holes.pop_front().expect("not empty");
                (
                    offset,
                    self.geometry.row_of_offset(offset),
                    self.geometry.die_of_offset(offset),
                )
            };

            // `end` excludes the tail's place; the head and excluded blocks are among the rest.
            if offset == open.head || open.skipped.has(die) {
                continue;
            }

            let (sb, incarnation, head) = (open.sb, open.incarnation, open.head);
            let (ppn, block) = (self.geometry.page(sb, offset), self.geometry.block(sb, die));
            let slot = PageSlot {
                ppn,
                block,
                row,
                die,
            };

            self.rotate(stream);
            return Some(AllocatedPage {
                slot,
                sb,
                incarnation,
                after: self.after_head(sb, row, head),
            });
        }
    }

    /// The page that `take` allocates next, unless it fills a hole.
    pub(crate) fn next_page(&self, stream: Stream) -> Option<Ppn> {
        let open = self.open(stream).filter(|open| open.holes.is_empty())?;
        let is_left_out = |offset: &u32| {
            *offset == open.head || open.skipped.has(self.geometry.die_of_offset(*offset))
        };
        let offset = (open.next..open.end).find(|offset| !is_left_out(offset))?;
        Some(self.geometry.page(open.sb, offset))
    }

    /// Allocates up to `len` consecutive pages of one row, up to the first one that must be skipped;
    /// `None` if the next page needs `take`.
    #[inline(always)]
    pub(crate) fn take_row(&mut self, stream: Stream, len: u32) -> Option<(AllocatedPage, u32)> {
        let open = self.open[stream as usize].as_mut()?;
        let dies = self.geometry.dies();
        // Up to the end of the row, the tail's place or the head: only consecutive data pages.
        let mut len = len
            .min(dies - open.die)
            .min(open.end.saturating_sub(open.next));
        if open.head >= open.next {
            len = len.min(open.head - open.next);
        }

        if len == 0 || !open.skipped.is_empty() || !open.holes.is_empty() {
            return None;
        }

        let (row, die) = (open.row, open.die);
        let (ppn, block) = (
            self.geometry.page(open.sb, open.next),
            self.geometry.block(open.sb, die),
        );
        open.next += len;
        open.die += len;
        if open.die == dies {
            (open.die, open.row) = (0, row + 1);
        }

        let slot = PageSlot {
            ppn,
            block,
            row,
            die,
        };

        let (sb, incarnation, head) = (open.sb, open.incarnation, open.head);
        self.rotate(stream);
        Some((
            AllocatedPage {
                slot,
                sb,
                incarnation,
                after: self.after_head(sb, row, head),
            },
            len,
        ))
    }

    /// A block's first page waits for the head, its others for the pages before them in the block:
    /// if a page of a superblock is readable, so is its head.
    #[inline(always)]
    fn after_head(&self, sb: SbId, row: u32, head: u32) -> After {
        if row == 0 && self.guards.has(Guard::HeadBeforeData) {
            After::page(self.geometry.page(sb, head))
        } else {
            After::NOTHING
        }
    }

    /// Lower bound of the pages that `take` can still allocate: whole rows of good blocks, minus
    /// the head.
    pub(crate) fn room(&self, stream: Stream) -> u32 {
        self.open(stream).map_or(0, |open| {
            let dies = self.geometry.dies();
            let rows = self.geometry.row_of_offset(open.end)
                - self
                    .geometry
                    .row_of_offset(open.next + dies - 1)
                    .min(self.geometry.row_of_offset(open.end));
            let good = open.skipped.count_others(dies);
            (rows * good).saturating_sub(1)
        })
    }

    /// Pages that `take` will allocate before the open superblock is full.
    pub(crate) fn left(&self, stream: Stream) -> u32 {
        self.open(stream).map_or(0, |open| {
            let (dies, next, end) = (self.geometry.dies(), open.next.min(open.end), open.end);
            // A die has one page per row, so its pages below an offset are counted by rows.
            let below = |offset: u32, die: u32| (offset + dies - 1 - die) / dies;
            let good = open.skipped.others(dies);
            let pages: u32 = good.map(|die| below(end, die) - below(next, die)).sum();
            (pages + open.holes.len() as u32)
                .saturating_sub(u32::from((next..end).contains(&open.head)))
        })
    }
}
