//! What each die does, from when to when: the source of the engine's measurements.
//!
//! The array says when the state of a die changes. Each interval is added to the die's times and, if the operation
//! is one of the host's, to the causes of its request.
//!
//! Invariants: the states of a die cover all time since the start; nothing is decided here. Absent: the order of
//! operations (`array`), and the parts of requests (`requests`).

use super::causes::{Cause, Causes, DieTimes, Path};
use super::graph::{Class, Graph, NONE, Node, Work};
use super::timeline::{Activity, DieInterval, Timeline};
use super::utilisation::{DieState, Utilisation};

/// A die, and its times by state and class.
#[derive(Clone, Copy)]
struct WatchedDie {
    state: DieState,
    /// Since when.
    since: u64,
    /// Until when a resumed operation does not work yet.
    resuming: u64,
    class: Class,
    /// Planes whose arrays work, once a resumed operation does.
    planes: u8,
    /// The operation, if a request waits for it.
    node: u32,
    /// The program or erase that is suspended.
    suspended: Option<Activity>,
    states: [u64; DieState::COUNT],
    classes: [u64; 4],
    plane_ns: u64,
}

/// Measurements of all dies, and of the requests in flight.
pub(super) struct Watch {
    dies: Vec<WatchedDie>,
    channel_ns: u64,
    /// What dies do, if that is kept.
    pub timeline: Option<Box<Timeline>>,
    /// Suspended programs and erases.
    suspended: [u64; 2],
    /// By node, by part, and by request; what has ended keeps its place until that is used again.
    paths: Vec<Path>,
    parts: Vec<Path>,
    requests: Vec<Causes>,
}

impl Watch {
    pub(super) fn new(dies: usize) -> Self {
        let die = WatchedDie {
            state: DieState::Idle,
            since: 0,
            resuming: 0,
            class: Class::Metadata,
            planes: 0,
            node: NONE,
            suspended: None,
            states: [0; DieState::COUNT],
            classes: [0; 4],
            plane_ns: 0,
        };
        Self {
            dies: vec![die; dies],
            channel_ns: 0,
            timeline: None,
            suspended: [0; 2],
            paths: Vec::new(),
            parts: Vec::new(),
            requests: Vec::new(),
        }
    }

    /// The die's state ends.
    #[inline]
    fn close(&mut self, die: usize, now: u64) {
        let this = &mut self.dies[die];
        if this.node != NONE || this.since < this.resuming || self.timeline.is_some() {
            self.close_measured(die, now);
        } else {
            this.pass(this.state, now);
        }
    }

    /// The same for an operation of the host, or one that is resumed, or where everything is kept.
    fn close_measured(&mut self, die: usize, now: u64) {
        let this = &self.dies[die];
        if this.since < this.resuming {
            let until = this.resuming.min(now);
            self.pass(die, DieState::Suspension, until);
        }
        let state = self.dies[die].state;
        self.pass(die, state, now);
    }

    /// The die was in this state until `until`.
    fn pass(&mut self, die: usize, state: DieState, until: u64) {
        let this = &mut self.dies[die];
        let from = this.since;
        if from == until {
            return;
        }
        this.pass(state, until);
        if this.node != NONE {
            self.paths[this.node as usize].charge(state.cause(), until);
        }
        if let Some(timeline) = &mut self.timeline
            && let Some(activity) = Activity::of(state, this.class)
        {
            timeline.add(DieInterval {
                die: die as u32,
                activity,
                suspended: this.suspended,
                from,
                until,
            });
        }
    }

    /// Adds to the timeline what dies do now, and ends it.
    pub(super) fn end_timeline(&mut self, now: u64) {
        for die in 0..self.dies.len() {
            self.close(die, now);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.ends(now);
        }
    }

    /// The die begins another phase of its operation.
    #[inline]
    pub(super) fn enter(&mut self, die: usize, state: DieState, now: u64) {
        self.works(die, state, 0, now);
    }

    /// The same for a phase in which the arrays of these planes work.
    #[inline]
    pub(super) fn works(&mut self, die: usize, state: DieState, planes: u8, now: u64) {
        self.close(die, now);
        let this = &mut self.dies[die];
        (this.state, this.planes) = (state, planes);
    }

    /// The die takes an operation.
    pub(super) fn begin(&mut self, die: usize, at: u32, node: &Node, now: u64) {
        self.close(die, now);
        self.leaves_queue(die, at, node, now);
        self.dies[die].takes(at, node);
    }

    /// The die goes on with the data of the operation `at`, which has shared the array's time with `before`.
    pub(super) fn follow(&mut self, die: usize, (before, at): (u32, u32), node: &Node, now: u64) {
        let is_known = self.dies[die].node == before && node.part != NONE;
        self.rest(die, now);
        self.begin(die, at, node, now);
        // Operations of one request have had the same causes.
        if is_known && self.paths[before as usize].entry() == self.paths[at as usize].entry() {
            self.paths[at as usize] = self.paths[before as usize];
        }
    }

    /// The die has no operation, or none that is not suspended.
    pub(super) fn rest(&mut self, die: usize, now: u64) {
        self.enter(die, DieState::Idle, now);
        self.dies[die].node = NONE;
    }

    /// The die begins to suspend its operation.
    pub(super) fn suspend(&mut self, die: usize, work: Work, now: u64) {
        self.suspended[usize::from(work == Work::Erase)] += 1;
        self.close(die, now);
        let this = &mut self.dies[die];
        this.suspended = Activity::of(this.state, this.class);
        this.state = DieState::Suspension;
        (this.resuming, this.planes) = (0, 0);
    }

    /// The die goes on with an operation, which works from `works` on.
    pub(super) fn resume(&mut self, die: usize, at: u32, node: &Node, now: u64, works: u64) {
        self.close(die, now);
        if node.part != NONE {
            self.paths[at as usize].charge(Cause::Suspension, now);
        }
        let this = &mut self.dies[die];
        this.takes(at, node);
        this.suspended = None;
        this.state = DieState::of(node.work);
        this.planes = node.planes;
        this.resuming = works;
    }

    /// A transfer that has begun is shorter by this: the rest begins later.
    pub(super) fn crosses_later(&mut self, length: u64) {
        self.channel_ns -= length;
    }

    /// The die uses its channel.
    pub(super) fn transfer(&mut self, die: usize, length: u64, now: u64) {
        self.channel_ns += length;
        self.enter(die, DieState::Transfer, now);
    }

    /// Something crosses the channel of an operation that is not its die's active one.
    pub(super) fn transfer_beside(&mut self, at: u32, node: &Node, length: u64, now: u64) {
        self.channel_ns += length;
        self.charge(at, node, Cause::Channel, now);
    }

    /// The operation has spent its time since then on this.
    pub(super) fn charge(&mut self, at: u32, node: &Node, cause: Cause, now: u64) {
        if node.part != NONE {
            self.paths[at as usize].charge(cause, now);
        }
    }

    /// The data of a program are in the cache register of its die, which does something else.
    pub(super) fn enters_register(&mut self, die: usize, at: u32, node: &Node, now: u64) {
        if node.part != NONE {
            let times = self.dies[die].times(now);
            let path = &mut self.paths[at as usize];
            path.charge(Cause::Transfer, now);
            path.die = times;
        }
    }

    /// The operation leaves the queue or the cache register of its die, which does something else.
    pub(super) fn leaves_queue(&mut self, die: usize, at: u32, node: &Node, now: u64) {
        if node.part != NONE {
            let times = self.dies[die].times(now);
            self.paths[at as usize].leaves_queue(times, now);
        }
    }

    /// The data of `next` follow those of `before`, beside the die's active operation.
    pub(super) fn follow_beside(
        &mut self,
        die: usize,
        (before, next): (u32, u32),
        (node, next_node): (&Node, &Node),
        now: u64,
    ) {
        self.leaves_queue(die, next, next_node, now);
        let is_known = node.part != NONE && next_node.part != NONE;
        if is_known && self.paths[before as usize].entry() == self.paths[next as usize].entry() {
            self.paths[next as usize] = self.paths[before as usize];
        }
    }

    /// An operation that has left the queue is the die's active one.
    pub(super) fn takes(&mut self, die: usize, at: u32, node: &Node, state: DieState, now: u64) {
        self.close(die, now);
        self.dies[die].takes(at, node);
        self.dies[die].state = state;
    }

    /// An operation for which a request waits, or a gate.
    pub(super) fn submitted(&mut self, at: u32, node: &Node, now: u64) {
        let path = Path::new(now, self.times_at(node, now));
        put(&mut self.paths, at, path, Path::new(0, DieTimes::default()));
    }

    /// It is ready after the end of `by`, which belongs to the same request or not. Without `by` it waited for a
    /// time.
    pub(super) fn ready(
        &mut self,
        (at, by): (u32, u32),
        graph: &Graph,
        is_own: impl FnOnce(u32) -> bool,
        now: u64,
    ) {
        let node = graph.node(at);
        let times = self.times_at(node, now);
        let path = &mut self.paths[at as usize];
        if by == NONE {
            path.charge(Cause::Controller, now);
            path.die = times;
        } else if is_own(graph.node(by).part) {
            self.paths[at as usize] = self.paths[by as usize].goes_on(times);
        } else {
            path.waited_for(graph.node(by), is_on_die(node.work), now);
        }
    }

    /// The controller has decoded its page.
    pub(super) fn decoded(&mut self, at: u32, now: u64) {
        self.paths[at as usize].charge(Cause::Controller, now);
    }

    /// It has ended.
    pub(super) fn ended(&mut self, at: u32, node: &Node, now: u64) {
        let cause = match node.work {
            Work::NvStore | Work::NvClear | Work::NvScan => Cause::Nvram,
            Work::Nothing => Cause::Controller,
            // It has waited for room, while its die programmed what is in the buffer.
            Work::Buffer => return self.leaves_queue(usize::from(node.die), at, node, now),
            Work::Read | Work::Program | Work::Erase | Work::Scan => Cause::Array,
        };
        self.paths[at as usize].charge(cause, now);
    }

    /// A part of a request enters.
    pub(super) fn part(&mut self, part: u32, now: u64) {
        let path = Path::new(now, DieTimes::default());
        put(&mut self.parts, part, path, path);
    }

    /// A page of the host has come into the controller and so into the buffer, and its part has ended.
    pub(super) fn host_page_ended(&mut self, request: u32, entered: u64, now: u64) {
        if request != NONE {
            let mut causes = Causes::default();
            causes.add(Cause::Controller, now - entered);
            put(&mut self.requests, request, causes, Causes::default());
        }
    }

    /// A page of the host has come into the controller: its path until now.
    pub(super) fn host_page_goes_on(&mut self, at: u32, node: &Node, now: u64) {
        let times = self.times_at(node, now);
        let mut path = Path::new(node.since, times);
        path.charge(Cause::Controller, now);
        put(&mut self.paths, at, path, Path::new(0, DieTimes::default()));
    }

    /// The part has waited for this node last.
    pub(super) fn part_waited(&mut self, part: u32, node: u32) {
        let path = self.paths[node as usize];
        put(&mut self.parts, part, path, path);
    }

    /// The gate goes on where the part is.
    pub(super) fn merges(&mut self, part: u32, gate: u32) {
        self.paths[gate as usize] = self.parts[part as usize];
    }

    /// The part of a request has ended, which is its last one so far.
    pub(super) fn part_ended(&mut self, part: u32, request: u32, now: u64) {
        let path = &mut self.parts[part as usize];
        path.charge(Cause::Controller, now);
        if request != NONE {
            let causes = path.causes;
            put(&mut self.requests, request, causes, Causes::default());
        }
    }

    /// The causes of a request's latency.
    pub(super) fn causes(&self, request: u32) -> Causes {
        let known = self.requests.get(request as usize);
        known.copied().unwrap_or_default()
    }

    fn times_at(&self, node: &Node, now: u64) -> DieTimes {
        if is_on_die(node.work) {
            self.dies[usize::from(node.die)].times(now)
        } else {
            DieTimes::default()
        }
    }

    /// Adds the times of dies and channels until now.
    pub(super) fn add_to(&self, sum: &mut Utilisation, now: u64) {
        sum.channel_ns = self.channel_ns;
        [sum.program_suspensions, sum.erase_suspensions] = self.suspended;
        for die in &self.dies {
            let die = die.at(now);
            for (sum, time) in sum.die_ns.iter_mut().zip(die.states) {
                *sum += time;
            }
            let [reads, programs, collection, metadata] = die.classes;
            sum.host_ns += reads + programs;
            sum.collection_ns += collection;
            sum.metadata_ns += metadata;
            sum.plane_ns += die.plane_ns;
        }
    }
}

impl WatchedDie {
    fn takes(&mut self, at: u32, node: &Node) {
        self.state = DieState::ChannelWait;
        self.resuming = 0;
        self.planes = 0;
        self.class = node.class;
        self.node = if node.part == NONE { NONE } else { at };
    }

    /// Adds the time in a state until then.
    #[inline]
    fn pass(&mut self, state: DieState, until: u64) {
        let time = until - self.since;
        self.since = until;
        self.states[state as usize] += time;
        if state.is_work() {
            self.classes[self.class as usize] += time;
            self.plane_ns += time * u64::from(self.planes);
        }
    }

    /// The same with the time of its present state.
    fn at(mut self, now: u64) -> Self {
        if self.since < self.resuming {
            self.pass(DieState::Suspension, self.resuming.min(now));
        }
        self.pass(self.state, now);
        self
    }

    fn times(&self, now: u64) -> DieTimes {
        let [_, _, collection, metadata] = self.classes;
        let mut times = DieTimes {
            idle: self.states[DieState::Idle as usize],
            collection: collection + metadata,
            suspension: self.states[DieState::Suspension as usize],
        };
        // The time since the latest change.
        let works = self.resuming.min(now).max(self.since);
        times.suspension += works - self.since;
        match self.state {
            DieState::Idle => times.idle += now - works,
            DieState::Suspension => times.suspension += now - works,
            _ if self.class >= Class::Collection => times.collection += now - works,
            _ => {}
        }
        times
    }
}

fn is_on_die(work: Work) -> bool {
    !matches!(
        work,
        Work::Nothing | Work::NvStore | Work::NvClear | Work::NvScan
    )
}

fn put<T: Copy>(list: &mut Vec<T>, at: u32, value: T, absent: T) {
    let at = at as usize;
    if list.len() <= at {
        list.resize(at + 1, absent);
    }
    list[at] = value;
}
