//! The configuration of a device, as in a TOML file.
//!
//! ```toml
//! preset = "fast21-32g"     # optional: everything not said below is the preset's
//! scale = "1/16"            # optional
//! [firmware]
//! scheme = "nlog"
//! ```
//!
//! Without `preset`, every key is required except those of `[firmware]`, which have defaults.
//! Absent: reading files (`device_file`), the keys' ranges and descriptions (`keys`), what a device
//! must satisfy (`problems`), the values given in papers (`preset`), the effect of a factor
//! (`scale`).

use remap_ssd_ftl::Config;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Geometry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The complete configuration of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Name of the device in reports and files.
    pub name: String,
    /// Fraction of the logical pages that workloads address.
    pub addressable: f64,
    /// Requests that a host keeps in flight, unless a run overrides it.
    pub queue_depth: u32,
    /// Host's time before each request, in nanoseconds.
    #[serde(default)]
    pub host_ns: u64,
    /// How data pages are stored.
    pub content: ContentMode,
    /// Shape of the flash array.
    pub geometry: Geometry,
    /// Latencies and endurance of the flash chips.
    pub flash: Flash,
    /// Latencies and endurance of the NVRAM.
    pub nvram: Nvram,
    /// The unit that computes fingerprints.
    pub hash: Hash,
    /// The connection to the host.
    pub link: Link,
    /// The processor that runs the firmware.
    #[serde(default)]
    pub controller: Controller,
    /// Background work of the firmware.
    pub background: Background,
    /// Parameters of the firmware: the table `[firmware]` of files.
    pub firmware: Config,
}

/// Latencies and endurance of flash chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Reading a page, in nanoseconds.
    pub read_ns: u64,
    /// Programming a page, in nanoseconds.
    pub program_ns: u64,
    /// Erasing a block, in nanoseconds.
    pub erase_ns: u64,
    /// Moving a page over its channel; 0 if channels are not modelled.
    pub transfer_ns: u64,
    /// Flushing, in nanoseconds, once everything before it has ended.
    #[serde(default)]
    pub flush_ns: u64,
    /// Program/erase cycles that a block endures: after the last one it keeps its contents and is
    /// not programmed again.
    pub endurance: u64,
}

/// Latencies and endurance of non-volatile memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nvram {
    /// Reading 64 bytes; other amounts in proportion.
    pub read_ns: u64,
    /// Writing 64 bytes; other amounts in proportion.
    pub write_ns: u64,
    /// Writes that a word endures.
    pub endurance: u64,
}

/// The unit that computes fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// Time from a page's arrival to its fingerprint, in nanoseconds.
    pub latency_ns: u64,
    /// Time from one page's start to the next one's.
    pub interval_ns: u64,
}

/// The connection to the host; each direction has its own bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bandwidth of each direction; 0 is unlimited.
    pub mib_s: u64,
    /// Fixed cost of a command; it does not occupy the link.
    pub command_ns: u64,
}

/// The processor that runs the firmware: each of its cores executes one command after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Controller {
    /// Time for a command, in nanoseconds.
    pub firmware_ns: u64,
    /// Additional time for each page that it transfers or remaps, in nanoseconds.
    pub page_ns: u64,
    /// Number of cores.
    pub cores: u32,
}

impl Default for Controller {
    /// A firmware that takes no time.
    fn default() -> Self {
        Self {
            firmware_ns: 0,
            page_ns: 0,
            cores: 1,
        }
    }
}

/// Background work of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// All dies stall while the owners of a victim's pages are looked up.
    pub lookup_stalls_dies: bool,
    /// Idle time after which the device starts collecting garbage ahead of need.
    pub idle_after_ns: u64,
}

/// Why a configuration is invalid, in one or several sentences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceConfigError(pub String);

/// Parameters of the timing model, ready for use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latencies {
    /// Reading a page inside its die.
    pub flash_read_ns: u64,
    /// Programming a page inside its die.
    pub flash_program_ns: u64,
    /// Erasing a block, in nanoseconds.
    pub erase_ns: u64,
    /// Moving a page over its channel.
    pub transfer_ns: u64,
    /// Flushing, once everything before it has ended.
    pub flush_ns: u64,
    /// Reading 64 bytes of NVRAM.
    pub nvram_read_ns: u64,
    /// Writing 64 bytes of NVRAM.
    pub nvram_write_ns: u64,
    /// Time from a page's arrival to its fingerprint, in nanoseconds.
    pub hash_ns: u64,
    /// Time from one page's start to the next one's.
    pub hash_interval_ns: u64,
    /// Moving a page over the link.
    pub link_page_ns: u64,
    /// Fixed cost of a command.
    pub link_command_ns: u64,
    /// The processor that runs the firmware.
    pub controller: Controller,
    /// True if lookups of owners stall the dies.
    pub lookup_stalls_dies: bool,
}

impl DeviceConfig {
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("every value of a device has a JSON form")
    }

    /// Writes a device file that reads back as the same device.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every value of a device has a TOML form")
    }

    /// The firmware's parameters with the endurance of the flash: a block is not used after its
    /// last cycle.
    pub fn firmware_of_chips(&self) -> Config {
        // An erase count has 21 bits.
        Config {
            pe_limit: self.flash.endurance.min((1 << 21) - 1) as u32,
            ..self.firmware.clone()
        }
    }

    /// Logical pages that workloads address.
    pub fn addressable_lpns(&self) -> u32 {
        ((f64::from(self.firmware.lpns) * self.addressable) as u32)
            .clamp(1, self.firmware.lpns.max(1))
    }

    /// Parameters of the timing model.
    pub fn latencies(&self) -> Latencies {
        // Rounded up: the link is never faster than specified.
        let link_page_ns = match self.link.mib_s {
            0 => 0,
            mib_s => (PAGE_BYTES as u64 * 1_000_000_000).div_ceil(mib_s << 20),
        };

        Latencies {
            flash_read_ns: self.flash.read_ns,
            flash_program_ns: self.flash.program_ns,
            erase_ns: self.flash.erase_ns,
            transfer_ns: self.flash.transfer_ns,
            flush_ns: self.flash.flush_ns,
            nvram_read_ns: self.nvram.read_ns,
            nvram_write_ns: self.nvram.write_ns,
            hash_ns: self.hash.latency_ns,
            hash_interval_ns: self.hash.interval_ns,
            link_page_ns,
            link_command_ns: self.link.command_ns,
            controller: self.controller,
            lookup_stalls_dies: self.background.lookup_stalls_dies,
        }
    }
}
