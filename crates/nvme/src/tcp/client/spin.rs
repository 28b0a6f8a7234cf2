//! Looking for an answer for a moment before the thread sleeps.
//!
//! A device on the same machine, or near by, answers in less time than an idle processor takes to
//! wake up and to run the thread again. But a processor that looks is one that others do not have,
//! the server's thread among them. So the thread yields between two looks, and whoever looked in
//! vain sleeps at once the next times: twice, then four times, and so on. Where looking does not
//! help, because the device is far or the machine is busy, one answer in some hundreds is looked
//! for.
//!
//! Invariant: nothing is read here, and no answer is lost or awaited longer. Absent: anything to
//! look for on a machine with one processor, which the server needs.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::sched_yield;
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long to look: an answer that takes longer is worth a sleep.
const SPIN: Duration = Duration::from_micros(50);
/// Sleeps between two looks are at most two to this power.
const MISSES_MAX: u32 = 8;

/// How often looking was in vain, and what follows from it.
#[derive(Debug)]
pub(super) struct Spin {
    is_possible: bool,
    /// Looks in vain, one after the other.
    misses: u32,
    /// Waits without looking that are left.
    sleeps: u32,
}

impl Spin {
    pub fn new() -> Self {
        // Asked once: the answer is in several files of the system.
        static PROCESSORS: OnceLock<usize> = OnceLock::new();
        let count = || std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            is_possible: *PROCESSORS.get_or_init(count) > 1,
            misses: 0,
            sleeps: 0,
        }
    }

    /// To be called before a read that may have to wait.
    pub fn look(&mut self, stream: &TcpStream) {
        if self.is_due() {
            self.note(arrives(stream));
        }
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.is_possible && self.sleeps == 0;
        self.sleeps = self.sleeps.saturating_sub(1);
        is_due
    }

    fn note(&mut self, found: bool) {
        // One success is enough to look again: answers come fast or slowly for a while.
        if found {
            self.misses = 0;
        } else {
            self.misses = (self.misses + 1).min(MISSES_MAX);
            self.sleeps = 1 << self.misses;
        }
    }
}

/// Whether something arrives while we look.
fn arrives(stream: &TcpStream) -> bool {
    let begin = Instant::now();
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    loop {
        // An error is the reader's to find; a signal is none.
        if !matches!(
            poll(&mut fds, Some(&Timespec::default())),
            Ok(0) | Err(Errno::INTR)
        ) {
            return true;
        }
        if begin.elapsed() >= SPIN {
            return false;
        }
        // The thread that is to answer may wait for this very processor.
        sched_yield();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these waits are looked for, if it is always in vain or never.
    fn looks(waits: u32, found: bool) -> u32 {
        let mut spin = Spin {
            is_possible: true,
            misses: 0,
            sleeps: 0,
        };
        let mut looks = 0;
        for _ in 0..waits {
            if spin.is_due() {
                looks += 1;
                spin.note(found);
            }
        }
        looks
    }

    #[test]
    fn looking_in_vain_becomes_rare_and_looking_with_success_does_not() {
        assert_eq!(looks(1000, true), 1000);
        let in_vain = looks(100_000, false);
        assert!((300..500).contains(&in_vain), "{in_vain} of 100,000");
    }
}
