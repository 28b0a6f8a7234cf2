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

use super::open::FoundFolder;
use super::{Folder, FolderDevice, slot};
use crate::image_file::ImageError;

/// A longer journal is replaced by a state, rather than replayed by the next opening.
const REST_BYTES_MAX: usize = 256 << 10;

impl FoundFolder {
    /// Takes the folder into use. If its journal is at rest, it is continued and nothing is written.
    pub(crate) fn go_on(self) -> Result<FolderDevice, ImageError> {
        if !self.rests {
            return self.begin_state();
        }
        let Self {
            mut folder,
            nand,
            nvram,
            witness,
            ..
        } = self;
        folder.begin_witness(witness.journal, false)?;

        folder.operations_end = folder.journal().end() as u64;
        folder.is_at_rest = true;
        Ok((folder, nand, nvram))
    }
}

impl Folder {
    /// Returns true if the journal may be left for the next opening to replay.
    pub(crate) fn is_short(&self) -> bool {
        self.journals[slot(self.header.generation)].end() <= REST_BYTES_MAX
    }
}
