//! Sorts requests by time.
//!
//! Recorders on several processors write their events slightly out of order. So a request waits
//! until [`WINDOW`] later ones have been read, and is inserted among them. One that arrives even
//! later gets the time of the request before it. Both are counted ([`Disorder`]), and reported.
//!
//! Invariants: times returned count from the earliest request of the first window and never
//! decrease; requests of the same time keep the order of the file; all times are within ten years
//! of the first one read, so that sums of times stay far below 64 bits. Absent: formats.

use std::collections::VecDeque;
use std::fmt;

use super::expand::Op;
use super::keys::Keys;
use super::record::Reason;

/// Maximum requests that wait for earlier ones.
pub(super) const WINDOW: usize = 1024;
/// Maximum digests of all waiting requests: one request may have 262,144 of them.
const KEYS_WAITING: usize = 64 << 10;

const NS_PER_S: f64 = 1e9;
const NS_PER_YEAR: u64 = 31_557_600_000_000_000;
/// The longest trace accepted; a time further from the first is due to a broken clock, or no time.
const LONGEST_NS: u64 = 10 * NS_PER_YEAR;

/// A request with its time.
#[derive(Debug)]
pub(super) struct TimedOp {
    pub at_ns: u64,
    pub op: Op,
    pub keys: Keys,
}

/// Deviation of a trace's requests from the order of their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disorder {
    /// Requests with an earlier time than a previous one in the file.
    pub earlier: u64,
    /// Those of them that came too late to be sorted: they get the time of the one before.
    pub late: u64,
    /// The largest such difference, nanoseconds.
    pub furthest_ns: u64,
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = match self.earlier {
            1 => "1 request is".to_owned(),
            more => format!("{more} requests are"),
        };
        let by_s = self.furthest_ns as f64 / NS_PER_S;
        write!(
            f,
            "{requests} earlier than one before, by up to {by_s} s: put in order"
        )?;
        match self.late {
            0 => Ok(()),
            late if late == self.earlier => {
                write!(f, " by moving them to the time of the one before")
            }
            late => write!(
                f,
                ", {late} of them by moving them to the time of the one before"
            ),
        }
    }
}

/// Sorts requests.
pub(super) struct Order {
    window: usize,
    waiting: VecDeque<TimedOp>,
    keys_waiting: usize,
    /// The time of the first request read; others are checked against it.
    first_ns: Option<u64>,
    /// The latest time read.
    latest_ns: u64,
    /// The time of the first request returned, from which later times count.
    origin_ns: Option<u64>,
    /// Time of the request returned last, counted from that one.
    now_ns: u64,
    disorder: Disorder,
}

impl Order {
    /// At most `window` requests wait; with 0, none are reordered.
    pub(super) fn within(window: usize) -> Self {
        Self {
            window,
            waiting: VecDeque::new(),
            keys_waiting: 0,
            first_ns: None,
            latest_ns: 0,
            origin_ns: None,
            now_ns: 0,
            disorder: Disorder::default(),
        }
    }

    /// The disorder so far.
    pub(super) fn disorder(&self) -> Disorder {
        self.disorder
    }

    /// Checks that a time is plausible for this trace.
    pub(super) fn check(&mut self, at_ns: u64) -> Result<(), Reason> {
        let first = *self.first_ns.get_or_insert(at_ns);
        let apart_ns = at_ns.abs_diff(first);
        if apart_ns <= LONGEST_NS {
            return Ok(());
        }
        let side = if at_ns < first { "before" } else { "after" };
        Err(format!(
            "the time is absurd: {:.1} years {side} the first request",
            apart_ns as f64 / NS_PER_YEAR as f64
        ))
    }

    /// Accepts a request.
    #[inline]
    pub(super) fn put(&mut self, request: TimedOp) {
        self.keys_waiting += request.keys.waiting();

        // The usual case: it is the latest.
        if request.at_ns >= self.latest_ns {
            self.latest_ns = request.at_ns;
            self.waiting.push_back(request);
        } else {
            self.put_earlier(request);
        }
    }

    #[cold]
    fn put_earlier(&mut self, request: TimedOp) {
        self.disorder.earlier += 1;
        let earlier_ns = self.latest_ns - request.at_ns;
        self.disorder.furthest_ns = self.disorder.furthest_ns.max(earlier_ns);

        // Without a window it keeps its place in the file.
        let place = match self.window {
            0 => self.waiting.len(),
            _ => self
                .waiting
                .partition_point(|other| other.at_ns <= request.at_ns),
        };
        self.waiting.insert(place, request);
    }

    /// Returns the next request if the window is full; its time counts from the first.
    #[inline]
    pub(super) fn take_full(&mut self) -> Option<TimedOp> {
        if self.waiting.len() > self.window || self.keys_waiting > KEYS_WAITING {
            self.take()
        } else {
            None
        }
    }

    /// Returns the next request unconditionally.
    pub(super) fn take(&mut self) -> Option<TimedOp> {
        let mut request = self.waiting.pop_front()?;
        self.keys_waiting -= request.keys.waiting();

        let origin = *self.origin_ns.get_or_insert(request.at_ns);
        // A request before the first one, or before the last one returned, came too late.
        match request.at_ns.checked_sub(origin) {
            Some(at_ns) if at_ns >= self.now_ns => self.now_ns = at_ns,
            _ => self.disorder.late += 1,
        }
        request.at_ns = self.now_ns;
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(window: usize, times: &[u64]) -> (Vec<u64>, Disorder) {
        let mut order = Order::within(window);
        let mut found = Vec::new();
        for &at_ns in times {
            order.check(at_ns).unwrap();
            order.put(TimedOp {
                at_ns,
                op: Op::Flush,
                keys: Keys::Fresh(0),
            });
            found.extend(std::iter::from_fn(|| order.take_full()).map(|request| request.at_ns));
        }
        found.extend(std::iter::from_fn(|| order.take()).map(|request| request.at_ns));
        (found, order.disorder())
    }

    #[test]
    fn what_is_within_the_window_is_put_in_order_and_what_is_not_happens_with_the_one_before() {
        let (times, disorder) = ordered(2, &[100, 130, 120, 140, 90, 150]);
        assert_eq!(times, [0, 20, 20, 30, 40, 50]);
        assert_eq!((disorder.earlier, disorder.late), (2, 1));
        assert_eq!(disorder.furthest_ns, 50);

        // A request that is too late may still be later than the first.
        assert_eq!(ordered(1, &[100, 150, 160, 120]).0, [0, 50, 50, 60]);
        // The earliest of the first window is the beginning.
        assert_eq!(ordered(2, &[100, 97, 110]).0, [0, 3, 13]);
        // Without a window all keep their places.
        assert_eq!(ordered(0, &[100, 97, 110]).0, [0, 0, 10]);
    }

    #[test]
    fn one_request_of_a_later_time_delays_no_other() {
        let mut times: Vec<u64> = (0..100).collect();
        times.insert(10, 1 << 40);
        let (found, disorder) = ordered(4, &times);
        assert_eq!(found[..100], (0..100).collect::<Vec<u64>>());
        assert_eq!((found[100], disorder.late), (1 << 40, 0));
    }

    #[test]
    fn a_time_ten_years_from_the_first_is_absurd_on_both_sides() {
        let first = 1 << 62;
        let mut order = Order::within(1);
        order.check(first).unwrap();
        for at_ns in [first + LONGEST_NS, first - LONGEST_NS] {
            order.check(at_ns).unwrap();
        }
        for at_ns in [0, u64::MAX, first + LONGEST_NS + 1, first - LONGEST_NS - 1] {
            let reason = order.check(at_ns).unwrap_err();
            assert!(reason.starts_with("the time is absurd"), "{reason}");
        }
    }
}
