//! `trace make`: writes the requests of a workload to a file.
//!
//! Records are collected and written in large pieces. If a piece cannot be written, the file is
//! truncated to the previous piece: it then has complete requests from the beginning of the
//! workload. Invariant: a complete file has exactly the requested number of requests.

use super::{Patience, WorkloadArgs};
use crate::failure::Failure;
use crate::numbers;
use crate::output::{self, counted};
use remap_ssd_sim::report::format::bytes;
use remap_ssd_sim::trace::{Format, TraceWriter};
use remap_ssd_sim::workload::NamedWorkload;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// Writes the requests of a workload to a file.
///
/// Deallocations are left out in formats without them, remaps in all but session, contents in all
/// but fiu and session, and homes in all; omissions are reported. Reading the file gives the same
/// requests.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The workload: fileserver, oltp, ycsb, tpcc, sysbench, fiu-homes, fiu-mail, fiu-webvm,
    /// journal, snapshot, or a pattern such as zipfrw:0.99:70 (see `compare --help`).
    #[arg(value_name = "NAME")]
    pub workload: NamedWorkload,
    /// Requests to write.
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub requests: u64,
    /// The file; an existing one is replaced.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Format: fiu, vscsi, mqsim, msr, blkparse or session.
    #[arg(long, default_value_t = Format::Fiu, value_parser = written)]
    pub format: Format,
    #[command(flatten)]
    pub feed: WorkloadArgs,
}

/// Parses a format that can be written.
fn written(name: &str) -> Result<Format, String> {
    let format: Format = name.parse().map_err(|error| format!("{error}"))?;
    if Format::WRITTEN.contains(&format) {
        Ok(format)
    } else {
        let names = Format::WRITTEN.map(|format| format.to_string()).join(", ");
        Err(format!(
            "traces are read as {format} and not written: one of {names}"
        ))
    }
}

/// Bytes collected before a write.
const PIECE_BYTES: usize = 1 << 20;

/// Runs `trace make`.
///
/// # Errors
/// An impossible workload, or a file that cannot be written.
pub(super) fn command(args: &Args) -> Result<(), Failure> {
    let mut source = args.feed.source(&args.workload)?;
    let name = args.out.display();
    let file = File::create(&args.out).map_err(|error| Failure::about(&name, error))?;

    let mut writer = TraceWriter::new(
        args.format,
        Pieces {
            file,
            collected: Vec::new(),
            // Size of the file if the disk becomes full.
            kept_bytes: 0,
        },
    );

    let mut patience = Patience::new("writing", Some(args.requests));
    let (mut batch, mut kept) = (Vec::with_capacity(8192), 0);

    let stopped = |error: io::Error, kept: u64, pieces: &mut Pieces| {
        let whole = if pieces.cut_back() {
            format!("; kept are the first {}", counted(kept, "request"))
        } else {
            String::new()
        };

        Failure::about(&name, format!("{error}{whole}"))
    };

    while writer.written() < args.requests {
        batch.clear();
        source.fill(&mut batch, 4096).map_err(Failure::failed)?;

        // A request consists of all pages up to the last one.
        for request in batch.chunk_by(|page, _| !page.last) {
            if writer.written() == args.requests {
                break;
            }
            writer
                .request(request)
                .expect("collecting in memory succeeds");
        }

        let (written, pieces) = (writer.written(), writer.sink());

        // Complete pieces only, so that a full disk leaves complete requests.
        if pieces.collected.len() >= PIECE_BYTES || written == args.requests {
            pieces
                .write_out()
                .map_err(|error| stopped(error, kept, pieces))?;
            kept = written;
        }

        patience.at(written);
    }

    let pieces = writer.sink();

    // Some file systems report a full disk only now.
    let synced = match pieces.file.metadata() {
        Ok(facts) if facts.is_file() => pieces.file.sync_all(),
        _ => Ok(()),
    };

    synced.map_err(|error| Failure::about(&name, error))?;
    let size = bytes(pieces.kept_bytes);
    drop(patience);

    // Reported, because a trace without them is another workload.
    let left_out = match writer.left_out() {
        0 => String::new(),
        some => format!(
            "; {} (deallocations or remaps) left out, for which format {} has no words",
            counted(some, "request"),
            args.format
        ),
    };

    output::text(&format!(
        "{name}: {} ({size}, format {}){left_out}\n",
        counted(kept, "request"),
        args.format
    ))
}

/// A file, written in pieces of complete records.
struct Pieces {
    file: File,
    collected: Vec<u8>,
    kept_bytes: u64,
}

impl Pieces {
    fn write_out(&mut self) -> io::Result<()> {
        self.file.write_all(&self.collected)?;
        self.kept_bytes += self.collected.len() as u64;
        self.collected.clear();
        Ok(())
    }

    /// Removes the remains of a failed piece.
    fn cut_back(&mut self) -> bool {
        self.file.set_len(self.kept_bytes).is_ok()
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.collected.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
