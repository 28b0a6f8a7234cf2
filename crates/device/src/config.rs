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
//! Invariants: an unknown key is an error; a checked configuration can be formatted; an error lists
//! all invalid keys at once. Absent: the keys' ranges and descriptions (`keys`), the values given
//! in papers (`preset`), the effect of a factor (`scale`).

use crate::keys::{self, DeviceKey, KEYS, KeyProblem};
use crate::preset::preset;
use crate::scale::parse_scale;
use remap_ssd_ftl::Config;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Geometry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::str::FromStr;
use toml::Table;
use toml::de::{DeTable, DeValue};

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
    /// True if lookups of owners stall the dies.
    pub lookup_stalls_dies: bool,
}

impl DeviceConfig {
    /// A preset by its name.
    ///
    /// # Errors
    /// Lists the known names.
    ///
    /// ```
    /// use remap_ssd_device::{DeviceConfig, Setting, parse_scale};
    /// let preset = DeviceConfig::preset("fast21-32g")?;
    /// let mut config = preset.with(&["firmware.gc_free=0.1".parse::<Setting>()?])?;
    /// config.flash.read_ns = 40_000;
    /// config = config.scale(parse_scale("1/8")?)?;
    /// assert!(config.check().is_ok() && config.addressable_lpns() <= config.firmware.lpns);
    /// assert_eq!(config.latencies().flash_read_ns, 40_000);
    ///
    /// // As a file, and from one.
    /// assert_eq!(DeviceConfig::from_toml(&config.to_toml())?, config);
    /// let error = DeviceConfig::preset("fast21").unwrap_err().to_string();
    /// assert!(error.contains("fast21-256g"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preset(name: &str) -> Result<Self, DeviceConfigError> {
        Ok(preset(name)?.config())
    }

    /// Reads a device file and checks it.
    ///
    /// # Errors
    /// The file cannot be parsed, or the device cannot work: one sentence, or a line for each
    /// invalid key.
    pub fn from_toml(text: &str) -> Result<Self, DeviceConfigError> {
        let said: Table = text.parse().map_err(|error| sentence(&error, text))?;
        let said = serde_json::to_value(said).expect("every TOML table has a JSON form");
        Self::from_said(said, &|path| line_of(text, path))
    }

    /// The same device with some values changed.
    ///
    /// # Errors
    /// The geometry is invalid. The other values are checked by `check`.
    pub fn with(&self, settings: &[Setting]) -> Result<Self, DeviceConfigError> {
        if settings.is_empty() {
            return Ok(self.clone());
        }
        let mut said = Value::Object(Map::new());
        for setting in settings {
            merge(
                &mut said,
                keys::nested(setting.key.path, setting.value.clone()),
            );
        }
        // Names of older files first, so that a mode's keys are compared with values given under
        // any name.
        keys::move_renamed(&mut said);
        keys::expand_mode(&mut said);
        let mut merged = self.to_value();
        merge(&mut merged, said);
        read(merged)
    }

    fn from_said(
        mut said: Value,
        line: &dyn Fn(&str) -> Option<usize>,
    ) -> Result<Self, DeviceConfigError> {
        // All problems are reported at once, before any value is used.
        let mut wrong = keys::problems(&said);
        let mut take = |name| said.as_object_mut().and_then(|said| said.remove(name));

        // These two belong to the file, not to the device.
        let (preset, scale) = (take("preset"), take("scale"));

        // With a preset, missing keys have the preset's values.
        if preset.is_none() {
            wrong.extend(missing(&said, &wrong));
        }
        if !wrong.is_empty() {
            return Err(listed(&wrong, line));
        }

        let scale = match &scale {
            None => 1.0,
            Some(Value::String(text)) => parse_scale(text)?,
            Some(factor) => factor.as_f64().unwrap_or(1.0),
        };
        let mut merged = match preset.as_ref().and_then(Value::as_str) {
            Some(name) => Self::preset(name)?.to_value(),
            None => Value::Object(Map::new()),
        };
        keys::move_renamed(&mut said);
        keys::expand_mode(&mut said);
        merge(&mut merged, said);
        // Scaled after merging: values in the file refer to the whole device, like a preset's.
        read(merged)?.scale(scale)
    }

    fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("every value of a device has a JSON form")
    }

    /// Writes a device file that reads back as the same device.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every value of a device has a TOML form")
    }

    /// Checks each value, and that they are consistent.
    ///
    /// # Errors
    /// The problem and what would work: one sentence, or a line for each invalid value.
    pub fn check(&self) -> Result<(), DeviceConfigError> {
        let mut wrong = keys::problems(&self.to_value());

        if self.firmware.dedup && self.content == ContentMode::None {
            wrong.push(KeyProblem {
                path: "content".into(),
                text: "firmware.dedup compares contents: content must be \"identity\" or \"bytes\""
                    .into(),
                meant: None,
            });
        }

        // It adds values up, so each must be valid.
        if wrong.is_empty()
            && let Err(error) = self.firmware.check(&self.geometry)
        {
            return Err(DeviceConfigError(error.to_string()));
        }

        if wrong.is_empty() {
            Ok(())
        } else {
            Err(listed(&wrong, &|_| None))
        }
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

/// One value of a device as given on a command line: `firmware.gc_free=0.1`.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key that is set.
    pub key: &'static DeviceKey,
    /// Its new value.
    pub value: Value,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not KEY=VALUE, such as firmware.gc_free=0.1"))?;

        let key = match keys::find(path.trim()) {
            // A setting changes an existing device; these two keys select it.
            Some(key) if ["preset", "scale"].contains(&key.path) => {
                return Err(format!("use {} instead", key.flag));
            }
            Some(key) => key,
            None => {
                // The error that a file with this key would get: it names the key that was probably
                // meant.
                let said = keys::nested(path.trim(), Value::Null);
                let wrong = keys::problems(&said);
                return Err(wrong.first().map_or_else(
                    || format!("`{path}` is a table: name one of its keys"),
                    |wrong| wrong.text.clone(),
                ));
            }
        };

        let value = key.value(value.trim());

        match key.problem(&value) {
            Some(problem) => Err(problem.text),
            None => Ok(Self { key, value }),
        }
    }
}

/// The required keys that are missing in a file without a preset, in one sentence. A misspelt key
/// is not reported again.
fn missing(said: &Value, wrong: &[KeyProblem]) -> Option<KeyProblem> {
    let mut names: Vec<&str> = Vec::new();
    for key in KEYS.iter() {
        let (table, is_optional) = (
            key.table(),
            ["preset", "scale", "geometry.superblock_dies"].contains(&key.path),
        );

        let is_meant = wrong.iter().any(|wrong| wrong.meant == Some(key.path));
        let whole = said.get(table);

        let name = match (table, whole) {
            ("", _) if said.get(key.path).is_none() => key.path,
            ("", _) => continue,
            (table, _) if table.starts_with("firmware.") => continue,
            (table, None) => table,
            // Keys of the firmware and of the schemes' tables have defaults.
            ("firmware", Some(_)) => continue,

            (_, Some(whole)) if whole.get(key.name()).is_none() => key.path,
            _ => continue,
        };

        if !is_optional && !is_meant && !names.contains(&name) {
            names.push(name);
        }
    }

    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let (first, fields) = (
        names.first()?,
        if names.len() == 1 { "field" } else { "fields" },
    );

    Some(KeyProblem {
        path: (*first).to_owned(),
        text: format!(
            "missing {fields} {}: say what they are, or name a preset to begin with (preset = \"{}\")",
            quoted.join(", "),
            crate::PRESETS[0].name
        ),
        meant: None,
    })
}

/// All problems in one error: a sentence if there is one, else a line each.
fn listed(wrong: &[KeyProblem], line: &dyn Fn(&str) -> Option<usize>) -> DeviceConfigError {
    let sentence = |problem: &KeyProblem| match line(&problem.path) {
        Some(line) => format!("line {line}: {}", problem.text),
        None => problem.text.clone(),
    };
    DeviceConfigError(match wrong {
        [one] => sentence(one),
        several => {
            let mut text = format!("{} things are wrong:", several.len());
            let mut several: Vec<&KeyProblem> = several.iter().collect();

            // In file order; problems without a line come last.
            several.sort_by_key(|problem| line(&problem.path).unwrap_or(usize::MAX));
            for problem in several {
                text.push_str(&format!("\n  {}", sentence(problem)));
            }
            text
        }
    })
}

fn read(merged: Value) -> Result<DeviceConfig, DeviceConfigError> {
    serde_json::from_value(merged).map_err(|error| DeviceConfigError(error.to_string()))
}

/// Merges `over` into `base`, table by table.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match base.get_mut(&key) {
                    Some(inner) => merge(inner, value),
                    None => {
                        base.insert(key, value);
                    }
                }
            }
        }

        // A list is replaced as a whole, like a value.
        (base, over) => *base = over,
    }
}

/// The line number of a key.
fn line_of(text: &str, path: &str) -> Option<usize> {
    let parsed = DeTable::parse(text).ok()?;
    let mut table = parsed.get_ref();
    let mut found = None;
    // As deep as the file goes: a missing key is reported at its table's line.
    for name in path.split('.') {
        let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
        found = Some(key.span().start);
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    let before = &text[..found?.min(text.len())];
    Some(before.matches('\n').count() + 1)
}

/// The parser's error on one line, with the line number if it is known.
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
