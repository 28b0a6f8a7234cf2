//! The contents of a device image, as JSON, as rows, and as a table of its superblocks.
//!
//! Absent: the inspection (`remap_ssd_device::inspect`), and printing.

use remap_ssd_device::inspect::{Inspection, SuperblockRow};
use remap_ssd_ftl::{RecoveryReport, Usage};
use remap_ssd_sim::report::format::{bytes, counted, exact, number, percent};
use serde_json::{Value, json};

/// All findings.
pub fn json(found: &Inspection) -> Value {
    json!({
        "device": found.device.config(),
        "scheme": found.device.config().firmware.scheme,
        "superblocks": found.superblocks,
        "wear": found.wear,
        "usage": found.usage,
        "recovery": found.recovery,
        "consistent": found.contradiction.is_none(),
        "contradiction": found.contradiction,
        "unreadable_pages": found.unreadable,
    })
}

/// The findings about the image as a whole, a label and a text each.
pub fn rows(found: &Inspection) -> Vec<(&'static str, String)> {
    let Inspection {
        superblocks,
        wear,
        usage,
        recovery,
        ..
    } = found;
    let unreadable = match found.unreadable {
        0 => "all readable".into(),
        some => format!("{} cannot be read", counted(some, "page")),
    };
    let tables = found.contradiction.clone();
    let [least, most] = [wear.min, wear.max].map(|count| exact(count.into()));
    let mut facts = contents(superblocks, usage);
    facts.extend([
        (
            "erases of a block",
            format!("mean {}, {least} to {most}", number(wear.mean)),
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
            tables.unwrap_or_else(|| "agree with each other".into()),
        ),
        ("mapped pages", unreadable),
    ]);
    facts
}

/// Totals of the superblocks.
fn contents(rows: &[SuperblockRow], usage: &Usage) -> Vec<(&'static str, String)> {
    let state = |state: &str| exact(rows.iter().filter(|row| row.state == state).count() as u64);
    let sum = |of: fn(&SuperblockRow) -> u64| rows.iter().map(of).sum::<u64>();
    let [free, open, closed, retired] = ["free", "open", "closed", "retired"].map(state);
    let bad = counted(sum(|row| row.bad_blocks.into()), "bad block");
    let live = exact(sum(|row| row.live.into()));
    let mappings = counted(sum(|row| row.remapped.into()), "mapping");
    vec![
        (
            "superblocks",
            format!("{free} free, {open} open, {closed} closed, {retired} retired; {bad}"),
        ),
        ("pages", format!("{live} live, {mappings} by remaps")),
        ("remapping metadata", usage_line(usage)),
        (
            "segment groups",
            format!(
                "{}, {} entries for {}, the largest group {}",
                counted(sum(|row| row.segments as u64), "segment"),
                exact(sum(|row| row.entries.into())),
                // More than the number of entries if an entry covers several pages.
                counted(sum(|row| row.entry_pages), "page"),
                bytes(usage.largest_group_bytes)
            ),
        ),
    ]
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

/// The heading and the rows of a table of the superblocks.
pub fn superblocks(found: &Inspection) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let head = vec![
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

    let cells = |row: &SuperblockRow| {
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

    (head, found.superblocks.iter().map(cells).collect())
}
