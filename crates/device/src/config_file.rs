//! The configuration file of a device in a folder, and its checksum.
//!
//! Invariant: a crash while the file is written leaves either the old or the new one. Absent: the
//! permitted configurations (`config`).

use crate::config::{DeviceConfig, DeviceConfigError};
use crate::open_error::OpenError;
use remap_ssd_media::folder::{FileDamage, checksum};
use remap_ssd_media::image_file::ImageError;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

pub(crate) const CONFIG: &str = "device.toml";
pub(crate) const CONFIG_ASIDE: &str = "device.toml.part";

/// The configuration file of a folder, as text.
pub(crate) struct ConfigFile {
    text: String,
    damage: Option<FileDamage>,
}

/// Prefix of the last line, a comment in TOML.
const SUM: &str = "# crc32c: ";

impl ConfigFile {
    pub(crate) fn read(dir: &Path) -> Result<Self, OpenError> {
        let text = match std::fs::read_to_string(dir.join(CONFIG)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The folder itself may be missing.
                std::fs::metadata(dir).map_err(ImageError::from)?;
                return Err(ImageError::NoConfig(CONFIG).into());
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let text = format!("{CONFIG}, byte 0: it is not text");
                return Err(ImageError::Damaged(text).into());
            }
            Err(error) => return Err(ImageError::from(about(error)).into()),
        };

        let body = text.trim_end().rfind('\n').map_or(0, |end| end + 1);

        // Earlier versions wrote no checksum.
        let sum = text[body..].trim_end().strip_prefix(SUM);
        let is_whole = sum.is_none_or(|sum| sum == sum_of(&text[..body]));

        let damage = (!is_whole).then(|| FileDamage {
            file: CONFIG.into(),
            offset: 0,
            what: "it does not have the checksum in its last line; after a change on purpose, remove that line".into(),
            lost: "nothing, if what it says is what the device was made with".into(),
        });

        Ok(Self { text, damage })
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    pub(crate) fn damage(&self) -> Option<&FileDamage> {
        self.damage.as_ref()
    }

    pub(crate) fn intact(&self) -> Result<DeviceConfig, OpenError> {
        match &self.damage {
            Some(damage) => Err(ImageError::from(damage).into()),
            None => self.parse(),
        }
    }

    pub(crate) fn parse(&self) -> Result<DeviceConfig, OpenError> {
        let config = DeviceConfig::from_toml(&self.text);
        Ok(config.map_err(|error| DeviceConfigError(format!("{CONFIG}: {error}")))?)
    }
}

fn sum_of(text: &str) -> String {
    format!("{:08x}", checksum(text.as_bytes()))
}

/// Adds the file's name to an I/O error.
pub(crate) fn about(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{CONFIG}: {error}"))
}

/// Replaces the configuration file.
pub(crate) fn write_config(dir: &Path, config: &DeviceConfig) -> io::Result<()> {
    let mut text = config.to_toml();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let sum = sum_of(&text);
    text.extend([SUM, &sum, "\n"]);

    // 1. the temporary file, synced  2. the rename  3. the folder, synced. Cut before 2: the old
    // file, or none.
    let aside = dir.join(CONFIG_ASIDE);
    let mut file = File::create(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&aside, dir.join(CONFIG))?;
    File::open(dir)?.sync_all()
}
