//! Defragmentation: makes the pages of a file contiguous by remaps, without programming data pages.
//!
//! *Defragment*: 1. free pages share the contents of the file's pages  2. flush  3. the record with
//! the new pages  4. flush  5. trim of the old pages. Cut before 3: the file has its old pages,
//! unchanged; the new ones are free, with any contents, and a claim trims them first. Cut in 3 or
//! 4: old pages or new ones, which are equal because of 2; the old ones are not trimmed before 4
//! has ended. Cut in 5: the old ones are free.
//!
//! Invariant: a plan is made from the free pages at the moment it is carried out. Absent:
//! concurrent writers of the file: the volume must have been opened alone.

use super::share::remaps;
use super::space::{self, Extent};
use super::state::VolumeState;
use crate::guard::Guard;
use crate::{FileId, StoreError};
use remap_ssd_device::Disk;

/// A file's extents now, and after defragmentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefragPlan {
    /// Extents of the file now.
    pub from: Vec<Extent>,
    /// Its extents afterwards; the same if no improvement is needed or possible.
    pub to: Vec<Extent>,
    /// Length of the longest run of free pages.
    pub free_in_a_row: u64,
}

impl DefragPlan {
    /// Returns true if it makes the file less fragmented.
    pub fn is_gain(&self) -> bool {
        self.to.len() < self.from.len()
    }

    /// Number of pages in the file.
    pub fn pages(&self) -> u64 {
        space::pages_in(&self.from)
    }
}

/// Chooses the best target in the free runs: the smallest run that takes the whole file, or the
/// largest ones if they are fewer than the present extents.
fn choose(from: &[Extent], mut free: Vec<Extent>) -> DefragPlan {
    let pages = space::pages_in(from);
    let free_in_a_row = free.iter().map(|run| run.pages).max().unwrap_or(0);

    // The smallest fitting run keeps large ones for large files.
    let whole = free
        .iter()
        .filter(|run| run.pages >= pages)
        .min_by_key(|run| run.pages);

    let to = match whole {
        _ if from.len() < 2 => from.to_vec(),
        Some(run) => vec![Extent {
            first: run.first,
            pages,
        }],
        None => {
            free.sort_by_key(|run| std::cmp::Reverse(run.pages));
            let (to, _) = space::split(&free, pages);
            let is_room = space::pages_in(&to) == pages;

            // Only fewer extents than now are worth the remaps.
            if is_room && to.len() < from.len() {
                to
            } else {
                from.to_vec()
            }
        }
    };
    DefragPlan {
        from: from.to_vec(),
        to,
        free_in_a_row,
    }
}

impl<D: Disk> VolumeState<D> {
    /// Plans the defragmentation of a file.
    pub(super) fn defrag_plan(&mut self, file: FileId) -> Result<DefragPlan, StoreError> {
        self.load()?;
        let free = self.table.free_runs(&self.superblock)?;
        Ok(choose(&self.inode(file)?.extents, free))
    }

    /// Defragments a file.
    pub(super) fn defrag(
        &mut self,
        file: FileId,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DefragPlan, StoreError> {
        self.locked(|state| {
            let plan = state.defrag_plan(file)?;
            // No gain: no page is touched.
            if !plan.is_gain() {
                return Ok(plan);
            }
            // The lock is held until the record is written: no other process can claim the plan's
            // pages.
            let mut inode = state.inode(file)?.clone();
            (inode.extents, inode.size) = (plan.to.clone(), state.size(file)?);

            state.begin()?;
            // The steps of *Defragment* in the file header.
            let pages = plan.pages();
            let mut done = 0;
            for remap in remaps(&plan.from, &plan.to) {
                state
                    .cache
                    .forget(remap.target..remap.target + u64::from(remap.pages));
                if let Err(error) = state.disk.remap(&remap) {
                    // The record has not changed; the new pages are still free.
                    state.end()?;
                    return Err(StoreError::disk(error));
                }
                done += u64::from(remap.pages);
                progress(done, pages);
            }
            state.statistics.pages_shared += pages;
            state.flush_for(Guard::FlushDefragmented)?;
            state.put(file.slot, inode)?;
            state.flush_for(Guard::FlushReleased)?;
            for extent in &plan.from {
                state.trim(extent.first, extent.pages)?;
            }
            state.end()?;
            Ok(plan)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter()
            .map(|(first, pages)| Extent {
                first: *first,
                pages: *pages,
            })
            .collect()
    }

    #[test]
    fn the_smallest_run_that_takes_all_is_chosen_and_few_large_ones_otherwise() {
        let from = extents(&[(10, 4), (20, 4), (30, 4)]);
        let to = |free: &[(u64, u64)]| choose(&from, extents(free)).to;
        assert_eq!(
            to(&[(100, 50), (200, 12), (300, 13)]),
            extents(&[(200, 12)])
        );
        assert_eq!(
            to(&[(100, 3), (200, 9), (300, 5)]),
            extents(&[(200, 9), (300, 3)])
        );
        assert_eq!(to(&[(100, 4), (200, 4), (300, 4)]), from, "no gain");
        assert_eq!(to(&[(100, 4), (200, 4)]), from, "no room");
        let one = extents(&[(10, 4)]);
        assert!(!choose(&one, extents(&[(100, 50)])).is_gain());
    }
}
