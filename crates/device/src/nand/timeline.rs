//! What dies did in a stretch of time, for a picture.
//!
//! Invariants: intervals of a die are in order and do not overlap; their number is bounded, so nothing is
//! allocated once the list has grown. Absent: the drawing.

use super::graph::Class;
use super::utilisation::DieState;
use std::collections::VecDeque;

/// What a die does, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// A read of the host.
    HostRead,
    /// A program of the host.
    HostProgram,
    /// A read of garbage collection or of metadata.
    InternalRead,
    /// A program of them.
    InternalProgram,
    /// An erase.
    Erase,
    /// A command or data cross the channel.
    Transfer,
    /// The channel is taken.
    Wait,
    /// An operation is being suspended or resumed.
    Suspension,
}

/// A stretch of time in which a die did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieInterval {
    /// The die, or the chip if its dies take turns.
    pub die: u32,
    /// What it did.
    pub activity: Activity,
    /// The program or erase that was suspended meanwhile.
    pub suspended: Option<Activity>,
    /// Its beginning, in nanoseconds.
    pub from: u64,
    /// Its end.
    pub until: u64,
}

/// The intervals of a window of time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The window, in nanoseconds.
    from: u64,
    until: u64,
    /// True if the latest intervals are kept, rather than the first.
    of_end: bool,
    /// Maximum number of intervals.
    most: usize,
    intervals: VecDeque<DieInterval>,
}

impl Timeline {
    /// The last `most` intervals.
    pub fn of_end(most: usize) -> Self {
        Self {
            of_end: true,
            ..Self::of_window(0, u64::MAX, most)
        }
    }

    /// The first `most` intervals that are within `from..until`, at least in part.
    pub fn of_window(from: u64, until: u64, most: usize) -> Self {
        Self {
            from,
            until,
            of_end: false,
            most,
            intervals: VecDeque::new(),
        }
    }

    /// Its intervals, in the order of their ends.
    pub fn intervals(&self) -> impl ExactSizeIterator<Item = &DieInterval> {
        self.intervals.iter()
    }

    /// Its end: nothing that begins later is kept.
    pub fn until(&self) -> u64 {
        self.until
    }

    pub(super) fn ends(&mut self, now: u64) {
        self.until = self.until.min(now);
    }

    pub(super) fn add(&mut self, interval: DieInterval) {
        if interval.until <= self.from || interval.from >= self.until {
            return;
        }
        let is_full = self.intervals.len() >= self.most;
        if is_full && (!self.of_end || self.intervals.pop_front().is_none()) {
            return;
        }
        self.intervals.push_back(interval);
    }
}

impl Activity {
    /// `None` if the die does nothing.
    pub(super) fn of(state: DieState, class: Class) -> Option<Self> {
        let is_host = matches!(class, Class::HostRead | Class::HostProgram);
        Some(match state {
            DieState::Idle => return None,
            DieState::ChannelWait => Self::Wait,
            DieState::Transfer => Self::Transfer,
            DieState::Read | DieState::Retry if is_host => Self::HostRead,
            DieState::Read | DieState::Retry => Self::InternalRead,
            DieState::Program if is_host => Self::HostProgram,
            DieState::Program => Self::InternalProgram,
            DieState::Erase => Self::Erase,
            DieState::Suspension => Self::Suspension,
        })
    }
}
