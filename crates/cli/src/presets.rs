//! `presets`: the predefined devices, their values and assumptions.
//!
//! Invariant: `--toml` prints a device file that parses to the preset. Absent: the values
//! (`remap_ssd_device::preset`).

use crate::failure::Failure;
use crate::manual::preset;
use crate::output::{self, pairs};
use remap_ssd_device::{DeviceConfig, PRESETS, Preset, reference};
use remap_ssd_study::device_rows;
use serde_json::json;

/// Lists the predefined devices with their values and assumptions, or prints one as a device file
/// to start from.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print this preset as a device file for `compare --config`, with a comment for each key.
    #[arg(long, value_name = "NAME", value_parser = preset(), hide_possible_values = true)]
    pub toml: Option<String>,
    /// Print the JSON schema of device files, for editors that complete and check TOML.
    #[arg(long, conflicts_with_all = ["toml", "json"])]
    pub schema: bool,
    /// Print the presets as JSON.
    #[arg(long, conflicts_with = "toml")]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd presets
  remap-ssd presets --toml fast21-32g
  remap-ssd presets --schema
  remap-ssd presets --json";

/// Runs `presets`.
///
/// # Errors
/// No preset has that name.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    // In this order: one device, the schema of all keys, the list as JSON, the list as text.
    if let Some(name) = &args.toml {
        let config = DeviceConfig::preset(name).map_err(Failure::usage)?;
        return output::text(&reference::commented(&config));
    }
    if args.schema {
        return output::json(&reference::schema());
    }
    if args.json {
        let list = PRESETS.iter().map(|preset| {
            json!({ "name": preset.name, "about": preset.about, "assumed": preset.assumed, "checked": preset.checked, "device": preset.config() })
        });
        return output::json(&list.collect());
    }
    let texts: Vec<String> = PRESETS.iter().map(describe).collect();
    output::text(&texts.join("\n"))
}

fn describe(preset: &Preset) -> String {
    let mut text = format!("{}\n  {}\n", preset.name, preset.about);
    let rows = device_rows(&preset.config());
    pairs(&rows)
        .lines()
        .for_each(|line| text.push_str(&format!("  {line}\n")));
    text.push_str("  assumed\n");
    preset
        .assumed
        .iter()
        .for_each(|what| text.push_str(&format!("    - {what}\n")));
    text.push_str(&format!("  compared with: {}\n", preset.checked));
    text
}
