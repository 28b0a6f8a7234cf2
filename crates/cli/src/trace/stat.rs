//! `trace stat`: statistics of traces and workloads, side by side.
//!
//! Absent: the statistics and their table (`remap_ssd_study::Feed`).

use super::{Patience, WorkloadArgs};
use crate::failure::Failure;
use crate::manual::{Completed, workload};
use crate::numbers;
use crate::output;
use remap_ssd_sim::trace::{Action, Fold, Format, TraceOptions};
use remap_ssd_sim::workload::{MODELS, NamedWorkload};
use remap_ssd_study::{Profiled, names};
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
    #[arg(long, value_name = "NAME", value_parser = workload(), hide_possible_values = true)]
    pub workload: Vec<NamedWorkload>,
    /// Number of requests to read of each [default: all of a trace, a million of a workload].
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub requests: Option<u64>,
    /// Format of the traces: fiu, vscsi, mqsim, msr, blkparse, session, alibaba, tencent, systor,
    /// fio, blktrace, oracleGeneral, fast21, spc, disksim, biosnoop, cloudphysics, or csv:COLUMNS
    /// for text with other columns, as csv:time_us,device,op,offset_bytes,size_bytes
    /// (docs/traces.md lists the columns) [default: detected from their content].
    #[arg(long, value_parser = Completed(str::parse::<Format>, names::formats), hide_possible_values = true, requires = "files")]
    pub format: Option<Format>,
    /// Pages of several disks in one trace: `modulo` keeps addresses, so that equal addresses on
    /// different disks are one page; `compact` keeps disks apart, but does not preserve adjacency.
    #[arg(long, value_name = "modulo|compact", value_parser = Completed(str::parse::<Fold>, names::folds), hide_possible_values = true, default_value_t = Fold::Modulo, requires = "files")]
    pub fold: Fold,
    /// Count and skip malformed records, instead of stopping at the first.
    #[arg(long, requires = "files")]
    pub skip_bad: bool,
    /// Events of blkparse and blktrace that count as requests: Q (queued), D (issued to the driver)
    /// or C (completed) [default: the first of Q, D, C that the trace has].
    #[arg(long, value_name = "Q|D|C", value_parser = Completed(str::parse::<Action>, names::actions), hide_possible_values = true, requires = "files")]
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
    let text = || {
        let (head, rows) = Profiled::table(&found);
        output::table(&head, &rows)
    };
    output::result(args.json, json, text)
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
