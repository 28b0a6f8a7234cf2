//! Results of sharing, as text and as JSON.
//!
//! Absent: the operations.

use crate::failure::Failure;
use crate::output::{self, pairs};
use remap_ssd_share::volume::VolumeCounts;
use remap_ssd_share::{Counts, ShareReport};
use remap_ssd_sim::report::format::{bytes, exact};
use serde_json::{Value, json};

const PAGE: u64 = 4096;

/// A number of pages, with their size in bytes.
pub(super) fn pages(count: u64) -> String {
    format!("{} ({})", exact(count), bytes(count * PAGE))
}

fn programmed(counts: &Counts) -> String {
    let kinds = [
        (counts.flash_data, "data"),
        (counts.flash_gc, "by garbage collection"),
        (counts.flash_metadata, "metadata"),
    ];
    let total: u64 = kinds.iter().map(|(count, _)| count).sum();
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", exact(*count)))
        .collect();
    if total == 0 {
        "0".into()
    } else {
        format!("{}: {}", exact(total), parts.join(", "))
    }
}

fn reasons(counts: &Counts) -> Vec<(&'static str, u64)> {
    let all = [
        (
            "the pages had as many owners as a page can have",
            counts.copied_counter_full,
        ),
        (
            "no room for remapping metadata",
            counts.copied_metadata_full,
        ),
        (
            "the device or the namespace does not share",
            counts.copied_otherwise,
        ),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn copied(shared: &ShareReport) -> String {
    let why: Vec<String> = reasons(&shared.counts)
        .iter()
        .map(|(why, count)| format!("{} since {why}", exact(*count)))
        .collect();
    match shared.copied() {
        0 => "0".into(),
        count => format!("{}: {}", exact(count), why.join(", ")),
    }
}

/// Rows of the results.
pub(super) fn rows(shared: &ShareReport) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("pages", pages(shared.pages)),
        ("shared", exact(shared.shared())),
        ("copied by the device", copied(shared)),
    ];
    // Most copies have no empty pages.
    if shared.empty() > 0 {
        rows.push(("empty", exact(shared.empty())));
    }
    rows.push(("flash pages programmed", programmed(&shared.counts)));
    rows
}

/// Prints the results for namespaces, preceded by other fields.
pub(super) fn shared(
    shared: &ShareReport,
    more: &[(&'static str, Value)],
    as_json: bool,
) -> Result<(), Failure> {
    write(more, rows(shared), shared.json(), as_json)
}

/// Prints the results for files of a volume.
pub(super) fn done(
    done: &VolumeCounts,
    more: &[(&'static str, Value)],
    as_json: bool,
) -> Result<(), Failure> {
    let (rows, value) = of_files(done);
    write(more, rows, value, as_json)
}

/// Rows and JSON of the results for files of a volume.
pub(super) fn of_files(done: &VolumeCounts) -> (Vec<(&'static str, String)>, Value) {
    let volume = &done.volume;
    let pages = volume.pages_shared + volume.pages_copied;
    let shared = done.device.map(|counts| ShareReport { pages, counts });
    let mut rows = match &shared {
        Some(shared) => rows(shared),
        None => vec![
            ("pages", self::pages(pages)),
            (
                "flash pages programmed",
                "the device does not count them".into(),
            ),
        ],
    };

    // Files have no empty pages.
    rows.retain(|(name, _)| *name != "empty");

    // The volume has its own reason, other than the device's.
    if volume.pages_copied > 0 {
        let why = volume.copied_because.as_deref().unwrap_or_default();
        rows.push((
            "written instead",
            format!("{}: {why}", exact(volume.pages_copied)),
        ));
    }
    rows.push((
        "records of the volume written",
        exact(volume.pages_metadata),
    ));

    let mut value = shared.map_or_else(|| json!({ "pages": pages }), |shared| shared.json());
    value["written_instead"] = volume.pages_copied.into();
    value["volume_records_written"] = volume.pages_metadata.into();
    (rows, value)
}

fn write(
    more: &[(&'static str, Value)],
    rows: Vec<(&'static str, String)>,
    mut value: Value,
    as_json: bool,
) -> Result<(), Failure> {
    if as_json {
        more.iter()
            .for_each(|(name, field)| value[*name] = field.clone());
        return output::json(&value);
    }
    let text = |field: &Value| {
        field
            .as_str()
            .map_or_else(|| field.to_string(), str::to_owned)
    };
    let first = more.iter().map(|(name, field)| (*name, text(field)));
    output::text(&pairs(&first.chain(rows).collect::<Vec<_>>()))
}

/// Prints that a snapshot or a branch is deleted.
pub(super) fn deleted(name: &str, as_json: bool) -> Result<(), Failure> {
    let text = || format!("{name} is deleted\n");
    output::result(as_json, || json!({ "deleted": name }), text)
}

/// A time as text: UTC, RFC 3339.
pub(super) fn time(seconds: u64) -> String {
    let at = i64::try_from(seconds)
        .ok()
        .and_then(|at| time::OffsetDateTime::from_unix_timestamp(at).ok());
    let text = at.and_then(|at| {
        at.format(&time::format_description::well_known::Rfc3339)
            .ok()
    });
    text.unwrap_or_else(|| format!("second {seconds}"))
}
