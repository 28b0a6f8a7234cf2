//! Program units: pages that one operation programs, gathered in the controller's buffer.
//!
//! The firmware records pages one by one. Each enters the buffer of its die when all for which it waits has
//! ended and there is room; the unit is programmed once its last page is there.
//!
//! ```text
//! page ─► waits ─► room in the buffer? ─► in the buffer ─┐
//! page ─► waits ─► room in the buffer? ─► in the buffer ─┴─► unit ─► queue of its die
//! ```
//!
//! Pages find room unless too many complete units of their die have not been programmed. What fills a unit may
//! come after a page that finds no room, so units that are not complete take none; and a page waits only
//! while its die has a program or an erase that nothing holds up. So nothing waits forever.
//!
//! If the buffer is *protected* from power cuts, a page counts as done once it is there; otherwise, once its
//! unit has been programmed. A unit of which pages will never come is programmed as it is.
//!
//! With *two steps*, the cells of a word line get coarse values first. The fine step follows the coarse one of the
//! block's next word line, which would disturb it otherwise: coarse 0, coarse 1, fine 0, coarse 2, fine 1, .. Until
//! then the unit keeps its room, and its pages are read from the buffer.
//!
//! In SLC mode a unit is a word line, which is programmed in one step.
//!
//! Invariants: a block has at most one incomplete unit; its units are programmed in order. Absent: the order of a
//! die's operations (`array`).

use super::Nand;
use super::graph::{Class, Graph, NONE, Node, NodeName, Work};
use super::spec::NandSpec;
use remap_ssd_media::{Geometry, Ppn, SbId, SlcModes};
use std::collections::VecDeque;

/// The latest unit of a block.
#[derive(Clone, Copy)]
struct Latest {
    /// The last program of the block so far: the unit, or with two steps the fine step of the one before.
    name: Option<NodeName>,
    /// The fine step of the unit, while it waits for the next unit; else `NONE`.
    open_fine: u32,
    /// Fine steps that wait for pages of the unit to come.
    fines: u8,
    /// Its node while pages are to come; else `NONE`.
    open: u32,
    /// The page that comes next, while it is open.
    next: Ppn,
    /// Without protection, what ends with the word line, and the word line's first page.
    gate: Option<NodeName>,
    line: Ppn,
    /// The same node while units of the word line are to come; else `NONE`.
    open_gate: u32,
}

/// The buffer of a die.
#[derive(Clone, Default)]
struct Buffer {
    /// Units whose pages are all there.
    complete: u32,
    /// Programs and erases that wait for nothing but their die.
    ready: u32,
    /// Pages that wait for room: each with the number of them that follow each other, more than one of a run.
    waiting: VecDeque<(u32, u32)>,
    /// True while the die is in the list of those to look at.
    is_listed: bool,
}

impl Buffer {
    /// Pages wait for room.
    fn waits(&mut self, at: u32, pages: u32) {
        match self.waiting.back_mut() {
            Some((last, count)) if *last == at => *count += pages,
            _ => self.waiting.push_back((at, pages)),
        }
    }
}

/// All program units that have not ended.
pub(super) struct Units {
    geometry: Geometry,
    /// Pages of a unit where cells store all bits.
    pages: u32,
    /// Superblocks in SLC mode, whose units are word lines.
    pub(super) slc: SlcModes,
    /// The number of changes when the modes of all superblocks were compared with the firmware's.
    pub(super) modes_known: u64,
    /// Complete units that a die's buffer holds.
    room: u32,
    pub is_protected: bool,
    blocks: Vec<Latest>,
    /// The first page of the unit that a page joined last, its number of pages, and its block.
    recent: (u32, u32, usize),
    buffers: Vec<Buffer>,
    /// Dies with pages that may have room now.
    listed: Vec<u32>,
    incomplete: usize,
    open_fines: usize,
    open_gates: usize,
}

impl Units {
    /// `dies` is the number of timelines of dies.
    pub(super) fn new(geometry: Geometry, dies: u32, spec: &NandSpec) -> Self {
        let pages = geometry.word_line().unit_pages();
        let blocks = match geometry.stripe() {
            1 => 0,
            _ => geometry.superblocks() as usize * geometry.dies() as usize,
        };

        let latest = Latest {
            name: None,
            open_fine: NONE,
            fines: 0,
            open: NONE,
            next: Ppn(0),
            gate: None,
            line: Ppn(0),
            open_gate: NONE,
        };

        Self {
            geometry,
            pages,
            slc: SlcModes::new(spec.slc.area, geometry),
            modes_known: 0,
            room: spec.buffer_units.max(1),
            is_protected: spec.protected,
            blocks: vec![latest; blocks],
            recent: (0, 0, 0),
            buffers: vec![Buffer::default(); dies as usize],
            listed: Vec::new(),
            incomplete: 0,
            open_fines: 0,
            open_gates: 0,
        }
    }

    /// True if pages are gathered: several of them share a word line.
    #[inline]
    pub(super) fn gather(&self) -> bool {
        self.geometry.stripe() > 1
    }

    /// From now on a superblock is in this mode. Its blocks have open units only if operations were not recorded.
    pub(super) fn change_mode(&mut self, sb: SbId, is_slc: bool, graph: &mut Graph) {
        self.close_superblock(self.geometry.page(sb, 0), graph);
        self.slc.set(sb, is_slc);
        self.recent = (0, 0, 0);
    }

    /// The first page of a page's word line.
    pub(super) fn line(&self, page: Ppn) -> Ppn {
        let offset = self.geometry.offset(page);
        match self.slc.has_page(page) {
            true => Ppn(page.0 - offset % self.slc.area().line()),
            false => Ppn(page.0 - offset + self.geometry.line_start(offset)),
        }
    }

    /// Pages of a page's word line.
    fn line_pages(&self, page: Ppn) -> u32 {
        match self.slc.has_page(page) {
            true => self.slc.area().line(),
            false => self.geometry.stripe(),
        }
    }

    /// Pages of a page's unit.
    fn unit_pages(&self, page: Ppn) -> u32 {
        match self.slc.has_page(page) {
            true => self.slc.area().line(),
            false => self.pages,
        }
    }

    /// Pages of a page's block that can be programmed.
    fn block_pages(&self, page: Ppn) -> u32 {
        match self.slc.has_page(page) {
            true => self.slc.area().rows(),
            false => self.geometry.pages_per_block(),
        }
    }

    /// Without protection, what ends with a page's word line, if that is the latest one of its block.
    pub(super) fn gate_of(&self, page: Ppn, graph: &Graph) -> Option<u32> {
        let latest = self.blocks.get(self.block_of(page))?;
        let gate = latest.gate.filter(|_| latest.line == self.line(page));
        gate.and_then(|name| graph.find(name))
    }

    /// A unit begins, with or without its word line.
    fn gate(&mut self, page: Ppn, unit: u32, graph: &mut Graph) {
        let (line, block) = (self.line(page), self.block_of(page));
        if self.blocks[block].open_gate == NONE || self.blocks[block].line != line {
            self.seal_gate(block, graph);
            let class = graph.node(unit).class;
            let gate = graph.add(Node::new(Work::Nothing, class));
            let latest = &mut self.blocks[block];
            (latest.gate, latest.line, latest.open_gate) = (Some(graph.name(gate)), line, gate);
            self.open_gates += 1;
        }
        graph.wait_for(self.blocks[block].open_gate, unit);
    }

    /// No further unit of the word line will come.
    fn seal_gate(&mut self, block: usize, graph: &mut Graph) {
        let gate = std::mem::replace(&mut self.blocks[block].open_gate, NONE);
        if gate != NONE {
            self.open_gates -= 1;
            graph.seal(gate);
        }
    }

    /// The first page of a page's unit, and the one after its last.
    pub(super) fn range(&self, page: Ppn) -> std::ops::Range<u32> {
        if self.is_recent(page) {
            return self.recent.0..self.recent.0 + self.recent.1;
        }
        // A superblock has whole units.
        let pages = self.unit_pages(page);
        let first = page.0 - page.0 % pages;
        first..first + pages
    }

    #[inline]
    fn is_recent(&self, page: Ppn) -> bool {
        page.0.wrapping_sub(self.recent.0) < self.recent.1
    }

    #[inline]
    fn block_of(&self, page: Ppn) -> usize {
        if self.is_recent(page) {
            return self.recent.2;
        }
        self.geometry.slot(page).block.0 as usize
    }

    /// Pages follow each other: the unit of this one is found at once from now on.
    fn note_recent(&mut self, page: Ppn) {
        if !self.is_recent(page) {
            let range = self.range(page);
            self.recent = (range.start, range.end - range.start, self.block_of(page));
        }
    }

    /// The incomplete unit to which a page belongs, if it has one.
    pub(super) fn open_for(&self, page: Ppn) -> Option<u32> {
        let latest = &self.blocks[self.block_of(page)];
        (latest.open != NONE && latest.next == page).then_some(latest.open)
    }

    /// The last program so far of a page's block.
    pub(super) fn latest(&self, page: Ppn) -> Option<NodeName> {
        self.blocks[self.block_of(page)].name
    }

    /// A unit begins with this page. No other one of its block is open.
    pub(super) fn begin(&mut self, page: Ppn, unit: u32, graph: &mut Graph) {
        graph.node_mut(unit).missing = (self.range(page).end - page.0) as u16;
        let block = self.block_of(page);

        let latest = &mut self.blocks[block];
        (latest.open, latest.next) = (unit, page);

        let fine = std::mem::replace(&mut latest.open_fine, graph.node(unit).unit);
        latest.name = Some(graph.name(unit));
        self.incomplete += 1;

        if fine != NONE {
            // The fine step of the unit before follows, and frees the way for the next unit.
            let latest = &mut self.blocks[block];
            (latest.name, latest.fines) = (Some(graph.name(fine)), 1);
            graph.seal(fine);
        }

        self.open_fines += usize::from(graph.node(unit).unit != NONE);
        if !self.is_protected {
            self.gate(page, unit, graph);
        }
    }

    /// The page and those after it belong to its block's open unit, `count` in all.
    fn join(&mut self, page: Ppn, count: u32, graph: &mut Graph) {
        let (block, end) = (self.block_of(page), self.range(page).end);
        let next = page.0 + count;
        self.blocks[block].next = Ppn(next);
        if next < end {
            return;
        }

        if end == self.line(page).0 + self.line_pages(page) {
            self.seal_gate(block, graph);
        }
        self.ends(block);
    }

    /// No further page of the block's open unit will come.
    fn ends(&mut self, block: usize) {
        let latest = &mut self.blocks[block];
        latest.open = NONE;
        self.incomplete -= 1;
        self.open_fines -= usize::from(std::mem::take(&mut latest.fines));
    }

    /// The fine step that waits for the next unit of a page's block; else `NONE`.
    fn open_fine(&self, page: Ppn) -> u32 {
        self.blocks[self.block_of(page)].open_fine
    }

    /// No further unit of the block will come: the fine step of the latest one waits for nothing else.
    fn close_fine(&mut self, block: usize, graph: &mut Graph) {
        let latest = &mut self.blocks[block];
        let fine = std::mem::replace(&mut latest.open_fine, NONE);
        if fine == NONE {
            return;
        }
        let before = latest.name.replace(graph.name(fine));
        if let Some(before) = before.and_then(|name| graph.find(name)) {
            graph.wait_for(fine, before);
        }
        match latest.open {
            NONE => self.open_fines -= 1,
            _ => latest.fines += 1,
        }
        graph.seal(fine);
    }

    /// No further page of the block's open unit and word line will come.
    pub(super) fn close(&mut self, page: Ppn, graph: &mut Graph) {
        let block = self.block_of(page);
        self.close_block(block, graph);
    }

    /// No further unit of the superblock will come before its erase. A block that has failed is not erased, but its
    /// last fine step frees its room too.
    fn close_superblock(&mut self, page: Ppn, graph: &mut Graph) {
        let (superblock, dies) = (self.geometry.superblock(page), self.geometry.dies());
        for die in 0..dies {
            let block = self.geometry.block(superblock, die).0 as usize;
            self.close_block(block, graph);
            self.close_fine(block, graph);
        }
    }

    fn close_block(&mut self, block: usize, graph: &mut Graph) {
        self.seal_gate(block, graph);
        self.close_unit_of(block, graph);
    }

    /// No further page of the block's open unit will come; its word line may go on.
    fn close_unit(&mut self, page: Ppn, graph: &mut Graph) {
        let block = self.block_of(page);
        self.close_unit_of(block, graph);
    }

    fn close_unit_of(&mut self, block: usize, graph: &mut Graph) {
        let Latest { open, next, .. } = self.blocks[block];
        if open == NONE {
            return;
        }
        let missing = (self.range(next).end - next.0) as u16;
        self.ends(block);
        self.came(open, missing, graph);
    }

    /// No further page of any open unit will come. Returns false if there is none.
    pub(super) fn close_all(&mut self, graph: &mut Graph) -> bool {
        let any = self.incomplete > 0 || self.open_gates > 0;
        for block in 0..self.blocks.len() {
            self.close_block(block, graph);
        }
        any
    }

    /// Programs that wait for pages to come.
    pub(super) fn incomplete(&self) -> usize {
        self.incomplete + self.open_fines
    }

    /// Some pages of a unit are in the buffer, or will never come.
    fn came(&mut self, unit: u32, pages: u16, graph: &mut Graph) {
        let node = graph.node_mut(unit);
        node.missing -= pages;
        if node.missing == 0 {
            let die = node.die;
            self.catch_up(die, graph);
            self.buffers[usize::from(die)].complete += 1;
            graph.seal(unit);
        }
    }

    /// Pages that have crossed a channel until now arrive at a die.
    #[inline]
    pub(super) fn catch_up(&mut self, die: u16, graph: &mut Graph) {
        if graph.crossings.may_arrive(die) {
            self.arrive(die, graph);
            graph.note_next_arrival(die);
        }
    }

    fn arrive(&mut self, die: u16, graph: &mut Graph) {
        let buffer = &mut self.buffers[usize::from(die)];
        let has_room = buffer.complete < self.room || buffer.ready == 0;
        let enters = has_room && buffer.waiting.is_empty();
        while let Some((at, pages)) = graph.next_arrivals(die, !enters) {
            if enters {
                // No unit is complete: the last page of the run is still to come.
                graph.run_mut(at).enter(pages);
                let unit = graph.node(at).unit;
                graph.node_mut(unit).missing -= pages;
            } else {
                buffer.waits(at, pages.into());
            }
        }
    }

    /// A page waits for nothing but room, the next one of a run. Returns true if it has it.
    #[inline]
    pub(super) fn enter(&mut self, at: u32, die: u16, graph: &mut Graph) -> bool {
        let buffer = &self.buffers[usize::from(die)];
        // Then those that have crossed the channel before it have room as well, and need not arrive first.
        if buffer.complete < self.room && buffer.waiting.is_empty() {
            return true;
        }
        self.wait_for_room(at, die, graph);
        false
    }

    fn wait_for_room(&mut self, at: u32, die: u16, graph: &mut Graph) {
        self.catch_up(die, graph);
        self.buffers[usize::from(die)].waits(at, 1);
        self.look_at(die);
    }

    /// True if dies have pages that may have room now.
    #[inline]
    pub(super) fn may_have_room(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Pages are in the buffer.
    pub(super) fn entered(&mut self, unit: u32, pages: u16, graph: &mut Graph) {
        self.came(unit, pages, graph);
    }

    /// Once no node is ready: pages that have waited for room and have it now.
    pub(super) fn next_with_room(&mut self, graph: &Graph) -> Option<(u32, u16)> {
        while let Some(die) = self.listed.last() {
            let buffer = &mut self.buffers[*die as usize];
            let has_room = buffer.complete < self.room || buffer.ready == 0;
            if let Some((at, count)) = buffer.waiting.front_mut().filter(|_| has_room) {
                let (at, pages) = (*at, graph.enter_at_once(*at, *count as u16));
                *count -= u32::from(pages);
                if *count == 0 {
                    buffer.waiting.pop_front();
                }
                return Some((at, pages));
            }
            buffer.is_listed = false;
            self.listed.pop();
        }
        None
    }

    fn look_at(&mut self, die: u16) {
        let buffer = &mut self.buffers[usize::from(die)];
        if !buffer.waiting.is_empty() && !buffer.is_listed {
            buffer.is_listed = true;
            self.listed.push(die.into());
        }
    }

    /// A program or an erase waits for its die alone.
    pub(super) fn ready(&mut self, die: u16, graph: &mut Graph) {
        self.catch_up(die, graph);
        self.buffers[usize::from(die)].ready += 1;
    }

    /// A program or an erase has ended.
    pub(super) fn ended(&mut self, die: u16, is_unit: bool, graph: &mut Graph) {
        self.catch_up(die, graph);
        let buffer = &mut self.buffers[usize::from(die)];
        buffer.ready -= 1;
        buffer.complete -= u32::from(is_unit);
        self.look_at(die);
    }
}

impl Nand {
    /// The page `node` joins its unit, which begins with it if it has none.
    pub(super) fn join_unit(&mut self, page: Ppn, node: u32) {
        let Node { class, die, .. } = *self.graph.node(node);
        let unit = self.unit_of(page, 1, class, die);
        self.graph.node_mut(node).unit = unit;

        if !self.units.is_protected {
            // The host waits until the word line has been programmed.
            let line = self.units.gate_of(page, &self.graph).unwrap_or(unit);
            let part = std::mem::replace(&mut self.graph.node_mut(node).part, NONE);
            if part != NONE {
                let mut programmed = Node::new(Work::Nothing, self.graph.node(unit).class);
                programmed.part = part;
                let programmed = self.graph.add(programmed);
                self.watch_submitted(programmed);
                self.graph.wait_for(programmed, line);
                self.graph.seal(programmed);
            }
        }
    }

    /// The unit that a page and those after it join, `count` in all. It begins with them if there is none.
    pub(super) fn unit_of(&mut self, page: Ppn, count: u32, class: Class, die: u16) -> u32 {
        self.units.note_recent(page);
        let unit = match self.units.open_for(page) {
            Some(unit) => unit,
            None => {
                self.units.close_unit(page, &mut self.graph);
                self.begin_unit(page, class, die)
            }
        };

        self.units.join(page, count, &mut self.graph);

        // The unit is as urgent as the most urgent of its pages.
        let this = self.graph.node_mut(unit);
        this.class = this.class.min(class);
        let (class, fine) = (this.class, this.unit);
        if fine != NONE {
            self.graph.node_mut(fine).class = class;
        }
        unit
    }

    /// A unit that is programmed after the previous one of its block, or after the block's erase.
    fn begin_unit(&mut self, page: Ppn, class: Class, die: u16) -> u32 {
        let row = self.geometry.slot(page).row;
        let pages = self.units.unit_pages(page);
        let is_first = row < pages;
        let before = if is_first {
            self.erases.of(page)
        } else {
            self.units.latest(page)
        };

        let word_line = self.geometry.word_line();
        let mut node = Node::new(Work::Program, class);
        node.page = page;
        node.die = die;
        node.length = self.program_ns(page);
        node.pages = pages as u16;
        node.planes = word_line.planes as u8;
        node.apart = self.units.is_protected;

        // Coarse first. The fine step is a program of its own, after the coarse step of the block's next unit.
        if self.spec.two_step && !self.units.slc.has_page(page) {
            node.length = self.spec.program.of_row(0);
            let mut fine = node;
            fine.length = self.spec.program.of_row(1);
            node.unit = self.graph.add(fine);
        }

        let unit = self.graph.add(node);
        match before.and_then(|name| self.graph.find(name)) {
            Some(before) if is_first => self.graph.wait_for(unit, before),
            Some(before) => self.follow_program(unit, before),
            None => {}
        }

        let fine = self.units.open_fine(page);
        if fine != NONE {
            self.follow_program(fine, unit);
        }

        self.units.begin(page, unit, &mut self.graph);

        // The block's last unit: no coarse step will come for which its fine step must wait.
        if row / pages + 1 == self.units.block_pages(page) / pages {
            let block = self.units.block_of(page);
            self.units.close_fine(block, &mut self.graph);
        }
        unit
    }

    /// The program after which a page of a unit is on flash.
    pub(super) fn last_step(&self, unit: u32) -> u32 {
        match self.graph.node(unit).unit {
            NONE => unit,
            fine => fine,
        }
    }

    /// A block is erased after its latest unit.
    pub(super) fn erase_follows_units(&mut self, page: Ppn, erase: u32) {
        if !self.units.gather() {
            return;
        }
        if self.spec.two_step {
            self.units.close_superblock(page, &mut self.graph);
        } else {
            self.units.close(page, &mut self.graph);
        }

        let unit = self.units.latest(page);
        if let Some(unit) = unit.and_then(|name| self.graph.find(name)) {
            self.graph.wait_for(erase, unit);
        }
    }
}
