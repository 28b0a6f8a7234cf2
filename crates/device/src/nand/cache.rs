//! Cache registers: a die reads or programs while data of another operation cross the channel.
//!
//! ```text
//! cache read      [command 2] busy  array 2 ......  [command 3] busy  array 3
//!                                   [data 1]                          [data 2]
//! cache program   [command + data 1]  array 1 ............  busy  array 2
//!                                     [command + data 2]
//! ```
//!
//! *Cache read*: if another read comes next, its command crosses the channel before the data of the last one, which
//! move to the cache register at that time. A die that has read again waits until that register is empty.
//!
//! *Cache program*: while a die programs, the program that comes next crosses the channel into the cache register. It
//! follows at once. The next program of a block may cross while the block's latest one works.
//!
//! While an operation is suspended, its data are in a register: no read leaves its data in the other one.
//!
//! Invariants: a die has an output only while it reads, and an input only while it programs, or is suspended in a
//! program. Absent: when the channel is free (`array`).

use super::array::{Array, Context, Crossing, Die, Phase};
use super::causes::Cause;
use super::graph::{NONE, Work};
use super::utilisation::DieState;

impl Die {
    /// The operation of which something crosses the channel.
    pub(super) fn crosses(&self, crossing: Crossing) -> u32 {
        match crossing {
            Crossing::Data if self.output != NONE => self.output,
            Crossing::Input if self.input != NONE => self.input,
            _ => self.active,
        }
    }

    /// True if that is not the active operation.
    pub(super) fn is_beside(&self, crossing: Crossing) -> bool {
        match crossing {
            Crossing::Command => false,
            Crossing::Data => self.output != NONE,
            Crossing::Input => self.input != NONE,
        }
    }
}

impl Array {
    /// The array has read: the data leave, or wait in the cache register until the next read has begun.
    pub(super) fn loaded(&mut self, die: usize, context: &mut Context<'_>) {
        let this = &mut self.dies[die];
        if this.output != NONE {
            this.phase = Phase::Loaded;
            self.watch.enter(die, DieState::ChannelWait, context.now);
            return;
        }
        if self.spec.cache_read && self.read_on(die, false, context) {
            return;
        }
        self.dies[die].phase = Phase::Data;
        self.ask_channel(die, Crossing::Data, context);
    }

    /// A read has come while data wait for the channel, or cross it.
    pub(super) fn read_beside_data(&mut self, die: usize, context: &mut Context<'_>) {
        self.read_on(die, true, context);
    }

    /// The next operation begins if it is a read, and the data of the active one leave beside it. Returns false if it
    /// is something else.
    fn read_on(&mut self, die: usize, has_asked: bool, context: &mut Context<'_>) -> bool {
        let this = &self.dies[die];
        if this.suspended != NONE || self.spec.transfer_ns == 0 {
            return false;
        }

        let Some(class) = self.next_class(die, context.graph) else {
            return false;
        };
        let next = context.graph.node(this.queues[class].first);
        if next.work != Work::Read {
            return false;
        }

        let this = &mut self.dies[die];
        (this.output, this.output_asked) = (this.active, has_asked);
        let ended = self.start(die, class, context);
        debug_assert!(ended.is_none(), "its data are still to cross the channel");
        true
    }

    /// The command of the active operation has crossed the channel.
    pub(super) fn commanded(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        match self.dies[die].output {
            NONE => self.begin_array(die, context),
            _ => self.busy(die, DieState::Read, context),
        }
    }

    /// Data move between the registers, then the array begins.
    fn busy(&mut self, die: usize, state: DieState, context: &mut Context<'_>) -> Option<u32> {
        let busy_ns = self.spec.cache_busy_ns;
        if busy_ns == 0 {
            return self.begin_array(die, context);
        }
        self.dies[die].phase = Phase::CacheBusy;
        self.watch.enter(die, state, context.now);
        let leaf = self.channels.len() + die;
        context.events.set(leaf, context.now + busy_ns);
        None
    }

    /// The data in the cache register may leave. Until now, they have waited for the move to it.
    pub(super) fn send(&mut self, die: usize, context: &mut Context<'_>) {
        let at = self.dies[die].output;
        let node = context.graph.node(at);
        self.watch.charge(at, node, Cause::Array, context.now);
        self.dies[die].output_asked = true;
        self.ask_channel(die, Crossing::Data, context);
    }

    /// The data of a read have left; returns it.
    pub(super) fn sent(&mut self, die: usize, context: &mut Context<'_>) -> u32 {
        let at = self.dies[die].output;
        if at == NONE {
            return self.finish(die, context);
        }
        if context.graph.crossed(at) {
            return at;
        }

        let node = context.graph.node(at);
        self.watch.charge(at, node, Cause::Transfer, context.now);

        if node.next != NONE {
            let next = context.graph.node(node.next);
            self.watch
                .follow_beside(die, (at, node.next), (node, next), context.now);
        }

        self.dies[die].output = node.next;
        at
    }

    /// While the die programs: the program that comes next begins to cross the channel.
    pub(super) fn take_input(&mut self, die: usize, context: &mut Context<'_>) {
        let this = &self.dies[die];
        let is_free = self.spec.cache_program && this.input == NONE && this.phase == Phase::Array;
        // A copyback needs the registers.
        let is_program = |at: u32| {
            let node = context.graph.node(at);
            node.work == Work::Program && node.pages > 0
        };
        if !is_free || !is_program(this.active) {
            return;
        }

        let Some(class) = self.next_class(die, context.graph) else {
            return;
        };
        if !is_program(this.queues[class].first) {
            return;
        }

        let at = self.take(die, class, context.graph);
        self.watch
            .leaves_queue(die, at, context.graph.node(at), context.now);

        let this = &mut self.dies[die];
        (this.input, this.input_is_there) = (at, false);
        match self.channel_ns(die, Crossing::Input, context.graph) {
            0 => self.input_is_there(die, context),
            _ => self.ask_channel(die, Crossing::Input, context),
        }
    }

    /// The data of a program have crossed the channel, which may have become the active one. Returns it if it takes
    /// no time.
    pub(super) fn input_arrived(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        let this = &mut self.dies[die];
        if this.input == NONE {
            return self.begin_array(die, context);
        }
        self.input_is_there(die, context);
        None
    }

    fn input_is_there(&mut self, die: usize, context: &Context<'_>) {
        let this = &mut self.dies[die];
        this.input_is_there = true;
        let at = this.input;
        self.watch
            .enters_register(die, at, context.graph.node(at), context.now);
    }

    /// The program in the cache register, or on the way to it, is the next one. Returns it if it takes no time.
    pub(super) fn begin_input(&mut self, die: usize, context: &mut Context<'_>) -> Option<u32> {
        let this = &mut self.dies[die];
        this.active = std::mem::replace(&mut this.input, NONE);
        (this.phase, this.suspensions) = (Phase::Command, 0);
        let (at, is_there) = (this.active, this.input_is_there);

        // Until now it was not the active one: its time so far was that of the register, the channel, or the wait for it.
        let channel = &self.channels[this.channel];
        let crosses = channel.user == die as u32 && channel.crossing == Crossing::Input;
        let node = context.graph.node(at);
        let state = match (is_there, crosses) {
            (true, _) => {
                self.watch.leaves_queue(die, at, node, context.now);
                DieState::Program
            }
            (false, true) => {
                self.watch.charge(at, node, Cause::Transfer, context.now);
                DieState::Transfer
            }
            (false, false) => {
                self.watch.charge(at, node, Cause::Channel, context.now);
                DieState::ChannelWait
            }
        };
        self.watch.takes(die, at, node, state, context.now);

        // Otherwise the array begins when the data have crossed (`input_arrived`).
        if is_there {
            return self.busy(die, DieState::Program, context);
        }
        None
    }
}
