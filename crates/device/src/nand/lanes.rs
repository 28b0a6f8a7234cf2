//! Lanes of the NVRAM, and the operations that others name: programs by page, clearings and erases by ID.
//!
//! Invariants: a lane's operations end in the order in which they began; what has ended is forgotten.

use super::graph::{Graph, NodeName};
use crate::lane::SerialResource;
use remap_ssd_media::{Geometry, Ppn};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

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

    /// The operation that ends now, and when the next one does.
    pub(super) fn end(&mut self) -> (u32, Option<u64>) {
        let (_, node) = self
            .ends
            .pop_front()
            .expect("its event is that of an operation");
        (node, self.ends.front().map(|(end, _)| *end))
    }
}

/// Multiplies: pages are numbered one after the other.
#[derive(Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }
    fn write_u32(&mut self, page: u32) {
        self.0 = (self.0 ^ u64::from(page)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// A program that has not ended, and the operation after which its data are in the controller.
#[derive(Clone, Copy)]
struct PendingProgram {
    node: u32,
    data: Option<NodeName>,
}

/// Programs that have not ended, by page.
pub(super) struct PendingPrograms {
    geometry: Geometry,
    nodes: HashMap<u32, PendingProgram, BuildHasherDefault<PageHasher>>,
    /// Their number in each superblock: most have none.
    of_superblock: Vec<u32>,
}

impl PendingPrograms {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            nodes: HashMap::default(),
            of_superblock: vec![0; geometry.superblocks() as usize],
        }
    }

    pub(super) fn add(&mut self, page: Ppn, node: u32, data: Option<NodeName>) {
        self.nodes.insert(page.0, PendingProgram { node, data });
        self.of_superblock[self.geometry.superblock(page).0 as usize] += 1;
    }

    pub(super) fn end(&mut self, page: Ppn, node: u32) {
        self.of_superblock[self.geometry.superblock(page).0 as usize] -= 1;
        // A page is programmed again only after an erase; a failed program may be repeated elsewhere.
        if self
            .nodes
            .get(&page.0)
            .is_some_and(|pending| pending.node == node)
        {
            self.nodes.remove(&page.0);
        }
    }

    /// If the page's program has not ended, the operation after which its data are in the controller.
    pub(super) fn data_of(&self, page: Ppn) -> Option<Option<NodeName>> {
        let superblock = self.geometry.superblock(page).0 as usize;
        match self.of_superblock.get(superblock) {
            Some(1..) => self.nodes.get(&page.0).map(|pending| pending.data),
            _ => None,
        }
    }

    /// Nodes of the programs of `count` pages of one superblock, from `first` on.
    pub(super) fn of(&self, first: Ppn, count: u32) -> impl Iterator<Item = u32> + '_ {
        let superblock = self.geometry.superblock(first).0 as usize;
        let pending = self
            .of_superblock
            .get(superblock)
            .is_some_and(|pending| *pending > 0);
        let count = if pending { count } else { 0 };
        (first.0..first.0 + count)
            .filter_map(|page| self.nodes.get(&page).map(|pending| pending.node))
    }
}

/// A clearing, or the erases of one name.
#[derive(Clone, Default)]
struct Clear {
    pending: u32,
    waiting: Vec<u32>,
}

/// Clearings and erases that have not ended, by name. Names only grow.
#[derive(Default)]
pub(super) struct Clears {
    pending: VecDeque<Clear>,
    first: u64,
}

impl Clears {
    pub(super) fn add(&mut self, name: u64) {
        if self.pending.is_empty() {
            self.first = name;
        }
        // One without a record has ended.
        while self.first + self.pending.len() as u64 <= name {
            self.pending.push_back(Clear::default());
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
        while self.pending.front().is_some_and(|front| front.pending == 0) {
            self.pending.pop_front();
            self.first += 1;
        }
    }
}
