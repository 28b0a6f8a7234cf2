//! The next event of each resource, and the earliest of all.
//!
//! A winner tree with a leaf for each die, channel and lane, which has at most one event at a time.
//! Time and leaf share a word, so leaves break ties, and a run is deterministic. Times are counted from an
//! epoch that follows the events, so that virtual time may last for centuries.
//!
//! Invariant: a parent is the smaller of its two children. Absent: what an event means.

/// Event times by leaf.
pub(super) struct Events {
    tree: Vec<u64>,
    leaves: usize,
    bits: u32,
    epoch: u64,
    /// The leaf whose event is being handled, until it has its next one.
    current: usize,
}

/// Marks the absence of a leaf.
const NO_LEAF: usize = usize::MAX;

impl Events {
    /// `count` leaves without events.
    pub(super) fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two().max(2);
        Self {
            tree: vec![u64::MAX; 2 * leaves],
            leaves,
            bits: leaves.trailing_zeros(),
            epoch: 0,
            current: NO_LEAF,
        }
    }

    /// The earliest event, as its time and its leaf.
    #[inline]
    pub(super) fn earliest(&self) -> Option<(u64, usize)> {
        let key = self.tree[1];
        (key != u64::MAX).then_some((
            self.epoch + (key >> self.bits),
            key as usize & (self.leaves - 1),
        ))
    }

    /// When the leaf's next event is.
    pub(super) fn time(&self, leaf: usize) -> Option<u64> {
        let key = self.tree[self.leaves + leaf];
        (key != u64::MAX).then_some(self.epoch + (key >> self.bits))
    }

    /// The earliest event is handled: it is the leaf's event until there is another one, at the latest until
    /// [`Self::end`].
    #[inline]
    pub(super) fn begin(&mut self, leaf: usize) {
        self.current = leaf;
    }

    /// It has been handled.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.current != NO_LEAF {
            self.clear(self.current);
        }
    }

    /// The leaf's next event is at `time`.
    #[inline]
    pub(super) fn set(&mut self, leaf: usize, time: u64) {
        if time - self.epoch >= self.limit() {
            self.clear(leaf);
            self.move_epoch(time);
        }
        self.put(leaf, (time - self.epoch) << self.bits | leaf as u64);
    }

    /// Times from the epoch on that share a word with a leaf.
    #[inline]
    fn limit(&self) -> u64 {
        1 << (63 - self.bits)
    }

    /// Counts from long before the earliest event on, since others may follow that come before it.
    #[cold]
    fn move_epoch(&mut self, time: u64) {
        let earliest = self
            .earliest()
            .map_or(time, |(earliest, _)| earliest.min(time));
        let epoch = earliest.saturating_sub(self.limit() / 2).max(self.epoch);
        // A silent overflow would corrupt the order of events.
        assert!(
            time - epoch < self.limit(),
            "events are too far from each other"
        );
        let by = (epoch - self.epoch) << self.bits;
        for key in self.tree.iter_mut().filter(|key| **key != u64::MAX) {
            *key -= by;
        }
        self.epoch = epoch;
    }

    /// The leaf has no event.
    #[inline]
    pub(super) fn clear(&mut self, leaf: usize) {
        self.put(leaf, u64::MAX);
    }

    #[inline]
    fn put(&mut self, leaf: usize, mut key: u64) {
        if leaf == self.current {
            self.current = NO_LEAF;
        }
        let mut node = self.leaves + leaf;
        self.tree[node] = key;
        while node > 1 {
            key = key.min(self.tree[node ^ 1]);
            node /= 2;
            // Nothing above changes either.
            if self.tree[node] == key {
                return;
            }
            self.tree[node] = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Against a list that is searched.
    #[test]
    fn the_earliest_event_is_the_least_time_and_then_the_least_leaf() {
        for count in [1, 2, 3, 7, 16, 33] {
            let (mut events, mut list) = (Events::new(count), vec![None; count]);
            let (mut noise, mut now) = (count as u64, 0_u64);
            for _ in 0..2000 {
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let (leaf, mut time) = ((noise >> 33) as usize % count, noise >> 58);
                now += if noise.is_multiple_of(97) { 1 << 55 } else { 0 };
                if time < 8 {
                    events.clear(leaf);
                    list[leaf] = None;
                } else {
                    time += now;
                    // No event is earlier than the present.
                    for (other, place) in list.iter_mut().enumerate() {
                        if place.is_some_and(|place| place < now) {
                            events.clear(other);
                            *place = None;
                        }
                    }
                    events.set(leaf, time);
                    list[leaf] = Some(time);
                }
                let least = (0..count).filter_map(|leaf| list[leaf].map(|time| (time, leaf)));
                assert_eq!(events.earliest(), least.min());
            }
        }
    }
}
