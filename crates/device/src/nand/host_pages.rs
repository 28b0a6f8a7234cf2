//! Pages that the host writes into a protected buffer and that wait for nothing but their data: nearly all that it
//! writes.
//!
//! It is known when the data are in the controller. If there is room then, the page is in the buffer, its part has ended,
//! and all of its latency was the controller's. So such a page is a node that is neither started nor measured.
//!
//! Invariant: times and causes are those of a node that waits for a time, as `submit` adds it. Absent: pages that wait
//! for other operations.

use super::Nand;
use super::graph::{Class, NONE, Node, Work};
use super::lanes::{Ready, Way};
use super::timers::Timer;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{ClearId, Op, OpKind, Purpose};

impl Nand {
    /// True if an operation of a part, which is the host's only one, is such a page.
    #[inline]
    pub(super) fn waits_for_data_only(&self, op: &Op) -> bool {
        (op.kind, op.purpose) == (OpKind::Program, Purpose::Host)
            && op.page != NO_PAGE
            && self.units.gather()
            && self.units.is_protected
            && !op.after_all
            && !op.after_fence
            && op.after_page == NO_PAGE
            && op.clear_id == ClearId(0)
    }

    /// Adds such a page of `part`, whose data are in the controller at `ready`.
    pub(super) fn add_host_page(&mut self, op: &Op, part: u32, ready: u64) {
        self.note_mode(op);
        let die = self.chip_of(op.die.into());
        let mut node = Node::new(Work::Buffer, Class::HostProgram);
        (node.page, node.die, node.part, node.since) = (op.page, die, part, self.now);
        let node = self.graph.add(node);
        self.requests.wait(part);
        self.timers.set(ready, Timer::Page(node));

        // No part of a row whose operations wait for everything.
        self.row = None;

        let unit = self.unit_of(op.page, 1, Class::HostProgram, die);
        self.graph.node_mut(node).unit = unit;
        let program = self.last_step(unit);
        self.programs
            .add(op.page, 1, program, self.graph.name(node));
        let way = Way {
            ready: Ready::At(ready),
            source: None,
        };
        self.programs.set_way(node, way);
    }

    /// The data of such a page are in the controller.
    pub(super) fn host_page_is_there(&mut self, at: u32) {
        let Node {
            die,
            since,
            part,
            unit,
            ..
        } = *self.graph.node(at);

        let is_in = self.units.enter(at, die, &mut self.graph);
        if is_in {
            self.graph.end(at);
        }

        // It waits for room, or others have waited for it and go on from here.
        if !is_in || self.graph.has_ready() {
            let node = self.graph.node(at);
            self.array.watch.host_page_goes_on(at, node, self.now);
        }

        if is_in {
            self.units.entered(unit, 1, &mut self.graph);
            let request = self.requests.part_of(part).request;
            self.array.watch.host_page_ended(request, since, self.now);
            self.requests.end_part(part, self.now);
            self.graph.ending = NONE;
        }

        self.begin_ready();
    }
}
