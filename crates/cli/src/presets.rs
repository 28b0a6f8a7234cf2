//! `presets`: the predefined devices, their values and assumptions.
//!
//! Invariant: `--toml` prints a device file that parses to the preset. Absent: the values
//! (`remap_ssd_device::preset`).

use crate::failure::Failure;
use crate::output::{self, pairs};
use remap_ssd_device::{DeviceConfig, PRESETS, Preset, reference};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::report::format::{bytes, exact, percent, seconds};
use serde_json::json;

/// Lists the predefined devices with their values and assumptions, or prints one as a device file
/// to start from.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print this preset as a device file for `compare --config`, with a comment for each key.
    #[arg(long, value_name = "NAME")]
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
pub fn command(args: &Args) -> Result<(), Failure> {
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
            json!({ "name": preset.name, "about": preset.about, "assumed": preset.assumed, "device": preset.config() })
        });
        return output::json(&list.collect());
    }
    let texts: Vec<String> = PRESETS.iter().map(describe).collect();
    output::text(&texts.join("\n"))
}

fn describe(preset: &Preset) -> String {
    let mut text = format!("{}\n  {}\n", preset.name, preset.about);
    let rows = values(&preset.config());
    pairs(&rows)
        .lines()
        .for_each(|line| text.push_str(&format!("  {line}\n")));
    text.push_str("  assumed\n");
    preset
        .assumed
        .iter()
        .for_each(|what| text.push_str(&format!("    - {what}\n")));
    text
}

/// A device in a few lines.
pub fn values(config: &DeviceConfig) -> Vec<(&'static str, String)> {
    let DeviceConfig {
        geometry,
        firmware,
        flash,
        nvram,
        hash,
        link,
        ..
    } = config;
    let pages = |count: u32| {
        let size = bytes(u64::from(count) * PAGE_BYTES as u64);
        format!("{size}, {} pages", exact(count.into()))
    };
    let time = |ns: u64| seconds(ns as f64 / 1e9);

    let array = format!(
        "{} channels, {} dies, {} superblocks of {} pages ({} a block)",
        geometry.channels(),
        geometry.dies_total(),
        exact(geometry.superblocks().into()),
        exact(geometry.pages_per_superblock().into()),
        exact(geometry.pages_per_block().into())
    );
    let [read, program, erase, transfer] = [
        flash.read_ns,
        flash.program_ns,
        flash.erase_ns,
        flash.transfer_ns,
    ]
    .map(time);
    let cycles = exact(flash.endurance);
    let [nvram_read, nvram_write] = [nvram.read_ns, nvram.write_ns].map(time);
    let nvram_writes = exact(nvram.endurance);
    let [latency, interval, command] =
        [hash.latency_ns, hash.interval_ns, link.command_ns].map(time);
    let firmware_text = format!(
        "scheme {}, {} of remapping metadata in segments of {}, deduplication {}, garbage collection at {} free",
        firmware.scheme,
        bytes(firmware.log_bytes),
        bytes(firmware.segment_bytes.into()),
        if firmware.dedup { "on" } else { "off" },
        percent(firmware.gc_free)
    );
    let (addressed, depth) = (percent(config.addressable), config.queue_depth);

    vec![
        ("logical", pages(firmware.lpns)),
        ("flash", pages(geometry.pages())),
        ("array", array),
        (
            "flash times",
            format!(
                "read {read}, program {program}, erase {erase}, transfer {transfer}; {cycles} cycles"
            ),
        ),
        (
            "NVRAM times",
            format!("64 bytes: read {nvram_read}, write {nvram_write}; {nvram_writes} writes"),
        ),
        ("hash", format!("{latency}, a page every {interval}")),
        (
            "link",
            format!("{} MiB/s each way, {command} a command", exact(link.mib_s)),
        ),
        ("firmware", firmware_text),
        (
            "host",
            format!("{addressed} of the logical pages addressed, queue depth {depth}"),
        ),
    ]
}
