//! Writes requests from arrays as a trace in the format of `serve --record`.
//!
//! Invariants: every row is one request; an invalid row is an error that names it. Absent: the
//! arrays' types (`remap_ssd/_trace.py` converts them to plain columns).

use crate::errors::{Failed, mistake};
use pyo3::prelude::*;
use remap_ssd_sim::trace::session::SessionEntry;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes of a digest in this format.
const DIGEST_BYTES: usize = 16;

/// Columns as native-endian bytes: one letter per row, then 64-bit numbers.
struct Columns<'a> {
    verbs: &'a [u8],
    pages: ColumnBytes<'a>,
    counts: ColumnBytes<'a>,
    sources: Option<ColumnBytes<'a>>,
    times: Option<ColumnBytes<'a>>,
    /// One per page written, in order.
    fingerprints: Option<ColumnBytes<'a>>,
}

/// A column of 64-bit numbers, as bytes.
#[derive(Clone, Copy)]
struct ColumnBytes<'a>(&'a [u8]);

impl ColumnBytes<'_> {
    fn len(self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    fn at(self, index: usize) -> u64 {
        let bytes = &self.0[index * size_of::<u64>()..][..size_of::<u64>()];
        u64::from_ne_bytes(bytes.try_into().expect("the slice has eight bytes"))
    }
}

/// Writes rows as a trace.
#[pyfunction]
#[pyo3(signature = (path, verbs, pages, counts, sources, times, fingerprints))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn write_trace(
    py: Python<'_>,
    path: PathBuf,
    verbs: &[u8],
    pages: &[u8],
    counts: &[u8],
    sources: Option<&[u8]>,
    times: Option<&[u8]>,
    fingerprints: Option<&[u8]>,
) -> PyResult<()> {
    let columns = Columns {
        verbs,
        pages: ColumnBytes(pages),
        counts: ColumnBytes(counts),
        sources: sources.map(ColumnBytes),
        times: times.map(ColumnBytes),
        fingerprints: fingerprints.map(ColumnBytes),
    };

    columns.check().map_err(mistake)?;
    py.detach(|| columns.write(&path))
        .map_err(|error| Failed::new_err(format!("{}: {error}", path.display())))
}

impl Columns<'_> {
    fn check(&self) -> Result<(), String> {
        let rows = self.verbs.len();
        let same = |name: &str, column: Option<ColumnBytes<'_>>| match column {
            Some(column) if column.len() != rows => Err(format!(
                "`{name}` has {} rows and `op` has {rows}: give each the same number",
                column.len()
            )),
            _ => Ok(()),
        };
        same("lpn", Some(self.pages))?;
        same("pages", Some(self.counts))?;
        same("source", self.sources)?;
        same("time_ns", self.times)?;

        let mut written: u64 = 0;
        for row in 0..rows {
            let (verb, count) = (self.verbs[row], self.counts.at(row));
            if count == 0 && verb != b'F' {
                return Err(format!("row {row}: a request of 0 pages is none"));
            }
            if verb == b'P' && count != 1 {
                return Err(format!(
                    "row {row}: part of a page is written to one page, and not to {count}"
                ));
            }
            if matches!(verb, b'C' | b'M') && self.sources.is_none() {
                return Err(format!(
                    "row {row}: a remap needs the column `source`, its first source page"
                ));
            }
            written = written.saturating_add(if verb == b'W' { count } else { 0 });
        }

        if let Some(times) = self.times {
            for row in 1..rows {
                let (before, now) = (times.at(row - 1), times.at(row));
                if now < before {
                    return Err(format!(
                        "row {row}: `time_ns` is {now}, and {before} in the row before: times never decrease"
                    ));
                }
            }
        }

        match self.fingerprints {
            Some(fingerprints) if fingerprints.len() as u64 != written => Err(format!(
                "`fingerprint` has {} values and the writes have {written} pages: give one for each page written, in order",
                fingerprints.len()
            )),
            _ => Ok(()),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let (mut next, mut digests) = (0, Vec::new());

        for row in 0..self.verbs.len() {
            let (page, count) = (self.pages.at(row), self.counts.at(row));
            let at_ns = self.times.map_or(0, |times| times.at(row));
            let source = self.sources.map_or(0, |sources| sources.at(row));
            let remap = |relocate| SessionEntry::Remap {
                target: page,
                source,
                count,
                relocate,
                atomic: false,
            };

            let entry = match (self.verbs[row], self.fingerprints) {
                (b'W', Some(fingerprints)) => {
                    digests.clear();
                    digests.extend(
                        (next..next + count as usize).map(|at| digest(fingerprints.at(at))),
                    );
                    next += count as usize;
                    SessionEntry::Write {
                        page,
                        digests: &digests,
                    }
                }
                (b'W', None) => {
                    // Contents that were not recorded: the format writes `N` for them, and
                    // `SessionEntry` has no variant.
                    writeln!(file, "{at_ns} N {page} {count}")?;
                    continue;
                }
                (b'P', _) => SessionEntry::WritePart { page },
                (b'D', _) => SessionEntry::Deallocate { page, count },
                (b'C', _) => remap(false),
                (b'M', _) => remap(true),
                (b'F', _) => SessionEntry::Flush,
                _ => SessionEntry::Read { page, count },
            };
            entry.write(at_ns, &mut file)?;
        }
        file.flush()
    }
}

fn digest(fingerprint: u64) -> [u8; DIGEST_BYTES] {
    u128::from(fingerprint).to_be_bytes()
}
