//! `serve --record`: records the device's commands as a trace for `compare --trace`.
//!
//! Invariants: lines are in the device's order; a write error ends the recording, never the
//! service. A killed server loses the last seconds of the recording, and may leave a partial line.

use crate::error::ServiceError;
use remap_ssd_device::DeviceConfig;
use remap_ssd_nvme::controller::{Fingerprint, RecordedOp, Recorder};
use remap_ssd_sim::trace::session::{SessionEntry, write_device};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A trace written while hosts are served.
#[derive(Clone)]
pub(crate) struct Recording {
    path: PathBuf,
    /// None after an error.
    file: Arc<Mutex<Option<BufWriter<File>>>>,
    /// At least one command was recorded.
    used: Arc<AtomicBool>,
}

impl Recording {
    /// Creates a new file.
    ///
    /// # Errors
    /// It exists already, or cannot be created.
    pub(crate) fn create(path: &Path) -> Result<Self, ServiceError> {
        let file = File::create_new(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => ServiceError::about(
                path.display(),
                "the file is there already; remove it, or record to another",
            ),
            _ => ServiceError::about(path.display(), error),
        })?;
        Ok(Self {
            path: path.into(),
            file: Arc::new(Mutex::new(Some(BufWriter::with_capacity(1 << 18, file)))),
            used: Arc::default(),
        })
    }

    /// Writes a description of the device as the first line, so that a replay uses the same.
    pub(crate) fn device(&self, config: &DeviceConfig) {
        self.write(|file| write_device(config, file));
    }

    /// Writes out the buffered lines.
    pub(crate) fn flush(&self) {
        self.write(BufWriter::flush);
    }

    fn write(&self, work: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // The service continues without it: a recording is not worth an error to a host.
        if let Some(file) = &mut *guard
            && let Err(error) = work(file)
        {
            tracing::warn!("{}: {error}; the recording ends here", self.path.display());
            *guard = None;
        }
    }
}

/// The recording of a service, if requested. If this is dropped before all transports serve, the
/// file is removed, so that the next start finds its name free, unless it has commands: a transport
/// may have served until a later one failed to begin.
pub(crate) struct Unserved(pub(crate) Option<Recording>);

impl Unserved {
    /// Keeps the file: all transports serve from now on.
    pub(crate) fn served(mut self) -> Option<Recording> {
        self.0.take()
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        match &self.0 {
            Some(recording) if recording.used.load(Ordering::Relaxed) => recording.flush(),
            Some(recording) => _ = std::fs::remove_file(&recording.path),
            None => {}
        }
    }
}

impl Recorder for Recording {
    fn fingerprint(&self, page: &[u8; 4096]) -> Fingerprint {
        *blake3::hash(page)
            .as_bytes()
            .first_chunk()
            .expect("a digest has 32 bytes")
    }

    fn command(&self, now: u64, ops: &[RecordedOp]) {
        self.used.store(true, Ordering::Relaxed);
        self.write(|file| {
            for group in ops.chunk_by(adjoin) {
                line(now, group, file)?;
            }
            Ok(())
        });
    }
}

/// Returns true if two operations can share a line.
fn adjoin(first: &RecordedOp, second: &RecordedOp) -> bool {
    match (first, second) {
        (RecordedOp::Read(first), RecordedOp::Read(second))
        | (RecordedOp::Write(first, _), RecordedOp::Write(second, _)) => first.offset(1) == *second,
        _ => false,
    }
}

fn line(now: u64, ops: &[RecordedOp], to: &mut impl Write) -> io::Result<()> {
    // Adjacent operations of one kind share a line.
    let count = ops.len() as u64;

    let entry = match ops[0] {
        RecordedOp::Read(page) => SessionEntry::Read {
            page: page.into(),
            count,
        },
        RecordedOp::Write(page, _) => {
            let digest = |op: &RecordedOp| {
                if let RecordedOp::Write(_, digest) = op {
                    Some(*digest)
                } else {
                    None
                }
            };

            let digests: Vec<Fingerprint> = ops.iter().filter_map(digest).collect();

            return SessionEntry::Write {
                page: page.into(),
                digests: &digests,
            }
            .write(now, to);
        }
        RecordedOp::Deallocate(page, count) => SessionEntry::Deallocate {
            page: page.into(),
            count: count.into(),
        },
        RecordedOp::Remap(remap) => SessionEntry::Remap {
            target: remap.target.into(),
            source: remap.source.into(),
            count: remap.len.into(),
            relocate: remap.relocate,
            atomic: remap.atomic,
        },
        RecordedOp::Flush => SessionEntry::Flush,
    };

    entry.write(now, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_without_commands_is_removed_and_one_with_commands_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace");
        for used in [false, true] {
            let recording = Recording::create(&path).expect("a new file");
            let unserved = Unserved(Some(recording.clone()));
            if used {
                recording.command(1, &[RecordedOp::Flush]);
            }
            drop(unserved);
            assert_eq!(path.exists(), used);
        }
        let text = std::fs::read_to_string(&path).expect("it is kept");
        assert_eq!(text.lines().count(), 1, "the flush, written out: {text}");
    }
}
