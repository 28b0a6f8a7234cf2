//! Tables of a closed folder, kept in memory for a process that reopens it.
//!
//! `Media::rest_keeping_tables` closes the folder: no lock, file or mapping remains. The tables in
//! memory (rows, OOBs, checksums, NVRAM) stay, with a mark of the files they belong to.
//! `resume_with_tables` takes the locks again, and compares the files with the mark instead of
//! reading them. The locks are released explicitly: a child of `fork` has copies of their
//! descriptors.
//!
//! *Resume with tables*: 1. the locks  2. the files match the mark  3. records are appended after
//! the end of the journal. If 2 fails, no file has other contents than before, and the folder is
//! opened normally. In every case that 2 accepts, the tables are as `resume` would have read them:
//!
//! - A process that has begun a new state has changed the headers of a state and of a journal.
//! - A process that continued this journal has appended a record at its end, which has the
//!   generation and the CRC of that place. One killed before the head of its first record was
//!   stored has no effect: at most it has changed contents of erased pages.
//! - A file that was replaced by a copy, older or of another history, differs in a header, in the
//!   records (the mark has their CRC), in its length, or in the page of witnesses.
//! - No record of this generation lies after the end: it would count again once the gap before it is
//!   filled. A crash that this process has not seen may leave one: a restored snapshot of the moment
//!   when another process was writing, or a disk that was unplugged.
//!
//! Contents of pages are not compared: reads verify their checksums, as always. Absent: when
//! keeping tables pays off (the caller's).

use super::commit::SyncedFiles;
use super::files::{self, FolderAccess, JOURNALS, Locks, STATES};
use super::journal::{HEADER_BYTES, HeaderFound, Journal};
use super::open::map_journal;
use super::state::{self, StateHeader};
use super::witness::{self, JournalWitness, WitnessPage};
use super::{Folder, slot};
use crate::image_file::ImageError;
use crate::pages::{CONTENTS, MappedPages};
use crate::slab::Slab;
use std::fs::File;
use std::io;
use std::path::Path;

/// A folder at rest, closed.
pub struct RestingFolder {
    /// Header of the state that the journal follows.
    header: StateHeader,
    mark: FolderMark,
    /// Checksums of the pages.
    sums: Slab<u32>,
}

/// Fingerprint of the files of a folder at rest: any change changes it, except to pages' contents.
#[derive(PartialEq, Eq)]
struct FolderMark {
    /// Header of the other state, which may have been cut while it was written.
    other: Option<StateHeader>,
    /// Hash of the state in force.
    hash: [u8; 32],
    journals: [[u8; HEADER_BYTES]; 2],
    /// The end of the valid records, and the CRC-32C of their journal up to there.
    end: usize,
    sum: u32,
    witness: JournalWitness,
}

impl FolderMark {
    /// Reads the mark of a locked folder; `None` if a part of it is damaged or cannot be read, which
    /// only an ordinary opening reports and mends.
    fn read(
        header: &StateHeader,
        locks: &Locks,
        states: &[File; 2],
        journals: &[Journal; 2],
    ) -> Option<Self> {
        // Of another state or journal in force, the rest of the mark would say nothing.
        let own = slot(header.generation);
        let geometry = header.geometry().ok()?;
        let is_begun = journals[own].header() == HeaderFound::Begun(header.generation);
        if state::read_header(&states[own]).ok()? != *header || !is_begun {
            return None;
        }

        // The other state may be incomplete or absent. A process that takes over would write it, and its header would differ.
        Some(Self {
            other: state::read_header(&states[1 - own]).ok(),
            hash: state::read_hash(&states[own], header).ok()?,
            journals: journals.each_ref().map(Journal::header_bytes),
            end: journals[own].end(),
            sum: journals[own].sum(),
            witness: witness::of_journal(locks.contents(), &geometry)
                .ok()?
                .ok()?,
        })
    }
}

impl Folder {
    /// Closes the folder, which is at rest. Its tables stay with the caller, without contents.
    /// `None` if its files cannot be read.
    pub(crate) fn close(self, pages: MappedPages) -> Option<RestingFolder> {
        let header = self.header;
        let mark = FolderMark::read(&header, &self._locks, &self.states, &self.journals);
        self._locks.release();
        mark.map(|mark| RestingFolder {
            header,
            mark,
            sums: pages.into_sums(),
        })
    }

    /// Returns true if nothing was recorded since the last sync returned.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }
}

impl RestingFolder {
    /// Opens the folder again. `None`: it has changed, or cannot be read.
    pub(crate) fn open(self, dir: &Path) -> Result<Option<(Folder, MappedPages)>, ImageError> {
        let locks = match Locks::take(dir, FolderAccess::Own) {
            Ok(locks) => locks,
            Err(ImageError::InUse) => return Err(ImageError::InUse),
            // The following opening reports the reason.
            Err(_) => return Ok(None),
        };
        Ok(self.reopen(dir, locks).ok().flatten())
    }

    /// Reopens the folder with its contents, if it has not changed.
    fn reopen(self, dir: &Path, locks: Locks) -> Result<Option<(Folder, MappedPages)>, ImageError> {
        let Self { header, mark, sums } = self;
        let own = slot(header.generation);
        let open_both = |names: [&str; 2]| -> io::Result<[File; 2]> {
            let open = |name| files::open(dir, name, FolderAccess::Own);
            Ok([open(names[0])?, open(names[1])?])
        };
        let (states, journal_files) = (open_both(STATES)?, open_both(JOURNALS)?);

        // The files may have been replaced by sparse ones (`load`), or by shorter ones.
        let geometry = header.geometry()?;
        let contents_bytes = witness::contents_bytes(&geometry);
        let state_bytes = header.state_bytes()?;
        let all = [
            (locks.contents(), CONTENTS, contents_bytes),
            (&states[0], STATES[0], state_bytes),
            (&states[1], STATES[1], state_bytes),
            (&journal_files[0], JOURNALS[0], header.journal_bytes),
            (&journal_files[1], JOURNALS[1], header.journal_bytes),
        ];
        for (file, name, bytes) in all {
            files::check_length(file, name, bytes)?;
        }
        for (file, name, bytes) in all {
            files::reserve(file, name, bytes)?;
        }

        let map = |file: &File| map_journal(file, header.journal_bytes, FolderAccess::Own);
        let mut journals = [map(&journal_files[0])?, map(&journal_files[1])?];
        journals[own].go_to(header.generation, mark.end);
        let found = FolderMark::read(&header, &locks, &states, &journals);
        if found.as_ref() != Some(&mark) || journals[own].has_records_from_end() {
            return Ok(None);
        }

        let mut mapped = MappedPages::map(locks.contents(), &geometry)?;
        mapped.set_sums(sums);
        let page = WitnessPage::map(locks.contents(), &geometry, mark.witness, false)?;
        let files = SyncedFiles::of(locks.contents(), journal_files.each_ref())?;
        let mut folder = Folder::new(locks, states, journals, header, files);
        folder.witness = Some(page);
        folder.operations_end = mark.end as u64;
        folder.is_at_rest = true;
        Ok(Some((folder, mapped)))
    }
}
