//! A device in a file: its persistent state, and its configuration.
//!
//! Loading is a power-on: recovery rebuilds the tables from the media, and time restarts.
//! Invariant: a saved device reads back under every scheme; schemes that cannot guarantee this are
//! refused. Absent: the file's format (the media's), and counters, which start at zero.

use crate::config::DeviceConfig;
use crate::device::Device;
use crate::open_error::OpenError;
use remap_ssd_ftl::{Ftl, RecoveryReport};
use remap_ssd_media::{Media, image_file};
use std::path::Path;

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
        device.ftl().check()?;
        Ok((device, report))
    }
}
