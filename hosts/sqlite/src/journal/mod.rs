//! SQLite's rollback journal, in which old pages are shared with the database instead of being
//! written.
//!
//! SQLite reads and writes the bytes of [its
//! format](https://sqlite.org/fileformat2.html#the_rollback_journal): headers, each with its
//! records, and the name of a super-journal. The store has an image of each page in a slot of its
//! own, which the device shares with the database without programming, and a metadata page with
//! everything else (`layout.rs`). For pages below 4 KiB the slots hold SQLite's bytes unchanged:
//! written, but checked like images.
//!
//! Invariants, and why no cut and no killed process puts an old or a wrong page into a database:
//!
//! 1. *Nothing is valid without its check.* Metadata page 0 has a checksum; each record has a check
//!    of its whole image, mixed with the transaction's random nonce, the record's place, its page
//!    number and SQLite's checksum. So leftovers of an earlier transaction in slots and metadata
//!    pages are never valid. At opening the journal ends before the first invalid record (SQLite's
//!    own checksum covers every 200th byte only).
//! 2. *No flush between images and metadata* is needed because of 1. Any subset of them may be
//!    there before `sync` returns: the journal then ends early or there is none, and the database
//!    has not been changed, since SQLite changes it after `sync`. A killed process leaves its
//!    writes in order: images, further metadata, metadata page 0.
//! 3. *A second sync of a transaction* (SQLite's cache spilled) rewrites metadata pages. Entries
//!    that were durable are the same in both versions and their images are not touched, so with any
//!    mix of old and new pages, all records of the first sync are valid. Page 0 has the new total
//!    of records, or the old one. (A slot of small pages that was not full is rewritten with more
//!    bytes appended: the new page 0 also records the part that was durable.) *Metadata later than
//!    the database*: a page of the database may be overwritten while metadata of other pages is not
//!    in the store. A killed process then leaves the images of all pages that it has overwritten;
//!    the missing ones are images of pages that are unchanged.
//! 4. *Segments* follow each other. One is valid if it has the nonce and the next number, and if it
//!    starts where the previous one ends, for SQLite and in the store. An older version of the
//!    previous one ends elsewhere: then the journal ends there. Its later records were not synced,
//!    since a sync covers all segments.
//! 5. *Invalidation* is one page: metadata page 0 is deallocated, then synced. Cut before the end:
//!    the whole journal is there, or none of it; SQLite rolls the transaction back, or it is
//!    committed. The call returns after the sync, so that a committed transaction stays so, and no
//!    slot is reused before, so that a journal that reappears is complete. `write` of a new header
//!    first invalidates any existing journal. A transaction that was never synced (synchronous=OFF)
//!    is invalidated without a sync: it has no guarantee for a power cut. If only the process is
//!    killed, the deallocation was sent or not, and a later connection finds no journal or all of
//!    it. In journal_mode=DELETE SQLite closes the journal first: its owner leaves the nonce
//!    (`NeverSynced`), and the deletion trusts it only if metadata page 0 has the same one. A nonce
//!    that is missing or of another transaction costs a sync.
//!
//! *Cached state.* A connection that has written its header in this transaction owns the journal:
//! SQLite's RESERVED lock excludes other writers until the journal is invalidated, and its
//! EXCLUSIVE lock readers, so its cached state is valid. Other connections cache little: `size`,
//! `exists` and reads of the first header reread metadata page 0. Reads after the first header use
//! the result of that, for SQLite makes them after one of these under the same EXCLUSIVE lock
//! (playback), or in a journal whose transaction cannot end in between (a child of a
//! super-journal).
//!
//! Considered and rejected: *an image in the journal whose database page changes later*: the device
//! keeps the old page for the slot. *Sizes of files*: the store's file never shrinks, so its size
//! has no meaning. *Plain bytes for small pages*: after a crash their end would be unknown, so that
//! a super-journal's name is not found, and a torn record can have SQLite's checksum.
//!
//! Limit: a process killed between the two steps of 5 leaves an invalidation that is not durable, and
//! so does a transaction at synchronous=OFF, after which SQLite promises nothing if the power fails.
//! If the next transaction uses slots and the power fails before its first sync, the old journal
//! can reappear in part. SQLite's own PERSIST mode has the same limit.
//!
//! Absent: locks, and the order of SQLite's calls (`vfs`).

mod bytes;
mod images;
mod layout;
mod opening;
mod segment;

use crate::mark::Mark;
use layout::{HEADER_BYTES, Head, Header, JournalGeometry, PAGE, Page};
use remap_ssd_store::{FileId, Store, StoreError};
use segment::{Part, Segment};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Counters of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalCounters {
    /// Images shared with the database.
    pub images_copied: u64,
    /// Images written because the database's page has other bytes.
    pub images_not_equal: u64,
    /// Images written because there is no page to share: no database, no page of this number, or
    /// slots that hold parts of several small pages.
    pub images_not_shareable: u64,
    /// Metadata pages written, including those of tails.
    pub metadata_pages: u64,
    /// Journals ended by deallocating their first metadata page.
    pub invalidations: u64,
    /// Journals that ended early at opening because an image did not match its check.
    pub images_bad: u64,
}

/// Validity of the cached state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unknown,
    /// As read through metadata page 0 at the time.
    Opened,
    /// All of it is valid: this connection writes the journal.
    Owned,
}

/// Nonce of the last journal that its owner in this process closed and never synced; 0 if none. It
/// is of one transaction: only that transaction's journal has it, hot or not.
#[derive(Debug, Default)]
pub(crate) struct NeverSynced(AtomicU64);

/// The rollback journal of a database.
pub(crate) struct Journal {
    store: Arc<dyn Store>,
    file: FileId,
    mark: Mark,
    database: Option<FileId>,
    stamps: bool,
    standing: Standing,
    segments: Vec<Segment>,
    /// Metadata page 0 when it was read, if valid.
    first: Option<Box<Page>>,
    /// Images not yet in the store, by segment and record.
    pending: BTreeMap<(usize, usize), Vec<u8>>,
    /// The store has changed since the last sync.
    unsynced: bool,
    /// This transaction was synced, or that is unknown.
    ever_synced: bool,
    origin: Option<u64>,
    counters: JournalCounters,
}

/// Magic of stock SQLite's journals (file format, §3).
const STOCK_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Returns true if a file has a journal, of this crate or imported from stock SQLite.
pub(crate) fn is_journal(store: &dyn Store, file: FileId) -> Result<bool, StoreError> {
    let mut page: Box<Page> = Box::new([0; PAGE]);
    let read = store.read(file, 0, &mut page[..])?;
    page[read..].fill(0);
    let is_ours = layout::Head::get(&page).is_some_and(|head| head.segment == 0);
    Ok(is_ours || page.starts_with(&STOCK_MAGIC))
}

impl Journal {
    /// Opens the journal in a file of a store. Nothing is read yet. Without the database nothing
    /// can be shared, but a journal can be read.
    pub(crate) fn open(
        store: Arc<dyn Store>,
        file: FileId,
        mark: Mark,
        database: Option<FileId>,
    ) -> Self {
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

    /// Sets whether pages of the database may carry the header of a frame; true at first.
    pub(crate) fn set_stamps(&mut self, allowed: bool) {
        self.stamps = allowed;
    }

    /// Offset of the image in the store's file, if the last `read` was exactly one image.
    pub(crate) fn origin(&self) -> Option<u64> {
        self.origin
    }

    /// Counters since it was opened.
    pub(crate) fn counters(&self) -> JournalCounters {
        self.counters
    }

    /// Reads SQLite's bytes, and zero-fills the rest. Returns the number of bytes read.
    ///
    /// # Errors
    /// The store, or an image that was valid when the journal was opened.
    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.origin = None;
        into.fill(0);
        self.know(offset < HEADER_BYTES as u64)?;
        // SQLite reads the first byte to see if there is anything to roll back: no image is read
        // for that.
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
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.origin = None;
        let (mut offset, mut data) = (offset, data);
        if offset == 0
            && let Some((header, rest)) = data.split_first_chunk::<HEADER_BYTES>()
        {
            // SQLite ends a transaction this way in journal_mode=PERSIST.
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

    /// Truncates the journal; size 0 invalidates it. Never extends it.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn truncate(&mut self, size: u64) -> Result<(), StoreError> {
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

        // The remainder of a partially truncated record becomes a tail.
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
        // Images of truncated records must not be written later.
        self.pending
            .retain(|&(segment, index), _| segment < last || index < records);
        Ok(())
    }

    /// Its size in SQLite's format; 0 if there is none.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn size(&mut self) -> Result<u64, StoreError> {
        self.know(true)?;
        if self.standing == Standing::Unknown {
            self.load()?;
        }
        Ok(self.end())
    }

    /// Returns true if there is one. Reads at most one page.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn exists(&mut self) -> Result<bool, StoreError> {
        self.know(true)?;
        Ok(self.standing == Standing::Owned || self.first.is_some())
    }

    /// Writes everything to the store before these bytes of the database are overwritten, if
    /// necessary: if metadata page 0 is not yet there, or does not yet count their images. So a
    /// transaction that spills the cache does not write its metadata once per page.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn flush_before(&mut self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let is_needed = self.segments.first().is_some_and(|first| !first.is_stored)
            || self
                .segments
                .iter()
                .any(|segment| segment.has_unstored_image_of(offset, bytes));
        if is_needed { self.flush() } else { Ok(()) }
    }

    /// Writes everything to the store: images, then metadata. Must be called before the database is
    /// truncated.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        self.write_pending()?;
        // Page 0 of segment 0 comes last: if the process is killed, everything that it refers to is
        // there.
        for index in (0..self.segments.len()).rev() {
            self.write_metadata(index)?;
        }
        Ok(())
    }

    /// Makes the journal durable.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        if self.unsynced {
            self.store.sync(self.file)?;
            self.unsynced = false;
        }
        self.ever_synced = true;
        self.segments.iter_mut().for_each(Segment::note_sync);
        Ok(())
    }

    /// Ends the journal: 1. metadata page 0 is deallocated  2. a sync, unless the transaction never
    /// had one.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn invalidate(&mut self) -> Result<(), StoreError> {
        self.origin = None;
        let was_owned = self.standing == Standing::Owned;
        let is_stored = self.segments.first().is_some_and(|first| first.is_stored);
        // Another connection's journal may have been synced: it might reappear after a cut.
        let durably = !was_owned || self.ever_synced;
        self.forget();
        if was_owned && !is_stored {
            return Ok(()); // There was none when it began.
        }

        self.discard_first()?;
        if durably {
            self.store.sync(self.file)?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Leaves the nonce of an own transaction that was never synced, before the journal is closed.
    pub(crate) fn leave(&self, left: &NeverSynced) {
        if self.standing == Standing::Owned
            && !self.ever_synced
            && let Some(first) = self.segments.first()
        {
            left.0.store(first.nonce, Ordering::Relaxed);
        }
    }

    /// Ends a closed journal: as `invalidate`, but without the sync if its owner left its nonce.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn delete(&mut self, left: &NeverSynced) -> Result<(), StoreError> {
        self.know(true)?;
        let nonce = self
            .first
            .as_deref()
            .and_then(Head::get)
            .map(|head| head.nonce);
        if nonce.is_none_or(|nonce| left.0.swap(0, Ordering::Relaxed) != nonce) {
            return self.invalidate();
        }
        self.forget();
        self.discard_first()
    }

    /// Deallocates metadata page 0.
    fn discard_first(&mut self) -> Result<(), StoreError> {
        self.store.discard(self.file, 0, PAGE as u64)?;
        self.counters.invalidations += 1;
        self.unsynced = true;
        Ok(())
    }

    fn begin(&mut self, header: &Header) -> Result<(), StoreError> {
        // An earlier journal must be gone before its slots are reused.
        if self.standing == Standing::Owned || self.exists()? {
            self.invalidate()?;
        }
        self.segments = vec![Segment::new(*header, JournalGeometry::of(header), nonce())];
        self.pending.clear();
        self.standing = Standing::Owned;
        self.ever_synced = false;
        Ok(())
    }

    /// The end in SQLite's format.
    fn end(&self) -> u64 {
        self.segments.last().map_or(0, Segment::end)
    }

    /// Removes the last segment, also from the store: another one may get the same place.
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

/// A number that no other transaction has had: from random keys of the system, and the time, since
/// a child of `fork` has the same keys.
fn nonce() -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    hasher.write_u128(time.as_nanos());
    hasher.write_u32(std::process::id());
    hasher.finish()
}
