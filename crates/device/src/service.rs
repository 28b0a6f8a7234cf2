//! A device of a given size for use rather than simulation: real bytes, all logical pages
//! addressable.
//!
//! Latencies are those of `fast21-32g`. All other choices are ours, not a paper's.

use crate::config::{DeviceConfig, DeviceConfigError};
use remap_ssd_ftl::{Config, EntrySize, SchemeKind};
use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::{ContentMode, Geometry};

/// Size of the smallest supported device.
pub const SERVICE_BYTES_MIN: u64 = 16 << 20;
/// Size of the largest: contents are memory-mapped, but the tables are in memory.
pub(crate) const SERVICE_BYTES_MAX: u64 = 4 << 40;
/// Target number of superblocks: enough for victims to differ, few enough to scan.
const SUPERBLOCKS: u64 = 256;
/// A ninth of the flash is over-provisioned, as in FAST'21.
const LOGICAL_PER_SPARE: u64 = 8;
/// NVRAM is the device's size divided by this: copying 1 GiB takes 6 MiB of 24-byte entries, and 2
/// GiB have 10 MiB.
const NVRAM_SHARE: u64 = 200;

impl DeviceConfig {
    /// A device of `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// Invalid size or scheme, in one sentence.
    pub fn for_service(
        bytes: u64,
        scheme: SchemeKind,
        dedup: bool,
    ) -> Result<Self, DeviceConfigError> {
        Self::for_service_with_log(bytes, scheme, dedup, None)
    }

    /// The same with `log_bytes` for remapping metadata, if given.
    ///
    /// ```
    /// use remap_ssd_device::{DeviceConfig, SchemeKind};
    /// let (size, scheme) = (1 << 30, SchemeKind::RemapSsd);
    /// let own = DeviceConfig::for_service(size, scheme, true)?;
    /// let more = DeviceConfig::for_service_with_log(size, scheme, true, Some(16 << 20))?;
    /// assert!(own.firmware.log_bytes < more.firmware.log_bytes);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As above, or `log_bytes` is too small.
    pub fn for_service_with_log(
        bytes: u64,
        scheme: SchemeKind,
        dedup: bool,
        log_bytes: Option<u64>,
    ) -> Result<Self, DeviceConfigError> {
        if !(SERVICE_BYTES_MIN..=SERVICE_BYTES_MAX).contains(&bytes) {
            let (min, max) = (SERVICE_BYTES_MIN >> 20, SERVICE_BYTES_MAX >> 40);
            return Err(DeviceConfigError(format!(
                "a device of {bytes} bytes: {min} MiB to {max} TiB are possible"
            )));
        }

        // Small devices have few dies, so that their superblocks stay small.
        let lpns = bytes.div_ceil(PAGE_BYTES as u64);
        let (channels, dies) = if lpns >= 1 << 18 { (4, 16) } else { (2, 4) };
        let pages_per_block = (lpns / SUPERBLOCKS / u64::from(dies))
            .next_power_of_two()
            .clamp(16, 1024) as u32;

        let mut config = Self::preset("fast21-32g")?;
        config.name = "service".into();
        config.addressable = 1.0;
        config.content = ContentMode::Bytes;

        config.firmware = Config {
            lpns: lpns as u32,
            scheme,
            dedup,
            entry: EntrySize::Bytes24,
            log_bytes: log_bytes.unwrap_or((bytes / NVRAM_SHARE).next_multiple_of(1024)),
            gc_free: 0.02,
            // The largest write that a host can send.
            untorn_bytes: 1 << 20,
            ..Config::default()
        };

        let fits = |superblocks| {
            let mut config = config.clone();

            let shape = Shape {
                channels,
                dies,
                superblocks,
                pages_per_block,
            };
            config.geometry =
                Geometry::new(shape).map_err(|error| DeviceConfigError(error.to_string()))?;

            if log_bytes.is_none() {
                // Some schemes keep whole tables in NVRAM.
                let tables = config.firmware.tables_bytes(&config.geometry);
                config.firmware.log_bytes = config.firmware.log_bytes.max(tables);
            }

            config.check().map(|()| config)
        };

        let pages_per_superblock = u64::from(dies * pages_per_block);
        let least = (lpns + lpns / LOGICAL_PER_SPARE).div_ceil(pages_per_superblock) as u32;

        // Heads, tails, the reserve and a scheme's own superblocks are extra: tries a few more, or
        // returns the error.
        (least..least + least / 4 + 64)
            .step_by(1 + least as usize / 64)
            .map(fits)
            .find(Result::is_ok)
            .unwrap_or_else(|| fits(least * 2))
    }
}
