//! What a request waits for: its latency in parts, which add up to it.
//!
//! A request ends with its last operation, its *critical path* goes back from there: from each operation to the one
//! that it waited for last. The path is followed forwards: each operation of the host has the causes of the
//! time from the request's entry until now, and what waits for it takes them over.
//!
//! ```text
//! entry ──► gate ──► waits for others, queue of the die ──► channel, array, channel ──► link ──► end
//!           controller   by what the die does meanwhile       by its own phases         controller
//! ```
//!
//! An operation of another request has a path that began earlier, so it is not taken over. The time until it has
//! ended is shared out by what the die does meanwhile, like the time in the die's queue.
//!
//! Invariant: the causes of a path add up to the time that it covers. Absent: what dies do (`watch`).

use super::graph::{Class, Node, Work};

/// Why a request is not done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Its die does other operations of the host.
    Queue,
    /// Its die does operations of collection or of metadata, or it waits for such an operation elsewhere.
    Collection,
    /// Flash reads, programs or erases for it, or its data move to the cache register, which waits for the command of the
    /// die's next read.
    Array,
    /// Its command or its data cross the channel.
    Transfer,
    /// The channel moves something else.
    Channel,
    /// Its program is suspended, or its die is suspending or resuming an operation.
    Suspension,
    /// It waits for the end of earlier operations of the host, and its die is idle.
    Ordering,
    /// It waits for the NVRAM.
    Nvram,
    /// Link, cores and hash unit.
    Controller,
    /// Its page is read again.
    Retry,
}

impl Cause {
    /// All of them, in the order of [`Causes`].
    pub const ALL: [Self; 10] = [
        Self::Queue,
        Self::Collection,
        Self::Array,
        Self::Transfer,
        Self::Channel,
        Self::Suspension,
        Self::Ordering,
        Self::Nvram,
        Self::Controller,
        Self::Retry,
    ];
}

/// Time by cause, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes([u64; Cause::ALL.len()]);

impl Causes {
    /// The time of one cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// The time of all causes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, cause: Cause, time: u64) {
        self.0[cause as usize] += time;
    }
}

impl std::ops::AddAssign for Causes {
    fn add_assign(&mut self, other: Self) {
        for (sum, time) in self.0.iter_mut().zip(other.0) {
            *sum += time;
        }
    }
}

/// Time that a die has spent without work, with collection and metadata, and on suspending and resuming.
#[derive(Clone, Copy, Default)]
pub(super) struct DieTimes {
    pub idle: u64,
    pub collection: u64,
    pub suspension: u64,
}

/// The causes from a request's entry on, up to a time.
#[derive(Clone, Copy)]
pub(super) struct Path {
    pub causes: Causes,
    /// Until when the causes are known.
    at: u64,
    /// The times of its die then.
    pub die: DieTimes,
    /// Why it waits while its die is idle.
    idle: Cause,
}

impl Path {
    /// The path of a request that enters.
    pub(super) fn new(now: u64, die: DieTimes) -> Self {
        Self {
            causes: Causes::default(),
            at: now,
            die,
            idle: Cause::Ordering,
        }
    }

    /// When its request entered.
    pub(super) fn entry(&self) -> u64 {
        self.at - self.causes.total()
    }

    /// Everything since then has this cause.
    #[inline]
    pub(super) fn charge(&mut self, cause: Cause, now: u64) {
        self.causes.add(cause, now - self.at);
        self.at = now;
    }

    /// It goes on at another die, or nowhere.
    pub(super) fn goes_on(self, die: DieTimes) -> Self {
        Self { die, ..self }
    }

    /// It was ready after the end of an operation of another request.
    pub(super) fn waited_for(&mut self, other: &Node, is_on_die: bool, now: u64) {
        let cause = match (other.work, other.class) {
            (Work::NvStore | Work::NvClear | Work::NvScan, _) => Cause::Nvram,
            (_, Class::Collection | Class::Metadata) => Cause::Collection,
            (_, Class::HostRead | Class::HostProgram) => Cause::Ordering,
        };
        if is_on_die {
            self.idle = cause;
        } else {
            self.charge(cause, now);
        }
    }

    /// Its die takes it: the time since then by what the die did.
    pub(super) fn leaves_queue(&mut self, die: DieTimes, now: u64) {
        let idle = die.idle - self.die.idle;
        let collection = die.collection - self.die.collection;
        let suspension = die.suspension - self.die.suspension;
        self.causes.add(self.idle, idle);
        self.causes.add(Cause::Collection, collection);
        self.causes.add(Cause::Suspension, suspension);
        self.at += idle + collection + suspension;
        self.charge(Cause::Queue, now);
    }
}
