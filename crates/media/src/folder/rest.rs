//! Closing and opening a folder at low cost, for programs that do both often.
//!
//! A journal is *at rest* if everything was durable when its last record was stored: it ends with
//! `Ended`, or has no record yet. `rest` leaves the folder with such a journal. `resume` continues
//! it and writes nothing, where `begin` would write a new state.
//!
//! *Rest*: 1. a sync, unless nothing was recorded since the last one. Cut before 1 is done: as in a
//! sync. After: everything is durable, and nothing is appended. A long journal is replaced by a new
//! state instead (`tidy`), so that `resume` never replays more than `REST_BYTES_MAX`.
//!
//! *Resume*: 1. the journal is at rest, and is read to its last byte: no record of its generation
//! is after the end  2. records are appended after the end. Cut before 2: nothing has changed. After
//! 2, the files are those of a process that never closed the folder and whose last sync had
//! returned:
//!
//! - A record that a crash left after a gap would become valid again once the gap is filled. 1
//!   excludes it: such a journal gets a new state.
//! - `Synced` with a record after it proves that the sync returned. Without `Ended` the process may
//!   have died within the sync, and a new record after it would be a false proof: such a journal
//!   gets a new state.
//! - Killed between the header of a journal and its sync, the previous process has left a header
//!   that may not be durable. The first record begins in the header's sector: without the header it
//!   is not there either, and no later one is valid. The next sync makes both durable.
//! - The next new state has the next generation. `load` requires that no file has begun it.
//!
//! Absent: fingerprints, which belong to a state with an empty journal (the device's).

use super::open::{FoundFolder, ReplayReport};
use super::{Folder, slot};
use crate::image_file::ImageError;
use crate::media::Media;
use std::io;
use std::path::Path;

/// A longer journal is replaced by a state, rather than replayed by the next opening.
const REST_BYTES_MAX: usize = 256 << 10;

impl FoundFolder {
    /// Powers the device on. If its journal is at rest, it is continued and nothing is written.
    ///
    /// # Errors
    /// The system's reason.
    pub fn resume(self) -> Result<(Media, ReplayReport), ImageError> {
        if !self.rests {
            return self.begin();
        }
        let Self {
            mut folder,
            nand,
            nvram,
            report,
            witness,
            ..
        } = self;
        folder.begin_witness(witness.journal, false)?;

        folder.operations_end = folder.journal().end() as u64;
        folder.is_at_rest = true;
        Ok((Media::in_folder(folder, nand, nvram), report))
    }
}

impl Folder {
    fn is_short(&self) -> bool {
        self.journals[slot(self.header.generation)].end() <= REST_BYTES_MAX
    }
}

impl Media {
    /// Powers on the device in a folder. Nothing is written if it was left by `rest` or `tidy`.
    ///
    /// # Errors
    /// As `open_folder`.
    pub fn resume_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        Self::find_folder(dir, false)?.resume()
    }

    /// The last step before the process ends: everything is durable, and the next opening continues
    /// from here. Nothing is written if nothing has happened since the last sync.
    ///
    /// # Errors
    /// As `sync`.
    pub fn rest(&mut self) -> io::Result<()> {
        match &self.folder {
            None => Ok(()),
            Some(folder) if folder.is_short() => self.sync(),
            Some(_) => self.tidy(),
        }
    }
}
