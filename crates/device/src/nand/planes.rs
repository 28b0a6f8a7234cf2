//! Reads that a die does at once: of one flash page, and of the same page on other planes.
//!
//! A read that begins takes along those of its queue that read the same flash page on any plane. The array
//! reads once; then the pages of 4 KiB that were asked for cross the channel one after another, and each ends
//! when it has crossed.
//!
//! What is submitted at one time comes before an idle die begins, so that the pages of a request find each other.
//!
//! If planes are independent, the read also takes along reads of other flash pages on planes that would be idle.
//! All of them begin together.
//!
//! Invariant: reads that are done at once are a list by `Node::next`, whose first is the active one. Absent: planes
//! that begin a read while another one reads.

use super::array::{Array, Context, Phase};
use super::graph::{NONE, Work};
use super::spec::NandSpec;
use super::together::Planes;
use remap_ssd_media::op::NO_PAGE;

impl Array {
    /// The read that begins takes along those of its queue that the array can do at the same time.
    pub(super) fn join_reads(&mut self, die: usize, class: usize, context: &mut Context<'_>) {
        let together = self.together;
        let graph = &mut *context.graph;
        let this = &mut self.dies[die];
        let (at, head) = (this.active, *graph.node(this.active));
        if !together.is_large && together.all == 1
            || head.work != Work::Read
            || head.page == NO_PAGE
        {
            return;
        }

        let flash_page = together.flash_page(head.page);
        let mut planes = Planes::idle();
        planes.reads(together.plane(head.page), flash_page);
        if head.is_run() {
            planes.read_along(graph.run(at).planes, flash_page);
        }
        // The slowest page. A retry reads whole flash pages again.
        let (mut length, mut retry_ns) = (head.length, graph.retry_ns(at));

        let (mut tail, mut before, mut next) = (at, NONE, this.queues[class].first);
        while next != NONE {
            let other = graph.node(next);
            let (after, page) = (other.next, together.flash_page(other.page));
            let joins = (page == flash_page || self.spec.independent_planes)
                && other.work == Work::Read
                && other.page != NO_PAGE
                && planes.reads(together.plane(other.page), page);
            if joins {
                let other = *other;
                if other.is_run() {
                    planes.read_along(graph.run(next).planes, together.flash_page(other.page));
                }
                length = length.max(other.length);
                retry_ns = retry_ns.max(graph.retry_ns(next));

                // From the queue to the list of the active read: their data cross the channel one after the other (`finish`).
                match before {
                    NONE => this.queues[class].first = other.next,
                    before => graph.node_mut(before).next = other.next,
                }
                if other.next == NONE {
                    this.queues[class].last = before;
                }

                graph.node_mut(tail).next = next;
                graph.node_mut(next).next = NONE;
                tail = next;
            } else {
                before = next;
            }
            next = after;
        }

        let NandSpec { part_saves_ns, .. } = self.spec;
        graph.set_retry_ns(at, retry_ns);

        let is_single = tail == at && (!head.is_run() || graph.run(at).is_single());
        let is_single = is_single && head.pages == 1;

        let head = graph.node_mut(at);
        head.length = length;
        head.planes = planes.count();
        if is_single && together.is_large {
            head.length = head.length.saturating_sub(part_saves_ns);
        }
    }

    /// An idle die has something to do, and begins once everything is there that comes at this time.
    pub(super) fn begin_soon(&mut self, die: usize) {
        if !std::mem::replace(&mut self.dies[die].begins_soon, true) {
            self.soon.push(die as u32);
        }
    }

    /// True if a die begins before time goes on.
    #[inline]
    pub(super) fn is_soon(&self) -> bool {
        !self.soon.is_empty()
    }

    /// A die that was to begin soon begins. Returns its operation if that has ended already.
    pub(super) fn begin_next(&mut self, context: &mut Context<'_>) -> Option<u32> {
        let die = self.soon.pop()? as usize;
        self.dies[die].begins_soon = false;
        match self.dies[die].phase {
            Phase::Idle => self.start_next(die, context),
            Phase::Data if self.spec.cache_read => {
                self.read_beside_data(die, context);
                None
            }
            _ => None,
        }
    }
}
