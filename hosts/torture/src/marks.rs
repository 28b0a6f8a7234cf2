//! The pipe into which a workload writes its marks, where there is no FUSE to take them.
//!
//! A line in the pipe was written before whatever its writer does next. So the pipe is emptied
//! before anything else enters the record, and a mark comes before all that follows from it.
//! Absent: the record.

use crate::child::{ToolError, tool};
use crate::error::TortureError;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A named pipe that is read without waiting.
pub(crate) struct MarkPipe(File);

impl MarkPipe {
    /// Makes the pipe.
    ///
    /// # Errors
    /// The system's reason.
    pub fn new(path: &Path) -> Result<Self, TortureError> {
        tool("mkfifo", &[&path.to_string_lossy()]).map_err(|error| match error {
            ToolError::NotThere => {
                TortureError::missing("mkfifo is not installed: install the package coreutils")
            }
            ToolError::Failed(words) => TortureError::Io(io::Error::other(words)),
        })?;

        // Open for writing as well, so that it has a writer between two marks.
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)?;
        Ok(Self(pipe))
    }

    /// The lines that are there.
    ///
    /// # Errors
    /// The system's reason.
    pub fn take(&mut self) -> io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        // An empty pipe ends the reading with `WouldBlock`; what came before it is in `lines`.
        match self.0.read_to_end(&mut lines) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(lines),
        }
    }
}
