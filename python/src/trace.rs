//! Requests in columns: written as a trace in the format of `serve --record`, and read from a trace
//! of any format.
//!
//! Invariants: every row is one request; an invalid row is an error that names it. Absent: the
//! arrays' types (`remap_ssd/_trace.py` converts them to plain columns).

use crate::errors::{failed, failed_at, mistake};
use crate::stop::StopSign;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use remap_ssd_sim::source::{HostPage, PageKind, Source};
use remap_ssd_sim::study::WHOLE_DISK;
use remap_ssd_sim::trace::session::SessionEntry;
use remap_ssd_sim::trace::{Decoded, Format, TraceOptions};
use remap_ssd_study::Error;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a digest in this format.
const DIGEST_BYTES: usize = 16;

/// Columns as native-endian bytes: one letter per row, then 64-bit numbers.
pub(crate) struct Columns<'a> {
    pub(crate) verbs: &'a [u8],
    pub(crate) pages: ColumnBytes<'a>,
    pub(crate) counts: ColumnBytes<'a>,
    pub(crate) sources: Option<ColumnBytes<'a>>,
    pub(crate) times: Option<ColumnBytes<'a>>,
    /// One per page written, in order.
    pub(crate) fingerprints: Option<ColumnBytes<'a>>,
}

/// A column of 64-bit numbers, as bytes.
#[derive(Clone, Copy)]
pub(crate) struct ColumnBytes<'a>(&'a [u8]);

impl ColumnBytes<'_> {
    fn len(self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    pub(crate) fn at(self, index: usize) -> u64 {
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
    let columns = Columns::new(verbs, pages, counts, sources, times, fingerprints);
    columns.check().map_err(mistake)?;
    py.detach(|| columns.write(&path))
        .map_err(|error| failed_at(&path, error))
}

/// Checks rows without writing them.
#[pyfunction]
#[pyo3(signature = (verbs, pages, counts, sources, times, fingerprints))]
pub(crate) fn check_columns(
    verbs: &[u8],
    pages: &[u8],
    counts: &[u8],
    sources: Option<&[u8]>,
    times: Option<&[u8]>,
    fingerprints: Option<&[u8]>,
) -> PyResult<()> {
    let columns = Columns::new(verbs, pages, counts, sources, times, fingerprints);
    columns.check().map_err(mistake)
}

/// Columns for Python, in the order of `Columns`; `None` for a column without content.
type PythonColumns<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
);

/// Reads a trace of any format into columns; also returns remarks about it.
#[pyfunction]
pub(crate) fn read_trace<'py>(
    py: Python<'py>,
    path: PathBuf,
    format: Option<&str>,
    skip_bad: bool,
) -> PyResult<(PythonColumns<'py>, Vec<String>)> {
    let format: Option<Format> = format.map(str::parse).transpose().map_err(mistake)?;
    let options = TraceOptions {
        skip_bad,
        flushes: true,
        ..TraceOptions::new(WHOLE_DISK)
    };
    let raised = Arc::default();
    let read = py.detach(|| Rows::read(&path, format, options, &raised));
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let (rows, notes) = read?;
    let bytes = |column: &[u64]| {
        let native: Vec<u8> = column
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        PyBytes::new(py, &native)
    };
    let columns = (
        PyBytes::new(py, &rows.verbs),
        bytes(&rows.pages),
        bytes(&rows.counts),
        rows.has_remaps().then(|| bytes(&rows.sources)),
        bytes(&rows.times),
        rows.has_digests.then(|| bytes(&rows.contents)),
    );
    Ok((columns, notes))
}

/// The rows of a trace that was read.
#[derive(Default)]
struct Rows {
    verbs: Vec<u8>,
    pages: Vec<u64>,
    counts: Vec<u64>,
    sources: Vec<u64>,
    times: Vec<u64>,
    contents: Vec<u64>,
    has_digests: bool,
}

impl Rows {
    fn read(
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
        raised: &Arc<Mutex<Option<PyErr>>>,
    ) -> PyResult<(Self, Vec<String>)> {
        let about = |error: &dyn std::fmt::Display| failed(Error::Failed(error.to_string()));
        let file = Interruptible {
            file: File::open(path).map_err(|error| failed_at(path, error))?,
            sign: StopSign::new(),
            looked: Instant::now(),
            raised: Arc::clone(raised),
        };
        let decoded =
            Decoded::read_from(file, path, format, options).map_err(|error| about(&error))?;
        let mut rows = Self {
            has_digests: decoded.has_digests(),
            ..Self::default()
        };
        let (mut replay, mut batch) = (decoded.replay(options, 1), Vec::new());
        while replay
            .fill(&mut batch, 4096)
            .map_err(|error| about(&error))?
        {
            let mut begins = true;
            for page in batch.drain(..) {
                rows.add(&page, begins);
                begins = page.last;
            }
        }
        Ok((rows, decoded.notes().to_vec()))
    }

    /// Adds a page: to the row before, if it continues that one's request.
    fn add(&mut self, page: &HostPage, begins: bool) {
        let (verb, source, count) = match page.kind {
            PageKind::Read => (b'R', 0, 1),
            PageKind::Write | PageKind::WriteFor { .. } => (b'W', 0, 1),
            PageKind::ReadModifyWrite => (b'P', 0, 1),
            PageKind::Trim => (b'D', 0, 1),
            PageKind::Flush => (b'F', 0, 0),
            PageKind::Remap {
                source,
                len,
                relocate,
                ..
            } => (
                if relocate { b'M' } else { b'C' },
                source.into(),
                len.into(),
            ),
        };
        if verb == b'W' {
            self.contents.push(page.content);
        }

        let lpn = u64::from(page.lpn);
        let continues = !begins
            && matches!(verb, b'R' | b'W' | b'D')
            && self.verbs.last() == Some(&verb)
            && self
                .pages
                .last()
                .zip(self.counts.last())
                .map(|(first, count)| first + count)
                == Some(lpn);
        if let (true, Some(pages)) = (continues, self.counts.last_mut()) {
            *pages += 1;
            return;
        }
        self.verbs.push(verb);
        self.pages.push(lpn);
        self.counts.push(count);
        self.sources.push(source);
        self.times.push(page.at_ns);
    }

    fn has_remaps(&self) -> bool {
        self.verbs.iter().any(|verb| matches!(verb, b'C' | b'M'))
    }
}

/// A file whose reading a signal or `stop` ends.
struct Interruptible {
    file: File,
    sign: StopSign,
    looked: Instant,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        /// Reading a piece is faster than taking the interpreter's lock.
        const LOOK_EVERY: Duration = Duration::from_millis(50);

        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            if let Err(error) = Python::attach(|py| self.sign.check(py)) {
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return Err(io::Error::other("stopped"));
            }
        }
        self.file.read(buffer)
    }
}

impl<'a> Columns<'a> {
    pub(crate) fn new(
        verbs: &'a [u8],
        pages: &'a [u8],
        counts: &'a [u8],
        sources: Option<&'a [u8]>,
        times: Option<&'a [u8]>,
        fingerprints: Option<&'a [u8]>,
    ) -> Self {
        Self {
            verbs,
            pages: ColumnBytes(pages),
            counts: ColumnBytes(counts),
            sources: sources.map(ColumnBytes),
            times: times.map(ColumnBytes),
            fingerprints: fingerprints.map(ColumnBytes),
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
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
