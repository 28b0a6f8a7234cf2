//! End times of recent programs and clearings, for `After` constraints.
//!
//! Programs are looked up by page. Nearly all of those looked up have long ended, which one time
//! per superblock shows; the others are in a direct-mapped table of the newest programs. A clearing
//! of NVRAM, or the erases of a superblock together, are looked up by name; names only grow.
//!
//! Invariant: a reported time is never earlier than the end. It is exact unless a program that has
//! not ended was displaced by one whose page shares its slot; then it is the latest end of any
//! displaced program. Absent: operations that were never charged: they count as ended at time 0.

use remap_ssd_media::slab::prefetch;
use remap_ssd_media::{ClearId, Geometry, Ppn};
use std::collections::VecDeque;

/// Superblocks of each group of dies whose programs fit in the table without sharing slots.
const SUPERBLOCKS_KEPT: usize = 8;

/// Prefetch distance of the table in programs, and slots per cache line.
const PAGES_AHEAD: u32 = 16;
const SLOTS_PER_LINE: usize = 64 / size_of::<EndSlot>();

#[derive(Clone, Copy)]
struct EndSlot {
    end: u64,
    ppn: Ppn,
}

pub(crate) struct ProgramEnds {
    geometry: Geometry,
    /// End of the last program of each superblock.
    last: Vec<u64>,
    slots: Vec<EndSlot>,
    mask: usize,
    /// Latest end that was displaced before it had passed.
    displaced: u64,
}

impl ProgramEnds {
    pub(crate) fn new(geometry: Geometry) -> Self {
        // Slots for several superblocks, since recent programs are in the few that are open. A
        // power of two, so that an index is a mask.
        let row = geometry.pages_per_superblock() as usize * geometry.groups() as usize;
        let len = (row * SUPERBLOCKS_KEPT).next_power_of_two();
        Self {
            geometry,
            last: vec![0; geometry.superblocks() as usize],
            slots: vec![
                EndSlot {
                    end: 0,
                    ppn: Ppn(u32::MAX)
                };
                len
            ],
            mask: len - 1,
            displaced: 0,
        }
    }

    /// Records a program. Ends up to `now` need not be kept.
    #[inline]
    pub(crate) fn note(&mut self, ppn: Ppn, end: u64, now: u64) {
        self.note_row(ppn, 1, now, |_| end);
    }

    /// Records programs of consecutive pages of one superblock, whose ends `end_of` returns;
    /// returns the latest end.
    #[inline(always)]
    pub(crate) fn note_row(
        &mut self,
        first: Ppn,
        len: u32,
        now: u64,
        mut end_of: impl FnMut(u32) -> u64,
    ) -> u64 {
        let mut latest = 0;
        for index in 0..len {
            let (ppn, end) = (Ppn(first.0 + index), end_of(index));
            latest = latest.max(end);

            // A displaced end that has not passed is kept as a bound for all.
            let slot = &mut self.slots[ppn.0 as usize & self.mask];
            if slot.end > now && slot.ppn != ppn {
                self.displaced = self.displaced.max(slot.end);
            }
            *slot = EndSlot { end, ppn };
        }

        // Pages are programmed in order, so the next slots are known.
        let next = (first.0 + len + PAGES_AHEAD) as usize;
        (next..next + len as usize)
            .step_by(SLOTS_PER_LINE)
            .for_each(|slot| prefetch(&self.slots, slot & self.mask));

        let last = &mut self.last[self.geometry.superblock(first).0 as usize];
        *last = (*last).max(latest);
        latest
    }

    /// Returns true if a program of this page's superblock may not have ended yet.
    #[inline(always)]
    pub(crate) fn is_pending(&self, ppn: Ppn, now: u64) -> bool {
        self.last[self.geometry.superblock(ppn).0 as usize] > now
    }

    /// End of the last program of a page; any time up to `now` if it has passed.
    #[inline]
    pub(crate) fn of(&self, ppn: Ppn, now: u64) -> u64 {
        if !self.is_pending(ppn, now) {
            return now;
        }
        let last = self.last[self.geometry.superblock(ppn).0 as usize];
        let slot = &self.slots[ppn.0 as usize & self.mask];
        // Displaced: no later than the superblock's last program, nor than the latest displaced
        // end.
        if slot.ppn == ppn {
            slot.end
        } else {
            last.min(self.displaced)
        }
    }

    /// End of the last programs of `count` pages of one superblock; any time up to `now` if it has
    /// passed.
    #[inline]
    pub(crate) fn of_all(&self, first: Ppn, count: u16, now: u64) -> u64 {
        let end = self.of(first, now);
        if count == 1 || !self.is_pending(first, now) {
            return end;
        }
        (1..u32::from(count)).fold(end, |end, step| end.max(self.of(Ppn(first.0 + step), now)))
    }
}

/// End times of clearings and erases.
#[derive(Default)]
pub(crate) struct ClearEnds {
    /// Ends by name, starting with `first`; 0 if none was recorded. Names are nearly consecutive.
    ends: VecDeque<u64>,
    first: u64,
    last: u64,
}

impl ClearEnds {
    /// Records a clearing, or one of the erases with this name. Ends up to `now` need not be kept.
    pub(crate) fn note(&mut self, ClearId(id): ClearId, end: u64, now: u64) {
        // Names are looked up as long as they are pending; past ends are removed from the front.
        while self.ends.front().is_some_and(|front| *front <= now) {
            self.ends.pop_front();
            self.first += 1;
        }

        if self.ends.is_empty() {
            self.first = id;
        }

        // Only a past end can be older than those that are kept.
        if id < self.first {
            assert!(end <= now, "names of clearings and erases only grow");
            return;
        }

        let index = (id - self.first) as usize;

        // Names without a record ended at 0.
        while self.ends.len() <= index {
            self.ends.push_back(0);
        }
        self.ends[index] = self.ends[index].max(end);
        self.last = self.last.max(end);
    }

    /// Returns true if an operation with this name may not have ended yet.
    #[inline(always)]
    pub(crate) fn is_pending(&self, ClearId(id): ClearId, now: u64) -> bool {
        self.last > now && id >= self.first
    }

    /// End of all operations with this name; any time up to `now` if it has passed.
    #[inline]
    pub(crate) fn of(&self, id: ClearId, now: u64) -> u64 {
        // Nearly every name looked up is older than all pending ones.
        if !self.is_pending(id, now) {
            return now;
        }
        self.ends
            .get((id.0 - self.first) as usize)
            .map_or(now, |end| now.max(*end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remap_ssd_media::geometry::Shape;

    fn ends() -> ProgramEnds {
        let shape = Shape {
            channels: 1,
            dies: 4,
            superblocks: 64,
            pages_per_block: 4,
        };
        ProgramEnds::new(Geometry::new(shape).unwrap())
    }

    #[test]
    fn a_program_is_found_until_it_has_ended() {
        let mut ends = ends();
        ends.note(Ppn(17), 500, 0);
        ends.note(Ppn(18), 900, 0);
        assert_eq!(ends.of(Ppn(17), 100), 500);
        assert_eq!(
            ends.of(Ppn(17), 1000),
            1000,
            "the whole superblock has ended"
        );
        assert_eq!(
            ends.of(Ppn(99), 100),
            100,
            "a superblock without programs waits for nothing"
        );
    }

    #[test]
    fn a_run_of_pages_has_ended_when_all_of_them_have() {
        let mut ends = ends();
        ends.note(Ppn(17), 500, 0);
        ends.note(Ppn(18), 900, 0);
        ends.note(Ppn(19), 700, 0);
        assert_eq!(
            (ends.of_all(Ppn(16), 2, 100), ends.of_all(Ppn(16), 4, 100)),
            (500, 900)
        );
        assert_eq!(ends.of_all(Ppn(16), 4, 1000), 1000);
    }

    // 16 pages a superblock and 8 superblocks kept: pages 128 apart share a slot.
    #[test]
    fn a_displaced_program_is_never_reported_too_early() {
        let mut ends = ends();
        ends.note(Ppn(3), 700, 0);
        ends.note(Ppn(4), 9000, 0);
        ends.note(Ppn(3 + 128), 800, 100);
        assert_eq!(
            ends.of(Ppn(3), 100),
            700,
            "the bound is the latest displaced end, not the superblock's"
        );
        assert_eq!(ends.of(Ppn(3 + 128), 100), 800);
    }

    #[test]
    fn a_displaced_program_that_had_ended_delays_nothing() {
        let mut ends = ends();
        ends.note(Ppn(3), 700, 0);
        ends.note(Ppn(4), 9000, 0);
        ends.note(Ppn(3 + 128), 9500, 1000);
        assert!(ends.of(Ppn(3), 1000) <= 1000);
    }

    #[test]
    fn clearings_are_found_by_name_and_forgotten_when_over() {
        let mut ends = ClearEnds::default();
        ends.note(ClearId(1), 100, 0);
        ends.note(ClearId(5), 200, 0);
        assert_eq!(
            (ends.of(ClearId(1), 50), ends.of(ClearId(5), 50)),
            (100, 200)
        );
        assert_eq!(ends.of(ClearId(3), 50), 50, "one that was never charged");
        ends.note(ClearId(6), 300, 150);
        assert_eq!(
            (ends.of(ClearId(1), 150), ends.of(ClearId(6), 150)),
            (150, 300)
        );
    }

    #[test]
    fn the_erases_of_one_name_end_with_the_last_of_them() {
        let mut ends = ClearEnds::default();
        ends.note(ClearId(1), 100, 0);
        ends.note(ClearId(1), 900, 0);
        ends.note(ClearId(1), 300, 0);
        assert_eq!(ends.of(ClearId(1), 0), 900);
    }
}
