//! The files of a device besides flash: its name, its namespaces, reservations, and SMART counters.
//!
//! Invariants: a file is replaced atomically. `service.json` and `reservations.json` have serial
//! numbers, and the image witnesses the newest one before it takes effect: an older copy, or a
//! missing file where there was one, is refused. The namespaces read are valid for the device. A
//! crash of the machine may lose the last seconds of SMART counters. The service does not depend on
//! these counters: a full disk or a damaged counter file causes only a warning.

use crate::error::ServiceError;
use crate::nqn::is_nqn;
use crate::share::Share;
use remap_ssd_device::Device;
use remap_ssd_media::Geometry;
use remap_ssd_media::folder::{self, FileVersion, WitnessedFile};
use remap_ssd_nvme::controller::{
    AllReservations, Health, KeptNamespaces, NamespaceSpec, ReservationStore,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the file, in the folder of the device.
pub(crate) const SERVICE: &str = "service.json";
/// The file of SMART counters.
pub(crate) const HEALTH: &str = "health.json";
/// The file of persistent reservations; absent if there are none.
pub(crate) const RESERVATIONS: &str = "reservations.json";

/// Name and namespaces; changes when an image is adopted, or when hosts manage its namespaces.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceFile {
    /// The subsystem's NVMe qualified name.
    pub nqn: String,
    /// The namespaces: size and block size.
    pub namespaces: Vec<Share>,
    /// Number of namespaces that hosts have created so far. Absent until one was created, deleted,
    /// formatted with another block size, attached or detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u32>,
    /// Inode of the file of page contents: differs in a copy of the image. Absent in images of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents_inode: Option<u64>,
    /// Incremented with each version of the file. Absent in images of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    /// CRC-32C of the rest, in hexadecimal digits. Absent in images of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32c: Option<String>,
}

/// SMART counters, and the state of the last shutdown.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SavedHealth {
    /// The SMART counters so far.
    pub health: Health,
    /// True if the last shutdown was clean.
    pub clean: bool,
}

impl ServiceFile {
    /// A number of namespaces of equal size over `pages`, with blocks of a number of bytes; each has whole indirection units of `unit`
    /// pages. Namespaces with numbers in `unshared` share no pages.
    pub(crate) fn new(
        nqn: String,
        pages: u32,
        (count, block_bytes): (u32, u32),
        unshared: &[u32],
        unit: u32,
    ) -> Self {
        let share = |nsid: u32| Share {
            pages: pages / unit / count * unit,
            block_bytes,
            unshared: unshared.contains(&nsid),
            snapshots: false,
            place: None,
        };
        let namespaces = (1..=count).map(share).collect();
        Self {
            nqn,
            namespaces,
            created: None,
            contents_inode: None,
            serial: None,
            crc32c: None,
        }
    }

    /// Adds `count` namespaces, each large enough for a snapshot of any other.
    #[must_use]
    pub(crate) fn with_snapshots(mut self, count: u32, unit: u32) -> Self {
        let largest = self
            .namespaces
            .iter()
            .max_by_key(|share| share.pages)
            .cloned();
        // One unit more than the largest: the last page holds the snapshot's record.
        let share = largest.map(|share| Share {
            pages: share.pages + unit,
            unshared: false,
            snapshots: true,
            ..share
        });
        self.namespaces
            .extend(share.into_iter().cycle().take(count as usize));
        self
    }

    /// Number and total pages of the namespaces for snapshots.
    pub(crate) fn snapshots(&self) -> (u32, u32) {
        let made = self.namespaces.iter().filter(|share| share.snapshots);
        made.fold((0, 0), |(count, pages), share| {
            (count + 1, pages + share.pages)
        })
    }

    /// The namespaces as the controller expects them.
    pub(crate) fn specs(&self) -> Vec<NamespaceSpec> {
        self.namespaces.iter().map(Share::spec).collect()
    }

    /// The same with their positions.
    ///
    /// # Errors
    /// Impossible positions.
    pub(crate) fn kept_namespaces(&self) -> Result<KeptNamespaces, String> {
        let Some(made) = self.created else {
            // No host has changed anything: the order gives the positions.
            return KeptNamespaces::one_after_the_other(&self.specs())
                .map_err(|error| error.to_string());
        };

        let placed = self.namespaces.iter().map(|share| {
            let place = share.place.as_ref().ok_or("a namespace has no place")?;
            Ok(share.placed(place))
        });
        let list: Result<Vec<_>, String> = placed.collect();
        Ok(KeptNamespaces { list: list?, made })
    }

    /// Checks that a device of `pages` pages can have them.
    ///
    /// # Errors
    /// Impossible namespaces.
    pub(crate) fn check(&self, pages: u32) -> Result<(), String> {
        let powers_of_two = |share: &Share| share.block_bytes.is_power_of_two();
        if !self.namespaces.iter().all(powers_of_two) {
            return Err("namespaces have blocks of 512 or 4096 bytes".into());
        }
        if self.created.is_none() && self.namespaces.is_empty() {
            return Err("there is no namespace".into());
        }
        let all = self.kept_namespaces()?;
        all.check(pages).map_err(|error| error.to_string())
    }

    /// Writes it to the image in `dir`, with its checksum and the next serial number.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), ServiceError> {
        let witness = FileWitness::of(dir, WitnessedFile::Service)?;
        let mut signed = Self {
            contents_inode: Some(inode(dir)?),
            serial: Some(witness.next(self.serial)),
            // The checksum covers everything else.
            crc32c: None,
            ..self.clone()
        };
        signed.crc32c = Some(signed.sum());

        witness.replace(SERVICE, &signed, signed.version())
    }

    fn version(&self) -> FileVersion {
        version(self.serial, self.crc32c.as_deref())
    }

    /// Reads it. A file of an earlier version gets a checksum and a serial number, if the disk has
    /// room. This process must have the image open.
    ///
    /// # Errors
    /// The file is missing, damaged, or older than the image.
    pub(crate) fn load(dir: &Path, pages: u32) -> Result<Self, ServiceError> {
        let service = Self::read(dir, pages)?;
        // A full disk must not prevent serving a device.
        if service.serial.is_none() {
            if let Err(error) = service.save(dir) {
                tracing::warn!("{error}; the file stays without a serial number");
            }
        } else {
            FileWitness::of(dir, WitnessedFile::Service)?.update(service.version())?;
        }
        Ok(service)
    }

    /// Reads it without changing anything.
    ///
    /// # Errors
    /// The file is missing, damaged, or does not fit a device of `pages` pages.
    pub(crate) fn read(dir: &Path, pages: u32) -> Result<Self, ServiceError> {
        let path = dir.join(SERVICE);
        let service: Self = load(&path)?;

        let wrong = |what: &str| {
            ServiceError::about(path.display(), format_args!("the file is damaged: {what}"))
        };

        // Validated before any field is used.
        if service.crc32c.as_ref().is_some_and(|sum| {
            *sum != Self {
                crc32c: None,
                ..service.clone()
            }
            .sum()
        }) {
            return Err(wrong("it does not have its checksum, from byte 0 on"));
        }

        service.check(pages).map_err(|what| wrong(&what))?;
        let witness = FileWitness::of(dir, WitnessedFile::Service)?;
        witness.check(service.version(), &path)?;
        Ok(service)
    }

    /// Reads the file without checking its checksum, for repairs; `None` if it is invalid.
    pub(crate) fn unsigned(dir: &Path, pages: u32) -> Option<Self> {
        let service: Self = load(&dir.join(SERVICE)).ok()?;
        let whole = is_nqn(&service.nqn) && service.check(pages).is_ok();
        whole.then_some(service)
    }

    /// Returns true if this file was written for another image, so that the one in `dir` is a copy.
    pub(crate) fn is_of_another(&self, dir: &Path) -> bool {
        self.contents_inode
            .is_some_and(|kept| inode(dir).is_ok_and(|inode| inode != kept))
    }

    fn sum(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("{:08x}", folder::checksum(text.as_bytes()))
    }
}

fn inode(dir: &Path) -> Result<u64, ServiceError> {
    let path = dir.join("contents");
    let about =
        std::fs::metadata(&path).map_err(|error| ServiceError::about(path.display(), error))?;
    Ok(about.ino())
}

/// The version of one of these files that the image witnesses.
struct FileWitness<'a> {
    dir: &'a Path,
    of: WitnessedFile,
    /// Shape of the image's flash, and the newest version; `None` if there is no image.
    found: Option<(Geometry, FileVersion)>,
}

impl<'a> FileWitness<'a> {
    fn of(dir: &'a Path, of: WitnessedFile) -> Result<Self, ServiceError> {
        // Without a configuration there is no image; opening it reports that.
        let geometry = Device::folder_config(dir)
            .ok()
            .map(|config| config.geometry);
        let newest = geometry.map(|geometry| folder::newest_version(dir, &geometry, of));
        let newest = newest.transpose();
        let newest = newest.map_err(|error| ServiceError::about(dir.display(), error))?;
        Ok(Self {
            dir,
            of,
            found: geometry.zip(newest.flatten()),
        })
    }

    fn newest(&self) -> FileVersion {
        self.found
            .map_or_else(FileVersion::default, |(_, newest)| newest)
    }

    /// Serial number of the next version.
    fn next(&self, serial: Option<u64>) -> u64 {
        self.newest().serial.max(serial.unwrap_or(0)) + 1
    }

    /// # Errors
    /// The file is not the newest version.
    fn check(&self, version: FileVersion, path: &Path) -> Result<(), ServiceError> {
        let newest = self.newest();
        if !version.is_older_than(newest) {
            return Ok(());
        }

        let what = match version.serial {
            0 if path.exists() => "it has no serial number".to_owned(),
            0 => "it is missing".to_owned(),
            serial => format!("it has serial number {serial}"),
        };
        Err(ServiceError::about(
            path.display(),
            format_args!(
                "the file is not the newest one of this image, which had serial number {} and checksum {:08x}: {what}. \
                 Put that one back; or `remap-ssd image repair --accept-loss` goes on with what there is",
                newest.serial, newest.crc,
            ),
        ))
    }

    /// Replaces the file with a new version, and refuses older ones from now on.
    fn replace(
        &self,
        name: &str,
        value: &impl Serialize,
        version: FileVersion,
    ) -> Result<(), ServiceError> {
        let Some((geometry, _)) = &self.found else {
            return save(self.dir, name, value);
        };
        let text = text(value)?;
        folder::replace_witnessed(self.dir, geometry, self.of, name, text.as_bytes(), version)
            .map_err(|error| ServiceError::about(self.dir.join(name).display(), error))
    }

    /// Refuses older versions from now on.
    fn update(&self, version: FileVersion) -> Result<(), ServiceError> {
        match &self.found {
            Some((geometry, newest)) if *newest != version => {
                folder::witness_version(self.dir, geometry, self.of, version)
                    .map_err(|error| ServiceError::about(self.dir.display(), error))
            }
            _ => Ok(()),
        }
    }
}

fn version(serial: Option<u64>, crc32c: Option<&str>) -> FileVersion {
    FileVersion {
        serial: serial.unwrap_or(0),
        crc: crc32c
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .unwrap_or(0),
    }
}

/// Persistent reservations of an image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReservationFile {
    /// Registrations and reservation of each namespace, by number.
    namespaces: AllReservations,
    /// Incremented with each version of the file. Absent in images of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    /// CRC-32C of the rest, in hexadecimal digits.
    crc32c: String,
}

impl ReservationFile {
    fn new(namespaces: &AllReservations, serial: Option<u64>) -> Self {
        let mut text = serde_json::to_string(namespaces).unwrap_or_default();
        // Earlier versions have no serial number, and another checksum.
        text.extend(serial.map(|serial| format!(" {serial}")));
        Self {
            namespaces: namespaces.clone(),
            serial,
            crc32c: format!("{:08x}", folder::checksum(text.as_bytes())),
        }
    }

    fn version(&self) -> FileVersion {
        version(self.serial, Some(&self.crc32c))
    }
}

/// Stores reservations beside an image.
pub(crate) struct ReservationFolder(pub(crate) PathBuf);

impl ReservationFolder {
    /// Loads the stored reservations.
    ///
    /// # Errors
    /// The file is damaged, older than the image, or missing: without it, excluded hosts could
    /// write again.
    pub(crate) fn load(&self) -> Result<AllReservations, ServiceError> {
        let witness = FileWitness::of(&self.0, WitnessedFile::Reservations)?;
        let file = self.read()?;
        let version = file.as_ref().map(ReservationFile::version);
        witness.check(version.unwrap_or_default(), &self.0.join(RESERVATIONS))?;
        Ok(file.map_or_else(AllReservations::new, |file| file.namespaces))
    }

    /// Reads the file if it exists, even an older version.
    fn read(&self) -> Result<Option<ReservationFile>, ServiceError> {
        let path = self.0.join(RESERVATIONS);
        // No file is the usual case: no host ever reserved.
        if !path.exists() {
            return Ok(None);
        }

        let advice = "the reservations of hosts are damaged; `remap-ssd image repair --accept-loss` goes on without them";
        let file: ReservationFile =
            load(&path).map_err(|error| ServiceError::failed(format_args!("{error}; {advice}")))?;

        // Damaged reservations are not dropped silently: hosts rely on being excluded.
        if file.crc32c != ReservationFile::new(&file.namespaces, file.serial).crc32c {
            return Err(ServiceError::about(path.display(), advice));
        }
        Ok(Some(file))
    }

    /// Makes the image witness the file. Required at each start, once this process has the image
    /// open: a cut may have come before, and earlier versions witnessed nothing.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn witness(&self) -> Result<(), ServiceError> {
        let Some(file) = self.read()? else {
            return Ok(());
        };
        if file.serial.is_none() {
            return self.write(&file.namespaces);
        }
        FileWitness::of(&self.0, WitnessedFile::Reservations)?.update(file.version())
    }

    fn write(&self, all: &AllReservations) -> Result<(), ServiceError> {
        let witness = FileWitness::of(&self.0, WitnessedFile::Reservations)?;
        let file = ReservationFile::new(all, Some(witness.next(None)));

        witness.replace(RESERVATIONS, &file, file.version())
    }

    /// Accepts the current state: an older file, or none if it is damaged or missing. The damaged
    /// file is kept under another name.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn repair(&self) -> Result<(), ServiceError> {
        let path = self.0.join(RESERVATIONS);
        let kept = match self.read() {
            Ok(file) => file.map_or_else(AllReservations::new, |file| file.namespaces),
            Err(_) => {
                std::fs::copy(&path, self.0.join(format!("{RESERVATIONS}.damaged")))
                    .map_err(|error| ServiceError::about(path.display(), error))?;
                AllReservations::new()
            }
        };
        self.write(&kept)
    }
}

impl ReservationStore for ReservationFolder {
    fn save(&self, all: &AllReservations) -> io::Result<()> {
        self.write(all).map_err(|failure| {
            tracing::error!("{failure}; the host is told that its reservation was not changed");
            io::Error::other(failure.to_string())
        })
    }
}

impl SavedHealth {
    /// Writes it.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), ServiceError> {
        save(dir, HEALTH, self)
    }

    /// Writes it; logs a warning if that fails.
    pub(crate) fn try_save(&self, dir: &Path) {
        if let Err(error) = self.save(dir) {
            tracing::warn!("{error}; what SMART counts is kept later");
        }
    }

    /// Reads it; a missing or damaged file counts as empty.
    pub(crate) fn load(dir: &Path) -> Self {
        let path = dir.join(HEALTH);
        // A first start is no crash.
        if !path.exists() {
            return Self {
                clean: true,
                ..Self::default()
            };
        }
        load(&path).unwrap_or_else(|error| {
            tracing::warn!("{error}; what SMART counts begins anew");
            Self::default()
        })
    }
}

fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, ServiceError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ServiceError::about(path.display(), error))?;
    serde_json::from_str(&text).map_err(|error| ServiceError::about(path.display(), error))
}

fn text(value: &impl Serialize) -> Result<String, ServiceError> {
    serde_json::to_string_pretty(value).map_err(ServiceError::failed)
}

fn save(dir: &Path, name: &str, value: &impl Serialize) -> Result<(), ServiceError> {
    folder::replace_file(dir, name, text(value)?.as_bytes())
        .map_err(|error| ServiceError::about(dir.join(name).display(), error))
}
