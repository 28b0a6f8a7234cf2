//! Overlapping ranges of LPNs with numbers: the largest number of each LPN.
//!
//! Invariants: the result covers exactly the LPNs of the ranges, each once, in ascending order; it
//! has fewer than twice as many ranges. The time is that of sorting the ranges, independent of
//! their lengths. Absent: the meaning of the numbers.

use remap_ssd_media::Lpn;
use std::collections::BinaryHeap;
use std::ops::Range;

/// LPNs with one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberedRange {
    /// The LPNs.
    pub lpns: Range<Lpn>,
    /// Their number.
    pub wsn: u64,
}

impl NumberedRange {
    /// `len` LPNs starting at `first`.
    pub(crate) fn new(first: Lpn, len: u32, wsn: u64) -> Self {
        Self {
            lpns: first..first.offset(len),
            wsn,
        }
    }
}

/// The largest number of each LPN in the ranges.
pub(crate) fn newest_of(mut ranges: Vec<NumberedRange>) -> Vec<NumberedRange> {
    ranges.retain(|range| !range.lpns.is_empty());
    ranges.sort_unstable_by_key(|range| range.lpns.start);
    let mut rest = ranges.iter().peekable();

    // Ranges that have begun, the largest number first. Ranges that have ended are removed when
    // they reach the top.
    let mut begun: BinaryHeap<(u64, Lpn)> = BinaryHeap::new();
    let mut newest: Vec<NumberedRange> = Vec::new();
    let mut at = Lpn::ZERO;

    loop {
        while begun.peek().is_some_and(|(_, end)| *end <= at) {
            begun.pop();
        }
        if begun.is_empty() {
            let Some(next) = rest.peek() else {
                return newest;
            };
            at = next.lpns.start;
        }
        while let Some(range) = rest.next_if(|range| range.lpns.start <= at) {
            begun.push((range.wsn, range.lpns.end));
        }

        // The largest number holds until its range ends or another one begins.
        let Some(&(wsn, end)) = begun.peek() else {
            continue;
        };
        let end = rest.peek().map_or(end, |next| end.min(next.lpns.start));
        assert!(end > at, "the range on top has not ended");
        match newest.last_mut() {
            Some(last) if last.wsn == wsn && last.lpns.end == at => last.lpns.end = end,
            _ => newest.push(NumberedRange { lpns: at..end, wsn }),
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 32) * n) >> 32
        }
    }

    fn one_by_one(ranges: &[NumberedRange]) -> BTreeMap<Lpn, u64> {
        let mut newest = BTreeMap::new();
        for range in ranges {
            for lpn in Lpn::between(range.lpns.clone()) {
                let wsn = newest.entry(lpn).or_insert(range.wsn);
                *wsn = range.wsn.max(*wsn);
            }
        }
        newest
    }

    #[test]
    fn the_newest_of_each_lpn_is_that_of_going_through_all_lpns_of_all_ranges() {
        let mut random = Random(5);
        for round in 0..4_000 {
            let lpns = 1 + random.below(60);
            let mut draw = |_| {
                let first = random.below(lpns);
                let len = random.below(lpns - first + 1);
                NumberedRange::new(Lpn(first as u32), len as u32, 1 + random.below(12))
            };
            let ranges: Vec<_> = (0..round % 40).map(&mut draw).collect();

            let newest = newest_of(ranges.clone());
            assert!(newest.len() < 2 * ranges.len().max(1), "{ranges:?}");
            assert!(
                newest
                    .windows(2)
                    .all(|two| two[0].lpns.end <= two[1].lpns.start),
                "{newest:?}"
            );
            assert_eq!(one_by_one(&newest), one_by_one(&ranges), "{ranges:?}");
        }
    }
}
