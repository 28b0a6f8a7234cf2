//! Maps bytes of files to pages of the disk.
//!
//! Invariants: bytes after the end of a file are never shown, even if the page has data there: a
//! partial write of a page takes only the bytes before the end from the disk, and a gap between the
//! old end and the written range is zeroed, durably, before the file grows. A read that raced with
//! another process's layout change is repeated.
//!
//! Readers take no lock. The generation is read before and after: pages that a file releases are
//! not claimed by another one before the generation has changed (`change.rs`). So if it is
//! unchanged, or the file still has those pages, the bytes read were the file's. Writers of one
//! file take turns with truncation (see `Store`).

use super::cache::Epoch;
use super::change::pages_of;
use super::format::Page;
use super::space::{self, Extent};
use super::state::VolumeState;
use crate::{FileId, StoreError};
use remap_ssd_device::{Disk, DiskWrite};
use remap_ssd_media::geometry::PAGE_BYTES;

pub(super) const PAGE: u64 = PAGE_BYTES as u64;

/// Largest trim whose pages are cached as zeroes.
const ZEROES_KEPT_MAX: u64 = 8;

/// A byte range split into its whole pages and the partial pages before and after.
struct Parts {
    /// Bytes in a partial first page.
    head: usize,
    pages: u64,
    /// Bytes in a partial last page.
    tail: usize,
}

impl Parts {
    /// Splits a range: whole pages can be written as they are, partial ones have to be read first.
    fn of(offset: u64, bytes: usize) -> Self {
        let before = (offset % PAGE) as usize;
        let head = if before == 0 {
            0
        } else {
            (PAGE_BYTES - before).min(bytes)
        };
        let rest = bytes - head;
        Self {
            head,
            pages: (rest / PAGE_BYTES) as u64,
            tail: rest % PAGE_BYTES,
        }
    }
}

impl<D: Disk> VolumeState<D> {
    /// Locates pages of a file; they must be allocated.
    pub(super) fn places(
        &mut self,
        file: FileId,
        first: u64,
        pages: u64,
    ) -> Result<Vec<Extent>, StoreError> {
        let inode = self.inode(file)?;
        let size = inode.capacity() * PAGE;
        // Only a writer that did not wait for its turn can meet a file truncated since it looked.
        let cut_off = StoreError::Range {
            offset: first * PAGE,
            bytes: pages * PAGE,
            size,
        };
        space::pieces(&inode.extents, first, pages).ok_or(cut_off)
    }

    /// Reads bytes up to the end of the file.
    pub(super) fn read(
        &mut self,
        file: FileId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, StoreError> {
        loop {
            let size = self.size(file)?;
            // After the end there is nothing to read, even if the pages have data there.
            let bytes = (size.saturating_sub(offset)).min(into.len() as u64) as usize;
            if bytes == 0 {
                return Ok(0);
            }
            let first = offset / PAGE;
            let pages = pages_of(offset + bytes as u64) - first;
            // In this order: if the file changes after the epoch was taken, the pages read count as
            // stale.
            let epoch = self.epoch(file);
            let generation = self.generation();
            let Some(places) = space::pieces(&self.inode(file)?.extents, first, pages) else {
                continue; // Truncated concurrently.
            };
            self.read_places(&places, offset, &mut into[..bytes], epoch)?;

            let unchanged = self.generation() == generation;
            if unchanged || self.has(file, first, &places)? {
                return Ok(bytes);
            }
        }
    }

    /// Returns true if a file has these pages, from its page `first` on.
    fn has(&mut self, file: FileId, first: u64, places: &[Extent]) -> Result<bool, StoreError> {
        let pages = places.iter().map(|place| place.pages).sum();
        let now = space::pieces(&self.inode(file)?.extents, first, pages);
        Ok(now.is_some_and(|now| now == places))
    }

    fn read_places(
        &mut self,
        places: &[Extent],
        offset: u64,
        into: &mut [u8],
        epoch: Option<Epoch>,
    ) -> Result<(), StoreError> {
        let mut skip = (offset % PAGE) as usize;
        let mut done = 0;
        for place in places {
            let bytes = (place.pages as usize * PAGE_BYTES - skip).min(into.len() - done);
            let out = &mut into[done..done + bytes];

            // Whole pages go straight to the caller.
            if skip == 0 && bytes.is_multiple_of(PAGE_BYTES) {
                self.read_pages(place.first, out, epoch)?;
            } else {
                let mut whole = vec![0; (skip + bytes).next_multiple_of(PAGE_BYTES)];
                self.read_pages(place.first, &mut whole, epoch)?;
                out.copy_from_slice(&whole[skip..skip + bytes]);
            }

            done += bytes;
            skip = 0;
        }
        Ok(())
    }

    /// Reads contiguous pages: cached ones from memory, each run of others by one command.
    fn read_pages(
        &mut self,
        first: u64,
        into: &mut [u8],
        epoch: Option<Epoch>,
    ) -> Result<(), StoreError> {
        let pages = into.len() / PAGE_BYTES;
        let mut missing = 0..0;
        // One step past the last page, to end the last run of misses.
        for at in 0..=pages {
            let place = first + at as u64;
            let kept = epoch
                .filter(|_| at < pages)
                .and_then(|epoch| self.cache.get(place, epoch));
            if let Some(page) = kept {
                into[at * PAGE_BYTES..(at + 1) * PAGE_BYTES].copy_from_slice(page);
                self.statistics.pages_found += 1;
            } else if at < pages {
                // Misses are collected, and read at the next hit or the end.
                missing.end = at + 1;
                continue;
            }

            if !missing.is_empty() {
                let out = &mut into[missing.start * PAGE_BYTES..missing.end * PAGE_BYTES];
                let first = first + missing.start as u64;
                self.disk
                    .read(first, out)
                    .map_err(|error| self.lost_sight(error))?;
                self.statistics.pages_read += missing.len() as u64;
                self.keep(first, out, epoch);
            }
            missing = at + 1..at + 1;
        }
        Ok(())
    }

    /// Caches pages that the disk has.
    pub(super) fn keep(&mut self, first: u64, bytes: &[u8], epoch: Option<Epoch>) {
        match epoch {
            Some(epoch) => self.cache.put(first, bytes, epoch),
            None => self
                .cache
                .forget(first..first + (bytes.len() / PAGE_BYTES) as u64),
        }
    }

    /// Maps a read error; clears the cache, since the device may have changed when it answers
    /// again.
    fn lost_sight(&mut self, error: D::Error) -> StoreError {
        self.cache.clear();
        StoreError::disk(error)
    }

    /// Writes contiguous whole pages.
    fn write_pages(&mut self, file: FileId, page: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write_places(file, &[DiskWrite { page, data }])
    }

    /// Writes bytes, growing the file if necessary.
    pub(super) fn write(
        &mut self,
        file: FileId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), StoreError> {
        if data.is_empty() {
            return Ok(());
        }
        self.change([file], |state| state.write_parts(file, offset, data))
    }

    fn write_parts(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        // Allocates first: nothing is written before there is room for all of it.
        let end = self.reach(file, offset, data.len() as u64)?;
        let size = self.size(file)?;
        let parts = Parts::of(offset, data.len());
        let (head, rest) = data.split_at(parts.head);
        let (middle, tail) = rest.split_at(parts.pages as usize * PAGE_BYTES);

        self.write_part(file, size, offset, head)?;
        let mut middle_left = middle;
        for place in self.places(file, (offset + parts.head as u64) / PAGE, parts.pages)? {
            let (now, later) = middle_left.split_at(place.pages as usize * PAGE_BYTES);
            self.write_pages(file, place.first, now)?;
            middle_left = later;
        }
        self.write_part(file, size, offset + (data.len() - parts.tail) as u64, tail)?;

        // Grown only now: a reader must not see bytes that are not yet there.
        if end > size {
            self.coordination.set_size(file.slot, file.birth, end);
        }
        Ok(())
    }

    /// Ensures that a file has pages for a range, and no gap before it. Returns the range's end.
    pub(super) fn reach(
        &mut self,
        file: FileId,
        offset: u64,
        bytes: u64,
    ) -> Result<u64, StoreError> {
        let size = self.size(file)?;
        let too_far = StoreError::Range {
            offset,
            bytes,
            size,
        };

        // Offsets are signed 64-bit, which limits the size of a file.
        let end = offset
            .checked_add(bytes)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or(too_far)?;

        // Claims pages only if necessary: that changes the layout, under the lock.
        if pages_of(end) > self.inode(file)?.capacity() {
            self.claim(file, pages_of(end))?;
        }
        if offset > size {
            self.lengthen(file, size, offset)?;
        }
        Ok(end)
    }

    /// Zeroes the range from the end to a new end: 1. zeroes  2. flush  3. the size. Cut before 3:
    /// the file ends where it did.
    fn lengthen(&mut self, file: FileId, size: u64, to: u64) -> Result<(), StoreError> {
        self.zero(file, size, size, to - size)?;
        self.flush()?;
        self.coordination.set_size(file.slot, file.birth, to);
        Ok(())
    }

    /// Extends or truncates a file.
    pub(super) fn set_size(&mut self, file: FileId, to: u64) -> Result<(), StoreError> {
        self.change([file], |state| {
            let size = state.size(file)?;
            if to >= size {
                return state.reach(file, to, 0).map(drop);
            }
            state.cut_off(file, to)?;
            // Truncated bytes must not reappear when the file grows. Growing zeroes them too; this
            // is for a file whose end is open.
            let in_page = to.next_multiple_of(PAGE) - to;
            state.zero(file, to, to, in_page)
        })
    }

    /// Zeroes a range before the end.
    pub(super) fn discard(
        &mut self,
        file: FileId,
        offset: u64,
        bytes: u64,
    ) -> Result<(), StoreError> {
        // After the end there is nothing to discard.
        let size = self.size(file)?;
        let end = offset.saturating_add(bytes).min(size);
        if offset >= end {
            return Ok(());
        }

        // After the end, the last page holds nothing that is needed.
        let end = if end == size {
            end.next_multiple_of(PAGE)
        } else {
            end
        };

        self.change([file], |state| state.zero(file, size, offset, end - offset))
    }

    /// Zeroes a range of allocated pages, in a file of `size` bytes: whole pages are trimmed.
    fn zero(&mut self, file: FileId, size: u64, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let head = (offset.next_multiple_of(PAGE) - offset).min(bytes) as usize;
        self.write_part(file, size, offset, &[0; PAGE_BYTES][..head])?;

        let rest = bytes - head as u64;
        for place in self.places(file, (offset + head as u64) / PAGE, rest / PAGE)? {
            self.trim(place.first, place.pages)?;
            self.statistics.pages_discarded += place.pages;
            // A small discarded range is likely to be read: to see if a journal has ended, for
            // example.
            if place.pages <= ZEROES_KEPT_MAX {
                let epoch = self.epoch(file);
                self.keep(
                    place.first,
                    &vec![0; place.pages as usize * PAGE_BYTES],
                    epoch,
                );
            }
        }

        let tail = (rest % PAGE) as usize;
        self.write_part(
            file,
            size,
            offset + bytes - tail as u64,
            &[0; PAGE_BYTES][..tail],
        )
    }

    /// Writes a part of one page of a file of `size` bytes.
    fn write_part(
        &mut self,
        file: FileId,
        size: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), StoreError> {
        if data.is_empty() {
            return Ok(());
        }
        let (number, at) = (offset / PAGE, (offset % PAGE) as usize);
        assert!(at + data.len() <= PAGE_BYTES, "a part of one page");
        let place = self.places(file, number, 1)?[0].first;

        // The valid part of the page ends with the file.
        let valid = size.saturating_sub(number * PAGE).min(PAGE) as usize;

        let mut page: Page = [0; PAGE_BYTES];
        // If the valid part is overwritten, nothing of the page is needed.
        if at > 0 && valid > 0 || valid > at + data.len() {
            let epoch = self.epoch(file);
            self.read_pages(place, &mut page, epoch)?;
            self.statistics.pages_read_to_write += 1;
            page[valid..].fill(0);
        }
        page[at..at + data.len()].copy_from_slice(data);
        self.write_pages(file, place, &page)
    }
}
