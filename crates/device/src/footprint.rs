//! Memory that simulating a device takes on the host machine.

use crate::config::DeviceConfig;
use remap_ssd_media::ContentMode;

/// Per flash page: L2P, OOBs, reference counts, and the state that aging keeps of the logical pages
/// it has written.
const BYTES_PER_PAGE: u64 = 16;

impl DeviceConfig {
    /// Approximate memory in bytes of such a device in use: an estimate from measurements, mostly
    /// within a sixth.
    pub fn memory_bytes(&self) -> u64 {
        let content = match self.content {
            ContentMode::None => 0,
            // Identities of larger units are hashes.
            ContentMode::Identity if self.geometry.host_pages() > 1 => 8,
            ContentMode::Identity => 4,
            // Contents are stored as bytes, with a digest.
            ContentMode::Bytes => self.geometry.page_bytes() as u64 + 48,
        };
        self.table_bytes() + u64::from(self.geometry.pages()) * content
    }

    /// The same without contents.
    ///
    /// ```
    /// use remap_ssd_device::{DeviceConfig, SchemeKind};
    ///
    /// let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
    /// assert!(config.table_bytes() < config.memory_bytes() / 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn table_bytes(&self) -> u64 {
        let firmware = &self.firmware;
        let scheme = firmware.scheme.host_bytes_per_page(firmware.dedup);
        let nvram = 8 * firmware.nvram_words(&self.geometry) as u64;
        u64::from(self.geometry.pages()) * (BYTES_PER_PAGE + scheme) + nvram
    }
}
