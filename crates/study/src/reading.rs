//! Reading a trace, with progress and cancellation.
//!
//! It is read once, to its end, for all schemes and rounds: a malformed line is reported at once,
//! the length is known, and the requests served can be compared with those in the trace. Invariant:
//! the data read do not depend on the follower. Absent: formats and compression
//! (`remap_ssd_sim::trace`).

use crate::{ComparisonSpec, Error};
use remap_ssd_sim::source::{SourceError, TIME_MAX_NS};
use remap_ssd_sim::study::{TraceReplay, WHOLE_DISK};
use remap_ssd_sim::trace::{Decoded, Fold, TraceOptions};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Progress of reading a trace's file, in bytes on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesRead {
    /// Bytes read so far.
    pub done: u64,
    /// Size of the file; 0 for a pipe.
    pub total: u64,
}

impl BytesRead {
    /// Fraction read, from 0 to 1; 0 if the size is unknown.
    pub fn share(self) -> f64 {
        if self.total == 0 {
            0.0
        } else {
            (self.done as f64 / self.total as f64).min(1.0)
        }
    }
}

/// Reads the trace of the arguments to its end.
///
/// # Errors
/// It cannot be read, or a record is malformed, or it records contents and a model of them is given;
/// `Stopped` if the reading was aborted.
pub(crate) fn trace(
    spec: &ComparisonSpec,
    path: &Path,
    follow: Follow,
    notes: &mut Vec<String>,
) -> Result<TraceReplay, Error> {
    let options = TraceOptions {
        fold: spec.fold.unwrap_or(Fold::Modulo),
        skip_bad: spec.skip_bad,
        action: spec.blkparse_action,
        flushes: spec.flushes,
        ..TraceOptions::new(WHOLE_DISK)
    };
    let file =
        FollowedFile::open(path, follow).map_err(|error| Error::about(path.display(), error))?;
    let decoded = Decoded::read_from(file, path, spec.format, options).map_err(failure)?;

    if let Some(line) = decoded.torn() {
        notes.push(torn_note(path, line));
    }
    for text in decoded.notes() {
        notes.push(reading_note(path, text));
    }

    // The times of all rounds are added up.
    let duration_ns = decoded.stat().duration_ns;
    let total_ns = duration_ns.checked_mul(spec.repeat().into());
    if total_ns.is_none_or(|total_ns| total_ns > TIME_MAX_NS) {
        return Err(Error::usage(format_args!(
            "--repeat {}: the trace lasts {:.0} s, and all rounds may last 146 years",
            spec.repeat(),
            duration_ns as f64 / 1e9
        )));
    }

    let replay = TraceReplay {
        decoded: Arc::new(decoded),
        options,
        repeat: spec.repeat(),
        content: spec.content(),
    };
    replay.check_content().map_err(|error| {
        let option = if spec.content.is_some() {
            "--content"
        } else {
            "--duplicates"
        };
        let other = "--aging content=MODEL sets the contents of aging alone";
        Error::usage(format_args!("{option}: {error}; {other}"))
    })?;
    Ok(replay)
}

/// A note about the reading of a trace.
pub(crate) fn reading_note(path: &Path, text: &str) -> String {
    format!("note: {}: {text}", path.display())
}

/// A note about a session that a killed server left.
pub(crate) fn torn_note(path: &Path, line: u64) -> String {
    format!(
        "note: {}:{line}: the session ends in half a record, as one whose server was killed: it is left out",
        path.display()
    )
}

/// Converts an error of reading a trace.
fn failure(error: SourceError) -> Error {
    match &error {
        SourceError::Io { source, .. } if FollowedFile::is_given_up(source) => {
            Error::Stopped("the trace was not read to its end")
        }
        _ => Error::failed(error),
    }
}

/// Called before each piece is read, on the reading thread; `Break` aborts.
pub type Follow = Box<dyn FnMut(BytesRead) -> ControlFlow<()> + Send>;

/// Reads the file to its end without reporting.
pub fn unfollowed() -> Follow {
    Box::new(|_| ControlFlow::Continue(()))
}

/// Aborts once `stop` is set.
pub fn until(stop: Arc<AtomicBool>) -> Follow {
    Box::new(move |_| gone_on_with(&stop))
}

fn gone_on_with(stop: &AtomicBool) -> ControlFlow<()> {
    if stop.load(Ordering::Relaxed) {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// A file that reports its reading to a follower.
struct FollowedFile {
    file: File,
    read: BytesRead,
    follow: Follow,
}

impl FollowedFile {
    fn open(path: &Path, follow: Follow) -> io::Result<Self> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        let read = BytesRead { done: 0, total };
        Ok(Self { file, read, follow })
    }

    /// Returns true if the error means that the reading was aborted.
    fn is_given_up(error: &io::Error) -> bool {
        error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
    }
}

impl Read for FollowedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.follow)(self.read).is_break() {
            // A system error passes through all layers above unchanged.
            return Err(Errno::CANCELED.into());
        }

        let more = self.file.read(buffer)?;
        self.read.done += more as u64;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tempfile::NamedTempFile;

    /// 100,000 bytes, read in pieces of 1,000.
    fn read_by_thousands(follow: Follow) -> (usize, io::Result<()>) {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(&[7; 100_000]).unwrap();

        let mut followed = FollowedFile::open(file.path(), follow).unwrap();
        let (mut bytes, mut piece) = (0, [0; 1000]);
        loop {
            match followed.read(&mut piece) {
                Ok(0) => return (bytes, Ok(())),
                Ok(more) => bytes += more,
                Err(error) => return (bytes, Err(error)),
            }
        }
    }

    #[test]
    fn each_piece_is_told_before_it_is_read() {
        let (tell, told) = std::sync::mpsc::channel();
        let follow = Box::new(move |read: BytesRead| {
            tell.send((read.done, read.total, read.share())).unwrap();
            ControlFlow::Continue(())
        });

        let (bytes, ended) = read_by_thousands(follow);
        ended.unwrap();
        assert_eq!(bytes, 100_000);

        let told: Vec<_> = told.iter().collect();
        assert_eq!(told.len(), 101); // the last one finds the end
        assert_eq!(
            (told[0], told[25]),
            ((0, 100_000, 0.0), (25_000, 100_000, 0.25))
        );
        assert_eq!(told[100], (100_000, 100_000, 1.0));
    }

    #[test]
    fn a_file_that_is_given_up_ends_with_an_error_of_its_own() {
        let follow = Box::new(|read: BytesRead| {
            if read.done < 3000 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });

        let (bytes, ended) = read_by_thousands(follow);
        assert_eq!(bytes, 3000);
        assert!(FollowedFile::is_given_up(&ended.unwrap_err()));
    }

    #[test]
    fn a_pipe_has_no_share() {
        let read = BytesRead { done: 5, total: 0 };
        assert_eq!(read.share(), 0.0);
    }
}
