//! Lanes of the NVRAM, and the operations that others name: programs by page, clearings and erases by ID.
//!
//! Invariants: a lane's operations end in the order in which they began; what has ended is forgotten.

use super::graph::{Graph, NONE, NodeName};
use crate::lane::SerialResource;
use remap_ssd_media::{Geometry, Ppn};
use std::collections::VecDeque;

/// A lane, and its operations in progress with their ends.
#[derive(Default)]
pub(super) struct NvramLane {
    turns: SerialResource,
    ends: VecDeque<(u64, u32)>,
}

impl NvramLane {
    /// The node takes the next turn; returns its end if it is the lane's next event.
    pub(super) fn begin(&mut self, node: u32, now: u64, length: u64) -> Option<u64> {
        let end = self.turns.turn(now, length) + length;
        self.ends.push_back((end, node));
        (self.ends.len() == 1).then_some(end)
    }

    /// For how long it will be busy with what has begun.
    pub(super) fn ahead(&self, now: u64) -> u64 {
        self.turns.ahead(now)
    }

    /// The operation that ends now, and when the next one does.
    pub(super) fn end(&mut self) -> (u32, Option<u64>) {
        let (_, node) = self
            .ends
            .pop_front()
            .expect("its event is that of an operation");
        (node, self.ends.front().map(|(end, _)| *end))
    }
}

/// A program that has not ended.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PendingProgram {
    pub node: u32,
    /// The way of its data into the controller's buffer; or the program, if it has no buffer.
    pub way: NodeName,
}

const _: () = assert!(size_of::<PendingProgram>() == 16);

impl PendingProgram {
    const ABSENT: Self = Self {
        node: NONE,
        way: NodeName::NONE,
    };
}

/// When data are in the controller.
#[derive(Clone, Copy)]
pub(super) enum Ready {
    After(NodeName),
    At(u64),
}

/// Where the data of a program are until its way ends.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// When they are in the controller.
    pub ready: Ready,
    /// The page from which collection copies them, and its die: it is there until the copy is programmed.
    pub source: Option<(Ppn, u16)>,
}

/// The programs of a superblock that have not ended: their number, and the table with their pages.
#[derive(Clone, Copy, Default)]
struct PendingSuperblock {
    count: u32,
    table: u32,
}

/// Programs that have not ended, by page. Only superblocks that have some have a table.
pub(super) struct PendingPrograms {
    geometry: Geometry,
    superblocks: Vec<PendingSuperblock>,
    /// Programs by offset of the page.
    tables: Vec<Box<[PendingProgram]>>,
    free: Vec<u32>,
    /// By node, if it is the way of a program.
    ways: Vec<Way>,
    /// The superblock of the latest program, and its first page.
    recent: (usize, u32),
}

impl PendingPrograms {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            superblocks: vec![PendingSuperblock::default(); geometry.superblocks() as usize],
            tables: Vec::new(),
            free: Vec::new(),
            ways: Vec::new(),
            recent: (0, 0),
        }
    }

    /// The number of a page's superblock, and the page's offset within it.
    #[inline]
    fn place(&self, page: Ppn) -> (usize, usize) {
        let (superblock, first) = self.recent;
        let offset = page.0.wrapping_sub(first);
        if offset < self.geometry.pages_per_superblock() {
            return (superblock, offset as usize);
        }
        let superblock = self.geometry.superblock(page);
        (superblock.0 as usize, self.geometry.offset(page) as usize)
    }

    /// The programs of `count` pages of a superblock, which end with `node`.
    pub(super) fn add(&mut self, page: Ppn, count: u32, node: u32, way: NodeName) {
        let (superblock, offset) = self.place(page);
        self.recent = (superblock, page.0 - offset as u32);
        let superblock = &mut self.superblocks[superblock];
        if superblock.count == 0 {
            superblock.table = self.free.pop().unwrap_or_else(|| {
                let pages = self.geometry.pages_per_superblock() as usize;
                self.tables
                    .push(vec![PendingProgram::ABSENT; pages].into_boxed_slice());
                self.tables.len() as u32 - 1
            });
        }
        let table = &mut self.tables[superblock.table as usize];
        for place in &mut table[offset..offset + count as usize] {
            superblock.count += u32::from(place.node == NONE);
            *place = PendingProgram { node, way };
        }
    }

    /// The programs of `count` pages of a superblock have ended with `node`.
    pub(super) fn end(&mut self, page: Ppn, count: u32, node: u32) {
        let (superblock, offset) = self.place(page);
        let superblock = &mut self.superblocks[superblock];
        if superblock.count == 0 {
            return;
        }
        let table = &mut self.tables[superblock.table as usize];
        for place in &mut table[offset..offset + count as usize] {
            // Unless the page has been erased since, and a program of its next life waits for that.
            if place.node == node {
                place.node = NONE;
                superblock.count -= 1;
            }
        }
        if superblock.count == 0 {
            self.free.push(superblock.table);
        }
    }

    /// The program of a page, if it has not ended.
    #[inline]
    pub(super) fn find(&self, page: Ppn) -> Option<&PendingProgram> {
        let (superblock, offset) = self.place(page);
        let superblock = self.superblocks.get(superblock)?;
        if superblock.count == 0 {
            return None;
        }
        let pending = &self.tables[superblock.table as usize][offset];
        (pending.node != NONE).then_some(pending)
    }

    /// True if pages of this one's superblock have programs that have not ended.
    pub(super) fn has_some(&self, page: Ppn) -> bool {
        let superblock = self.geometry.superblock(page);
        self.superblocks[superblock.0 as usize].count > 0
    }

    /// The node of a page's program.
    #[inline]
    pub(super) fn of_page(&self, page: Ppn) -> Option<u32> {
        self.find(page).map(|pending| pending.node)
    }

    /// Where the data are that come this way, until it ends.
    pub(super) fn set_way(&mut self, node: u32, way: Way) {
        let at = node as usize;
        if self.ways.len() <= at {
            self.ways.resize(
                at + 1,
                Way {
                    ready: Ready::At(0),
                    source: None,
                },
            );
        }
        self.ways[at] = way;
    }

    /// The same of a node that is the way of a program.
    pub(super) fn way(&self, node: u32) -> Way {
        self.ways[node as usize]
    }
}

/// The latest erase of each block.
pub(super) struct Erases {
    geometry: Geometry,
    blocks: Vec<Option<NodeName>>,
}

impl Erases {
    pub(super) fn new(geometry: Geometry) -> Self {
        let blocks = geometry.superblocks() as usize * geometry.dies() as usize;
        Self {
            geometry,
            blocks: vec![None; blocks],
        }
    }

    /// Records the erase of the block with this page.
    pub(super) fn add(&mut self, page: Ppn, name: NodeName) {
        self.blocks[self.geometry.slot(page).block.0 as usize] = Some(name);
    }

    /// The latest erase of the block with this page, which may have ended.
    pub(super) fn of(&self, page: Ppn) -> Option<NodeName> {
        self.blocks[self.geometry.slot(page).block.0 as usize]
    }
}

/// A clearing, or the erases of one name.
struct Clear {
    pending: u32,
    waiting: Vec<u32>,
}

/// Clearings and erases that have not ended, by name. Names only grow.
#[derive(Default)]
pub(super) struct Clears {
    pending: VecDeque<Clear>,
    first: u64,
    /// Emptied lists of waiting nodes, with their room.
    spare: Vec<Vec<u32>>,
}

impl Clears {
    pub(super) fn add(&mut self, name: u64) {
        if self.pending.is_empty() {
            self.first = name;
        }
        // One without a record has ended.
        while self.first + self.pending.len() as u64 <= name {
            self.pending.push_back(Clear {
                pending: 0,
                waiting: self.spare.pop().unwrap_or_default(),
            });
        }
        let index = name
            .checked_sub(self.first)
            .expect("names of clearings and erases only grow");
        self.pending[index as usize].pending += 1;
    }

    /// Makes a node wait for a name.
    pub(super) fn wait_for(&mut self, node: u32, name: u64, graph: &mut Graph) {
        let index = name.checked_sub(self.first).map(|index| index as usize);
        if let Some(clear) = index.and_then(|index| self.pending.get_mut(index))
            && clear.pending > 0
        {
            clear.waiting.push(node);
            graph.wait(node);
        }
    }

    pub(super) fn end(&mut self, name: u64, graph: &mut Graph) {
        let clear = &mut self.pending[(name - self.first) as usize];
        clear.pending -= 1;
        if clear.pending > 0 {
            return;
        }
        for node in clear.waiting.drain(..) {
            graph.waited(node);
        }

        // IDs end in any order. The place of one is its distance from the oldest that has not ended.
        while self.pending.front().is_some_and(|front| front.pending == 0) {
            let ended = self.pending.pop_front();
            self.spare.extend(ended.map(|clear| clear.waiting));
            self.first += 1;
        }
    }
}
