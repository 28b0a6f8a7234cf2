//! A namespace of a device in a folder, for a process that has the device to itself.
//!
//! Invariant: the device is closed in good order when nobody uses it any more. Absent: serving it,
//! and the checksum of `service.json`, which the service writes and looks after.

use crate::Window;
use remap_ssd_device::{Device, Disk, DiskRemap, LocalDisk, Lpn, RemapAllError};
use serde::Deserialize;
use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

/// What the service says of its namespaces.
const SERVICE: &str = "service.json";

type Inner = Window<LocalDisk>;
type InnerError = <Inner as Disk>::Error;

/// Why an image cannot be opened, or was not closed.
pub type ImageError = Box<dyn Error + Send + Sync>;

#[derive(Deserialize)]
struct Service {
    namespaces: Vec<ImageNamespace>,
}

/// A namespace of a device in a folder.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ImageNamespace {
    /// Its size, in pages of 4 KiB.
    pub pages: u64,
    /// Its pages are shared with nothing.
    #[serde(default)]
    pub unshared: bool,
}

/// A namespace of a device in a folder.
pub struct ImageDisk(Option<Inner>);

impl ImageDisk {
    /// Opens the folder; no other process may have it open. A device that was never served is one
    /// namespace.
    ///
    /// # Errors
    /// There is no device, it is in use, or it has no such namespace.
    pub fn open(folder: &Path, nsid: u32) -> Result<Self, ImageError> {
        let (mut device, _) = Device::open_in_folder(folder)?;
        let namespaces = image_namespaces(folder, device.config().firmware.lpns.into())?;

        // Numbers begin at 1; 0 wraps around to one that cannot be.
        let index = (nsid as usize).wrapping_sub(1);
        let none = || format!("there is no namespace {nsid}, only {}", namespaces.len());
        let ImageNamespace { pages, unshared } = *namespaces.get(index).ok_or_else(none)?;
        let first = namespaces[..index].iter().map(|before| before.pages).sum();
        if unshared {
            // A damaged file may say anything; the window refuses what does not fit.
            let place = |page: u64| Lpn(u32::try_from(page).unwrap_or(u32::MAX));
            device.keep_apart(place(first)..place(first.saturating_add(pages)));
        }
        let window = Window::new(LocalDisk::new(device), first, pages);
        Ok(Self(Some(
            window.ok_or("its namespaces are larger than the device")?,
        )))
    }

    /// Closes the device, and says whether that could be done.
    ///
    /// # Errors
    /// Something could not be written out.
    pub fn close(mut self) -> Result<(), ImageError> {
        self.shut()
    }

    /// The device: its statistics, say.
    pub fn device(&self) -> &Device {
        self.0
            .as_ref()
            .expect("an image is open until it is dropped")
            .disk()
            .device()
    }

    fn shut(&mut self) -> Result<(), ImageError> {
        match self.0.take() {
            Some(window) => Ok(window.into_disk().into_device().close().map(drop)?),
            None => Ok(()),
        }
    }

    fn inner(&mut self) -> &mut Inner {
        self.0
            .as_mut()
            .expect("an image is open until it is dropped")
    }
}

/// The namespaces of a device of `pages` pages in a folder, by number; one takes all of a device
/// that was never served.
///
/// # Errors
/// They cannot be read.
pub fn image_namespaces(folder: &Path, pages: u64) -> Result<Vec<ImageNamespace>, ImageError> {
    let path = folder.join(SERVICE);
    // A device that was never served has no such file, and one namespace.
    match fs::read(&path) {
        Ok(bytes) => {
            let service: Service = serde_json::from_slice(&bytes)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(service.namespaces)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![ImageNamespace {
            pages,
            unshared: false,
        }]),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}

impl Drop for ImageDisk {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`. What was not written out is recovered at the next
        // opening.
        let _ = self.shut();
    }
}

impl Disk for ImageDisk {
    type Error = InnerError;

    fn pages(&self) -> u64 {
        self.0.as_ref().map_or(0, Disk::pages)
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), InnerError> {
        self.inner().read(page, into)
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), InnerError> {
        self.inner().write(page, data)
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), InnerError> {
        self.inner().trim(page, pages)
    }

    fn flush(&mut self) -> Result<(), InnerError> {
        self.inner().flush()
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), InnerError> {
        self.inner().remap(remap)
    }

    fn remap_all(&mut self, remaps: &[DiskRemap]) -> Result<(), RemapAllError<InnerError>> {
        self.inner().remap_all(remaps)
    }
}
