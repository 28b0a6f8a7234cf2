//! The free superblocks, ordered by wear and by the erases that made them free.
//!
//! Invariant: exactly those in state `Free` are here, with the wear and the erase of their entry
//! (`Superblocks::check_pool`). Absent: which of them a stream wants (`open`).

use super::{Superblock, SuperblockState, Superblocks};
use crate::error::Contradiction;
use crate::policy::Wear;
use remap_ssd_media::{ClearId, SbId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Free superblocks in two orders. Devices may have a hundred thousand superblocks of a single
/// block each, so no operation scans all of them.
#[derive(Default)]
pub(super) struct FreePool {
    /// Group of dies, erases, number. The number breaks ties, so that runs are deterministic.
    by_wear: BTreeSet<(u32, u32, SbId)>,
    by_erase: BTreeSet<(ClearId, SbId)>,
}

impl FreePool {
    pub(super) fn len(&self) -> u32 {
        self.by_erase.len() as u32
    }

    fn insert(&mut self, group: u32, sb: SbId, entry: &Superblock) {
        self.by_wear.insert((group, entry.life.incarnation(), sb));
        self.by_erase.insert((entry.erased, sb));
    }

    fn remove(&mut self, group: u32, sb: SbId, entry: &Superblock) {
        self.by_wear.remove(&(group, entry.life.incarnation(), sb));
        self.by_erase.remove(&(entry.erased, sb));
    }

    /// The superblock of a group of dies with the fewest or the most erases, the first of several;
    /// of another group if this one has none.
    pub(super) fn pick(&self, wear: Wear, group: u32) -> Option<SbId> {
        let of_others = || {
            let groups = self.by_wear.last().map_or(0, |last| last.0 + 1);
            let of_each = (0..groups).filter_map(|group| self.pick_of(wear, group));
            match wear {
                Wear::Least => of_each.min(),
                Wear::Most => of_each.max_by_key(|&(erases, sb)| (erases, Reverse(sb))),
            }
        };

        let picked = self.pick_of(wear, group).or_else(of_others);
        picked.map(|(_, sb)| sb)
    }

    /// The same within this group, with its erases.
    fn pick_of(&self, wear: Wear, group: u32) -> Option<(u32, SbId)> {
        let mut of_group = self
            .by_wear
            .range((group, 0, SbId(0))..(group + 1, 0, SbId(0)));

        let &(_, erases, sb) = match wear {
            Wear::Least => of_group.next()?,
            Wear::Most => {
                // The first of the most worn ones, not the last.
                let &(_, erases, _) = of_group.next_back()?;
                let first = self.by_wear.range((group, erases, SbId(0))..).next();
                first?
            }
        };
        Some((erases, sb))
    }

    /// The last erase, by name, of the `kept` that were erased first, or of all if there are fewer;
    /// `None` if there is none.
    pub(super) fn erase_of(&self, kept: usize) -> Option<ClearId> {
        let nth = kept.clamp(1, self.by_erase.len().max(1)) - 1;
        self.by_erase.iter().nth(nth).map(|&(erase, _)| erase)
    }
}

impl Superblocks {
    /// Must be called before the superblock's state, wear or erase changes. No effect unless it is
    /// free.
    pub(super) fn leave_pool(&mut self, sb: SbId) {
        let entry = &self.table[sb.0 as usize];
        if entry.state == SuperblockState::Free {
            let pool = match self.slc.area.has(sb) {
                true => &mut self.slc_pool,
                false => &mut self.pool,
            };
            pool.remove(self.geometry.group(sb), sb, entry);
        }
    }

    /// Must be called after that change. No effect unless the superblock is free.
    pub(super) fn join_pool(&mut self, sb: SbId) {
        let entry = &self.table[sb.0 as usize];
        if entry.state == SuperblockState::Free {
            let pool = match self.slc.area.has(sb) {
                true => &mut self.slc_pool,
                false => &mut self.pool,
            };
            pool.insert(self.geometry.group(sb), sb, entry);
        }
    }

    /// Superblocks that are erased, or will be when opened; those that are always in SLC mode do not count.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.pool.len()
    }

    /// Pages of data in the first `superblocks` free superblocks, in the order in which they are
    /// opened; stops counting at `wanted`. One that opening would wear out counts as none.
    pub(crate) fn free_pages(&self, superblocks: usize, wanted: u64) -> u64 {
        let mut pages = 0;
        let usable = self.pool.by_wear.iter().filter_map(|&(_, _, sb)| {
            let entry = self.get(sb);
            let wears_out = !entry.life.clean() && self.is_in_last_cycle(sb);
            (!wears_out).then_some(u64::from(entry.capacity))
        });
        for capacity in usable.take(superblocks) {
            pages += capacity;
            if pages >= wanted {
                break;
            }
        }
        pages
    }

    /// Checks the pool against the table.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check_pool(&self) -> Result<(), Contradiction> {
        for (is_slc, pool) in [(false, &self.pool), (true, &self.slc_pool)] {
            let mut expected = FreePool::default();
            for (sb, entry) in self.iter() {
                if entry.state == SuperblockState::Free && self.slc.area.has(sb) == is_slc {
                    expected.insert(self.geometry.group(sb), sb, entry);
                }
            }
            if expected.by_wear != pool.by_wear || expected.by_erase != pool.by_erase {
                return Err(Contradiction(
                    "the pool of free superblocks is not what the table says".into(),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dies::DieMask;
    use crate::superblock::Stream;
    use crate::superblock::life::Life;

    fn free(incarnation: u32, erase: u64) -> Superblock {
        Superblock {
            state: SuperblockState::Free,
            stream: Stream::Host,
            capacity: 16,
            opened: 0,
            life: Life::new().with_incarnation(incarnation),
            bad: DieMask::NONE,
            failing: DieMask::NONE,
            head: 0,
            erased: ClearId(erase),
        }
    }

    /// Group of dies, erases, the last erase, number.
    const ALL: [(u32, u32, u64, SbId); 6] = [
        (0, 7, 40, SbId(0)),
        (1, 7, 30, SbId(1)),
        (0, 2, 60, SbId(2)),
        (1, 9, 10, SbId(3)),
        (0, 7, 20, SbId(4)),
        (0, 2, 50, SbId(6)),
    ];

    fn pool_of(all: &[(u32, u32, u64, SbId)]) -> FreePool {
        let mut pool = FreePool::default();
        for &(group, incarnation, erase, sb) in all {
            pool.insert(group, sb, &free(incarnation, erase));
        }
        pool
    }

    #[test]
    fn wear_decides_in_a_group_and_among_all_if_the_group_has_none() {
        for left in 0..=ALL.len() {
            let pool = pool_of(&ALL[..left]);
            for group in 0..3 {
                let in_group = ALL[..left].iter().filter(|one| one.0 == group).count() > 0;
                let wanted = || {
                    let all = ALL[..left].iter();
                    all.filter(move |one| !in_group || one.0 == group)
                };

                let least = wanted().min_by_key(|one| (one.1, one.3));
                let most = wanted().max_by_key(|one| (one.1, Reverse(one.3)));
                assert_eq!(pool.pick(Wear::Least, group), least.map(|one| one.3));
                assert_eq!(pool.pick(Wear::Most, group), most.map(|one| one.3));
            }
        }
    }

    #[test]
    fn so_many_were_erased_before_the_erase_that_is_named() {
        let mut pool = pool_of(&ALL);
        let named = [10, 10, 20, 30, 40, 50, 60, 60].map(|erase| Some(ClearId(erase)));
        let kept = (0..named.len()).map(|kept| pool.erase_of(kept));
        assert!(kept.eq(named), "none counts as one, too many as all");

        for (group, incarnation, erase, sb) in ALL {
            pool.remove(group, sb, &free(incarnation, erase));
        }
        assert_eq!((pool.len(), pool.erase_of(1)), (0, None));
    }
}
