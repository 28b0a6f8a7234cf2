//! The shape of a device for service, as options.
//!
//! Absent: what it means (`remap_ssd_service::Shape`).

use crate::failure::Failure;
use crate::manual::{Completed, scheme};
use crate::numbers;
use crate::settings;
use clap::builder::TypedValueParser;
use remap_ssd_ftl::SchemeKind;
use remap_ssd_service::Shape;
use remap_ssd_study::names;

/// Options for the shape of a device for service.
#[derive(Debug, clap::Args)]
pub(crate) struct DeviceShape {
    /// Size of the device, as hosts see it.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "New device")]
    pub size: Option<u64>,
    /// Remapping scheme [default: remap-ssd].
    #[arg(long, value_parser = scheme(), hide_possible_values = true, help_heading = "New device")]
    pub scheme: Option<SchemeKind>,
    /// Deduplicate writes in the device [default: off].
    #[arg(long, value_name = "on|off", value_parser = Completed(on_off, names::on_off), hide_possible_values = true, action = clap::ArgAction::Set, help_heading = "New device")]
    pub dedup: Option<bool>,
    /// Any other setting of the device: --set firmware.gc_free=0.2.
    ///
    /// May be repeated, or comma-separated. The configuration reference (docs/configuration.md)
    /// lists the keys.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = "New device")]
    pub set: Vec<String>,
    /// Size of NVRAM, or of the log on flash, for remaps.
    ///
    /// Default: 0.5 % of the device's size.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, hide_short_help = true, help_heading = "New device")]
    pub log_size: Option<u64>,
    /// Maximum number of files in the file map, which vendor commands use.
    ///
    /// Default: no file map.
    #[arg(
        long,
        value_name = "N",
        requires = "fs_blocks",
        hide_short_help = true,
        help_heading = "New device"
    )]
    pub fs_files: Option<u32>,
    /// Maximum number of pages in all lists of the file map.
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "New device")]
    pub fs_blocks: Option<u32>,
    /// Logical block size in bytes [default: 4096].
    #[arg(long, value_name = "BYTES", value_parser = clap::builder::PossibleValuesParser::new(["512", "4096"]).map(|text| text.parse::<u32>().unwrap_or(4096)), hide_short_help = true, help_heading = "New device")]
    pub block: Option<u32>,
    /// Number of namespaces, of equal size [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128), hide_short_help = true, help_heading = "New device")]
    pub namespaces: Option<u32>,
    /// Additional namespaces for snapshots of the others [default: none].
    ///
    /// For `share snapshot`. They add to the size.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=127), hide_short_help = true, help_heading = "New device")]
    pub snapshots: Option<u32>,
    /// Number of a namespace whose pages are never shared.
    ///
    /// No deduplication, and remaps become copies. For hosts that keep redundant copies of data.
    /// May be repeated, or comma-separated.
    #[arg(long, value_name = "NSID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=128), hide_short_help = true, help_heading = "New device")]
    pub unshared: Vec<u32>,
    /// NVMe qualified name [default: a new unique name].
    #[arg(long, value_name = "NQN", hide_short_help = true, help_heading = "New device")]
    pub nqn: Option<String>,
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".into()),
    }
}

impl DeviceShape {
    /// The shape of a new device, or that an image must have.
    ///
    /// # Errors
    /// Invalid settings.
    pub(crate) fn shape(&self) -> Result<Shape, Failure> {
        Ok(Shape {
            size: self.size,
            scheme: self.scheme,
            dedup: self.dedup,
            set: settings::parse(&self.set)?,
            log_size: self.log_size,
            fs_files: self.fs_files,
            fs_blocks: self.fs_blocks,
            block: self.block,
            namespaces: self.namespaces,
            snapshots: self.snapshots,
            unshared: self.unshared.clone(),
            nqn: self.nqn.clone(),
        })
    }
}
