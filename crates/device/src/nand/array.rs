//! Dies and channels: which operation a die takes next, and who has the channel.
//!
//! ```text
//! read      [channel: command]          array   [channel: data]
//! program   [channel: command + data]   array
//! erase     [channel: command]          array
//! ```
//!
//! A die has a queue for each class of operations that are ready, and takes the one whose ready time plus
//! patience is earliest. It holds the data that it has read until the channel has moved them. While it
//! programs or erases, a read of the host may suspend it; it resumes when no such read is left, or when
//! the operation's patience is over.
//!
//! Invariants: the array of a die does one thing at a time, and a channel moves one thing at a time; each event ends
//! at most one operation. Absent: what a cache register lets happen at the same time (`cache`), what operations wait for (`graph`), and requests.

use super::events::Events;
use super::graph::{Class, Graph, NONE, Node, Work};
use super::spec::{NandSpec, Suspension};
use super::together::Together;
use super::utilisation::DieState;
use super::watch::Watch;
use remap_ssd_media::WordLine;
use std::collections::VecDeque;

const CLASSES: usize = 4;

/// A queue of nodes, linked by [`Node::next`].
#[derive(Clone, Copy)]
pub(super) struct Queue {
    pub first: u32,
    pub last: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    /// The command waits for the channel, or crosses it.
    Command,
    /// Data move between the page register and the cache register.
    CacheBusy,
    Array,
    /// The array reads again, to correct errors.
    Retry,
    /// The data wait for the channel, or cross it.
    Data,
    /// It has read, and its cache register is taken.
    Loaded,
    /// The active operation is being suspended.
    Suspending,
}

/// What crosses a channel for a die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Crossing {
    /// The command of its active operation; that of a program has the data.
    Command,
    /// Data that it has read.
    Data,
    /// The same as `Command` for the program that follows the active one.
    Input,
}

#[derive(Clone, Copy)]
pub(super) struct Die {
    pub phase: Phase,
    pub channel: usize,
    /// The operation in progress.
    pub active: u32,
    /// Reads done at once whose data leave its cache register, while the active one goes on.
    pub output: u32,
    /// True once these data wait for the channel.
    pub output_asked: bool,
    /// The next program, whose data enter its cache register.
    pub input: u32,
    /// True once they are there.
    pub input_is_there: bool,
    /// When its array time ends.
    end: u64,
    /// Array time of the active operation, at most what is left of it.
    array_ns: u64,
    pub suspended: u32,
    /// Array time that is left of it, and how often it was suspended.
    left_ns: u64,
    pub suspensions: u32,
    pub queues: [Queue; CLASSES],
    /// True if it is idle, and begins before time goes on.
    pub begins_soon: bool,
}

/// Marks a channel that is between two users.
const BETWEEN: u32 = u32::MAX - 1;

pub(super) struct Channel {
    /// The die that uses it, and for what.
    pub user: u32,
    pub crossing: Crossing,
    commands: VecDeque<(u32, Crossing)>,
    data: VecDeque<u32>,
}

/// All dies and channels of a device. Its events have the leaves from 0 on: channels, then dies.
pub(super) struct Array {
    pub spec: NandSpec,
    pub dies: Vec<Die>,
    pub channels: Vec<Channel>,
    pub watch: Watch,
    pub together: Together,
    /// Dies that begin before time goes on.
    pub soon: Vec<u32>,
}

/// What the array needs to act: the nodes of its queues, and a place for its next events.
pub(super) struct Context<'a> {
    pub now: u64,
    pub graph: &'a mut Graph,
    pub events: &'a mut Events,
}

impl Array {
    /// `channel_of` gives the channel of each of `dies`.
    pub(super) fn new(
        spec: NandSpec,
        word_line: WordLine,
        dies: usize,
        channels: usize,
        channel_of: impl Fn(usize) -> usize,
    ) -> Self {
        let queue = Queue {
            first: NONE,
            last: NONE,
        };
        let die = |index| Die {
            phase: Phase::Idle,
            channel: channel_of(index),
            active: NONE,
            output: NONE,
            output_asked: false,
            input: NONE,
            input_is_there: false,
            end: 0,
            array_ns: 0,
            suspended: NONE,
            left_ns: 0,
            suspensions: 0,
            queues: [queue; CLASSES],
            begins_soon: false,
        };

        let channel = || Channel {
            user: NONE,
            crossing: Crossing::Command,
            commands: VecDeque::new(),
            data: VecDeque::new(),
        };

        Self {
            spec,
            together: Together::new(word_line),
            soon: Vec::new(),
            dies: (0..dies).map(die).collect(),
            channels: std::iter::repeat_with(channel).take(channels).collect(),
            watch: Watch::new(dies),
        }
    }

    /// Number of its leaves.
    pub(super) fn leaves(&self) -> usize {
        self.channels.len() + self.dies.len()
    }

    /// Number of dies, and of channels.
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.dies.len(), self.channels.len()]
    }

    /// A node is ready. Returns it if it has ended already, since it takes no time.
    pub(super) fn enqueue(&mut self, at: u32, context: &mut Context<'_>) -> Option<u32> {
        let node = context.graph.node_mut(at);
        (node.since, node.next) = (context.now, NONE);
        let (die, class, work) = (usize::from(node.die), node.class, node.work);

        let queue = &mut self.dies[die].queues[class as usize];
        match queue.last {
            NONE => queue.first = at,
            last => context.graph.node_mut(last).next = at,
        }
        queue.last = at;

        match self.dies[die].phase {
            // It may do several reads at once: what else comes at this time may join them (`planes`).
            Phase::Idle if self.together.all > 1 => {
                self.begin_soon(die);
                None
            }
            Phase::Idle => self.start_next(die, context),
            Phase::Array if class == Class::HostRead => {
                self.suspend(die, context);
                None
            }
            Phase::Array if work == Work::Program => {
                self.take_input(die, context);
                None
            }
            Phase::Data if self.spec.cache_read && work == Work::Read => {
                if self.together.all > 1 {
                    self.begin_soon(die);
                } else {
                    self.read_beside_data(die, context);
                }
                None
            }
            _ => None,
        }
    }

    /// The event of a leaf; returns the operation that has ended with it.
    pub(super) fn event(&mut self, leaf: usize, context: &mut Context<'_>) -> Option<u32> {
        match leaf.checked_sub(self.channels.len()) {
            Some(die) => self.die_event(die, context),
            None => self.channel_event(leaf, context),
        }
    }

    fn die_event(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        let this = &mut self.dies[die];
        if this.phase == Phase::Array && context.now < this.end {
            // It has worked long enough since it was resumed.
            context.events.set(self.channels.len() + die, this.end);
            if this.queues[Class::HostRead as usize].first != NONE {
                self.suspend(die, context);
            }
            return None;
        }

        if this.phase == Phase::Suspending {
            (this.suspended, this.active) = (this.active, NONE);
            this.phase = Phase::Idle;
            self.watch.rest(die, context.now);
            return self.start_next(die, context);
        }
        if this.phase == Phase::CacheBusy {
            return self.begin_array(die, context);
        }

        // The array has worked. A page with bit errors is read again before its data leave.
        let Node { work, planes, .. } = *context.graph.node(this.active);
        let retry_ns = context.graph.retry_ns(this.active);
        if retry_ns > 0 && this.phase == Phase::Array {
            this.phase = Phase::Retry;
            self.watch.works(die, DieState::Retry, planes, context.now);
            context
                .events
                .set(self.channels.len() + die, context.now + retry_ns);
            return None;
        }

        let is_read = work == Work::Read;
        if is_read && self.spec.transfer_ns > 0 {
            self.loaded(die, context);
            return None;
        }
        Some(self.finish(die, context))
    }

    /// Ends the active operation, or of a run a page. The caller starts the next one, once those that waited for this
    /// one are ready. The data of reads that were done at once follow each other.
    pub(super) fn finish(&mut self, die: usize, context: &mut Context<'_>) -> u32 {
        let this = &mut self.dies[die];
        if context.graph.crossed(this.active) {
            this.phase = Phase::Data;
            return this.active;
        }

        let next = context.graph.node(this.active).next;
        match next {
            NONE => self.watch.rest(die, context.now),
            _ => {
                let node = context.graph.node(next);
                self.watch
                    .follow(die, (this.active, next), node, context.now);
            }
        }

        this.phase = match next {
            NONE => Phase::Idle,
            _ => Phase::Data,
        };
        std::mem::replace(&mut this.active, next)
    }

    /// A die whose operation has ended takes the next one. Returns that if it has ended already.
    pub(super) fn go_on(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        match self.dies[die].phase {
            Phase::Idle => self.start_next(die, context),
            // More of the reads that were done at once.
            Phase::Data if self.spec.transfer_ns == 0 => Some(self.finish(die, context)),
            Phase::Loaded if self.dies[die].output == NONE => {
                self.loaded(die, context);
                None
            }
            _ => None,
        }
    }

    pub(super) fn start_next(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        let this = &mut self.dies[die];
        // While an operation is suspended, reads of the host alone go before it, and only as long as it is patient.
        if this.suspended != NONE {
            let reads = this.queues[Class::HostRead as usize].first;
            let suspended = *context.graph.node(this.suspended);
            if reads == NONE || self.deadline(&suspended) <= context.now {
                return self.resume(die, context);
            }
            return self.start(die, Class::HostRead as usize, context);
        }

        if this.input != NONE {
            return self.begin_input(die, context);
        }

        let next = self.next_class(die, context.graph)?;
        self.start(die, next, context)
    }

    /// The class of the operation that comes next.
    pub(super) fn next_class(&self, die: usize, graph: &Graph) -> Option<usize> {
        let heads = self.dies[die].queues.map(|queue| queue.first).into_iter();
        let next = heads
            .enumerate()
            .filter(|(_, head)| *head != NONE)
            .min_by_key(|(_, head)| self.deadline(graph.node(*head)));
        next.map(|(class, _)| class)
    }

    /// Until when an operation lets others go first.
    fn deadline(&self, node: &Node) -> u64 {
        match node.class {
            Class::HostRead => node.since,
            class => node
                .since
                .saturating_add(self.spec.patience_ns[class as usize - 1]),
        }
    }

    /// Takes the first operation of a queue.
    pub(super) fn take(&mut self, die: usize, class: usize, graph: &mut Graph) -> u32 {
        let queue = &mut self.dies[die].queues[class];
        let at = queue.first;
        queue.first = std::mem::replace(&mut graph.node_mut(at).next, NONE);
        if queue.first == NONE {
            queue.last = NONE;
        }
        at
    }

    /// Starts the first operation of a queue.
    pub(super) fn start(
        &mut self,
        die: usize,
        class: usize,
        context: &mut Context<'_>,
    ) -> Option<u32> {
        let at = self.take(die, class, context.graph);

        let this = &mut self.dies[die];
        self.watch
            .begin(die, at, context.graph.node(at), context.now);
        this.active = at;

        // The count is that of the suspended operation, while reads go before it.
        if this.suspended == NONE {
            this.suspensions = 0;
        }

        this.phase = Phase::Command;
        self.join_reads(die, class, context);

        if self.channel_ns(die, Crossing::Command, context.graph) == 0 {
            return self.commanded(die, context);
        }
        self.ask_channel(die, Crossing::Command, context);
        None
    }

    /// How long the die needs the channel.
    pub(super) fn channel_ns(&self, die: usize, crossing: Crossing, graph: &Graph) -> u64 {
        let NandSpec {
            command_ns: [read, program, erase],
            transfer_ns,
            ..
        } = self.spec;
        let [read_plane, program_plane, erase_plane] = self.spec.plane_ns;
        let node = graph.node(self.dies[die].crosses(crossing));
        let (pages, others) = (u64::from(node.pages), u64::from(node.planes) - 1);
        match (node.work, crossing) {
            (Work::Read, Crossing::Data) => pages * (transfer_ns >> self.together.unit_shift),
            (Work::Read, _) => read + others * read_plane,
            // A copyback.
            (Work::Program, _) if pages == 0 => read + program,
            (Work::Program, _) => program + others * program_plane + pages * transfer_ns,
            (Work::Erase, _) => erase + others * erase_plane,
            _ => 0,
        }
    }

    /// The array time of the active operation begins. Returns it if it takes none.
    pub(super) fn begin_array(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        let this = &mut self.dies[die];
        let Node {
            work,
            length,
            planes,
            ..
        } = *context.graph.node(this.active);
        this.phase = Phase::Array;
        this.array_ns = length;
        this.end = context.now + length;
        self.watch
            .works(die, DieState::of(work), planes, context.now);

        if self.spec.cache_program {
            context.graph.begins(this.active);
        }
        if this.output != NONE && !this.output_asked {
            self.send(die, context);
        }

        let has_data = work == Work::Read && self.spec.transfer_ns > 0;
        if length == 0 && !has_data && context.graph.retry_ns(self.dies[die].active) == 0 {
            return Some(self.finish(die, context));
        }
        let this = &self.dies[die];
        context.events.set(self.channels.len() + die, this.end);

        // Reads that came while its command crossed the channel.
        if this.queues[Class::HostRead as usize].first != NONE {
            self.suspend(die, context);
        }
        self.take_input(die, context);
        None
    }

    /// Suspends the active program or erase, if that is permitted and worth it.
    fn suspend(&mut self, die: usize, context: &mut Context<'_>) {
        let Suspension {
            begin_ns,
            least_left_ns,
            least_progress_ns,
            most,
            ..
        } = self.spec.suspension;
        let this = &self.dies[die];
        let node = context.graph.node(this.active);
        let kind = usize::from(node.work == Work::Erase);
        let leaf = self.channels.len() + die;
        // Resuming may not be over.
        let left_ns = (this.end - context.now).min(this.array_ns);

        let permitted = matches!(node.work, Work::Program | Work::Erase)
            && this.suspended == NONE
            && this.suspensions < most[kind]
            && left_ns >= least_left_ns.max(1)
            && self.deadline(node) > context.now;
        if !permitted {
            return;
        }

        if this.suspensions > 0 && this.array_ns - left_ns < least_progress_ns {
            // Later, if the operation is not over by then.
            let later = this.end - this.array_ns + least_progress_ns;
            if later < this.end {
                context.events.set(leaf, later);
            }
            return;
        }

        let this = &mut self.dies[die];
        this.phase = Phase::Suspending;
        this.left_ns = left_ns;
        this.suspensions += 1;
        self.watch.suspend(die, node.work, context.now);
        context.events.set(leaf, context.now + begin_ns[kind]);
    }

    fn resume(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        let this = &mut self.dies[die];
        this.active = std::mem::replace(&mut this.suspended, NONE);
        this.phase = Phase::Array;
        this.array_ns = this.left_ns;
        let works = context.now + self.spec.suspension.resume_ns;
        this.end = works + this.left_ns;

        let node = context.graph.node(this.active);
        self.watch
            .resume(die, this.active, node, context.now, works);
        context.events.set(self.channels.len() + die, this.end);
        self.take_input(die, context);
        None
    }

    /// The die needs its channel.
    pub(super) fn ask_channel(
        &mut self,
        die: usize,
        crossing: Crossing,
        context: &mut Context<'_>,
    ) {
        if !self.dies[die].is_beside(crossing) {
            self.watch.enter(die, DieState::ChannelWait, context.now);
        }

        let channel = &mut self.channels[self.dies[die].channel];
        match crossing {
            Crossing::Data => channel.data.push_back(die as u32),
            _ => channel.commands.push_back((die as u32, crossing)),
        }
        if channel.user == NONE {
            self.next_user(self.dies[die].channel, context);
        }
    }

    /// The channel goes to the next die that waits for it.
    fn next_user(&mut self, channel: usize, context: &mut Context<'_>) {
        let this = &mut self.channels[channel];
        let mut data = || this.data.pop_front().map(|die| (die, Crossing::Data));
        let next = if self.spec.data_first {
            data().or_else(|| this.commands.pop_front())
        } else {
            this.commands.pop_front().or_else(data)
        };
        match next {
            Some((die, crossing)) => self.cross(die as usize, crossing, context),
            None => this.user = NONE,
        }
    }

    /// The die uses its channel from now on.
    fn cross(&mut self, die: usize, crossing: Crossing, context: &mut Context<'_>) {
        let this = &self.dies[die];
        let channel = this.channel;
        let at = this.crosses(crossing);
        let mut length = self.channel_ns(die, crossing, context.graph);
        // A picture shows each page.
        if crossing == Crossing::Data && self.watch.timeline.is_none() {
            let pages = context.graph.cross(at, channel, length, context.now);
            length *= u64::from(pages);
        }

        if this.is_beside(crossing) {
            self.watch
                .transfer_beside(at, context.graph.node(at), length, context.now);
        } else {
            self.watch.transfer(die, length, context.now);
        }

        (self.channels[channel].user, self.channels[channel].crossing) = (die as u32, crossing);
        context.events.set(channel, context.now + length);
    }

    fn channel_event(&mut self, channel: usize, context: &mut Context<'_>) -> Option<u32> {
        // The die may need the channel again at once, for its next operation.
        let die = std::mem::replace(&mut self.channels[channel].user, BETWEEN) as usize;
        let crossing = self.channels[channel].crossing;

        let ended = match crossing {
            Crossing::Data => Some(self.sent(die, context)),
            Crossing::Command => self.commanded(die, context),
            Crossing::Input => self.input_arrived(die, context),
        };

        let this = &self.dies[die];
        if crossing == Crossing::Data && (this.output != NONE || this.phase == Phase::Data) {
            // The data of reads that were done at once follow each other.
            self.cross(die, crossing, context);
        }

        // Otherwise the die goes on first, and `go_on_channel` comes after it.
        if ended.is_none() {
            self.next_user(channel, context);
        }
        ended
    }

    /// After the event of a leaf that ended an operation, once the die has taken the next one: a channel goes
    /// to its next user.
    pub(super) fn go_on_channel(&mut self, channel: usize, context: &mut Context<'_>) {
        if self
            .channels
            .get(channel)
            .is_some_and(|channel| channel.user == BETWEEN)
        {
            self.next_user(channel, context);
        }
    }
}
