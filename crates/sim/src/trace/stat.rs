//! Summary of a trace in a few numbers: to size a device for it and to compare it with its paper.
//!
//! Invariant: counts are pages as replayed, after cutting and folding with the given options. A
//! *duplicate write* is a write whose content was written before in the same trace, whether or not
//! it is still stored anywhere: the share is that of an infinite memory, as quoted in papers.

use std::path::Path;

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::{Format, TraceOptions, TraceReader};
use crate::source::{PageKind, Source, SourceError};

/// Counts of the replay of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceStat {
    /// Requests replayed, of every kind.
    pub requests: u64,
    /// Pages read, counted once per read.
    pub reads: u64,
    /// Pages written whole.
    pub writes: u64,
    /// Pages written in part, and so read first.
    pub read_modify_writes: u64,
    /// Pages deallocated, counted once per deallocation.
    pub trims: u64,
    /// Pages remapped to others.
    pub remaps: u64,
    /// Distinct logical pages named; with [`super::Fold::Compact`] and `addressable` at its maximum
    /// this is the working set of the traced disk.
    pub unique_pages: u64,
    /// Pages written whole with a content that had been written before.
    pub duplicate_writes: u64,
    /// Time from the first request to the last, nanoseconds.
    pub duration_ns: u64,
    /// Malformed records skipped.
    pub skipped: u64,
    /// Well-formed records that are not requests.
    pub ignored: u64,
}

impl TraceStat {
    /// Duplicate writes as a share of all pages written, whole or in part; 0 without writes.
    pub fn duplicate_share(&self) -> f64 {
        share(self.duplicate_writes, self.writes + self.read_modify_writes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Reads and counts a whole trace.
///
/// # Errors
/// As [`TraceReader::open`] and reading.
pub fn stat(
    path: impl AsRef<Path>,
    format: Option<Format>,
    options: TraceOptions,
) -> Result<TraceStat, SourceError> {
    const BATCH: usize = 4096;

    let mut reader = TraceReader::open(path, format, options)?;

    let mut total = TraceStat::default();
    // Only touched pages are stored: a trace's disk is mostly untouched.
    let (mut pages_seen, mut contents_seen) = (FxHashSet::default(), FxHashSet::default());
    let mut batch = Vec::with_capacity(2 * BATCH);

    while reader.fill(&mut batch, BATCH)? {
        for page in batch.drain(..) {
            match page.kind {
                PageKind::Read => total.reads += 1,
                PageKind::Write | PageKind::WriteFor { .. } => {
                    total.writes += 1;
                    // A failed insertion means a duplicate.
                    total.duplicate_writes += u64::from(!contents_seen.insert(page.content));
                }
                PageKind::ReadModifyWrite => total.read_modify_writes += 1,
                PageKind::Trim => total.trims += 1,
                PageKind::Remap { len, .. } => total.remaps += u64::from(len),
                // A flush has no page.
                PageKind::Flush => continue,
            }

            pages_seen.insert(page.lpn);
            total.duration_ns = page.at_ns;
        }
    }

    total.requests = reader.requests();
    // The reader has counted these: they never became pages.
    total.unique_pages = pages_seen.len() as u64;
    (total.skipped, total.ignored) = (reader.skipped(), reader.ignored());

    Ok(total)
}
