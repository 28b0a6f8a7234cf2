//! The namespaces of a device in a folder, opened exclusively.
//!
//! Invariant: dropping it closes the device cleanly. Absent: serving the device.

use crate::namespaces::{Counts, NamespacePage, Namespaces, ShareError};
use remap_ssd_device::{Device, Disk, DiskRemap, LocalDisk};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_store::{ImageError, ImageNamespace, image_namespaces, keep_apart};
use std::collections::BTreeMap;
use std::path::Path;

/// The namespaces of a device in a folder.
pub struct ImageNamespaces {
    disk: Option<LocalDisk>,
    /// First page and number of pages, by namespace number.
    ranges: BTreeMap<u32, (u64, u64)>,
}

impl ImageNamespaces {
    /// Opens the folder exclusively.
    ///
    /// # Errors
    /// There is no device, it is in use, or its namespaces are invalid.
    pub fn open(folder: &Path) -> Result<Self, ImageError> {
        let (device, _) = Device::open_in_folder(folder)?;
        Self::over(device, folder)
    }

    fn over(mut device: Device, folder: &Path) -> Result<Self, ImageError> {
        // The list of namespaces is a file beside the device, and is checked against it.
        let namespaces = image_namespaces(folder, device.config().logical_pages())?;
        keep_apart(&mut device, &namespaces);
        let range = |one: ImageNamespace| (one.nsid, (one.first, one.pages));
        let ranges = namespaces.into_iter().map(range).collect();

        Ok(Self {
            disk: Some(LocalDisk::new(device)),
            ranges,
        })
    }

    /// Closes the device.
    ///
    /// # Errors
    /// Data could not be written out.
    pub fn close(mut self) -> Result<(), ImageError> {
        self.shut()
    }

    fn shut(&mut self) -> Result<(), ImageError> {
        match self.disk.take() {
            Some(disk) => Ok(disk.into_device().close().map(drop)?),
            None => Ok(()),
        }
    }

    fn disk(&mut self) -> &mut LocalDisk {
        self.disk
            .as_mut()
            .expect("an image is open until it is dropped")
    }

    fn page(&self, at: NamespacePage, pages: u64) -> Result<u64, ShareError> {
        self.check(at, pages)?;
        Ok(self.ranges[&at.nsid].0 + at.page)
    }
}

impl Drop for ImageNamespaces {
    fn drop(&mut self) {
        // Callers that need the error call `close`. Data not written out are recovered at the next
        // open.
        let _ = self.shut();
    }
}

impl Namespaces for ImageNamespaces {
    fn count(&self) -> u32 {
        // Unused numbers below the last namespace count as empty namespaces.
        self.ranges.last_key_value().map_or(0, |(nsid, _)| *nsid)
    }

    fn pages(&self, nsid: u32) -> u64 {
        self.ranges.get(&nsid).map_or(0, |(_, pages)| *pages)
    }

    fn read(&mut self, at: NamespacePage, into: &mut [u8]) -> Result<(), ShareError> {
        let page = self.page(at, (into.len() / PAGE_BYTES) as u64)?;
        self.disk().read(page, into).map_err(ShareError::device)
    }

    fn write(&mut self, at: NamespacePage, bytes: &[u8; PAGE_BYTES]) -> Result<(), ShareError> {
        let page = self.page(at, 1)?;
        self.disk().write(page, bytes).map_err(ShareError::device)
    }

    fn trim(&mut self, at: NamespacePage, pages: u64) -> Result<(), ShareError> {
        let page = self.page(at, pages)?;
        self.disk().trim(page, pages).map_err(ShareError::device)
    }

    fn flush(&mut self) -> Result<(), ShareError> {
        self.disk().flush().map_err(ShareError::device)
    }

    fn share(
        &mut self,
        from: NamespacePage,
        to: NamespacePage,
        pages: u64,
    ) -> Result<(), ShareError> {
        let (source, target) = (self.page(from, pages)?, self.page(to, pages)?);
        // Not atomic: each page is old or new on its own, and an interrupted copy is repeated.
        let remap = DiskRemap {
            target,
            source,
            pages: pages as u32,
            relocate: false,
            atomic: false,
        };
        self.disk().remap(&remap).map_err(ShareError::device)
    }

    fn counts(&mut self) -> Result<Counts, ShareError> {
        Ok(Counts::of_device(self.disk().device()))
    }
}
