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

pub use crate::config_errors::Errors;
use crate::nand::{CellTimes, NandSpec, SlcSpec, Suspension};
use remap_ssd_ftl::Config;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Geometry};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The complete configuration of a device.
///
/// With a larger indirection unit, `geometry` and `firmware` count such units as their pages; files count pages of 4 KiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
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
    /// The model of time.
    #[serde(default)]
    pub timing: TimingConfig,
    /// Energy of flash operations.
    #[serde(default)]
    pub energy: EnergyConfig,
    /// Bit errors of flash and their correction.
    #[serde(default)]
    pub errors: Errors,
    /// Parameters of the firmware: the table `[firmware]` of files.
    pub firmware: Config,
}

/// Latencies and endurance of flash chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Reading a page, in nanoseconds: one time, or one for each page type.
    pub read_ns: CellTimes,
    /// Programming a page, in nanoseconds: one time, or one for each page type.
    pub program_ns: CellTimes,
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
    /// Reading a flash page in SLC mode inside its die, in nanoseconds.
    #[serde(default = "slc_read_ns", skip_serializing_if = "is_slc_read_ns")]
    pub slc_read_ns: u64,
    /// Programming a flash page on all planes in SLC mode, in nanoseconds.
    #[serde(default = "slc_program_ns", skip_serializing_if = "is_slc_program_ns")]
    pub slc_program_ns: u64,
    /// Program/erase cycles that a block in SLC mode endures.
    #[serde(default = "slc_endurance", skip_serializing_if = "is_slc_endurance")]
    pub slc_endurance: u64,
}

impl Flash {
    /// Time of a read in SLC mode, in nanoseconds: the typical one of HP, "Solid State Drive Technology: Differences between
    /// SLC, MLC and TLC NAND", table 1.
    pub const SLC_READ_NS: u64 = 25_000;
    /// Time of a program, in nanoseconds: the lower bound there, 200 to 300 us.
    pub const SLC_PROGRAM_NS: u64 = 200_000;
    /// Cycles of flash of three bits in SLC mode: the lower bound of Swissbit, "4 reasons to use industrial 3D TLC NAND flash as
    /// pseudo-SLC", 30,000 to 100,000.
    pub const SLC_ENDURANCE: u64 = 30_000;
}

fn slc_read_ns() -> u64 {
    Flash::SLC_READ_NS
}

fn slc_program_ns() -> u64 {
    Flash::SLC_PROGRAM_NS
}

fn slc_endurance() -> u64 {
    Flash::SLC_ENDURANCE
}

fn is_slc_read_ns(time: &u64) -> bool {
    *time == Flash::SLC_READ_NS
}

fn is_slc_program_ns(time: &u64) -> bool {
    *time == Flash::SLC_PROGRAM_NS
}

fn is_slc_endurance(cycles: &u64) -> bool {
    *cycles == Flash::SLC_ENDURANCE
}

/// Which model computes times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimingEngine {
    /// First come, first served, as in the published evaluations.
    #[default]
    Published,
    /// Dies choose: reads first, suspension, page types.
    Nand,
}

impl TimingEngine {
    /// The names in files.
    pub(crate) const NAMES: [&str; 2] = ["published", "nand"];
}

/// The model of time, and what only the engine `nand` uses: the order in which dies work, and the parts of
/// a flash chip's description that the other model lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimingConfig {
    /// The model.
    pub engine: TimingEngine,
    /// A free channel first moves data that was read, and then takes new commands.
    pub data_first: bool,
    /// How much later than a read of the host a host's program may begin that was ready at the same
    /// time, in nanoseconds.
    pub program_patience_ns: u64,
    /// The same for garbage collection.
    pub collection_patience_ns: u64,
    /// The same for the firmware's metadata.
    pub metadata_patience_ns: u64,
    /// Command and address cycles of a read on the channel, in nanoseconds.
    pub read_command_ns: u64,
    /// Those of a program.
    pub program_command_ns: u64,
    /// Those of an erase.
    pub erase_command_ns: u64,
    /// Cycles of a read for each further plane.
    pub read_plane_ns: u64,
    /// Those of a program.
    pub program_plane_ns: u64,
    /// Those of an erase.
    pub erase_plane_ns: u64,
    /// Planes read different flash pages at once, if the reads begin together.
    pub independent_planes: bool,
    /// How much faster the array reads a single page of 4 KiB than a whole flash page, in nanoseconds.
    pub part_saves_ns: u64,
    /// Program units that the controller's buffer holds for each die, if a unit has several pages.
    pub buffer_units: u32,
    /// Word lines are programmed in two steps, a coarse one and a fine one.
    pub two_step: bool,
    /// Pages that a request reads cross the link together, once all are in the controller.
    pub whole_reads: bool,
    /// Dies of a chip, of which only one works at a time.
    pub dies_per_chip: u32,
    /// A die begins its next read while data that it has read wait for the channel, or cross it.
    pub cache_read: bool,
    /// A die takes the data of its next program while it programs.
    pub cache_program: bool,
    /// Moving data between the page register and the cache register, in nanoseconds.
    pub cache_busy_ns: u64,
    /// Copies of a page by garbage collection that may follow each other inside its die, without correction.
    pub copybacks: u8,
    /// Suspending a program or an erase, in nanoseconds.
    pub suspend_ns: u64,
    /// Resuming it, beyond the time that was left.
    pub resume_ns: u64,
    /// An operation with less than this left is not suspended.
    pub suspend_least_ns: u64,
    /// An operation that was resumed works at least this long before it is suspended again, in nanoseconds.
    pub resume_to_suspend_ns: u64,
    /// How often one operation is suspended at most; 0 is never.
    pub suspensions: u32,
    /// Suspending an erase, in nanoseconds, if that differs from `suspend_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_suspend_ns: Option<u64>,
    /// How often one erase is suspended at most, if that differs from `suspensions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_suspensions: Option<u32>,
}

impl Default for TimingConfig {
    /// The published model; for the other one no command cycles, dies on their own, and no suspension.
    fn default() -> Self {
        Self {
            engine: TimingEngine::Published,
            data_first: false,
            // The same for all three: collection frees what the host's programs will need.
            program_patience_ns: 10_000_000,
            collection_patience_ns: 10_000_000,
            metadata_patience_ns: 10_000_000,
            read_command_ns: 0,
            program_command_ns: 0,
            erase_command_ns: 0,
            read_plane_ns: 0,
            program_plane_ns: 0,
            erase_plane_ns: 0,
            independent_planes: false,
            part_saves_ns: 0,
            buffer_units: 2,
            two_step: false,
            whole_reads: false,
            dies_per_chip: 1,
            cache_read: false,
            cache_program: false,
            cache_busy_ns: 0,
            copybacks: 0,
            suspend_ns: 0,
            resume_ns: 0,
            suspend_least_ns: 0,
            resume_to_suspend_ns: 0,
            suspensions: 0,
            erase_suspend_ns: None,
            erase_suspensions: None,
        }
    }
}

/// Energy of flash operations, in nanojoules; 0 if it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnergyConfig {
    /// Reading a page inside its die, in nanojoules.
    pub read_nj: u64,
    /// Programming a page, in nanojoules.
    pub program_nj: u64,
    /// Erasing a block, in nanojoules.
    pub erase_nj: u64,
    /// Moving a page over its channel, in nanojoules.
    pub transfer_nj: u64,
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
    /// How much less a command with data from the host costs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub write_saves_ns: u64,
}

fn is_zero(ns: &u64) -> bool {
    *ns == 0
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
    /// Moving a page over its channel: an indirection unit.
    pub transfer_ns: u64,
    /// Moving 4 KiB of it.
    pub host_page_transfer_ns: u64,
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
    /// That of a command with data from the host.
    pub link_write_ns: u64,
    /// The processor that runs the firmware.
    pub controller: Controller,
    /// True if lookups of owners stall the dies.
    pub lookup_stalls_dies: bool,
}

impl Serialize for DeviceConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let unit = self.geometry.host_pages();
        if unit == 1 {
            return Self::serialize(self, to);
        }
        let value = Self::serialize(self, serde_json::value::Serializer);
        let mut value = value.map_err(serde::ser::Error::custom)?;
        value["firmware"]["lpns"] = self.logical_pages().into();
        value.serialize(to)
    }
}

impl<'de> Deserialize<'de> for DeviceConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(from)?;
        let unit = value["geometry"]["indirection_bytes"].as_u64();
        let unit = unit.unwrap_or(0) / PAGE_BYTES as u64;

        // An invalid unit is the geometry's error.
        if let Some(pages) = value["firmware"]["lpns"].as_u64() {
            let units = pages / unit.max(1);
            if units >= 1 << 31 {
                return Err(serde::de::Error::custom(format!(
                    "firmware.lpns = {pages} is more than 2,147,483,647 indirection units; units may be larger, \
                     see geometry.indirection_bytes"
                )));
            }
            if unit > 1 {
                value["firmware"]["lpns"] = units.into();
            }
        }
        Self::deserialize(value).map_err(serde::de::Error::custom)
    }
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
            slc_pe_limit: self.flash.slc_endurance.min((1 << 21) - 1) as u32,
            ..self.firmware.clone()
        }
    }

    /// Logical pages of 4 KiB that workloads address.
    pub fn addressable_lpns(&self) -> u64 {
        u64::from(self.addressable_units()) * u64::from(self.geometry.host_pages())
    }

    /// Indirection units that workloads address: as many as there are addressable pages, unless the unit is larger than 4 KiB.
    pub fn addressable_units(&self) -> u32 {
        ((f64::from(self.firmware.lpns) * self.addressable) as u32)
            .clamp(1, self.firmware.lpns.max(1))
    }

    /// Logical pages of 4 KiB.
    pub fn logical_pages(&self) -> u64 {
        u64::from(self.firmware.lpns) * u64::from(self.geometry.host_pages())
    }

    /// Logical pages of 4 KiB of a device that hosts use.
    pub fn host_lpns(&self) -> u32 {
        // `check` refuses more of a device that stores bytes.
        u32::try_from(self.logical_pages()).unwrap_or(u32::MAX)
    }

    /// Pages of 4 KiB that the flash has room for.
    pub fn flash_pages(&self) -> u64 {
        u64::from(self.geometry.pages()) * u64::from(self.geometry.host_pages())
    }

    /// Parameters of the timing model.
    pub fn latencies(&self) -> Latencies {
        // Rounded up: the link is never faster than specified.
        let link_page_ns = match self.link.mib_s {
            0 => 0,
            mib_s => (PAGE_BYTES as u64 * 1_000_000_000).div_ceil(mib_s << 20),
        };

        // The pages of a unit pass the hash unit one after the other.
        let unit = u64::from(self.geometry.host_pages());
        let Hash {
            latency_ns,
            interval_ns,
        } = self.hash;

        Latencies {
            flash_read_ns: self.flash.read_ns.mean(),
            flash_program_ns: self.flash.program_ns.mean(),
            erase_ns: self.flash.erase_ns,
            transfer_ns: unit * self.flash.transfer_ns,
            host_page_transfer_ns: self.flash.transfer_ns,
            flush_ns: self.flash.flush_ns,
            nvram_read_ns: self.nvram.read_ns,
            nvram_write_ns: self.nvram.write_ns,
            hash_ns: latency_ns + (unit - 1) * interval_ns,
            hash_interval_ns: unit * interval_ns,
            link_page_ns,
            link_command_ns: self.link.command_ns,
            link_write_ns: self
                .link
                .command_ns
                .saturating_sub(self.link.write_saves_ns),
            controller: self.controller,
            lookup_stalls_dies: self.background.lookup_stalls_dies,
        }
    }

    /// Parameters of the engine `nand`, if the device has it.
    pub(crate) fn nand(&self) -> Option<NandSpec> {
        let Flash {
            read_ns,
            program_ns,
            erase_ns,
            transfer_ns,
            slc_read_ns,
            slc_program_ns,
            ..
        } = self.flash;
        let timing = self.timing;

        (timing.engine == TimingEngine::Nand).then_some(NandSpec {
            read: read_ns,
            program: program_ns,
            two_step: timing.two_step,
            slc: SlcSpec {
                area: self.firmware.slc_area(&self.geometry),
                read_ns: slc_read_ns,
                program_ns: slc_program_ns,
            },
            erase_ns,
            transfer_ns: u64::from(self.geometry.host_pages()) * transfer_ns,
            command_ns: [
                timing.read_command_ns,
                timing.program_command_ns,
                timing.erase_command_ns,
            ],
            plane_ns: [
                timing.read_plane_ns,
                timing.program_plane_ns,
                timing.erase_plane_ns,
            ],
            independent_planes: timing.independent_planes,
            part_saves_ns: timing.part_saves_ns,
            buffer_units: timing.buffer_units,
            protected: self.firmware.power_loss_protection,
            data_first: timing.data_first,
            whole_reads: timing.whole_reads,
            dies_per_chip: timing.dies_per_chip,
            cache_read: timing.cache_read,
            cache_program: timing.cache_program,
            cache_busy_ns: timing.cache_busy_ns,
            copybacks: timing.copybacks,
            suspension: Suspension {
                begin_ns: [
                    timing.suspend_ns,
                    timing.erase_suspend_ns.unwrap_or(timing.suspend_ns),
                ],
                resume_ns: timing.resume_ns,
                least_left_ns: timing.suspend_least_ns,
                least_progress_ns: timing.resume_to_suspend_ns,
                most: [
                    timing.suspensions,
                    timing.erase_suspensions.unwrap_or(timing.suspensions),
                ],
            },
            patience_ns: [
                timing.program_patience_ns,
                timing.collection_patience_ns,
                timing.metadata_patience_ns,
            ],
        })
    }
}
