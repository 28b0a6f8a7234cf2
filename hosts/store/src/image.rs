//! A namespace of a device in a folder, for a process that has exclusive use of the device.
//!
//! Invariants: the device is closed cleanly when the last user drops it; a list of namespaces older
//! than the device is refused. Absent: serving the device, and checking the checksum of
//! `service.json`, which the service writes and verifies.

use crate::window::Window;
use remap_ssd_device::{
    Device, Disk, DiskRemap, LocalDisk, Lpn, RemapAllError, RestingDevice, SharingError,
};
use remap_ssd_media::Geometry;
use remap_ssd_media::folder::{FileVersion, WitnessedFile, newest_version};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::error::Error;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The service's list of namespaces.
const SERVICE: &str = "service.json";

type Inner = Window<LocalDisk>;
type InnerError = <Inner as Disk>::Error;

/// Error of opening or closing an image.
pub type ImageError = Box<dyn Error + Send + Sync>;

#[derive(Deserialize)]
struct Service {
    namespaces: Vec<Share>,
    #[serde(default)]
    serial: Option<u64>,
    #[serde(default)]
    crc32c: Option<String>,
}

#[derive(Deserialize)]
struct Share {
    pages: u64,
    #[serde(default)]
    unshared: bool,
    #[serde(default)]
    place: Option<Place>,
}

/// Location of a namespace, present once a host has changed the namespaces.
#[derive(Deserialize)]
struct Place {
    nsid: u32,
    first_page: u64,
    #[serde(default)]
    clearing: Option<IgnoredAny>,
}

/// A namespace of a device in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageNamespace {
    /// Its number, from 1.
    pub nsid: u32,
    /// Its first page of the device.
    pub first: u64,
    /// Its size, in pages of 4 KiB.
    pub pages: u64,
    /// Its pages are never shared.
    pub unshared: bool,
}

/// A namespace of a device in a folder, as a disk.
pub struct ImageDisk {
    /// `None` once closed.
    inner: Option<Inner>,
    folder: PathBuf,
}

/// A closed `ImageDisk`, with the tables of the device in memory.
pub(crate) struct RestingImage {
    device: RestingDevice,
    folder: PathBuf,
    first: u64,
    pages: u64,
    service: ServiceFile,
}

/// The list of namespaces as stored in the folder.
#[derive(PartialEq, Eq)]
struct ServiceFile {
    /// `None` if there is no such file.
    bytes: Option<Vec<u8>>,
    newest: Option<FileVersion>,
}

impl ServiceFile {
    /// Reads it from a folder that this process has locked, of a device with this geometry.
    fn read(folder: &Path, geometry: &Geometry) -> io::Result<Self> {
        let bytes = match fs::read(folder.join(SERVICE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read?),
        };
        let newest = newest_version(folder, geometry, WitnessedFile::Service)?;
        Ok(Self { bytes, newest })
    }
}

impl RestingImage {
    /// Reopens the folder; `None` if it has changed or is gone.
    pub(crate) fn resume(self) -> Result<Option<ImageDisk>, ImageError> {
        let geometry = self.device.config().geometry;
        let Some(device) = self.device.resume()? else {
            return Ok(None);
        };
        // Only a process that has locked the folder changes the list, and this one has it locked
        // now.
        if !ServiceFile::read(&self.folder, &geometry).is_ok_and(|found| found == self.service) {
            return Ok(None);
        }
        let inner = Window::new(LocalDisk::new(device), self.first, self.pages);
        Ok(inner.map(|inner| ImageDisk {
            inner: Some(inner),
            folder: self.folder,
        }))
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.device.config().table_bytes()
    }
}

impl ImageDisk {
    /// Opens the folder; no other process may have it open. A device that was never served has one
    /// namespace.
    ///
    /// # Errors
    /// There is no device, it is in use, or it has no such namespace.
    pub fn open(folder: &Path, nsid: u32) -> Result<Self, ImageError> {
        let (mut device, _) = Device::resume_in_folder(folder)?;
        let namespaces = image_namespaces(folder, device.config().logical_pages())?;
        keep_apart(&mut device, &namespaces);

        let Some(found) = namespaces.iter().find(|one| one.nsid == nsid) else {
            let numbers = namespaces.iter().map(|one| one.nsid.to_string());
            let numbers = numbers.collect::<Vec<_>>().join(", ");
            return Err(format!(
                "{} has no namespace {nsid} that is in use: those in use are {numbers}",
                folder.display()
            )
            .into());
        };
        let window = Window::new(LocalDisk::new(device), found.first, found.pages);
        Ok(Self {
            inner: Some(window.ok_or("its namespaces are larger than the device")?),
            folder: folder.to_owned(),
        })
    }

    /// Closes the device, reporting errors.
    ///
    /// # Errors
    /// Data could not be written out.
    pub fn close(mut self) -> Result<(), ImageError> {
        self.shut()
    }

    /// The device, for example for its statistics.
    pub fn device(&self) -> &Device {
        self.inner
            .as_ref()
            .expect("an image is open until it is dropped")
            .disk()
            .device()
    }

    /// Closes the device, keeping its tables; `None` if they cannot be kept.
    pub(crate) fn rest_keeping_tables(mut self) -> Result<Option<RestingImage>, ImageError> {
        let Some(inner) = self.inner.take() else {
            return Ok(None);
        };
        let (first, window_pages) = (inner.first(), inner.pages());
        let device = inner.into_disk().into_device();
        let service = ServiceFile::read(&self.folder, &device.config().geometry);
        let (Some(device), Ok(service)) = (device.rest_keeping_tables()?, service) else {
            return Ok(None);
        };
        Ok(Some(RestingImage {
            device,
            folder: self.folder.clone(),
            first,
            pages: window_pages,
            service,
        }))
    }

    fn shut(&mut self) -> Result<(), ImageError> {
        match self.inner.take() {
            Some(window) => Ok(window.into_disk().into_device().rest()?),
            None => Ok(()),
        }
    }

    fn inner(&mut self) -> &mut Inner {
        self.inner
            .as_mut()
            .expect("an image is open until it is dropped")
    }
}

/// The namespaces in use of a device in a folder with `pages` logical pages, ordered by number. A
/// device that was never served has a single one. Namespaces that a host was formatting or deleting
/// are not in use until the service has finished.
///
/// # Errors
/// The list cannot be read, is older than the device, or does not fit it.
pub fn image_namespaces(folder: &Path, pages: u64) -> Result<Vec<ImageNamespace>, ImageError> {
    let path = folder.join(SERVICE);
    let about = |what: String| -> ImageError { format!("{}: {what}", path.display()).into() };

    let service: Option<Service> = match fs::read(&path) {
        Ok(bytes) => {
            Some(serde_json::from_slice(&bytes).map_err(|error| about(error.to_string()))?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(about(error.to_string())),
    };
    check_version(folder, service.as_ref()).map_err(|error| about(error.to_string()))?;

    // A device that was never served has no such file, and one namespace.
    let Some(service) = service else {
        return Ok(vec![ImageNamespace {
            nsid: 1,
            first: 0,
            pages,
            unshared: false,
        }]);
    };

    let mut found = placed(service.namespaces)?;
    check_places(&found, pages).map_err(about)?;
    found.retain(|(_, in_use)| *in_use);
    let mut found: Vec<ImageNamespace> = found.into_iter().map(|(one, _)| one).collect();
    found.sort_by_key(|one| one.nsid);
    Ok(found)
}

/// Tells the device which pages to keep apart. The device does not persist this setting, so each
/// opening repeats it.
pub fn keep_apart(device: &mut Device, namespaces: &[ImageNamespace]) {
    // Checked against the device, whose page numbers have 32 bits.
    let lpn = |page: u64| Lpn(u32::try_from(page).unwrap_or(u32::MAX));
    for one in namespaces.iter().filter(|one| one.unshared) {
        device.keep_apart(lpn(one.first)..lpn(one.first + one.pages));
    }
}

/// Refuses a list of namespaces older than the image's record of it: another namespace may have the
/// pages by now.
fn check_version(folder: &Path, service: Option<&Service>) -> Result<(), ImageError> {
    let geometry = Device::folder_config(folder)?.geometry;
    let newest = newest_version(folder, &geometry, WitnessedFile::Service)?.unwrap_or_default();

    let crc = |digits: &String| u32::from_str_radix(digits, 16).ok();
    let found = service.map_or_else(FileVersion::default, |service| FileVersion {
        serial: service.serial.unwrap_or(0),
        crc: service.crc32c.as_ref().and_then(crc).unwrap_or(0),
    });
    // It is newer if the service was killed before it updated the image.
    if !found.is_older_than(newest) {
        return Ok(());
    }

    let what = match (service, found.serial) {
        (None, _) => "it is missing".to_owned(),
        (_, 0) => "it has no serial number".to_owned(),
        (_, serial) => format!("it has serial number {serial}"),
    };
    Err(format!(
        "the file is not the newest one of this image, which had serial number {} and checksum {:08x}: {what}. \
         Put that one back; or `remap-ssd image repair --accept-loss` goes on with what there is",
        newest.serial, newest.crc
    )
    .into())
}

/// The namespaces with their places, each with a flag that it is in use. Until a host changes
/// namespaces, they are contiguous and numbered from 1.
fn placed(shares: Vec<Share>) -> Result<Vec<(ImageNamespace, bool)>, ImageError> {
    let mut end = 0u64;
    let mut all = Vec::new();
    for (share, nsid) in shares.into_iter().zip(1..) {
        let (nsid, first, in_use) = match share.place {
            Some(place) => (place.nsid, place.first_page, place.clearing.is_none()),
            None => (nsid, end, true),
        };

        end = first
            .checked_add(share.pages)
            .ok_or("its namespaces are larger than the device")?;

        let Share {
            pages, unshared, ..
        } = share;
        let one = ImageNamespace {
            nsid,
            first,
            pages,
            unshared,
        };
        all.push((one, in_use));
    }
    Ok(all)
}

/// Checks bounds, overlaps and duplicate numbers: a damaged file may contain anything.
fn check_places(all: &[(ImageNamespace, bool)], pages: u64) -> Result<(), String> {
    let mut all: Vec<ImageNamespace> = all.iter().map(|(one, _)| *one).collect();
    if all.iter().any(|one| one.first + one.pages > pages) {
        return Err("its namespaces are larger than the device".into());
    }

    all.sort_by_key(|one| one.first);
    for pair in all.windows(2) {
        if pair[0].first + pair[0].pages > pair[1].first {
            return Err(format!(
                "namespaces {} and {} overlap",
                pair[0].nsid, pair[1].nsid
            ));
        }
    }

    all.sort_by_key(|one| one.nsid);
    match all.windows(2).find(|pair| pair[0].nsid == pair[1].nsid) {
        Some(pair) => Err(format!("two namespaces have number {}", pair[0].nsid)),
        None => Ok(()),
    }
}

impl Drop for ImageDisk {
    fn drop(&mut self) {
        // Call `close` to see the error. Data not written out is recovered at the next opening.
        let _ = self.shut();
    }
}

impl Disk for ImageDisk {
    type Error = InnerError;

    fn pages(&self) -> u64 {
        self.inner.as_ref().map_or(0, Disk::pages)
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

    fn differing(
        &mut self,
        a: u64,
        b: u64,
        pages: u64,
    ) -> Result<Vec<Range<u64>>, SharingError<InnerError>> {
        self.inner().differing(a, b, pages)
    }

    fn pages_alone(&mut self, page: u64, pages: u64) -> Result<u64, SharingError<InnerError>> {
        self.inner().pages_alone(page, pages)
    }
}
