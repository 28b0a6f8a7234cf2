//! What a device is made of, as a TOML file says it.
//!
//! ```toml
//! preset = "fast21-32g"     # optional: everything not said below is the preset's
//! scale = "1/16"            # optional
//! [firmware]
//! scheme = "nlog"
//! ```
//!
//! Without `preset`, every key must be there but those of `[firmware]`, which have defaults.
//! Invariants: a key that means nothing is an error; a checked config can be formatted; an error is one
//! sentence. Absent: which values a paper gave (`preset`), what a factor changes (`scale`).

use crate::preset::preset;
use crate::scale::parse_scale;
use remap_ssd_ftl::Config;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Geometry};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Everything that makes a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// What to call it.
    pub name: String,
    /// Share of the logical pages that workloads address.
    pub addressable: f64,
    /// Requests a host keeps in flight, where a run does not say otherwise.
    pub queue_depth: u32,
    /// How data pages are stored.
    pub content: ContentMode,
    /// Shape of the flash array.
    pub geometry: Geometry,
    /// Flash chips.
    pub flash: Flash,
    /// Non-volatile memory.
    pub nvram: Nvram,
    /// The unit that computes fingerprints.
    pub hash: Hash,
    /// The connection to the host.
    pub link: Link,
    /// When the firmware works for itself.
    pub background: Background,
    /// Firmware parameters.
    pub firmware: Config,
}

/// Flash chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Reading a page.
    pub read_ns: u64,
    /// Programming a page.
    pub program_ns: u64,
    /// Erasing a block.
    pub erase_ns: u64,
    /// Moving a page over its channel; 0 if channels are not modelled.
    pub transfer_ns: u64,
    /// Program/erase cycles a block endures: what it holds in its last one it keeps, and takes no more.
    pub endurance: u64,
}

/// Non-volatile memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nvram {
    /// Reading 64 bytes; other amounts in proportion.
    pub read_ns: u64,
    /// Writing 64 bytes; other amounts in proportion.
    pub write_ns: u64,
    /// Writes a word endures.
    pub endurance: u64,
}

/// The unit that computes fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// From page to fingerprint.
    pub latency_ns: u64,
    /// From one page's start to the next one's.
    pub interval_ns: u64,
}

/// The connection to the host; each direction has its own bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bandwidth of each direction; 0 is unlimited.
    pub mib_s: u64,
    /// Fixed cost of a command, not occupying the link.
    pub command_ns: u64,
}

/// When the firmware works for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// All dies stand still while the owners of a victim's pages are looked up.
    pub lookup_stalls_dies: bool,
    /// Idle for this long, the device starts collecting garbage ahead of need.
    pub idle_after_ns: u64,
}

/// Invalid device configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceConfigError(pub String);

/// What the timing model needs of it, ready to add up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latencies {
    /// Reading a page inside its die.
    pub flash_read_ns: u64,
    /// Programming a page inside its die.
    pub flash_program_ns: u64,
    /// Erasing a block.
    pub erase_ns: u64,
    /// Moving a page over its channel.
    pub transfer_ns: u64,
    /// Reading 64 bytes of NVRAM.
    pub nvram_read_ns: u64,
    /// Writing 64 bytes of NVRAM.
    pub nvram_write_ns: u64,
    /// From page to fingerprint.
    pub hash_ns: u64,
    /// From one page's start to the next one's.
    pub hash_interval_ns: u64,
    /// Moving a page over the link.
    pub link_page_ns: u64,
    /// Fixed cost of a command.
    pub link_command_ns: u64,
    /// Do lookups of owners stall the dies?
    pub lookup_stalls_dies: bool,
}

impl DeviceConfig {
    /// A preset by its name.
    ///
    /// # Errors
    /// Lists the names there are.
    pub fn preset(name: &str) -> Result<Self, DeviceConfigError> {
        Ok(preset(name)?.config())
    }

    /// Reads a device file and checks it.
    ///
    /// # Errors
    /// One sentence: what cannot be read or cannot work.
    pub fn from_toml(text: &str) -> Result<Self, DeviceConfigError> {
        let mut said: Table = text.parse().map_err(|error| sentence(&error, text))?;
        let wrong_type =
            |key: &str, want: &str| DeviceConfigError(format!("`{key}` must be {want}"));
        let base = match said.remove("preset") {
            None => None,
            Some(Value::String(name)) => Some(Self::preset(&name)?),
            Some(_) => return Err(wrong_type("preset", "the name of a preset")),
        };
        let scale = match said.remove("scale") {
            None => 1.0,
            Some(Value::String(text)) => parse_scale(&text)?,
            Some(Value::Float(factor)) => factor,
            Some(Value::Integer(factor)) => factor as f64,
            Some(_) => {
                return Err(wrong_type(
                    "scale",
                    "a number or a fraction such as \"1/16\"",
                ));
            }
        };
        let config: Self = match base {
            // Where nothing is merged, an error can name its line.
            None if scale == 1.0 && !text.contains("scale") => {
                toml::from_str(text).map_err(|error| sentence(&error, text))?
            }
            None => said.try_into().map_err(|error| sentence(&error, ""))?,
            Some(base) => {
                let mut merged = Table::try_from(&base).expect("a preset can be written as TOML");
                merge(&mut merged, said);
                merged.try_into().map_err(|error| sentence(&error, ""))?
            }
        };
        config.scale(scale)
    }

    /// Writes a device file that reads back as the same device.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every value of a device has a TOML form")
    }

    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// One sentence: what cannot work and what would.
    pub fn check(&self) -> Result<(), DeviceConfigError> {
        let fail = |text: String| Err(DeviceConfigError(text));
        if !(self.addressable > 0.0 && self.addressable <= 1.0) {
            return fail(format!(
                "addressable = {} must be above 0 and at most 1",
                self.addressable
            ));
        }
        if !(1..=65_535).contains(&self.queue_depth) {
            return fail(format!(
                "queue_depth = {} must be 1 to 65535",
                self.queue_depth
            ));
        }
        let Flash {
            read_ns,
            program_ns,
            erase_ns,
            transfer_ns,
            endurance,
        } = self.flash;
        let times = [
            read_ns,
            program_ns,
            erase_ns,
            transfer_ns,
            self.nvram.read_ns,
            self.nvram.write_ns,
        ];
        let more_times = [
            self.hash.latency_ns,
            self.hash.interval_ns,
            self.link.command_ns,
            self.background.idle_after_ns,
        ];
        if read_ns == 0 || program_ns == 0 || erase_ns == 0 {
            return fail("flash.read_ns, program_ns and erase_ns must be above 0".into());
        }
        if times
            .iter()
            .chain(&more_times)
            .any(|time| *time > LATENCY_MAX_NS)
        {
            return fail(format!(
                "a latency is above {LATENCY_MAX_NS} ns (1000 seconds)"
            ));
        }
        if endurance == 0 || self.nvram.endurance == 0 {
            return fail("flash.endurance and nvram.endurance must be above 0".into());
        }
        if self.firmware.dedup && self.content == ContentMode::None {
            return fail(
                "firmware.dedup compares contents: content must be \"identity\" or \"bytes\""
                    .into(),
            );
        }
        self.firmware
            .check(&self.geometry)
            .map_err(|error| DeviceConfigError(error.to_string()))
    }

    /// The firmware's parameters, with what it knows of the chips: a block is used no more at its last cycle.
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

    /// What the timing model needs.
    pub fn latencies(&self) -> Latencies {
        let link_page_ns = match self.link.mib_s {
            0 => 0,
            mib_s => (PAGE_BYTES as u64 * 1_000_000_000).div_ceil(mib_s << 20),
        };
        Latencies {
            flash_read_ns: self.flash.read_ns,
            flash_program_ns: self.flash.program_ns,
            erase_ns: self.flash.erase_ns,
            transfer_ns: self.flash.transfer_ns,
            nvram_read_ns: self.nvram.read_ns,
            nvram_write_ns: self.nvram.write_ns,
            hash_ns: self.hash.latency_ns,
            hash_interval_ns: self.hash.interval_ns,
            link_page_ns,
            link_command_ns: self.link.command_ns,
            lookup_stalls_dies: self.background.lookup_stalls_dies,
        }
    }
}

/// Larger latencies are typing errors, and sums of them could overflow.
const LATENCY_MAX_NS: u64 = 1_000_000_000_000;

/// Lays `over` upon `base`, table by table.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, value),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// What the reader says, on one line, with the number of the line where it is known.
fn sentence(error: &toml::de::Error, text: &str) -> DeviceConfigError {
    let message = error.message().trim().replace('\n', ", ");
    DeviceConfigError(match error.span() {
        Some(span) if !text.is_empty() => {
            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
            format!("line {line}: {message}")
        }
        _ => message,
    })
}
