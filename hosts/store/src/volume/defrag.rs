//! Making the pages of a file contiguous by remaps: no data page is programmed.
//!
//! *Defragment*: 1. pages that no file has share what the file's pages hold  2. flush  3. the
//! record with the new pages
//! 4. flush  5. trim of the old pages. Cut before 3: the file has its old pages, which have not
//!    changed; the new ones are free,
//! whatever they hold, and who claims them trims them first. Cut in 3 or 4: old pages or new ones,
//! which hold the same because of 2; the old ones are not trimmed before 4 has ended. Cut in 5: the
//! old ones are free.
//!
//! Invariant: a plan is looked for in the free pages of the moment in which it is carried out.
//! Absent: processes that write the file meanwhile: the volume must have been opened alone.

use super::share::remaps;
use super::space::{self, Extent};
use super::state::VolumeState;
use crate::guard::Guard;
use crate::{FileId, StoreError};
use remap_ssd_device::Disk;

/// Where a file is, and where it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefragPlan {
    /// Extents of the file now.
    pub from: Vec<Extent>,
    /// Its extents afterwards; the same if nothing is to be done, or can be.
    pub to: Vec<Extent>,
    /// Pages of the longest run of free ones.
    pub free_in_a_row: u64,
}

impl DefragPlan {
    /// Whether it makes the file less fragmented.
    pub fn is_gain(&self) -> bool {
        self.to.len() < self.from.len()
    }

    /// Pages that the file has.
    pub fn pages(&self) -> u64 {
        self.from.iter().map(|extent| extent.pages).sum()
    }
}

/// The best that free runs allow: the smallest run that takes all, or the largest ones if they are
/// fewer than the pieces now.
fn choose(from: &[Extent], mut free: Vec<Extent>) -> DefragPlan {
    let pages: u64 = from.iter().map(|extent| extent.pages).sum();
    let free_in_a_row = free.iter().map(|run| run.pages).max().unwrap_or(0);

    // The smallest that is large enough, so that large ones stay for large files.
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
            let is_room = to.iter().map(|extent| extent.pages).sum::<u64>() == pages;

            // Fewer pieces than now, or it is not worth the remaps.
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
    /// What would be done for a file.
    pub fn defrag_plan(&mut self, file: FileId) -> Result<DefragPlan, StoreError> {
        self.load()?;
        let free = self.table.free_runs(&self.superblock)?;
        Ok(choose(&self.inode(file)?.extents, free))
    }

    /// Moves a file into one extent.
    pub fn defrag(
        &mut self,
        file: FileId,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DefragPlan, StoreError> {
        self.locked(|state| {
            let plan = state.defrag_plan(file)?;
            // Nothing is gained: no page is touched.
            if !plan.is_gain() {
                return Ok(plan);
            }
            // The lock is held until the record is written: no other process can claim the pages of
            // the plan.
            let mut inode = state.inode(file)?.clone();
            (inode.extents, inode.size) = (plan.to.clone(), state.size(file)?);

            state.begin()?;
            // From here on the steps of "defragment" above.
            let pages = plan.pages();
            let mut done = 0;
            for remap in remaps(&plan.from, &plan.to) {
                state
                    .cache
                    .forget(remap.target..remap.target + u64::from(remap.pages));
                if let Err(error) = state.disk.remap(&remap) {
                    // The record has not changed; the pages that were to be the file's are free.
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
