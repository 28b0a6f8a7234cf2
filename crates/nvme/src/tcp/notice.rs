//! How often a line is worth writing that peers can cause at will.
//!
//! Each kind of line has an allowance: a few at once, then one every few seconds. What is left out is counted, and the
//! next line of its kind says how much that was, so that a flood neither fills a disk nor goes unseen. Memory is bounded by
//! the kinds, which the program names and peers cannot. Absent: the clock, and where lines go.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Lines of one kind that may come at once.
const BURST: u64 = 10;
/// One more after so long.
const EVERY_NS: u64 = 5_000_000_000;

#[derive(Default)]
struct Allowance {
    /// Lines written that time has not made up for.
    used: u64,
    /// When one was made up for last.
    since: u64,
    left_out: u64,
}

/// The allowances of all kinds.
#[derive(Default)]
pub struct Notices(Mutex<BTreeMap<&'static str, Allowance>>);

impl Notices {
    /// May a line of a kind be written at `now`, in nanoseconds? If so, how many like it were left out before.
    pub fn admit(&self, kind: &'static str, now: u64) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let allowance = kinds.entry(kind).or_insert_with(|| Allowance { since: now, ..Allowance::default() });

        // What time has made up for since the last line.
        let due = (now.saturating_sub(allowance.since) / EVERY_NS).min(allowance.used);
        allowance.used -= due;
        allowance.since = if allowance.used == 0 { now } else { allowance.since + due * EVERY_NS };

        if allowance.used == BURST {
            allowance.left_out += 1;
            return None;
        }
        allowance.used += 1;
        Some(std::mem::take(&mut allowance.left_out))
    }
}

/// What a line says of those that were left out before it.
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
            // A thousand a second, for 100 s.
            if let Some(before) = notices.admit("flood", at * 1_000_000) {
                written += 1;
                left_out += before;
            }
            assert_eq!(notices.admit("other", 0).is_some(), at < BURST, "kinds have allowances of their own");
        }
        assert!((29..=30).contains(&written), "{written}");
        assert!(left_out > 94_000, "{left_out}");
        assert!(notices.admit("flood", 500 * second).is_some_and(|before| before > 0));
        // After a pause there is as much as at first.
        let again = (0..100).filter(|_| notices.admit("flood", 1000 * second).is_some()).count();
        assert_eq!(again as u64, BURST);
    }
}
