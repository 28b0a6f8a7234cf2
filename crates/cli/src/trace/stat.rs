//! `trace stat`: statistics of traces and workloads, side by side.
//!
//! Absent: the counting (`remap_ssd_sim::trace::Profile`).

use super::{PAGES_DEFAULT, Patience, WorkloadArgs};
use crate::failure::Failure;
use crate::numbers;
use crate::output;
use remap_ssd_sim::report::format::{bytes, exact, percent, seconds};
use remap_ssd_sim::trace::{
    Action, Fold, Format, Profile, Skew, TraceOptions, TraceReader, profile,
};
use remap_ssd_sim::workload::{ContentModel, MODELS, Modelled, NamedWorkload};
use remap_ssd_study::{reading_note, torn_note};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Analyses traces: requests, sizes, working set, duplicates by each definition, skew.
///
/// Duplicate writes (FIU) were written before in the same trace; stored ones find their content in
/// some page; the papers' ratio is one minus the distinct contents per distinct page written. The
/// Zipf exponent is that of a distribution with the same probability that two accesses hit the same
/// page.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces (plain, or compressed with gzip, xz or zstd).
    #[arg(value_name = "FILE", required_unless_present = "workload")]
    pub files: Vec<PathBuf>,
    /// Workloads by name, instead of or in addition to traces; their own options follow after
    /// commas, so repeat this option for several workloads.
    #[arg(long, value_name = "NAME")]
    pub workload: Vec<NamedWorkload>,
    /// Number of requests to read of each [default: all of a trace, a million of a workload].
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub requests: Option<u64>,
    /// Format of the traces: fiu, vscsi, mqsim, msr, blkparse, session, alibaba, tencent, systor,
    /// fio, blktrace, oracleGeneral, fast21, spc, disksim, biosnoop, cloudphysics, or csv:COLUMNS
    /// for text with other columns, as csv:time_us,device,op,offset_bytes,size_bytes
    /// (docs/traces.md lists the columns) [default: detected from their content].
    #[arg(long, requires = "files")]
    pub format: Option<Format>,
    /// Pages of several disks in one trace: `modulo` keeps addresses, so that equal addresses on
    /// different disks are one page; `compact` keeps disks apart, but does not preserve adjacency.
    #[arg(long, value_name = "modulo|compact", default_value_t = Fold::Modulo, requires = "files")]
    pub fold: Fold,
    /// Count and skip malformed records, instead of stopping at the first.
    #[arg(long, requires = "files")]
    pub skip_bad: bool,
    /// Events of blkparse and blktrace that count as requests: Q (queued), D (issued to the driver)
    /// or C (completed) [default: the first of Q, D, C that the trace has].
    #[arg(long, value_name = "Q|D|C", requires = "files")]
    pub blkparse_action: Option<Action>,
    /// Device, content and seed of workloads, and of traces without digests.
    #[command(flatten)]
    pub feed: WorkloadArgs,
    /// Print everything as JSON: a list.
    #[arg(long)]
    pub json: bool,
}

const REQUESTS_DEFAULT: u64 = 1_000_000;

/// Maximum folding of addresses: 8 TiB.
const WHOLE_DISK: u32 = u32::MAX >> 1;

/// Statistics of one trace or workload, and the number of records left out.
struct Profiled {
    name: String,
    kind: String,
    /// The model of its contents; `None`: those of the trace.
    content: Option<ContentModel>,
    profile: Profile,
    skipped: u64,
    ignored: u64,
}

/// Runs `trace stat`.
///
/// # Errors
/// An unreadable trace, or an impossible workload.
pub(super) fn command(args: &Args) -> Result<(), Failure> {
    let mut found = Vec::new();

    for path in &args.files {
        found.push(trace(args, path)?);
    }

    for workload in &args.workload {
        let mut source = args.feed.source(workload)?;
        let requests = args.requests.unwrap_or(REQUESTS_DEFAULT);
        let mut patience = Patience::new(&workload.to_string(), Some(requests));

        // A workload has no end, so the number of requests is limited.
        let profile = profile(&mut *source, Some(requests), &mut |at| patience.at(at))
            .map_err(Failure::failed)?;

        found.push(Profiled {
            name: workload.to_string(),
            kind: "workload".into(),
            content: Some(args.feed.content(workload)),
            profile,
            skipped: 0,
            ignored: 0,
        });
    }

    let json = || found.iter().map(as_json).collect();
    output::result(args.json, json, || as_text(&found))
}

/// Profiles a trace, with the contents of a model if one is given.
fn trace(args: &Args, path: &Path) -> Result<Profiled, Failure> {
    // Models repeat contents of a device's pages; otherwise addresses stay as they are.
    let pages = match args.feed.content {
        Some(_) => args.feed.pages(PAGES_DEFAULT)?,
        None => WHOLE_DISK,
    };
    let options = TraceOptions {
        fold: args.fold,
        skip_bad: args.skip_bad,
        action: args.blkparse_action,
        ..TraceOptions::new(pages)
    };

    let mut reader = TraceReader::open(path, args.format, options).map_err(Failure::failed)?;
    let mut patience = Patience::new(&path.display().to_string(), args.requests);
    let mut at = |requests| patience.at(requests);
    let profile = match args.feed.content {
        None => profile(&mut reader, args.requests, &mut at).map_err(Failure::failed)?,
        Some(content) => {
            let source = Modelled::new(reader, content, pages, args.feed.seed, 0);
            let mut source = source.map_err(Failure::usage)?;
            let profile = profile(&mut source, args.requests, &mut at).map_err(Failure::failed)?;
            reader = source.into_inner();
            profile
        }
    };
    if args.feed.content.is_some() && reader.has_digests() {
        return Err(Failure::usage(format_args!(
            "--content: {}: the trace (format {}) records digests of its contents, which a model of contents would \
             replace",
            path.display(),
            reader.format()
        )));
    }

    if let Some(line) = reader.torn() {
        output::note(torn_note(path, line));
    }
    for text in reader.notes() {
        output::note(reading_note(path, &text));
    }

    Ok(Profiled {
        name: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        kind: reader.format().to_string(),
        content: args.feed.content,
        profile,
        skipped: reader.skipped(),
        ignored: reader.ignored(),
    })
}

/// Lists the models.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn models() -> Result<(), Failure> {
    output::text(&output::pairs(
        &MODELS.map(|kind| (kind.name(), kind.about())),
    ))
}

fn as_json(found: &Profiled) -> serde_json::Value {
    let mut json = json!({
        "name": found.name,
        "kind": found.kind,
        "skipped": found.skipped,
        "ignored": found.ignored,
        "profile": found.profile,
    });
    if let Some(content) = found.content {
        json["content"] = content.to_string().into();
    }
    json
}

/// A row of the table: its name, and its value for a profile.
type TableRow = (&'static str, fn(&Profile) -> String);

const OF_REQUESTS: &[TableRow] = &[
    ("requests", |p| exact(p.requests.all)),
    ("  reads", |p| exact(p.requests.reads)),
    ("  writes", |p| exact(p.requests.writes)),
    ("  deallocations", |p| exact(p.requests.trims)),
    ("  sequential", |p| {
        of(p.requests.sequential, p.requests.reads + p.requests.writes)
    }),
    ("  pages, mean", |p| format!("{:.2}", p.request_pages_mean)),
];

const OF_PAGES: &[TableRow] = &[
    ("pages read", |p| exact(p.pages.read)),
    ("pages written", |p| exact(p.pages.written)),
    ("  in part", |p| exact(p.pages.written_in_part)),
    ("  of read and written", |p| percent(p.write_share)),
    ("pages deallocated", |p| exact(p.pages.trimmed)),
    ("unique pages", |p| exact(p.pages.unique)),
    ("  working set", |p| bytes(p.pages.unique * 4096)),
    ("  read", |p| exact(p.pages.unique_read)),
    ("  written", |p| exact(p.pages.unique_written)),
    ("distinct contents", |p| exact(p.duplicates.contents)),
    ("duplicate writes (FIU)", |p| {
        of(p.duplicates.writes, p.pages.written)
    }),
    ("duplicates stored", |p| {
        of(p.duplicates.stored, p.pages.written)
    }),
    ("  in the same page", |p| {
        of(p.duplicates.unchanged, p.pages.written)
    }),
    ("duplicate ratio (papers)", |p| {
        percent(p.duplicates.papers_ratio)
    }),
    ("writes: Zipf exponent", |p| exponent(&p.skew_writes)),
    ("  to the top 1 %", |p| percent(p.skew_writes.top_1_percent)),
    ("  to the top 10 %", |p| {
        percent(p.skew_writes.top_10_percent)
    }),
    ("  to the top 20 %", |p| {
        percent(p.skew_writes.top_20_percent)
    }),
    ("reads and writes: exponent", |p| exponent(&p.skew_all)),
    ("  to the top 1 %", |p| percent(p.skew_all.top_1_percent)),
    ("  to the top 10 %", |p| percent(p.skew_all.top_10_percent)),
    ("  to the top 20 %", |p| percent(p.skew_all.top_20_percent)),
    ("recorded over", |p| match p.duration_ns {
        0 => "-".into(),
        ns => seconds(ns as f64 / 1e9),
    }),
];

fn as_text(found: &[Profiled]) -> String {
    let row = |name: &str, text: &dyn Fn(&Profiled) -> String| -> Vec<String> {
        std::iter::once(name.to_owned())
            .chain(found.iter().map(text))
            .collect()
    };
    let of_profile = |(name, text): &TableRow| row(name, &|one| text(&one.profile));

    let contents = |one: &Profiled| match one.content {
        Some(content) => content.to_string(),
        None => "of the trace".into(),
    };
    let mut rows = vec![
        row("format", &|one| one.kind.clone()),
        row("contents", &contents),
    ];
    rows.extend(OF_REQUESTS.iter().map(of_profile));
    // Sizes belong to the requests, above the pages.
    rows.extend(sizes(found));
    rows.extend(OF_PAGES.iter().map(of_profile));
    rows.push(row("malformed, skipped", &|one| exact(one.skipped)));
    rows.push(row("no requests", &|one| exact(one.ignored)));

    let names = found.iter().map(|one| one.name.as_str());
    let head: Vec<&str> = std::iter::once("").chain(names).collect();
    output::table(&head, &rows)
}

/// A row for each request size that occurs.
fn sizes(found: &[Profiled]) -> Vec<Vec<String>> {
    let mut sizes: Vec<u32> = found
        .iter()
        .flat_map(|one| one.profile.request_pages.keys().copied())
        .collect();

    // Sizes of all of them, so that columns can be compared.
    sizes.sort_unstable();
    sizes.dedup();
    let row = |&pages: &u32| {
        let what = match pages {
            1 => "  of 1 page".to_owned(),
            2 => "  of 2 pages".to_owned(),
            more => format!("  of {} to {more} pages", more / 2 + 1),
        };
        let count =
            |one: &Profiled| exact(one.profile.request_pages.get(&pages).copied().unwrap_or(0));
        [what].into_iter().chain(found.iter().map(count)).collect()
    };
    sizes.iter().map(row).collect()
}

fn of(part: u64, whole: u64) -> String {
    let share = part as f64 / whole.max(1) as f64;
    format!("{} ({})", exact(part), percent(share))
}

fn exponent(skew: &Skew) -> String {
    format!("{:.2}", skew.zipf_exponent)
}
