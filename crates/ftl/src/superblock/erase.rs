//! The end of a superblock's life: erases, blocks that fail or wear out, retirement.
//!
//! Invariant: nothing of a superblock that says "dead" counts, erased or not. Absent: which one
//! ends (`gc`).

use super::{INCARNATION_MAX, Superblock, SuperblockState, Superblocks};
use crate::clock::WsnClock;
use crate::dies::DieMask;
use crate::guard::Guard;
use crate::life::{Life, LifeRecord};
use remap_ssd_media::{After, Media, SbId};

impl Superblocks {
    /// Takes a block out of use from now on; what it holds stays until its superblock is erased.
    pub fn fail_block(&mut self, media: &mut Media, sb: SbId, die: u32) {
        self.program_failures += 1;
        let entry = self.get_mut(sb);
        entry.failing |= DieMask::of(die);
        LifeRecord::store_failing(media, sb, entry.failing);

        // A tail needs good blocks, so its place moves forward. Pages in that place that are
        // programmed already keep their data; the superblock then stays without a tail.
        let skipped = self.skipped(sb);
        let capacity = self.capacity(skipped);
        self.get_mut(sb).capacity = capacity;

        let end = self.tail_offsets(skipped).first().copied().unwrap_or(0);
        let waiting = self.waiting.iter_mut().flatten();
        for open in self
            .open
            .iter_mut()
            .chain(waiting)
            .flatten()
            .filter(|open| open.sb == sb)
        {
            open.end = open.end.min(end);
            open.skipped = skipped;
        }
    }

    pub(super) fn retire(&mut self, sb: SbId) {
        self.leave_pool(sb);
        self.get_mut(sb).state = SuperblockState::Retired;
    }

    /// Erases a superblock none of whose pages is needed any more.
    pub fn erase(&mut self, media: &mut Media, sb: SbId, clock: &mut WsnClock) {
        assert_eq!(
            self.owners(sb).live,
            0,
            "a superblock with live pages must not be erased"
        );

        // A number of its own, above all witnesses in the superblock and below the next head's:
        // `dead_before` divides the incarnations.
        clock.tick();

        // One that is free and not clean is erased again when it is opened.
        self.leave_pool(sb);

        // 1. everything that took this superblock's place  2. "dead"  3. erases  4. "clean".
        // Cut before 2: it is a witness as before. After 2: nothing in it counts, erased or not.
        let entry = self.get_mut(sb);
        // A superblock at the limit is retired by this erase, or by the next one if a cut comes in
        // between.
        let incarnation = (entry.life.incarnation() + 1).min(INCARNATION_MAX);
        entry.life = Life::new()
            .with_dead_before(clock.now())
            .with_clean(false)
            .with_incarnation(incarnation);

        // Only now they join the bad ones: until here they may have held the only copy of a page.
        let failing = std::mem::take(&mut entry.failing);
        entry.bad |= failing;
        let (life, mut bad) = (entry.life, entry.bad);

        let waits = self.guards.has(Guard::EraseWaits);
        let dead_first = self.guards.has(Guard::DeadBeforeErase);
        if dead_first {
            LifeRecord::store_life(
                media,
                sb,
                life,
                if waits { After::ALL } else { After::NOTHING },
            );
        }

        // Recovery looks for a head in good blocks only: a block may be called bad only once the
        // head in it is dead.
        media.fence();
        if !failing.is_empty() {
            LifeRecord::store_bad(media, sb, bad);
            media.fence();
            LifeRecord::store_failing(media, sb, DieMask::NONE);
        }

        let after = match (waits, dead_first) {
            (true, true) => After::FENCE,
            (true, false) => After::ALL,
            (false, _) => After::NOTHING,
        };
        let id = media.name_next();

        // A block that has reached its limit is a bad one from now on, as if this erase had failed.
        // That happens to a log's, and where recovery found half a superblock: GC leaves the others
        // as they are.
        let worn_out = self.is_worn_out(incarnation);
        for die in bad.others(self.geometry.dies()) {
            if media
                .erase(self.geometry.block(sb, die), id, after)
                .is_err()
                || worn_out
            {
                self.blocks_retired += 1;
                self.get_mut(sb).bad |= DieMask::of(die);
            }
        }

        // Before "clean", which is said of good blocks only: recovery must not take a block that
        // failed for an erased one.
        if self.get(sb).bad != bad {
            bad = self.get(sb).bad;
            LifeRecord::store_bad(media, sb, bad);
        }
        let life = life.with_clean(true);
        LifeRecord::store_life(media, sb, life, After::clear(id).and(After::FENCE));

        // Not when the erases are durable, but now: the block is programmed after its erase in any
        // case, and what must stay free over a cut the head waits for (`reserve_is_free`).
        let capacity = self.capacity(bad);
        let entry = self.get_mut(sb);
        (entry.life, entry.capacity, entry.erased) = (life, capacity, id);
        entry.state = SuperblockState::Free;
        self.join_pool(sb);
        if capacity == 0 {
            self.retire(sb);
        }
    }

    fn is_worn_out(&self, erases: u32) -> bool {
        erases >= self.pe_limit
    }

    /// Would erasing this superblock once more wear it out? Then what it holds now is the last that
    /// it ever holds.
    pub fn is_in_last_cycle(&self, sb: &Superblock) -> bool {
        self.is_worn_out(sb.life.incarnation() + 1)
    }

    /// Does what the device has room for change with the owners of single pages?
    pub fn has_last_cycles(&self) -> bool {
        self.table
            .iter()
            .any(|sb| sb.state == SuperblockState::Closed && self.is_in_last_cycle(sb))
    }

    /// Pages of data that the device has room for: all of a superblock that can be filled, now or
    /// again, and those with owners of one that is worn out.
    pub fn usable_pages(&self) -> u64 {
        let usable = |(id, sb): (SbId, &Superblock)| match sb.state {
            SuperblockState::Retired => 0,
            SuperblockState::Closed if self.is_in_last_cycle(sb) => self.owners(id).live,
            _ => sb.capacity,
        };
        self.iter().map(|entry| u64::from(usable(entry))).sum()
    }
}
