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
//! - a valid record that makes no sense.
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
use super::journal::{
    Durability, HeaderFound, Journal, JournalRecord, PageContentKind, PageSum, RecordedEffect,
};
use super::pages::MappedPages;
use super::state::{self, StateHeader};
use super::{Folder, JOURNAL_BYTES_MIN, slot};
use crate::array::{NandArray, PageContents, StoredPage};
use crate::effect::{MediaEffect, PageSource};
use crate::geometry::{PAGE_BYTES, Ppn};
use crate::image_file::ImageError;
use crate::media::Media;
use crate::slab::Slab;
use std::fs::File;
use std::path::Path;

/// What opening a folder replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Records of the journal that were applied.
    pub records: u64,
    /// Records dropped: those from the first one on whose contents were not durable.
    pub dropped: u64,
    /// Generation of the state that they go on from.
    pub generation: u64,
}

/// A folder that has been read, and in which nothing has been changed.
pub struct FoundFolder {
    folder: Folder,
    nand: NandArray,
    nvram: Slab<u64>,
    report: ReplayReport,
    damage: Vec<FileDamage>,
    suspects: Vec<Ppn>,
    /// Generation of the next state: newer than all, and not in the file of the state that was
    /// read.
    next: u64,
}

impl FoundFolder {
    /// What opening the folder replayed from its journal.
    pub fn report(&self) -> ReplayReport {
        self.report
    }

    /// What is damaged, apart from contents.
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

    /// Powers the device on.
    ///
    /// # Errors
    /// The system's reason.
    pub fn begin(self) -> Result<(Media, ReplayReport), ImageError> {
        let Self {
            mut folder,
            nand,
            nvram,
            report,
            next,
            ..
        } = self;

        let is_new = folder.header.has_sums();
        // Records after the last valid one must not come back, so this journal is not continued.
        folder.header = folder.header.next(next);
        folder.write_state(&nand, &nvram)?;

        if !is_new {
            // An earlier version must not find its own state and continue from it.
            folder.header = folder.header.next(next + 1);
            folder.write_state(&nand, &nvram)?;
        }

        Ok((Media::in_folder(folder, nand, nvram), report))
    }

    /// Powers on a copy in memory.
    pub fn into_copy(self) -> Media {
        Media::assemble(self.nand, self.nvram)
    }
}

/// Opening, making and looking into folders.
impl Media {
    /// Powers on the device in a folder.
    ///
    /// # Errors
    /// There is none, it is damaged, in use, or of another version.
    pub fn open_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        Self::find_folder(dir, false)?.begin()
    }

    /// Powers on a copy of the device in a folder: the files stay as they are, whatever is done
    /// with it.
    ///
    /// # Errors
    /// As `open_folder`.
    pub fn look_into_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        let found = load(dir, FolderAccess::Look, false)?;
        let report = found.report;
        Ok((found.into_copy(), report))
    }

    /// Reads the device in a folder for use. `accept_loss`: drop what is damaged, where possible.
    ///
    /// # Errors
    /// As `open_folder`; damaged files are unchanged.
    pub fn find_folder(dir: &Path, accept_loss: bool) -> Result<FoundFolder, ImageError> {
        load(dir, FolderAccess::Own, accept_loss)
    }

    /// Reads the device in a folder to see what is damaged. Nothing is written.
    ///
    /// # Errors
    /// The damage leaves nothing to recover from.
    pub fn weigh_folder(dir: &Path) -> Result<FoundFolder, ImageError> {
        load(dir, FolderAccess::Look, true)
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
    let header = newest_state(&states)?;

    let geometry = header.geometry()?;
    let contents_bytes = u64::from(geometry.pages()) * PAGE_BYTES as u64;
    let journal_files = [
        files::open(dir, JOURNALS[0], access)?,
        files::open(dir, JOURNALS[1], access)?,
    ];

    if header.journal_bytes < JOURNAL_BYTES_MIN {
        return Err(ImageError::Damaged(format!(
            "{}: a journal of no possible size",
            STATES[slot(header.generation)]
        )));
    }

    files::check_length(locks.contents(), files::CONTENTS, contents_bytes)?;
    for (file, name) in journal_files.iter().zip(JOURNALS) {
        files::check_length(file, name, header.journal_bytes)?;
    }

    // Before anything is written: a sparse copy must fail here, and not in a command.
    if access == FolderAccess::Own {
        let state_bytes = header.next(header.generation).state_bytes()?;
        files::reserve(locks.contents(), files::CONTENTS, contents_bytes)?;
        for index in 0..2 {
            files::reserve(&states[index], STATES[index], state_bytes)?;
            files::reserve(&journal_files[index], JOURNALS[index], header.journal_bytes)?;
        }
    }

    // Looking maps the file privately, so that replay may change pages without the file.
    let pages = match access {
        FolderAccess::Look => MappedPages::map_private(locks.contents(), geometry.pages()),
        FolderAccess::Own => MappedPages::map(locks.contents(), geometry.pages()),
    };
    let pages = pages.map_err(|error| about(files::CONTENTS, error))?;

    let (mut nand, mut nvram, mut suspects) =
        state::read(&states[slot(header.generation)], &header, pages)?;
    let map = |index: usize| {
        map_journal(&journal_files[index], header.journal_bytes, access)
            .map_err(|error| about(JOURNALS[index], error))
    };
    let mut journals = [map(0)?, map(1)?];

    let JournalHeaders { newest, begun } =
        weigh_headers(&mut journals, &header, &states, &mut findings)?;
    let mut report = ReplayReport {
        generation: header.generation,
        ..ReplayReport::default()
    };
    if begun {
        let journal = &mut journals[slot(header.generation)];
        report = JournalReplay {
            journal,
            header: &header,
            nand: &mut nand,
            nvram: &mut nvram,
            suspects: &mut suspects,
        }
        .run(&mut findings)?;
    }

    // A block erased later holds nothing any more.
    suspects.retain(|ppn| nand.torn.contains(&ppn.0));

    // The state that was read stays until the new one is whole.
    let next = if slot(newest + 1) == slot(header.generation) {
        newest + 2
    } else {
        newest + 1
    };
    let files = SyncedFiles::of(locks.contents(), journal_files.each_ref())
        .map_err(|error| about(files::CONTENTS, error))?;
    let folder = Folder::new(locks, states, journals, header, files);
    Ok(FoundFolder {
        folder,
        nand,
        nvram,
        report,
        damage: findings.list,
        suspects,
        next,
    })
}

pub(super) fn map_journal(
    file: &File,
    bytes: u64,
    access: FolderAccess,
) -> std::io::Result<Journal> {
    let mut options = memmap2::MmapOptions::new();
    options.len(bytes as usize);
    // SAFETY: as for the contents: our own file, locked, of at least this length.
    let map = unsafe {
        match access {
            FolderAccess::Own => options.map_mut(file)?,
            FolderAccess::Look => options.map_copy(file)?,
        }
    };
    Ok(Journal::new(map))
}

fn newest_state(states: &[File; 2]) -> Result<StateHeader, ImageError> {
    let mut whole: Option<StateHeader> = None;
    let mut reason = ImageError::NotAnImage;
    for (index, file) in states.iter().enumerate() {
        let damaged =
            |what: &str| ImageError::Damaged(format!("{}, byte 0: {what}", STATES[index]));
        match state::read_header(file) {
            // Generation g is in file g mod 2. One elsewhere has been copied there.
            Ok(header) if slot(header.generation) != index => {
                reason = damaged("a state of another file")
            }
            Ok(header) if whole.is_some_and(|other| other.generation > header.generation) => {}
            Ok(header) if state::is_whole(file, &header) => whole = Some(header),
            Ok(_) => {
                reason = damaged("the state does not have its hash, and neither does the other one")
            }
            Err(error) => {
                if matches!(reason, ImageError::NotAnImage) {
                    reason = error;
                }
            }
        }
    }

    whole.ok_or(reason)
}

/// What the headers of both journals say.
struct JournalHeaders {
    /// The newest generation that was ever begun.
    newest: u64,
    /// Whether the newest state has a journal.
    begun: bool,
}

fn weigh_headers(
    journals: &mut [Journal; 2],
    state: &StateHeader,
    states: &[File; 2],
    findings: &mut DamageFindings,
) -> Result<JournalHeaders, ImageError> {
    let own = state.generation;
    let mut headers = JournalHeaders {
        newest: own,
        begun: false,
    };
    for (index, journal) in journals.iter_mut().enumerate() {
        let (is_own, name) = (index == slot(own), JOURNALS[index]);
        let other = || {
            state::read_header(&states[index])
                .ok()
                .filter(|header| slot(header.generation) == index)
        };

        let begun = match journal.header() {
            HeaderFound::Begun(generation) => Some(generation),
            HeaderFound::BegunBy1(generation) if !state.has_sums() || generation < own => {
                Some(generation)
            }
            // Version 1 left the second journal blank until it was needed.
            HeaderFound::Blank
                if !state.has_sums() || !other().is_some_and(|header| header.has_sums()) =>
            {
                Some(0)
            }
            _ => None,
        };

        let begun = begun.filter(|generation| *generation == 0 || slot(*generation) == index);

        // A generation beyond 32 bits cannot be continued: the next header has no room for it.
        let begun = begun.filter(|generation| u32::try_from(*generation).is_ok());
        headers.newest = headers.newest.max(begun.unwrap_or(0));

        match begun {
            // A journal is begun only when its state is durable. That state is not whole now, so it
            // was damaged after that.
            Some(generation) if generation > own => {
                let (records, syncs) = journal.count(generation);
                let what = format!(
                    "no state of generation {generation} is whole, and {name} goes on from it"
                );
                let lost = format!(
                    "all since generation {own}: {records} operations or more, {syncs} flushes among them"
                );
                findings.add(STATES[index], 0, what, lost)?;
            }
            Some(generation) if is_own && generation == own => headers.begun = true,
            Some(_) if is_own && !journal.read(own).is_empty() => {
                let what =
                    format!("the header is older than the records behind it, of generation {own}");
                findings.add(name, 0, what, "nothing that is known of".into())?;
                headers.begun = true;
            }
            Some(_) => {}
            None if is_own => {
                let lost = match journal.read(own).len() {
                    0 => format!("what was recorded since generation {own}, if anything was"),
                    _ => "nothing that is known of: records of this generation follow".into(),
                };
                findings.add(
                    name,
                    0,
                    "the header does not have its checksum".into(),
                    lost,
                )?;
                headers.begun = true;
            }
            // The state beside it is older and whole, so no newer journal was ever begun there.
            None if other().is_some_and(|header| {
                header.generation < own && state::is_whole(&states[index], &header)
            }) => {}
            None => {
                let lost = format!("what was recorded after generation {own}, if anything was");
                findings.add(
                    name,
                    0,
                    "the header does not have its checksum".into(),
                    lost,
                )?;
            }
        }
    }
    Ok(headers)
}

/// The journal of the newest state, applied to it.
struct JournalReplay<'a> {
    journal: &'a mut Journal,
    header: &'a StateHeader,
    nand: &'a mut NandArray,
    nvram: &'a mut [u64],
    suspects: &'a mut Vec<Ppn>,
}

impl JournalReplay<'_> {
    fn run(&mut self, findings: &mut DamageFindings) -> Result<ReplayReport, ImageError> {
        let name = JOURNALS[slot(self.header.generation)];
        let mut offsets = self.journal.read(self.header.generation);
        let end = self.journal.end();

        if let Some(proof) = self.journal.proof_behind() {
            let (records, syncs) = self.journal.count_behind();
            let what = format!(
                "a record does not have its checksum, and was durable (byte {proof} was written after it)"
            );
            let lost = format!(
                "{records} operations or more that were recorded behind it, {syncs} flushes among them"
            );
            findings.add(name, end as u64, what, lost)?;
        }

        let mut values = Vec::new();
        let senseless = || {
            (
                "a record that makes no sense".to_owned(),
                "it, and all behind it".to_owned(),
            )
        };

        // Up to the last sync all contents were durable: those pages need not be compared.
        let mut synced = None;
        for (index, at) in offsets.iter().enumerate() {
            match self.journal.record(*at, &mut values) {
                Some(JournalRecord::Durability(Durability::Synced | Durability::Vouched)) => {
                    synced = Some(index)
                }
                Some(_) => {}
                None => {
                    let (what, lost) = senseless();
                    findings.add(name, *at as u64, what, lost)?;
                    offsets.truncate(index);
                    break;
                }
            }
        }

        let mut report = ReplayReport {
            generation: self.header.generation,
            ..ReplayReport::default()
        };
        for (index, at) in offsets.iter().enumerate() {
            let record = self
                .journal
                .record(*at, &mut values)
                .expect("it made sense a moment ago");

            if let JournalRecord::Effect(effect) = record {
                let durable = synced.is_some_and(|synced| index <= synced);
                if !durable && !self.has_contents(&effect) {
                    report.dropped = (offsets.len() - index) as u64;
                    break;
                }
                if !self.replay(&effect) {
                    let (what, lost) = senseless();
                    findings.add(name, *at as u64, what, lost)?;
                    break;
                }
            }
            report.records += 1;
        }
        Ok(report)
    }

    /// Do the contents match a program's record? Also true if the page number is impossible, which
    /// replaying the record finds out.
    fn has_contents(&self, effect: &RecordedEffect<'_>) -> bool {
        let MediaEffect::Program { ppn, contents, .. } = *effect else {
            return true;
        };
        let PageContents::Mapped(pages) = &self.nand.contents else {
            unreachable!("a folder's contents are mapped")
        };
        let bytes = match contents.kind {
            PageContentKind::DATA => PAGE_BYTES,
            PageContentKind::NOTHING => 0,
            kind => kind.meta_bytes().unwrap_or(0),
        };
        ppn.0 >= self.nand.geometry.pages()
            || crc32c::crc32c(&pages.page(ppn.0 as usize)[..bytes]) == contents.crc
    }

    /// Does an effect again, if it is possible.
    fn replay(&mut self, effect: &RecordedEffect<'_>) -> bool {
        if !self.is_possible(effect) {
            return false;
        }

        // The contents are in the file already, where the process left them.
        let change = effect.map_page(|_| PageSource::Stored(StoredPage::Nothing));
        change.change(self.nand, self.nvram);

        if let MediaEffect::Program { ppn, contents, .. } = effect {
            self.adopt_contents(*ppn, *contents);
        }
        true
    }

    /// Could the effect have been done? What no firmware has done makes no sense, whatever the CRC
    /// of its record says.
    fn is_possible(&self, effect: &RecordedEffect<'_>) -> bool {
        let geometry = self.nand.geometry;
        // A program must be the next one of its block.
        let is_next = |ppn: Ppn| {
            ppn.0 < geometry.pages() && {
                let (block, row) = self.nand.block_of(ppn);
                self.nand.next_row[block.0 as usize] == row
            }
        };
        let has_words = |word: usize, len: usize| {
            word.checked_add(len)
                .is_some_and(|end| end <= self.nvram.len())
        };

        match *effect {
            MediaEffect::Program { ppn, contents, .. } => {
                let is_kind = matches!(
                    contents.kind,
                    PageContentKind::DATA | PageContentKind::NOTHING
                ) || contents.kind.meta_bytes().is_some();
                is_kind && is_next(ppn)
            }
            MediaEffect::TornProgram { ppn } => is_next(ppn),
            MediaEffect::Erase { block } | MediaEffect::SpoiledErase { block } => {
                block.0 < geometry.blocks()
            }
            MediaEffect::Store { word, values } => has_words(word, values.len()),
            MediaEffect::Clear { start, len } => has_words(start, len),
        }
    }

    /// What the file holds belongs to a page that has been programmed.
    fn adopt_contents(&mut self, ppn: Ppn, PageSum { kind, crc }: PageSum) {
        let PageContents::Mapped(pages) = &mut self.nand.contents else {
            unreachable!("a folder's contents are mapped")
        };
        let at = ppn.0 as usize;
        if kind != PageContentKind::NOTHING {
            pages.set_sum(at, crc);
        }

        let Some(bytes) = kind.meta_bytes() else {
            return;
        };
        if pages.is_intact(at, bytes) {
            let bytes = pages.page(at)[..bytes].into();
            self.nand.adopt_meta(ppn.0, bytes);
        } else {
            self.nand.torn.insert(ppn.0);
            self.suspects.push(ppn);
        }
    }
}
