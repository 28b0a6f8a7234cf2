//! Rate limits for log lines that peers can cause at will.
//!
//! Each kind of line has a token bucket: a burst, then one line per interval. Suppressed lines are
//! counted, and the next line of the kind reports the count, so that a flood neither fills the disk
//! nor goes unnoticed. Memory is bounded by the number of kinds, which peers do not control.
//! Absent: the clock, and the destination of lines.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The rate limit of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Maximum lines at once.
    burst: u64,
    /// Interval after which one more line is allowed.
    every_ns: u64,
}

impl Pace {
    /// The pace for refusals and failures.
    pub const SELDOM: Self = Self {
        burst: 10,
        every_ns: 5_000_000_000,
    };
    /// The pace for ordinary events.
    pub(crate) const OFTEN: Self = Self {
        burst: 400,
        every_ns: 50_000_000,
    };
}

#[derive(Default)]
struct Allowance {
    used: u64,
    /// When a token was last restored.
    since: u64,
    left_out: u64,
}

/// The buckets of all kinds.
#[derive(Default)]
pub struct Notices(Mutex<BTreeMap<&'static str, Allowance>>);

impl Notices {
    /// If a line of this kind may be written at `now` (nanoseconds), returns the number of lines
    /// suppressed before it.
    pub fn admit(&self, kind: &'static str, pace: Pace, now: u64) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let allowance = kinds.entry(kind).or_insert_with(|| Allowance {
            since: now,
            ..Allowance::default()
        });

        // Restore tokens for the time since the last line.
        let due = (now.saturating_sub(allowance.since) / pace.every_ns).min(allowance.used);
        allowance.used -= due;

        // The elapsed part of an interval is kept, unless the bucket is full again.
        allowance.since = if allowance.used == 0 {
            now
        } else {
            allowance.since + due * pace.every_ns
        };

        if allowance.used == pace.burst {
            allowance.left_out += 1;
            return None;
        }
        allowance.used += 1;
        Some(std::mem::take(&mut allowance.left_out))
    }
}

/// Suffix of a line that tells how many were suppressed before it.
pub fn more(left_out: u64) -> String {
    match left_out {
        0 => String::new(),
        count => format!(" ({count} more like this were not logged)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_that_count_the_rest() {
        let notices = Notices::default();
        let second = 1_000_000_000;
        let mut written = 0;
        let mut left_out = 0;

        for at in 0..100_000u64 {
            // A thousand per second, for 100 s.
            if let Some(before) = notices.admit("flood", Pace::SELDOM, at * 1_000_000) {
                written += 1;
                left_out += before;
            }

            assert_eq!(
                notices.admit("other", Pace::SELDOM, 0).is_some(),
                at < Pace::SELDOM.burst,
                "kinds have allowances of their own"
            );
        }

        assert!((29..=30).contains(&written), "{written}");
        assert!(left_out > 94_000, "{left_out}");
        assert!(
            notices
                .admit("flood", Pace::SELDOM, 500 * second)
                .is_some_and(|before| before > 0)
        );

        // After a pause the full burst is available again.
        let again = (0..100)
            .filter(|_| {
                notices
                    .admit("flood", Pace::SELDOM, 1000 * second)
                    .is_some()
            })
            .count();

        assert_eq!(again as u64, Pace::SELDOM.burst);
    }
}
