//! Page allocation: the open superblock of each stream.
//!
//! Invariant: pages are allocated in order, skipping the head, holes left by a power cut first.
//! Absent: which superblock is opened next (`open`).

use super::{Stream, SuperblockState, Superblocks};
use crate::config::Config;
use crate::config::guard::Guard;
use crate::dies::DieMask;
use remap_ssd_media::{After, Geometry, Lpn, Oob, PageSlot, Ppn, SbId};
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
    /// Next offset to allocate, and its row and die. In SLC mode the next place; row and die are unused.
    pub next: u32,
    pub row: u32,
    pub die: u32,
    /// The offset, or place, after the page that was allocated last; 0 if none was.
    pub last_end: u32,
    /// First offset of the tail's word lines, or its place.
    pub end: u32,
    /// Page offset of the head.
    pub head: u32,
    /// Excluded blocks.
    pub skipped: DieMask,
    /// Offsets below `next` that a power cut left unprogrammed, in order.
    pub holes: VecDeque<u32>,
}

impl OpenSuperblock {
    /// Moves row and die on by pages that follow each other, at most to the end of a row of dies.
    #[inline(always)]
    fn advance(&mut self, pages: u32, geometry: &Geometry) {
        if geometry.stripe() > 1 {
            self.row = geometry.row_of_offset(self.next);
            self.die = geometry.die_of_offset(self.next);
            return;
        }
        self.die += pages;
        if self.die == geometry.dies() {
            (self.die, self.row) = (0, self.row + 1);
        }
    }
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
    pub(super) fn rotate(&mut self, stream: Stream) {
        if self.geometry.groups() > 1 {
            self.rotate_groups(stream as usize);
        }
    }

    fn rotate_groups(&mut self, stream: usize) {
        self.turn_to(stream, (self.turn[stream] + 1) % self.geometry.groups());
    }

    fn turn_to(&mut self, stream: usize, group: u32) {
        // The open superblock of the group in turn is kept separate from the others, so that
        // devices with one group, nearly all, need no table lookup per page.
        let turn = self.turn[stream];
        self.waiting[stream][turn as usize] = self.open[stream].take();
        self.open[stream] = self.waiting[stream][group as usize].take();
        self.turn[stream] = group;
    }

    /// Returns true if LPNs name the dies to which their pages go.
    pub(crate) fn is_by_lpn(&self) -> bool {
        self.by_lpn
    }

    /// Allocates a page as `take` does, on the dies that its LPN names: pages of a word line have
    /// neighbouring LPNs, and the next ones another die. If these dies have no free superblock, the stream
    /// has one of others open in their place.
    #[inline(always)]
    pub(crate) fn take_for(&mut self, stream: Stream, lpn: Lpn) -> Option<AllocatedPage> {
        self.turn_for(stream, lpn);
        self.take(stream)
    }

    /// Turns to the dies that an LPN names, if it names any.
    #[inline(always)]
    pub(crate) fn turn_for(&mut self, stream: Stream, lpn: Lpn) {
        if self.by_lpn {
            let group = lpn.0 / self.geometry.stripe() % self.geometry.groups();
            self.turn_to(stream as usize, group);
        }
    }

    /// The open superblock that supplies the stream's next page.
    pub(crate) fn open(&self, stream: Stream) -> Option<&OpenSuperblock> {
        self.open[stream as usize].as_ref()
    }

    /// Pages that the open superblocks of a stream may still take.
    pub(crate) fn open_pages(&self, stream: Stream) -> u64 {
        let waiting = self.waiting[stream as usize].iter().flatten();
        self.open(stream)
            .into_iter()
            .chain(waiting)
            .map(|open| u64::from(open.end.saturating_sub(open.next)))
            .sum()
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
        loop {
            // Holes first: a block is programmed in row order, so a later page of that block would
            // be refused before them.
            let is_next = open.holes.is_empty();
            let (offset, row, die) = if is_next {
                if open.next >= open.end {
                    return None;
                }
                let taken = (open.next, open.row, open.die);
                open.next += 1;
                open.advance(1, &self.geometry);
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
            let is_of_head = offset == open.head
                || (is_next
                    && self.geometry.line_start(offset) == self.geometry.line_start(open.head));
            if is_of_head || open.skipped.has(die) {
                continue;
            }

            open.last_end = offset + 1;
            let (sb, incarnation, head) = (open.sb, open.incarnation, open.head);
            let (ppn, block) = (self.geometry.page(sb, offset), self.geometry.block(sb, die));
            let slot = PageSlot {
                ppn,
                block,
                row,
                die,
            };

            if self.geometry.stripe() == 1 {
                self.rotate(stream);
            } else {
                self.go_through_line(stream, sb, offset);
            }
            return Some(AllocatedPage {
                slot,
                sb,
                incarnation,
                after: self.after_head(sb, row, head),
            });
        }
    }

    /// Notes that a word line is begun with a page, or goes on to the next dies after its last one: its pages stay together.
    pub(super) fn go_through_line(&mut self, stream: Stream, sb: SbId, offset: u32) {
        let pages = self.line_pages(sb);
        if let Some(lines) = &mut self.filled
            && offset.is_multiple_of(pages)
        {
            lines.begin(sb);
        }
        if (offset + 1).is_multiple_of(pages) {
            self.rotate(stream);
        }
    }

    /// The page that `take` allocates next, unless it fills a hole.
    pub(crate) fn next_page(&self, stream: Stream) -> Option<Ppn> {
        let open = self.open(stream).filter(|open| open.holes.is_empty())?;
        let is_left_out = |offset: &u32| {
            self.geometry.line_start(*offset) == self.geometry.line_start(open.head)
                || open.skipped.has(self.geometry.die_of_offset(*offset))
        };
        let offset = (open.next..open.end).find(|offset| !is_left_out(offset))?;
        Some(self.geometry.page(open.sb, offset))
    }

    /// Allocates up to `len` consecutive pages of one row, or of one word line if pages share them, up to the first
    /// one that must be skipped; `None` if the next page needs `take`.
    #[inline(always)]
    pub(crate) fn take_row(&mut self, stream: Stream, len: u32) -> Option<(AllocatedPage, u32)> {
        let open = self.open[stream as usize].as_mut()?;
        let stripe = self.geometry.stripe();
        let (row_left, is_apart) = if stripe == 1 {
            (self.geometry.dies() - open.die, false)
        } else {
            // The block's first page waits for the head alone, and no data share a word line with the head.
            let line = self.geometry.line_start(open.next);
            let is_of_head = line == self.geometry.line_start(open.head);
            (line + stripe - open.next, open.row == 0 || is_of_head)
        };
        // Up to the end of the row, the tail's place or the head: only consecutive data pages.
        let mut len = len.min(row_left).min(open.end.saturating_sub(open.next));
        if open.head >= open.next {
            len = len.min(open.head - open.next);
        }

        let is_plain = open.skipped.is_empty() && open.holes.is_empty();
        if len == 0 || !is_plain || is_apart {
            return None;
        }

        let (row, die) = (open.row, open.die);
        let (ppn, block) = (
            self.geometry.page(open.sb, open.next),
            self.geometry.block(open.sb, die),
        );
        open.next += len;
        open.last_end = open.next;
        open.advance(len, &self.geometry);

        let slot = PageSlot {
            ppn,
            block,
            row,
            die,
        };

        let (sb, incarnation, head) = (open.sb, open.incarnation, open.head);
        if let Some(lines) = &mut self.filled
            && row_left == stripe
        {
            lines.begin(sb);
        }
        // The pages of a word line stay together.
        if stripe == 1 || len == row_left {
            self.rotate(stream);
        }
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
    pub(super) fn after_head(&self, sb: SbId, row: u32, head: u32) -> After {
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
            let (dies, stripe) = (self.geometry.dies(), self.geometry.stripe());
            // In rows of word lines.
            let end = open.end / (dies * stripe);
            let rows = end.saturating_sub(open.next.div_ceil(dies * stripe));
            let good = open.skipped.count_others(dies);
            (rows * good * stripe).saturating_sub(stripe)
        })
    }

    /// Pages that `take` will allocate before the open superblock is full.
    pub(crate) fn left(&self, stream: Stream) -> u32 {
        self.open(stream).map_or(0, |open| {
            let (dies, stripe) = (self.geometry.dies(), self.geometry.stripe());
            let (next, end) = (open.next.min(open.end), open.end);
            // A die has one word line per row of them, so its pages below an offset are counted by rows.
            let below = |offset: u32, die: u32| {
                let (line, rest) = (offset / stripe, offset % stripe);
                let begun = if line % dies == die { rest } else { 0 };
                (line + dies - 1 - die) / dies * stripe + begun
            };
            let good = open.skipped.others(dies);
            let pages: u32 = good.map(|die| below(end, die) - below(next, die)).sum();

            let head = self.geometry.line_start(open.head);
            let of_head = (head + stripe).min(end).saturating_sub(head.max(next));
            (pages + open.holes.len() as u32).saturating_sub(of_head)
        })
    }
}
