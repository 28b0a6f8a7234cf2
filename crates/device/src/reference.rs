//! Documents generated from the table of keys: a reference page, device files with comments, a JSON
//! schema.
//!
//! Invariants: the descriptions are in `keys`, not here; a file with comments reads back as the
//! same device. Absent: reading device files (`device_file`).

use crate::config::{DeviceConfig, Errors};
use crate::keys::{DeviceKey, GC_MODES, KEYS, KeyKind, LATENCY_MAX_NS, NumberRange};
use crate::nand::CellTimes;
use crate::preset::PRESETS;
use remap_ssd_ftl::SchemeKind;
use serde_json::{Map, Value, json};

/// Maximum width of a comment line.
const WIDTH: usize = 100;

/// The schema of device files, for editors with completion and validation (JSON Schema 2020-12).
pub fn schema() -> Value {
    let mut top = Map::new();

    for key in KEYS.iter() {
        // Tables may be nested.
        let mut place = &mut top;
        for name in key.table().split('.').filter(|name| !name.is_empty()) {
            let table = place.entry(name).or_insert_with(
                || json!({ "type": "object", "additionalProperties": false, "properties": {} }),
            );
            place = table["properties"]
                .as_object_mut()
                .expect("it was just made");
        }

        place.insert(key.name().into(), key.schema());
    }

    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A device file of remap-ssd",
        "type": "object",
        "additionalProperties": false,
        "properties": top,
    })
}

impl DeviceKey {
    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            // The largest integer is not a bound.
            KeyKind::Integer(least, u64::MAX) => json!({ "type": "integer", "minimum": least }),
            KeyKind::Integer(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            KeyKind::Number(NumberRange {
                least,
                most,
                above,
                below,
            }) => {
                let low = if above { "exclusiveMinimum" } else { "minimum" };
                let high = if below { "exclusiveMaximum" } else { "maximum" };
                json!({ "type": "number", low: least, high: most })
            }
            KeyKind::Flag => json!({ "type": "boolean" }),
            KeyKind::Choice(names) => json!({ "type": "string", "enum": names() }),
            KeyKind::Text => json!({ "type": "string" }),
            KeyKind::Factor => json!({ "anyOf": [
                { "type": "string" },
                { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
            ] }),
            KeyKind::Rates => json!({
                "type": "array",
                "items": { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
                "maxItems": Errors::RETRIES_MAX,
            }),
            KeyKind::CellTimes => {
                let time = json!({ "type": "integer", "minimum": 1, "maximum": LATENCY_MAX_NS });
                json!({ "anyOf": [
                    time,
                    { "type": "array", "items": time, "minItems": 1, "maxItems": CellTimes::BITS_MAX },
                ] })
            }
        };

        schema["description"] = self.sentence().into();

        if let Some(value) = self.default() {
            schema["default"] = value;
        }

        schema
    }

    /// Its description, with its unit.
    fn sentence(&self) -> String {
        match self.unit {
            "" => self.about.into(),
            unit => format!("{} In {unit}.", self.about),
        }
    }

    /// Its value in the first preset, which is the default of a comparison. `None` if another key's value takes its place.
    pub fn default(&self) -> Option<Value> {
        match self.path {
            "preset" => Some(PRESETS[0].name.into()),
            "scale" => Some(1.into()),
            "flash.channel_bytes" => Some(1.into()),
            "flash.spare_bytes" => Some(0.into()),
            path => value_of(&PRESETS[0].config(), path),
        }
    }
}

/// The value of a key in a device.
fn value_of(config: &DeviceConfig, path: &str) -> Option<Value> {
    let firmware = &config.firmware;

    match path {
        "firmware.gc_mode" => {
            // The mode whose three keys all match; `None` if there is none.
            let is_so = |mode: &&crate::keys::GcMode| {
                (mode.at_once, mode.joins_host, mode.garbage)
                    == (
                        firmware.gc_at_once,
                        firmware.gc_joins_host,
                        firmware.gc_garbage,
                    )
            };
            GC_MODES.iter().find(is_so).map(|mode| mode.name.into())
        }
        // Keys with default values are not written to files.
        "link.write_saves_ns" => Some(config.link.write_saves_ns.into()),
        "firmware.mapping" => Some(firmware.mapping.name().into()),
        "firmware.block_pages" => Some(firmware.block_pages.into()),
        "firmware.extension" => Some(firmware.extension.into()),
        "firmware.gc_choices" => Some(firmware.gc_choices.into()),
        "firmware.die_by_lpn" => Some(firmware.die_by_lpn.into()),
        "firmware.refresh_reads" => Some(firmware.refresh_reads.into()),
        "firmware.mapping_cache_bytes" => Some(firmware.mapping_cache_bytes.into()),
        "firmware.write_buffer_bytes" => Some(firmware.write_buffer_bytes.into()),
        "firmware.untorn_bytes" => Some(firmware.untorn_bytes.into()),
        "firmware.buffered_remaps" => Some(firmware.buffered_remaps.name().into()),
        "firmware.slc_share" => Some(firmware.slc_share.into()),
        "firmware.slc_dynamic" => Some(firmware.slc_dynamic.into()),
        "firmware.slc_fold_free" => Some(firmware.slc_fold_free.into()),
        "firmware.slc_fold_garbage" => Some(firmware.slc_fold_garbage.into()),
        "flash.slc_read_ns" => Some(config.flash.slc_read_ns.into()),
        "flash.slc_program_ns" => Some(config.flash.slc_program_ns.into()),
        "flash.slc_endurance" => Some(config.flash.slc_endurance.into()),
        "firmware.refresh_writes" => Some(firmware.refresh_writes.into()),
        path => {
            if let Some((table, name)) = path.rsplit_once('.')
                && let Some(scheme) = table.strip_prefix("firmware.")
            {
                let scheme: SchemeKind = scheme.parse().ok()?;
                let key = scheme.key(name)?;
                return Some(firmware.scheme_values.get(scheme, key).into());
            }

            let whole = serde_json::to_value(config).expect("every device has a JSON form");
            whole
                .pointer(&format!("/{}", path.replace('.', "/")))
                .cloned()
                .or_else(|| left_out(path))
        }
    }
}

/// The value of a key of the geometry or the firmware that is not written if it has this value.
fn left_out(path: &str) -> Option<Value> {
    match path {
        // 0 stands for all dies.
        "geometry.superblock_dies" => Some(0.into()),
        "geometry.planes" | "geometry.cell_bits" => Some(1.into()),
        "geometry.page_bytes" | "geometry.indirection_bytes" => Some(4096.into()),
        "geometry.one_shot" | "firmware.power_loss_protection" => Some(true.into()),
        _ => None,
    }
}

/// The key whose value a key has that is absent: limits of erases are named after those of programs.
fn stands_for(path: &str) -> Option<String> {
    path.starts_with("timing.erase_susp")
        .then(|| path.replace("erase_", ""))
}

/// A device file with a comment above each key.
pub fn commented(config: &DeviceConfig) -> String {
    let mut text = String::from(
        "# A device of remap-ssd. Keys that are left out are those of a preset, if the file names one:\n\
         #   preset = \"fast21-32g\"\n",
    );

    let has_mode = value_of(config, "firmware.gc_mode").is_some();
    let mut table = "";

    for key in KEYS.iter() {
        // Either the mode or its three keys, which are redundant.
        let is_part = ["gc_garbage", "gc_at_once", "gc_joins_host"].contains(&key.name());
        let own = value_of(config, key.path).filter(|_| !(is_part && has_mode));
        // One that another key stands for is shown with that key's value, and stays absent.
        let (value, absent) = match (own, stands_for(key.path)) {
            (Some(value), _) => (value, ""),
            (None, Some(other)) => match value_of(config, &other) {
                Some(value) => (value, "# "),
                None => continue,
            },
            (None, None) => continue,
        };

        if key.table() != table {
            table = key.table();
            text.push_str(&format!("\n[{table}]\n"));
        }

        let about = format!("{} ({})", key.about, key.range());
        for line in wrapped(&about, WIDTH - 2) {
            text.push_str(&format!("# {line}\n"));
        }

        text.push_str(&format!(
            "{absent}{} = {}\n",
            key.name(),
            literal(key, &value)
        ));
    }

    text
}

/// A value in TOML syntax.
fn literal(key: &DeviceKey, value: &Value) -> String {
    match (key.kind, value) {
        (_, Value::String(text)) => toml::Value::String(text.clone()).to_string(),
        (KeyKind::Number(_), value) => {
            toml::Value::Float(value.as_f64().unwrap_or_default()).to_string()
        }
        (_, value) => value.to_string(),
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");

        // A word longer than a line gets its own line.
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Text of the reference page, `docs/configuration.md`.
pub fn page() -> String {
    let mut text = String::from(PAGE);
    let mut table = None;
    for key in KEYS.iter() {
        if table != Some(key.table()) {
            table = Some(key.table());
            let (title, about) = match key.table() {
                "" => ("The file".to_owned(), "At the top, before any table."),
                table => (format!("`[{table}]`"), about_table(table)),
            };
            text.push_str(&format!(
                "\n## {title}\n\n{about}\n\n| key | default | range | |\n| --- | --- | --- | --- |\n"
            ));
        }

        let default = match key.default() {
            Some(Value::String(text)) => format!("`\"{text}\"`"),
            Some(value) => format!("`{value}`"),
            None => match stands_for(key.path) {
                Some(other) => format!("that of `{}`", other.replace("timing.", "")),
                None => "none".into(),
            },
        };

        let flag = match key.flag {
            "" => String::new(),
            flag => format!(" Option `{flag}`."),
        };

        // An unescaped bar would end the table's cell.
        text.push_str(&format!(
            "| `{}` | {default} | {} | {}{flag} |\n",
            key.name(),
            key.range().replace('|', "\\|"),
            key.about
        ));
    }

    text.push_str("\n## The modes of `gc_mode`\n\n| mode | `gc_at_once` | `gc_joins_host` | `gc_garbage` | |\n");
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for mode in GC_MODES {
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} |\n",
            mode.name, mode.at_once, mode.joins_host, mode.garbage, mode.about
        ));
    }
    text
}

fn about_table(table: &str) -> &'static str {
    match table {
        "geometry" => "The shape of the flash array.",
        "flash" => "The flash chips.",
        "nvram" => "Non-volatile memory beside the flash.",
        "hash" => "The unit that computes fingerprints.",
        "link" => "The connection to the host.",
        "controller" => "The processor that runs the firmware, which takes no time by default.",
        "background" => "When the firmware works for itself.",
        "timing" => "The model of time: two of them, of which only one is used.",
        "energy" => "Energy of flash operations, for the energy of a run.",
        "errors" => {
            "Bit errors of flash and the time that their correction takes, with `timing.engine = \"nand\"`. There are none by default."
        }
        "firmware" => "Every key has a default, without a preset too.",
        // The table of a scheme.
        _ => {
            "Of this scheme alone. Older files have these keys in `[firmware]`, which still works."
        }
    }
}

const PAGE: &str = "\
# Configuration

<!-- Generated from crates/device/src/keys.rs: UPDATE_DOCS=1 cargo test -p remap-ssd-device --test reference -->

A device is described by a TOML file, by options of the command line, or by single values:

<!-- smaller: compare --scale 1/256 -->
```sh
remap-ssd presets --toml fast21-32g > device.toml          # every key, with comments
remap-ssd presets --schema > device.schema.json            # for editors that complete and check TOML
remap-ssd compare --config device.toml
remap-ssd compare --preset coldmap-16g --set firmware.gc_mode=background --set flash.read_ns=40_000
```

A file may name a preset and say only what differs:

```toml
#:schema ./device.schema.json
preset = \"fast21-32g\"
scale = \"1/16\"
[firmware]
scheme = \"nlog\"
```

`--set KEY=VALUE` takes any key below, with its table's name and a dot (`--set firmware.gc_free=0.1`), and may be repeated. It comes
after the preset or the file and after other options, and before `--scale`. `compare`, `image create` and `serve --memory` have it.

All that is wrong is said at once, with line numbers for a file. The default is the value of the preset `fast21-32g`, which
`compare` takes unless told otherwise.
";
