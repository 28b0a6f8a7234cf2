//! `image create`: a device in a folder, with all the space it will ever need.

use super::kept::Service;
use crate::failure::Failure;
use crate::numbers;
use crate::output::{self, pairs};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_sim::report::format::bytes;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

/// Makes devices that `serve` serves.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Makes a new, empty device in a folder; its space is reserved, so that a full disk shows now and never in service.
    Create(Create),
}

/// What to make.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Create {
    /// The folder: new, or empty.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// What it is like.
    #[command(flatten)]
    pub shape: Shape,
    /// Print what was made as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd image create disk --size 2GiB
  remap-ssd image create disk --size 2GiB --scheme flog --dedup on
  remap-ssd serve --image disk";

/// What a device for service is like.
#[derive(Debug, clap::Args)]
pub struct Shape {
    /// Size of the device, as hosts see it.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size)]
    pub size: Option<u64>,
    /// How remaps survive a power cut.
    #[arg(long, default_value = "remap-ssd")]
    pub scheme: SchemeKind,
    /// Deduplicate writes in the device.
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = on_off, action = clap::ArgAction::Set)]
    pub dedup: bool,
    /// Bytes of NVRAM or of the log, for remaps; half a percent of the size unless given.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size)]
    pub log_size: Option<u64>,
    /// Files of the file map that vendor commands use; none unless given.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "fs_blocks")]
    pub fs_files: u32,
    /// Pages that all files' lists hold together.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fs_blocks: u32,
    /// Bytes of a logical block.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::builder::PossibleValuesParser::new(["512", "4096"]).map(|text| text.parse::<u32>().unwrap_or(4096)))]
    pub block: u32,
    /// Namespaces of equal size.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub namespaces: u32,
    /// NVMe qualified name; a new one of its own unless given.
    #[arg(long, value_name = "NQN")]
    pub nqn: Option<String>,
}

use clap::builder::TypedValueParser;

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".into()),
    }
}

impl Shape {
    /// The device of `size` bytes.
    ///
    /// # Errors
    /// It cannot be.
    pub fn config(&self, size: u64) -> Result<DeviceConfig, Failure> {
        let config = DeviceConfig::for_service_with_log(size, self.scheme, self.dedup, self.log_size);
        let mut config = config.map_err(Failure::usage)?;
        (config.firmware.fs_files, config.firmware.fs_blocks) = (self.fs_files, self.fs_blocks);
        config.check().map_err(Failure::usage)?;
        Ok(config)
    }

    /// Its name and namespaces.
    pub fn service(&self, config: &DeviceConfig) -> Service {
        let nqn = self.nqn.clone().unwrap_or_else(new_nqn);
        Service::new(nqn, config.firmware.lpns, self.namespaces, self.block)
    }
}

/// A name nobody else has: a random UUID.
fn new_nqn() -> String {
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    let (a, b) = (random(), random());
    let version = (a & 0x0fff) | 0x4000;
    let variant = (b >> 48 & 0x3fff) | 0x8000;
    let (first, second, last) = (a >> 32, a >> 16 & 0xffff, b & 0xffff_ffff_ffff);
    format!("nqn.2014-08.org.nvmexpress:uuid:{first:08x}-{second:04x}-{version:04x}-{variant:04x}-{last:012x}")
}

/// Runs `image`.
///
/// # Errors
/// Why there is no new device; nothing is left behind then.
pub fn command(args: &Args) -> Result<(), Failure> {
    let Command::Create(args) = &args.command;
    let Some(size) = args.shape.size else {
        return Err(Failure::usage("how large shall it be? For example: --size 2GiB"));
    };
    let config = args.shape.config(size)?;
    let service = args.shape.service(&config);
    let dir = &args.dir;
    let about = |error: &dyn std::fmt::Display| Failure::about(dir.display(), error);
    let device = Device::create_in_folder(dir, config.clone(), None).map_err(|error| about(&error))?;
    service.save(dir)?;
    device.close().map_err(|error| about(&error))?;
    show(args, dir, &config, &service)
}

fn show(args: &Create, dir: &Path, config: &DeviceConfig, service: &Service) -> Result<(), Failure> {
    let firmware = &config.firmware;
    let size = u64::from(firmware.lpns) * 4096;
    if args.json {
        return output::json(&serde_json::json!({
            "image": dir, "nqn": service.nqn, "namespaces": service.namespaces, "size_bytes": size,
            "scheme": firmware.scheme, "dedup": firmware.dedup, "log_bytes": firmware.log_bytes,
        }));
    }
    output::text(&pairs(&[
        ("image", dir.display().to_string()),
        ("size", bytes(size)),
        ("scheme", firmware.scheme.to_string()),
        ("deduplication", if firmware.dedup { "on" } else { "off" }.into()),
        ("remapping metadata", bytes(firmware.log_bytes)),
        ("name", service.nqn.clone()),
        ("serve it", format!("remap-ssd serve --image {}", dir.display())),
    ]))
}
