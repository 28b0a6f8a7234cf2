//! Opens a folder: finds the newest state, replays its journal, and tells damage from a torn end.
//!
//! A crash of the machine can leave any mixture of old and new sectors since each file's last sync.
//! The following is damage, because no such mixture produces it:
//!
//! - a journal header with a wrong CRC. The header is one store within one sector: old or new;
//! - a journal whose state is incomplete: a journal is begun when its state is durable;
//! - an invalid record followed by `Ended`, or by `Synced` and one more record: these were stored
//!   after a sync had returned, which made everything before durable; or followed by a `Durable`
//!   whose offset lies after it (`commit`);
//! - valid records in a journal with an older header: the header was durable before they were
//!   stored;
//! - a valid record that makes no sense;
//! - a file that is older than the page of witnesses requires (`witness`): it has less than was
//!   durable when the witness was stored.
//!
//! The following is not damage: an incomplete state without a journal, which was being written; and
//! valid records after an invalid one without proof of a sync: their sectors reached the disk and
//! an earlier one did not, and nothing of it was acknowledged as durable.
//!
//! A metadata page with a wrong checksum is damage in a live superblock; in a dead one it may be
//! left when a later program is durable and the erase is not. Only the firmware can tell, so the
//! page is torn, and a *suspect*.
//!
//! Absent: contents of data pages; reads verify their checksums.

use super::commit::SyncedFiles;
use super::damage::{DamageFindings, FileDamage};
use super::files::{self, FolderAccess, JOURNALS, Locks, STATES, about};
use super::journal::Journal;
use super::replay::{JournalReplay, ReplayReport};
use super::state::{self, StateHeader, StateParts};
use super::weigh::{FoundWitness, weigh_headers};
use super::{Folder, FolderDevice, JOURNAL_BYTES_MIN, slot, witness};
use crate::array::{NandArray, PageContents};
use crate::geometry::Ppn;
use crate::image_file::ImageError;
use crate::pages::{CONTENTS, MappedPages};
use crate::slab::Slab;
use std::fs::File;
use std::path::Path;

/// A folder that has been read, without any change to it.
pub struct FoundFolder {
    pub(super) folder: Folder,
    pub(super) nand: NandArray,
    pub(super) nvram: Slab<u64>,
    pub(super) report: ReplayReport,
    damage: Vec<FileDamage>,
    suspects: Vec<Ppn>,
    /// Generation of the next state: newer than all, and not in the file of the state that was
    /// read.
    next: u64,
    pub(super) witness: FoundWitness,
    /// True if the journal can be ended: it has no damage, and all of it was replayed.
    ends: bool,
    /// True if the journal can be continued (`rest`).
    pub(super) rests: bool,
}

impl FoundFolder {
    /// Result of replaying the folder's journal.
    pub(crate) fn report(&self) -> ReplayReport {
        self.report
    }

    /// Damage found, apart from contents.
    pub fn damage(&self) -> &[FileDamage] {
        &self.damage
    }

    /// Metadata pages with a wrong checksum: damage in a live superblock, and otherwise possibly
    /// left by a crash. They read as torn.
    pub fn suspects(&self) -> &[Ppn] {
        &self.suspects
    }

    /// Pages written by an earlier version, without a checksum.
    pub fn pages_without_sum(&self) -> u64 {
        let PageContents::Mapped(pages) = &self.nand.contents else {
            return 0;
        };
        let is_data = |ppn: u32| {
            // Tail metadata is a view of OOBs: the page itself holds nothing.
            self.nand.is_programmed(Ppn(ppn))
                && self.nand.oob(Ppn(ppn)).lpn() != crate::oob::Oob::TAIL
        };
        let unknown = |ppn: &u32| {
            pages.has_no_sum(*ppn as usize) && is_data(*ppn) && !self.nand.is_damaged(Ppn(*ppn))
        };
        (0..self.nand.geometry.pages()).filter(unknown).count() as u64
    }

    /// Reads a folder for use. `accept_loss`: drop what is damaged, where possible.
    pub(crate) fn find(dir: &Path, accept_loss: bool) -> Result<Self, ImageError> {
        load(dir, FolderAccess::Own, accept_loss)
    }

    /// Reads a folder to see what is damaged.
    pub(crate) fn weigh(dir: &Path) -> Result<Self, ImageError> {
        load(dir, FolderAccess::Look, true)
    }

    /// Reads a folder that is not damaged, for a copy of its device.
    pub(crate) fn look(dir: &Path) -> Result<Self, ImageError> {
        load(dir, FolderAccess::Look, false)
    }

    /// Takes the folder into use with a new state.
    pub(crate) fn begin_state(self) -> Result<FolderDevice, ImageError> {
        let Self {
            mut folder,
            nand,
            nvram,
            next,
            witness,
            ends,
            ..
        } = self;

        folder.begin_witness(witness.journal, witness.blank)?;
        let is_new = folder.header.has_sums();
        if ends {
            folder.end_journal(next)?;
        }

        // Records after the last valid one must not come back, so this journal is not continued.
        folder.header = folder.header.next(next);
        folder.write_state(&nand, &nvram)?;

        if !is_new {
            // An earlier version must not find its own state and continue from it.
            folder.header = folder.header.next(next + 1);
            folder.write_state(&nand, &nvram)?;
        }

        Ok((folder, nand, nvram))
    }

    /// The tables, without the files.
    pub(crate) fn into_tables(self) -> (NandArray, Slab<u64>) {
        (self.nand, self.nvram)
    }
}

fn load(dir: &Path, access: FolderAccess, accept: bool) -> Result<FoundFolder, ImageError> {
    let mut findings = DamageFindings {
        accept,
        list: Vec::new(),
    };
    let locks = Locks::take(dir, access)?;
    let states = [
        files::open(dir, STATES[0], access)?,
        files::open(dir, STATES[1], access)?,
    ];
    let (header, parts) = newest_state(&states)?;

    let journal_files = [
        files::open(dir, JOURNALS[0], access)?,
        files::open(dir, JOURNALS[1], access)?,
    ];
    check_room(&locks, &states, &journal_files, &header, access)?;

    let geometry = header.geometry()?;
    // Inspection maps the file privately, so that replay may change pages without changing the
    // file.
    let pages = match access {
        FolderAccess::Look => MappedPages::map_private(locks.contents(), &geometry),
        FolderAccess::Own => MappedPages::map(locks.contents(), &geometry),
    };
    let pages = pages.map_err(|error| about(CONTENTS, error))?;

    let (mut nand, mut nvram, mut suspects) = state::with_pages(parts, pages);
    let map = |index: usize| {
        map_journal(&journal_files[index], header.journal_bytes, access)
            .map_err(|error| about(JOURNALS[index], error))
    };
    let mut journals = [map(0)?, map(1)?];

    let headers = weigh_headers(&mut journals, &header, &states, &mut findings)?;
    let witness = FoundWitness::read(&locks, &header, &mut findings)?;
    let mut replay = JournalReplay {
        nand: &mut nand,
        nvram: &mut nvram,
        suspects: &mut suspects,
    };
    let report = replay.all(&mut journals, &headers, &witness, &mut findings)?;

    // A block erased later has no contents any more.
    suspects.retain(|ppn| nand.torn.contains(&ppn.0));

    // The state that was read stays until the new one is whole.
    let newest = headers.newest.max(witness.journal.generation);
    let next = if slot(newest + 1) == slot(header.generation) {
        newest + 2
    } else {
        newest + 1
    };

    // A folder of an earlier version gets a state of this one, even if its journal is at rest.
    let is_whole =
        headers.begun && findings.list.is_empty() && report.dropped == 0 && header.has_sums();
    // No file has begun the generation that the next state takes (`rest`).
    let rests = is_whole
        && report.is_at_rest
        && headers.newest == header.generation
        && headers.last == header.generation
        && !witness.blank;
    let ends = is_whole && journals[slot(header.generation)].has_room_to_end();
    let files = SyncedFiles::of(locks.contents(), journal_files.each_ref())
        .map_err(|error| about(CONTENTS, error))?;
    let folder = Folder::new(locks, states, journals, header, files);
    Ok(FoundFolder {
        folder,
        nand,
        nvram,
        report,
        damage: findings.list,
        suspects,
        next,
        witness,
        ends,
        rests,
    })
}

/// Checks the lengths of the files, and reserves their space on the disk for a device in use.
fn check_room(
    locks: &Locks,
    states: &[File; 2],
    journals: &[File; 2],
    header: &StateHeader,
    access: FolderAccess,
) -> Result<(), ImageError> {
    let contents_bytes = witness::offset(&header.geometry()?);
    if header.journal_bytes < JOURNAL_BYTES_MIN {
        return Err(ImageError::Damaged(format!(
            "{}: a journal of no possible size",
            STATES[slot(header.generation)]
        )));
    }

    files::check_length(locks.contents(), CONTENTS, contents_bytes)?;
    for (file, name) in journals.iter().zip(JOURNALS) {
        files::check_length(file, name, header.journal_bytes)?;
    }

    // Before anything is written: a sparse copy must fail here, and not in a command.
    if access == FolderAccess::Own {
        let state_bytes = header.next(header.generation).state_bytes()?;
        files::reserve(locks.contents(), CONTENTS, contents_bytes)?;
        for index in 0..2 {
            files::reserve(&states[index], STATES[index], state_bytes)?;
            files::reserve(&journals[index], JOURNALS[index], header.journal_bytes)?;
        }
    }
    Ok(())
}

pub(super) fn map_journal(
    file: &File,
    bytes: u64,
    access: FolderAccess,
) -> std::io::Result<Journal> {
    let mut options = memmap2::MmapOptions::new();
    options.len(bytes as usize);
    // SAFETY: as for the contents: the folder's own file, locked, of at least this length.
    let map = unsafe {
        match access {
            FolderAccess::Own => options.map_mut(file)?,
            FolderAccess::Look => options.map_copy(file)?,
        }
    };
    Ok(Journal::new(map))
}

/// Finds the newest complete state.
fn newest_state(states: &[File; 2]) -> Result<(StateHeader, StateParts), ImageError> {
    let mut headers = Vec::new();
    let mut reason = ImageError::NotAnImage;
    let damaged = |index: usize, what: &str| {
        ImageError::Damaged(format!("{}, byte 0: {what}", STATES[index]))
    };
    for (index, file) in states.iter().enumerate() {
        match state::read_header(file) {
            // Generation g is in file g mod 2. One elsewhere has been copied there.
            Ok(header) if slot(header.generation) != index => {
                reason = damaged(index, "a state of another file")
            }
            Ok(header) => headers.push((index, header)),
            Err(error) => {
                if matches!(reason, ImageError::NotAnImage) {
                    reason = error;
                }
            }
        }
    }

    // The newest first: a whole state is read once, and an older one not at all.
    headers.sort_by_key(|(_, header)| std::cmp::Reverse(header.generation));
    for (index, header) in headers {
        match state::read_parts(&states[index], &header) {
            Ok(parts) => return Ok((header, parts)),
            Err(_) => {
                let what = "the state does not have its hash, and neither does the other one";
                reason = damaged(index, what);
            }
        }
    }
    Err(reason)
}
