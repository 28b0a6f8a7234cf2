//! Polling for an answer for a moment before the thread sleeps.
//!
//! A device on the same machine, or nearby, answers in less time than an idle processor takes to
//! wake up and to run the thread again. But a polling thread keeps its processor from others,
//! including the server's thread. So the thread yields between two polls, and after polling in vain
//! it sleeps at once the next times: twice, then four times, and so on. Where polling does not
//! help, because the device is far or the machine is busy, one answer in some hundreds is polled
//! for.
//!
//! Invariant: nothing is read here; no answer is lost or delayed. Absent: polling on a machine with
//! one processor, which the server needs.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::sched_yield;
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Maximum polling time: a longer wait is worth a sleep.
const SPIN: Duration = Duration::from_micros(50);
/// log2 of the maximum number of sleeps between two polls.
const MISSES_MAX: u32 = 8;

/// Adaptive decision to poll, by the number of misses.
#[derive(Debug)]
pub(super) struct Spin {
    is_possible: bool,
    /// Consecutive polls in vain.
    misses: u32,
    /// Remaining waits without polling.
    sleeps: u32,
}

impl Spin {
    pub(super) fn new() -> Self {
        // Determined once: the system keeps the answer in several files.
        static PROCESSORS: OnceLock<usize> = OnceLock::new();
        let count = || std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            is_possible: *PROCESSORS.get_or_init(count) > 1,
            misses: 0,
            sleeps: 0,
        }
    }

    /// Call this before a read that may have to wait.
    pub(super) fn look(&mut self, stream: &TcpStream) {
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
        // One success is enough to poll again: answers stay fast or slow for a while.
        if found {
            self.misses = 0;
        } else {
            self.misses = (self.misses + 1).min(MISSES_MAX);
            self.sleeps = 1 << self.misses;
        }
    }
}

/// Polls; returns true if something arrives.
fn arrives(stream: &TcpStream) -> bool {
    let begin = Instant::now();
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    loop {
        // An error is left to the reader; a signal is not an error.
        if !matches!(
            poll(&mut fds, Some(&Timespec::default())),
            Ok(0) | Err(Errno::INTR)
        ) {
            return true;
        }
        if begin.elapsed() >= SPIN {
            return false;
        }
        // The answering thread may be waiting for this very processor.
        sched_yield();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of these waits that poll, if polling always or never succeeds.
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
