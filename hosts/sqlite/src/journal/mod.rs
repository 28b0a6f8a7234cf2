//! SQLite's rollback journal, in which old pages are shared with the database instead of being
//! written.
//!
//! SQLite reads and writes the bytes of [its
//! format](https://sqlite.org/fileformat2.html#the_rollback_journal): headers, each with its
//! records, and the name of a super-journal. What is stored is an image of each page in a slot of
//! its own, which the device gives from the database without programming anything, and a metadata
//! page with everything else (`layout.rs`). Of pages below 4 KiB the slots hold SQLite's bytes as
//! they come: written, but checked as images are.
//!
//! Invariants, and why no cut and no killed process gets an old or a wrong page into a database:
//!
//! 1. *Nothing counts without its check.* Metadata page 0 has a checksum; each record has a check
//!    of its whole image, mixed with the transaction's random nonce, the record's place, its page
//!    number and SQLite's checksum. So what an earlier transaction left in slots and metadata pages
//!    never fits. At opening the journal ends before the first record that does not fit (SQLite's
//!    own checksum looks at every 200th byte only).
//! 2. *No flush between images and metadata* is needed because of 1. Any subset of them may be
//!    there before `sync` returns: the journal then ends early or there is none, and the database
//!    has not been changed, since SQLite changes it after `sync`. A process that is killed leaves
//!    what it did in order: images, further metadata, metadata page 0.
//! 3. *A second sync of a transaction* (SQLite's cache spilled) writes metadata pages again.
//!    Entries that were durable are the same in both versions and nothing of their images is
//!    touched, so whichever version of whichever page is there, all records of the first sync fit.
//!    Page 0 says how many there are in all, or how many there were. (A slot of small pages that
//!    was not full is written again with more behind: the new page 0 also names the part that was
//!    durable.) *Metadata behind the database*: a page of the database may be overwritten while
//!    metadata of other pages is not in the store. A process that is killed then leaves the images
//!    of all pages that it has overwritten, and what it leaves out are images of pages as they
//!    still are.
//! 4. *Segments* stand behind each other. One counts if it has the nonce and the next number, and
//!    if it starts where the one before ends, for SQLite and in the store. The older version of the
//!    one before ends elsewhere: then the journal ends there. Its records were not synced, since a
//!    sync covers all segments.
//! 5. *Invalidation* is one page: metadata page 0 is deallocated, then synced. Cut before the end:
//!    the journal is there, all of it, or it is gone; SQLite takes the transaction back, or it is
//!    done. It returns after the sync, so that what is done stays done, and no slot is used again
//!    before, so that a journal that comes back is whole. `write` of a new header invalidates
//!    whatever journal there is first. A transaction that was never synced (synchronous=OFF) is
//!    invalidated without a sync: it promised nothing for the case of a cut.
//!
//! *What is remembered.* A connection that has written its header in this transaction owns the
//! journal: SQLite's RESERVED lock keeps other writers out until the journal is invalidated, and
//! its EXCLUSIVE lock readers, so what it knows is so. Others know nothing: `size`, `exists` and
//! reads of the first header look at metadata page 0 anew. Reads behind the first header go by what
//! was found then, for SQLite makes them after one of these under the same EXCLUSIVE lock
//! (playback), or in a journal whose transaction nobody can end meanwhile (a child of a
//! super-journal).
//!
//! Considered and left: *an image in the journal whose database page changes later*: the device
//! keeps the old page for the slot. *Sizes of files*: the store's file is as long as it ever was;
//! it says nothing. *Plain bytes for small pages*: after a crash nobody would know where they end,
//! so that a super-journal's name is not found, and a torn record can have SQLite's checksum.
//!
//! Limit: a process that is killed between the two steps of 5 leaves an invalidation that is not
//! durable. If the next transaction uses slots and the power fails before its first sync, the old
//! journal can come back in part. SQLite's own PERSIST mode has the same one.
//!
//! Absent: locks, and when SQLite calls what (`vfs`).

mod bytes;
mod images;
mod layout;
mod opening;
mod segment;

use crate::mark::Mark;
use layout::{HEADER_BYTES, Header, JournalGeometry, PAGE, Page};
use remap_ssd_store::{FileId, Store, StoreError};
use segment::{Part, Segment};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

/// What a journal has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounters {
    /// Images that were shared with the database.
    pub images_copied: u64,
    /// Images that were written, because the database's page has other bytes.
    pub images_not_equal: u64,
    /// Images that were written, because there is no such page to share: no database, none of this
    /// number, or slots that hold parts of several small pages.
    pub images_not_shareable: u64,
    /// Metadata pages that were written, those of tails included.
    pub metadata_pages: u64,
    /// Number of journals that were invalidated.
    pub invalidations: u64,
    /// Journals that ended early when they were opened, because an image was not the one that was
    /// journalled.
    pub images_bad: u64,
}

/// What is known of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unknown,
    /// What metadata page 0, as it was then, led to.
    Opened,
    /// Everything: this connection writes it.
    Owned,
}

/// The rollback journal of a database.
pub struct Journal {
    store: Arc<dyn Store>,
    file: FileId,
    mark: Mark,
    database: Option<FileId>,
    stamps: bool,
    standing: Standing,
    segments: Vec<Segment>,
    /// Metadata page 0 when it was read, if that was one.
    first: Option<Box<Page>>,
    /// Images that the store does not have yet, by segment and record.
    pending: BTreeMap<(usize, usize), Vec<u8>>,
    /// The store was changed since the last sync.
    unsynced: bool,
    /// This transaction was synced, or nobody knows whether it was.
    ever_synced: bool,
    origin: Option<u64>,
    counters: JournalCounters,
}

/// The first bytes of a journal as stock SQLite writes it (file format, §3).
const STOCK_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Whether a file has a journal, ours or one of stock SQLite's that was brought in.
pub(crate) fn is_journal(store: &dyn Store, file: FileId) -> Result<bool, StoreError> {
    let mut page: Box<Page> = Box::new([0; PAGE]);
    let read = store.read(file, 0, &mut page[..])?;
    page[read..].fill(0);
    let is_ours = layout::Head::get(&page).is_some_and(|head| head.segment == 0);
    Ok(is_ours || page.starts_with(&STOCK_MAGIC))
}

impl Journal {
    /// The journal in a file of a store. Nothing is read yet. Without the database nothing can be
    /// shared, but a journal can be read.
    pub fn open(store: Arc<dyn Store>, file: FileId, mark: Mark, database: Option<FileId>) -> Self {
        Self {
            store,
            file,
            mark,
            database,
            stamps: true,
            standing: Standing::Unknown,
            segments: Vec::new(),
            first: None,
            pending: BTreeMap::new(),
            unsynced: false,
            ever_synced: false,
            origin: None,
            counters: JournalCounters::default(),
        }
    }

    /// Whether pages of the database may carry the header of a frame; at first they may.
    pub fn set_stamps(&mut self, allowed: bool) {
        self.stamps = allowed;
    }

    /// Where the store's file has the image, if the last `read` was exactly that.
    pub fn origin(&self) -> Option<u64> {
        self.origin
    }

    /// Counters since it was opened.
    pub fn counters(&self) -> JournalCounters {
        self.counters
    }

    /// Reads SQLite's bytes. Answers how many there were; the rest is zeroed.
    ///
    /// # Errors
    /// The store, or an image that was good when the journal was opened.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.origin = None;
        into.fill(0);
        self.know(offset < HEADER_BYTES as u64)?;
        // SQLite looks at the first byte to see whether there is anything to roll back: no image is
        // read for that.
        if self.standing == Standing::Unknown && offset + into.len() as u64 > HEADER_BYTES as u64 {
            self.load()?;
        }

        let end = match &self.first {
            Some(_) if self.standing == Standing::Unknown => HEADER_BYTES as u64,
            _ => self.end(),
        };
        let there = end.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < there {
            done += self.read_part(offset + done as u64, &mut into[done..there])?;
        }
        if there == into.len() {
            self.origin = self.origin_of(offset, there);
        }
        Ok(there)
    }

    /// Writes SQLite's bytes.
    ///
    /// # Errors
    /// The store, or bytes at a place where SQLite writes none.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.origin = None;
        let (mut offset, mut data) = (offset, data);
        if offset == 0
            && let Some((header, rest)) = data.split_first_chunk::<HEADER_BYTES>()
        {
            // So SQLite ends a transaction in journal_mode=PERSIST.
            if *header == [0; HEADER_BYTES] {
                return self.invalidate();
            }
            self.begin(header)?;
            (offset, data) = (HEADER_BYTES as u64, rest);
        }
        self.own()?;

        while !data.is_empty() {
            let done = match self.next_header(offset, data) {
                Some(header) => {
                    self.begin_segment(offset, &header);
                    HEADER_BYTES
                }
                None => self.write_part(offset, data)?,
            };
            (offset, data) = (offset + done as u64, &data[done..]);
        }
        Ok(())
    }

    /// Cuts the journal off; 0 invalidates it. A journal does not become longer by this.
    ///
    /// # Errors
    /// The store.
    pub fn truncate(&mut self, size: u64) -> Result<(), StoreError> {
        self.origin = None;
        if size == 0 {
            return self.invalidate();
        }
        self.own()?;
        while self.segments.last().is_some_and(|last| last.offset >= size) {
            self.drop_segment()?;
        }
        if self.end() <= size {
            return Ok(());
        }

        // What is left of a record that is cut in two is a tail.
        let last = self.segments.len() - 1;
        let part = self.segments[last].part(size);
        let rest = match part {
            Part::Record(index, bytes) => {
                let image = self.image(last, index)?;
                self.segments[last].record(index, &image)[..bytes].to_vec()
            }
            _ => Vec::new(),
        };
        let segment = &mut self.segments[last];
        match part {
            Part::Behind => segment.cut_tail(size),
            Part::Header(_) => segment.cut_records(0, Vec::new()),
            Part::Record(index, _) => segment.cut_records(index, rest),
        }
        let records = segment.entries.len();
        // Images of records that are gone must not be handed over later.
        self.pending
            .retain(|&(segment, index), _| segment < last || index < records);
        Ok(())
    }

    /// Its size in SQLite's bytes; 0 if there is none.
    ///
    /// # Errors
    /// The store.
    pub fn size(&mut self) -> Result<u64, StoreError> {
        self.know(true)?;
        if self.standing == Standing::Unknown {
            self.load()?;
        }
        Ok(self.end())
    }

    /// Whether there is one. At most one page is read.
    ///
    /// # Errors
    /// The store.
    pub fn exists(&mut self) -> Result<bool, StoreError> {
        self.know(true)?;
        Ok(self.standing == Standing::Owned || self.first.is_some())
    }

    /// Hands everything to the store before these bytes of the database are overwritten, if that is
    /// needed: if metadata page 0 is not there yet, or if it does not count their images yet. So a
    /// transaction that spills the cache does not write its metadata once a page.
    ///
    /// # Errors
    /// The store.
    pub fn flush_before(&mut self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let is_needed = self.segments.first().is_some_and(|first| !first.is_stored)
            || self
                .segments
                .iter()
                .any(|segment| segment.has_unstored_image_of(offset, bytes));
        if is_needed { self.flush() } else { Ok(()) }
    }

    /// Hands everything to the store: images, then metadata. It must be called before the database
    /// is cut off.
    ///
    /// # Errors
    /// The store.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.write_pending()?;
        // Page 0 of segment 0 comes last: all that it promises is there then, if the process is
        // killed.
        for index in (0..self.segments.len()).rev() {
            self.write_metadata(index)?;
        }
        Ok(())
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// The store.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        if self.unsynced {
            self.store.sync(self.file)?;
            self.unsynced = false;
        }
        self.ever_synced = true;
        self.segments.iter_mut().for_each(Segment::note_sync);
        Ok(())
    }

    /// Ends it: 1. metadata page 0 is deallocated  2. a sync, unless the transaction never had one.
    ///
    /// # Errors
    /// The store.
    pub fn invalidate(&mut self) -> Result<(), StoreError> {
        self.origin = None;
        let was_owned = self.standing == Standing::Owned;
        let is_stored = self.segments.first().is_some_and(|first| first.is_stored);
        // Of another connection's journal nobody knows whether it was synced: it might come back
        // after a cut.
        let durably = !was_owned || self.ever_synced;
        self.forget();
        if was_owned && !is_stored {
            return Ok(()); // There was none when it began.
        }

        self.store.discard(self.file, 0, PAGE as u64)?;
        self.counters.invalidations += 1;
        self.unsynced = true;
        if durably {
            self.store.sync(self.file)?;
            self.unsynced = false;
        }
        Ok(())
    }

    fn begin(&mut self, header: &Header) -> Result<(), StoreError> {
        // Whatever is left of another one must be gone before its slots are used.
        if self.standing == Standing::Owned || self.exists()? {
            self.invalidate()?;
        }
        self.segments = vec![Segment::new(*header, JournalGeometry::of(header), nonce())];
        self.pending.clear();
        self.standing = Standing::Owned;
        self.ever_synced = false;
        Ok(())
    }

    /// Where SQLite has the end.
    fn end(&self) -> u64 {
        self.segments.last().map_or(0, Segment::end)
    }

    /// Takes the last segment away, from the store too: another one may come to the same place.
    fn drop_segment(&mut self) -> Result<(), StoreError> {
        let Some(last) = self.segments.pop() else {
            return Ok(());
        };
        let index = self.segments.len();
        self.pending.retain(|&(segment, _), _| segment < index);
        if last.is_stored {
            self.store.discard(self.file, last.at, PAGE as u64)?;
            self.unsynced = true;
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.standing = Standing::Unknown;
        self.segments.clear();
        self.pending.clear();
        self.first = None;
    }
}

/// A number that no other transaction has had: keys that the system chose at random, and the time,
/// since a child of `fork` has the same keys.
fn nonce() -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    hasher.write_u128(time.as_nanos());
    hasher.write_u32(std::process::id());
    hasher.finish()
}
