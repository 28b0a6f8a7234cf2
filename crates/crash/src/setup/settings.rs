//! Settings of a device file, as changes to every setup.
//!
//! Absent: keys that a campaign cannot heed, which its caller refuses.

use super::{Adjust, GeometryAdjust};
use remap_ssd_device::{DeviceConfig, Setting};
use remap_ssd_ftl::{Config, ConfigError};
use remap_ssd_media::WordLine;
use std::sync::Arc;

/// Any device: settings are applied to it, and only its firmware is used.
const DEVICE: &str = "fast21-32g";
/// The only key of another table than `firmware` and `geometry` that has an effect without time.
const ENDURANCE: &str = "flash.endurance";

impl Adjust {
    /// The changes that settings make to a device's firmware and flash array. Keys of other tables
    /// than `firmware` and `geometry` have no effect, except `flash.endurance`.
    pub fn of_settings(settings: Vec<Setting>) -> Self {
        if settings.is_empty() {
            return Self::default();
        }

        let (flash, settings): (Vec<Setting>, Vec<Setting>) = settings
            .into_iter()
            .partition(|one| one.key.table() == "geometry");
        let device = DeviceConfig::preset(DEVICE).expect("it is in the list of presets");
        let wears_out = settings.iter().any(|one| one.key.path == ENDURANCE);

        let firmware = Arc::new(move |config: &Config| {
            // Settings are validated like those of a device file, so that they have the same
            // meaning.
            let device = DeviceConfig {
                firmware: config.clone(),
                ..device.clone()
            };
            let set = device
                .with(&settings)
                .map_err(|error| ConfigError(error.to_string()))?
                .firmware_of_chips();

            // A device file has neither.
            let pe_limit = if wears_out {
                set.pe_limit
            } else {
                config.pe_limit
            };
            Ok(Config {
                pe_limit,
                slc_pe_limit: config.slc_pe_limit,
                guards: config.guards,
                ..set
            })
        });
        Self {
            firmware: Some(firmware),
            geometry: GeometryAdjust::of_settings(&flash),
        }
    }
}

impl GeometryAdjust {
    /// The last of several settings for one key counts, as in the other tables.
    fn of_settings(settings: &[Setting]) -> Self {
        let found = |name: &str| settings.iter().rfind(|one| one.key.name() == name);
        let value = |name: &str| {
            let value = found(name)?.value.as_u64();
            let value = value.expect("a setting is of its key's kind");
            Some(u32::try_from(value).expect("a setting is in its key's range"))
        };
        let word_line = WordLine {
            planes: value("planes").unwrap_or(1),
            page_bytes: value("page_bytes").unwrap_or(WordLine::SINGLE.page_bytes),
            bits: value("cell_bits").unwrap_or(1),
            one_shot: found("one_shot").is_none_or(|one| one.value == true),
            indirection_bytes: value("indirection_bytes")
                .unwrap_or(WordLine::SINGLE.indirection_bytes),
        };
        // Files count pages of 4 KiB, and a setup units.
        let unit = word_line.host_pages().max(1);
        Self {
            dies: value("dies"),
            superblocks: value("superblocks"),
            pages_per_block: value("pages_per_block").map(|pages| pages.div_ceil(unit)),
            superblock_dies: value("superblock_dies"),
            word_line,
        }
    }
}
