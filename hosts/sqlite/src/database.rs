//! The database file: pages as SQLite wrote them, shared with the log or the journal where equal.
//!
//! Invariants: gathered shares are done before the file is read or changed in another way. Gathered
//! pages are written before any of their bytes is read, before the file's size is read or changed,
//! before pages are shared with it, and before its sync. A page that carries a frame's stamp is
//! read as SQLite wrote it. In a volume the file's end is open: after a crash of the machine it may
//! be longer than the database, whose own header has the size; a file without a first page is an
//! empty database. An ordinary file has its exact size: zeroes there are a damaged database.
//!
//! # Pages that reach the store later than SQLite wrote them
//!
//! SQLite changes a database by `write` under its EXCLUSIVE lock, when the journal has the old
//! pages. Written pages are gathered until SQLite announces a sync of the database
//! (`SQLITE_FCNTL_SYNC`, sent even if `synchronous` is OFF and no sync follows), closes or ends the
//! journal, or releases a lock.
//! 1. *The process is killed before.* The journal is complete and valid: pages are handed over
//!    before it ends. The next opening rolls the transaction back, from pages of which some, or
//!    none, had changed.
//! 2. *Power fails.* As if the device had lost writes that were not synced, which it may.
//! 3. *It fails.* The gathered pages are dropped, and SQLite gets the error of that sync, read or
//!    unlock; it rolls the transaction back by the journal, which has an image of each written
//!    page.
//! 4. *Other readers.* There are none: the lock is released afterwards.
//! 5. *The journal takes images in between* (SQLite's cache spilled). It compares each with the
//!    store's page before it shares that, so an image is right whether the store has the old or the
//!    new page.
//!
//! In a checkpoint only shares are gathered.
//!
//! Absent: tracking of the page read last (`connection`).

use crate::mark::Mark;
use crate::page_places::{PagePlace, PagePlaces};
use crate::pending::Pending;
use remap_ssd_store::{FileId, Share, Store, StoreError};
use std::sync::Arc;

/// Bytes of a page of the store.
const PAGE: u64 = 4096;
/// Maximum number of gathered shares.
const SHARES_MAX: usize = 4096;
/// Offset of the number of reserved bytes per page in the header.
const RESERVED_AT: u64 = 20;

/// Maximum number of gathered guesses; their bytes are kept.
const GUESSES_MAX: usize = 256;

/// Counters of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseCounters {
    /// SQLite's pages shared with log or journal.
    pub pages_shared: u64,
    /// Pages shared with another database, for example by a backup.
    pub pages_shared_with_others: u64,
    /// Pages written, since they could not be shared.
    pub pages_written: u64,
    /// Of these, pages written in a checkpoint.
    pub pages_written_in_checkpoints: u64,
}

/// A page read from log or journal, with its place in the store.
pub(crate) struct PageRead {
    pub file: FileId,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// A share with a page that may be in another file, and the bytes it must have.
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
    /// Set from SQLite's signal that a checkpoint begins until the one that it is done.
    checkpointing: bool,
    shares: Vec<Share>,
    /// Pages to be written later.
    pending: Pending,
    /// Shares with pages that another file of the store had when it was last read.
    guesses: Vec<Guess>,
    page_places: Arc<PagePlaces>,
    /// The first page is known not to be blank, or that is irrelevant.
    begun: bool,
    counters: DatabaseCounters,
}

impl Database {
    pub(crate) fn open(
        store: Arc<dyn Store>,
        file: FileId,
        mark: Mark,
        page_places: Arc<PagePlaces>,
    ) -> Self {
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
            page_places,
            begun: !is_in_volume,
            counters: DatabaseCounters::default(),
        }
    }

    pub(crate) fn file(&self) -> FileId {
        self.file
    }

    pub(crate) fn set_stamps(&mut self, allowed: bool) {
        self.stamps = allowed;
    }

    pub(crate) fn set_checkpointing(&mut self, checkpointing: bool) {
        self.checkpointing = checkpointing;
    }

    pub(crate) fn counters(&self) -> DatabaseCounters {
        self.counters
    }

    /// Reserved bytes at the end of each page; `None` if there is no database yet.
    pub(crate) fn reserved_bytes(&mut self) -> Result<Option<usize>, StoreError> {
        self.flush()?;
        let mut byte = [0];
        let read = self.store.read(self.file, RESERVED_AT, &mut byte)?;
        Ok((read == 1).then_some(byte[0].into()))
    }

    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.flush_shared()?;
        // Pending pages stay pending unless this read overlaps them.
        if self.pending.meets(offset, into.len() as u64) {
            self.flush_pending()?;
        }
        let read = self.store.read(self.file, offset, into)?;
        into[read..].fill(0);

        // SQLite reads whole pages, and a few bytes of the header, which include no page's end.
        let is_page = into.len() as u64 >= PAGE && offset.is_multiple_of(into.len() as u64);
        if is_page && read == into.len() {
            if self.stamps {
                self.mark.strip(into);
            }
            self.page_places.note(
                into,
                PagePlace {
                    file: self.file,
                    offset,
                },
            );
        }
        Ok(read)
    }

    pub(crate) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        last_read: Option<&PageRead>,
    ) -> Result<(), StoreError> {
        let bytes = data.len() as u64;
        let whole = bytes >= PAGE && bytes.is_multiple_of(PAGE) && offset.is_multiple_of(PAGE);
        let same = last_read.filter(|page| whole && page.bytes == data);

        // SQLite writes the page that it has read last: a checkpoint or a rollback.
        if let Some(page) = same {
            // Only one kind is gathered at a time, so that pages reach the store in the order of
            // SQLite's writes.
            self.flush_guesses()?;
            self.flush_pending()?;
            let (from, from_offset) = (page.file, page.offset);
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

        let here = PagePlace {
            file: self.file,
            offset,
        };

        // Or a page that was read from any file. Its bytes are kept: that file may have changed when this is done.
        if whole && let Some(twin) = self.other_place(data, here) {
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
        // During a checkpoint other connections may read the database, so nothing is deferred;
        // neither is a partial page.
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

    /// Finds this page in another file. `None` once the store had to copy instead of sharing:
    /// trying costs a read, and would save nothing.
    fn other_place(&self, page: &[u8], here: PagePlace) -> Option<PagePlace> {
        let twin = self.page_places.find(page, here)?;
        self.store
            .statistics()
            .copied_because
            .is_none()
            .then_some(twin)
    }

    pub(crate) fn truncate(&mut self, size: u64) -> Result<(), StoreError> {
        self.flush()?;
        self.store.set_size(self.file, size)
    }

    pub(crate) fn size(&mut self) -> Result<u64, StoreError> {
        self.flush()?;
        let size = self.store.size(self.file)?;
        if size == 0 || self.begun {
            // SQLite's own VFS takes one byte for none: on some systems it writes one into an empty
            // file.
            return Ok(if size == 1 { 0 } else { size });
        }
        // Checks for space claimed by a database whose first page was lost in a crash.
        let mut first = [0; PAGE as usize];
        let read = self.store.read(self.file, 0, &mut first)?;
        self.begun = first[..read].iter().any(|byte| *byte != 0);
        Ok(if self.begun { size } else { 0 })
    }

    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.store.sync(self.file)
    }

    /// Does all gathered writes.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        self.flush_shared()?;
        self.flush_pending()
    }

    /// Does the gathered shares. Either shares, guesses or deferred pages are gathered, not several
    /// kinds at a time.
    pub(crate) fn flush_shared(&mut self) -> Result<(), StoreError> {
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

    /// Shares pages with the files that had them when last read, and writes those that have changed
    /// since. The result is not visible before the comparison is done: the database is locked, and
    /// uncommitted pages are rolled back after a crash.
    fn flush_guesses(&mut self) -> Result<(), StoreError> {
        if self.guesses.is_empty() {
            return Ok(());
        }
        let guesses = std::mem::take(&mut self.guesses);
        let shares: Vec<Share> = guesses.iter().map(|guess| guess.share).collect();
        // If it fails, any part may be done; the comparison below finds the rest.
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
        // On failure SQLite gets the error, and starts again from log or journal.
        self.shares.clear();
        done
    }
}
