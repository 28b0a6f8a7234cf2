//! Pages that collection copies from one flash page into one program unit: a *run*, which is one node.
//!
//! The die reads the flash page once. Then the pages cross the channel one after another, and each enters the buffer
//! of the unit when it has crossed and there is room.
//!
//! ```text
//! flash page ─► page, page, page .. ─► room in the buffer? ─► in the buffer ─► unit
//! ```
//!
//! What waits for one of these pages does not wait for the node, but for that page to cross or to enter.
//!
//! Invariants: pages cross and enter in order, and none enters before it has crossed; a run ends when its last page is
//! in the buffer. Absent: flash with errors, where each page has its own time, and pages that wait for something
//! other than their source: they come one by one.

use super::Nand;
use super::graph::{Class, Graph, NONE, Node, Work};
use super::runs::{Before, PageStep, Run};
use super::submit::Adding;
use remap_ssd_media::{After, Op, OpKind, Ppn};

/// Operations that wait for pages of runs, in the order of their submission.
#[derive(Default)]
pub(super) struct PageWaits(Vec<(u32, PageStep, u32)>);

impl PageWaits {
    fn add(&mut self, run: u32, step: PageStep, node: u32) {
        self.0.push((run, step, node));
    }

    /// The page has done the step.
    fn end(&mut self, run: u32, step: PageStep, graph: &mut Graph) {
        if self.0.is_empty() {
            return;
        }
        self.0.retain(|(before, of, node)| {
            let is_over = (*before, *of) == (run, step);
            if is_over {
                graph.waited(*node);
            }
            !is_over
        });
    }
}

impl Nand {
    /// Adds copies to a word line, as few nodes as possible.
    pub(super) fn add_copies(&mut self, op: &Op, adding: &mut Adding) {
        // With bit errors each page has a time of its own, and the reads of a lookup wait for each other.
        let may_be_runs = self.errors.is_none() && self.lookup == NONE;
        let (mut left, mut to) = (op.sources, op.page);
        while left != 0 {
            let from = Ppn(op.amount + left.trailing_zeros());
            let run = may_be_runs.then(|| self.run_of(op.amount, left, to));
            if let Some(run) = run.filter(|run| run.count > 0) {
                self.add_run(run);
                left &= !(run.sources << (from.0 - op.amount));
                to.0 += u32::from(run.count);
            } else {
                self.add_copy(from, to, op, adding);
                left &= left - 1;
                to.0 += 1;
            }
        }
    }

    /// A page that is copied alone: it may have to wait for its source.
    fn add_copy(&mut self, from: Ppn, to: Ppn, op: &Op, adding: &mut Adding) {
        for (kind, page) in [(OpKind::Read, from), (OpKind::Program, to)] {
            let one = Op {
                kind,
                page,
                die: self.die_of(page) as u16,
                ..Op::new(kind, op.purpose, After::NOTHING)
            };
            self.add(&one, adding);
        }
    }

    /// The first pages of `sources` that can be one run, of which bit n stands for page `base` + n: they share a
    /// flash page, their copies from `to` on a program unit, and all of them are on flash.
    fn run_of(&self, base: u32, sources: u64, to: Ppn) -> Run {
        let skipped = sources.trailing_zeros();
        let from = Ppn(base + skipped);
        let room = self.units.range(to).end - to.0;

        // As many as read one flash page and fill no more than one unit; the last ones are left for the next run.
        let mut sources = first_bits(sources >> skipped, self.run_end(from) - from.0);
        while sources.count_ones() > room {
            sources ^= 1 << sources.ilog2();
        }

        // Pages that have not been programmed are not on flash: the run ends before the first of them.
        if self.programs.has_some(from) {
            let bits = (0..u64::BITS).filter(|bit| sources >> bit & 1 == 1);
            let in_buffer = |bit: &u32| self.programs.of_page(Ppn(from.0 + bit)).is_some();
            sources = first_bits(
                sources,
                bits.into_iter().find(in_buffer).unwrap_or(u64::BITS),
            );
        }

        Run {
            from,
            sources,
            to,
            count: sources.count_ones() as u16,
            planes: self.array.together.planes(from, sources),
            ..Run::ABSENT
        }
    }

    /// One more than the last page that can be in a run with this one: those of a flash page, or of one of its planes
    /// if planes read different pages.
    fn run_end(&self, page: Ppn) -> u32 {
        let together = self.array.together;
        let pages = match self.spec.independent_planes {
            true => together.parts,
            false => together.all,
        };
        page.0 - page.0 % pages + pages
    }

    fn die_of(&self, page: Ppn) -> u32 {
        let (geometry, superblock) = (self.geometry, self.geometry.superblock(page));
        geometry.die_of(superblock, geometry.die_of_offset(geometry.offset(page)))
    }

    fn add_run(&mut self, mut run: Run) {
        run.die = self.chip_of(self.die_of(run.to));
        let mut node = Node::new(Work::Read, Class::Collection);
        node.page = run.from;
        node.length = self.read_ns(run.from);
        node.die = self.chip_of(self.die_of(run.from));
        node.missing = run.count;
        node.pages = self.geometry.host_pages() as u16;

        let node = self.graph.add_run(node, run);
        self.wait_for(node, self.looked_up);

        // No part of a row whose operations wait for everything.
        self.row = None;

        let unit = self.unit_of(run.to, run.count.into(), Class::Collection, run.die);
        self.graph.node_mut(node).unit = unit;
        let (program, name) = (self.last_step(unit), self.graph.name(node));
        self.programs.add(run.to, run.count.into(), program, name);
        self.graph.seal(node);
    }

    /// What was read has crossed the channel: of a run one page, or the last one of those that cross at once.
    pub(super) fn finish_read(&mut self, at: u32) {
        match self.graph.node(at).is_run() {
            true => self.page_crossed(at),
            false => self.finish(at),
        }
    }

    /// Pages that waited for room are in the buffer.
    pub(super) fn finish_buffered(&mut self, at: u32, pages: u16) {
        match self.graph.node(at).is_run() {
            true => self.pages_entered(at, pages),
            false => self.finish(at),
        }
    }

    fn page_crossed(&mut self, at: u32) {
        let die = self.graph.run(at).die;
        // Pages of other runs that have crossed before come first.
        self.units.catch_up(die, &mut self.graph);
        self.graph.end_crossing(at);

        let run = self.graph.run_mut(at);
        let index = run.arrived;
        run.arrived += 1;
        if run.is_awaited {
            self.graph.ending = at;
            self.page_waits
                .end(at, PageStep::Crosses(index), &mut self.graph);
            self.graph.ending = NONE;
        }

        if self.units.enter(at, die, &mut self.graph) {
            self.pages_entered(at, 1);
        }
    }

    /// The next pages of a run are in the buffer.
    fn pages_entered(&mut self, at: u32, pages: u16) {
        let unit = self.graph.node(at).unit;
        let run = self.graph.run_mut(at);
        let index = run.enter(pages);
        let (is_last, is_awaited) = (run.entered == run.count, run.is_awaited);

        self.graph.ending = at;
        if is_awaited {
            self.page_waits
                .end(at, PageStep::Enters(index), &mut self.graph);
        }
        if is_last {
            self.graph.end(at);
        }
        self.units.entered(unit, pages, &mut self.graph);
        self.graph.ending = NONE;
    }

    pub(super) fn wait_until(&mut self, node: u32, before: Before) {
        match before {
            Before::Nothing => {}
            Before::End(before) => self.graph.wait_for(node, before),
            Before::Page(run, step) => {
                self.cross_apart(run);
                self.graph.wait(node);
                self.page_waits.add(run, step, node);
            }
        }
    }
}

/// The first `count` bits.
fn first_bits(bits: u64, count: u32) -> u64 {
    match count < u64::BITS {
        true => bits & ((1 << count) - 1),
        false => bits,
    }
}
