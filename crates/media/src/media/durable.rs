//! Makes changes survive a crash of this machine, at once (`sync`) or while the device goes on
//! (a commit).
//!
//! Absent: the order of writes, and its crash arguments (`folder`).

use super::Media;
use crate::array::PageContents;
use crate::folder::{FolderCommit, HistoryPosition};
use std::io;

/// Durability of a device in a folder.
impl Media {
    /// Makes everything survive a crash of this machine; nothing to do for a device in memory.
    ///
    /// # Errors
    /// The system could not write, now or earlier: nothing may be acknowledged any more.
    pub fn sync(&mut self) -> io::Result<()> {
        self.folder_room();
        match &mut self.folder {
            Some(folder) => folder.sync(&mut self.nand),
            None => Ok(()),
        }
    }

    /// Writes a new state with an empty journal: the last step before the process ends.
    ///
    /// # Errors
    /// As `sync`.
    pub fn tidy(&mut self) -> io::Result<()> {
        match &mut self.folder {
            Some(folder) => folder.tidy(&mut self.nand, &self.nvram),
            None => Ok(()),
        }
    }

    /// Why nothing may be acknowledged any more, if writing has stopped.
    #[inline]
    pub fn broken(&self) -> Option<&str> {
        self.folder.as_ref()?.broken()
    }

    /// Generation of the newest state. No later state has the same.
    pub fn generation(&self) -> Option<u64> {
        self.folder.as_ref().map(|folder| folder.generation())
    }

    /// Number of requests to make everything durable.
    pub fn syncs(&self) -> u64 {
        self.folder.as_ref().map_or(0, |folder| folder.syncs())
    }

    /// Makes room in the journal for the next record.
    #[inline]
    fn folder_room(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.make_room(&mut self.nand, &self.nvram);
        }
    }
}

/// Commits of a device in a folder.
impl Media {
    /// The present end of the history of a device in a folder; `None` for one in memory, which is
    /// never durable.
    pub fn position(&self) -> Option<HistoryPosition> {
        self.folder.as_ref().map(|folder| folder.position())
    }

    /// Step 1 of a commit; `None` for a device in memory.
    ///
    /// # Errors
    /// The system could not write, now or earlier: nothing may be acknowledged any more.
    pub fn begin_commit(&mut self) -> io::Result<Option<FolderCommit>> {
        let Some(folder) = &mut self.folder else {
            return Ok(None);
        };
        folder.begin_commit(&self.nand).map(Some)
    }

    /// Step 3 of a commit.
    ///
    /// # Errors
    /// As `begin_commit`.
    pub fn vouch(&mut self, commit: &mut FolderCommit) -> io::Result<()> {
        self.folder_room();
        match &mut self.folder {
            Some(folder) => folder.vouch(commit, &mut self.nand),
            None => Ok(()),
        }
    }

    /// Step 5 of a commit, with the result of `FolderCommit::write_journal`.
    pub fn finish_commit(&mut self, until: HistoryPosition) {
        self.folder_room();
        if let Some(folder) = &mut self.folder {
            folder.finish(until);
        }
    }

    /// Reports that a commit could not write: nothing may be acknowledged any more.
    pub fn commit_failed(&mut self, error: &io::Error) {
        if let (Some(folder), PageContents::Mapped(pages)) =
            (&mut self.folder, &mut self.nand.contents)
        {
            folder.fail(&error.to_string(), pages);
        }
    }
}
