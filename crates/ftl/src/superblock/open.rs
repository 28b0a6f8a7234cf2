//! Opening a superblock with its head, and closing it with its tail (FAST'21 §4.5).
//!
//! Invariants: if a page of a superblock is readable, so is its head; a tail vouches for every page
//! before it. Absent: how recovery uses them (`recovery`).

use super::free::FreePool;
use super::{OpenSuperblock, Owners, Stream, SuperblockState, Superblocks};
use crate::clock::WsnClock;
use crate::config::guard::Guard;
use crate::policy::Wear;
use remap_ssd_media::{After, ClearId, Media, Oob, Purpose, SbId, StoredPage};
use std::collections::VecDeque;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Head metadata, the first page of a superblock (FAST'21 §4.5).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct SuperblockHead {
    /// `SuperblockHead::MAGIC`; otherwise the page is not a head.
    pub magic: u32,
    /// Superblock number, against misplaced heads.
    pub superblock: u32,
    /// WSN when it was opened: orders superblocks by age.
    pub wsn: u64,
    /// Number of this incarnation; its low bits are in every OOB.
    pub incarnation: u32,
    /// Erases of this superblock so far.
    pub erase_count: u32,
    /// Stream that fills it ("type").
    pub stream: u8,
    /// Zeroes up to a multiple of 8 bytes.
    pub padding: [u8; 7],
}

const _: () = assert!(size_of::<SuperblockHead>() == 32);

impl SuperblockHead {
    /// The letters "RSHD", in little endian.
    pub(crate) const MAGIC: u32 = 0x4448_5352;
}

/// Whether a head waits for the erases of its superblock, besides those of the reserve.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeadOrder {
    /// It need not: pages say their incarnation.
    Any,
    /// It does: the mode of the pages may have changed, or an unreadable page counts.
    AfterErases,
}

impl Superblocks {
    /// Opens the least worn free superblock for a stream; returns false if none is free. `clock`
    /// issues numbers.
    pub(crate) fn open_next(
        &mut self,
        media: &mut Media,
        stream: Stream,
        clock: &mut WsnClock,
    ) -> bool {
        self.open_worn(media, stream, Wear::Least, clock)
    }

    /// Opens a superblock for a log whose unreadable pages count as damage. Its head lands after its erases, so that no
    /// page under the head is of an earlier incarnation: one that was torn then cannot tell that it is.
    pub(crate) fn open_erased_log(&mut self, media: &mut Media, clock: &mut WsnClock) -> bool {
        self.open_as(
            media,
            Stream::Log,
            Wear::Least,
            HeadOrder::AfterErases,
            clock,
        )
    }

    /// Opens the least or the most worn free superblock for a stream.
    pub(crate) fn open_worn(
        &mut self,
        media: &mut Media,
        stream: Stream,
        wear: Wear,
        clock: &mut WsnClock,
    ) -> bool {
        let order = if self.is_slc_dynamic() {
            HeadOrder::AfterErases
        } else {
            HeadOrder::Any
        };
        self.open_as(media, stream, wear, order, clock)
    }

    fn open_as(
        &mut self,
        media: &mut Media,
        stream: Stream,
        wear: Wear,
        order: HeadOrder,
        clock: &mut WsnClock,
    ) -> bool {
        assert!(self.open[stream as usize].is_none());
        while let Some(sb) = self.pick(stream, wear) {
            // A superblock that is marked clean but is not (a damaged image) is erased like one
            // that is not marked.
            let is_erased = |die| media.next_row(self.geometry.block(sb, die)) == 0;
            let bad = self.get(sb).bad;
            let clean = bad.others(self.geometry.dies()).all(is_erased);
            if !self.get(sb).life.clean() || !clean {
                self.erase(media, sb, clock);
                if self.get(sb).state == SuperblockState::Retired {
                    continue;
                }
            }

            // Removed from the pool before the head is programmed: if no block takes a head,
            // `retire` must not remove it again.
            self.leave_pool(sb);
            self.get_mut(sb).state = SuperblockState::Open;
            self.set_slc(media, sb, stream == Stream::Slc);
            if let Some(head) = self.write_head(media, sb, stream, order, clock) {
                let skipped = self.skipped(sb);
                let end = self
                    .data_end(sb, skipped)
                    .expect("a block has taken the head");
                let capacity = self.capacity(sb, skipped);
                self.owners[sb.0 as usize] = Owners::default();
                let entry = self.get_mut(sb);
                (entry.capacity, entry.head) = (capacity, head);
                self.open[stream as usize] = Some(OpenSuperblock {
                    sb,
                    incarnation: self.get(sb).life.incarnation(),
                    next: 0,
                    row: 0,
                    die: 0,
                    last_end: 0,
                    end,
                    head,
                    skipped,
                    holes: VecDeque::new(),
                });

                return true;
            }

            // No block can take a head any more, at least in this mode.
            self.set_slc(media, sb, false);
            if self.capacity(sb, self.skipped(sb)) > 0 {
                self.get_mut(sb).state = SuperblockState::Free;
                self.join_pool(sb);
                return false;
            }
            self.retire(sb);
        }

        false
    }

    /// The free superblock that a stream opens next.
    fn pick(&self, stream: Stream, wear: Wear) -> Option<SbId> {
        if stream == Stream::Slc && self.slc_free() == 0 {
            return None;
        }
        let picked = self.pool_of(stream).pick(wear, self.turn[stream as usize]);
        // With few good blocks a superblock may have room for data only where cells store all bits.
        let suits = |sb: &SbId| {
            let has_room = self.slc_capacity(self.skipped(*sb)) > 0;
            stream != Stream::Slc || (has_room && !self.would_stay_slc(*sb))
        };
        picked.filter(suits)
    }

    /// The free superblocks that a stream may open.
    fn pool_of(&self, stream: Stream) -> &FreePool {
        match stream {
            Stream::Slc if !self.is_slc_dynamic() => &self.slc_pool,
            _ => &self.pool,
        }
    }

    /// Constraint that keeps as many superblocks free as the reserve has, whatever a cut undoes. If
    /// a cut undid the erases of all free superblocks while those opened since are in use, nothing
    /// could be collected any more. Names of erases grow, and each erase waits for everything
    /// before it, so one name covers the older ones.
    fn reserve_is_free(&self) -> After {
        if !self.guards.has(Guard::ReserveStaysFree) {
            return After::NOTHING;
        }
        self.pool
            .erase_of(self.reserve)
            .map_or(After::NOTHING, After::clear)
    }

    /// The same, and the superblock's own erases. One name covers both.
    fn reserve_is_free_and_erased(&self, sb: SbId) -> After {
        let own = self.get(sb).erased;
        let reserve = self.reserve_is_free().named_clear().unwrap_or_default();
        match own.max(reserve) {
            ClearId(0) => After::NOTHING,
            last => After::clear(last),
        }
    }

    /// Programs the head with a new number, so that no earlier incarnation's metadata can be
    /// mistaken for this one's. Returns its offset.
    fn write_head(
        &mut self,
        media: &mut Media,
        sb: SbId,
        stream: Stream,
        order: HeadOrder,
        clock: &mut WsnClock,
    ) -> Option<u32> {
        // A head may wait for all stores, and these for pages in word lines that are not full.
        self.fill_lines(media);
        clock.tick();
        let incarnation = self.get(sb).life.incarnation();
        let entry = self.get_mut(sb);
        (entry.stream, entry.opened) = (stream, clock.now());

        let head = SuperblockHead {
            magic: SuperblockHead::MAGIC,
            superblock: sb.0,
            wsn: clock.now(),
            incarnation,
            erase_count: incarnation,
            stream: stream as u8,
            padding: [0; 7],
        };
        let oob = Oob::new(Oob::HEAD, clock.now(), incarnation);

        // Most heads need not wait for their superblock's erases: in each block the erase precedes the
        // programs, and a page left by a missing erase carries the previous incarnation's number.
        // 1. erases that keep the reserve free  2. the head. Cut before 2: this superblock is free
        // itself.
        // A superblock that is always in SLC mode is not of the reserve, and its opening leaves the reserve as it is.
        let mut after = match (stream, order) {
            (Stream::Slc, HeadOrder::Any) => After::NOTHING,
            (_, HeadOrder::AfterErases) => self.reserve_is_free_and_erased(sb),
            (_, HeadOrder::Any) => self.reserve_is_free(),
        };
        // Recovery looks for the head in the first block that is not bad: the bad masks must be
        // durable first.
        if !self.skipped(sb).is_empty() {
            after = after.and(After::FENCE);
        }

        while let Some(offset) = self.head_offset(sb, self.skipped(sb)) {
            let usable = self.filled_capacity(sb, self.skipped(sb)) > 0;
            if !usable {
                return None;
            }

            self.meta_programs += 1;
            let page = self.geometry.page(sb, offset);
            let stored = StoredPage::Meta(head.as_bytes().into());
            if media
                .program(page, oob, stored, Purpose::Meta, after)
                .is_ok()
            {
                let rest = offset + 1..offset + self.line_pages(sb);
                if self.pad(media, sb, rest, After::NOTHING) {
                    return Some(offset);
                }
            }
            // Recovery looks for the head in the first good block: the mask of failing blocks must
            // be durable first.
            self.fail_block(media, sb, self.geometry.die_of_offset(offset));
            after = after.and(After::FENCE);
        }
        None
    }

    /// Programs pads at offsets of a word line that is used for metadata. Returns false if a program
    /// failed.
    fn pad(&mut self, media: &mut Media, sb: SbId, offsets: Range<u32>, after: After) -> bool {
        let incarnation = self.get(sb).life.incarnation();
        offsets.into_iter().all(|offset| {
            self.meta_programs += 1;
            let oob = Oob::new(Oob::PAD, 0, incarnation);
            let page = self.geometry.page(sb, offset);
            let stored = StoredPage::Meta([].into());
            media
                .program(page, oob, stored, Purpose::Meta, after)
                .is_ok()
        })
    }

    /// Closes a stream's full superblock with its tail metadata: P2L and WSN of all its data pages.
    pub(crate) fn close(&mut self, media: &mut Media, stream: Stream) {
        let Some(open) = self.open[stream as usize].take() else {
            return;
        };
        self.get_mut(open.sb).state = SuperblockState::Closed;

        if self.is_in_last_cycle(open.sb) {
            let bad = self.get(open.sb).bad;
            self.blocks_worn += u64::from(bad.count_others(self.geometry.dies()));
        }

        if self.has_given_up_lines(media, open.sb) {
            return;
        }

        let after = self.tail_order(open.sb);
        let incarnation = self.get(open.sb).life.incarnation();
        let tail = self.tail_offsets(open.sb, self.skipped(open.sb));
        // The tail's word line is filled up before it.
        if let Some(first) = tail.first().copied() {
            let start = self.line_start_of(open.sb, first);
            if start < first && !self.is_next(media, open.sb, start) {
                return; // A block failed after its place was used: no tail.
            }
            if !self.pad(media, open.sb, start..first, after) {
                self.fail_block(media, open.sb, self.geometry.die_of_offset(start));
                return;
            }
        }
        for (index, offset) in tail.into_iter().enumerate() {
            let page = self.geometry.page(open.sb, offset);
            if !self.is_next(media, open.sb, offset) {
                return; // A block failed after its place was used: no tail.
            }

            self.meta_programs += 1;
            let oob = Oob::new(Oob::TAIL, index as u64 + 1, incarnation);
            // The media builds the records from the OOBs of the pages given by `first` and `len`,
            // so that a tail repeats them exactly.
            let first = index as u32 * self.tail_records;
            let len = self
                .tail_records
                .min(self.geometry.pages_per_superblock() - first);
            if media
                .program_tail(
                    page,
                    oob,
                    self.geometry.page(open.sb, first),
                    len,
                    self.extended,
                    after,
                )
                .is_err()
            {
                self.fail_block(media, open.sb, self.geometry.die_of_offset(offset));
                return;
            }
        }
    }

    /// What a tail waits for: 1. every data page, and the mask of failing blocks  2. tail pages. Cut before 2: recovery scans the OOB
    /// areas. A tail that landed first would vouch for pages that a cut left torn. Without the mask recovery would look for it
    /// elsewhere. If superblocks do not span all dies, one of many closes at a time, and waiting for all dies would stall each
    /// die again and again.
    fn tail_order(&self, sb: SbId) -> After {
        let pages = self.geometry.pages_per_superblock();
        match (
            self.guards.has(Guard::TailAfterData),
            self.geometry.groups(),
        ) {
            (false, _) => After::NOTHING,
            (true, 2..) if pages <= u32::from(u16::MAX) => {
                let data = After::pages(self.geometry.page(sb, 0), pages as u16);
                match self.get(sb).failing.is_empty() {
                    true => data,
                    false => data.and(After::FENCE),
                }
            }
            (true, _) => After::ALL,
        }
    }

    /// Returns true if a block that failed may have an incomplete word line whose pages do not count. A tail could
    /// not tell them from others.
    fn has_given_up_lines(&self, media: &Media, sb: SbId) -> bool {
        if self.is_slc(sb) {
            return false; // One operation programs a word line.
        }
        let word_line = self.geometry.word_line();
        let in_turn = word_line.unit_pages() < word_line.pages();
        let is_incomplete = |die| {
            let rows = media.next_row(self.geometry.block(sb, die));
            !rows.is_multiple_of(word_line.pages())
        };
        let failing = self.get(sb).failing;
        media.is_unprotected()
            && in_turn
            && (0..self.geometry.dies()).any(|die| failing.has(die) && is_incomplete(die))
    }

    /// Returns true if the page at an offset is the next one of its block.
    fn is_next(&self, media: &Media, sb: SbId, offset: u32) -> bool {
        let block = self.geometry.block(sb, self.geometry.die_of_offset(offset));
        media.next_row(block) == self.geometry.row_of_offset(offset)
    }

    /// Stops filling a superblock that is to be collected at once: it gets no tail.
    pub(crate) fn abandon(&mut self, sb: SbId) {
        // Without a tail, recovery scans it like an open one, until its erase marks it dead.
        for open in self
            .open
            .iter_mut()
            .chain(self.waiting.iter_mut().flatten())
        {
            if open.as_ref().is_some_and(|open| open.sb == sb) {
                *open = None;
            }
        }
        self.get_mut(sb).state = SuperblockState::Closed;
    }

    /// Closes the open superblock of a log: its pages describe themselves, so it has no tail.
    pub(crate) fn close_log(&mut self) {
        if let Some(open) = self.open[Stream::Log as usize].take() {
            self.get_mut(open.sb).state = SuperblockState::Closed;
        }
    }
}
