//! Commits: everything done so far becomes durable while the device stays in use.
//!
//! `Folder::sync` holds the device until the disk has answered. A commit holds it three times,
//! briefly, and waits for the disk in between:
//!
//! 1. *begin*, holding the device: the end of the journal is noted. Contents of every program
//!    before it are in the page cache, since a record follows its contents.
//! 2. without the device: `fdatasync` of the contents.
//! 3. *vouch*, holding the device: if no page was programmed since 1, append the record `Vouched`.
//! 4. without the device: `fdatasync` of the journal. Everything done before 1 is durable now, and
//!    is acknowledged.
//! 5. *finish*, holding the device: append the record `Durable`, with the end noted in 1 or 3, and
//!    store the same in the page of witnesses. Nothing waits for them to be durable.
//!
//! Cut before 4: nothing was acknowledged because of this commit, and replay finds a prefix of the
//! journal, as always. If the `Vouched` of 3 is there, it vouches only for programs before 1, whose
//! contents were durable at 2. Cut after 4: the records up to the end noted in 1 are there. The
//! contents of their programs are there too, with the CRCs that replay checks where nothing vouches
//! for them; they are overwritten only after an erase, which does a full sync first (`unsynced`
//! stays set here). If a new journal was begun in between, the state written then contains all of
//! this.
//!
//! Other commands append records between 3 and 4. So, unlike `Synced`, a `Vouched` followed by a
//! record does not prove that the journal before it was ever durable; a crash may leave both after
//! a gap. `Durable` proves it, up to the end that it names.
//!
//! Without 3, replay would have to check the contents of everything programmed since the last
//! erase. So when too many programs lack a `Vouched`, step 3 is a full sync: once in `UNPROVED_MAX`
//! programs, with little left to write.
//!
//! Absent: waiting, and when to commit (the service decides).

use super::files::{JOURNALS, about};
use super::{Durability, Folder, RecordedEffect, slot};
use crate::array::NandArray;
use crate::effect::MediaEffect;
use crate::pages::CONTENTS;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Maximum number of programs not followed by a `Synced` or `Vouched`: replay must check their
/// contents, 64 MiB with pages of 4 KiB.
const UNPROVED_MAX: u64 = 16 << 10;

/// A position in the history of a folder. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryPosition {
    generation: u64,
    end: u64,
}

/// The files that a commit syncs, for a thread that does not hold the device.
#[derive(Clone)]
pub(super) struct SyncedFiles {
    contents: Arc<File>,
    journals: [Arc<File>; 2],
}

impl SyncedFiles {
    pub(super) fn of(contents: &File, journals: [&File; 2]) -> io::Result<Self> {
        let [first, second] = journals;
        let journals = [Arc::new(first.try_clone()?), Arc::new(second.try_clone()?)];
        Ok(Self {
            contents: Arc::new(contents.try_clone()?),
            journals,
        })
    }
}

/// Programs since the last `Synced` or `Vouched`, and all since the folder was opened.
#[derive(Default)]
pub(super) struct UnprovedPrograms {
    programs: u64,
    ever: u64,
}

impl UnprovedPrograms {
    #[inline]
    pub(super) fn note(&mut self, effect: &RecordedEffect<'_>) {
        // Only programs: the CRC of a record covers all of any other effect, but not a page's
        // contents.
        let program = u64::from(matches!(effect, MediaEffect::Program { .. }));
        self.programs += program;
        self.ever += program;
    }
    pub(super) fn none(&mut self) {
        self.programs = 0;
    }
}

/// A commit whose files are being written.
pub struct FolderCommit {
    files: SyncedFiles,
    begun: HistoryPosition,
    programs: u64,
    /// Everything before this will be durable.
    until: HistoryPosition,
}

impl FolderCommit {
    /// Step 2: waits until the contents are durable. The device may be in use.
    ///
    /// # Errors
    /// The system could not write.
    pub fn write_contents(&self) -> io::Result<()> {
        let synced = self.files.contents.sync_data();
        synced.map_err(|error| about(CONTENTS, error))
    }

    /// Step 4: waits until the journal is durable; everything before the returned position is then.
    /// The device may be in use.
    ///
    /// # Errors
    /// The system could not write.
    pub fn write_journal(&self) -> io::Result<HistoryPosition> {
        // Like `msync` of the whole file: stores to a shared mapping are dirty pages of the file.
        let of = slot(self.begun.generation);
        let synced = self.files.journals[of].sync_data();
        synced.map_err(|error| about(JOURNALS[of], error))?;
        Ok(self.until)
    }
}

impl Folder {
    /// The present end of the history.
    pub(crate) fn position(&self) -> HistoryPosition {
        HistoryPosition {
            generation: self.header.generation,
            end: self.operations_end,
        }
    }

    /// Step 1.
    pub(crate) fn begin_commit(&mut self, nand: &NandArray) -> io::Result<FolderCommit> {
        // A write of contents may have failed since the last record; step 2 would not detect that.
        self.heed(nand);
        if let Some(why) = &self.broken {
            return Err(io::Error::other(why.clone()));
        }

        self.syncs += 1;

        let begun = self.position();
        Ok(FolderCommit {
            files: self.files.clone(),
            begun,
            programs: self.unproved.ever,
            until: begun,
        })
    }

    /// Step 3.
    pub(crate) fn vouch(
        &mut self,
        commit: &mut FolderCommit,
        nand: &mut NandArray,
    ) -> io::Result<()> {
        if let Some(why) = &self.broken {
            return Err(io::Error::other(why.clone()));
        }

        // A new state has been written since. It contains everything, synced, and there is nothing
        // left to vouch for.
        if self.header.generation != commit.begun.generation {
            return Ok(());
        }

        // Pages programmed since step 1 are not covered by the sync of the contents, and a record
        // cannot leave some programs out.
        if self.unproved.ever == commit.programs {
            self.note(Durability::Vouched);
            self.unproved.none();
            commit.until = self.position();
        } else if self.unproved.programs > UNPROVED_MAX {
            self.sync(nand)?;
            commit.until = self.position();
        }
        Ok(())
    }

    /// Step 5.
    pub(crate) fn finish(&mut self, until: HistoryPosition) {
        // An offset is meaningless in another journal.
        if self.header.generation == until.generation && self.broken.is_none() {
            self.witness(until.end);
            self.note(Durability::Durable { until: until.end });
        }
    }
}
