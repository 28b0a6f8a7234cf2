//! Superblocks: the unit of allocation and of garbage collection.
//!
//! Each is free, open for one stream, closed or retired. Data is striped over its dies in rows. If
//! superblocks do not span all dies, a stream has one open in each group of dies, and allocates
//! pages from them in turn. The head is in the first page of block `ID mod blocks` (or the next
//! good one); tail metadata is in the last pages (FAST'21 §4.5). Pages are allocated in order,
//! skipping the head, bad blocks and the tail's place. If several pages share a word line, head and tail
//! have word lines of their own, filled up with pads.
//!
//! The table and its layout are here. `owners` counts the owners of pages, `stream` allocates
//! pages, `fill` fills word lines up, `open` opens and closes, `erase` ends a life, `free` keeps the free superblocks,
//! `regions` tracks changes, `slc` fills superblocks in SLC mode.
//!
//! Invariants: at most one superblock is open per stream and group of dies; a page is allocated
//! once per incarnation. Absent: the choice of victims (`policy`) and how pages move (`gc`).

mod erase;
mod fill;
mod free;
pub(crate) mod life;
mod open;
mod owners;
mod regions;
mod slc;
mod stream;

use fill::FilledLines;
use free::FreePool;
pub(crate) use open::SuperblockHead;
pub use owners::Owners;
pub(crate) use regions::{RegionChanges, RegionPeak, RegionPeaks};
use slc::SlcCache;
pub(crate) use stream::{AllocatedPage, OpenSuperblock};

use crate::config::Config;
use crate::config::guard::Guards;
use crate::dies::DieMask;
use crate::mapping::block_map::PageOrder;
use crate::policy::ZONES_MAX;
use crate::superblock::life::Life;
use remap_ssd_media::{ClearId, Geometry, SbId};

/// The incarnation counter has 21 bits and never wraps: records that name an incarnation would
/// become ambiguous.
const INCARNATION_MAX: u32 = (1 << 21) - 1;

/// Streams: each superblock is filled by one kind of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// Pages written by the host.
    Host = 0,
    /// Pages moved by garbage collection.
    Gc = 1,
    /// A scheme's log on flash.
    Log = 2,
    /// Pages moved by garbage collection that a policy keeps apart: its second zone.
    GcShared = 3,
    /// The policy's third zone.
    GcMany = 4,
    /// Translation pages, of which most are garbage soon.
    Table = 5,
    /// Pages written by the host, in SLC mode.
    Slc = 6,
}

impl Stream {
    /// All streams, in the order of their persisted numbers.
    pub(crate) const ALL: [Self; 7] = [
        Self::Host,
        Self::Gc,
        Self::Log,
        Self::GcShared,
        Self::GcMany,
        Self::Table,
        Self::Slc,
    ];
    /// The streams of garbage collection, by zone.
    pub const ZONES: [Self; ZONES_MAX] = [Self::Gc, Self::GcShared, Self::GcMany];

    /// The stream with a persisted number, if there is one.
    pub(crate) fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stream| *stream as u8 == value)
    }
}

/// State of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockState {
    /// Erased, or to be erased when it is opened.
    Free,
    /// Open: pages are being programmed.
    Open,
    /// Closed: all pages are programmed.
    Closed,
    /// Too few good blocks are left.
    Retired,
}

/// DRAM state of one superblock.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    /// Free, open, closed or retired.
    pub state: SuperblockState,
    /// Stream that fills or filled it.
    pub stream: Stream,
    /// Pages of data it can hold, now or after its erase: in SLC mode those of all bits if it leaves that mode then.
    pub capacity: u32,
    /// WSN of its head: when it was opened.
    pub opened: u64,
    /// First word of its life record.
    pub life: Life,
    /// Dies whose block of this superblock is permanently retired.
    pub bad: DieMask,
    /// Blocks to retire at the next erase.
    pub failing: DieMask,
    /// Page offset of the head.
    pub head: u32,
    /// The erases that made it free; the default if that was before power-on.
    pub erased: ClearId,
}

pub(crate) struct Superblocks {
    geometry: Geometry,
    guards: Guards,
    /// Erases after which a block is retired: the limit of the flash, or of the incarnation
    /// counter.
    pe_limit: u32,
    /// The same in SLC mode.
    slc_pe_limit: u32,
    tail_pages: u32,
    /// OOB records of a tail page, and whether they have the extension.
    tail_records: u32,
    extended: bool,
    table: Vec<Superblock>,
    /// Separate from `table`: they change with every page, and should stay in the L1 cache.
    owners: Vec<Owners>,
    /// For each stream, the open superblock that supplies the next page.
    open: [Option<OpenSuperblock>; Stream::ALL.len()],
    /// With several groups of dies: the open superblocks of the other groups, and the group in
    /// turn.
    waiting: [Vec<Option<OpenSuperblock>>; Stream::ALL.len()],
    turn: [u32; Stream::ALL.len()],
    pool: FreePool,
    /// The free superblocks in SLC mode.
    slc_pool: FreePool,
    /// Superblocks in SLC mode, and what became of their pages.
    pub slc: SlcCache,
    /// Shows victim searches which regions they need not scan again.
    changed: RegionChanges,
    /// Incremented whenever anything in `table` may have changed.
    pub changes: u64,
    /// Superblocks that must stay free after a cut, if that many are free.
    reserve: usize,
    remapped_total: u64,
    /// Word lines that streams fill up before a page counts, unless the controller's buffer survives a cut.
    filled: Option<Box<FilledLines>>,
    /// LPNs name the group of dies to which their pages go.
    by_lpn: bool,
    /// Superblocks with lists of LPNs in doubt, which must not be collected while recovery needs the lists.
    pub listing_doubts: Vec<SbId>,
    /// Metadata pages programmed here.
    pub meta_programs: u64,
    /// Blocks retired because of failures, since power-on.
    pub blocks_retired: u64,
    /// Blocks filled for the last time, since power-on.
    pub blocks_worn: u64,
    /// Failed programs, since power-on.
    pub program_failures: u64,
}

impl Superblocks {
    /// All superblocks retired until `set` is called. `reserve`: superblocks that must stay free
    /// after a cut.
    pub(crate) fn new(geometry: Geometry, config: &Config, reserve: u32) -> Self {
        let blank = Superblock {
            state: SuperblockState::Retired,
            stream: Stream::Host,
            capacity: 0,
            opened: 0,
            life: Life::new(),
            bad: DieMask::NONE,
            failing: DieMask::NONE,
            head: 0,
            erased: ClearId::default(),
        };

        let cycles = |limit| match limit {
            0 => INCARNATION_MAX,
            limit => u32::min(limit, INCARNATION_MAX),
        };
        Self {
            geometry,
            tail_pages: config.tail_pages(&geometry),
            tail_records: config.tail_records(),
            extended: config.scheme.uses_hints(),
            guards: config.guards,
            pe_limit: cycles(config.pe_limit),
            slc_pe_limit: cycles(config.slc_pe_limit),
            table: vec![blank; geometry.superblocks() as usize],
            owners: vec![Owners::default(); geometry.superblocks() as usize],
            open: [const { None }; Stream::ALL.len()],
            waiting: std::array::from_fn(|_| vec![None; geometry.groups() as usize]),
            turn: [0; Stream::ALL.len()],
            pool: FreePool::default(),
            slc_pool: FreePool::default(),
            slc: SlcCache::new(geometry, config),
            changed: RegionChanges::new(geometry.superblocks()),
            reserve: reserve as usize,
            changes: 0,
            remapped_total: 0,
            filled: FilledLines::new(&geometry, config),
            by_lpn: config.die_by_lpn && geometry.groups() > 1,
            listing_doubts: Vec::new(),
            meta_programs: 0,
            blocks_retired: 0,
            blocks_worn: 0,
            program_failures: 0,
        }
    }

    /// The DRAM state of one superblock.
    #[inline]
    pub(crate) fn get(&self, sb: SbId) -> &Superblock {
        &self.table[sb.0 as usize]
    }
    /// The DRAM state of one superblock, for changes.
    #[inline]
    pub(crate) fn get_mut(&mut self, sb: SbId) -> &mut Superblock {
        self.changes += 1;
        self.changed.note(sb);
        &mut self.table[sb.0 as usize]
    }
    /// All superblocks with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SbId, &Superblock)> {
        self.table
            .iter()
            .enumerate()
            .map(|(index, sb)| (SbId(index as u32), sb))
    }
    /// The superblocks of a scheme's log on flash.
    pub(crate) fn logs(&self) -> impl Iterator<Item = SbId> {
        let is_in_use = |state| matches!(state, SuperblockState::Open | SuperblockState::Closed);
        self.iter()
            .filter(move |(_, sb)| sb.stream == Stream::Log && is_in_use(sb.state))
            .map(|(id, _)| id)
    }
    /// The same, oldest first: in the order in which the log was written.
    pub(crate) fn logs_by_age(&self) -> Vec<SbId> {
        let mut logs: Vec<SbId> = self.logs().collect();
        logs.sort_unstable_by_key(|sb| (self.get(*sb).opened, *sb));
        logs
    }
    /// Sets the state that recovery or formatting found.
    pub(crate) fn set(&mut self, sb: SbId, found: Superblock) {
        self.leave_pool(sb);
        *self.get_mut(sb) = found;
        self.join_pool(sb);
    }

    /// Blocks of a superblock that must not be programmed.
    pub(crate) fn skipped(&self, sb: SbId) -> DieMask {
        let sb = self.get(sb);
        sb.bad | sb.failing
    }

    /// The allocation order of its pages if no program fails: excludes the blocks that were bad
    /// when it was opened, and those in which its head could not be programmed.
    pub(crate) fn order(&self, sb: SbId) -> PageOrder {
        let (dies, entry) = (self.geometry.dies(), self.get(sb));
        let head = self.geometry.die_of_offset(entry.head);
        let before_head = (0..dies)
            .map(|step| (sb.0 + step) % dies)
            .take_while(|die| *die != head);
        PageOrder {
            skipped: entry.bad | before_head.collect(),
            head: entry.head,
        }
    }

    /// Offset of a superblock's head: the first page of block `ID mod blocks`, or of the next good
    /// block.
    pub(crate) fn head_offset(&self, sb: SbId, skipped: DieMask) -> Option<u32> {
        let dies = self.geometry.dies();

        // Heads are spread over the dies: recovery reads one per superblock, from all dies in
        // parallel.
        (0..dies)
            .map(|step| (sb.0 + step) % dies)
            .find(|die| !skipped.has(*die))
            .map(|die| self.geometry.offset_of(0, die))
    }

    /// Offsets of the tail pages: the last good ones, in ascending order.
    /// Records of a tail page.
    pub(crate) fn tail_records(&self) -> u32 {
        self.tail_records
    }

    pub(crate) fn tail_offsets(&self, sb: SbId, skipped: DieMask) -> Vec<u32> {
        let count = self.tail_pages as usize;

        // Counted from the end: the tail's pages follow from the excluded blocks, which recovery
        // knows before it reads any page.
        let mut offsets: Vec<u32> = (0..self.places(sb))
            .rev()
            .map(|place| self.offset_at(sb, place))
            .filter(|offset| !skipped.has(self.geometry.die_of_offset(*offset)))
            .take(count)
            .collect();
        offsets.reverse();
        offsets
    }

    /// Place of the word line in which the tail begins: the end of the data. `None` without a good
    /// block.
    pub(crate) fn data_end(&self, sb: SbId, skipped: DieMask) -> Option<u32> {
        let tail = self.tail_offsets(sb, skipped).first().copied()?;
        Some(self.place_of(sb, self.line_start_of(sb, tail)))
    }

    /// Pages of data that a superblock can hold if these blocks are excluded, in SLC mode only if it is always in that mode.
    pub(crate) fn capacity(&self, sb: SbId, skipped: DieMask) -> u32 {
        match self.slc.area.has(sb) {
            true => self.slc_capacity(skipped),
            false => self.full_capacity(skipped),
        }
    }

    fn full_capacity(&self, skipped: DieMask) -> u32 {
        let geometry = &self.geometry;
        self.capacity_in(skipped, geometry.stripe(), geometry.pages_per_block())
    }

    /// The same for blocks of so many rows, of which `line` share a word line.
    fn capacity_in(&self, skipped: DieMask, line: u32, rows: u32) -> u32 {
        let good = skipped.count_others(self.geometry.dies());
        let metadata = line + self.tail_pages.next_multiple_of(line);
        (good * rows).saturating_sub(metadata)
    }
}
