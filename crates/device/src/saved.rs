//! A device in a file: its persistent state, and its configuration.
//!
//! Loading is a power-on: recovery rebuilds the tables from the media, and time restarts.
//! Invariant: a saved device reads back under every scheme; schemes that cannot guarantee this are
//! refused. Absent: the file's format (the media's), and counters, which start at zero.

use crate::config::{DeviceConfig, DeviceConfigError};
use crate::device::Device;
use remap_ssd_ftl::{Ftl, RecoveryError, RecoveryReport};
use remap_ssd_media::Media;
use remap_ssd_media::image_file::{self, ImageError};
use std::path::Path;

/// Why a device cannot be powered on or saved.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The image's tables are inconsistent.
    #[error("the image is inconsistent: {0}")]
    Contradiction(String),
    /// The file cannot be read or written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The saved configuration is invalid.
    #[error(transparent)]
    Config(#[from] DeviceConfigError),
    /// The media cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The configuration in the image is not text.
    #[error("the image holds no readable configuration")]
    NotText,
    /// A folder's files store OOBs without the extension.
    #[error(
        "scheme `{0}` names second owners in OOBs, for which a device's folder has no room: use an image"
    )]
    NoSecondOwners(&'static str),
    /// The scheme's remaps do not survive power loss.
    #[error("scheme `{0}` keeps its remaps in DRAM: an image would lose them")]
    NotDurable(&'static str),
    /// A device in a folder is for use: it must store real bytes.
    #[error("a device in a folder holds real bytes: content must be \"bytes\"")]
    NotBytes,
    /// The folder is not empty, and existing files are never overwritten.
    #[error("the folder is not empty")]
    NotEmpty,
}

impl Device {
    /// Writes the device to a file, replacing it atomically.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, Lpn, Page, Payload};
    /// # let scratch = tempfile::tempdir()?;
    /// # let file = scratch.path().join("aged.img");
    /// let config = DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?;
    /// let mut device = Device::format(config)?;
    /// device.write(0, Lpn(7), &Payload::Identity(42)).result?;
    /// device.save(&file)?;
    ///
    /// let (mut device, report) = Device::load(&file)?;
    /// assert_eq!(report.mapped, 1);
    /// assert_eq!(device.read(0, Lpn(7)).1?, Page::Identity(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system's reason, or the scheme's remaps do not survive power loss.
    pub fn save(&self, path: &Path) -> Result<(), OpenError> {
        let scheme = self.config().firmware.scheme;
        if !scheme.is_durable() {
            return Err(OpenError::NotDurable(scheme.name()));
        }
        let image = self.ftl().media().to_image();
        Ok(image_file::save(
            path,
            &image,
            self.config().to_toml().as_bytes(),
        )?)
    }

    /// Powers on the device in a file.
    ///
    /// # Errors
    /// The file holds no device, or one that cannot be recovered.
    pub fn load(path: &Path) -> Result<(Self, RecoveryReport), OpenError> {
        let (image, config) = image_file::load(path)?;
        let text = String::from_utf8(config).map_err(|_| OpenError::NotText)?;
        let config = DeviceConfig::from_toml(&text)?;
        let (mut device, report) = Self::recover(Media::from_image(&image), config)?;

        // Images hold no fingerprints: they are recomputed from the pages.
        device.untimed(Ftl::relearn_bytes);

        // An image may come from anywhere: its tables are checked before use.
        device.ftl().check().map_err(OpenError::Contradiction)?;
        Ok((device, report))
    }
}
