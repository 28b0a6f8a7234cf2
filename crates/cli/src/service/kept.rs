//! What a device in a folder is besides flash: its name, its namespaces, and what SMART has
//! counted.
//!
//! Invariants: a file is replaced whole or not at all. `service.json` and `reservations.json` have
//! serial numbers, and the image witnesses the newest one before it is in force: an older copy, or
//! none where there was one, is refused. A crash of the machine may lose the last
//! seconds of counting. The service does not depend on the counters: a full disk or a damaged
//! counter file is only a warning.

use super::namespaces::Share;
use crate::failure::Failure;
use remap_ssd_device::Device;
use remap_ssd_media::folder::{self, FileVersion, WitnessedFile};
use remap_ssd_nvme::controller::{AllReservations, Health, ReservationStore};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the file, in the folder of the device.
pub const SERVICE: &str = "service.json";
/// The file of what SMART counts.
pub const HEALTH: &str = "health.json";
/// The file of reservations that persist; none if there are none.
pub const RESERVATIONS: &str = "reservations.json";

/// Name and namespaces; changes when an image is adopted, and when hosts manage its namespaces.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The subsystem's NVMe qualified name.
    pub nqn: String,
    /// The namespaces: how large, in which blocks.
    pub namespaces: Vec<Share>,
    /// How many namespaces hosts have created so far. Absent as long as none was created, deleted,
    /// formatted with other blocks, attached or detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u32>,
    /// Inode of the file of pages' contents: a copy of the image has another one. Absent in images
    /// of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents_inode: Option<u64>,
    /// One more with each version of the file. Absent in images of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    /// CRC-32C of the rest, in hexadecimal digits. Absent in images of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32c: Option<String>,
}

/// What was counted, and whether the last power-off was in good order.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SavedHealth {
    /// The counters of SMART so far.
    pub health: Health,
    /// Whether the service ended in good order.
    pub clean: bool,
}

impl Service {
    /// `count` namespaces of equal size over `pages`; those numbers of which are in `unshared`
    /// share nothing.
    pub fn new(nqn: String, pages: u32, count: u32, block_bytes: u32, unshared: &[u32]) -> Self {
        let share = |nsid: u32| Share {
            pages: pages / count,
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

    /// With `count` namespaces more, each large enough for a snapshot of any of the others.
    #[must_use]
    pub fn with_snapshots(mut self, count: u32) -> Self {
        let largest = self
            .namespaces
            .iter()
            .max_by_key(|share| share.pages)
            .cloned();
        // One page more than the largest: the snapshot's record is in the last one.
        let share = largest.map(|share| Share {
            pages: share.pages + 1,
            unshared: false,
            snapshots: true,
            ..share
        });
        self.namespaces
            .extend(share.into_iter().cycle().take(count as usize));
        self
    }

    /// Namespaces that were made for snapshots, and their pages.
    pub fn snapshots(&self) -> (u32, u32) {
        let made = self.namespaces.iter().filter(|share| share.snapshots);
        made.fold((0, 0), |(count, pages), share| {
            (count + 1, pages + share.pages)
        })
    }

    /// Writes it for the image in `dir`, with its checksum and the next serial number.
    ///
    /// # Errors
    /// The system's reason.
    pub fn save(&self, dir: &Path) -> Result<(), Failure> {
        let witness = FileWitness::of(dir, WitnessedFile::Service)?;
        let mut signed = Self {
            contents_inode: Some(inode(dir)?),
            serial: Some(witness.next(self.serial)),
            // The checksum is of everything else.
            crc32c: None,
            ..self.clone()
        };
        signed.crc32c = Some(signed.sum());

        witness.replace(SERVICE, &signed, signed.version())
    }

    fn version(&self) -> FileVersion {
        version(self.serial, self.crc32c.as_deref())
    }

    /// Reads it. One of an earlier version gets its checksum and its serial number, if there is
    /// room for them. The image must be in use by this process.
    ///
    /// # Errors
    /// It is not there, or not what was written.
    pub fn load(dir: &Path, pages: u32) -> Result<Self, Failure> {
        let service = Self::read(dir, pages)?;
        // A full disk must not keep a device from being served.
        if service.serial.is_none() {
            if let Err(error) = service.save(dir) {
                tracing::warn!("{error}; the file stays without a serial number");
            }
        } else {
            FileWitness::of(dir, WitnessedFile::Service)?.update(service.version())?;
        }
        Ok(service)
    }

    /// Reads it, and changes nothing.
    ///
    /// # Errors
    /// The file is missing, damaged, or does not fit a device of `pages` pages.
    pub fn read(dir: &Path, pages: u32) -> Result<Self, Failure> {
        let path = dir.join(SERVICE);
        let service: Self = load(&path)?;

        let wrong = |what: &str| {
            Failure::about(path.display(), format_args!("the file is damaged: {what}"))
        };

        // Checked before anything in it is believed.
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

    /// Reads the file without checking its checksum, for repairs; `None` if it makes no sense.
    pub fn unsigned(dir: &Path, pages: u32) -> Option<Self> {
        let service: Self = load(&dir.join(SERVICE)).ok()?;
        let is_name = service.nqn.starts_with("nqn.") && service.nqn.len() <= 223;
        let whole = is_name && service.check(pages).is_ok();
        whole.then_some(service)
    }

    /// Whether this file was written for another image, so that the one in `dir` is a copy.
    pub fn is_of_another(&self, dir: &Path) -> bool {
        self.contents_inode
            .is_some_and(|kept| inode(dir).is_ok_and(|inode| inode != kept))
    }

    fn sum(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("{:08x}", folder::checksum(text.as_bytes()))
    }
}

fn inode(dir: &Path) -> Result<u64, Failure> {
    let path = dir.join("contents");
    let about = std::fs::metadata(&path).map_err(|error| Failure::about(path.display(), error))?;
    Ok(about.ino())
}

/// What the image in a folder witnesses of one of these files.
struct FileWitness<'a> {
    dir: &'a Path,
    of: WitnessedFile,
    /// Flash pages of the image, and the newest version; `None` if it witnesses none.
    found: Option<(u32, FileVersion)>,
}

impl<'a> FileWitness<'a> {
    fn of(dir: &'a Path, of: WitnessedFile) -> Result<Self, Failure> {
        // Without a configuration there is no image, which opening it says.
        let pages = Device::folder_config(dir)
            .ok()
            .map(|config| config.geometry.pages());
        let newest = pages.map(|pages| folder::newest_version(dir, pages, of));
        let newest = newest.transpose();
        let newest = newest.map_err(|error| Failure::about(dir.display(), error))?;
        Ok(Self {
            dir,
            of,
            found: pages.zip(newest.flatten()),
        })
    }

    fn newest(&self) -> FileVersion {
        self.found
            .map_or_else(FileVersion::default, |(_, newest)| newest)
    }

    /// Serial number of the version after this one.
    fn next(&self, serial: Option<u64>) -> u64 {
        self.newest().serial.max(serial.unwrap_or(0)) + 1
    }

    /// # Errors
    /// The file is not the newest one.
    fn check(&self, version: FileVersion, path: &Path) -> Result<(), Failure> {
        let newest = self.newest();
        if !version.is_older_than(newest) {
            return Ok(());
        }

        let what = match version.serial {
            0 if path.exists() => "it has no serial number".to_owned(),
            0 => "it is missing".to_owned(),
            serial => format!("it has serial number {serial}"),
        };
        Err(Failure::about(
            path.display(),
            format_args!(
                "the file is not the newest one of this image, which had serial number {} and checksum {:08x}: {what}. \
                 Put that one back; or `remap-ssd image repair --accept-loss` goes on with what there is",
                newest.serial, newest.crc,
            ),
        ))
    }

    /// Puts a new version in the place of the one before, and refuses older ones from now on.
    fn replace(
        &self,
        name: &str,
        value: &impl Serialize,
        version: FileVersion,
    ) -> Result<(), Failure> {
        let Some((pages, _)) = self.found else {
            return save(self.dir, name, value);
        };
        let text = text(value)?;
        folder::replace_witnessed(self.dir, pages, self.of, name, text.as_bytes(), version)
            .map_err(|error| Failure::about(self.dir.join(name).display(), error))
    }

    /// Refuses older versions from now on.
    fn update(&self, version: FileVersion) -> Result<(), Failure> {
        match self.found {
            Some((pages, newest)) if newest != version => {
                folder::witness_version(self.dir, pages, self.of, version)
                    .map_err(|error| Failure::about(self.dir.display(), error))
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

/// Reservations that persist, of the image in a folder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReservationFile {
    /// Registrations and the reservation of each namespace, by its number.
    namespaces: AllReservations,
    /// One more with each version of the file. Absent in images of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    /// CRC-32C of the rest, in hexadecimal digits.
    crc32c: String,
}

impl ReservationFile {
    fn new(namespaces: &AllReservations, serial: Option<u64>) -> Self {
        let mut text = serde_json::to_string(namespaces).unwrap_or_default();
        // Earlier versions have none, and another checksum.
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

/// Keeps reservations beside an image.
pub struct ReservationFolder(pub PathBuf);

impl ReservationFolder {
    /// Those that were kept.
    ///
    /// # Errors
    /// The file is damaged, an older one, or missing: without it, hosts that were shut out could
    /// write again.
    pub fn load(&self) -> Result<AllReservations, Failure> {
        let witness = FileWitness::of(&self.0, WitnessedFile::Reservations)?;
        let file = self.read()?;
        let version = file.as_ref().map(ReservationFile::version);
        witness.check(version.unwrap_or_default(), &self.0.join(RESERVATIONS))?;
        Ok(file.map_or_else(AllReservations::new, |file| file.namespaces))
    }

    /// The file, if there is one, which may be an older one.
    fn read(&self) -> Result<Option<ReservationFile>, Failure> {
        let path = self.0.join(RESERVATIONS);
        // No file is the usual case: no host has ever reserved.
        if !path.exists() {
            return Ok(None);
        }

        let advice = "the reservations of hosts are damaged; `remap-ssd image repair --accept-loss` goes on without them";
        let file: ReservationFile =
            load(&path).map_err(|error| Failure::failed(format_args!("{error}; {advice}")))?;

        // Damaged reservations are not left out silently: hosts rely on being kept apart.
        if file.crc32c != ReservationFile::new(&file.namespaces, file.serial).crc32c {
            return Err(Failure::about(path.display(), advice));
        }
        Ok(Some(file))
    }

    /// The image witnesses the file from now on. To be done at each start, when the image is in use
    /// by this process: a cut may have come before, and earlier versions witnessed nothing.
    ///
    /// # Errors
    /// The system's reason.
    pub fn witness(&self) -> Result<(), Failure> {
        let Some(file) = self.read()? else {
            return Ok(());
        };
        if file.serial.is_none() {
            return self.write(&file.namespaces);
        }
        FileWitness::of(&self.0, WitnessedFile::Reservations)?.update(file.version())
    }

    fn write(&self, all: &AllReservations) -> Result<(), Failure> {
        let witness = FileWitness::of(&self.0, WitnessedFile::Reservations)?;
        let file = ReservationFile::new(all, Some(witness.next(None)));

        witness.replace(RESERVATIONS, &file, file.version())
    }

    /// Goes on with what there is: an older file, or none if it is damaged or missing. The damaged
    /// one is kept under another name.
    ///
    /// # Errors
    /// The system's reason.
    pub fn repair(&self) -> Result<(), Failure> {
        let path = self.0.join(RESERVATIONS);
        let kept = match self.read() {
            Ok(file) => file.map_or_else(AllReservations::new, |file| file.namespaces),
            Err(_) => {
                std::fs::copy(&path, self.0.join(format!("{RESERVATIONS}.damaged")))
                    .map_err(|error| Failure::about(path.display(), error))?;
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
    pub fn save(&self, dir: &Path) -> Result<(), Failure> {
        save(dir, HEALTH, self)
    }

    /// Writes it; logs a warning if that fails.
    pub fn try_save(&self, dir: &Path) {
        if let Err(error) = self.save(dir) {
            tracing::warn!("{error}; what SMART counts is kept later");
        }
    }

    /// Reads it; a missing or damaged file counts as empty.
    pub fn load(dir: &Path) -> Self {
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

fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::about(path.display(), error))?;
    serde_json::from_str(&text).map_err(|error| Failure::about(path.display(), error))
}

fn text(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(Failure::failed)
}

fn save(dir: &Path, name: &str, value: &impl Serialize) -> Result<(), Failure> {
    folder::replace_file(dir, name, text(value)?.as_bytes())
        .map_err(|error| Failure::about(dir.join(name).display(), error))
}
