//! The pipe for a workload's marks, when there is no FUSE file to write them to.
//!
//! A line enters the pipe before its writer's next action. So the pipe is drained before any other
//! entry is recorded, and a mark precedes everything that follows from it. Absent: the recording.

use crate::child::{ToolError, tool};
use crate::error::TortureError;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A named pipe with non-blocking reads.
pub(crate) struct MarkPipe(File);

impl MarkPipe {
    /// Makes the pipe.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn new(path: &Path) -> Result<Self, TortureError> {
        tool("mkfifo", &[&path.to_string_lossy()]).map_err(|error| match error {
            ToolError::NotThere => {
                TortureError::missing("mkfifo is not installed: install the package coreutils")
            }
            ToolError::Failed(words) => TortureError::Io(io::Error::other(words)),
        })?;

        // Also open for writing, so that the pipe has a writer between two marks.
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)?;
        Ok(Self(pipe))
    }

    /// Takes the lines now in the pipe.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn take(&mut self) -> io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        // An empty pipe ends the read with `WouldBlock`; earlier data are in `lines`.
        match self.0.read_to_end(&mut lines) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(lines),
        }
    }
}
