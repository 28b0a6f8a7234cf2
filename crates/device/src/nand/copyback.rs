//! Copyback: collection's copies that stay on their die do not cross the channel.
//!
//! If a page and its copy are on the same die, the die reads the page and programs what it has read: one operation
//! that takes the channel for its commands alone. Bit errors are not corrected on the way, so a limited number of copies
//! may follow each other (`timing.copybacks`); the next one goes through the controller.
//!
//! These are counted by block: a block has the largest count of the pages that it has received, and 0 after its
//! erase. So a page may go through the controller sooner than it must, never later.
//!
//! Invariant: a copyback ends like a program, and its source is read until then. Absent: which pages are copied, and
//! where (the firmware's choice); bit errors, with which copybacks are refused.

use super::Nand;
use super::graph::Node;
use super::submit::Adding;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{Geometry, Op, OpKind, Ppn, Purpose};

/// Copybacks of the pages of each block that follow each other.
pub(super) struct Copybacks {
    geometry: Geometry,
    /// Most of them; 0: there are none at all.
    most: u8,
    blocks: Vec<u8>,
    count: u64,
}

impl Copybacks {
    pub(super) fn new(geometry: Geometry, most: u8) -> Self {
        let blocks = match most {
            0 => 0,
            _ => geometry.superblocks() as usize * geometry.dies() as usize,
        };
        Self {
            geometry,
            most,
            blocks: vec![0; blocks],
            count: 0,
        }
    }

    /// How many there were; `None` if there are none at all.
    pub(super) fn count(&self) -> Option<u64> {
        (self.most > 0).then_some(self.count)
    }

    fn block(&mut self, page: Ppn) -> &mut u8 {
        &mut self.blocks[self.geometry.slot(page).block.0 as usize]
    }

    /// Counts a copyback, unless the page must go through the controller.
    fn permits(&mut self, from: Ppn, to: Ppn) -> bool {
        let count = *self.block(from);
        if count >= self.most {
            return false;
        }
        let block = self.block(to);
        *block = (*block).max(count + 1);
        self.count += 1;
        true
    }

    pub(super) fn erased(&mut self, page: Ppn) {
        if self.most > 0 {
            *self.block(page) = 0;
        }
    }
}

impl Nand {
    /// Adds a copy by collection as a copyback, if it can be one; otherwise returns false.
    pub(super) fn add_copyback(&mut self, read: &Op, program: &Op, adding: &Adding) -> bool {
        let is_copy = |op: &Op, kind| op.kind == kind && op.purpose == Purpose::Gc;
        let is_one = self.copybacks.most > 0
            && is_copy(read, OpKind::Read)
            && is_copy(program, OpKind::Program)
            && read.die == program.die
            && read.page != NO_PAGE
            && program.page != NO_PAGE
            // In the controller's buffer, there is nothing to read.
            && self.programs.of_page(read.page).is_none();

        if !is_one || !self.copybacks.permits(read.page, program.page) {
            return false;
        }

        // No pages cross the channel. Its array time is that of both, and it waits for what either of them waits for.
        let mut node: Node = self.node_of(program);
        node.length += self.read_ns(read.page);
        node.pages = 0;
        let mut copy = *adding;
        copy.source = Some((read.page, read.die));
        let node = self.add_one(program, node, &copy);
        self.wait_as_recorded(read, node);
        self.graph.seal(node);
        true
    }
}
