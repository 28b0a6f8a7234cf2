//! `inspect`: the contents and the consistency of a device image.
//!
//! Invariant: an invalid or damaged image gives a message. Absent: the inspection
//! (`remap_ssd_device::inspect`), its presentation (`remap_ssd_study::inspected`), and repair.

use crate::failure::Failure;
use crate::output::{self, pairs};
use remap_ssd_device::inspect::Inspection;
use remap_ssd_study::{device_rows, inspected};
use std::path::PathBuf;

/// Shows the contents of a device image: superblocks, segment groups, wear, recovery report. Checks
/// all tables for consistency, and every mapped page.
///
/// The file is not changed. Exit code 1 if it is not an image, or is damaged, in use or
/// inconsistent.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// An image from `compare --save-aged`, or a folder from `image create`.
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Leave out the table of superblocks.
    #[arg(long)]
    pub summary: bool,
    /// Print everything as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd compare --scheme remap-ssd --scale 1/64 --writes 1000 --save-aged aged.img
  remap-ssd inspect aged.img
  remap-ssd inspect aged.img --json";

/// Runs `inspect`.
///
/// # Errors
/// The file is not a consistent image.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let path = args.image.display();
    let found = Inspection::of(&args.image).map_err(|error| Failure::about(path, error))?;

    let json = || inspected::json(&found);
    output::result(args.json, json, || as_text(args, &found))?;

    // Everything is shown first: damage is a finding, not a reason to stop.
    Failure::found_unless(found.is_clean())
}

fn as_text(args: &Args, found: &Inspection) -> String {
    let config = found.device.config();
    let mut text = format!("{}: {}\n\n", args.image.display(), config.name);
    text.push_str(&pairs(&device_rows(config)));
    text.push('\n');
    text.push_str(&pairs(&inspected::rows(found)));

    // A large device has thousands of superblocks.
    if !args.summary {
        let (head, rows) = inspected::superblocks(found);
        text.push('\n');
        text.push_str(&output::table(&head, &rows));
    }
    text
}
