//! Pages that have not been programmed: where they are read, and when they are safe.
//!
//! Invariant: what waits for a page of a run waits for that page. Absent: the tables (`lanes`, `runs`).

use super::Nand;
use super::graph::{Node, NodeName, Work};
use super::lanes::{PendingProgram, Ready, Way};
use super::runs::{Before, PageStep, Run};
use super::timers::Timer;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{Ppn, Purpose};

impl Nand {
    /// A read of a page that has not been programmed: it takes no time once the data are in the controller.
    /// Until collection has read the page that it copies, the host reads that one. The data of a copyback are never
    /// in the controller, so other readers wait for its end and read the copy. Returns for what it waits.
    pub(super) fn read_early(&mut self, purpose: Purpose, node: &mut Node) -> Before {
        if node.work != Work::Read || node.page == NO_PAGE {
            return Before::Nothing;
        }
        let Some(&PendingProgram { way, .. }) = self.programs.find(node.page) else {
            return Before::Nothing;
        };

        let (before, source) = self.data_ready(node.page, way);
        if let (Some(_), Some((page, die)), Purpose::Host) = (before, source, purpose) {
            node.length = self.read_ns(page);
            node.page = page;
            node.die = self.chip_of(die.into());
            return Before::Nothing;
        }

        let is_copyback =
            matches!(before, Some(Before::End(before)) if self.graph.node(before).pages == 0);
        if !is_copyback {
            (node.work, node.length) = (Work::Nothing, 0);
        }
        before.unwrap_or(Before::Nothing)
    }

    /// What must end before the data of a page are in the controller that come this way, unless it has ended; and
    /// the page from which collection copies them, with its die.
    fn data_ready(&mut self, page: Ppn, way: NodeName) -> (Option<Before>, Option<(Ppn, u16)>) {
        let Some(at) = self.graph.find(way) else {
            return (None, None);
        };

        if self.graph.node(at).is_run() {
            return match self.copied_by(at, page) {
                Some((before, source)) => (Some(before), Some(source)),
                None => (None, None),
            };
        }

        let Way { ready, source } = self.programs.way(at);
        let ready = match ready {
            Ready::After(name) => self.graph.find(name),
            Ready::At(time) => (time > self.now).then(|| {
                let gate = self.gate();
                self.timers.set(time, Timer::Gate(gate));
                gate
            }),
        };
        (ready.map(Before::End), source)
    }

    /// What must end before a page is durable.
    pub(super) fn safe(&mut self, page: Ppn) -> Before {
        let is_unprotected = self.units.gather() && !self.units.is_protected;
        if is_unprotected && let Some(line) = self.units.gate_of(page, &self.graph) {
            return Before::End(line);
        }

        match self.programs.find(page).copied() {
            None => Before::Nothing,
            Some(program) if is_unprotected => Before::End(program.node),
            Some(program) => self.in_buffer(page, program.way),
        }
    }

    /// If the page that copies another one has not crossed the channel, what waits for that waits for this, and
    /// the page from which it is copied with its die.
    fn copied_by(&mut self, at: u32, page: Ppn) -> Option<(Before, (Ppn, u16))> {
        let run = self.seen_run(at);
        let index = (page.0 - run.to.0) as u16;
        let source = (run.source(index), self.graph.node(at).die);
        (index >= run.arrived).then_some((Before::Page(at, PageStep::Crosses(index)), source))
    }

    /// What must end before the page is in the buffer, if it comes by the named operation.
    fn in_buffer(&mut self, page: Ppn, way: NodeName) -> Before {
        let Some(at) = self.graph.find(way) else {
            return Before::Nothing;
        };
        if !self.graph.node(at).is_run() {
            return Before::End(at);
        }
        let run = self.seen_run(at);
        let index = (page.0 - run.to.0) as u16;
        match index < run.entered {
            true => Before::Nothing,
            false => Before::Page(at, PageStep::Enters(index)),
        }
    }

    /// A run, with all its pages that have arrived until now.
    fn seen_run(&mut self, at: u32) -> Run {
        self.units.catch_up(self.graph.run(at).die, &mut self.graph);
        *self.graph.run(at)
    }
}
