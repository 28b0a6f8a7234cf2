//! Superblocks: the unit of allocation and of garbage collection.
//!
//! Each is free, open for one stream, closed or retired. Data is striped over its dies in rows. Where superblocks do not
//! span all dies, a stream has one open in each group of dies, and hands out pages from one after the other. The head goes
//! into the first page of block `ID mod blocks` (or the next good one); tail metadata into the last pages
//! (FAST'21 §4.5). Pages are handed out in order, past the head, bad blocks and the tail's place.
//!
//! Invariants: `live` counts pages with owners, `remapped` the LPNs whose mapping into this superblock was made
//! by a remap; at most one superblock is open per stream and group of dies; a page is handed out once per incarnation.
//! Absent: which victim to collect (`victim`) and how pages move (`gc`).

use crate::config::Config;
use crate::guard::{Guard, Guards};
use crate::life::{Life, LifeRecord};
use crate::policy::{Wear, ZONES_MAX};
use remap_ssd_media::{After, Geometry, Media, Oob, Ppn, Purpose, SbId, Slot, Stored};
use std::collections::VecDeque;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Who fills a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// Host writes.
    Host = 0,
    /// Pages moved by garbage collection.
    Gc = 1,
    /// A scheme's log on flash.
    Log = 2,
    /// Pages moved by garbage collection that a policy keeps apart: its second zone.
    GcShared = 3,
    /// Its third zone.
    GcMany = 4,
}

impl Stream {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Host, Self::Gc, Self::Log, Self::GcShared, Self::GcMany];
    /// Those of garbage collection, by zone.
    pub const ZONES: [Self; ZONES_MAX] = [Self::Gc, Self::GcShared, Self::GcMany];

    /// Reads the persisted form.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stream| *stream as u8 == value)
    }
}

/// What a superblock is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Erased, or to be erased when it is opened.
    Free,
    /// Being filled.
    Open,
    /// Full.
    Closed,
    /// Too few good blocks are left.
    Retired,
}

/// Head metadata, the first page of a superblock (FAST'21 §4.5).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Head {
    /// `Head::MAGIC`.
    pub magic: u32,
    /// Superblock ID.
    pub superblock: u32,
    /// WSN when it was opened: orders superblocks by age.
    pub wsn: u64,
    /// Number of this incarnation; its low bits are in every OOB.
    pub incarnation: u32,
    /// Erases of this superblock so far.
    pub erase_count: u32,
    /// Stream that fills it ("type").
    pub stream: u8,
    /// Zero.
    pub padding: [u8; 7],
}

const _: () = assert!(size_of::<Head>() == 32);

impl Head {
    /// "RSHD".
    pub const MAGIC: u32 = 0x4448_5352;
}

/// DRAM state of one superblock.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    /// What it is doing.
    pub state: State,
    /// Who fills or filled it.
    pub stream: Stream,
    /// Pages with owners.
    pub live: u32,
    /// LPNs remapped to pages of it.
    pub remapped: u32,
    /// Pages of data it can hold.
    pub capacity: u32,
    /// WSN of its head.
    pub opened: u64,
    /// Its first word in NVRAM.
    pub life: Life,
    /// Retired blocks.
    pub bad: u64,
    /// Blocks to retire at the next erase.
    pub failing: u64,
    /// Offset of the head.
    pub head: u32,
}

/// A page handed out to be programmed.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Which, and where.
    pub slot: Slot,
    /// Its superblock.
    pub sb: SbId,
    /// The superblock's incarnation.
    pub incarnation: u32,
    /// What its program must wait for.
    pub after: After,
}

impl Taken {
    /// The page.
    #[inline(always)]
    pub fn ppn(&self) -> Ppn {
        self.slot.ppn
    }
    /// Its OOB.
    #[inline(always)]
    pub fn oob(&self, lpn: u32, wsn: u64) -> Oob {
        Oob::new(lpn, wsn, self.incarnation)
    }
}

/// A superblock being filled.
#[derive(Clone, Debug)]
pub struct Open {
    /// Which.
    pub sb: SbId,
    /// Its incarnation.
    pub incarnation: u32,
    /// Next offset to hand out, and the row and die it is in.
    pub next: u32,
    /// Its row.
    pub row: u32,
    /// Its die.
    pub die: u32,
    /// First offset of the tail's place.
    pub end: u32,
    /// Offset of the head.
    pub head: u32,
    /// Blocks that are not programmed.
    pub skipped: u64,
    /// Offsets below `next` that a power cut left unprogrammed, in order.
    pub holes: VecDeque<u32>,
}

/// All superblocks.
pub struct Superblocks {
    geometry: Geometry,
    guards: Guards,
    /// Erases after which a block is used no more; 0 is without end.
    pe_limit: u32,
    tail_pages: u32,
    /// OOB records of a tail page, and whether they have the extension.
    tail_records: u32,
    extended: bool,
    table: Vec<Superblock>,
    /// The open superblock of each stream that the next page comes from.
    open: [Option<Open>; Stream::ALL.len()],
    /// Where there are several groups of dies: those of the other groups, and which group is next.
    waiting: [Vec<Option<Open>>; Stream::ALL.len()],
    turn: [u32; Stream::ALL.len()],
    free: u32,
    remapped_total: u64,
    /// Programs of metadata done here.
    pub meta_programs: u64,
    /// Blocks that failed, since power-on.
    pub blocks_retired: u64,
    /// Blocks that were filled for the last time, since power-on.
    pub blocks_worn: u64,
    /// Programs that failed, since power-on.
    pub program_failures: u64,
}

impl Superblocks {
    /// All retired, until `set` says otherwise.
    pub fn new(geometry: Geometry, config: &Config) -> Self {
        let blank = Superblock {
            state: State::Retired,
            stream: Stream::Host,
            live: 0,
            remapped: 0,
            capacity: 0,
            opened: 0,
            life: Life::new(),
            bad: 0,
            failing: 0,
            head: 0,
        };
        Self {
            geometry,
            tail_pages: config.tail_pages(&geometry),
            tail_records: config.tail_records(),
            extended: config.scheme.uses_hints(),
            guards: config.guards,
            pe_limit: config.pe_limit,
            table: vec![blank; geometry.superblocks() as usize],
            open: [const { None }; Stream::ALL.len()],
            waiting: std::array::from_fn(|_| vec![None; geometry.groups() as usize]),
            turn: [0; Stream::ALL.len()],
            free: 0,
            remapped_total: 0,
            meta_programs: 0,
            blocks_retired: 0,
            blocks_worn: 0,
            program_failures: 0,
        }
    }

    /// One superblock.
    #[inline]
    pub fn get(&self, sb: SbId) -> &Superblock {
        &self.table[sb.0 as usize]
    }
    /// One superblock.
    #[inline]
    pub fn get_mut(&mut self, sb: SbId) -> &mut Superblock {
        &mut self.table[sb.0 as usize]
    }
    /// All of them with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (SbId, &Superblock)> {
        self.table.iter().enumerate().map(|(index, sb)| (SbId(index as u32), sb))
    }
    /// Free superblocks.
    #[inline]
    pub fn free(&self) -> u32 {
        self.free
    }
    /// LPNs whose mapping was made by a remap, in the whole device.
    #[inline]
    pub fn remapped_total(&self) -> u64 {
        self.remapped_total
    }
    /// A page of `sb` gained an owner: its first, or one more.
    #[inline]
    pub fn gain(&mut self, sb: SbId, first: bool, remapped: bool) {
        let entry = &mut self.table[sb.0 as usize];
        entry.live += u32::from(first);
        entry.remapped += u32::from(remapped);
        self.remapped_total += u64::from(remapped);
    }
    /// A page of `sb` lost an owner: its last, or one of several.
    #[inline]
    pub fn lose(&mut self, sb: SbId, last: bool, remapped: bool) {
        let entry = &mut self.table[sb.0 as usize];
        entry.live -= u32::from(last);
        entry.remapped -= u32::from(remapped);
        self.remapped_total -= u64::from(remapped);
    }
    /// So many pages of `from`, each with one owner by a write, have been copied to `to`.
    #[inline]
    pub fn move_owned(&mut self, from: SbId, to: SbId, pages: u32) {
        self.table[from.0 as usize].live -= pages;
        self.table[to.0 as usize].live += pages;
    }
    /// Is there an open superblock of a stream in this one's group of dies?
    pub fn is_open_beside(&self, stream: Stream, sb: SbId) -> bool {
        let (group, stream) = (self.geometry.group(sb), stream as usize);
        let slot = if group == self.turn[stream] { &self.open[stream] } else { &self.waiting[stream][group as usize] };
        slot.is_some()
    }

    /// The next page of a stream comes from the next group of dies.
    #[inline(always)]
    fn rotate(&mut self, stream: Stream) {
        if self.geometry.groups() > 1 {
            self.rotate_groups(stream as usize);
        }
    }

    fn rotate_groups(&mut self, stream: usize) {
        let turn = self.turn[stream] as usize;
        let next = (turn + 1) % self.geometry.groups() as usize;
        self.waiting[stream][turn] = self.open[stream].take();
        self.open[stream] = self.waiting[stream][next].take();
        self.turn[stream] = next as u32;
    }

    /// The open superblock of a stream that the next page comes from.
    pub fn open(&self, stream: Stream) -> Option<&Open> {
        self.open[stream as usize].as_ref()
    }

    /// Sets what recovery or formatting found.
    pub fn set(&mut self, sb: SbId, found: Superblock) {
        if self.table[sb.0 as usize].state == State::Free {
            self.free -= 1;
        }
        if found.state == State::Free {
            self.free += 1;
        }
        self.table[sb.0 as usize] = found;
    }

    /// Goes on filling a superblock that recovery found open.
    pub fn resume(&mut self, stream: Stream, open: Open) {
        assert!(!self.is_open_beside(stream, open.sb));
        self.table[open.sb.0 as usize].state = State::Open;
        let (group, stream) = (self.geometry.group(open.sb), stream as usize);
        if group == self.turn[stream] {
            self.open[stream] = Some(open);
        } else {
            self.waiting[stream][group as usize] = Some(open);
        }
    }

    /// Blocks of a superblock that must not be programmed.
    pub fn skipped(&self, sb: SbId) -> u64 {
        let sb = self.get(sb);
        sb.bad | sb.failing
    }

    fn is_good(&self, skipped: u64, offset: u32) -> bool {
        skipped >> self.geometry.die_of_offset(offset) & 1 == 0
    }

    /// Where the head of a superblock is: first page of block `ID mod blocks`, or of the next good block.
    pub fn head_offset(&self, sb: SbId, skipped: u64) -> Option<u32> {
        let dies = self.geometry.dies();
        (0..dies).map(|step| (sb.0 + step) % dies).find(|die| skipped >> die & 1 == 0)
    }

    /// Offsets of the tail pages: the last good ones, in ascending order.
    pub fn tail_offsets(&self, skipped: u64) -> Vec<u32> {
        let count = self.tail_pages as usize;
        let mut offsets: Vec<u32> = (0..self.geometry.pages_per_superblock())
            .rev()
            .filter(|offset| self.is_good(skipped, *offset))
            .take(count)
            .collect();
        offsets.reverse();
        offsets
    }

    /// Pages of data a superblock can hold with these blocks left out.
    pub fn capacity(&self, skipped: u64) -> u32 {
        let dies = self.geometry.dies();
        let good = dies - (skipped & (u64::MAX >> (64 - dies))).count_ones();
        (good * self.geometry.pages_per_block()).saturating_sub(1 + self.tail_pages)
    }

    /// The free superblock of a group of dies with the fewest or the most erases, the first of several; of another
    /// group, if this one has none.
    fn pick_free(&self, wear: Wear, group: u32) -> Option<SbId> {
        self.pick_free_if(wear, |sb| self.geometry.group(sb) == group).or_else(|| self.pick_free_if(wear, |_| true))
    }

    fn pick_free_if(&self, wear: Wear, wanted: impl Fn(SbId) -> bool) -> Option<SbId> {
        let free = self.iter().filter(|(id, sb)| sb.state == State::Free && wanted(*id));
        let picked = match wear {
            Wear::Least => free.min_by_key(|(id, sb)| (sb.life.incarnation(), id.0)),
            Wear::Most => free.min_by_key(|(id, sb)| (std::cmp::Reverse(sb.life.incarnation()), id.0)),
        };
        picked.map(|(id, _)| id)
    }

    /// Opens the least worn free superblock for a stream; `false` if none is free. `wsn` hands out numbers.
    pub fn open_next(&mut self, media: &mut Media, stream: Stream, wsn: &mut u64) -> bool {
        self.open_worn(media, stream, Wear::Least, wsn)
    }

    /// Opens the least or the most worn free superblock for a stream.
    pub fn open_worn(&mut self, media: &mut Media, stream: Stream, wear: Wear, wsn: &mut u64) -> bool {
        assert!(self.open[stream as usize].is_none());
        while let Some(sb) = self.pick_free(wear, self.turn[stream as usize]) {
            // A superblock that says it is clean and is not (a damaged image) is erased like one that does not.
            let is_erased = |die| media.next_row(self.geometry.block(sb, die)) == 0;
            let bad = self.get(sb).bad;
            let clean = (0..self.geometry.dies()).all(|die| !is_good_die(bad, die) || is_erased(die));
            if !self.get(sb).life.clean() || !clean {
                self.erase(media, sb, wsn);
                if self.get(sb).state == State::Retired {
                    continue;
                }
            }
            self.free -= 1;
            self.get_mut(sb).state = State::Open;
            if let Some(head) = self.write_head(media, sb, stream, wsn) {
                let skipped = self.skipped(sb);
                let end = self.tail_offsets(skipped)[0];
                let capacity = self.capacity(skipped);
                let entry = self.get_mut(sb);
                (entry.live, entry.remapped, entry.capacity, entry.head) = (0, 0, capacity, head);
                self.open[stream as usize] = Some(Open {
                    sb,
                    incarnation: self.get(sb).life.incarnation(),
                    next: 0,
                    row: 0,
                    die: 0,
                    end,
                    head,
                    skipped,
                    holes: VecDeque::new(),
                });
                return true;
            }
            self.retire(sb);
        }
        false
    }

    /// The number is new, so that no earlier incarnation's metadata can look like this one's.
    fn write_head(&mut self, media: &mut Media, sb: SbId, stream: Stream, wsn: &mut u64) -> Option<u32> {
        *wsn += 1;
        let incarnation = self.get(sb).life.incarnation();
        let entry = self.get_mut(sb);
        (entry.stream, entry.opened) = (stream, *wsn);
        let head = Head {
            magic: Head::MAGIC,
            superblock: sb.0,
            wsn: *wsn,
            incarnation,
            erase_count: incarnation,
            stream: stream as u8,
            padding: [0; 7],
        };
        let oob = Oob::new(Oob::HEAD, *wsn, incarnation);
        // The head need not wait for the erases: in each block the erase comes before the programs, and a page that
        // an absent erase left behind carries the number of the incarnation before.
        // Recovery looks for the head in the first block that is not bad: it must know which ones are.
        let mut after = if self.skipped(sb) == 0 { After::NOTHING } else { After::FENCE };
        while let Some(offset) = self.head_offset(sb, self.skipped(sb)) {
            let usable = self.capacity(self.skipped(sb)) > 0;
            if !usable {
                return None;
            }
            self.meta_programs += 1;
            let page = self.geometry.page(sb, offset);
            let stored = Stored::Meta(head.as_bytes().into());
            if media.program(page, oob, stored, Purpose::Meta, after).is_ok() {
                return Some(offset);
            }
            // Recovery looks for the head in the first good block: it must know which one is not.
            self.fail_block(media, sb, self.geometry.die_of_offset(offset));
            after = after.and(After::FENCE);
        }
        None
    }

    /// Takes a block out of use from now on; what it holds stays until its superblock is erased.
    pub fn fail_block(&mut self, media: &mut Media, sb: SbId, die: u32) {
        self.program_failures += 1;
        let entry = self.get_mut(sb);
        entry.failing |= 1 << die;
        LifeRecord::store_failing(media, sb, entry.failing);
        let skipped = self.skipped(sb);
        let capacity = self.capacity(skipped);
        self.get_mut(sb).capacity = capacity;
        let end = self.tail_offsets(skipped).first().copied().unwrap_or(0);
        let waiting = self.waiting.iter_mut().flatten();
        for open in self.open.iter_mut().chain(waiting).flatten().filter(|open| open.sb == sb) {
            open.end = open.end.min(end);
            open.skipped = skipped;
        }
    }

    fn retire(&mut self, sb: SbId) {
        let entry = self.get_mut(sb);
        if entry.state == State::Free {
            self.free -= 1;
        }
        self.get_mut(sb).state = State::Retired;
    }

    /// Hands out the next page of a stream's open superblock, with what its program must wait for; `None` if
    /// the superblock is full or none is open.
    #[inline(always)]
    pub fn take(&mut self, stream: Stream) -> Option<Taken> {
        let open = self.open[stream as usize].as_mut()?;
        let dies = self.geometry.dies();
        loop {
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
                (offset, self.geometry.row_of_offset(offset), self.geometry.die_of_offset(offset))
            };
            if offset == open.head || open.skipped >> die & 1 == 1 {
                continue;
            }
            let (sb, incarnation, head) = (open.sb, open.incarnation, open.head);
            let (ppn, block) = (self.geometry.page(sb, offset), self.geometry.block(sb, die));
            let slot = Slot { ppn, block, row, die };
            self.rotate(stream);
            return Some(Taken { slot, sb, incarnation, after: self.after_head(sb, row, head) });
        }
    }

    /// Hands out up to `len` consecutive pages of one row, as far as none of them is to be left out; 0 where the next
    /// page needs `take`.
    #[inline(always)]
    pub fn take_row(&mut self, stream: Stream, len: u32) -> Option<(Taken, u32)> {
        let open = self.open[stream as usize].as_mut()?;
        let dies = self.geometry.dies();
        let mut len = len.min(dies - open.die).min(open.end.saturating_sub(open.next));
        if open.head >= open.next {
            len = len.min(open.head - open.next);
        }
        if len == 0 || open.skipped != 0 || !open.holes.is_empty() {
            return None;
        }
        let (row, die) = (open.row, open.die);
        let (ppn, block) = (self.geometry.page(open.sb, open.next), self.geometry.block(open.sb, die));
        open.next += len;
        open.die += len;
        if open.die == dies {
            (open.die, open.row) = (0, row + 1);
        }
        let slot = Slot { ppn, block, row, die };
        let (sb, incarnation, head) = (open.sb, open.incarnation, open.head);
        self.rotate(stream);
        Some((Taken { slot, sb, incarnation, after: self.after_head(sb, row, head) }, len))
    }

    /// A block's first page waits for the head, its others for the pages before them in the block: whatever is
    /// readable in a superblock, its head is too.
    #[inline(always)]
    fn after_head(&self, sb: SbId, row: u32, head: u32) -> After {
        if row == 0 && self.guards.has(Guard::HeadBeforeData) {
            After::page(self.geometry.page(sb, head))
        } else {
            After::NOTHING
        }
    }

    /// Pages that `take` can still hand out, at least: whole rows of good blocks, but for the head.
    pub fn room(&self, stream: Stream) -> u32 {
        self.open(stream).map_or(0, |open| {
            let dies = self.geometry.dies();
            let rows = self.geometry.row_of_offset(open.end)
                - self.geometry.row_of_offset(open.next + dies - 1).min(self.geometry.row_of_offset(open.end));
            let good = dies - (open.skipped & (u64::MAX >> (64 - dies))).count_ones();
            (rows * good).saturating_sub(1)
        })
    }

    /// Pages that `take` will hand out before the open superblock is full.
    pub fn left(&self, stream: Stream) -> u32 {
        self.open(stream).map_or(0, |open| {
            let (dies, next, end) = (self.geometry.dies(), open.next.min(open.end), open.end);
            // Of a die's pages, those below an offset are one a row.
            let below = |offset: u32, die: u32| (offset + dies - 1 - die) / dies;
            let good = (0..dies).filter(|die| open.skipped >> die & 1 == 0);
            let pages: u32 = good.map(|die| below(end, die) - below(next, die)).sum();
            (pages + open.holes.len() as u32).saturating_sub(u32::from((next..end).contains(&open.head)))
        })
    }

    /// Closes a stream's full superblock with its tail metadata: P2L and WSN of all its data pages.
    pub fn close(&mut self, media: &mut Media, stream: Stream) {
        let Some(open) = self.open[stream as usize].take() else { return };
        self.get_mut(open.sb).state = State::Closed;
        if self.is_in_last_cycle(self.get(open.sb)) {
            let bad = self.get(open.sb).bad;
            self.blocks_worn += (0..self.geometry.dies()).filter(|die| is_good_die(bad, *die)).count() as u64;
        }
        // 1. every data page  2. tail pages. Before 2: recovery scans the OOB areas. A tail that came first
        // would vouch for pages that a cut left torn.
        // With one of many superblocks closed at a time, waiting for all dies would stall each die again and again.
        let pages = self.geometry.pages_per_superblock();
        let after = match (self.guards.has(Guard::TailAfterData), self.geometry.groups()) {
            (false, _) => After::NOTHING,
            (true, 2..) if pages <= u32::from(u16::MAX) => After::pages(self.geometry.page(open.sb, 0), pages as u16),
            (true, _) => After::ALL,
        };
        let incarnation = self.get(open.sb).life.incarnation();
        for (index, offset) in self.tail_offsets(self.skipped(open.sb)).into_iter().enumerate() {
            let page = self.geometry.page(open.sb, offset);
            let block = self.geometry.block(open.sb, self.geometry.die_of_offset(offset));
            if media.next_row(block) != self.geometry.row_of_offset(offset) {
                return; // A block failed after its place was used: this superblock stays without a tail.
            }
            self.meta_programs += 1;
            let oob = Oob::new(Oob::TAIL, index as u64 + 1, incarnation);
            let first = index as u32 * self.tail_records;
            let len = self.tail_records.min(self.geometry.pages_per_superblock() - first);
            if media.program_tail(page, oob, self.geometry.page(open.sb, first), len, self.extended, after).is_err() {
                self.fail_block(media, open.sb, self.geometry.die_of_offset(offset));
                return;
            }
        }
    }

    /// Closes the open superblock of a log: its pages describe themselves, so it has no tail.
    pub fn close_log(&mut self) {
        if let Some(open) = self.open[Stream::Log as usize].take() {
            self.get_mut(open.sb).state = State::Closed;
        }
    }

    fn is_worn_out(&self, erases: u32) -> bool {
        self.pe_limit > 0 && erases >= self.pe_limit
    }

    /// Would erasing this superblock once more wear it out? Then what it holds now is the last that it ever holds.
    pub fn is_in_last_cycle(&self, sb: &Superblock) -> bool {
        self.is_worn_out(sb.life.incarnation() + 1)
    }

    /// Pages of data that the device has room for: all of a superblock that can be filled, now or again, and those with
    /// owners of one that is worn out.
    pub fn usable_pages(&self) -> u64 {
        let usable = |sb: &Superblock| match sb.state {
            State::Retired => 0,
            State::Closed if self.is_in_last_cycle(sb) => sb.live,
            _ => sb.capacity,
        };
        self.table.iter().map(|sb| u64::from(usable(sb))).sum()
    }

    /// Erases a superblock none of whose pages is needed any more.
    pub fn erase(&mut self, media: &mut Media, sb: SbId, wsn: &mut u64) {
        assert_eq!(self.get(sb).live, 0, "a superblock with live pages must not be erased");
        *wsn += 1;
        // 1. everything that took this superblock's place  2. "dead"  3. erases  4. "clean".
        // Cut before 2: it is a witness as before. After 2: nothing in it counts, erased or not.
        let entry = self.get_mut(sb);
        let incarnation = (entry.life.incarnation() + 1) & 0x1f_ffff; // 21 bits
        entry.life = Life::new().with_dead_before(*wsn).with_clean(false).with_incarnation(incarnation);
        let failing = std::mem::take(&mut entry.failing);
        entry.bad |= failing;
        let (life, mut bad) = (entry.life, entry.bad);
        let waits = self.guards.has(Guard::EraseWaits);
        let dead_first = self.guards.has(Guard::DeadBeforeErase);
        if dead_first {
            LifeRecord::store_life(media, sb, life, if waits { After::ALL } else { After::NOTHING });
        }
        // Recovery looks for a head in good blocks only: a block may be called bad only once the head in it is dead.
        media.fence();
        if failing != 0 {
            LifeRecord::store_bad(media, sb, bad);
            media.fence();
            LifeRecord::store_failing(media, sb, 0);
        }
        let after = match (waits, dead_first) {
            (true, true) => After::FENCE,
            (true, false) => After::ALL,
            (false, _) => After::NOTHING,
        };
        let id = media.name_next();
        // A block that has reached its limit is a bad one from now on, as if this erase had failed.
        // That happens to a log's, and where recovery found half a superblock: GC leaves the others as they are.
        let worn_out = self.is_worn_out(incarnation);
        for die in (0..self.geometry.dies()).filter(|die| is_good_die(bad, *die)) {
            if media.erase(self.geometry.block(sb, die), id, after).is_err() || worn_out {
                self.blocks_retired += 1;
                self.get_mut(sb).bad |= 1 << die;
            }
        }
        if self.get(sb).bad != bad {
            bad = self.get(sb).bad;
            LifeRecord::store_bad(media, sb, bad);
        }
        let life = life.with_clean(true);
        LifeRecord::store_life(media, sb, life, After::clear(id).and(After::FENCE));
        let was_free = self.get(sb).state == State::Free;
        let capacity = self.capacity(bad);
        let entry = self.get_mut(sb);
        (entry.life, entry.remapped, entry.capacity) = (life, 0, capacity);
        entry.state = State::Free;
        if !was_free {
            self.free += 1;
        }
        if capacity == 0 {
            self.retire(sb);
        }
    }
}

/// Is the block on this die good?
fn is_good_die(bad: u64, die: u32) -> bool {
    bad >> die & 1 == 0
}
