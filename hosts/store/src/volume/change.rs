//! Changes of a volume's layout: which files exist, and which pages they claim.
//!
//! All happen under the lock of the volume, and each is one page written (or trimmed) in the table:
//! that write is its commit. The medium keeps a page old or new, and may lose any subset of
//! unflushed writes. The arguments:
//!
//! *Layout is durable when the lock is released.* Each change ends with a flush. So a power cut of
//! the device undoes nothing that any process remembers, and a slot or page that looks free is
//! durably free. A process that dies inside a change leaves the generation odd, and so does one whose
//! flush failed; the next one to get the lock flushes before it reads (`locked`). As long as it is
//! odd, no process opens a file by name or changes the bytes of one (`settled`).
//!
//! *Create*: 1. the record, with a name that no record has, in a free slot  2. flush. Cut before
//! the end of 2: the file exists or not. The slot and the name were durably free, so nothing is
//! lost and no name exists twice. A file that gets its first pages at once: claim's 1 and 2 for
//! them first, then as here and as in claim's 3 and 4, which are this 1 and 2.
//!
//! *Claim*: 1. trim of the pages  2. flush  3. the record, with the pages  4. flush. Cut before 3:
//! they are still free, and their old contents are not needed. Cut in 3 or 4: the file has them or
//! not; if it has, they are zeroes because of 2, not another file's old bytes. After 4 they may be
//! written.
//!
//! *Release* (a file is truncated or deleted): 1. the record without the pages, or no record  2.
//! flush  3. trim of the pages. Cut before the end of 2: the file has its pages or not, with their
//! contents intact, since no claim or trim touches them before 2. Cut in 3: they are free, with any
//! contents; the next claim trims them again.
//!
//! *Rename*: 1. the record with the new name, which no record has  2. flush. One name or the other.
//!
//! *Size* (at a sync, if the file has grown): the record with the new size, together with the data;
//! then the flush. Cut before its end: the old size, or the new one with pages that are old
//! (zeroes, because of claim's 2) or new. The generation stays: no other process's cached state
//! becomes wrong.

use super::format::{Inode, Lineage};
use super::random::random;
use super::space::{self, Extent};
use super::state::VolumeState;
use super::table::SlotContent;
use crate::guard::Guard;
use crate::{FileId, OpenOptions, StoreError};
use remap_ssd_device::Disk;
use remap_ssd_media::geometry::PAGE_BYTES;

/// Pages that hold `bytes` bytes.
pub(super) fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES as u64)
}

impl<D: Disk> VolumeState<D> {
    /// Runs `work` with the lock of the volume held and the table up to date with the disk.
    pub(super) fn locked<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.coordination.lock()?;
        let settled = self.settle().and_then(|()| self.remove_merged());
        let result = settled.and_then(|()| work(self));
        self.coordination.unlock();
        result
    }

    /// Waits for a change that another process has under way, or ends it if that process died.
    /// Until then some processes know the layout before the change and some the one after it, and
    /// the latter may not be durable: a name proves nothing, and no file may be written.
    pub(super) fn settled(&mut self) -> Result<(), StoreError> {
        if self.generation().is_multiple_of(2) {
            return Ok(());
        }
        self.locked(|_| Ok(()))
    }

    /// Reads the present layout, after a flush if it may not be durable: a process died within a
    /// change, or this is the first use since the machine booted.
    fn settle(&mut self) -> Result<(), StoreError> {
        let generation = self.generation();
        let died = generation % 2 == 1;

        // Odd: a process died within a change. 0: first use since the machine booted.
        if died || generation == 0 {
            // Its last command may still be under way at the device.
            if died {
                self.coordination.await_last_commands();
            }
            self.flush()?;
            self.table.forget();
            self.coordination
                .set_generation(generation + 2 - generation % 2);
        }
        self.load()
    }

    /// Begins a change: other processes' cached tables become invalid.
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        let generation = self.generation();
        assert!(
            generation.is_multiple_of(2),
            "one change at a time, in a settled volume"
        );
        self.coordination.set_generation(generation + 1);
        self.table.move_on(generation, generation + 1);
        Ok(())
    }

    /// Ends a change, which is durable: other processes may read it.
    pub(super) fn end(&mut self) -> Result<(), StoreError> {
        let generation = self.generation();
        self.coordination.set_generation(generation + 1);
        self.table.move_on(generation, generation + 1);
        Ok(())
    }

    /// Writes the record of a file.
    pub(super) fn put(&mut self, slot: u32, inode: Inode) -> Result<(), StoreError> {
        let page = inode.encode(&self.superblock, slot);
        // The record on the disk is unknown until the write has completed.
        self.table.forget_slot(slot);
        self.disk
            .write(self.superblock.page_of(slot), &page)
            .map_err(StoreError::disk)?;
        self.statistics.pages_metadata += 1;
        let generation = self.generation();
        self.table.set(slot, SlotContent::File(inode), generation);
        Ok(())
    }

    /// Flushes, unless a test has switched this flush off.
    pub(super) fn flush_for(&mut self, guard: Guard) -> Result<(), StoreError> {
        if self.without == Some(guard) {
            Ok(())
        } else {
            self.flush()
        }
    }

    /// Creates an empty file; the name must be free. The lock must be held.
    pub(super) fn create(
        &mut self,
        name: &str,
        options: OpenOptions,
    ) -> Result<FileId, StoreError> {
        let runs = self.table.free_runs(&self.superblock)?; // A damaged record may have any name.
        let slot = self
            .table
            .free_slots()
            .next()
            .ok_or(StoreError::NoSlot(self.superblock.slots))?;
        // Without room the file is still created: its first write reports it.
        let extents = if options.written_next {
            let free = space::pages_in(&runs);
            space::choose(runs, None, space::wish(0, 1, free), 1).unwrap_or_default()
        } else {
            Vec::new()
        };

        // The birth tells the file apart from earlier ones in its slot.
        let inode = Inode {
            name: name.into(),
            birth: u64::from_le_bytes(random()),
            size: 0,
            open_end: options.open_end,
            extents,
            lineage: Lineage::default(),
        };
        let birth = inode.birth;

        self.begin()?;
        self.clear(&inode.extents)?;
        // The size is set before the record: others look it up as soon as they see the file.
        self.coordination.set_size(slot, birth, 0);
        self.put(slot, inode)?;
        self.flush_for(Guard::FlushCreated)?;
        self.end()?;
        Ok(FileId { slot, birth })
    }

    /// Zeroes free pages, durably, before a file claims them: they may have another file's data.
    fn clear(&mut self, free: &[Extent]) -> Result<(), StoreError> {
        if free.is_empty() {
            return Ok(());
        }
        if self.without != Some(Guard::TrimClaimed) {
            for extent in free {
                self.trim(extent.first, extent.pages)?;
            }
        }
        self.flush_for(Guard::FlushTrimmed)
    }

    /// Grows a file to at least `pages` pages.
    pub(super) fn claim(&mut self, file: FileId, pages: u64) -> Result<(), StoreError> {
        self.locked(|state| {
            let mut inode = state.inode(file)?.clone();
            let capacity = inode.capacity();
            let Some(needed) = pages.checked_sub(capacity).filter(|needed| *needed > 0) else {
                return Ok(()); // Another process was faster.
            };

            // Free runs come from the records, which are reread under the lock.
            let runs = state.table.free_runs(&state.superblock)?;
            let free = space::pages_in(&runs);
            // Each claim costs two flushes, so a growing file asks for more than it needs at once.
            let wanted = space::wish(capacity, needed, free);
            let after = inode.extents.last().map(|extent| extent.end());
            let more = space::choose(runs, after, wanted, needed)
                .ok_or(StoreError::Full { needed, free })?;
            inode.extents = space::joined(&inode.extents, &more);
            if inode.extents.len() > inode.extents_max() {
                return Err(StoreError::Fragmented(inode.name));
            }
            inode.size = state.size(file)?;

            state.begin()?;
            state.clear(&more)?;
            state.put(file.slot, inode)?;
            state.flush_for(Guard::FlushClaimed)?;
            state.end()
        })
    }

    /// Truncates a file to `size`, which is less than it has.
    pub(super) fn cut_off(&mut self, file: FileId, size: u64) -> Result<(), StoreError> {
        self.locked(|state| {
            let mut inode = state.inode(file)?.clone();
            let (kept, released) = space::split(&inode.extents, pages_of(size));

            // No page is released, so the record stays as it is.
            if released.is_empty() {
                state.coordination.set_size(file.slot, file.birth, size);
                return Ok(());
            }
            (inode.extents, inode.size) = (kept, size);

            state.begin()?;
            // If this process dies before the record is written, the file is truncated and keeps
            // the pages.
            state.coordination.set_size(file.slot, file.birth, size);
            state.put(file.slot, inode)?;
            state.flush_for(Guard::FlushReleased)?;
            for extent in &released {
                state.trim(extent.first, extent.pages)?;
            }
            state.end()
        })
    }

    /// Deletes a file and releases its pages.
    pub(super) fn delete(&mut self, name: &str) -> Result<(), StoreError> {
        self.locked(|state| {
            // The name must exist before anything is changed.
            let found = state
                .table
                .find(name)
                .map(|(slot, inode)| (slot, inode.clone()));
            let (slot, inode) = found.ok_or_else(|| state.table.missing(name))?;

            state.begin()?;
            state.remove_record(slot)?;
            state.flush_for(Guard::FlushReleased)?;
            // Pages that another file claims too stay: deleting this file repairs the other one.
            for extent in state.table.claimed_alone(slot, &inode.extents) {
                state.trim(extent.first, extent.pages)?;
            }
            state.end()
        })
    }

    /// Renames a file; the new name must be free.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), StoreError> {
        self.locked(|state| {
            // Checked under the lock, or two renames could take one name.
            if from != to && state.table.find(to).is_some() {
                return Err(StoreError::Exists(to.into()));
            }
            // As in `create`: a damaged record may have any name.
            state.table.free_runs(&state.superblock)?;
            let found = state
                .table
                .find(from)
                .map(|(slot, inode)| (slot, inode.clone()));
            let (slot, inode) = found.ok_or_else(|| state.table.missing(from))?;
            let size = state.size(FileId {
                slot,
                birth: inode.birth,
            })?;

            state.begin()?;
            state.put(
                slot,
                Inode {
                    name: to.into(),
                    size,
                    ..inode
                },
            )?;
            state.flush_for(Guard::FlushCreated)?;
            state.end()
        })
    }

    /// Writes the size of a file into its record, if the record keeps it and it has changed. The
    /// caller flushes.
    pub(super) fn record_size(&mut self, file: FileId) -> Result<(), StoreError> {
        let changed = |state: &mut Self| -> Result<bool, StoreError> {
            let size = state.size(file)?;
            let inode = state.inode(file)?;
            Ok(!inode.open_end && inode.size != size)
        };

        if !changed(self)? {
            return Ok(());
        }

        // Checked again under the lock: another process may have been faster.
        self.locked(|state| {
            if !changed(state)? {
                return Ok(());
            }
            let size = state.size(file)?;
            let inode = Inode {
                size,
                ..state.inode(file)?.clone()
            };
            state.put(file.slot, inode)
        })
    }

    /// Writes sizes known only to the processes into the records. The caller flushes.
    pub(super) fn record_sizes(&mut self) -> Result<(), StoreError> {
        self.load()?;
        let files: Vec<FileId> = self
            .table
            .files()
            .map(|(slot, inode)| FileId {
                slot,
                birth: inode.birth,
            })
            .collect();

        // A file deleted concurrently needs no size.
        for file in files {
            match self.record_size(file) {
                Ok(()) | Err(StoreError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
