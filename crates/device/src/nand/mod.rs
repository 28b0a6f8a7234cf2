//! A timing model whose dies choose: reads of the host go first, may suspend programs and erases, and
//! nothing starves.
//!
//! In the other model (`timing`) the end of an operation is known when it is charged, so nothing charged
//! later can change it. Here operations wait in queues, and time advances from event to event. The
//! firmware does not notice: it acts at once and records, and this model replays the record. The waits
//! recorded with each operation ([`After`](remap_ssd_media::After)) are those that the power rail knows.
//!
//! ```text
//! step ─► parts of requests ─► operations ─► what each waits for (graph) ─► ready ─► queue of its die (array)
//!                                                        ▲                                  │
//!                                                        └────────── ended ◄── events ◄─────┘
//! ```
//!
//! Three waits are added to the recorded ones, since order within a die is no longer that of submission: a
//! program waits for that of the previous page of its block, the first one for the block's erase, and a moved
//! page for the read of its source.
//! A page that has not been programmed yet is read from the controller's buffer, in no time, or where
//! collection copies it from.
//!
//! Invariants: no operation begins before the operations in its `after` have ended; ends depend only on
//! the sequence of calls; nothing is allocated per operation on flash once queues have grown. Absent: stalls of all
//! dies by lookups (a choice of the published emulators), and the host's queue.

mod array;
mod cache;
mod causes;
mod copies;
mod copyback;
mod crossings;
mod errors;
mod events;
mod graph;
mod host_pages;
mod idle;
mod lanes;
mod pending;
mod planes;
mod requests;
mod runs;
mod spec;
mod submit;
#[cfg(test)]
mod tests;
mod timeline;
mod timers;
mod together;
mod units;
mod utilisation;
mod watch;

pub use causes::{Cause, Causes};
pub use errors::ReadErrors;
pub use requests::RequestEnd;
pub use spec::CellTimes;
pub(crate) use spec::{NandSpec, SlcSpec, Suspension};
pub use timeline::{Activity, DieInterval, Timeline};
pub use utilisation::{DieState, Utilisation};

use crate::config::Latencies;
use crate::lane::FrontEnd;
use crate::step::{DataPath, Step};
use array::{Array, Context};
use copies::PageWaits;
use copyback::Copybacks;
use errors::Correction;
use events::Events;
use graph::{Graph, Mark, NONE, Node, NodeName, Work};
use lanes::{Clears, Erases, NvramLane, PendingPrograms};
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{Geometry, Op, Ppn};
use requests::Requests;
use timers::{Timer, Timers};
use units::Units;

const LANES: usize = 3;

/// Flash, NVRAM, link and controller in virtual time.
pub struct Nand {
    spec: NandSpec,
    latencies: Latencies,
    geometry: Geometry,
    /// Pages of 4 KiB of a flash page, on all planes.
    flash_page: u32,
    /// True if each word line begins with the first page type.
    lines_alike: bool,
    /// Number of timelines: of dies, or of chips whose dies share one.
    chips: u32,
    pub(crate) front: FrontEnd,
    now: u64,
    graph: Graph,
    events: Events,
    array: Array,
    lanes: [NvramLane; LANES],
    timers: Timers,
    nvram_ns: [u64; LANES],
    /// Pages that crossed the link, from the host and to it.
    link_pages: [u64; 2],
    requests: Requests,
    programs: PendingPrograms,
    units: Units,
    erases: Erases,
    copybacks: Copybacks,
    page_waits: PageWaits,
    clears: Clears,
    /// The stores of the current command.
    own_stores: Vec<NodeName>,
    /// Bit errors, if flash has any.
    errors: Option<Correction>,
    /// First number that a row of erases or tail pages does not wait for.
    row: Option<u64>,
    /// The operation of the present lookup that was recorded last.
    lookup: u32,
    /// The end of the latest lookup, if it has not ended.
    looked_up: u32,
    lookup_began: u64,
    lookup_total: u64,
    /// The gate of the latest page that is read to be merged, unless it is open.
    merge: u32,
    /// True if pages to be merged pass the hash unit.
    merge_is_hashed: bool,
    /// True inside a command, whose next step is no command of its own.
    goes_on: bool,
}

impl Nand {
    /// What reads of flash needed for their correction, if flash has bit errors.
    pub fn read_errors(&self) -> Option<&ReadErrors> {
        self.errors.as_ref().map(|errors| &errors.found)
    }

    /// The time of the latest event.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Total time spent on lookups of owners that have ended.
    pub(crate) fn lookup_total_ns(&self) -> u64 {
        self.lookup_total
    }

    /// How busy everything was until the time of the latest event.
    pub fn utilisation(&self) -> Utilisation {
        let [dies, channels] = self.array.counts();
        let (cores, core_ns) = self.front.core_times();
        let mut sum = Utilisation {
            at: self.now,
            dies: dies as u64,
            planes: u64::from(self.geometry.word_line().planes),
            channels: channels as u64,
            cores,
            core_ns,
            link_ns: self
                .link_pages
                .map(|pages| pages * self.latencies.link_page_ns),
            nvram_ns: self.nvram_ns,
            copybacks: self.copybacks.count(),
            ..Utilisation::default()
        };
        self.array.watch.add_to(&mut sum, self.now);

        // What is under way was counted when it began.
        let crossings = (0..channels).filter_map(|channel| self.events.time(channel));
        sum.channel_ns -= crossings.map(|end| end - self.now).sum::<u64>();
        for (busy, lane) in sum.nvram_ns.iter_mut().zip(&self.lanes) {
            *busy -= lane.ahead(self.now);
        }
        sum
    }

    /// Keeps what dies do from now on, instead of what was kept so far; `None`: nothing.
    pub fn keep_timeline(&mut self, timeline: Option<Timeline>) {
        self.array.watch.timeline = timeline.map(Box::new);
    }

    /// Ends what is kept of what dies do.
    pub fn end_timeline(&mut self) {
        self.array.watch.end_timeline(self.now);
    }

    /// What was kept, until now.
    pub fn take_timeline(&mut self) -> Option<Timeline> {
        self.end_timeline();
        self.array.watch.timeline.take().map(|timeline| *timeline)
    }

    /// The parts of the latency of a request that has ended, until its number is used again.
    pub fn causes(&self, request: u32) -> Causes {
        self.array.watch.causes(request)
    }

    /// Number of requests that have not ended.
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding() + self.requests.ended.len()
    }

    /// A request that has ended by now.
    pub fn take_end(&mut self) -> Option<RequestEnd> {
        self.requests.ended.pop_front()
    }

    /// The next request that ends, after all events before its end. `None` if none is outstanding.
    pub fn next_end(&mut self) -> Option<RequestEnd> {
        while self.requests.ended.is_empty() && self.requests.outstanding() > 0 {
            let advanced = self.next_event(u64::MAX) || self.close_units();
            assert!(advanced, "an outstanding request waits for an event");
        }
        self.requests.ended.pop_front()
    }

    /// The time of a request that is submitted when nothing else is outstanding, and ends before the next one
    /// is submitted.
    pub(crate) fn alone(&mut self, now: u64, step: Step, hashes: bool, ops: &[Op]) -> u64 {
        let now = now.max(self.now);
        if step.data() == DataPath::Own {
            self.step(None, now, step, hashes, ops);
            return now;
        }
        self.open(0);
        self.step(Some(0), now, step, hashes, ops);
        self.close(0);
        self.next_end().map_or(now, |end| end.at)
    }

    /// If everything that was submitted has ended by `time`, the time of the last event.
    pub(crate) fn quiet_since(&mut self, time: u64) -> Option<u64> {
        while self.next_event(time) {}
        let busy = self.events.earliest().is_some() || !self.timers.is_empty();
        let busy = busy || self.array.is_soon();
        (!busy).then_some(self.now)
    }

    /// Lets everything happen that happens until `time`, including it.
    pub fn advance(&mut self, time: u64) {
        while self.has_event(time) && self.next_event(time) {}
        if time >= self.now {
            self.now = time;
            self.graph.crossings.passes(time, usize::MAX);
        }
    }

    /// Lets everything that was submitted end, and forgets requests, also those that were never closed.
    /// Returns the time of the last event.
    pub fn settle(&mut self) -> u64 {
        while self.next_event(u64::MAX) || (!self.units.is_protected && self.close_units()) {}
        debug_assert!(
            self.graph.len() == self.units.incomplete(),
            "every operation ends, except units whose pages are still to come"
        );
        self.requests.clear();
        self.now
    }

    /// Programs all units as they are: what waits for them would wait forever. Returns false if there is none.
    fn close_units(&mut self) -> bool {
        let any = self.units.close_all(&mut self.graph);
        self.begin_ready();
        any
    }

    /// True if something happens until `time`.
    #[inline]
    fn has_event(&self, time: u64) -> bool {
        let timer = self.timers.earliest();
        let resource = self.events.earliest();
        timer.is_some_and(|at| at <= time)
            || resource.is_some_and(|(at, _)| at <= time)
            || self.array.is_soon()
    }

    /// Handles the next event, unless it is after `until` or there is none.
    fn next_event(&mut self, until: u64) -> bool {
        let timer = self.timers.earliest();
        let resource = self.events.earliest();

        // Dies that wait for others of this time (`begin_soon`) begin when nothing else happens at it.
        if self.array.is_soon() && until > self.now {
            let next = [timer, resource.map(|(at, _)| at)];
            if next.into_iter().flatten().all(|at| at > self.now) {
                self.graph.crossings.passes(self.now, usize::MAX);
                self.begin_soon();
                return true;
            }
        }

        // Timers first: what they release may then compete for the resource.
        if let Some(at) = timer
            && resource.is_none_or(|(other, _)| at <= other)
        {
            if at > until {
                return false;
            }
            let timer = self.timers.pop().expect("it was the next one");
            self.now = at;
            self.graph.crossings.passes(at, 0);
            self.ring(timer);
            return true;
        }

        match resource {
            Some((at, leaf)) if at <= until => {
                self.now = at;
                self.graph.crossings.passes(at, leaf + 1);
                self.events.begin(leaf);
                self.resource_event(leaf);
                self.events.end();
                true
            }
            _ => false,
        }
    }

    /// A die begins that has waited for what comes at this time.
    fn begin_soon(&mut self) {
        let mut context = Context {
            now: self.now,
            graph: &mut self.graph,
            events: &mut self.events,
        };
        let ended = self.array.begin_next(&mut context);
        self.flash_ended(ended);
    }

    fn ring(&mut self, timer: Timer) {
        match timer {
            Timer::Gate(node) => {
                self.graph.waited(node);
                self.begin_ready();
            }
            Timer::Page(node) => self.host_page_is_there(node),
            Timer::Part(part) => self.end_part(part),
            Timer::Decoded(node) => {
                let is_watched = self.graph.node(node).part != NONE;
                if is_watched {
                    self.array.watch.decoded(node, self.now);
                }
                self.finish(node);
                self.begin_ready();
            }
        }
    }

    fn resource_event(&mut self, leaf: usize) {
        match leaf.checked_sub(self.array.leaves()) {
            Some(lane) => {
                let (node, next) = self.lanes[lane].end();
                if let Some(at) = next {
                    self.events.set(leaf, at);
                }
                self.finish(node);
                self.begin_ready();
            }
            None => {
                let mut context = Context {
                    now: self.now,
                    graph: &mut self.graph,
                    events: &mut self.events,
                };
                let ended = self.array.event(leaf, &mut context);
                self.flash_ended(ended);

                // After the die has taken its next operation, which may need the channel again.
                let mut context = Context {
                    now: self.now,
                    graph: &mut self.graph,
                    events: &mut self.events,
                };
                self.array.go_on_channel(leaf, &mut context);
            }
        }
    }

    /// A flash operation has ended, if any: what waited for it may begin, then its die goes on.
    fn flash_ended(&mut self, mut ended: Option<u32>) {
        while let Some(node) = ended {
            let Node {
                die, work, pages, ..
            } = *self.graph.node(node);
            let die = usize::from(die);

            // A decoder delays the reader, not the die.
            match &self.errors {
                Some(errors) if work == Work::Read && errors.decode_ns() > 0 => {
                    let decode_ns = u64::from(pages) * errors.decode_ns();
                    self.timers.set(self.now + decode_ns, Timer::Decoded(node));
                }
                _ => {
                    self.finish_read(node);
                    self.begin_ready();
                }
            }

            let mut context = Context {
                now: self.now,
                graph: &mut self.graph,
                events: &mut self.events,
            };
            ended = self.array.go_on(die, &mut context);
        }

        if self.spec.cache_program {
            // What follows programs whose array time has begun.
            self.begin_ready();
        }
    }

    /// Begins all nodes that are ready.
    #[inline]
    fn begin_ready(&mut self) {
        if self.graph.has_ready() || self.units.may_have_room() {
            self.begin_all_ready();
        }
    }

    fn begin_all_ready(&mut self) {
        while let Some((node, by)) = self.next_ready() {
            self.watch_ready(node, by);

            let Node { work, die, .. } = *self.graph.node(node);
            match work {
                Work::Nothing => self.finish(node),
                Work::Buffer => {
                    if self.units.enter(node, die, &mut self.graph) {
                        self.finish(node);
                    }
                }
                Work::NvStore | Work::NvClear | Work::NvScan => self.take_turn(work, node),
                Work::Read | Work::Program | Work::Erase | Work::Scan => {
                    // From now on, pages without room may wait: its end makes room, or lets them in.
                    if matches!(work, Work::Program | Work::Erase) {
                        self.units.ready(die, &mut self.graph);
                    }
                    let mut context = Context {
                        now: self.now,
                        graph: &mut self.graph,
                        events: &mut self.events,
                    };
                    let ended = self.array.enqueue(node, &mut context);
                    self.flash_ended(ended);
                }
            }
        }
    }

    /// The next node to begin, and what made it ready. Pages that waited for room in the buffer come when nothing else
    /// is ready.
    fn next_ready(&mut self) -> Option<(u32, u32)> {
        loop {
            if let Some(ready) = self.graph.next_ready() {
                return Some(ready);
            }
            let (node, pages) = self.units.next_with_room(&self.graph)?;
            self.finish_buffered(node, pages);
        }
    }

    fn take_turn(&mut self, work: Work, node: u32) {
        let lane = work.lane().expect("it takes one");
        let length = self.graph.node(node).length;
        let this = &mut self.lanes[lane];
        let first = this.begin(node, self.now, length);
        self.nvram_ns[lane] += length;
        if let Some(end) = first {
            self.events.set(self.array.leaves() + lane, end);
        }
    }

    /// Ends an operation, and tells those that wait for it.
    fn finish(&mut self, at: u32) {
        let clear = self.graph.clear(at);
        let node = *self.graph.node(at);
        self.graph.end(at);
        if node.part != NONE {
            self.array.watch.ended(at, &node, self.now);
        }

        match node.work {
            Work::Program => self.programmed(at, &node),
            Work::Erase => self.units.ended(node.die, false, &mut self.graph),
            Work::Buffer => self.units.entered(node.unit, 1, &mut self.graph),
            _ => {}
        }

        if clear != 0 {
            self.clears.end(clear, &mut self.graph);
        }
        self.marked(at, &node);

        if node.part != NONE && self.requests.waited(node.part) {
            self.array.watch.part_waited(node.part, at);
            self.part_done(node.part);
        }

        self.graph.ending = NONE;
    }

    fn watch_ready(&mut self, at: u32, by: u32) {
        let part = self.graph.node(at).part;
        if part == NONE {
            return;
        }
        let request = |part| self.requests.part_of(part).request;
        let is_own = |by| by == part || by != NONE && request(by) == request(part);
        let watch = &mut self.array.watch;
        watch.ready((at, by), &self.graph, is_own, self.now);
    }

    fn end_part(&mut self, part: u32) {
        let request = self.requests.part_of(part).request;
        if let Some(pages) = self.requests.take_held(request) {
            let end = self.front.send(self.now, pages, self.now);
            if end > self.now {
                self.timers.set(end, Timer::Part(part));
                return;
            }
        }

        self.array.watch.part_ended(part, request, self.now);
        self.requests.end_part(part, self.now);
    }

    /// A page or a unit has been programmed, or its coarse step.
    fn programmed(&mut self, at: u32, node: &Node) {
        let is_coarse = node.unit != NONE;
        let is_unit = self.units.gather() && node.page != NO_PAGE;
        let is_unit_done = is_unit && !is_coarse;
        self.units.ended(node.die, is_unit_done, &mut self.graph);
        if is_coarse {
            // Its pages stay in the buffer.
        } else if is_unit {
            // The superblock may have another mode by now.
            let pages = u32::from(node.pages);
            let first = node.page.0 - node.page.0 % pages;
            self.programs.end(Ppn(first), pages, at);
        } else if node.page != NO_PAGE {
            self.programs.end(node.page, 1, at);
        }
    }

    fn marked(&mut self, at: u32, node: &Node) {
        match node.mark {
            Mark::None => {}
            Mark::LookupBegins => self.lookup_began = self.now,
            Mark::LookupEnds => {
                self.lookup_total += self.now - self.lookup_began;
                if self.looked_up == at {
                    self.looked_up = NONE;
                }
            }
        }
        if self.merge == at {
            self.merge = NONE;
        }
    }

    /// The operations of a part have ended, and its data are in the controller.
    fn part_done(&mut self, part: u32) {
        let now = self.now;
        let requests::Part {
            data, merge, pages, ..
        } = self.requests.part_of(part);
        let end = match data {
            DataPath::ToHost => {
                self.link_pages[1] += u64::from(pages);
                if self.requests.hold(part) {
                    now
                } else {
                    self.front.send(now, pages.into(), now)
                }
            }
            DataPath::Flush => now + self.latencies.flush_ns,
            DataPath::ToMerge | DataPath::ToCopy => {
                self.array.watch.merges(part, merge);
                self.merge_ready(merge);
                now
            }
            DataPath::Own | DataPath::Absent | DataPath::FromHost | DataPath::Merged => now,
        };

        if end > now {
            self.timers.set(end, Timer::Part(part));
        } else {
            self.end_part(part);
        }
    }
}
