//! Lists of writes to a file.
//!
//! Invariant: as in `bytes`, bytes after the end of a file are never shown. A list is cut where it
//! leaves a gap after the end so far: the gap is zeroed, durably, before later writes. The size
//! grows when a part of the list is done, so that a process that dies before leaves the old one.
//! Absent: partial pages, which are written one at a time (`bytes`).

use super::bytes::PAGE;
use super::state::VolumeState;
use crate::{FileId, FileWrite, StoreError};
use remap_ssd_device::{Disk, DiskWrite};
use remap_ssd_media::geometry::PAGE_BYTES;

impl<D: Disk> VolumeState<D> {
    /// Writes to many ranges, which do not overlap.
    pub(super) fn write_all(
        &mut self,
        file: FileId,
        writes: &[FileWrite<'_>],
    ) -> Result<(), StoreError> {
        let is_whole = |write: &FileWrite<'_>| {
            write.offset.is_multiple_of(PAGE)
                && write.data.len().is_multiple_of(PAGE_BYTES)
                && !write.data.is_empty()
        };

        // Partial pages have to be read first, so they are written one at a time.
        if !writes.iter().all(is_whole) {
            return writes
                .iter()
                .try_for_each(|write| self.write(file, write.offset, write.data));
        }
        self.change([file], |state| state.write_whole(file, writes))
    }

    fn write_whole(
        &mut self,
        file: FileId,
        mut writes: &[FileWrite<'_>],
    ) -> Result<(), StoreError> {
        // Allocates for all of it at once: a claim records the size, and after a crash it must not
        // be one inside the list.
        let (size, end) = (
            self.size(file)?,
            writes.iter().map(FileWrite::end).max().unwrap_or(0),
        );
        self.reach(file, size, end.saturating_sub(size))?;

        // Each round writes up to the next gap, which the next round zeroes first.
        while let Some((first, rest)) = writes.split_first() {
            let mut end = self.size(file)?.max(first.end());
            let joins = |write: &&FileWrite<'_>| {
                let joins = write.offset <= end;
                if joins {
                    end = end.max(write.end());
                }
                joins
            };
            let (now, later) = writes.split_at(1 + rest.iter().take_while(joins).count());
            self.reach(file, first.offset, end - first.offset)?;

            let placed = self.placed(file, now)?;
            self.write_places(file, &placed)?;

            // Grown only after the write: a reader must not see bytes that are not yet there.
            if end > self.size(file)? {
                self.coordination.set_size(file.slot, file.birth, end);
            }
            writes = later;
        }
        Ok(())
    }

    /// Maps writes to their places on the disk.
    fn placed<'a>(
        &mut self,
        file: FileId,
        writes: &[FileWrite<'a>],
    ) -> Result<Vec<DiskWrite<'a>>, StoreError> {
        let mut placed = Vec::with_capacity(writes.len());
        for write in writes {
            let mut left = write.data;
            for place in self.places(file, write.offset / PAGE, (left.len() / PAGE_BYTES) as u64)? {
                let (data, later) = left.split_at(place.pages as usize * PAGE_BYTES);
                placed.push(DiskWrite {
                    page: place.first,
                    data,
                });
                left = later;
            }
        }
        Ok(placed)
    }

    /// Writes whole pages of a file.
    pub(super) fn write_places(
        &mut self,
        file: FileId,
        writes: &[DiskWrite<'_>],
    ) -> Result<(), StoreError> {
        let pages_of = |write: &DiskWrite<'_>| (write.data.len() / PAGE_BYTES) as u64;
        // The pages on the disk are unknown until the write has completed.
        for write in writes {
            self.cache.forget(write.page..write.page + pages_of(write));
        }
        self.disk.write_all(writes).map_err(StoreError::disk)?;

        self.statistics.pages_written += writes.iter().map(pages_of).sum::<u64>();
        let epoch = self.epoch(file);
        for write in writes {
            // Cached under the word of this change, which ends later.
            self.keep(write.page, write.data, epoch);
        }
        Ok(())
    }
}
