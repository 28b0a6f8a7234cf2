//! What host software may do with files, wherever they are.
//!
//! Invariants: every verb takes `&self`; a store orders the calls of its threads by locks of its
//! own. Offsets and sizes are bytes. What was never written reads as zeroes. Several processes may
//! use one store at the same time, and writers of *one* file take turns by means of their own
//! (SQLite's locks): the store keeps files apart from each other, and does not arbitrate within
//! one.
//!
//! Durability: a process may end at any instant, and what it has done stays (on a disk that ends
//! with the process, what it has synced). After a crash of the machine that holds the files, what
//! was synced is there; of what came later, each 4 KiB page is the old or the new one.
//!
//! Absent: a position in a file, directories, permissions.

use crate::{FileHold, StoreError};
use std::path::PathBuf;

/// A file that has been opened. It stays valid until it is closed or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    pub(crate) slot: u32,
    /// Which of all files that have ever been in that slot.
    pub(crate) birth: u64,
}

/// What to do if there is no such file, or one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The file must exist already.
    #[default]
    Never,
    /// It is made unless it exists.
    IfAbsent,
    /// It must not exist yet.
    New,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether it may be made.
    pub create: Create,
    /// If it is made: its size after a crash is not kept, its reader finds the end of the data
    /// itself. A sync that follows appends then writes no metadata. After a crash of the machine
    /// the file is as long as its allocated space; bytes behind the last ones that were written are
    /// zeroes, or what the file itself held there before.
    pub open_end: bool,
}

/// A file, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Name of the file, which no other has.
    pub name: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Pages that are allocated to it.
    pub pages: u64,
    /// Pieces in which they are; 0 where only the operating system knows.
    pub extents: usize,
    /// Its end is found by its reader after a crash.
    pub open_end: bool,
}

/// Bytes for one place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite<'a> {
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Bytes that are written there.
    pub data: &'a [u8],
}

impl FileWrite<'_> {
    /// Where its last byte ends; the greatest number if there is no such place.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.data.len() as u64)
    }
}

/// Bytes that a file gets from another one, or from another place of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The file that has them.
    pub from: FileId,
    /// Offset in the source, in bytes.
    pub from_offset: u64,
    /// The file that gets them.
    pub to: FileId,
    /// Offset in the target, in bytes.
    pub to_offset: u64,
    /// How many. They must be there.
    pub bytes: u64,
}

/// What this process has done to the store so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages that files share with others by calls of `share`.
    pub pages_shared: u64,
    /// Pages that calls of `share` had to write.
    pub pages_copied: u64,
    /// Why the first of these could not be shared.
    pub copied_because: Option<String>,
    /// Pages of files that were written, those of `pages_copied` left out.
    pub pages_written: u64,
    /// Pages that were read first, since only a part of them was written.
    pub pages_read_to_write: u64,
    /// Pages of files that were read from the disk.
    pub pages_read: u64,
    /// Pages of files that were read from memory instead.
    pub pages_found: u64,
    /// Pages of files that were deallocated by `discard`.
    pub pages_discarded: u64,
    /// Pages of metadata that were written.
    pub pages_metadata: u64,
    /// Flushes, those for metadata included.
    pub syncs: u64,
}

impl Statistics {
    /// Notes pages that were not shared.
    pub(crate) fn copied(&mut self, pages: u64, why: impl FnOnce() -> String) {
        self.pages_copied += pages;
        if pages > 0 {
            self.copied_because.get_or_insert_with(why);
        }
    }
}

/// Files of the system by which host software locks a file of a volume, by their inodes; 0: none is
/// meant; `u64::MAX`: it is not there any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockFiles {
    /// The file that carries the locks.
    pub locks: u64,
    /// The file of the memory that is shared.
    pub memory: u64,
}

impl LockFiles {
    /// These and others; `None` if one of them is another file.
    pub(crate) fn with(self, other: Self) -> Option<Self> {
        // Nobody has it: it can only be noted by mistake.
        if [self.locks, self.memory, other.locks, other.memory].contains(&u64::MAX) {
            return None;
        }
        let one = |here: u64, there: u64| match (here, there) {
            (0, file) | (file, 0) => Some(file),
            (here, there) => (here == there).then_some(here),
        };
        Some(Self {
            locks: one(self.locks, other.locks)?,
            memory: one(self.memory, other.memory)?,
        })
    }
}

/// A set of files by name.
pub trait Store: Send + Sync {
    /// What tells this store from others: the UUID of a volume. `None` where files may be read by
    /// those who know nothing of this store: files of the operating system.
    fn identity(&self) -> Option<[u8; 16]>;

    /// Opens a file.
    ///
    /// # Errors
    /// There is none, there is one already, or there is no room for one.
    fn open(&self, name: &str, options: OpenOptions) -> Result<FileId, StoreError>;

    /// Ends the use of a handle. Nothing is synced.
    fn close(&self, file: FileId);

    /// Called in a child of `fork`, which must not use a store of its parent's: closes the
    /// descriptors that the child has of it, so that what they hold ends with the parent. Changes
    /// nothing that the parent sees, and waits for nothing.
    fn close_inherited(&self) {}

    /// Deletes a file. Nobody may use handles of it any more; a volume refuses them, in every
    /// process.
    ///
    /// # Errors
    /// There is none.
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Gives a file another name, which no file has.
    ///
    /// # Errors
    /// There is no such file, or one of the new name.
    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError>;

    /// All files, by name.
    ///
    /// # Errors
    /// The disk or the system.
    fn list(&self) -> Result<Vec<FileInfo>, StoreError>;

    /// Size in bytes.
    ///
    /// # Errors
    /// The file is gone.
    fn size(&self, file: FileId) -> Result<u64, StoreError>;

    /// Cuts a file off, or makes it longer; what is added is zeroes. Durable with the next sync.
    ///
    /// # Errors
    /// No room.
    fn set_size(&self, file: FileId, size: u64) -> Result<(), StoreError>;

    /// Reads, up to the end of the file. Answers how many bytes there were.
    ///
    /// # Errors
    /// The disk or the system.
    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, StoreError>;

    /// Writes, and makes the file longer if need be.
    ///
    /// # Errors
    /// No room.
    fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<(), StoreError>;

    /// Writes in many places of a file, which do not overlap, as if one after the other. A list
    /// costs a few round trips to the device, however long it is.
    ///
    /// # Errors
    /// As `write`. Some of the list may have been done.
    fn write_all(&self, file: FileId, writes: &[FileWrite<'_>]) -> Result<(), StoreError> {
        writes
            .iter()
            .try_for_each(|write| self.write(file, write.offset, write.data))
    }

    /// Turns bytes of a file into zeroes; whole pages give their space on the device back. The size
    /// stays.
    ///
    /// # Errors
    /// The disk or the system.
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), StoreError>;

    /// Gives files what others hold, as if by reading and writing one after the other. Whole pages
    /// at multiples of 4 KiB in both files are shared without being written, where that is
    /// possible; the rest is copied, and counted as such. A list costs a few round trips to the
    /// device, however long it is. Durable with the next sync of the files that changed.
    ///
    /// # Errors
    /// A range that is not there, or no room. Some of the list may have been done.
    fn share_all(&self, shares: &[Share]) -> Result<(), StoreError>;

    /// One share.
    ///
    /// # Errors
    /// As `share_all`.
    fn share(&self, share: &Share) -> Result<(), StoreError> {
        self.share_all(std::slice::from_ref(share))
    }

    /// Makes a file's contents, its name and (but for open ends) its size survive a crash of the
    /// machine.
    ///
    /// # Errors
    /// It could not be made durable.
    fn sync(&self, file: FileId) -> Result<(), StoreError>;

    /// The same for all files, and for what was deleted.
    ///
    /// # Errors
    /// It could not be made durable.
    fn sync_all(&self) -> Result<(), StoreError>;

    /// Makes deleted, new and changed names survive a crash of the machine.
    ///
    /// # Errors
    /// It could not be made durable.
    fn sync_names(&self) -> Result<(), StoreError>;

    /// Where the processes that use the store together have files of their own, locks for instance;
    /// `None` if this process is the only one, or files are beside those of the store.
    fn folder(&self) -> Option<PathBuf> {
        None
    }

    /// Says that a file is open here, or, `alone`, that it must be open nowhere and nobody may open
    /// it, until the answer is dropped. Only what is asked for by this counts.
    ///
    /// # Errors
    /// Another process has it open, or wants it alone.
    fn hold_file(&self, _name: &str, _alone: bool) -> Result<FileHold, StoreError> {
        Ok(FileHold::NONE)
    }

    /// Compares the files by which this process locks a file with those of the others.
    ///
    /// # Errors
    /// They are not the same: somebody has removed files of others.
    fn note_lock_files(&self, _file: FileId, _locks: LockFiles) -> Result<(), StoreError> {
        Ok(())
    }

    /// Asks whether the store may have been lost to others unnoticed. To be called before what was
    /// read earlier is relied on; it costs a system call.
    ///
    /// # Errors
    /// It is lost, or cannot be reached.
    fn still_held(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What this process has done so far.
    fn statistics(&self) -> Statistics;
}
