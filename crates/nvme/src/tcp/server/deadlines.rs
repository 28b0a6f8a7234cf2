//! Waits of a connection, and their deadlines.
//!
//! Invariants: no host is judged for time in which this process did not run: after a pause all
//! waits restart; data that arrived in time count as in time, however late they are read, so expiry
//! is judged only after everything that has arrived was processed. Absent: the clock; keep-alive,
//! which belongs to the association.

use crate::tcp::limits::Limits;
use crate::tcp::target::Connection;
use std::time::Duration;

/// Interval of periodic checks.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// Maximum consecutive ticks at which judgement is postponed because input has just arrived.
const TICKS_SKIPPED_MAX: u32 = 40;

/// Delay of a tick that means a pause: the process was stopped, or its thread had no processor.
const PAUSE: Duration = Duration::from_secs(2);

/// The action at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// Check the deadlines.
    Judge,
    /// Not now: input is waiting.
    PutOff,
    /// The process was paused: all waits restart.
    AfterPause,
}

/// Times of one connection, in nanoseconds since the server's epoch.
pub(super) struct Deadlines {
    began: u64,
    next_tick: u64,
    busy_until: u64,
    /// Consecutive ticks at which input had just arrived.
    skipped: u32,
    /// Time since which the buffer has held an incomplete PDU.
    partial_since: Option<u64>,
}

impl Deadlines {
    /// Deadlines of a connection that begins now.
    pub(super) fn new(now: u64) -> Self {
        Self {
            began: now,
            next_tick: now,
            busy_until: now,
            skipped: 0,
            partial_since: None,
        }
    }

    /// Notes whether the buffer holds an incomplete PDU.
    pub(super) fn note_partial(&mut self, now: u64, is_partial: bool) {
        // The first time counts: a byte now and then does not restart the wait.
        self.partial_since = is_partial.then(|| self.partial_since.unwrap_or(now));
    }

    /// Returns true if it is time for the periodic checks.
    pub(super) fn is_tick_due(&self, now: u64) -> bool {
        now >= self.next_tick
    }

    /// Notes that the thread was busy for its host until now, which is no pause.
    pub(super) fn note_busy(&mut self, now: u64) {
        self.busy_until = now;
    }

    /// Excludes a time in which the host had to wait for the server. At most two calculations are
    /// excused before it is authenticated (`auth`), so no host can postpone its deadlines for long.
    pub(super) fn excuse(&mut self, now: u64, waited_ns: u64) {
        self.began += waited_ns;
        self.note_busy(now);
    }

    /// Begins a tick.
    pub(super) fn begin_tick(&mut self, now: u64, input_waits: bool) -> Tick {
        let late_ns = now.saturating_sub(self.next_tick.max(self.busy_until));
        self.next_tick = now + TICK.as_nanos() as u64;
        if u128::from(late_ns) > PAUSE.as_nanos() {
            self.began = now;
            self.partial_since = self.partial_since.map(|_| now);
            return Tick::AfterPause;
        }
        // The waiting input may be just what a deadline is about. Limited, so that a host that
        // always sends is not exempt.
        if input_waits && self.skipped < TICKS_SKIPPED_MAX {
            self.skipped += 1;
            return Tick::PutOff;
        }
        self.skipped = 0;
        Tick::Judge
    }

    /// The expired deadline, as the reason for the log.
    pub(super) fn expired(
        &self,
        connection: &Connection,
        limits: &Limits,
        now: u64,
    ) -> Option<&'static str> {
        let passed =
            |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_nanos();
        let passed_since =
            |since: Option<u64>, limit| since.is_some_and(|since| passed(since, limit));

        // First the two deadlines of a connection's beginning, then the two of every PDU.
        if connection.connected().is_none() && passed(self.began, limits.connect_within) {
            return Some("no queue was connected in time");
        }
        if !connection.is_admitted() && passed(self.began, limits.authenticate_within) {
            return Some("there was no proof in time");
        }

        if passed_since(self.partial_since, limits.data_within) {
            return Some("the rest of a PDU did not come in time");
        }
        if passed_since(connection.waits_for_data_since(), limits.data_within) {
            return Some("data that its host was asked for did not come in time");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn after_a_pause_of_the_process_all_waits_begin_anew() {
        let mut deadlines = Deadlines::new(0);
        assert_eq!(deadlines.begin_tick(0, false), Tick::Judge);
        deadlines.note_partial(SECOND / 4, true);
        assert_eq!(deadlines.begin_tick(SECOND / 4, false), Tick::Judge);

        // Stopped for an hour.
        let now = 3600 * SECOND;
        assert_eq!(deadlines.begin_tick(now, false), Tick::AfterPause);
        assert_eq!((deadlines.began, deadlines.partial_since), (now, Some(now)));
        assert_eq!(deadlines.begin_tick(now + SECOND / 4, false), Tick::Judge);

        // Nor is a wait for the server's own calculation.
        deadlines.excuse(now + 30 * SECOND, 29 * SECOND);
        assert_eq!(deadlines.began, now + 29 * SECOND);
        assert_eq!(deadlines.begin_tick(now + 30 * SECOND, false), Tick::Judge);
        assert_eq!(deadlines.began, now + 29 * SECOND, "no wait begins anew");

        // A host that was written to for a minute has not caused a pause.
        deadlines.note_busy(now + 60 * SECOND);
        assert_eq!(deadlines.begin_tick(now + 60 * SECOND, false), Tick::Judge);
        assert_eq!(deadlines.partial_since, Some(now));
    }
}
