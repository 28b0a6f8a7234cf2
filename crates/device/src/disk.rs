//! A disk that can remap, as host software sees it: whole pages, and it does not matter where it is.
//!
//! Host software (a database's file layer, a deduplicating store, a log-structured file system) is written once against
//! [`Disk`] and runs on a device in this process ([`LocalDisk`]), on one in a folder, or on one behind a network.
//! Invariant: a disk does what is asked before it answers; what was written is there after the end of the process at any
//! instant, and after a crash of the machine once `flush` has answered. Absent: time, queues, other hosts.

use crate::device::Device;
use remap_ssd_ftl::{Refusal, Remap};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{PageView, Payload};
use std::error::Error;
use std::io;

/// A remap of whole pages: `target` gets what `source` holds, as if all of it had been read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRemap {
    /// First page that changes.
    pub target: u64,
    /// First page that is named.
    pub source: u64,
    /// Pages.
    pub pages: u32,
    /// The sources lose their pages and read as zeroes, but for those that are targets too.
    pub relocate: bool,
    /// All pages or none, should the power fail.
    pub atomic: bool,
}

/// Pages of 4,096 bytes that can be read, written, trimmed and remapped.
pub trait Disk {
    /// Why something was not done.
    type Error: Error + Send + Sync + 'static;

    /// Size in pages.
    fn pages(&self) -> u64;

    /// Reads whole pages from `page` on into a buffer. Pages never written, or trimmed, are zeroes.
    ///
    /// # Errors
    /// The range, the medium, or the way to it.
    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes whole pages from `page` on.
    ///
    /// # Errors
    /// The range, a device that is worn out, or the way to it.
    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error>;

    /// Deallocates pages.
    ///
    /// # Errors
    /// As `write`.
    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error>;

    /// Makes everything done so far survive a crash of the machine that holds the disk.
    ///
    /// # Errors
    /// It could not be made durable, or the way to the disk.
    fn flush(&mut self) -> Result<(), Self::Error>;

    /// Lets pages share what other pages hold, without programming it again.
    ///
    /// # Errors
    /// As `write`; an atomic remap may also be too large, or not possible on this disk.
    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error>;
}

/// A device in this process as a disk. No time passes on it.
pub struct LocalDisk(Device);

/// Why a disk in this process did not do something.
#[derive(Debug, thiserror::Error)]
pub enum LocalDiskError {
    /// The firmware's reason.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The system could not write the folder out.
    #[error("the folder could not be written out: {0}")]
    Sync(#[from] io::Error),
    /// A buffer that is not whole pages.
    #[error("{0} bytes are not whole pages of {PAGE_BYTES}")]
    NotWholePages(usize),
    /// A device that stores no bytes, for simulation only.
    #[error("this device keeps no contents")]
    NoContents,
}

impl LocalDisk {
    /// Takes a device that stores real bytes: `Device::in_memory`, or one in a folder.
    pub fn new(mut device: Device) -> Self {
        device.keep_time(false);
        Self(device)
    }

    /// The device: its statistics, say.
    pub fn device(&self) -> &Device {
        &self.0
    }

    /// Gives the device back.
    pub fn into_device(self) -> Device {
        self.0
    }

    /// A range of pages in the firmware's numbers.
    fn range(&self, page: u64, pages: u64) -> Result<(u32, u32), Refusal> {
        match page.checked_add(pages) {
            Some(end) if end <= self.pages() => Ok((page as u32, pages as u32)),
            _ => Err(Refusal::OutOfRange),
        }
    }

    fn range_of(&self, page: u64, bytes: usize) -> Result<u32, LocalDiskError> {
        if !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(LocalDiskError::NotWholePages(bytes));
        }
        Ok(self.range(page, (bytes / PAGE_BYTES) as u64)?.0)
    }
}

impl Disk for LocalDisk {
    type Error = LocalDiskError;

    fn pages(&self) -> u64 {
        self.0.config().firmware.lpns.into()
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), LocalDiskError> {
        let first = self.range_of(page, into.len())?;
        for (lpn, into) in (first..).zip(into.as_chunks_mut::<PAGE_BYTES>().0) {
            let (_, seen) = self.0.view(0, lpn, |view| match view {
                PageView::Zeroes => {
                    into.fill(0);
                    true
                }
                PageView::Bytes(bytes) => {
                    *into = *bytes;
                    true
                }
                PageView::Unknown | PageView::Identity(_) => false,
            });
            if !seen? {
                return Err(LocalDiskError::NoContents);
            }
        }
        Ok(())
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), LocalDiskError> {
        let first = self.range_of(page, data.len())?;
        for (lpn, bytes) in (first..).zip(data.as_chunks::<PAGE_BYTES>().0) {
            self.0.write(0, lpn, &Payload::Bytes(bytes)).result?;
        }
        Ok(())
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), LocalDiskError> {
        let (first, len) = self.range(page, pages)?;
        Ok(self.0.deallocate(0, first, len).result?)
    }

    fn flush(&mut self) -> Result<(), LocalDiskError> {
        self.0.flush(0).result?;
        Ok(self.0.sync()?)
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), LocalDiskError> {
        let DiskRemap { relocate, atomic, .. } = *remap;
        let (target, len) = self.range(remap.target, remap.pages.into())?;
        let (source, _) = self.range(remap.source, remap.pages.into())?;
        Ok(self.0.remap(0, &Remap { target, source, len, relocate, atomic }).result?)
    }
}
