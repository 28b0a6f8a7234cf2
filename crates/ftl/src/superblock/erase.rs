//! The end of a superblock's life: erases, failing and worn blocks, retirement.
//!
//! Invariant: nothing in a superblock marked dead counts, erased or not. Absent: which superblock
//! to erase (`gc`).

use super::{INCARNATION_MAX, Superblock, SuperblockState, Superblocks};
use crate::clock::WsnClock;
use crate::config::guard::Guard;
use crate::dies::DieMask;
use crate::superblock::life::{Life, LifeRecord};
use remap_ssd_media::{After, ClearId, Media, SbId};

impl Superblocks {
    /// Stops programming a block; its contents stay until its superblock is erased.
    pub(crate) fn fail_block(&mut self, media: &mut Media, sb: SbId, die: u32) {
        self.program_failures += 1;
        let entry = self.get_mut(sb);
        entry.failing |= DieMask::of(die);
        LifeRecord::store_failing(media, sb, entry.failing);

        // A tail needs good blocks, so its place moves forward. Pages already programmed in that
        // place keep their data; the superblock then stays without a tail.
        let skipped = self.skipped(sb);
        let capacity = self.capacity(sb, skipped);
        self.get_mut(sb).capacity = capacity;

        let end = self.data_end(sb, skipped).unwrap_or(0);
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
            // The block failed at the first page of a word line, which is not filled.
            open.last_end = 0;
        }
    }

    pub(super) fn retire(&mut self, sb: SbId) {
        self.leave_pool(sb);
        self.get_mut(sb).state = SuperblockState::Retired;
    }

    /// Erases a superblock without live pages.
    pub(crate) fn erase(&mut self, media: &mut Media, sb: SbId, clock: &mut WsnClock) {
        assert_eq!(
            self.owners(sb).live,
            0,
            "a superblock with live pages must not be erased"
        );

        // What supersedes its contents may be in word lines that are not full.
        self.fill_lines(media);

        // A separate number, above all witnesses in the superblock and below the next head's:
        // `dead_before` separates the incarnations.
        clock.tick();

        // A free superblock that is not clean is erased again when it is opened.
        self.leave_pool(sb);

        // 1. everything that supersedes its contents  2. "dead"  3. erases  4. "clean".
        // Cut before 2: it is a witness as before. After 2: nothing in it counts, erased or not.
        let life = self.die(media, sb, clock.now());
        let id = media.name_next();
        self.erase_blocks(media, sb, id);
        self.slc.note_erase(sb);
        self.set_slc(media, sb, false);
        let life = life.with_clean(true);
        LifeRecord::store_life(media, sb, life, After::clear(id).and(After::FENCE));

        // Free at once, not when the erases are durable: a block's programs are ordered after its
        // erase anyway, and the next head waits for the erases that must survive a cut
        // (`reserve_is_free`).
        let capacity = self.capacity(sb, self.get(sb).bad);
        let entry = self.get_mut(sb);
        (entry.life, entry.capacity, entry.erased) = (life, capacity, id);
        entry.state = SuperblockState::Free;
        self.join_pool(sb);
        if capacity == 0 {
            self.retire(sb);
        }
    }

    /// Marks the superblock dead, with all numbers before `dead_before`, and then its failing
    /// blocks bad.
    fn die(&mut self, media: &mut Media, sb: SbId, dead_before: u64) -> Life {
        let entry = self.get_mut(sb);
        // A superblock at the limit is retired by this erase, or by the next one if a cut comes in
        // between.
        let incarnation = (entry.life.incarnation() + 1).min(INCARNATION_MAX);
        entry.life = Life::new()
            .with_dead_before(dead_before)
            .with_clean(false)
            .with_incarnation(incarnation);

        // Failing blocks become bad only now: until here they may have held the only copy of a
        // page.
        let failing = std::mem::take(&mut entry.failing);
        entry.bad |= failing;
        let (life, bad) = (entry.life, entry.bad);

        if self.guards.has(Guard::DeadBeforeErase) {
            let after = if self.guards.has(Guard::EraseWaits) {
                After::ALL
            } else {
                After::NOTHING
            };
            LifeRecord::store_life(media, sb, life, after);
        }

        // Recovery looks for a head in good blocks only: a block may be marked bad only once the
        // head in it is dead.
        media.fence();
        if !failing.is_empty() {
            LifeRecord::store_bad(media, sb, bad);
            media.fence();
            LifeRecord::store_failing(media, sb, DieMask::NONE);
        }
        life
    }

    /// Erases the good blocks, and marks those bad that fail or have reached their limit.
    fn erase_blocks(&mut self, media: &mut Media, sb: SbId, id: ClearId) {
        let after = match (
            self.guards.has(Guard::EraseWaits),
            self.guards.has(Guard::DeadBeforeErase),
        ) {
            (true, true) => After::FENCE,
            (true, false) => After::ALL,
            (false, _) => After::NOTHING,
        };

        // A block that has reached its limit is bad from now on, as if this erase had failed. This
        // concerns logs, and superblocks that recovery found half erased: GC does not erase other
        // superblocks at their limit.
        let bad = self.get(sb).bad;
        let worn_out = self.is_worn_out(sb, self.get(sb).life.incarnation());
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

        // Before "clean", which covers good blocks only: recovery must not take a failed block for
        // an erased one.
        if self.get(sb).bad != bad {
            LifeRecord::store_bad(media, sb, self.get(sb).bad);
        }
    }

    /// With a dynamic cache an erase in either mode counts against the cycles of the full mode: the life record has one number of erases.
    fn is_worn_out(&self, sb: SbId, erases: u32) -> bool {
        let limit = match self.slc.area.has(sb) {
            true => self.slc_pe_limit,
            false => self.pe_limit,
        };
        erases >= limit
    }

    /// Returns true if another erase would wear this superblock out. Then its current contents are
    /// its last.
    pub(crate) fn is_in_last_cycle(&self, sb: SbId) -> bool {
        self.is_worn_out(sb, self.get(sb).life.incarnation() + 1)
    }

    /// Returns true if a free superblock that may change its mode has one cycle left: in SLC mode it would keep a fraction of its pages
    /// until the end of the device's life.
    pub(super) fn would_stay_slc(&self, sb: SbId) -> bool {
        let life = self.get(sb).life;
        let erases = life.incarnation() + u32::from(!life.clean());
        self.is_slc_dynamic() && self.is_worn_out(sb, erases + 1)
    }

    /// Returns true if the usable capacity changes with the owners of single pages.
    pub(crate) fn has_last_cycles(&self) -> bool {
        self.iter()
            .any(|(id, sb)| sb.state == SuperblockState::Closed && self.is_in_last_cycle(id))
    }

    /// Pages of data that the device has room for: the capacity of superblocks that can be filled,
    /// now or again, and the owned pages of worn ones. Superblocks that are always in SLC mode are a cache and no room.
    pub(crate) fn usable_pages(&self) -> u64 {
        let usable = |(id, sb): (SbId, &Superblock)| match sb.state {
            SuperblockState::Retired => 0,
            _ if self.slc.area.has(id) => 0,
            SuperblockState::Closed if self.is_in_last_cycle(id) => self.owners(id).live,
            _ => sb.capacity,
        };
        self.iter().map(|entry| u64::from(usable(entry))).sum()
    }
}
