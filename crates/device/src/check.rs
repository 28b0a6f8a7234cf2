//! Checks the files of a device in a folder for damage, reports what would be lost, and repairs
//! them.
//!
//! Invariants: a check changes nothing; a repair gives up only what the check listed, and keeps a
//! copy of each file that it replaces. It never touches the page contents. Absent: what counts as
//! damage (`media::folder`).

use crate::config::DeviceConfig;
use crate::config_file::{CONFIG, ConfigFile, write_config};
use crate::device::Device;
use crate::open_error::OpenError;
use remap_ssd_ftl::{Ftl, Lpn, SuperblockState};
use remap_ssd_media::folder::{FileDamage, FoundFolder};
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{Geometry, Media, Ppn};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Result of checking a folder.
#[derive(Clone, Debug, Default)]
pub struct FolderCheck {
    /// The damage found, in file order.
    pub damage: Vec<FileDamage>,
    /// Why the device cannot be repaired.
    pub beyond: Option<String>,
    /// Number of logical pages of 4 KiB with a flash page.
    pub mapped: u64,
    /// The same pages as ranges, in order.
    pub mapped_lpns: Vec<Range<u32>>,
    /// Mapped pages of 4 KiB whose data was given up earlier: they read as media errors, although nothing is
    /// damaged.
    pub given_up: u64,
    /// Flash pages without a checksum, written by an earlier version.
    pub without_checksum: u64,
    /// LPNs of the firmware that read as media errors because of the damage: indirection units.
    unreadable: Vec<Lpn>,
}

impl FolderCheck {
    /// Returns true if no damage was found.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.beyond.is_none()
    }
}

impl Device {
    /// Checks a folder for damage, reads every mapped page, and changes nothing.
    ///
    /// # Errors
    /// There is no device, or it is in use.
    pub fn check_folder(dir: &Path) -> Result<FolderCheck, OpenError> {
        let mut check = FolderCheck::default();

        // Errors of the folder itself are returned; all others are results of the check.
        match Self::check_into(dir, &mut check) {
            Err(
                error @ OpenError::Image(
                    ImageError::InUse
                    | ImageError::NotAnImage
                    | ImageError::NoConfig(_)
                    | ImageError::Io(_),
                ),
            ) => Err(error),
            Err(error) => {
                check.beyond = Some(error.to_string());
                Ok(check)
            }
            Ok(()) => Ok(check),
        }
    }

    fn check_into(dir: &Path, check: &mut FolderCheck) -> Result<(), OpenError> {
        let file = ConfigFile::read(dir)?;
        check.damage.extend(file.damage().cloned());
        let config = file.parse()?;
        let found = Media::weigh_folder(dir)?;
        check.damage.extend(found.damage().iter().cloned());
        check.without_checksum = found.pages_without_sum();
        let suspects = found.suspects().to_vec();
        // A copy in memory: recovery writes, and a check must not.
        let (mut device, _) = Self::recover(found.into_copy(), config)?;
        device.ftl().check()?;
        let geometry = device.config().geometry;
        check
            .damage
            .extend(live(device.ftl(), &suspects).map(|ppn| metadata(&geometry, ppn)));
        device.untimed(|ftl| read_all(ftl, check));
        Ok(())
    }

    /// Repairs the folder: the device returns to the newest fully known state, and damaged pages
    /// read as media errors until they are written again. Replaced files are kept in a folder,
    /// whose name is returned.
    ///
    /// # Errors
    /// Recovery is impossible, or an I/O error occurred; then nothing has changed.
    pub fn repair_folder(dir: &Path) -> Result<(FolderCheck, Option<PathBuf>), OpenError> {
        let check = Self::check_folder(dir)?;
        // Nothing is touched: giving up data that cannot be recovered would leave less for other
        // attempts.
        if let Some(why) = &check.beyond {
            return Err(OpenError::BeyondRepair(why.clone()));
        }
        if check.is_clean() {
            return Ok((check, None));
        }

        // 1. copies  2. replacements. Cut before 2: nothing has changed.
        let kept = keep_copies(dir).map_err(ImageError::from)?;

        let file = ConfigFile::read(dir)?;
        let config = file.parse()?;
        let (media, _) = Media::find_folder(dir, true)?.begin()?;
        let (mut device, _) = Self::recover(media, config)?;

        // The firmware records them as lost: from now on they are media errors for every reader,
        // and are moved as such.
        for lpn in &check.unreadable {
            device
                .untimed(|ftl| ftl.give_up(*lpn))
                .map_err(|error| OpenError::BeyondRepair(error.to_string()))?;
        }

        // Last: until the device is repaired, the old file has its configuration.
        if file.damage().is_some() {
            write_config(dir, device.config()).map_err(ImageError::from)?;
        }

        device.close().map_err(ImageError::from)?;
        Ok((check, Some(kept)))
    }
}

/// Metadata pages with a wrong checksum in superblocks that the firmware needs.
pub(crate) fn suspects(dir: &Path, config: &DeviceConfig) -> Result<Vec<FileDamage>, OpenError> {
    let found: FoundFolder = Media::weigh_folder(dir)?;
    let suspects = found.suspects().to_vec();

    // Which superblocks are live is known after recovery, on a copy.
    let (device, _) = match Device::recover(found.into_copy(), config.clone()) {
        Ok(recovered) => recovered,
        // Recovery is impossible without one of them.
        Err(OpenError::Recovery(_)) => {
            let geometry = &config.geometry;
            return Ok(suspects
                .into_iter()
                .map(|ppn| metadata(geometry, ppn))
                .collect());
        }
        Err(error) => return Err(error),
    };

    let geometry = &config.geometry;
    Ok(live(device.ftl(), &suspects)
        .map(|ppn| metadata(geometry, ppn))
        .collect())
}

/// Suspects that are still torn, in superblocks that are not free: recovery frees dead superblocks.
fn live(ftl: &Ftl, suspects: &[Ppn]) -> impl Iterator<Item = Ppn> {
    let (media, geometry) = (ftl.media(), ftl.media().geometry());
    let needed = |ppn: &&Ppn| {
        let sb = geometry.superblock(**ppn);
        let state = ftl
            .superblocks()
            .find(|(id, _)| *id == sb)
            .map(|(_, entry)| entry.state);
        media.is_programmed(**ppn)
            && !media.is_readable(**ppn)
            && !matches!(
                state,
                Some(SuperblockState::Free | SuperblockState::Retired) | None
            )
    };

    suspects
        .iter()
        .filter(needed)
        .copied()
        .collect::<Vec<_>>()
        .into_iter()
}

/// Offset of a flash page in the file of contents.
fn offset_of(geometry: &Geometry, ppn: Ppn) -> u64 {
    u64::from(ppn.0) * geometry.page_bytes() as u64
}

fn metadata(geometry: &Geometry, ppn: Ppn) -> FileDamage {
    FileDamage {
        file: "contents".into(),
        offset: offset_of(geometry, ppn),
        what: "a page of metadata does not have its checksum".into(),
        lost: "what it says of other pages: some may be older than they were, or lost".into(),
    }
}

fn read_all(ftl: &mut Ftl, check: &mut FolderCheck) {
    ftl.stop_refreshes();
    let geometry = ftl.media().geometry();
    let unit = geometry.host_pages();
    for lpn in Lpn::range(Lpn::ZERO, ftl.config().lpns) {
        if !ftl.is_mapped(lpn) {
            continue;
        }

        let pages = lpn.0 * unit..(lpn.0 + 1) * unit;
        check.mapped += u64::from(unit);
        match check.mapped_lpns.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => check.mapped_lpns.push(pages.clone()),
        }

        if ftl.find(lpn).is_ok() {
            continue;
        }

        // Already marked as lost by an earlier repair or recovery.
        let media = ftl.media();
        let is_there = |ppn: &Ppn| !media.is_meta(*ppn) && media.is_readable(*ppn);
        let Some(ppn) = ftl.place(lpn).filter(is_there) else {
            check.given_up += u64::from(unit);
            continue;
        };

        check.unreadable.push(lpn);
        let (what, lost) = match unit {
            1 => (
                format!("the page of LPN {lpn} does not have its checksum"),
                format!("LPN {lpn}: it reads as a media error until it is written again"),
            ),
            _ => {
                let lpns = format!("LPNs {} to {}", pages.start, pages.end - 1);
                let lost = format!("{lpns}: they read as media errors until all are written again");
                (
                    format!("the page of {lpns} does not have its checksum"),
                    lost,
                )
            }
        };
        check.damage.push(FileDamage {
            file: "contents".into(),
            offset: offset_of(&geometry, ppn),
            what,
            lost,
        });
    }
}

/// Copies all files except the contents into a new folder within `dir`.
fn keep_copies(dir: &Path) -> io::Result<PathBuf> {
    let name = |number: u32| dir.join(format!("before-repair-{number}"));

    let free = (1..)
        .map(name)
        .find(|path| !path.exists())
        .expect("some number is free");
    std::fs::create_dir(&free)?;

    // Without the contents: a repair never writes them, and they are nearly all of the device.
    for file in [
        CONFIG,
        "service.json",
        "health.json",
        "reservations.json",
        "state.0",
        "state.1",
        "journal.0",
        "journal.1",
    ] {
        match std::fs::copy(dir.join(file), free.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                // A partial copy could be mistaken for a complete one.
                let _ = std::fs::remove_dir_all(&free);
                return Err(io::Error::new(
                    error.kind(),
                    format!("{file}: a copy of it cannot be kept: {error}"),
                ));
            }
            Ok(_) => {}
        }
    }

    Ok(free)
}
