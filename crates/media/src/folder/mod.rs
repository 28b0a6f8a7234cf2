//! A device in a folder: contents in a mapped file, everything else in memory and in a journal.
//!
//! ```text
//! contents              4096 bytes a flash page, mapped
//! journal.0, journal.1  what happened since the state of the same number was written, mapped
//! state.0, state.1      everything but the contents, written in turn
//! lock                  held while the device is in use
//! ```
//! A process that dies leaves all its operations, in order, and perhaps a part of the last one. A machine that dies
//! leaves, in every file, any mixture of what was written since that file was last synced. Both come out as a prefix of
//! the operations, which is what a power cut of the device may leave:
//!
//! - *Sync*: 1. contents are durable  2. the record `Synced`  3. the journal is durable. What was before 1 survives.
//! - *Erase*, the only thing that gives pages' contents up to be overwritten: 1. sync, unless nothing has happened since
//!   the last one  2. the record  3. later programs overwrite. If 3 survives without 2, what it overwrote had been
//!   replaced before 1, or the firmware would not have erased it.
//! - *Replay* stops at the first record whose CRC does not fit, and at the first program after the last `Synced` whose
//!   contents do not have the CRC in its record: its contents were not durable, and no later record counts.
//! - *State*: 1. sync  2. the other state file, with a higher generation and a hash, durable  3. the other journal,
//!   empty, with that generation, durable  4. records go there. Cut before 2: the old state and journal are whole. Between
//!   2 and 3: the new state is whole and its journal is of another generation, so it is empty.
//!
//! Invariant: files have their full size from the beginning, so that no later write needs space.
//! Absent: what the bytes mean, and when to sync (the device's).

mod journal;
mod pages;
mod state;

use crate::array::{Contents, NandArray, Stored};
use crate::geometry::{BlockId, Geometry, PAGE_BYTES, Ppn};
use crate::image_file::ImageError;
use crate::media::Media;
use crate::oob::Oob;
use crate::slab::Slab;
use journal::{Journal, PageKind, Record, STORE_WORDS_MAX};
pub(crate) use pages::MappedPages;
use state::Header;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Smallest journal.
pub const JOURNAL_BYTES_MIN: u64 = 16 << 10;
/// Journals of ordinary devices are twice as large as their state, within these bounds: a full one has the whole state
/// written while commands wait.
const JOURNAL_BYTES_DEFAULT: std::ops::RangeInclusive<u64> = 4 << 20..=256 << 20;

/// Files of a device that is in use.
pub(crate) struct Folder {
    _lock: File,
    states: [File; 2],
    journals: [Journal; 2],
    header: Header,
    /// Has anything happened that is not durable, erases apart?
    unsynced: bool,
    broken: Option<String>,
    syncs: u64,
}

/// What opening found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Records applied.
    pub records: u64,
    /// Records of the journal whose contents were not durable, and all after the first such.
    pub dropped: u64,
}

fn damaged(reason: &str) -> ImageError {
    ImageError::Damaged(reason.to_owned())
}

fn lock(dir: &Path) -> Result<File, ImageError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ImageError::InUse),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

fn open_file(path: &Path, bytes: u64) -> Result<File, ImageError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.len() < bytes {
        return Err(damaged(&format!("{} is too short", path.file_name().unwrap_or_default().display())));
    }
    Ok(file)
}

/// Creates a file with its blocks allocated, where the file system can do that.
fn allocate(path: &Path, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP) => write_zeroes(&file, bytes)?,
        Err(error) => return Err(error.into()),
    }
    Ok(file)
}

fn write_zeroes(mut file: &File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file).map(drop)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn map_journal(file: &File, bytes: u64) -> io::Result<Journal> {
    // SAFETY: as for the contents: our own file, locked, of at least this length.
    let map = unsafe { memmap2::MmapOptions::new().len(bytes as usize).map_mut(file)? };
    Ok(Journal::new(map))
}

const STATES: [&str; 2] = ["state.0", "state.1"];
const JOURNALS: [&str; 2] = ["journal.0", "journal.1"];
const CONTENTS: &str = "contents";

impl Folder {
    fn create(
        dir: &Path,
        geometry: Geometry,
        nvram_words: usize,
        journal_bytes: Option<u64>,
    ) -> Result<(Self, NandArray, Slab<u64>), ImageError> {
        let mut header = Header::new(geometry, nvram_words, 0, 0);
        let state_bytes = header.state_bytes()?;
        let usual = (2 * state_bytes).clamp(*JOURNAL_BYTES_DEFAULT.start(), *JOURNAL_BYTES_DEFAULT.end());
        header.journal_bytes = journal_bytes.unwrap_or(usual).max(JOURNAL_BYTES_MIN);
        let lock = lock(dir)?;
        let contents = allocate(&dir.join(CONTENTS), u64::from(geometry.pages()) * PAGE_BYTES as u64)?;
        let pages = MappedPages::map(&contents, geometry.pages())?;
        let mut files = Vec::new();
        for (name, bytes) in
            STATES.map(|name| (name, state_bytes)).into_iter().chain(JOURNALS.map(|name| (name, header.journal_bytes)))
        {
            files.push(allocate(&dir.join(name), bytes)?);
        }
        let [state_0, state_1, journal_0, journal_1] =
            <[File; 4]>::try_from(files).expect("two states and two journals");
        let mut nand = NandArray::new(geometry, crate::content::ContentMode::None);
        nand.contents = Contents::Mapped(pages);
        let nvram = Slab::zeroed(nvram_words);
        let journals = [map_journal(&journal_0, header.journal_bytes)?, map_journal(&journal_1, header.journal_bytes)?];
        let mut folder =
            Self { _lock: lock, states: [state_0, state_1], journals, header, unsynced: false, broken: None, syncs: 0 };
        for file in [&contents, &journal_0, &journal_1].into_iter().chain(&folder.states) {
            file.sync_all()?;
        }
        folder.write_state(&nand, &nvram)?;
        sync_dir(dir)?;
        Ok((folder, nand, nvram))
    }

    fn open(dir: &Path) -> Result<(Self, NandArray, Slab<u64>, ReplayReport), ImageError> {
        let (mut folder, nand, nvram, report) = Self::load(dir, false)?;
        // Records behind the last that counts must not come back: the journal is not gone on with.
        folder.header.generation += 1;
        folder.write_state(&nand, &nvram)?;
        Ok((folder, nand, nvram, report))
    }

    /// Reads everything; nothing is written, and contents changed later stay in memory if `private`.
    fn load(dir: &Path, private: bool) -> Result<(Self, NandArray, Slab<u64>, ReplayReport), ImageError> {
        let lock = lock(dir)?;
        let states = [open_file(&dir.join(STATES[0]), 0)?, open_file(&dir.join(STATES[1]), 0)?];
        let header = newest_state(&states)?;
        let geometry = header.geometry()?;
        let contents = open_file(&dir.join(CONTENTS), u64::from(geometry.pages()) * PAGE_BYTES as u64)?;
        let journals = [
            open_file(&dir.join(JOURNALS[0]), header.journal_bytes)?,
            open_file(&dir.join(JOURNALS[1]), header.journal_bytes)?,
        ];
        if header.journal_bytes < JOURNAL_BYTES_MIN {
            return Err(damaged("a journal of no possible size"));
        }
        let pages = match private {
            true => MappedPages::map_private(&contents, geometry.pages())?,
            false => MappedPages::map(&contents, geometry.pages())?,
        };
        let (mut nand, mut nvram) = state::read(&states[slot(header.generation)], &header, pages)?;
        let journals =
            [map_journal(&journals[0], header.journal_bytes)?, map_journal(&journals[1], header.journal_bytes)?];
        let mut folder = Self { _lock: lock, states, journals, header, unsynced: false, broken: None, syncs: 0 };
        let report = folder.replay(&mut nand, &mut nvram)?;
        Ok((folder, nand, nvram, report))
    }

    fn replay(&mut self, nand: &mut NandArray, nvram: &mut [u64]) -> Result<ReplayReport, ImageError> {
        let generation = self.header.generation;
        let offsets = self.journals[slot(generation)].read(generation);
        let journal = &self.journals[slot(generation)];
        let mut values = Vec::new();
        let senseless = || damaged("a record of the journal makes no sense");
        let mut synced = None;
        for (index, at) in offsets.iter().enumerate() {
            if journal.record(*at, &mut values).ok_or_else(senseless)? == Record::Synced {
                synced = Some(index);
            }
        }
        let mut report = ReplayReport::default();
        for (index, at) in offsets.iter().enumerate() {
            let record = journal.record(*at, &mut values).ok_or_else(senseless)?;
            if synced.is_none_or(|synced| index > synced) && !has_contents(&record, nand).ok_or_else(senseless)? {
                report.dropped = (offsets.len() - index) as u64;
                break;
            }
            apply(&record, nand, nvram).ok_or_else(senseless)?;
            report.records += 1;
        }
        Ok(report)
    }

    fn journal(&mut self) -> &mut Journal {
        &mut self.journals[slot(self.header.generation)]
    }

    /// Writes the state of the present generation and begins its journal. What it says must be durable but for itself.
    fn write_state(&mut self, nand: &NandArray, nvram: &[u64]) -> io::Result<()> {
        let Contents::Mapped(pages) = &nand.contents else { unreachable!("a folder's contents are mapped") };
        pages.sync()?;
        let generation = self.header.generation;
        state::write(&self.states[slot(generation)], &self.header, nand, nvram)?;
        let journal = self.journal();
        journal.begin(generation);
        journal.sync()?;
        self.unsynced = false;
        Ok(())
    }

    fn sync(&mut self, nand: &NandArray) -> io::Result<()> {
        if let Some(why) = &self.broken {
            return Err(io::Error::other(why.clone()));
        }
        let Contents::Mapped(pages) = &nand.contents else { unreachable!("a folder's contents are mapped") };
        let result = pages.sync().and_then(|()| {
            self.journal().append(&Record::Synced);
            self.journal().sync()
        });
        self.syncs += 1;
        self.unsynced = false;
        result.inspect_err(|error| self.broken = Some(error.to_string()))
    }

    /// Makes room for one more record.
    #[inline]
    fn make_room(&mut self, nand: &NandArray, nvram: &[u64]) {
        if !self.journal().has_room() {
            self.go_on_with_a_new_state(nand, nvram);
        }
    }

    #[cold]
    fn go_on_with_a_new_state(&mut self, nand: &NandArray, nvram: &[u64]) {
        if self.broken.is_some() {
            let generation = self.header.generation;
            return self.journal().begin(generation);
        }
        self.header.generation += 1;
        if let Err(error) = self.write_state(nand, nvram) {
            self.broken = Some(error.to_string());
        }
    }

    fn append(&mut self, record: &Record<'_>) {
        if self.broken.is_none() {
            self.unsynced |= !matches!(record, Record::Erase { .. } | Record::Spoil { .. });
            self.journal().append(record);
        }
    }
}

/// Which of two files a generation is in.
fn slot(generation: u64) -> usize {
    (generation % 2) as usize
}

fn newest_state(states: &[File; 2]) -> Result<Header, ImageError> {
    let mut whole: Option<Header> = None;
    let mut reason = ImageError::NotAnImage;
    for (index, file) in states.iter().enumerate() {
        match state::read_header(file) {
            Ok(header) if slot(header.generation) != index => reason = damaged("a state file of another place"),
            Ok(header) if whole.is_some_and(|other| other.generation > header.generation) => {}
            Ok(header) if state::is_whole(file, &header) => whole = Some(header),
            Ok(_) => reason = damaged("no state file has its hash"),
            Err(error) => {
                if matches!(reason, ImageError::NotAnImage) {
                    reason = error;
                }
            }
        }
    }
    whole.ok_or(reason)
}

/// Are a program's contents what its record says? `None` if there is no such page.
fn has_contents(record: &Record<'_>, nand: &NandArray) -> Option<bool> {
    let Record::Program { ppn, kind, crc, .. } = *record else { return Some(true) };
    let Contents::Mapped(pages) = &nand.contents else { unreachable!("a folder's contents are mapped") };
    if ppn >= nand.geometry.pages() {
        return None;
    }
    let page = pages.page(ppn as usize);
    let bytes = match kind {
        PageKind::DATA => &page[..],
        PageKind::NOTHING => &[],
        kind => &page[..kind.meta_bytes()?],
    };
    Some(crc32c::crc32c(bytes) == crc)
}

/// Does what a record says; `None` if it is impossible.
fn apply(record: &Record<'_>, nand: &mut NandArray, nvram: &mut [u64]) -> Option<()> {
    let geometry = nand.geometry;
    let next = |nand: &NandArray, ppn: u32| {
        let (block, row) = (ppn < geometry.pages()).then(|| nand.block_of(Ppn(ppn)))?;
        (nand.next_row[block.0 as usize] == row).then_some(())
    };
    match *record {
        Record::Program { ppn, oob, kind, .. } => {
            next(nand, ppn)?;
            let Contents::Mapped(pages) = &nand.contents else { unreachable!("a folder's contents are mapped") };
            let stored = match kind {
                PageKind::DATA | PageKind::NOTHING => Stored::Nothing,
                kind => Stored::Meta(pages.page(ppn as usize)[..kind.meta_bytes()?].into()),
            };
            nand.put(Ppn(ppn), oob, stored);
        }
        Record::Tear { ppn } => {
            next(nand, ppn)?;
            nand.tear(Ppn(ppn));
        }
        Record::Erase { block } if block < geometry.blocks() => nand.erase(BlockId(block)),
        Record::Spoil { block } if block < geometry.blocks() => nand.spoil(BlockId(block)),
        Record::Store { word, values } => {
            let word = usize::try_from(word).ok()?;
            nvram.get_mut(word..word.checked_add(values.len())?)?.copy_from_slice(values);
        }
        Record::Clear { start, len } => {
            let start = usize::try_from(start).ok()?;
            nvram.get_mut(start..start.checked_add(usize::try_from(len).ok()?)?)?.fill(0);
        }
        Record::Synced => {}
        Record::Erase { .. } | Record::Spoil { .. } => return None,
    }
    Some(())
}

/// Where a device in a folder comes from, and how it is made durable.
impl Media {
    /// A new device with real bytes in a folder that exists and holds none. `journal_bytes` is about the size of the
    /// state unless given. If it fails, files may be left behind.
    ///
    /// # Errors
    /// The system's reason, a full disk among them.
    pub fn create_folder(
        dir: &Path,
        geometry: Geometry,
        nvram_words: usize,
        journal_bytes: Option<u64>,
    ) -> Result<Self, ImageError> {
        let (folder, nand, nvram) = Folder::create(dir, geometry, nvram_words, journal_bytes)?;
        Ok(Self::in_folder(folder, nand, nvram))
    }

    /// Powers on the device in a folder.
    ///
    /// # Errors
    /// There is none, it is damaged, in use, or of another version.
    pub fn open_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        let (folder, nand, nvram, report) = Folder::open(dir)?;
        Ok((Self::in_folder(folder, nand, nvram), report))
    }

    /// Powers on a copy of the device in a folder: the files stay as they are, whatever is done with it.
    ///
    /// # Errors
    /// As `open_folder`.
    pub fn look_into_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        let (_, nand, nvram, report) = Folder::load(dir, true)?;
        Ok((Self::assemble(nand, nvram), report))
    }

    /// The file of pages' contents of a device in a folder, to have it written out early. Nothing else may be done to it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn contents_file(dir: &Path) -> io::Result<File> {
        File::open(dir.join(CONTENTS))
    }

    /// Names of the files that `create_folder` makes.
    pub fn folder_files(dir: &Path) -> Vec<PathBuf> {
        STATES.iter().chain(&JOURNALS).chain([&CONTENTS, &"lock"]).map(|name| dir.join(name)).collect()
    }

    fn in_folder(folder: Folder, nand: NandArray, nvram: Slab<u64>) -> Self {
        let mut media = Self::assemble(nand, nvram);
        media.folder = Some(Box::new(folder));
        media
    }

    /// Makes everything survive a crash of this machine; nothing to do for a device in memory.
    ///
    /// # Errors
    /// The system could not write, now or earlier: nothing may be acknowledged any more.
    pub fn sync(&mut self) -> io::Result<()> {
        self.folder_room();
        match &mut self.folder {
            Some(folder) => folder.sync(&self.nand),
            None => Ok(()),
        }
    }

    /// Writes everything down in its shortest form: the last thing to do before the process ends.
    ///
    /// # Errors
    /// As `sync`.
    pub fn tidy(&mut self) -> io::Result<()> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        folder.go_on_with_a_new_state(&self.nand, &self.nvram);
        folder.broken.clone().map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    /// Why nothing may be acknowledged any more, if that is so.
    pub fn broken(&self) -> Option<&str> {
        self.folder.as_ref()?.broken.as_deref()
    }

    /// How often this machine was asked to make everything durable.
    pub fn syncs(&self) -> u64 {
        self.folder.as_ref().map_or(0, |folder| folder.syncs)
    }

    /// Room in the journal for what comes next.
    #[inline]
    pub(crate) fn folder_room(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.make_room(&self.nand, &self.nvram);
        }
    }

    pub(crate) fn folder_program(&mut self, ppn: Ppn, oob: Oob, stored: Stored) {
        let (kind, crc) = match &stored {
            Stored::Bytes(bytes) => (PageKind::DATA, crc32c::crc32c(&bytes[..])),
            Stored::Meta(bytes) => (PageKind::meta(bytes.len()), crc32c::crc32c(bytes)),
            Stored::Nothing | Stored::Identity(_) => (PageKind::NOTHING, 0),
        };
        // 1. contents  2. the record. Killed in between, the page is as it was: erased.
        self.nand.put(ppn, oob, stored);
        self.folder_append(&Record::Program { ppn: ppn.0, oob, kind, crc });
    }

    /// A data page has been programmed with these bytes.
    pub(crate) fn folder_programmed(&mut self, ppn: Ppn, oob: Oob, bytes: &[u8; PAGE_BYTES]) {
        if self.folder.is_some() {
            let crc = crc32c::crc32c(bytes);
            self.folder_append(&Record::Program { ppn: ppn.0, oob, kind: PageKind::DATA, crc });
        }
    }

    /// A data page has been programmed with what another one holds.
    pub(crate) fn folder_copied(&mut self, ppn: Ppn, oob: Oob) {
        if let (Some(_), Contents::Mapped(pages)) = (&self.folder, &self.nand.contents) {
            let crc = crc32c::crc32c(pages.page(ppn.0 as usize));
            self.folder_append(&Record::Program { ppn: ppn.0, oob, kind: PageKind::DATA, crc });
        }
    }

    pub(crate) fn folder_tear(&mut self, ppn: Ppn) {
        self.folder_append(&Record::Tear { ppn: ppn.0 });
    }

    /// Before a block's contents are given up.
    pub(crate) fn folder_before_erase(&mut self) {
        self.folder_room();
        if let Some(folder) = &mut self.folder
            && folder.unsynced
            && folder.broken.is_none()
        {
            // A failure is kept in `broken`.
            let _ = folder.sync(&self.nand);
        }
    }

    pub(crate) fn folder_erase(&mut self, block: BlockId, failed: bool) {
        let block = block.0;
        self.folder_append(&if failed { Record::Spoil { block } } else { Record::Erase { block } });
    }

    pub(crate) fn folder_store(&mut self, word: usize, values: &[u64]) {
        for (index, values) in values.chunks(STORE_WORDS_MAX).enumerate() {
            self.folder_room();
            self.folder_append(&Record::Store { word: (word + index * STORE_WORDS_MAX) as u64, values });
        }
    }

    pub(crate) fn folder_clear(&mut self, start: usize, len: usize) {
        self.folder_append(&Record::Clear { start: start as u64, len: len as u64 });
    }

    #[inline]
    fn folder_append(&mut self, record: &Record<'_>) {
        if let Some(folder) = &mut self.folder {
            if let Contents::Mapped(pages) = &self.nand.contents
                && let Some(why) = pages.failure()
            {
                folder.broken.get_or_insert_with(|| why.to_owned());
            }
            folder.append(record);
        }
    }
}
