//! A trace, replayed as often as wanted, and what is known of it beforehand.
//!
//! The trace is read through once before anything runs: a malformed line is said at once, the length is known, and
//! what was served can be held against what there was.
//! Invariant: each time round the contents are new ones and times go on where the last round ended.
//! Absent: formats and folding (`remap_ssd_sim::trace`).

use super::args::Args;
use super::plan::trace_options;
use crate::failure::Failure;
use remap_ssd_sim::source::{HostPage, Source, SourceError};
use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader, TraceStat, stat};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What is known of a trace.
#[derive(Clone, Debug)]
pub struct TraceFacts {
    /// The file.
    pub path: PathBuf,
    /// How it is written.
    pub format: Format,
    /// What is in it.
    pub stat: TraceStat,
    /// How often it is replayed.
    pub repeat: u32,
}

/// Addresses of the first reading are folded no further than this.
const WHOLE_DISK: u32 = u32::MAX >> 1;

impl TraceFacts {
    /// Reads a trace through.
    ///
    /// # Errors
    /// It cannot be read, or a record is malformed.
    pub fn read(args: &Args, path: &Path) -> Result<Self, Failure> {
        let options = trace_options(args, WHOLE_DISK);
        let format = TraceReader::open(path, args.format, options)
            .map_err(Failure::failed)?
            .format();
        let stat = stat(path, Some(format), options).map_err(Failure::failed)?;
        Ok(Self {
            path: path.into(),
            format,
            stat,
            repeat: args.repeat,
        })
    }

    /// Requests in all.
    pub fn requests(&self) -> u64 {
        self.stat.requests * u64::from(self.repeat)
    }

    /// Pages written in all.
    pub fn pages_written(&self) -> u64 {
        (self.stat.writes + self.stat.read_modify_writes) * u64::from(self.repeat)
    }

    /// Pages in all.
    pub fn pages(&self) -> u64 {
        (self.stat.reads + self.stat.trims + self.stat.remaps) * u64::from(self.repeat)
            + self.pages_written()
    }

    /// Its part of the configuration; the file by name only, so that results do not depend on where it lies.
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

/// A trace as an endless or finite source.
pub struct Replay {
    facts: TraceFacts,
    options: TraceOptions,
    reader: TraceReader,
    rounds_left: u32,
    /// Added to the times of this round, and the last time handed out.
    offset_ns: u64,
    at_ns: u64,
    skipped: u64,
}

impl Replay {
    /// The trace from its first request on.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub fn open(facts: &TraceFacts, options: TraceOptions) -> Result<Self, SourceError> {
        let reader = TraceReader::open(&facts.path, Some(facts.format), options)?;
        let rounds_left = facts.repeat - 1;
        Ok(Self {
            facts: facts.clone(),
            options,
            reader,
            rounds_left,
            offset_ns: 0,
            at_ns: 0,
            skipped: 0,
        })
    }

    /// Malformed records skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped + self.reader.skipped()
    }

    fn next_round(&mut self) -> Result<(), SourceError> {
        self.rounds_left -= 1;
        self.offset_ns = self.at_ns;
        self.skipped += self.reader.skipped();
        self.options.content_base = self.reader.content_end() - 1;
        self.reader = TraceReader::open(&self.facts.path, Some(self.facts.format), self.options)?;
        Ok(())
    }
}

impl Source for Replay {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let start = out.len();
        while !self.reader.fill(out, want)? {
            if self.rounds_left == 0 {
                return Ok(false);
            }
            self.next_round()?;
        }
        for page in &mut out[start..] {
            page.at_ns += self.offset_ns;
            self.at_ns = page.at_ns;
        }
        Ok(true)
    }

    fn len_hint(&self) -> Option<u64> {
        Some(self.facts.pages())
    }
}
