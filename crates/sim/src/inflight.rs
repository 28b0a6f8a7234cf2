//! The host's queue: which of the outstanding requests ends first.
//!
//! A winner tree over a fixed number of places: replacing the winner costs one comparison a level,
//! without a branch. Ends and places share a word, so equal ends are told apart by place and a run
//! is deterministic.
//!
//! Invariant: a parent is the smaller of its two children. Absent: what the requests are.

/// Ends of the outstanding requests.
pub(crate) struct InFlight {
    /// `tree[1]` is the winner, `tree[leaves..]` are the places; each is `end << bits | place`.
    tree: Vec<u64>,
    leaves: usize,
    bits: u32,
}

impl InFlight {
    /// `depth` places, all of them free from `now` on.
    pub(crate) fn new(depth: u32, now: u64) -> Self {
        // A power of two, so that a parent is found by a shift; places beyond the depth never win.
        let leaves = depth.max(1).next_power_of_two() as usize;
        let mut queue = Self {
            tree: vec![u64::MAX; 2 * leaves],
            leaves,
            bits: leaves.trailing_zeros(),
        };
        for place in 0..depth.max(1) as usize {
            queue.tree[leaves + place] = queue.key(now, place);
        }
        // From the leaves up: each parent is the smaller of its children.
        for node in (1..leaves).rev() {
            queue.tree[node] = queue.tree[2 * node].min(queue.tree[2 * node + 1]);
        }
        queue
    }

    #[inline]
    fn key(&self, end: u64, place: usize) -> u64 {
        // Above the places in one word; time that overflowed into nothing would order the queue
        // wrongly and say nothing.
        assert!(
            end < 1 << (63 - self.bits),
            "virtual time is beyond what the queue can hold"
        );
        end << self.bits | place as u64
    }

    /// When the next request can enter: the earliest end.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.tree[1] >> self.bits
    }

    /// The request that takes the earliest one's place ends at `end`.
    #[inline]
    pub(crate) fn replace_earliest(&mut self, end: u64) {
        let place = self.tree[1] as usize & (self.leaves - 1);
        let mut key = self.key(end, place);
        let mut node = self.leaves + place;
        self.tree[node] = key;

        // `node ^ 1` is the other child: the parent is told without a look at which of the two won.
        while node > 1 {
            key = key.min(self.tree[node ^ 1]);
            node /= 2;
            self.tree[node] = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    // Every depth from 1 to 40, powers of two and others, against a heap.
    #[test]
    fn the_earliest_end_is_that_of_a_heap() {
        for depth in 1..=40 {
            let mut queue = InFlight::new(depth, 100);
            let mut heap: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(100)).collect();
            let mut noise = u64::from(depth);
            for _ in 0..2000 {
                let now = heap.pop().unwrap().0;
                assert_eq!(queue.earliest(), now);
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let end = now + (noise >> 54);
                heap.push(Reverse(end));
                queue.replace_earliest(end);
            }
        }
    }
}
