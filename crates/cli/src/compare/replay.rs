//! A trace, and the facts known before anything runs.
//!
//! The trace is read once, for all schemes and rounds: a malformed line is reported at once, the
//! length is known, and the requests served can be compared with the requests in the trace. Absent:
//! formats, folding and the in-memory form of a trace (`remap_ssd_sim::trace`).

use super::args::Args;
use super::reading::{Follow, FollowedFile};
use crate::failure::Failure;
use crate::output;
use remap_ssd_device::DeviceConfig;
use remap_ssd_sim::source::{SourceError, TIME_MAX_NS};
use remap_ssd_sim::trace::{Decoded, Format, Replay, TraceOptions, TraceStat};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Facts about a trace.
#[derive(Clone, Debug)]
pub struct TraceFacts {
    /// The file of the trace.
    pub path: PathBuf,
    /// The format of the trace.
    pub format: Format,
    /// Counts from the first reading.
    pub stat: TraceStat,
    /// Number of replays.
    pub repeat: u32,
    requests: Box<Decoded>,
}

/// Converts an error of reading a trace.
fn failure(error: SourceError) -> Failure {
    match &error {
        SourceError::Io { source, .. } if FollowedFile::is_given_up(source) => {
            Failure::Stopped("the trace was not read to its end")
        }
        _ => Failure::failed(error),
    }
}

/// Maximum folding of addresses in the first reading.
const WHOLE_DISK: u32 = u32::MAX >> 1;

impl TraceFacts {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// It cannot be read, or a record is malformed; `Stopped` if the reading was aborted.
    pub fn read(args: &Args, path: &Path, follow: Follow) -> Result<Self, Failure> {
        let options = trace_options(args, WHOLE_DISK);
        // Read to its end before anything runs: a malformed line must not end a comparison after
        // hours.
        let file = FollowedFile::open(path, follow)
            .map_err(|error| Failure::about(path.display(), error))?;
        let requests = Decoded::read_from(file, path, args.format, options).map_err(failure)?;
        if let Some(line) = requests.torn() {
            output::note(crate::trace::torn(path, line));
        }
        for note in requests.notes() {
            output::note(crate::trace::note(path, note));
        }

        // The times of all rounds are added up.
        let total_ns = requests.stat().duration_ns.checked_mul(args.repeat.into());
        if total_ns.is_none_or(|total_ns| total_ns > TIME_MAX_NS) {
            return Err(Failure::usage(format_args!(
                "--repeat {}: the trace lasts {:.0} s, and all rounds may last 146 years",
                args.repeat,
                requests.stat().duration_ns as f64 / 1e9
            )));
        }
        Ok(Self {
            path: path.into(),
            format: requests.format(),
            stat: *requests.stat(),
            repeat: args.repeat,
            requests: Box::new(requests),
        })
    }

    /// The device that was recorded, if the trace names it.
    pub fn device(&self) -> Option<&DeviceConfig> {
        self.requests.device()
    }

    /// Its requests, over all replays.
    pub fn replay(&self, options: TraceOptions) -> Replay {
        self.requests.replay(options, self.repeat)
    }

    /// Number of requests, over all replays.
    pub fn requests(&self) -> u64 {
        self.stat.requests * u64::from(self.repeat)
    }

    /// Number of pages written, over all replays.
    pub fn pages_written(&self) -> u64 {
        (self.stat.writes + self.stat.read_modify_writes) * u64::from(self.repeat)
    }

    /// Number of pages in requests, over all replays.
    pub fn pages(&self) -> u64 {
        (self.stat.reads + self.stat.trims + self.stat.remaps) * u64::from(self.repeat)
            + self.pages_written()
    }

    /// Its part of the configuration; the file by name only, so that results do not depend on its
    /// folder.
    pub fn as_json(&self) -> Value {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        json!({
            "file": file,
            "format": self.format.to_string(),
            "repeat": self.repeat,
            "requests": self.requests(),
            "contains": self.stat,
            "duplicate_share": self.stat.duplicate_share(),
        })
    }
}

/// Options for reading a trace for a device.
pub fn trace_options(args: &Args, addressable: u32) -> TraceOptions {
    TraceOptions {
        fold: args.fold,
        skip_bad: args.skip_bad,
        action: args.blkparse_action,
        flushes: args.flushes,
        content_base: OWN_CONTENTS,
        ..TraceOptions::new(addressable)
    }
}

/// Identities of contents above this one do not occur in aging.
pub const OWN_CONTENTS: u64 = 1 << 40;
