//! Requests of real programs to a device, recorded once and built into the program, for replay in
//! experiments.
//!
//! Each is a compressed session (`remap_ssd_sim::trace`), without times and contents.
//! `rig/sqlite-figures`, `rig/f2fs`, `rig/fswrite` and `rig/leveldb` make them. `NAME@2` is a recording up to its
//! second mark: the time between two marks is a difference of two replays. `NAME+headers` is a recording
//! of SQLite that writes a page of frame headers with each transaction.
//!
//! Invariant: replayed from front to back, with its flushes. Absent: other traces (`trace:FILE`).

use remap_ssd_sim::source::{HostLpn, HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::study::Recorded;
use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader};

/// A mark is a deallocation of this page alone: the last page of the 500 MiB that `rig/f2fs` and
/// `rig/fswrite` record on, which no file system uses.
const MARK: HostLpn = HostLpn::new((500 << 20) / 4096 - 1);

/// Pages of frame headers, which transactions write in turn: the first pages beyond the 2,000 MiB that
/// `rig/sqlite-figures` records on.
const HEADERS: std::ops::Range<u32> = 512_000..512_064;

/// Suffix of a recording that writes frame headers, too.
const WITH_HEADERS: &str = "+headers";

/// Prefix of a workload that is a recording.
pub(crate) const PREFIX: &str = "recording:";

macro_rules! built_in {
    ($($name:literal),*,) => {
        const ALL: &[(&str, &[u8])] = &[$((
            $name,
            include_bytes!(concat!("../../../experiments/recordings/", $name, ".xz")),
        )),*];
    };
}

built_in! {
    "sqlite-wal-fillrandom-stock",
    "sqlite-wal-fillrandom-remap",
    "sqlite-wal-fillseq-stock",
    "sqlite-wal-fillseq-remap",
    "sqlite-rollback-100-off-stock",
    "sqlite-rollback-100-off-copyless",
    "sqlite-rollback-100-off-nojournal",
    "sqlite-rollback-100-off-writeback",
    "sqlite-rollback-100-full-stock",
    "sqlite-rollback-100-full-copyless",
    "sqlite-rollback-100-full-nojournal",
    "sqlite-rollback-1000-off-stock",
    "sqlite-rollback-1000-off-copyless",
    "sqlite-rollback-1000-off-nojournal",
    "sqlite-rollback-1000-off-writeback",
    "sqlite-rollback-1000-full-stock",
    "sqlite-rollback-1000-full-copyless",
    "sqlite-rollback-1000-full-nojournal",
    "sqlite-rollback-10000-off-stock",
    "sqlite-rollback-10000-off-copyless",
    "sqlite-rollback-10000-off-nojournal",
    "sqlite-rollback-10000-off-writeback",
    "sqlite-rollback-10000-full-stock",
    "sqlite-rollback-10000-full-copyless",
    "sqlite-rollback-10000-full-nojournal",
    "f2fs-fileserver-stock",
    "f2fs-fileserver-flagged",
    "f2fs-database-stock",
    "f2fs-database-flagged",
    "f2fs-filebench-stock",
    "f2fs-filebench-lists",
    "f2fs-oltp-stock",
    "f2fs-oltp-lists",
    "f2fs-sync-stock",
    "f2fs-sync-lists",
    "f2fs-sync-8k-stock",
    "f2fs-sync-8k-lists",
    "f2fs-sync-16k-stock",
    "f2fs-sync-16k-lists",
    "leveldb-bench-1000-stock",
    "leveldb-bench-1000-shared",
    "leveldb-bench-4000-stock",
    "leveldb-bench-4000-shared",
    "leveldb-ycsb-1000-stock",
    "leveldb-ycsb-1000-shared",
    "leveldb-ycsb-4000-stock",
    "leveldb-ycsb-4000-shared",
}

/// A recorded host session that runs can replay.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    name: &'static str,
    bytes: &'static [u8],
    /// The mark at which it ends; `None`: its own end.
    ends_at: Option<u32>,
    /// Whether transactions write frame headers to pages of their own.
    has_headers: bool,
}

/// Why there is no such recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// No recording has this name.
    #[error("no recording is named `{0}`; there are {known}", known = names().collect::<Vec<_>>().join(", "))]
    Unknown(String),
    /// This is no mark of a recording.
    #[error("`{0}` is no mark: say 1 or more")]
    NoMark(String),
    /// The recording has no frame headers.
    #[error("`{0}{WITH_HEADERS}`: only whole recordings of SQLite's log have frame headers")]
    NoHeaders(String),
}

/// Returns the recording of that name, its beginning, `NAME@MARK`, or with headers, `NAME+headers`.
///
/// # Errors
/// There is none.
pub fn find(wanted: &str) -> Result<Recording, RecordingError> {
    let (wanted, has_headers) = match wanted.strip_suffix(WITH_HEADERS) {
        Some(name) => (name, true),
        None => (wanted, false),
    };
    if has_headers && (!wanted.starts_with("sqlite-wal-") || wanted.contains('@')) {
        return Err(RecordingError::NoHeaders(wanted.to_owned()));
    }
    let (wanted, mark) = wanted
        .split_once('@')
        .map_or((wanted, None), |(name, mark)| (name, Some(mark)));
    let number = |mark: &str| {
        mark.parse()
            .ok()
            .filter(|mark| *mark > 0)
            .ok_or_else(|| RecordingError::NoMark(mark.to_owned()))
    };
    let ends_at = mark.map(number).transpose()?;

    match ALL.iter().find(|one| one.0 == wanted) {
        Some((name, bytes)) => Ok(Recording {
            name,
            bytes,
            ends_at,
            has_headers,
        }),
        None => Err(RecordingError::Unknown(wanted.to_owned())),
    }
}

/// Names of all recordings built into the program.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|one| one.0)
}

impl Recording {
    /// Digest of its bytes.
    pub fn digest(&self) -> String {
        crate::digest::digest(self.bytes)
    }
}

impl Recorded for Recording {
    fn name(&self) -> &str {
        self.name
    }

    fn replay(&self, options: TraceOptions) -> Result<Box<dyn Source>, SourceError> {
        let options = TraceOptions {
            flushes: true,
            ..options
        };
        let reader = TraceReader::of_bytes(self.name, self.bytes, Some(Format::Session), options)?;
        Ok(match self.ends_at {
            Some(left) => Box::new(Beginning {
                name: self.name,
                reader,
                left,
            }),
            None if self.has_headers => Box::new(WithHeaders {
                reader,
                next: HEADERS.start,
            }),
            None => Box::new(reader),
        })
    }
}

/// A recording up to a mark.
struct Beginning {
    name: &'static str,
    reader: TraceReader,
    /// Remaining marks, including the last one.
    left: u32,
}

impl Source for Beginning {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        if self.left == 0 {
            return Ok(false);
        }
        let from = out.len();
        if !self.reader.fill(out, want)? {
            let reason = format!("it ends {} marks early", self.left);
            return Err(SourceError::Unusable {
                file: self.name.into(),
                reason,
            });
        }

        // Requests are whole here: a longer deallocation that ends with the same page is no mark.
        for at in from..out.len() {
            let is_first = at == from || out[at - 1].last;
            self.left -= u32::from(
                is_first && out[at].last && out[at].kind == PageKind::Trim && out[at].lpn == MARK,
            );
            if self.left == 0 {
                out.truncate(at + 1);
                break;
            }
        }
        Ok(true)
    }
}

/// A recording of SQLite's log in which each write of several pages is followed by a page of frame headers. FAST'21
/// (section 5.3) stores these "collectively in reserved pages", the extension in the frames' own pages. There are 2 % more such
/// writes than transactions.
struct WithHeaders {
    reader: TraceReader,
    /// The reserved page that the next transaction writes.
    next: u32,
}

impl Source for WithHeaders {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let mut pages = Vec::new();
        let more = self.reader.fill(&mut pages, want)?;

        // Requests are not divided between calls: the first page begins one.
        let mut is_first = true;
        for page in pages {
            let ends_transaction = page.last && !is_first && page.kind == PageKind::Write;
            is_first = page.last;
            out.push(page);

            if ends_transaction {
                out.push(HostPage {
                    lpn: HostLpn::new(self.next.into()),
                    ..page
                });
                self.next += 1;
                if self.next == HEADERS.end {
                    self.next = HEADERS.start;
                }
            }
        }
        Ok(more)
    }
}
