//! An open volume: the disk, cached state, and state shared with other processes.
//!
//! Invariant: cached state is compared with the generation before it is used. Absent: changes
//! of the layout (`change.rs`), bytes of files (`bytes.rs`).

use super::cache::{Cache, Epoch};
use super::coordination::Coordination;
use super::format::{Inode, Lineage, Superblock};
use super::table::{SlotContent, Table};
use super::tenancy::Membership;
use crate::guard::Guard;
use crate::{BranchInfo, FileId, FileInfo, Statistics, StoreError};
use remap_ssd_device::Disk;
use remap_ssd_media::geometry::PAGE_BYTES;

/// The state protected by the volume's mutex.
pub(super) struct VolumeState<D> {
    pub disk: D,
    pub superblock: Superblock,
    pub membership: Membership,
    pub coordination: Coordination,
    pub table: Table,
    pub cache: Cache,
    /// Files that this process is changing.
    pub changing: Vec<FileId>,
    pub statistics: Statistics,
    /// The guard that a test has switched off.
    pub without: Option<Guard>,
}

impl<D: Disk> VolumeState<D> {
    /// The generation of the layout.
    pub(super) fn generation(&self) -> u64 {
        self.coordination.generation()
    }

    /// Reads the slots of the table that are not valid.
    pub(super) fn load(&mut self) -> Result<(), StoreError> {
        let generation = self.generation();
        self.table
            .load(&mut self.disk, &self.superblock, generation)
    }

    /// The record of a file.
    pub(super) fn inode(&mut self, file: FileId) -> Result<&Inode, StoreError> {
        let generation = self.generation();
        match self
            .table
            .slot(&mut self.disk, &self.superblock, generation, file.slot)?
        {
            SlotContent::File(inode) if inode.birth == file.birth => Ok(inode),
            SlotContent::File(_) | SlotContent::Free => Err(StoreError::Gone),
            SlotContent::Damaged(why) => Err(StoreError::Damaged(why.clone())),
        }
    }

    /// The present size of a file: set since the machine booted, or from its record. After a device
    /// power loss, a shared size may exceed the pages that the device kept.
    pub(super) fn size(&mut self, file: FileId) -> Result<u64, StoreError> {
        let noted = self.coordination.size(file.slot, file.birth);
        let inode = self.inode(file)?;
        let capacity = inode.capacity() * PAGE_BYTES as u64;
        Ok(match noted {
            Some(size) => size.min(capacity),
            None if inode.open_end => capacity,
            None => inode.size,
        })
    }

    /// The epoch under which cached pages of a file are valid; `None` while another process changes
    /// it.
    pub(super) fn epoch(&mut self, file: FileId) -> Option<Epoch> {
        let word = self.coordination.word(file.slot);
        let is_ours = self.changing.contains(&file);
        self.cache
            .epoch(file, if is_ours { word & !1 } else { word })
    }

    /// Runs a change of files' bytes, during which other processes neither cache nor trust data
    /// they read.
    pub(super) fn change<R>(
        &mut self,
        files: impl IntoIterator<Item = FileId>,
        work: impl FnOnce(&mut Self) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let before = self.changing.len();
        self.settled()?;

        let files: Vec<FileId> = files.into_iter().collect();
        for file in &files {
            self.leave_version(*file)?;
        }

        // Odd words first: data read from here on is not trusted.
        files.into_iter().for_each(|file| self.begin_change(file));
        let result = work(self);

        if result.is_err() {
            // The words stay odd. It is unknown which part of the change the device has done.
            self.changing.truncate(before);
            self.cache.clear();
            return result;
        }

        // Even again, and greater than before: pages cached in between are invalid.
        for file in self.changing.split_off(before) {
            let word = self.coordination.word(file.slot) + 1;
            self.coordination.set_word(file.slot, word);
            self.cache.move_on(file, word);
        }
        result
    }

    fn begin_change(&mut self, file: FileId) {
        if self.changing.contains(&file) {
            return;
        }
        let word = self.coordination.word(file.slot);

        // The process that left it odd may have commands in flight.
        let was_left = !word.is_multiple_of(2);
        if was_left {
            self.coordination.await_last_commands();
        }

        // Pages cached under another word become invalid; the others follow the change.
        self.cache.epoch(file, word);
        let word = word + if was_left { 2 } else { 1 };
        self.coordination.set_word(file.slot, word);
        self.cache.move_on(file, word & !1);
        self.changing.push(file);
    }

    /// Deallocates pages on the disk.
    pub(super) fn trim(&mut self, first: u64, pages: u64) -> Result<(), StoreError> {
        self.cache.forget(first..first + pages);
        self.disk.trim(first, pages).map_err(StoreError::disk)
    }

    /// Makes everything done so far durable.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        self.statistics.syncs += 1;
        self.disk.flush().map_err(StoreError::disk)
    }

    /// Where a file comes from, if it is a branch.
    fn branch_info(&self, inode: &Inode) -> Option<BranchInfo> {
        let Lineage {
            parent,
            parent_version,
            made_at,
            ..
        } = inode.lineage;
        let found = self.table.find_birth(parent).map(|(_, found)| found);
        (parent != 0).then(|| BranchInfo {
            parent: found.map(|found| found.name.clone()),
            parent_changed: found.is_some_and(|found| found.lineage.version != parent_version),
            made_at,
        })
    }

    /// All files, in the order of their names.
    pub(super) fn list(&mut self) -> Result<Vec<FileInfo>, StoreError> {
        self.load()?;
        let files: Vec<(FileId, FileInfo)> = self
            .table
            .files()
            .map(|(slot, inode)| {
                let info = FileInfo {
                    name: inode.name.clone(),
                    bytes: inode.size,
                    pages: inode.capacity(),
                    extents: inode.extents.len(),
                    open_end: inode.open_end,
                    branch: self.branch_info(inode),
                };
                (
                    FileId {
                        slot,
                        birth: inode.birth,
                    },
                    info,
                )
            })
            .collect();

        let mut list = Vec::with_capacity(files.len());
        for (file, info) in files {
            match self.size(file) {
                Ok(bytes) => list.push(FileInfo { bytes, ..info }),
                Err(StoreError::Gone) => {} // Deleted concurrently.
                Err(error) => return Err(error),
            }
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }
}
