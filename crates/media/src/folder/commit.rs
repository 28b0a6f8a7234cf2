//! Commits: what was done so far becomes durable while the device goes on.
//!
//! `Folder::sync` has the device for itself until the disk has answered. A commit has it three times for a moment, and what it
//! waits for lies in between:
//!
//! 1. *begin*, with the device: the journal's end is noted. Contents of every program before it are in the system's page
//!    cache, since a record follows its contents.
//! 2. without it: `fdatasync` of the contents.
//! 3. *vouch*, with the device: if no page was programmed since 1, the record `Vouched`.
//! 4. without it: `fdatasync` of the journal. Whatever was done before 1 is durable now, and is acknowledged.
//! 5. *finish*, with the device: the record `Durable`, with the end noted in 1 or 3. It waits for nobody.
//!
//! Cut before 4: nothing was acknowledged because of this commit, and the journal is a prefix as ever. A `Vouched` of 3 that is
//! there vouches only for programs before 1, and their contents were durable at 2. Cut after 4: records up to the end noted
//! in 1 are there. Contents of their programs are there too, and have the CRCs that replay looks for where nothing
//! vouches for them; they are overwritten only after an erase, which makes a whole sync first (`unsynced` stays set here).
//! If the journal was begun anew meanwhile, all this is in the state that was written then.
//!
//! Others append records between 3 and 4. So, unlike `Synced`, a `Vouched` with a record behind it does not prove that the
//! journal before it was ever durable; a crash may leave both and a gap before them. `Durable` proves it, up to its end.
//!
//! Without 3 a replay would have to look at the contents of everything that was programmed since the last erase. So when
//! programs that nothing vouches for are many, 3 is a whole sync: one in `UNPROVED_MAX` programs, with little left to write.
//!
//! Absent: whoever waits (the service's), and when to commit.

use super::{Folder, Record, slot};
use crate::array::{Contents, NandArray};
use crate::media::Media;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Programs without a `Synced` or `Vouched` behind them that a replay may have to look at: 64 MiB of contents.
const UNPROVED_MAX: u64 = 16 << 10;

/// A place in the history of a folder: everything before it is durable, or not yet. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    generation: u64,
    end: u64,
}

/// The files that a commit has written out, for a thread that has not the device.
#[derive(Clone)]
pub(super) struct Files {
    contents: Arc<File>,
    journals: [Arc<File>; 2],
}

impl Files {
    pub(super) fn of(contents: &File, journals: [&File; 2]) -> io::Result<Self> {
        let [first, second] = journals;
        let journals = [Arc::new(first.try_clone()?), Arc::new(second.try_clone()?)];
        Ok(Self { contents: Arc::new(contents.try_clone()?), journals })
    }
}

/// Programs since the last `Synced` or `Vouched`, and all since the folder was opened.
#[derive(Default)]
pub(super) struct Unproved {
    programs: u64,
    ever: u64,
}

impl Unproved {
    #[inline]
    pub(super) fn note(&mut self, record: &Record<'_>) {
        let program = u64::from(matches!(record, Record::Program { .. }));
        self.programs += program;
        self.ever += program;
    }
    pub(super) fn none(&mut self) {
        self.programs = 0;
    }
}

/// A commit under way.
pub struct Commit {
    files: Files,
    begun: Position,
    programs: u64,
    /// What will be durable.
    until: Position,
}

impl Commit {
    /// Step 2: waits until the contents are durable. The device may be used meanwhile.
    ///
    /// # Errors
    /// The system could not write.
    pub fn write_contents(&self) -> io::Result<()> {
        self.files.contents.sync_data()
    }

    /// Step 4: waits until the journal is durable; everything before the position is then. The device may be used meanwhile.
    ///
    /// # Errors
    /// The system could not write.
    pub fn write_journal(&self) -> io::Result<Position> {
        // As `msync` does, for all of the file: stores to a shared mapping are the file's dirty pages.
        self.files.journals[slot(self.begun.generation)].sync_data()?;
        Ok(self.until)
    }
}

impl Folder {
    fn position(&self) -> Position {
        Position { generation: self.header.generation, end: self.operations_end }
    }

    fn vouch(&mut self, commit: &mut Commit, nand: &mut NandArray) -> io::Result<()> {
        if let Some(why) = &self.broken {
            return Err(io::Error::other(why.clone()));
        }
        if self.header.generation != commit.begun.generation {
            return Ok(());
        }
        if self.unproved.ever == commit.programs {
            self.append(&Record::Vouched);
            self.unproved.none();
            commit.until = self.position();
        } else if self.unproved.programs > UNPROVED_MAX {
            self.sync(nand)?;
            commit.until = self.position();
        }
        Ok(())
    }

    fn finish(&mut self, until: Position) {
        if self.header.generation == until.generation {
            self.append(&Record::Durable { until: until.end });
        }
    }
}

/// How a device in a folder is made durable while it is used.
impl Media {
    /// Where the history of a device in a folder ends now; `None` for one in memory, which nothing makes durable.
    pub fn position(&self) -> Option<Position> {
        self.folder.as_ref().map(|folder| folder.position())
    }

    /// Step 1 of a commit; `None` for a device in memory.
    ///
    /// # Errors
    /// The system could not write, now or earlier: nothing may be acknowledged any more.
    pub fn begin_commit(&mut self) -> io::Result<Option<Commit>> {
        let Some(folder) = &mut self.folder else { return Ok(None) };
        folder.heed(&self.nand);
        if let Some(why) = &folder.broken {
            return Err(io::Error::other(why.clone()));
        }
        folder.syncs += 1;
        let begun = folder.position();
        Ok(Some(Commit { files: folder.files.clone(), begun, programs: folder.unproved.ever, until: begun }))
    }

    /// Step 3 of a commit.
    ///
    /// # Errors
    /// As `begin_commit`.
    pub fn vouch(&mut self, commit: &mut Commit) -> io::Result<()> {
        self.folder_room();
        match &mut self.folder {
            Some(folder) => folder.vouch(commit, &mut self.nand),
            None => Ok(()),
        }
    }

    /// Step 5 of a commit, with what `Commit::write_journal` has returned.
    pub fn finish_commit(&mut self, until: Position) {
        self.folder_room();
        if let Some(folder) = &mut self.folder {
            folder.finish(until);
        }
    }

    /// A commit could not write: nothing may be acknowledged any more.
    pub fn commit_failed(&mut self, error: &io::Error) {
        if let (Some(folder), Contents::Mapped(pages)) = (&mut self.folder, &mut self.nand.contents) {
            folder.fail(&error.to_string(), pages);
        }
    }
}
