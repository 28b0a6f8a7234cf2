//! Reads the configuration of a device from a TOML file, and changes single values of one.
//!
//! Invariants: an unknown key is an error; an error lists all invalid keys at once, with their
//! lines. Absent: the keys (`keys`), presets (`preset`), the effect of a factor (`scale`).

use crate::config::{DeviceConfig, DeviceConfigError};
use crate::factor::parse_scale;
use crate::keys::{self, KEYS, KeyProblem};
use crate::preset::PRESETS;
use crate::problems::listed;
use crate::setting::Setting;
use serde_json::{Map, Value};
use toml::Table;
use toml::de::{DeTable, DeValue};

/// A device file that has been read.
#[derive(Clone, Debug)]
pub struct DeviceFile {
    /// The device, at the file's scale.
    pub config: DeviceConfig,
    /// The file's scale: 1 without the key, and at least that of blocks of one word line.
    pub scale: f64,
    /// What the author of the file may have overlooked.
    pub note: Option<String>,
}

impl DeviceFile {
    /// Reads a device file and checks it.
    ///
    /// # Errors
    /// The file cannot be parsed, or the device cannot work: one sentence, or a line for each
    /// invalid key.
    pub fn read(text: &str) -> Result<Self, DeviceConfigError> {
        let given: Table = text.parse().map_err(|error| sentence(&error, text))?;
        let given = serde_json::to_value(given).expect("every TOML table has a JSON form");
        Self::from_given(given, &|path| line_of(text, path))
    }
}

impl DeviceConfig {
    /// Reads a device file and checks it.
    ///
    /// # Errors
    /// Those of [`DeviceFile::read`].
    pub fn from_toml(text: &str) -> Result<Self, DeviceConfigError> {
        DeviceFile::read(text).map(|file| file.config)
    }

    /// A note if this device has more flash than `base`, from which it has its logical size.
    pub fn keeps_size_of(&self, base: &Self) -> Option<String> {
        let (pages, before) = (self.flash_pages(), base.flash_pages());
        let lpns = base.logical_pages();
        if pages <= before || self.logical_pages() != lpns {
            return None;
        }
        let same_share = (u128::from(lpns) * u128::from(pages) / u128::from(before)) as u64;
        let unit = u64::from(self.geometry.host_pages());
        Some(format!(
            "firmware.lpns = {lpns} is that of {}, which has {before} pages of flash; this geometry has {pages}, and all others are spare. \
             Set firmware.lpns = {} for the same share of spare pages",
            base.name,
            same_share / unit * unit
        ))
    }

    /// The same device with some values changed.
    ///
    /// # Errors
    /// The geometry is invalid. The other values are checked by `check`.
    pub fn with(&self, settings: &[Setting]) -> Result<Self, DeviceConfigError> {
        if settings.is_empty() {
            return Ok(self.clone());
        }

        let mut given = Value::Object(Map::new());
        for setting in settings {
            merge(
                &mut given,
                keys::nested(setting.key.path, setting.value.clone()),
            );
        }

        // Names of older files first, so that a mode's keys are compared with values given under
        // any name.
        keys::move_renamed(&mut given);
        keys::expand_mode(&mut given);
        keys::names_spare(&given)
            .and_then(|()| {
                let page_bytes = self.geometry.word_line().page_bytes;
                keys::expand_channel(&mut given, page_bytes.into())
            })
            .map_err(|problem| DeviceConfigError(problem.text))?;

        let mut merged = self.to_value();
        merge(&mut merged, given);
        read(merged)
    }
}

impl DeviceFile {
    fn from_given(
        mut given: Value,
        line: &dyn Fn(&str) -> Option<usize>,
    ) -> Result<Self, DeviceConfigError> {
        // All problems are reported at once, before any value is used.
        let mut wrong = keys::problems(&given);
        let mut take = |name| given.as_object_mut().and_then(|given| given.remove(name));

        // These two belong to the file, not to the device.
        let (preset, scale) = (take("preset"), take("scale"));

        // An unknown preset has been reported.
        let base = preset.as_ref().and_then(Value::as_str);
        let base = base.and_then(|name| DeviceConfig::preset(name).ok());
        let page_bytes = base
            .as_ref()
            .map_or(4096, |base| base.geometry.word_line().page_bytes);
        wrong.extend(keys::expand_channel(&mut given, page_bytes.into()).err());

        // With a preset, missing keys have the preset's values.
        if preset.is_none() {
            wrong.extend(missing(&given, &wrong));
        }
        if !wrong.is_empty() {
            return Err(listed(&wrong, line));
        }

        let (scale, by) = match &scale {
            None => (1.0, String::new()),
            Some(Value::String(text)) => (parse_scale(text)?, text.clone()),
            Some(factor) => (factor.as_f64().unwrap_or(1.0), factor.to_string()),
        };
        let mut merged = match &base {
            Some(base) => base.to_value(),
            None => Value::Object(Map::new()),
        };
        let gives_size = given["firmware"].get("lpns").is_some();
        keys::move_renamed(&mut given);
        keys::expand_mode(&mut given);
        merge(&mut merged, given);

        // Scaled after merging: values in the file refer to the whole device, like a preset's.
        let whole = read(merged)?;
        let is_possible = whole.check().is_ok();
        let note = base
            .filter(|_| !gives_size)
            .and_then(|base| whole.keeps_size_of(&base));
        let least = whole.scale_least();
        let config = whole.scale(scale).map_err(|error| {
            if scale < 1.0 && is_possible && !error.0.starts_with("scale ") {
                DeviceConfigError(format!("{error} (after scaling by {by})"))
            } else {
                error
            }
        })?;
        Ok(Self {
            config,
            scale: scale.max(least),
            note,
        })
    }
}

/// Keys that a file without a preset may omit, besides those of `[firmware]`, `[controller]`, `[timing]`, `[energy]` and `[errors]`.
const OPTIONAL: [&str; 17] = [
    "preset",
    "scale",
    "geometry.superblock_dies",
    "geometry.planes",
    "geometry.page_bytes",
    "geometry.cell_bits",
    "geometry.one_shot",
    "geometry.indirection_bytes",
    "host_ns",
    "link.write_saves_ns",
    "flash.channel_mts",
    "flash.channel_bytes",
    "flash.spare_bytes",
    "flash.flush_ns",
    "flash.slc_read_ns",
    "flash.slc_program_ns",
    "flash.slc_endurance",
];

/// The required keys that are missing in a file without a preset, in one sentence. A misspelt key
/// is not reported again.
fn missing(given: &Value, wrong: &[KeyProblem]) -> Option<KeyProblem> {
    let mut names: Vec<&str> = Vec::new();
    for key in KEYS.iter() {
        let table = key.table();
        let is_optional = OPTIONAL.contains(&key.path)
            || ["controller", "timing", "energy", "errors"].contains(&table);

        let is_meant = wrong.iter().any(|wrong| wrong.meant == Some(key.path));
        let whole = given.get(table);

        let name = match (table, whole) {
            ("", _) if given.get(key.path).is_none() => key.path,
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
            PRESETS[0].name
        ),
        meant: None,
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
