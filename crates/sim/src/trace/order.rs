//! Requests in the order of their times.
//!
//! What records on several processors writes its events slightly out of order. So a request waits
//! until [`WINDOW`] later ones were read, and takes its place among them. One that comes later than
//! that happens at the time of the request before it. Both are counted ([`Disorder`]), and said.
//!
//! Invariants: times handed out count from the earliest request of the first window and never
//! decrease; requests of one time keep the order of the file; no time lies more than ten years from
//! the first one read, so that sums of times stay far below 64 bits. Absent: formats.

use std::collections::VecDeque;
use std::fmt;

use super::expand::Op;
use super::identity::Key;
use super::record::Reason;

/// Requests that wait for earlier ones.
pub(super) const WINDOW: usize = 1024;
/// Digests of all requests that wait: a request may have 262,144 of them.
const KEYS_WAITING: usize = 64 << 10;

const NS_PER_S: f64 = 1e9;
const NS_PER_YEAR: u64 = 31_557_600_000_000_000;
/// The longest trace believed; a time further from the first is of a broken clock, or no time.
const LONGEST_NS: u64 = 10 * NS_PER_YEAR;

/// What contents a request writes, before they are looked up.
#[derive(Debug)]
pub(super) enum Keys {
    /// So many that are like no others.
    Fresh(usize),
    One(Key),
    Many(Vec<Key>),
}

impl Keys {
    /// Words that they take while they wait.
    fn waiting(&self) -> usize {
        match self {
            Keys::Many(keys) => keys.len(),
            Keys::Fresh(_) | Keys::One(_) => 0,
        }
    }
}

/// A request that was read.
#[derive(Debug)]
pub(super) struct TimedOp {
    pub at_ns: u64,
    pub op: Op,
    pub keys: Keys,
}

/// How far the requests of a trace were from the order of their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Requests that are earlier than one before them in the file.
    pub earlier: u64,
    /// Those of them that came too late to be put in order: they happen with the one before.
    pub late: u64,
    /// The furthest that one is earlier, nanoseconds.
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

/// Puts requests in order.
pub(super) struct Order {
    window: usize,
    waiting: VecDeque<TimedOp>,
    keys_waiting: usize,
    /// The time of the first request read; others are held against it.
    first_ns: Option<u64>,
    /// The latest time read.
    latest_ns: u64,
    /// The time of the first request handed out, which is 0 for all that follows.
    origin_ns: Option<u64>,
    /// Since that one: when the request handed out last happened.
    now_ns: u64,
    disorder: Disorder,
}

impl Order {
    /// At most `window` requests wait; without any, none is put before another.
    pub fn within(window: usize) -> Self {
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

    /// What was out of order so far.
    pub fn disorder(&self) -> Disorder {
        self.disorder
    }

    /// Whether a time can be one of this trace.
    pub fn check(&mut self, at_ns: u64) -> Result<(), Reason> {
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

    /// Takes a request that was read.
    #[inline]
    pub fn put(&mut self, request: TimedOp) {
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

    /// The next request, if as many wait as may; its time counts from the first.
    #[inline]
    pub fn take_full(&mut self) -> Option<TimedOp> {
        if self.waiting.len() > self.window || self.keys_waiting > KEYS_WAITING {
            self.take()
        } else {
            None
        }
    }

    /// The next request, whatever may follow.
    pub fn take(&mut self) -> Option<TimedOp> {
        let mut request = self.waiting.pop_front()?;
        self.keys_waiting -= request.keys.waiting();

        let origin = *self.origin_ns.get_or_insert(request.at_ns);
        // One from before the first, or before what was handed out, came too late.
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

        // One that is too late may be later than the first all the same.
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
