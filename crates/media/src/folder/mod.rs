//! A device in a folder: contents in a mapped file, everything else in memory and in a journal.
//!
//! ```text
//! contents              the bytes of each flash page, mapped; and the versions of the other files (`witness`)
//! journal.0, journal.1  effects since the state of the same number was written, mapped
//! state.0, state.1      everything but the contents, written in turn
//! lock                  held while the device is in use
//! ```
//! A process that dies leaves all its operations, in order, and perhaps a part of the last one. A
//! machine that dies leaves, in every file, any mixture of the writes since that file was last
//! synced. Recovery yields a prefix of the operations in both cases, as after a power cut of the
//! device:
//!
//! - *Sync*: 1. contents are durable  2. the record `Synced`  3. the journal is durable  4. the
//!   record `Ended`, without waiting for it. Operations before 1 survive.
//! - *Commit* (`commit`): a sync that does not hold the device, with its own crash argument.
//! - *Erase*, the only operation after which pages' contents may be overwritten: 1. sync, unless
//!   nothing has happened since the last one  2. the record  3. later programs overwrite. If 3
//!   survives without 2, the overwritten contents had been replaced before 1, or the firmware would
//!   not have erased them.
//! - *Replay* stops at the first record with a wrong CRC, and at the first program after the last
//!   `Synced` whose contents do not match the CRC in its record: its contents were not durable, and
//!   all later records are ignored.
//! - *State*: 1. the contents, durable  2. the record `Continued` in the journal, durable  3. the
//!   other state file, with a higher generation and a hash, durable  4. the other journal, empty,
//!   with that generation, durable  5. the witness of 4  6. records go there. Cut before 3: the old
//!   state and journal are whole. Between 3 and 4: the new state is whole and its journal is of
//!   another generation, so it is empty. After 4: the old state and journal are whole until the
//!   next state is written. Because of 2 they can rebuild a damaged new state.
//! - *Failure*: after the first write that the system refuses, nothing more is written. The files
//!   stay as they are.
//!
//! Anything that no crash can leave is damage (`open`): opening refuses it unless the loss is
//! accepted explicitly, and never takes it for the end of the journal. Pages have checksums, which
//! reads verify.
//!
//! Invariant: files have their full size from the beginning, so that no later write needs space.
//! Absent: the meaning of the bytes, and when to sync (the device's).

mod commit;
mod damage;
mod files;
mod journal;
mod open;
mod replay;
mod rest;
mod resting;
mod state;
mod weigh;
mod witness;

use crate::array::{NandArray, PageContents};
use crate::content::ContentMode;
use crate::effect::{MediaEffect, NewEffect};
use crate::geometry::Geometry;
use crate::image_file::ImageError;
use crate::pages::{CONTENTS, MappedPages};
use crate::slab::Slab;
pub use commit::{FolderCommit, HistoryPosition};
use commit::{SyncedFiles, UnprovedPrograms};
pub use damage::FileDamage;
pub(crate) use files::all as file_paths;
pub use files::replace_file;
use files::{FolderAccess, JOURNALS, Locks, STATES, about};
use journal::{
    Durability, HEADER_BYTES, Journal, PageContentKind, PageSum, RecordedEffect, STORE_WORDS_MAX,
};
pub use open::FoundFolder;
use open::map_journal;
pub use replay::ReplayReport;
pub use resting::RestingFolder;
use state::StateHeader;
use std::fs::File;
use std::io;
use std::path::Path;
pub use witness::{FileVersion, WitnessedFile, newest_version, replace_witnessed, witness_version};
use witness::{JournalWitness, WitnessPage};

/// Size in bytes of the smallest journal.
pub(crate) const JOURNAL_BYTES_MIN: u64 = 16 << 10;
/// Default size: twice the state's, within these bounds. A full journal makes commands wait while
/// the whole state is written.
const JOURNAL_BYTES_DEFAULT: std::ops::RangeInclusive<u64> = 1 << 20..=256 << 20;

/// A device in a folder: its files, and its tables in memory.
pub(crate) type FolderDevice = (Folder, NandArray, Slab<u64>);

/// Files of a device that is in use.
pub(crate) struct Folder {
    _locks: Locks,
    states: [File; 2],
    journals: [Journal; 2],
    header: StateHeader,
    /// True if operations other than erases are not yet durable.
    unsynced: bool,
    /// True if nothing was recorded since the last sync returned (`rest`).
    is_at_rest: bool,
    /// Why writing has stopped.
    broken: Option<String>,
    syncs: u64,
    /// The end of the last operation's record. Syncs and commits append records after it that
    /// change nothing.
    operations_end: u64,
    /// Files synced by a commit while the device is in use.
    files: SyncedFiles,
    /// Programs not followed by a `Synced`.
    unproved: UnprovedPrograms,
    /// The durable end of the journal, for the next opening; `None` before the folder is in use.
    witness: Option<WitnessPage>,
}

impl Folder {
    /// Makes the files of a new device. The folder exists and has none. By default `journal_bytes`
    /// is about the size of the state.
    pub(crate) fn create(
        dir: &Path,
        geometry: Geometry,
        nvram_words: usize,
        journal_bytes: Option<u64>,
    ) -> Result<FolderDevice, ImageError> {
        let mut header = StateHeader::new(geometry, nvram_words, 0, 0);
        let state_bytes = header.state_bytes()?;
        let usual =
            (2 * state_bytes).clamp(*JOURNAL_BYTES_DEFAULT.start(), *JOURNAL_BYTES_DEFAULT.end());
        header.journal_bytes = journal_bytes.unwrap_or(usual).max(JOURNAL_BYTES_MIN);

        let contents_bytes = witness::contents_bytes(&geometry);
        let needed = contents_bytes + 2 * (state_bytes + header.journal_bytes);
        let free = files::free_bytes(dir)?;
        let make_one = |name: &str, bytes: u64| {
            let made = files::create(dir, name, bytes);
            made.map_err(|error| files::with_room(error, needed, free))
        };

        let contents = make_one(CONTENTS, contents_bytes)?;
        let locks = Locks::take(dir, FolderAccess::Own)?;
        let pages = MappedPages::map(locks.contents(), &geometry)?;

        let make = |names: [&str; 2], bytes: u64| -> io::Result<[File; 2]> {
            Ok([make_one(names[0], bytes)?, make_one(names[1], bytes)?])
        };

        // The caller writes the configuration last: a folder without one is incomplete.
        let states = make(STATES, state_bytes)?;
        let journal_files = make(JOURNALS, header.journal_bytes)?;
        // The allocation itself must be durable, or a later write could still find the disk full.
        for file in states.iter().chain(&journal_files).chain([&contents]) {
            file.sync_all()?;
        }

        let mut nand = NandArray::new(geometry, ContentMode::None);
        nand.contents = PageContents::Mapped(pages);
        let nvram = Slab::zeroed(nvram_words);

        let map = |file: &File| map_journal(file, header.journal_bytes, FolderAccess::Own);
        let journals = [map(&journal_files[0])?, map(&journal_files[1])?];
        let files = SyncedFiles::of(&contents, journal_files.each_ref())?;
        let mut folder = Self::new(locks, states, journals, header, files);
        folder.begin_witness(JournalWitness::default(), true)?;

        // Write both, so that a file without a valid state is always damage.
        folder.write_state(&nand, &nvram)?;
        folder.end_journal(1)?;
        folder.header.generation = 1;
        folder.write_state(&nand, &nvram)?;

        files::sync_dir(dir)?;
        Ok((folder, nand, nvram))
    }

    fn new(
        locks: Locks,
        states: [File; 2],
        journals: [Journal; 2],
        header: StateHeader,
        files: SyncedFiles,
    ) -> Self {
        Self {
            _locks: locks,
            states,
            journals,
            header,
            unsynced: false,
            is_at_rest: false,
            broken: None,
            syncs: 0,
            operations_end: 0,
            files,
            unproved: UnprovedPrograms::default(),
            witness: None,
        }
    }

    /// Maps the page of witnesses, continuing from `found`. `blank`: the page is reset.
    fn begin_witness(&mut self, found: JournalWitness, blank: bool) -> Result<(), ImageError> {
        let geometry = self.header.geometry()?;
        let page = WitnessPage::map(self._locks.contents(), &geometry, found, blank)?;
        self.witness = Some(page);
        Ok(())
    }

    /// Records that the journal is durable up to `end`, and so are the contents of the programs
    /// before.
    fn witness(&mut self, end: u64) {
        if let Some(page) = &mut self.witness {
            page.journal(self.header.generation, end);
        }
    }

    fn journal(&mut self) -> &mut Journal {
        &mut self.journals[slot(self.header.generation)]
    }

    /// Ends the journal of the present generation: the state of `next` will contain all of it.
    fn end_journal(&mut self, next: u64) -> io::Result<()> {
        let of = slot(self.header.generation);
        self.journals[of].note(Durability::Continued { generation: next });
        self.journals[of]
            .sync()
            .map_err(|error| about(JOURNALS[of], error))
    }

    /// Writes the state of the present generation and begins its journal. Except for the state
    /// itself, everything must be durable already.
    fn write_state(&mut self, nand: &NandArray, nvram: &[u64]) -> io::Result<()> {
        let PageContents::Mapped(pages) = &nand.contents else {
            unreachable!("a folder's contents are mapped")
        };
        let generation = self.header.generation;
        let of = slot(generation);
        // 1. contents  2. the state, synced  3. its journal, begun and synced  4. the witness of 3.
        // Cut before 3: the journal's header is of an older generation, so the journal is empty.
        // Cut before 4: the witness is of an older generation, which requires less. Contents first:
        // the state has checksums of pages, and the number of a witness that 1 made durable.
        pages.sync().map_err(|error| about(CONTENTS, error))?;
        self.header.witness = self.witness.as_ref().map_or(0, WitnessPage::number);
        state::write(&self.states[of], &self.header, nand, nvram)
            .map_err(|error| about(STATES[of], error))?;
        self.journals[of].begin(generation);

        self.operations_end = 0;
        self.journals[of]
            .sync()
            .map_err(|error| about(JOURNALS[of], error))?;
        self.witness(HEADER_BYTES as u64);
        self.unsynced = false;
        self.is_at_rest = true;
        self.unproved.none();
        Ok(())
    }

    /// Makes all durable: contents, the record `Synced`, the journal, and finally the witness and
    /// the record `Ended`, which are true whenever they become durable. Cut before the journal is
    /// durable: nothing was acknowledged. After: they may be missing.
    pub(crate) fn sync(&mut self, nand: &mut NandArray) -> io::Result<()> {
        if let Some(why) = &self.broken {
            return Err(io::Error::other(why.clone()));
        }

        self.syncs += 1;
        // Contents are only written for a record that follows them.
        if self.is_at_rest {
            return Ok(());
        }

        let PageContents::Mapped(pages) = &mut nand.contents else {
            unreachable!("a folder's contents are mapped")
        };
        let of = slot(self.header.generation);
        let contents = pages.sync().map_err(|error| about(CONTENTS, error));
        let result = contents.and_then(|()| {
            self.journal().note(Durability::Synced);
            self.journal()
                .sync()
                .map_err(|error| about(JOURNALS[of], error))?;
            let end = self.journal().end() as u64;
            self.witness(end);
            self.journal().note(Durability::Ended);
            Ok(())
        });

        // Cleared even after a failure: `broken` is set then, and nothing is acknowledged any more.
        self.unsynced = false;
        self.is_at_rest = result.is_ok();
        self.unproved.none();
        result.inspect_err(|error| self.fail(&error.to_string(), pages))
    }

    /// After the first failed write, neither contents nor records are written. So the files stay as
    /// they were at that moment, and everything missing in them was never acknowledged. Contents
    /// stop first: if the record of an erase is not written, its pages must not be overwritten.
    #[cold]
    pub(crate) fn fail(&mut self, why: &str, pages: &mut MappedPages) {
        pages.fail(why);
        self.broken.get_or_insert_with(|| why.to_owned());
    }

    /// Makes room for one more record.
    #[inline]
    pub(crate) fn make_room(&mut self, nand: &mut NandArray, nvram: &[u64]) {
        if !self.journal().has_room() {
            self.go_on_with_a_new_state(nand, nvram);
        }
    }

    #[cold]
    fn go_on_with_a_new_state(&mut self, nand: &mut NandArray, nvram: &[u64]) {
        // A write of contents may have failed since the last record.
        self.heed(nand);
        if self.broken.is_some() {
            return;
        }

        // The other file and the other journal. The current ones stay whole until the new ones are,
        // and then until the next state is written.
        let next = self.header.generation + 1;
        let written = self.end_journal(next).and_then(|()| {
            self.header.generation = next;
            self.write_state(nand, nvram)
        });

        if let Err(error) = written {
            let PageContents::Mapped(pages) = &mut nand.contents else {
                unreachable!("a folder's contents are mapped")
            };
            self.fail(&error.to_string(), pages);
        }
    }

    /// Writes a new state with an empty journal.
    pub(crate) fn tidy(&mut self, nand: &mut NandArray, nvram: &[u64]) -> io::Result<()> {
        self.go_on_with_a_new_state(nand, nvram);
        self.broken
            .clone()
            .map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    /// Why nothing is written any more, if writing has stopped.
    #[inline]
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Generation of the newest state.
    pub(crate) fn generation(&self) -> u64 {
        self.header.generation
    }

    /// Number of requests to make everything durable.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Records a failed write of contents.
    #[inline]
    fn heed(&mut self, nand: &NandArray) {
        if let PageContents::Mapped(pages) = &nand.contents
            && let Some(why) = pages.failure()
            && self.broken.is_none()
        {
            self.broken = Some(why.to_owned());
        }
    }

    /// Does an effect, and records it.
    #[inline(always)]
    pub(crate) fn apply(&mut self, effect: NewEffect<'_>, nand: &mut NandArray, nvram: &mut [u64]) {
        match effect {
            // A record's head has 8 bits for its words. Each part of a store is a record of its
            // own, as each word is a store of its own.
            MediaEffect::Store { word, values } => {
                for (part, values) in values.chunks(STORE_WORDS_MAX).enumerate() {
                    let word = word + part * STORE_WORDS_MAX;
                    self.apply_recorded(MediaEffect::Store { word, values }, nand, nvram);
                }
            }
            effect => self.apply_recorded(effect, nand, nvram),
        }
    }

    /// Does an effect that is one record, and records it. The process, or the machine, may die
    /// between any two of these steps.
    ///
    /// 1. Room in the journal. That may write a new state, and the record of 4 is replayed on top
    ///    of it: a state that has the effect already would have its page programmed twice.
    /// 2. Before an erase, a sync, unless nothing but erases happened since the last one. Later
    ///    programs overwrite the contents, so what replaced them must have survived.
    /// 3. The cells, contents before the record. Killed before 4, the effect did not happen: OOBs
    ///    and NVRAM are in memory, and a page whose contents are in the file is still erased.
    /// 4. The record.
    #[inline(always)]
    fn apply_recorded(&mut self, effect: NewEffect<'_>, nand: &mut NandArray, nvram: &mut [u64]) {
        self.make_room(nand, nvram);

        if effect.is_erase() && self.unsynced {
            // A failure is recorded in `broken`, and then nothing is overwritten.
            let _ = self.sync(nand);
        }

        let record = effect.map_page(PageSum::of);
        effect.change(nand, nvram);

        self.set_sum(&record, nand);
        self.heed(nand);
        self.append(&record);
    }

    /// The checksum is set even if the content could not be stored: then the page reads as a media
    /// error.
    #[inline]
    fn set_sum(&self, record: &RecordedEffect<'_>, nand: &mut NandArray) {
        if let MediaEffect::Program { ppn, contents, .. } = record
            && let PageContents::Mapped(pages) = &mut nand.contents
            && contents.kind != PageContentKind::NOTHING
        {
            pages.set_sum(ppn.0 as usize, contents.crc);
        }
    }

    #[inline]
    fn append(&mut self, effect: &RecordedEffect<'_>) {
        if self.broken.is_none() {
            // Except for erases: one that follows another gives up nothing that is not durable
            // already.
            self.unsynced |= !effect.is_erase();
            self.is_at_rest = false;
            self.unproved.note(effect);
            self.journal().append(effect);
            self.operations_end = self.journal().end() as u64;
        }
    }

    /// Appends a record that changes nothing.
    fn note(&mut self, durability: Durability) {
        if self.broken.is_none() {
            self.unsynced = true;
            self.is_at_rest = false;
            self.journal().note(durability);
        }
    }
}

/// Index of the file of a generation, in each pair of files.
fn slot(generation: u64) -> usize {
    (generation % 2) as usize
}

/// A folder locked against other processes.
pub struct FolderLock {
    _locks: Locks,
}

impl FolderLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, ImageError> {
        Ok(Self {
            _locks: Locks::take(dir, FolderAccess::Look)?,
        })
    }
}

/// Opens the page contents to look at them.
pub(crate) fn open_contents(dir: &Path) -> io::Result<File> {
    files::open(dir, CONTENTS, FolderAccess::Look)
}

/// The checksum of small files in a folder: CRC-32C.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
