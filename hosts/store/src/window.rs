//! A range of a disk as a disk: a namespace of a device in this process.
//!
//! Invariant: no command reaches a page outside. Absent: the file map, whose lists cover the whole
//! device.

use remap_ssd_device::{Disk, DiskRemap, DiskWrite, RemapAllError, SharingError};
use remap_ssd_media::geometry::PAGE_BYTES;
use std::error::Error;
use std::ops::Range;

/// Pages `first` to `first + pages` of a disk.
pub struct Window<D> {
    disk: D,
    first: u64,
    pages: u64,
}

/// An error of a window.
#[derive(Debug, thiserror::Error)]
pub enum WindowError<E: Error + 'static> {
    /// The range is outside of the window.
    #[error("page {page} + {pages} is beyond the end")]
    OutOfRange {
        /// First page of the range.
        page: u64,
        /// Length of the range in pages.
        pages: u64,
    },
    /// The underlying disk refused or failed.
    #[error(transparent)]
    Disk(#[from] E),
}

impl<D: Disk> Window<D> {
    /// Creates a window; `None` if it exceeds the disk.
    pub(crate) fn new(disk: D, first: u64, pages: u64) -> Option<Self> {
        let fits = first
            .checked_add(pages)
            .is_some_and(|end| end <= disk.pages());
        fits.then_some(Self { disk, first, pages })
    }

    /// The window's first page of the disk.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the whole disk.
    pub(crate) fn into_disk(self) -> D {
        self.disk
    }

    /// The underlying disk.
    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    fn place(&self, page: u64, pages: u64) -> Result<u64, WindowError<D::Error>> {
        match page.checked_add(pages) {
            Some(end) if end <= self.pages => Ok(self.first + page),
            _ => Err(WindowError::OutOfRange { page, pages }),
        }
    }

    fn moved(&self, remap: &DiskRemap) -> Result<DiskRemap, WindowError<D::Error>> {
        let pages = remap.pages.into();
        let (target, source) = (
            self.place(remap.target, pages)?,
            self.place(remap.source, pages)?,
        );
        Ok(DiskRemap {
            target,
            source,
            ..*remap
        })
    }
}

impl<D: Disk> Disk for Window<D> {
    type Error = WindowError<D::Error>;

    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        // Rounded up: the underlying disk rejects a buffer that is not whole pages.
        let page = self.place(page, into.len().div_ceil(PAGE_BYTES) as u64)?;
        Ok(self.disk.read(page, into)?)
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error> {
        let page = self.place(page, data.len().div_ceil(PAGE_BYTES) as u64)?;
        Ok(self.disk.write(page, data)?)
    }

    fn write_all(&mut self, writes: &[DiskWrite<'_>]) -> Result<(), Self::Error> {
        let moved = |write: &DiskWrite<'_>| {
            self.place(write.page, write.data.len().div_ceil(PAGE_BYTES) as u64)
        };
        let pages: Vec<u64> = writes.iter().map(moved).collect::<Result<_, _>>()?;
        let writes: Vec<DiskWrite<'_>> = writes
            .iter()
            .zip(pages)
            .map(|(write, page)| DiskWrite { page, ..*write })
            .collect();
        Ok(self.disk.write_all(&writes)?)
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error> {
        let page = self.place(page, pages)?;
        Ok(self.disk.trim(page, pages)?)
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(self.disk.flush()?)
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error> {
        let remap = self.moved(remap)?;
        Ok(self.disk.remap(&remap)?)
    }

    fn remap_all(&mut self, remaps: &[DiskRemap]) -> Result<(), RemapAllError<Self::Error>> {
        // All are checked before the first is done.
        let moved = remaps.iter().enumerate();
        let moved: Result<Vec<DiskRemap>, _> = moved
            .map(|(index, remap)| {
                self.moved(remap)
                    .map_err(|error| RemapAllError { index, error })
            })
            .collect();
        let done = self.disk.remap_all(&moved?);
        done.map_err(|error| RemapAllError {
            index: error.index,
            error: error.error.into(),
        })
    }

    fn differing(
        &mut self,
        a: u64,
        b: u64,
        pages: u64,
    ) -> Result<Vec<Range<u64>>, SharingError<Self::Error>> {
        let a = self.place(a, pages).map_err(SharingError::Disk)?;
        let b = self.place(b, pages).map_err(SharingError::Disk)?;
        self.disk.differing(a, b, pages).map_err(sharing)
    }

    fn pages_alone(&mut self, page: u64, pages: u64) -> Result<u64, SharingError<Self::Error>> {
        let page = self.place(page, pages).map_err(SharingError::Disk)?;
        self.disk.pages_alone(page, pages).map_err(sharing)
    }
}

fn sharing<E: Error>(error: SharingError<E>) -> SharingError<WindowError<E>> {
    match error {
        SharingError::Unsupported(why) => SharingError::Unsupported(why),
        SharingError::Disk(error) => SharingError::Disk(error.into()),
    }
}
