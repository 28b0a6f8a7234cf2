//! A disk of host software as a file: translation of bytes to whole pages.
//!
//! Requests take turns (one mutex around the disk). Partial pages are read, modified and written in
//! one turn, so that neighbouring bytes are never lost. Invariant: after `take` every request fails
//! with "gone". Absent: time; durability, which is up to the disk.

use crate::bytes::Bytes;
use crate::disk::DiskError;
use remap_ssd_device::{Disk, DiskRemap};
use remap_ssd_media::geometry::PAGE_BYTES;
use std::sync::{Arc, Mutex, PoisonError};

/// Page size, as a 64-bit byte count of the kernel.
const PAGE: u64 = PAGE_BYTES as u64;
/// Maximum pages of a remap: 16 MiB, the maximum of a Copy.
const REMAP_PAGES: u64 = 4096;

/// Receives the text of errors, of which the kernel reports only numbers.
type Tell = dyn Fn(&str) + Send + Sync;

/// A disk presented as a file; clones share it.
pub struct Pages<D> {
    disk: Arc<Mutex<Option<D>>>,
    name: String,
    pages: u64,
    tell: Arc<Tell>,
}

impl<D> Clone for Pages<D> {
    fn clone(&self) -> Self {
        let Self {
            disk,
            name,
            pages,
            tell,
        } = self;
        Self {
            disk: disk.clone(),
            name: name.clone(),
            pages: *pages,
            tell: tell.clone(),
        }
    }
}

/// A part of a range: within a page, or whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Within { page: u64, from: usize, to: usize },
    Whole { page: u64, pages: u64 },
}

/// Splits a range of bytes into partial and whole pages, in order.
fn parts(offset: u64, len: u64) -> Vec<Part> {
    let (mut at, end) = (offset, offset + len);

    let mut parts = Vec::new();
    while at < end {
        let (page, from) = (at / PAGE, at % PAGE);
        let whole = (end - at) / PAGE;

        // Whole pages are one run, and so one call of the disk.
        if from == 0 && whole > 0 {
            parts.push(Part::Whole { page, pages: whole });
            at += whole * PAGE;
        } else {
            let to = (from + end - at).min(PAGE);
            parts.push(Part::Within {
                page,
                from: from as usize,
                to: to as usize,
            });
            at += to - from;
        }
    }

    parts
}

impl<D: Disk + Send + 'static> Pages<D> {
    /// A file with this name. `tell` gets a sentence for each error.
    pub fn new(disk: D, name: &str, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let pages = disk.pages();
        Self {
            disk: Arc::new(Mutex::new(Some(disk))),
            name: name.into(),
            pages,
            tell: Arc::new(tell),
        }
    }

    /// Takes the disk out, after requests in progress; later ones fail.
    pub fn take(&self) -> Option<D> {
        self.disk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Works on the disk, in turn.
    fn turn<R>(&self, work: impl FnOnce(&mut D) -> Result<R, D::Error>) -> Result<R, DiskError> {
        // A panic in the middle of a command leaves the disk in an unknown state.
        let mut disk = self.disk.lock().map_err(|_| DiskError::Gone)?;
        let disk = disk.as_mut().ok_or(DiskError::Gone)?;
        work(disk).map_err(|error| {
            (self.tell)(&error.to_string());
            DiskError::Failed
        })
    }

    fn fitting(&self, offset: u64, len: u64) -> u64 {
        len.min((self.pages * PAGE).saturating_sub(offset))
    }
}

/// Reads a page, changes it and writes it back. The caller holds the disk's mutex.
fn change<D: Disk>(
    disk: &mut D,
    page: u64,
    change: impl FnOnce(&mut [u8; PAGE_BYTES]),
) -> Result<(), D::Error> {
    let mut bytes = [0; PAGE_BYTES];
    disk.read(page, &mut bytes)?;
    change(&mut bytes);
    disk.write(page, &bytes)
}

impl<D: Disk + Send + 'static> Bytes for Pages<D> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn bytes(&self) -> u64 {
        self.pages * PAGE
    }

    fn read(&self, offset: u64, len: u32) -> Result<(Vec<u8>, u64), DiskError> {
        let len = self.fitting(offset, len.into());
        if len == 0 {
            return Ok((Vec::new(), 0));
        }
        let (first, end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        let mut bytes = vec![0; ((end - first) * PAGE) as usize];
        self.turn(|disk| disk.read(first, &mut bytes))?;

        // Whole pages were read: cut off both ends outside the range.
        bytes.drain(..(offset % PAGE) as usize);
        bytes.truncate(len as usize);
        Ok((bytes, 0))
    }

    fn write(&self, offset: u64, data: &[u8], through: bool) -> Result<(u32, u64), DiskError> {
        let len = self.fitting(offset, data.len() as u64);

        if len == 0 {
            return if data.is_empty() {
                Ok((0, 0))
            } else {
                Err(DiskError::Range)
            };
        }

        self.turn(|disk| {
            let mut rest = &data[..len as usize];

            for part in parts(offset, len) {
                let bytes;
                match part {
                    Part::Within { page, from, to } => {
                        (bytes, rest) = rest.split_at(to - from);
                        change(disk, page, |page| page[from..to].copy_from_slice(bytes))?;
                    }
                    Part::Whole { page, pages } => {
                        (bytes, rest) = rest.split_at((pages * PAGE) as usize);
                        disk.write(page, bytes)?;
                    }
                }
            }

            if through { disk.flush() } else { Ok(()) }
        })?;

        Ok((len as u32, 0))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<u64, DiskError> {
        let len = self.fitting(offset, len);
        self.turn(|disk| {
            parts(offset, len)
                .into_iter()
                .try_for_each(|part| match part {
                    Part::Within { page, from, to } => {
                        change(disk, page, |page| page[from..to].fill(0))
                    }

                    // A trimmed page reads as zeroes, and no page is programmed for it.
                    Part::Whole { page, pages } => disk.trim(page, pages),
                })
        })?;
        Ok(0)
    }

    fn flush(&self) -> Result<u64, DiskError> {
        self.turn(D::flush)?;
        Ok(0)
    }

    fn copy(
        &self,
        offset: u64,
        from: &Self,
        from_offset: u64,
        len: u64,
    ) -> Result<(u64, u64), DiskError> {
        let pages = self.fitting(offset, from.fitting(from_offset, len)) / PAGE;
        let aligned = offset.is_multiple_of(PAGE) && from_offset.is_multiple_of(PAGE);

        // Partial pages, or pages of another disk, cannot be shared: `Alignment` makes the kernel
        // copy them by reading and writing.
        if !aligned || pages == 0 || !Arc::ptr_eq(&self.disk, &from.disk) {
            return Err(if len == 0 {
                DiskError::Range
            } else {
                DiskError::Alignment
            });
        }

        self.turn(|disk| {
            (0..pages).step_by(REMAP_PAGES as usize).try_for_each(|at| {
                let (target, source) = (offset / PAGE + at, from_offset / PAGE + at);
                let pages = REMAP_PAGES.min(pages - at) as u32;
                disk.remap(&DiskRemap {
                    target,
                    source,
                    pages,
                    relocate: false,
                    atomic: false,
                })
            })
        })?;
        Ok((pages * PAGE, 0))
    }
}
