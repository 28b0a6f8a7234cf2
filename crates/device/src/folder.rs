//! A device in a folder: survives the death of the process at any instant, and a crash of the
//! machine up to the last `sync`.
//!
//! ```text
//! device.toml   the configuration and its checksum; written last, so that a folder without it was never finished
//! fingerprints  the fingerprints of deduplication at the last shutdown
//! ...           the media's files
//! ```
//! Absent: the files' format and the order in which they become durable (the media's).

use crate::check;
use crate::config::{DeviceConfig, DeviceConfigError};
use crate::config_file::{CONFIG, CONFIG_ASIDE, ConfigFile, about, write_config};
use crate::device::Device;
use crate::fingerprint_outcome::SavedFingerprints;
use crate::open_error::OpenError;
use remap_ssd_ftl::{Ftl, RecoveryReport};
use remap_ssd_media::folder::{
    FolderCommit, FoundFolder, HistoryPosition, ReplayReport, RestingFolder,
};
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{ContentMode, Media};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Checks that the end of a process leaves word lines as a cut of this device does.
fn keeps_word_lines(config: &DeviceConfig) -> Result<(), OpenError> {
    if config.firmware.power_loss_protection || config.geometry.stripe() == 1 {
        Ok(())
    } else {
        Err(OpenError::Unprotected)
    }
}

impl Device {
    /// Creates a device in a folder that does not exist or is empty, with all the space it will
    /// ever need.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, Lpn, Page, Payload, SchemeKind};
    /// # let scratch = tempfile::tempdir()?;
    /// # let folder = scratch.path().join("disk");
    /// let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
    /// let mut device = Device::create_in_folder(&folder, config, None)?;
    /// device.write(0, Lpn(0), &Payload::Bytes(&[1; 4096])).result?;
    /// device.sync()?; // survives a crash of the machine from here on
    /// device.close()?;
    ///
    /// let (mut device, report) = Device::open_in_folder(&folder)?;
    /// assert_eq!(report.mapped, 1);
    /// assert!(matches!(device.read(0, Lpn(0)).1?, Page::Bytes(_)));
    /// drop(device); // as if the process was killed
    ///
    /// assert!(Device::check_folder(&folder)?.is_clean());
    /// let (_, replaced) = Device::repair_folder(&folder)?;
    /// assert_eq!(replaced, None); // nothing was damaged
    /// assert_eq!(Device::folder_config(&folder)?.firmware.scheme, SchemeKind::RemapSsd);
    /// let (copy, _) = Device::look_into_folder(&folder)?; // the files stay as they are
    /// assert_eq!(copy.ftl().check(), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The configuration cannot work, the folder is not empty, or the system's reason, such as a
    /// full disk; nothing is left behind then.
    pub fn create_in_folder(
        dir: &Path,
        config: DeviceConfig,
        journal_bytes: Option<u64>,
    ) -> Result<Self, OpenError> {
        // Errors are detected before anything is on the disk, where possible.
        config.check()?;
        let firmware = &config.firmware;
        if !firmware.scheme.is_durable() {
            return Err(OpenError::NotDurable(firmware.scheme.name()));
        }
        if firmware.scheme.uses_hints() {
            return Err(OpenError::NoSecondOwners(firmware.scheme.name()));
        }
        if config.content != ContentMode::Bytes {
            return Err(OpenError::NotBytes);
        }
        keeps_word_lines(&config)?;

        let existed = dir.exists();
        std::fs::create_dir_all(dir).map_err(ImageError::from)?;
        if std::fs::read_dir(dir)
            .map_err(ImageError::from)?
            .next()
            .is_some()
        {
            return Err(OpenError::NotEmpty);
        }

        let made = Self::fill_folder(dir, config, journal_bytes);
        // All or nothing: the next attempt would refuse a partial folder as not empty.
        if made.is_err() {
            Self::folder_files(dir)
                .into_iter()
                .for_each(|file| drop(std::fs::remove_file(file)));
            if !existed {
                let _ = std::fs::remove_dir(dir);
            }
        }
        made
    }

    /// All files that `create_in_folder` makes.
    pub fn folder_files(dir: &Path) -> Vec<PathBuf> {
        Media::folder_files(dir)
            .into_iter()
            .chain([dir.join(CONFIG), dir.join(CONFIG_ASIDE)])
            .collect()
    }

    fn fill_folder(
        dir: &Path,
        config: DeviceConfig,
        journal_bytes: Option<u64>,
    ) -> Result<Self, OpenError> {
        let words = config.firmware.nvram_words(&config.geometry);
        let media = Media::create_folder(dir, config.geometry, words, journal_bytes)?;
        let ftl = Ftl::format(media, config.firmware.clone())
            .map_err(|error| DeviceConfigError(error.to_string()))?;
        let mut device = Self::assemble(ftl, config);
        device.dir = Some(dir.to_owned());
        // 1. the device, durable  2. its configuration. A folder without one is incomplete.
        device.sync().map_err(ImageError::from)?;
        write_config(dir, device.config()).map_err(|error| ImageError::from(about(error)))?;
        Ok(device)
    }

    /// Powers on the device in a folder.
    ///
    /// # Errors
    /// The folder holds no device, one in use, a damaged one, or one that cannot be recovered.
    pub fn open_in_folder(dir: &Path) -> Result<(Self, RecoveryReport), OpenError> {
        Self::begin_in_folder(dir, ConfigFile::read(dir)?, |found, _| found.begin())
    }

    /// Like `open_in_folder`, at low cost for programs that open and close often: nothing is
    /// written before the first command, if the folder was left by `close` or `rest`.
    ///
    /// # Errors
    /// As `open_in_folder`.
    pub fn resume_in_folder(dir: &Path) -> Result<(Self, RecoveryReport), OpenError> {
        Self::begin_in_folder(dir, ConfigFile::read(dir)?, |found, config| {
            // Fingerprints belong to a state; the next state must exist before anything changes.
            if config.firmware.dedup {
                found.begin()
            } else {
                found.resume()
            }
        })
    }

    fn begin_in_folder(
        dir: &Path,
        file: ConfigFile,
        begin: impl FnOnce(FoundFolder, &DeviceConfig) -> Result<(Media, ReplayReport), ImageError>,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let config = file.intact()?;
        keeps_word_lines(&config)?;
        let mut found = Media::find_folder(dir, false)?;
        // Only the firmware can tell if these pages matter, and only by recovering a copy.
        if !found.suspects().is_empty() {
            // `found` holds the lock of the folder, which the check opens once more.
            drop(found);
            if let Some(damage) = check::suspects(dir, &config)?.first() {
                return Err(ImageError::from(damage).into());
            }
            found = Media::find_folder(dir, false)?;
        }

        let (media, replayed) = begin(found, &config)?;
        let (mut device, report) = Self::recover(media, config)?;
        device.dir = Some(dir.to_owned());
        device.config_text = Some(file.into_text());
        // Records in the journal mean that no clean shutdown followed this state: the saved
        // fingerprints are out of date.
        device.recall_fingerprints(dir, (replayed.records == 0).then_some(replayed.generation));
        Ok((device, report))
    }

    /// The configuration of the device in a folder; its checksum is not verified.
    ///
    /// # Errors
    /// There is no device, or its configuration makes no sense.
    pub fn folder_config(dir: &Path) -> Result<DeviceConfig, OpenError> {
        ConfigFile::read(dir)?.parse()
    }

    /// Powers on a copy of the device in a folder: the files are not changed by any use of it.
    ///
    /// # Errors
    /// As `open_in_folder`.
    pub fn look_into_folder(dir: &Path) -> Result<(Self, RecoveryReport), OpenError> {
        let config = ConfigFile::read(dir)?.intact()?;
        let (media, _) = Media::look_into_folder(dir)?;
        Self::recover(media, config)
    }

    /// Makes everything acknowledged survive a crash of this machine, except for pages in a volatile write buffer, for which
    /// `flush` comes first. Nothing to do for a device in memory.
    ///
    /// # Errors
    /// The system could not write: nothing may be acknowledged any more.
    pub fn sync(&mut self) -> io::Result<()> {
        self.untimed(|ftl| ftl.media_mut().sync())
    }

    /// Begins a commit: everything acknowledged becomes durable while the device stays in use (see
    /// `remap_ssd_media::folder::FolderCommit`); `None` for a device in memory.
    ///
    /// # Errors
    /// As `sync`.
    pub fn begin_commit(&mut self) -> io::Result<Option<FolderCommit>> {
        self.untimed(|ftl| ftl.media_mut().begin_commit())
    }

    /// The middle step of a commit, after the contents were written.
    ///
    /// # Errors
    /// As `sync`.
    pub fn vouch(&mut self, commit: &mut FolderCommit) -> io::Result<()> {
        self.untimed(|ftl| ftl.media_mut().vouch(commit))
    }

    /// The last step of a commit, with the position up to which everything is durable.
    pub fn finish_commit(&mut self, until: HistoryPosition) {
        self.untimed(|ftl| ftl.media_mut().finish_commit(until));
    }

    /// Reports that a commit could not write: nothing may be acknowledged any more.
    pub fn commit_failed(&mut self, error: &io::Error) {
        self.untimed(|ftl| ftl.media_mut().commit_failed(error));
    }

    /// Opens the file of pages' contents in a folder: writing it out early (`File::sync_data`)
    /// saves the device a wait before an erase. No other use is allowed.
    ///
    /// # Errors
    /// The system's reason.
    pub fn contents_file(dir: &Path) -> io::Result<File> {
        Media::contents_file(dir)
    }

    /// Shuts down cleanly. A failure to save the fingerprints is reported, but is no error: the
    /// pages can be read instead.
    ///
    /// # Errors
    /// As `sync`; or flash takes no more pages, and those in a volatile write buffer are lost.
    pub fn close(mut self) -> io::Result<SavedFingerprints> {
        self.empty_buffer()?;
        // 1. the last state  2. the fingerprints, with that state's generation. Cut before 2: there
        // are none.
        self.untimed(|ftl| ftl.media_mut().tidy())?;
        Ok(self.save_fingerprints())
    }

    /// Shuts down so that the folder can be reopened at low cost (`resume_in_folder`). Everything
    /// is durable; nothing is written if nothing has happened since the last sync.
    ///
    /// # Errors
    /// As `close`.
    pub fn rest(mut self) -> io::Result<()> {
        self.empty_buffer()?;
        // The fingerprints are saved with a state.
        if self.ftl().deduplicates() {
            return self.close().map(drop);
        }
        self.untimed(|ftl| ftl.media_mut().rest())
    }

    /// Like `rest`, and keeps the device's tables in memory, for a process that reopens the folder.
    /// Nothing else is kept: other processes can open the folder in the meantime. `None` for a
    /// device that deduplicates or is read-only, and for one in memory, which ends.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, Lpn, Payload, SchemeKind};
    /// # let scratch = tempfile::tempdir()?;
    /// # let folder = scratch.path().join("disk");
    /// let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
    /// let mut device = Device::create_in_folder(&folder, config, None)?;
    /// device.write(0, Lpn(0), &Payload::Bytes(&[1; 4096])).result?;
    ///
    /// let resting = device.rest_keeping_tables()?.expect("it does not deduplicate");
    /// let mut device = match resting.resume()? {
    ///     Some(device) => device,
    ///     None => Device::resume_in_folder(&folder)?.0, // another process has changed it
    /// };
    /// assert!(device.read(0, Lpn(0)).1.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `close`.
    pub fn rest_keeping_tables(mut self) -> io::Result<Option<RestingDevice>> {
        let Some(dir) = self.dir.clone() else {
            return Ok(None);
        };

        self.empty_buffer()?;

        if self.ftl().deduplicates() {
            self.close()?;
            return Ok(None);
        }

        // Recovery decides anew whether such a device accepts writes.
        if self.ftl().is_read_only() {
            self.rest()?;
            return Ok(None);
        }

        let folder = self.untimed(|ftl| ftl.media_mut().rest_keeping_tables())?;
        Ok(folder.map(|folder| RestingDevice {
            device: self,
            dir,
            folder,
        }))
    }

    /// An orderly end is no power cut: 1. the pages of a volatile write buffer  2. the last state of the folder. Cut before
    /// 2: what was flushed is there.
    fn empty_buffer(&mut self) -> io::Result<()> {
        self.untimed(Ftl::flush).map_err(|refusal| {
            io::Error::other(format!(
                "the write buffer could not be written back: {refusal}"
            ))
        })
    }
}

/// The tables of a device whose folder is closed.
pub struct RestingDevice {
    /// Its media have no contents.
    device: Device,
    dir: PathBuf,
    folder: RestingFolder,
}

impl RestingDevice {
    /// Reopens the folder without reading it; `None` if it has changed or is gone.
    ///
    /// # Errors
    /// The folder is in use.
    pub fn resume(self) -> Result<Option<Device>, OpenError> {
        let Self {
            mut device,
            dir,
            folder,
        } = self;
        // It may have been edited while the device was open, too.
        let is_same =
            ConfigFile::read(&dir).is_ok_and(|found| device.config_text == Some(found.into_text()));
        let is_open =
            is_same && device.untimed(|ftl| ftl.media_mut().resume_with_tables(&dir, folder))?;
        Ok(is_open.then_some(device))
    }

    /// Configuration of the device.
    pub fn config(&self) -> &DeviceConfig {
        self.device.config()
    }
}
