//! The database file: pages as SQLite has them, shared with the log or the journal where they are
//! the same.
//!
//! Invariants: shares that were gathered are done before the file is looked at or changed in
//! another way. Pages that were gathered are written before a byte of theirs is read, before the
//! file's size is asked for or changed, before anything is shared with it, and before its sync. A
//! page that carries a frame's stamp is read as SQLite wrote it. In a volume the file's end is
//! open: after a crash of the machine it may be longer than the database, whose own header says how
//! long that is; a file without a first page is an empty database. An ordinary file is as long as
//! it is: zeroes there are a database that was damaged.
//!
//! # Pages that are written later than SQLite wrote them
//!
//! SQLite changes a database by `write` under its EXCLUSIVE lock, when the journal has the old
//! pages. What it wrote is gathered until SQLite asks for a sync of the database (it says so,
//! `SQLITE_FCNTL_SYNC`, even if `synchronous` is OFF and it then makes none), closes or ends the
//! journal, or gives a lock back.
//! 1. *The process is killed before.* The journal is whole and in force: SQLite hands over the
//!    pages before it ends it. The next one who opens the database takes the transaction back, from
//!    pages of which some, or none, had changed.
//! 2. *Power fails.* As if the device had lost writes that were not synced, which it may.
//! 3. *It fails.* What was gathered is dropped, and SQLite gets the error of that sync, read or
//!    unlock; it takes the transaction back by the journal, which has an image of each page that
//!    was written.
//! 4. *Others look.* They cannot: the lock is given back afterwards.
//! 5. *The journal takes images meanwhile* (SQLite's cache spilled). It compares each with the
//!    store's page before it shares that, so an image is right whichever of the two pages the store
//!    has.
//!
//! In a checkpoint nothing is gathered but shares.
//!
//! Absent: which page was read last (`connection`).

use crate::connection::Seen;
use crate::mark::Mark;
use crate::pending::Pending;
use crate::twins::{PlaceOf, Twins};
use remap_ssd_store::{FileId, Share, Store, StoreError};
use std::sync::Arc;

/// Bytes of a page of the store.
const PAGE: u64 = 4096;
/// Shares that are gathered at most.
const SHARES_MAX: usize = 4096;
/// Where the header says how many bytes of each page are not SQLite's.
const RESERVED_AT: u64 = 20;

/// Pages that are perhaps elsewhere and that are gathered at most; their bytes are kept.
const GUESSES_MAX: usize = 256;

/// What was done to a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseCounters {
    /// SQLite's pages that were shared with log or journal.
    pub pages_shared: u64,
    /// Pages that were shared with another database: by a backup, say.
    pub pages_shared_with_others: u64,
    /// Pages that had to be written.
    pub pages_written: u64,
    /// Of these, pages written in a checkpoint.
    pub pages_written_in_checkpoints: u64,
}

/// A page that is perhaps in another file, and what it must be.
struct Guess {
    share: Share,
    bytes: Vec<u8>,
}

/// The file of a database.
pub(crate) struct Database {
    store: Arc<dyn Store>,
    file: FileId,
    mark: Mark,
    stamps: bool,
    /// Between SQLite's notes that a checkpoint begins and that it is done.
    checkpointing: bool,
    shares: Vec<Share>,
    /// Pages that are written later.
    pending: Pending,
    /// Pages that another file of the store had when it was last read.
    guesses: Vec<Guess>,
    twins: Arc<Twins>,
    /// The first page is known not to be blank, or it does not matter.
    begun: bool,
    counters: DatabaseCounters,
}

impl Database {
    pub fn open(store: Arc<dyn Store>, file: FileId, mark: Mark, twins: Arc<Twins>) -> Self {
        let is_in_volume = store.identity().is_some();
        Self {
            store,
            file,
            mark,
            stamps: true,
            checkpointing: false,
            shares: Vec::new(),
            pending: Pending::default(),
            guesses: Vec::new(),
            twins,
            begun: !is_in_volume,
            counters: DatabaseCounters::default(),
        }
    }

    pub fn file(&self) -> FileId {
        self.file
    }

    pub fn set_stamps(&mut self, allowed: bool) {
        self.stamps = allowed;
    }

    pub fn set_checkpointing(&mut self, checkpointing: bool) {
        self.checkpointing = checkpointing;
    }

    pub fn counters(&self) -> DatabaseCounters {
        self.counters
    }

    /// Bytes at the end of each page that SQLite leaves alone; `None` if there is no database yet.
    pub fn reserved_bytes(&mut self) -> Result<Option<usize>, StoreError> {
        self.flush()?;
        let mut byte = [0];
        let read = self.store.read(self.file, RESERVED_AT, &mut byte)?;
        Ok((read == 1).then_some(byte[0].into()))
    }

    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.flush_shared()?;
        // Pages that wait may go on waiting, unless this read is about them.
        if self.pending.meets(offset, into.len() as u64) {
            self.flush_pending()?;
        }
        let read = self.store.read(self.file, offset, into)?;
        into[read..].fill(0);

        // SQLite reads pages, and a few bytes of the header. What is read of a header has no page's
        // end in it.
        let is_page = into.len() as u64 >= PAGE && offset.is_multiple_of(into.len() as u64);
        if is_page && read == into.len() {
            if self.stamps {
                self.mark.strip(into);
            }
            self.twins.note(
                into,
                PlaceOf {
                    file: self.file,
                    offset,
                },
            );
        }
        Ok(read)
    }

    pub fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        seen: Option<&Seen>,
    ) -> Result<(), StoreError> {
        let bytes = data.len() as u64;
        let whole = bytes >= PAGE && bytes.is_multiple_of(PAGE) && offset.is_multiple_of(PAGE);
        let same = seen.filter(|seen| whole && seen.bytes == data);
        if let Some(seen) = same {
            // One kind is gathered at a time, so that pages reach the store in the order of
            // SQLite's writes.
            self.flush_guesses()?;
            self.flush_pending()?;
            let (from, from_offset) = (seen.file, seen.offset);
            self.shares.push(Share {
                from,
                from_offset,
                to: self.file,
                to_offset: offset,
                bytes,
            });
            self.counters.pages_shared += 1;
            return if self.shares.len() >= SHARES_MAX {
                self.flush()
            } else {
                Ok(())
            };
        }
        self.flush_shares()?;

        let here = PlaceOf {
            file: self.file,
            offset,
        };
        if whole && let Some(twin) = self.twin(data, here) {
            self.flush_pending()?;
            let share = Share {
                from: twin.file,
                from_offset: twin.offset,
                to: self.file,
                to_offset: offset,
                bytes,
            };
            self.guesses.push(Guess {
                share,
                bytes: data.to_vec(),
            });
            return if self.guesses.len() >= GUESSES_MAX {
                self.flush()
            } else {
                Ok(())
            };
        }
        self.flush_guesses()?;

        self.counters.pages_written += 1;
        self.counters.pages_written_in_checkpoints += u64::from(self.checkpointing);
        // During a checkpoint others may read the database, so nothing waits then; nor does a part
        // of a page.
        if !whole || self.checkpointing || !self.pending.has_room_for(offset, data) {
            self.flush_pending()?;
            return self.store.write(self.file, offset, data);
        }
        self.pending.put(offset, data);
        if self.pending.is_full() {
            self.flush_pending()
        } else {
            Ok(())
        }
    }

    /// Where another file has this page. None once the store had to copy instead of sharing: trying
    /// costs a read, and would save nothing.
    fn twin(&self, page: &[u8], here: PlaceOf) -> Option<PlaceOf> {
        let twin = self.twins.find(page, here)?;
        self.store
            .statistics()
            .copied_because
            .is_none()
            .then_some(twin)
    }

    pub fn truncate(&mut self, size: u64) -> Result<(), StoreError> {
        self.flush()?;
        self.store.set_size(self.file, size)
    }

    pub fn size(&mut self) -> Result<u64, StoreError> {
        self.flush()?;
        let size = self.store.size(self.file)?;
        if size == 0 || self.begun {
            // SQLite's own VFS takes one byte for none: it writes one into an empty file on some
            // systems.
            return Ok(if size == 1 { 0 } else { size });
        }
        // Space that was claimed by a database whose first page never came, because of a crash.
        let mut first = [0; PAGE as usize];
        let read = self.store.read(self.file, 0, &mut first)?;
        self.begun = first[..read].iter().any(|byte| *byte != 0);
        Ok(if self.begun { size } else { 0 })
    }

    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.store.sync(self.file)
    }

    /// Does all that was gathered.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.flush_shared()?;
        self.flush_pending()
    }

    /// Does the shares that were gathered. Of these and of pages that are written later there is
    /// one kind at a time.
    pub fn flush_shared(&mut self) -> Result<(), StoreError> {
        self.flush_shares()?;
        self.flush_guesses()
    }

    fn flush_pending(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            Ok(())
        } else {
            self.pending.hand_over(self.store.as_ref(), self.file)
        }
    }

    /// Shares what was in another file when it was last read, and writes what is not there any
    /// more. Nobody looks before the comparison is done: the database is locked for us, and what is
    /// uncommitted is undone after a crash.
    fn flush_guesses(&mut self) -> Result<(), StoreError> {
        if self.guesses.is_empty() {
            return Ok(());
        }
        let guesses = std::mem::take(&mut self.guesses);
        let shares: Vec<Share> = guesses.iter().map(|guess| guess.share).collect();
        // If it fails, any part of it may be done; the comparison below finds what is not.
        let shared = self.store.share_all(&shares).is_ok();

        let mut page = Vec::new();
        for Guess { share, bytes } in &guesses {
            page.resize(bytes.len(), 0);
            let is_there =
                shared && self.store.read(self.file, share.to_offset, &mut page)? == bytes.len();
            if is_there && self.stamps {
                self.mark.strip(&mut page);
            }
            if is_there && page == *bytes {
                self.counters.pages_shared_with_others += 1;
            } else {
                self.counters.pages_written += 1;
                self.store.write(self.file, share.to_offset, bytes)?;
            }
        }
        Ok(())
    }

    fn flush_shares(&mut self) -> Result<(), StoreError> {
        if self.shares.is_empty() {
            return Ok(());
        }
        let done = self.store.share_all(&self.shares);
        // If it failed SQLite is told so, and starts again from what log or journal say.
        self.shares.clear();
        done
    }
}
