//! `inspect`: the contents and the consistency of a device image.
//!
//! The image is powered on in memory, as in a device, and everything is read back. Invariants: the
//! file is opened read-only; an invalid or damaged image gives a message. Absent: repair.

use crate::failure::Failure;
use crate::output::{self, counted, pairs};
use crate::presets::values;
use remap_ssd_device::Device;
use remap_ssd_ftl::{RecoveryReport, Superblock, SuperblockState, Usage};
use remap_ssd_media::{SbId, image_file};
use remap_ssd_sim::report::format::{bytes, exact, number, percent};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

/// Shows the contents of a device image: superblocks, segment groups, wear, recovery report. Checks
/// all tables for consistency, and every mapped page.
///
/// The file is not changed. Exit code 1 if it is not an image, or is damaged, in use or
/// inconsistent.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
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

/// One superblock: a row of the table, an object of the JSON.
#[derive(Debug, Serialize)]
struct Row {
    id: u32,
    state: &'static str,
    stream: &'static str,
    live: u32,
    remapped: u32,
    capacity: u32,
    /// Erase count of its most erased block.
    erases: u32,
    bad_blocks: u32,
    segments: usize,
    entries: u32,
    /// Remapped pages covered by the entries.
    entry_pages: u64,
    /// Flash pages that the entries refer to.
    flash_pages: u32,
}

/// Erase counts of all blocks of the device, including bad ones.
#[derive(Debug, Serialize)]
struct Wear {
    mean: f64,
    min: u32,
    max: u32,
}

/// All findings about the image.
#[derive(Debug)]
struct Findings {
    rows: Vec<Row>,
    wear: Wear,
    usage: Usage,
    recovery: RecoveryReport,
    /// Inconsistency between the tables.
    contradiction: Option<String>,
    unreadable: u64,
}

/// Runs `inspect`.
///
/// # Errors
/// The file is not a consistent image.
pub fn command(args: &Args) -> Result<(), Failure> {
    let path = args.image.display();
    let about = |error: &dyn std::fmt::Display| Failure::about(&path, error);

    let (mut device, recovery) = if args.image.is_dir() {
        Device::look_into_folder(&args.image).map_err(|error| about(&error))?
    } else {
        // An image in use changes while it is read.
        let _lock = image_file::lock(&args.image).map_err(|error| about(&error))?;
        Device::load(&args.image).map_err(|error| about(&error))?
    };

    // The tables, then every page: two kinds of damage.
    let contradiction = device.ftl().check().err();
    let unreadable = device.untimed(|ftl| ftl.scrub());

    let found = Findings {
        rows: rows(&device),
        wear: wear(device.ftl().media().erase_counts()),
        usage: device.ftl().usage(),
        recovery,
        contradiction,
        unreadable,
    };

    if args.json {
        output::json(&as_json(&device, &found))?
    } else {
        output::text(&as_text(args, &device, &found))?
    }

    // Everything is shown first: damage is a finding, not a reason to stop.
    if found.contradiction.is_none() && found.unreadable == 0 {
        Ok(())
    } else {
        Err(Failure::Found)
    }
}

/// The superblocks of a device, as `--json` prints them.
pub fn superblocks(device: &Device) -> serde_json::Value {
    json!(rows(device))
}

fn rows(device: &Device) -> Vec<Row> {
    device
        .ftl()
        .superblocks()
        .map(|(id, sb)| row(device, id, sb))
        .collect()
}

fn row(device: &Device, id: SbId, sb: &Superblock) -> Row {
    let media = device.ftl().media();
    let geometry = media.geometry();
    let group = device.ftl().group(id).unwrap_or_default();

    // A free superblock belongs to no stream.
    let in_use = matches!(sb.state, SuperblockState::Open | SuperblockState::Closed);
    let owners = device.ftl().owners(id);

    Row {
        id: id.0,
        state: match sb.state {
            SuperblockState::Free => "free",
            SuperblockState::Open => "open",
            SuperblockState::Closed => "closed",
            SuperblockState::Retired => "retired",
        },
        stream: match sb.stream {
            _ if !in_use => "-",
            remap_ssd_ftl::Stream::Host => "host",
            remap_ssd_ftl::Stream::Gc => "gc",
            remap_ssd_ftl::Stream::Log => "log",
            remap_ssd_ftl::Stream::GcShared => "gc-shared",
            remap_ssd_ftl::Stream::GcMany => "gc-many",
        },
        live: owners.live,
        remapped: owners.remapped,
        capacity: sb.capacity,
        erases: (0..geometry.dies())
            .map(|die| media.erase_count(geometry.block(id, die)))
            .max()
            .unwrap_or(0),
        bad_blocks: sb.bad.count_ones(),
        segments: group.segments.len(),
        entries: group.entries,
        entry_pages: group.pages,
        flash_pages: group.flash_pages,
    }
}

fn wear(erases: &[u32]) -> Wear {
    let sum: u64 = erases.iter().map(|count| u64::from(*count)).sum();
    Wear {
        mean: sum as f64 / erases.len().max(1) as f64,
        min: erases.iter().copied().min().unwrap_or(0),
        max: erases.iter().copied().max().unwrap_or(0),
    }
}

fn as_json(device: &Device, found: &Findings) -> serde_json::Value {
    json!({
        "device": device.config(),
        "scheme": device.config().firmware.scheme,
        "superblocks": found.rows,
        "wear": found.wear,
        "usage": found.usage,
        "recovery": found.recovery,
        "consistent": found.contradiction.is_none(),
        "contradiction": found.contradiction,
        "unreadable_pages": found.unreadable,
    })
}

fn as_text(args: &Args, device: &Device, found: &Findings) -> String {
    let Findings {
        rows,
        wear,
        usage,
        recovery,
        ..
    } = found;
    let mut text = format!("{}: {}\n\n", args.image.display(), device.config().name);
    text.push_str(&pairs(&values(device.config())));
    let state = |state: &str| rows.iter().filter(|row| row.state == state).count() as u64;
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let (segments, entries) = (
        sum(|row| row.segments as u64),
        sum(|row| row.entries.into()),
    );

    // More than the number of entries if an entry covers several pages.
    let entry_pages = sum(|row| row.entry_pages);
    text.push('\n');
    text.push_str(&pairs(&[
        (
            "superblocks",
            format!(
                "{} free, {} open, {} closed, {} retired; {}",
                exact(state("free")),
                exact(state("open")),
                exact(state("closed")),
                exact(state("retired")),
                counted(sum(|row| row.bad_blocks.into()), "bad block")
            ),
        ),
        (
            "pages",
            format!(
                "{} live, {} by remaps",
                exact(sum(|row| row.live.into())),
                counted(sum(|row| row.remapped.into()), "mapping")
            ),
        ),
        ("remapping metadata", usage_line(usage)),
        (
            "segment groups",
            format!(
                "{}, {} entries for {}, the largest group {}",
                counted(segments, "segment"),
                exact(entries),
                counted(entry_pages, "page"),
                bytes(usage.largest_group_bytes)
            ),
        ),
        (
            "erases of a block",
            format!(
                "mean {}, {} to {}",
                number(wear.mean),
                exact(wear.min.into()),
                exact(wear.max.into())
            ),
        ),
        ("recovery read", recovery_line(recovery)),
        (
            "recovery found",
            format!(
                "{} mapped, {} lost, {} interrupted",
                counted(recovery.mapped, "logical page"),
                exact(recovery.lost),
                counted(recovery.aborted, "atomic command")
            ),
        ),
        (
            "tables",
            found
                .contradiction
                .clone()
                .unwrap_or_else(|| "agree with each other".into()),
        ),
        (
            "mapped pages",
            match found.unreadable {
                0 => "all readable".into(),
                some => format!("{} cannot be read", counted(some, "page")),
            },
        ),
    ]));

    // A large device has thousands of superblocks.
    if !args.summary {
        text.push('\n');
        text.push_str(&superblock_table(rows));
    }
    text
}

fn usage_line(usage: &Usage) -> String {
    match usage.capacity_bytes {
        0 if usage.p2l_bytes > 0 => format!(
            "tables of {} (L2P) and {} (P2L), {} of it taken, {} valid",
            bytes(usage.l2p_bytes),
            bytes(usage.p2l_bytes),
            bytes(usage.used_bytes),
            bytes(usage.valid_bytes)
        ),
        0 => "without limit".into(),
        capacity => format!(
            "{} of {} used ({}), {} valid",
            bytes(usage.used_bytes),
            bytes(capacity),
            percent(usage.used_bytes as f64 / capacity as f64),
            bytes(usage.valid_bytes)
        ),
    }
}

fn recovery_line(recovery: &RecoveryReport) -> String {
    format!(
        "{} heads, {} tails, {} OOB areas, {} bitmap and {} log pages, {} of NVRAM: {} records",
        exact(recovery.head_pages),
        exact(recovery.tail_pages),
        exact(recovery.oob_pages),
        exact(recovery.bitmap_pages),
        exact(recovery.log_pages),
        bytes(recovery.nvram_bytes),
        exact(recovery.records)
    )
}

fn superblock_table(rows: &[Row]) -> String {
    let head = [
        "superblock",
        "state",
        "stream",
        "live",
        "remapped",
        "capacity",
        "erases",
        "bad",
        "segments",
        "entries",
        "for pages",
        "on flash",
    ];

    let cells = |row: &Row| {
        let numbers = [
            row.live,
            row.remapped,
            row.capacity,
            row.erases,
            row.bad_blocks,
            row.segments as u32,
            row.entries,
        ]
        .map(u64::from);

        // Text columns first, then numbers.
        let words = [row.id.to_string(), row.state.into(), row.stream.into()];
        words
            .into_iter()
            .chain(
                numbers
                    .into_iter()
                    .chain([row.entry_pages, row.flash_pages.into()])
                    .map(exact),
            )
            .collect()
    };

    output::table(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}
