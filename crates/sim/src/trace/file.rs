//! Writes a workload to a file.
//!
//! Records are collected and written in large pieces. If a piece cannot be written, the file is
//! truncated to the previous piece: it then has complete requests from the beginning of the
//! workload. Invariant: a complete file has exactly the requested number of requests. Absent: the
//! records (`write`).

use super::{Format, TraceWriter};
use crate::source::SourceError;
use crate::workload::Endless;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes collected before a write.
const PIECE_BYTES: usize = 1 << 20;

/// A trace in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenTrace {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Requests that the format cannot express.
    pub left_out: u64,
}

/// Why a file is not complete.
#[derive(Debug, thiserror::Error)]
pub enum WriteTraceError {
    /// The workload failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file cannot be created or synced.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The file cannot be written to its end.
    #[error("{error}")]
    Stopped {
        /// The system's reason.
        error: io::Error,
        /// Number of requests in the file, all complete; `None` if its end may be incomplete.
        kept: Option<u64>,
    },
}

/// Writes the first requests of a workload to a file, and replaces an existing one. `progress` gets
/// the number of requests written.
///
/// # Errors
/// The workload or the file fails.
///
/// # Panics
/// The format is not in `Format::WRITTEN`.
pub fn write_file(
    path: &Path,
    format: Format,
    source: &mut dyn Endless,
    requests: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<WrittenTrace, WriteTraceError> {
    let file = File::create(path)?;
    let mut writer = TraceWriter::new(format, Pieces::of(file));
    let (mut batch, mut kept) = (Vec::with_capacity(8192), 0);

    while writer.written() < requests {
        batch.clear();
        source.fill(&mut batch, 4096)?;

        // A request consists of all pages up to the last one.
        for request in batch.chunk_by(|page, _| !page.last) {
            if writer.written() == requests {
                break;
            }
            writer
                .request(request)
                .expect("collecting in memory succeeds");
        }

        // Complete pieces only, so that a full disk leaves complete requests.
        let (written, pieces) = (writer.written(), writer.sink());
        if pieces.collected.len() >= PIECE_BYTES || written == requests {
            if let Err(error) = pieces.write_out() {
                let kept = pieces.cut_back().then_some(kept);
                return Err(WriteTraceError::Stopped { error, kept });
            }
            kept = written;
        }
        progress(written);
    }

    // Some file systems report a full disk only now.
    let pieces = writer.sink();
    if pieces.file.metadata().is_ok_and(|facts| facts.is_file()) {
        pieces.file.sync_all()?;
    }
    Ok(WrittenTrace {
        bytes: pieces.kept_bytes,
        left_out: writer.left_out(),
    })
}

/// A file, written in pieces of complete records.
struct Pieces {
    file: File,
    collected: Vec<u8>,
    /// Size of the file if the disk becomes full.
    kept_bytes: u64,
}

impl Pieces {
    fn of(file: File) -> Self {
        Self {
            file,
            collected: Vec::new(),
            kept_bytes: 0,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::NamedWorkload;

    fn write(path: &Path, requests: u64) -> Result<WrittenTrace, WriteTraceError> {
        let workload: NamedWorkload = "oltp".parse().expect("a workload");
        let content = workload.content_default();
        let source = workload.source(content, 4096, 1, 0);
        let mut source = source.expect("possible");
        write_file(path, Format::Msr, &mut *source, requests, &mut |_| {})
    }

    #[test]
    fn a_file_has_exactly_the_requests_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace");
        let written = write(&path, 1234).expect("room");
        let text = std::fs::read_to_string(&path).expect("it is text");
        assert_eq!(text.lines().count(), 1234);
        assert_eq!(written.bytes, text.len() as u64);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_is_full_is_an_error() {
        let full = write(Path::new("/dev/full"), 10);
        assert!(
            matches!(full, Err(WriteTraceError::Stopped { kept: None, .. })),
            "a device cannot be truncated: {full:?}"
        );
    }
}
