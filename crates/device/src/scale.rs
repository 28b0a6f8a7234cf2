//! A smaller device that behaves like a given one.
//!
//! The cost of a run grows with the number of flash pages; its results depend on the number of
//! superblocks, the fraction of over-provisioning and the fraction of remapping metadata. So a
//! factor shrinks the blocks, not their number:
//!
//! - pages per block: rounded, at least 1; the resulting factor is used for the rest;
//! - logical pages: in proportion to the *data* pages of a superblock, rounded down, since head and
//!   tail take a larger share of a small one;
//! - files and pages of the file map: in proportion, rounded down, at least 64;
//! - limits of reads and writes before a refresh, and writes that make a day of aging: in proportion, rounded down, at
//!   least 1;
//! - the mapping cache: in proportion to the logical pages, rounded down, at least 4 KiB;
//! - the write buffer: likewise, at least 16 pages;
//! - remapping metadata and slots for deallocations: in proportion, rounded down, the slots at
//!   least 64;
//! - segments: unchanged as long as a superblock's share of the NVRAM is at least 16 of them; below
//!   that the corresponding power of two, at least 256 bytes (or the given size, if smaller); the
//!   metadata is a multiple of it;
//!
//! - tables that fit into the NVRAM still do: they shrink a little less.
//!
//! Latencies, counters, watermarks and the number of dies stay. Invariant: the result has been
//! checked.

use crate::config::{DeviceConfig, DeviceConfigError};
use crate::factor;
use remap_ssd_ftl::Config;
use remap_ssd_media::Geometry;

const DEALLOC_SLOTS_MIN: u32 = 64;
const FS_PLACES_MIN: u32 = 64;
const SEGMENT_BYTES_MIN: u32 = 256;
const CACHE_BYTES_MIN: u64 = 4096;
const BUFFER_PAGES_MIN: u64 = 16;
const SEGMENTS_PER_SUPERBLOCK: u64 = 16;

impl DeviceConfig {
    /// The device at `factor` of its size. 1 changes nothing.
    ///
    /// # Errors
    /// The factor is not above 0 and at most 1, or the scaled device cannot work.
    pub fn scale(mut self, factor: f64) -> Result<Self, DeviceConfigError> {
        if !factor::is_valid(factor) {
            return Err(factor::refuse(factor));
        }
        if factor < 1.0 {
            self.shrink(factor)?;
        }
        self.check()?;
        Ok(self)
    }

    /// The least scale: a block is one word line, or as many as leave a superblock room for data beside
    /// its metadata.
    ///
    /// ```
    /// use remap_ssd_device::DeviceConfig;
    /// let config = DeviceConfig::preset("fast21-32g")?;
    /// // A block of 1,024 pages, each of which is a word line.
    /// assert_eq!(config.scale_least(), 1.0 / 1024.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scale_least(&self) -> f64 {
        let (stripe, whole) = (self.geometry.stripe(), self.geometry.pages_per_block());
        let has_room = |lines: &u32| {
            let small = self.geometry.with_pages_per_block(lines * stripe);
            small.is_ok_and(|small| self.has_room(&small))
        };
        let lines = (1..whole / stripe).find(has_room).unwrap_or(1);
        f64::from(lines * stripe) / f64::from(whole)
    }

    /// Returns true unless superblocks of this geometry are nearly all metadata: with fewer data pages
    /// in addition to head and tail.
    fn has_room(&self, small: &Geometry) -> bool {
        small.pages_per_superblock() >= self.firmware.metadata_pages(small) + 3
    }

    fn shrink(&mut self, factor: f64) -> Result<(), DeviceConfigError> {
        let large = self.geometry;

        if self.firmware.log_bytes < self.firmware.tables_bytes(&large) {
            self.check()?; // The error says what would fit the whole device.
        }

        // Whole word lines.
        let stripe = f64::from(large.stripe());
        let lines = (f64::from(large.pages_per_block()) * factor / stripe).round() as u32;
        let pages_per_block = lines.max(1) * large.stripe();
        let small = large
            .with_pages_per_block(pages_per_block)
            .map_err(|error| DeviceConfigError(error.to_string()))?;

        if !self.has_room(&small) {
            return Err(DeviceConfigError(format!(
                "superblocks of {} pages are too small for their metadata and data",
                small.pages_per_superblock()
            )));
        }

        // Whole pages round the factor; everything else shrinks by the rounded one.
        let used = ScaleRatio {
            part: pages_per_block.into(),
            whole: large.pages_per_block().into(),
        };

        // Independent of the scheme, so that schemes are compared on devices of the same size.
        let any = Config::default();
        let data = ScaleRatio {
            part: any.data_pages(&small).into(),
            whole: any.data_pages(&large).into(),
        };

        let firmware = &mut self.firmware;
        firmware.lpns = data.of(firmware.lpns.into()) as u32;
        firmware.dealloc_slots = (used.of(firmware.dealloc_slots.into()) as u32)
            .max(DEALLOC_SLOTS_MIN.min(firmware.dealloc_slots));

        let reads = used.of(firmware.refresh_reads.into()) as u32;
        firmware.refresh_reads = reads.max(firmware.refresh_reads.min(1));
        let writes = used.of(firmware.refresh_writes);
        firmware.refresh_writes = writes.max(firmware.refresh_writes.min(1));
        let bytes = data.of(firmware.mapping_cache_bytes);
        firmware.mapping_cache_bytes = bytes.max(CACHE_BYTES_MIN.min(firmware.mapping_cache_bytes));
        let least = BUFFER_PAGES_MIN * small.page_bytes() as u64;
        let bytes = data.of(firmware.write_buffer_bytes);
        firmware.write_buffer_bytes = bytes.max(least.min(firmware.write_buffer_bytes));
        let writes = used.of(self.errors.writes_per_day);
        self.errors.writes_per_day = writes.max(self.errors.writes_per_day.min(1));

        for places in [&mut firmware.fs_files, &mut firmware.fs_blocks] {
            *places = (used.of((*places).into()) as u32).max(FS_PLACES_MIN.min(*places));
        }

        let log_bytes = used.of(firmware.log_bytes);
        let share = log_bytes / u64::from(small.superblocks()) / SEGMENTS_PER_SUPERBLOCK;

        let wanted = share
            .max(1)
            .next_power_of_two()
            .min(firmware.segment_bytes.into()) as u32;
        firmware.segment_bytes = wanted.max(SEGMENT_BYTES_MIN.min(firmware.segment_bytes));

        let tables_fit = firmware.log_bytes >= firmware.tables_bytes(&large);
        // Segments of 0 bytes are refused by the final check, if the scheme has segments.
        let rest = log_bytes.checked_rem(firmware.segment_bytes.into());
        firmware.log_bytes = log_bytes - rest.unwrap_or(0);

        // Rounding down must not make a table too large for a device that had room for it.
        if tables_fit {
            firmware.log_bytes = firmware.log_bytes.max(firmware.tables_bytes(&small));
        }

        self.geometry = small;
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct ScaleRatio {
    part: u64,
    whole: u64,
}

impl ScaleRatio {
    fn of(self, value: u64) -> u64 {
        // In 128 bits: bytes of a large log times pages of a block exceed 64.
        (u128::from(value) * u128::from(self.part) / u128::from(self.whole)) as u64
    }
}
