//! `trace stat`: statistics of traces and workloads, side by side.
//!
//! Absent: the statistics (`remap_ssd_study::Feed`).

use super::{Patience, WorkloadArgs};
use crate::failure::Failure;
use crate::numbers;
use crate::output;
use remap_ssd_sim::report::format::{bytes, exact, percent, seconds};
use remap_ssd_sim::trace::{Action, Fold, Format, Profile, Skew, TraceOptions};
use remap_ssd_sim::workload::{MODELS, NamedWorkload};
use remap_ssd_study::Profiled;
use std::path::PathBuf;

/// Analyses traces: requests, sizes, working set, duplicates by each definition, skew.
///
/// Duplicate writes (FIU) were written before in the same trace; stored ones find their content in
/// some page; the papers' ratio is one minus the distinct contents per distinct page written. The
/// Zipf exponent is that of a distribution with the same probability that two accesses hit the same
/// page.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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

/// Runs `trace stat`.
///
/// # Errors
/// An unreadable trace, or an impossible workload.
pub(super) fn command(args: &Args) -> Result<(), Failure> {
    let (feed, requests) = (args.feed.feed(), args.requests);
    let options = TraceOptions {
        fold: args.fold,
        skip_bad: args.skip_bad,
        action: args.blkparse_action,
        ..TraceOptions::new(remap_ssd_sim::study::WHOLE_DISK)
    };

    let mut found = Vec::new();
    for path in &args.files {
        let mut patience = Patience::new(&path.display().to_string(), requests);
        let mut at = |request| patience.at(request);
        let one = feed.profile_trace(path, args.format, options, requests, &mut at)?;
        drop(patience);
        one.notes.iter().for_each(output::note);
        found.push(one);
    }
    for workload in &args.workload {
        let mut patience = Patience::new(&workload.to_string(), requests);
        found.push(feed.profile(workload, requests, &mut |request| patience.at(request))?);
    }

    let json = || found.iter().map(Profiled::json).collect();
    output::result(args.json, json, || as_text(&found))
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
