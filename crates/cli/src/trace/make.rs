//! `trace make`: writes the requests of a workload to a file.
//!
//! Absent: the writing (`remap_ssd_sim::trace::write_file`).

use super::{Patience, WorkloadArgs};
use crate::failure::Failure;
use crate::manual::{Completed, workload};
use crate::numbers;
use crate::output::{self, counted};
use remap_ssd_sim::report::format::bytes;
use remap_ssd_sim::trace::{Format, WriteTraceError, write_file};
use remap_ssd_sim::workload::NamedWorkload;
use std::path::PathBuf;

/// Writes the requests of a workload to a file.
///
/// Deallocations are left out in formats without them, remaps and flushes in all but session, contents
/// in all but fiu and session, and homes in all; omissions are reported. Reading the file gives the same
/// requests.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workload: fileserver, oltp, ycsb, tpcc, sysbench, fiu-homes, fiu-mail, fiu-webvm,
    /// journal, snapshot, or a pattern such as zipfrw:0.99:70 (see `compare --help`).
    #[arg(value_name = "NAME", value_parser = workload(), hide_possible_values = true)]
    pub workload: NamedWorkload,
    /// Requests to write.
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub requests: u64,
    /// The file; an existing one is replaced.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Format: fiu, vscsi, mqsim, msr, blkparse or session.
    #[arg(long, default_value_t = Format::Fiu, value_parser = Completed(written, formats), hide_possible_values = true)]
    pub format: Format,
    #[command(flatten)]
    pub feed: WorkloadArgs,
}

fn formats() -> Vec<String> {
    Format::WRITTEN.map(|format| format.to_string()).to_vec()
}

/// Parses a format that can be written.
fn written(name: &str) -> Result<Format, String> {
    let format: Format = name.parse().map_err(|error| format!("{error}"))?;
    if Format::WRITTEN.contains(&format) {
        Ok(format)
    } else {
        let names = formats().join(", ");
        Err(format!(
            "traces are read as {format} and not written: one of {names}"
        ))
    }
}

/// Runs `trace make`.
///
/// # Errors
/// An impossible workload, or a file that cannot be written.
pub(super) fn command(args: &Args) -> Result<(), Failure> {
    let mut source = args.feed.feed().source(&args.workload)?;
    let (name, format, requests) = (args.out.display(), args.format, args.requests);
    let written = Patience::during("writing", |progress| {
        let progress = &mut |done| progress(done, requests);
        write_file(&args.out, format, &mut *source, requests, progress)
    });
    let written = written.map_err(|error| match error {
        WriteTraceError::Source(error) => Failure::failed(error),
        WriteTraceError::File(error) => Failure::about(&name, error),
        WriteTraceError::Stopped { error, kept } => {
            let kept =
                kept.map(|kept| format!("; kept are the first {}", counted(kept, "request")));
            Failure::about(&name, format!("{error}{}", kept.unwrap_or_default()))
        }
    })?;

    // Reported, because a trace without them is another workload.
    let left_out = match written.left_out {
        0 => String::new(),
        some => format!(
            "; {} (deallocations, remaps or flushes) left out, for which format {format} has no words",
            counted(some, "request"),
        ),
    };
    let (requests, size) = (counted(requests, "request"), bytes(written.bytes));
    output::text(&format!(
        "{name}: {requests} ({size}, format {format}){left_out}\n"
    ))
}
