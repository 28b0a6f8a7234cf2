//! A connection: the database with its log and its journal, and the pages that a write can share
//! between them.
//!
//! ```text
//! checkpoint   read a frame of the log,      write it to the database   ─► the database shares the frame's page
//! rollback     read an image of the journal, write it to the database   ─► the database shares the image's page
//! commit       journal: old images shared from the database, then metadata, then the database is overwritten
//! ```
//!
//! SQLite does all of this itself, by reading and writing; it does not say which write belongs to
//! which read. But it writes the page it has just read. So the last page read from log or journal
//! is kept, and if the next write to the database has exactly these bytes, it is a share.
//!
//! Invariants: the last page read is forgotten at any other write to one of the three files, since
//! its source may be overwritten then. Shares are gathered and done together, before other
//! connections could miss them: at the end of a checkpoint, at a sync, before an unlock, and before
//! any read, size or other write of the database. The image of a page, and the metadata that counts
//! it, are in the store before the page is overwritten.
//!
//! Absent: locks, names, and C.

use crate::database::{Database, PageRead};
use crate::journal::{Journal, JournalCounters, NeverSynced};
use crate::mark::Mark;
use crate::page_places::{PagePlace, PagePlaces};
use crate::statistics;
use crate::wal::Wal;
use remap_ssd_store::{Create, FileId, OpenOptions, Store, StoreError};
use std::sync::Arc;

/// The file that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The database file.
    Database,
    /// The write-ahead log of a database.
    Wal,
    /// The rollback journal of a database.
    Journal,
    /// A file stored unchanged: a super-journal.
    Plain(FileId),
}

/// An open database, with its log and journal.
pub(crate) struct Connection {
    store: Arc<dyn Store>,
    page_places: Arc<PagePlaces>,
    never_synced: Arc<NeverSynced>,
    mark: Mark,
    stamps: bool,
    database: Option<Database>,
    wal: Option<(FileId, Wal)>,
    /// The name of a log that has no file yet: its first frame creates it.
    wal_without_file: Option<String>,
    journal: Option<(FileId, Journal)>,
    /// Counters of journals already closed.
    journals_before: JournalCounters,
    last_read: Option<PageRead>,
    /// A deferred error, from a call where SQLite takes no result.
    wal_error: Option<StoreError>,
    /// Why the last checkpoint's shares failed; SQLite takes no result there either.
    checkpoint_error: Option<StoreError>,
}

/// The mark of stores whose files can be read without this VFS. It counts only in bytes that SQLite
/// has reserved for it.
const MARK_OF_FILES: [u8; 16] = *b"remap-ssd\0files\0";

impl Connection {
    /// Creates a connection without files. All connections to a store share its `page_places` and
    /// `never_synced`.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        page_places: Arc<PagePlaces>,
        never_synced: Arc<NeverSynced>,
    ) -> Self {
        let identity = store.identity();
        let mark = Mark::of(&identity.unwrap_or(MARK_OF_FILES));
        let stamps = identity.is_some();
        let journals_before = JournalCounters::default();

        Self {
            store,
            page_places,
            never_synced,
            mark,
            stamps,
            database: None,
            wal: None,
            wal_without_file: None,
            journal: None,
            journals_before,
            last_read: None,
            wal_error: None,
            checkpoint_error: None,
        }
    }

    /// Attaches the database's file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open_database(&mut self, file: FileId) -> Result<(), StoreError> {
        self.database = Some(Database::open(
            Arc::clone(&self.store),
            file,
            self.mark,
            Arc::clone(&self.page_places),
        ));
        self.learn_stamps()
    }

    /// Attaches the log's file.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn open_wal(&mut self, file: FileId) -> Result<(), StoreError> {
        self.learn_stamps()?;
        let mut wal = Wal::open(Arc::clone(&self.store), file, self.mark);
        wal.set_stamps(self.stamps);
        self.wal = Some((file, wal));
        Ok(())
    }

    /// Attaches an empty log that has no file yet. Its first write creates the file; until then, each use checks whether another connection has
    /// created it. The file is not deleted in between: for that, SQLite locks the database
    /// exclusively against all connections that have the log open.
    pub(crate) fn open_wal_without_file(&mut self, name: &str) {
        self.wal_without_file = Some(name.into());
    }

    /// Opens the missing log file if it exists by now, or creates it. The new file is durable
    /// before its first frame is written, as if it had been created when the log was opened.
    fn find_wal(&mut self, create: Create) -> Result<(), StoreError> {
        let Some(name) = &self.wal_without_file else {
            return Ok(());
        };
        let options = OpenOptions {
            create,
            open_end: true,
            written_next: true,
        };
        match self.store.open(name, options) {
            Ok(file) => {
                self.wal_without_file = None;
                self.open_wal(file)
            }
            Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Attaches the journal's file.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn open_journal(&mut self, file: FileId) -> Result<(), StoreError> {
        self.learn_stamps()?;
        let database = self.database.as_ref().map(Database::file);
        let mut journal = Journal::open(Arc::clone(&self.store), file, self.mark, database);
        journal.set_stamps(self.stamps);
        self.journal = Some((file, journal));
        Ok(())
    }

    /// In files that can be read without this VFS, stamps are used only where SQLite has reserved
    /// the bytes: stock SQLite ignores those.
    fn learn_stamps(&mut self) -> Result<(), StoreError> {
        if self.store.identity().is_some() {
            return Ok(());
        }
        let Some(database) = &mut self.database else {
            return Ok(());
        };
        self.stamps = database
            .reserved_bytes()?
            .is_some_and(|bytes| bytes >= crate::mark::STAMP_BYTES);
        database.set_stamps(self.stamps);
        Ok(())
    }

    /// Reads up to the end of a file, and zero-fills the rest. Returns the number of bytes read.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn read(
        &mut self,
        role: Role,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, StoreError> {
        let (file, read, origin) = match role {
            Role::Database => {
                let database = opened(self.database.as_mut())?;
                return database.read(offset, into);
            }

            Role::Plain(file) => {
                let read = self.store.read(file, offset, into)?;
                // SQLite's rule for `xRead`: bytes after the end are zeroes.
                into[read..].fill(0);
                return Ok(read);
            }

            Role::Wal => {
                if offset == 0 {
                    // A recovery begins. Stock SQLite may have changed the database's reserved
                    // bytes since.
                    self.learn_stamps()?;
                    self.tell_stamps();
                }
                self.find_wal(Create::Never)?;
                if self.wal_without_file.is_some() {
                    into.fill(0);
                    return Ok(0);
                }
                let (file, wal) = opened(self.wal.as_mut())?;
                let read = wal.read(offset, into)?;
                (*file, read, wal.origin())
            }
            Role::Journal => {
                let (file, journal) = opened(self.journal.as_mut())?;
                let read = journal.read(offset, into)?;
                (*file, read, journal.origin())
            }
        };

        if let Some(offset) = origin {
            self.page_places.note(into, PagePlace { file, offset });
            // The buffer is reused: a checkpoint reads thousands of pages in a row.
            let mut bytes = self
                .last_read
                .take()
                .map(|page| page.bytes)
                .unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(into);
            self.last_read = Some(PageRead {
                file,
                offset,
                bytes,
            });
        }
        Ok(read)
    }

    /// Writes, as a share if possible.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn write(&mut self, role: Role, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        // The last page read counts for the next write only.
        let last_read = self.last_read.take();
        self.refuse_mark(data)?;

        match role {
            Role::Database => {
                if let Some((_, journal)) = &mut self.journal {
                    // The old image, and the metadata that counts it, must be in the store first.
                    journal.flush_before(offset, data.len() as u64)?;
                }
                opened(self.database.as_mut())?.write(offset, data, last_read.as_ref())?;
                // Page 1 has the number of reserved bytes, which may have changed.
                if offset == 0 {
                    self.learn_stamps()?;
                    self.tell_stamps();
                }
                Ok(())
            }

            Role::Wal => {
                deferred(&mut self.wal_error)?;
                // A log that restarts overwrites frames that pending shares name.
                self.flush_database()?;
                self.find_wal(Create::IfAbsent)?;
                opened(self.wal.as_mut())?.1.write(offset, data)
            }

            Role::Journal => {
                // The first header ends a transaction or begins one. Later ones come while pages of
                // the database are pending.
                let is_first = offset == 0;
                self.database.as_mut().map_or(Ok(()), |database| {
                    if is_first {
                        database.flush()
                    } else {
                        database.flush_shared()
                    }
                })?;
                opened(self.journal.as_mut())?.1.write(offset, data)
            }
            Role::Plain(file) => self.store.write(file, offset, data),
        }
    }

    /// Refuses a page that ends in the mark: it would be read back with its end stripped. It cannot
    /// occur by accident.
    fn refuse_mark(&self, page: &[u8]) -> Result<(), StoreError> {
        // Headers, and partial frames and records, are shorter or of other sizes.
        let is_page = page.len() >= 4096 && page.len().is_power_of_two();
        if self.stamps && is_page && self.mark.header(page).is_some() {
            let why = "a page that ends in the mark of its volume cannot be stored";
            return Err(StoreError::Damaged(why.into()));
        }
        Ok(())
    }

    fn tell_stamps(&mut self) {
        if let Some((_, wal)) = &mut self.wal {
            wal.set_stamps(self.stamps);
        }
        if let Some((_, journal)) = &mut self.journal {
            journal.set_stamps(self.stamps);
        }
    }

    /// Truncates or extends a file.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn truncate(&mut self, role: Role, size: u64) -> Result<(), StoreError> {
        self.last_read = None;
        self.flush_database()?;

        match role {
            Role::Database => {
                deferred(&mut self.checkpoint_error)?;
                // Pending images are compared with database pages that are about to go.
                self.flush_journal()?;
                opened(self.database.as_mut())?.truncate(size)
            }
            Role::Wal => {
                self.find_wal(Create::Never)?;
                match self.wal_without_file {
                    Some(_) if size == 0 => Ok(()),
                    _ => opened(self.wal.as_mut())?.1.truncate(size),
                }
            }
            Role::Journal => opened(self.journal.as_mut())?.1.truncate(size),
            Role::Plain(file) => self.store.set_size(file, size),
        }
    }

    /// Makes a file survive a crash of the machine that holds it.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn sync(&mut self, role: Role) -> Result<(), StoreError> {
        match role {
            Role::Database => {
                deferred(&mut self.checkpoint_error)?;
                opened(self.database.as_mut())?.sync()
            }
            Role::Wal => {
                deferred(&mut self.wal_error)?;
                self.find_wal(Create::Never)?;
                match self.wal_without_file {
                    // It has no data yet.
                    Some(_) => Ok(()),
                    None => opened(self.wal.as_mut())?.1.sync(),
                }
            }
            Role::Journal => opened(self.journal.as_mut())?.1.sync(),
            Role::Plain(file) => self.store.sync(file),
        }
    }

    /// The size as SQLite sees it.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn size(&mut self, role: Role) -> Result<u64, StoreError> {
        match role {
            Role::Database => opened(self.database.as_mut())?.size(),
            Role::Wal => {
                self.find_wal(Create::Never)?;
                match self.wal_without_file {
                    Some(_) => Ok(0),
                    None => opened(self.wal.as_mut())?.1.size(),
                }
            }
            Role::Journal => opened(self.journal.as_mut())?.1.size(),
            Role::Plain(file) => self.store.size(file),
        }
    }

    /// SQLite signals the begin or end of a checkpoint. It takes no result at the end: the
    /// following truncate or sync reports the error, or, if there is none, `take_checkpoint_error`.
    ///
    /// # Errors
    /// The store, at the beginning.
    pub(crate) fn checkpoint(&mut self, begins: bool) -> Result<(), StoreError> {
        self.last_read = None;
        if let Some(database) = &mut self.database {
            database.set_checkpointing(begins);
        }
        if let Some((_, wal)) = &mut self.wal {
            wal.set_checkpointing(begins);
        }
        let done = self.flush_database();
        if begins {
            self.checkpoint_error = None;
            return done;
        }
        self.checkpoint_error = done.err();
        Ok(())
    }

    /// Returns true if a checkpoint has ended and its shares failed, contrary to SQLite's belief.
    pub(crate) fn take_checkpoint_error(&mut self) -> bool {
        self.checkpoint_error.take().is_some()
    }

    /// Does the gathered writes of the database, before other connections may read it.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn flush_database(&mut self) -> Result<(), StoreError> {
        self.database.as_mut().map_or(Ok(()), Database::flush)
    }

    /// Writes the gathered frames of the log to the store, before other connections may read it.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn flush_wal(&mut self) -> Result<(), StoreError> {
        self.wal.as_mut().map_or(Ok(()), |(_, wal)| wal.flush())
    }

    /// Like `flush_wal` where SQLite takes no result: the log's next write or sync reports the
    /// error.
    pub(crate) fn flush_wal_deferring_error(&mut self) {
        if let Err(error) = self.flush_wal() {
            self.wal_error = Some(error);
        }
    }

    fn flush_journal(&mut self) -> Result<(), StoreError> {
        self.journal
            .as_mut()
            .map_or(Ok(()), |(_, journal)| journal.flush())
    }

    /// Closes a file. Closing a log or journal first writes out its gathered data.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn close(&mut self, role: Role) -> Result<(), StoreError> {
        self.last_read = None;
        let (file, flushed) = match role {
            Role::Database => {
                let flushed = self.flush_database();
                (
                    self.database.take().map(|database| database.file()),
                    flushed,
                )
            }
            Role::Wal => {
                let flushed = self.flush_database().and_then(|()| self.flush_wal());
                self.wal_without_file = None;
                (self.wal.take().map(|(file, _)| file), flushed)
            }
            Role::Journal => {
                let flushed = self.flush_database().and_then(|()| self.flush_journal());
                if let (Ok(()), Some((_, journal))) = (&flushed, &self.journal) {
                    journal.leave(&self.never_synced);
                }
                // In most modes a journal lasts for one transaction; counters belong to the
                // connection.
                self.journals_before = self.journals();
                (self.journal.take().map(|(file, _)| file), flushed)
            }
            Role::Plain(file) => (Some(file), Ok(())),
        };

        if let Some(file) = file {
            self.store.close(file);
        }
        flushed
    }

    fn journals(&self) -> JournalCounters {
        let now = self
            .journal
            .as_ref()
            .map(|(_, journal)| journal.counters())
            .unwrap_or_default();
        statistics::sum(&self.journals_before, &now)
    }

    /// Counters so far, as JSON.
    pub(crate) fn statistics(&self) -> serde_json::Value {
        let mut all = statistics::of_store(self.store.as_ref());
        if let Some(database) = &self.database {
            all["database"] = statistics::of_database(&database.counters());
        }
        if let Some((_, wal)) = &self.wal {
            all["wal"] = statistics::of_wal(&wal.counters());
        }
        all["journal"] = statistics::of_journal(&self.journals());
        all
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Closes files that SQLite has not closed: the database that was opened here for a log,
        // when SQLite has that database from another VFS.
        let files = [
            self.database.as_ref().map(Database::file),
            self.wal.as_ref().map(|(file, _)| *file),
            self.journal.as_ref().map(|(file, _)| *file),
        ];
        files
            .into_iter()
            .flatten()
            .for_each(|file| self.store.close(file));
    }
}

/// Reports a deferred error.
fn deferred(later: &mut Option<StoreError>) -> Result<(), StoreError> {
    later.take().map_or(Ok(()), Err)
}

/// SQLite closes a file once, and does not use it afterwards.
fn opened<T>(file: Option<&mut T>) -> Result<&mut T, StoreError> {
    file.ok_or(StoreError::Gone)
}
