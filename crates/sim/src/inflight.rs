//! The host's queue: finds the outstanding request that completes first.
//!
//! A winner tree over a fixed number of slots: replacing the winner costs one comparison per level,
//! without a branch. Completion time and slot share a word, so slots break ties and a run is
//! deterministic.
//!
//! Invariant: a parent is the smaller of its two children. Absent: the contents of the requests.

/// Completion times of the outstanding requests.
pub(crate) struct InFlight {
    /// `tree[1]` is the winner, `tree[leaves..]` are the slots; each is `end << bits | place`.
    tree: Vec<u64>,
    leaves: usize,
    bits: u32,
}

impl InFlight {
    /// `depth` slots, all of them free from `now` on.
    pub(crate) fn new(depth: u32, now: u64) -> Self {
        // A power of two, so that a shift finds the parent; slots beyond the depth never win.
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
        // The time is above the slot in one word; a silent overflow would corrupt the order of the
        // queue.
        assert!(
            end < 1 << (63 - self.bits),
            "virtual time is beyond what the queue can hold"
        );
        end << self.bits | place as u64
    }

    /// The earliest completion time: when the next request can enter.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.tree[1] >> self.bits
    }

    /// Replaces the earliest request by one that completes at `end`.
    #[inline]
    pub(crate) fn replace_earliest(&mut self, end: u64) {
        let place = self.tree[1] as usize & (self.leaves - 1);
        let mut key = self.key(end, place);
        let mut node = self.leaves + place;
        self.tree[node] = key;

        // `node ^ 1` is the sibling: the parent is found without knowing which child won.
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
