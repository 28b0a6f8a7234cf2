//! Events that belong to no resource, in the order of their times.
//!
//! Most of them are set in that order too: data come over the link one after the other. These wait in a queue, and only
//! the others in a heap.
//!
//! Invariant: events of one time are in the order in which they were set. Absent: what they mean.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// An event that belongs to no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A node need no longer wait for a time.
    Gate(u32),
    /// The data of a page that waits for nothing else are in the controller.
    Page(u32),
    /// A part has reached the host.
    Part(u32),
    /// A page that was read has been decoded.
    Decoded(u32),
}

/// When an event is, and how many were set before it.
type Place = (u64, u64);

/// All events that belong to no resource.
#[derive(Default)]
pub(super) struct Timers {
    in_order: VecDeque<(Place, Timer)>,
    others: BinaryHeap<Reverse<(Place, Timer)>>,
    count: u64,
}

impl Timers {
    pub(super) fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.others.is_empty()
    }

    pub(super) fn set(&mut self, at: u64, timer: Timer) {
        let place = (at, self.count);
        self.count += 1;
        match self.in_order.back() {
            Some(((last, _), _)) if *last > at => self.others.push(Reverse((place, timer))),
            _ => self.in_order.push_back((place, timer)),
        }
    }

    /// When the next event is.
    #[inline]
    pub(super) fn earliest(&self) -> Option<u64> {
        let [first, other] = self.firsts();
        match (first, other) {
            (Some((at, _)), Some((other, _))) => Some(at.min(other)),
            (Some((at, _)), None) | (None, Some((at, _))) => Some(at),
            (None, None) => None,
        }
    }

    /// Takes the next event.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Timer> {
        let [first, other] = self.firsts();
        if other.is_some_and(|other| first.is_none_or(|first| other < first)) {
            return self.others.pop().map(|Reverse((_, timer))| timer);
        }
        self.in_order.pop_front().map(|(_, timer)| timer)
    }

    #[inline]
    fn firsts(&self) -> [Option<Place>; 2] {
        [
            self.in_order.front().map(|(place, _)| *place),
            self.others.peek().map(|Reverse((place, _))| *place),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Against a list that is sorted.
    #[test]
    fn timers_ring_in_the_order_of_their_times_and_then_as_they_were_set() {
        let (mut timers, mut list) = (Timers::default(), Vec::new());
        let mut noise = 1_u64;
        for number in 0..5000 {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = u64::from(number) / 4 + (noise >> 60);
            timers.set(at, Timer::Gate(number));
            list.push((at, number));
            if !number.is_multiple_of(3) {
                let least = list.iter().min().copied().unwrap();
                list.retain(|entry| *entry != least);
                assert_eq!(timers.earliest(), Some(least.0));
                assert_eq!(timers.pop(), Some(Timer::Gate(least.1)));
            }
        }
        list.sort_unstable();
        for (at, number) in list {
            assert_eq!(
                (timers.earliest(), timers.pop()),
                (Some(at), Some(Timer::Gate(number)))
            );
        }
        assert!(timers.is_empty() && timers.pop().is_none());
    }
}
