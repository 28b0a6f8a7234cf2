//! Branches: files that begin with the pages of another file, and may be merged back into it.
//!
//! A branch is a file like any other. Its record names its parent by birth, and the version of the
//! parent that it was made of.
//!
//! *Branch*: 1. free pages share the parent's pages, and the parent's record gets an odd version
//! 2. flush  3. the records of all branches of the list but the last  4. flush  5. the last record
//! 6. flush. A single branch has no 3 and 4. Cut before 3: no branch; the pages are still free, with
//! any contents, and an odd version without a branch is harmless. Cut from 3 to 5: perhaps some of
//! the list, but not the last one. Cut later: all of it, over pages that are durable because of 2.
//!
//! *First change of a file after it was branched*: 1. its record with the next, even version
//! 2. flush  3. the change. Cut before 3: a file that has not changed may be taken for one that has,
//! never the opposite.
//!
//! *Merge*: 1. the parent's record with the pages and the size of the branch, the next even version,
//! and the branch's birth as `merged`  2. flush  3. the branch's record becomes zeroes  4. flush
//! 5. trim of the parent's old pages. Cut before the end of 1: two files, as before. Cut before the
//! end of 4: the branch's record may still be there, but the parent's says that it is void, so each
//! page has one owner; the next change of the layout begins with 3 and 4. Cut in 5: the old pages are
//! free.
//!
//! Invariants: each change of a file's layout is still one page written; a branch of a deleted file
//! is complete. Absent: concurrent writers of the parent. They must wait, or the branch has some of
//! their pages and not others.

use super::change::pages_of;
use super::format::{Inode, Lineage};
use super::random::random;
use super::share::remaps;
use super::space::{self, Extent};
use super::state::VolumeState;
use super::table::SlotContent;
use crate::guard::Guard;
use crate::{FileId, FileSpace, NewBranch, PageRun, StoreError};
use remap_ssd_device::{Disk, DiskRemap, SharingError};
use std::collections::BTreeMap;

/// A file that branches are made of.
struct Parent {
    /// Its record, with an odd version.
    inode: Inode,
    /// It is not on the disk like this.
    is_to_be_marked: bool,
}

/// A branch about to be made.
struct Planned {
    slot: u32,
    inode: Inode,
    /// From the parent's pages to those of the branch.
    remaps: Vec<DiskRemap>,
}

impl<D: Disk> VolumeState<D> {
    /// Makes branches of files, in the order of the list.
    pub(super) fn branch(
        &mut self,
        list: &[NewBranch<'_>],
        made_at: u64,
    ) -> Result<(), StoreError> {
        self.locked(|state| {
            // All checks come before the first change.
            let parents = state.marked_parents(list)?;
            let planned = state.plan_branches(list, &parents, made_at)?;
            let Some((last, first)) = planned.split_last() else {
                return Ok(());
            };

            state.begin()?;

            // Steps 1 to 6 of *Branch* in the file header.
            for one in &planned {
                state.share_with_branch(&one.remaps)?;
            }
            for (slot, parent) in parents
                .into_iter()
                .filter(|(_, parent)| parent.is_to_be_marked)
            {
                state.put(slot, parent.inode)?;
            }
            state.flush_for(Guard::FlushBranched)?;

            for one in first {
                state.put_branch(one)?;
            }
            if !first.is_empty() {
                state.flush_for(Guard::FlushBranchesBeforeLast)?;
            }

            state.put_branch(last)?;
            state.flush_for(Guard::FlushCreated)?;
            state.end()
        })
    }

    /// The parents in a list, by slot.
    fn marked_parents(
        &mut self,
        list: &[NewBranch<'_>],
    ) -> Result<BTreeMap<u32, Parent>, StoreError> {
        let mut parents = BTreeMap::new();
        for NewBranch { from, .. } in list {
            let found = self.table.find(from);
            let (slot, inode) = found.ok_or_else(|| self.table.missing(from))?;

            let mut inode = inode.clone();
            self.table.check_alone(slot)?;
            let birth = inode.birth;
            inode.size = self.size(FileId { slot, birth })?;
            let is_to_be_marked = !inode.lineage.is_branched();
            inode.lineage.version |= 1;

            // The lineage takes the place of two extents.
            if inode.extents.len() > inode.extents_max() {
                return Err(StoreError::Fragmented(inode.name));
            }

            parents.insert(
                slot,
                Parent {
                    inode,
                    is_to_be_marked,
                },
            );
        }
        Ok(parents)
    }

    /// Chooses slots and pages for branches.
    fn plan_branches(
        &mut self,
        list: &[NewBranch<'_>],
        parents: &BTreeMap<u32, Parent>,
        made_at: u64,
    ) -> Result<Vec<Planned>, StoreError> {
        let mut free = self.table.free_runs(&self.superblock)?;
        let mut slots: Vec<u32> = self.table.free_slots().take(list.len()).collect();
        if slots.len() < list.len() {
            return Err(StoreError::NoSlot(self.superblock.slots));
        }
        // They are taken from the end: the lowest first.
        slots.reverse();

        let mut planned: Vec<Planned> = Vec::with_capacity(list.len());
        for NewBranch { from, to } in list {
            let is_taken = self.table.find(to).is_some();
            if is_taken || planned.iter().any(|one| one.inode.name == *to) {
                return Err(StoreError::Exists((*to).to_owned()));
            }
            let mut parents = parents.values().map(|parent| &parent.inode);
            let parent = parents.find(|parent| parent.name == *from);
            let parent = parent.expect("the caller found all parents");

            // No page after the end: what the parent has claimed in advance stays its own.
            let pages = pages_of(parent.size);
            let full = StoreError::Full {
                needed: pages,
                free: space::pages_in(&free),
            };
            let extents = space::choose(free.clone(), None, pages, pages).ok_or(full)?;
            let extents = space::joined(&extents, &[]);
            free = space::unclaimed(&free, &extents);
            let (sources, _) = space::split(&parent.extents, pages);

            let inode = branch_of(parent, to, extents, made_at);
            if inode.extents.len() > inode.extents_max() {
                return Err(StoreError::Fragmented((*from).to_owned()));
            }
            planned.push(Planned {
                slot: slots.pop().expect("as many as branches"),
                remaps: remaps(&sources, &inode.extents),
                inode,
            });
        }
        Ok(planned)
    }

    fn share_with_branch(&mut self, remaps: &[DiskRemap]) -> Result<(), StoreError> {
        let mut pages = 0;
        for remap in remaps {
            let end = remap.target + u64::from(remap.pages);
            self.cache.forget(remap.target..end);
            pages += u64::from(remap.pages);
        }
        // A disk that refuses may have done any part: copying all of it gives the same result.
        match self.disk.remap_all(remaps) {
            Ok(()) => self.statistics.pages_shared += pages,
            Err(error) => {
                self.copy_pages(remaps)?;
                self.statistics.copied(pages, || error.to_string());
            }
        }
        Ok(())
    }

    fn put_branch(&mut self, one: &Planned) -> Result<(), StoreError> {
        // As in `create`: the size first, since others look it up as soon as they see the file.
        let Inode { birth, size, .. } = one.inode;
        self.coordination.set_size(one.slot, birth, size);
        self.put(one.slot, one.inode.clone())
    }

    /// Gives a file that branches were made of its next version, durably, before its bytes change.
    pub(super) fn leave_version(&mut self, file: FileId) -> Result<(), StoreError> {
        if !self.inode(file)?.lineage.is_branched() {
            return Ok(());
        }
        self.locked(|state| {
            let mut inode = state.inode(file)?.clone();
            // Another process may have been faster.
            if !inode.lineage.is_branched() {
                return Ok(());
            }
            inode.lineage.version += 1;
            inode.size = state.size(file)?;
            state.begin()?;
            state.put(file.slot, inode)?;
            state.flush_for(Guard::FlushVersion)?;
            state.end()
        })
    }

    /// Merges a branch into its parent, which gets its pages; the branch is no more. Returns the
    /// parent's name. With `force`, changes of the parent since the branch was made are lost.
    pub(super) fn merge(&mut self, name: &str, force: bool) -> Result<String, StoreError> {
        self.locked(|state| {
            let found = state.table.find(name);
            let (slot, branch) = found.ok_or_else(|| state.table.missing(name))?;
            let Lineage {
                parent,
                parent_version,
                ..
            } = branch.lineage;
            let refuse = |why: String| StoreError::NotMerged {
                name: name.into(),
                why,
            };

            if parent == 0 {
                return Err(refuse("it is not a branch".into()));
            }
            let gone = || refuse("the file that it is a branch of has been deleted".into());
            let (parent_slot, old) = state.table.find_birth(parent).ok_or_else(gone)?;
            if old.lineage.version != parent_version && !force {
                return Err(refuse(format!(
                    "{} has changed since, and the changes would be lost: --force does it anyway",
                    old.name
                )));
            }

            let (branch, old) = (branch.clone(), old.clone());
            state.table.check_alone(slot)?;
            state.table.check_alone(parent_slot)?;
            let size = state.size(FileId {
                slot,
                birth: branch.birth,
            })?;

            let mut new = old.clone();
            (new.extents, new.size) = (branch.extents.clone(), size);
            new.lineage.version = (old.lineage.version | 1) + 1;
            new.lineage.merged = branch.birth;

            state.begin()?;
            // Pages cached for the branch are not the parent's.
            branch
                .extents
                .iter()
                .for_each(|extent| state.cache.forget(extent.first..extent.end()));

            // Steps 1 to 5 of *Merge* in the file header.
            state.coordination.set_size(parent_slot, old.birth, size);
            state.put(parent_slot, new)?;
            state.flush_for(Guard::FlushMerged)?;
            state.remove_record(slot)?;
            state.flush_for(Guard::FlushReleased)?;
            for extent in &old.extents {
                state.trim(extent.first, extent.pages)?;
            }
            state.end()?;
            Ok(old.name)
        })
    }

    /// Removes the records of branches whose merge was cut off before that.
    pub(super) fn remove_merged(&mut self) -> Result<(), StoreError> {
        let slots = self.table.take_merged();
        if slots.is_empty() {
            return Ok(());
        }
        self.begin()?;
        slots
            .into_iter()
            .try_for_each(|slot| self.remove_record(slot))?;
        self.flush_for(Guard::FlushReleased)?;
        self.end()
    }

    /// Makes a slot empty: a trimmed page reads as zeroes, which is the record of no file.
    pub(super) fn remove_record(&mut self, slot: u32) -> Result<(), StoreError> {
        // As in `put`: the record on the disk is unknown until the trim has completed.
        self.table.forget_slot(slot);
        let place = self.superblock.page_of(slot);
        self.disk.trim(place, 1).map_err(StoreError::disk)?;
        let generation = self.generation();
        self.table.set(slot, SlotContent::Free, generation);
        Ok(())
    }

    /// Runs of the pages at which two files do not share a page of the device, in order. Pages that
    /// only one of them has are among them.
    pub(super) fn differing(&mut self, a: FileId, b: FileId) -> Result<Vec<PageRun>, StoreError> {
        let [a_pages, b_pages] = [pages_of(self.size(a)?), pages_of(self.size(b)?)];
        let both = a_pages.min(b_pages);
        let [of_a, of_b] = [self.places(a, 0, both)?, self.places(b, 0, both)?];

        let (mut runs, mut at) = (Vec::new(), 0);
        for piece in remaps(&of_a, &of_b) {
            let found = self
                .disk
                .differing(piece.source, piece.target, piece.pages.into());
            for run in found.map_err(sharing)? {
                add(&mut runs, at + run.start, run.end - run.start);
            }
            at += u64::from(piece.pages);
        }
        if a_pages != b_pages {
            add(&mut runs, both, a_pages.max(b_pages) - both);
        }
        Ok(runs)
    }

    /// The pages of a file, and those of them that nothing else shares.
    pub(super) fn space(&mut self, file: FileId) -> Result<FileSpace, StoreError> {
        let pages = self.inode(file)?.capacity();
        let mut alone = 0;
        for place in self.places(file, 0, pages)? {
            let found = self.disk.pages_alone(place.first, place.pages);
            alone += found.map_err(sharing)?;
        }
        Ok(FileSpace { pages, alone })
    }
}

/// The record of a branch.
fn branch_of(parent: &Inode, name: &str, extents: Vec<Extent>, made_at: u64) -> Inode {
    Inode {
        name: name.to_owned(),
        birth: u64::from_le_bytes(random()),
        size: parent.size,
        open_end: parent.open_end,
        extents,
        lineage: Lineage {
            version: 0,
            parent_version: parent.lineage.version,
            parent: parent.birth,
            merged: 0,
            made_at,
        },
    }
}

fn sharing<E: std::error::Error + Send + Sync + 'static>(error: SharingError<E>) -> StoreError {
    match error {
        SharingError::Unsupported(why) => StoreError::Unsupported(why),
        SharingError::Disk(error) => StoreError::disk(error),
    }
}

/// Appends a run, merging adjacent ones.
fn add(runs: &mut Vec<PageRun>, first: u64, pages: u64) {
    match runs.last_mut() {
        Some(last) if last.first + last.pages == first => last.pages += pages,
        _ => runs.push(PageRun { first, pages }),
    }
}
