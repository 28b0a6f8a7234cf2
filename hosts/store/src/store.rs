//! The operations of host software on files, independent of where the files are.
//!
//! Invariants: every operation takes `&self`; a store serializes its threads by its own locks.
//! Offsets and sizes are bytes. Bytes never written read as zeroes. Several processes may use one
//! store at the same time; writers of *one* file coordinate themselves (by SQLite's locks): the
//! store isolates files from each other, and does not arbitrate within one.
//!
//! Durability: a process may end at any instant, and its changes stay (on a disk that ends with the
//! process, those it has synced). After a crash of the machine that holds the files, synced data is
//! there; of later writes, each 4 KiB page is the old or the new one.
//!
//! Absent: a position in a file, directories, permissions.

use crate::{FileHold, StoreError};
use std::path::PathBuf;

/// A handle of an open file, valid until the file is closed or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    pub(crate) slot: u32,
    /// Tells the file apart from all others that have ever been in that slot.
    pub(crate) birth: u64,
}

/// Policy for a file that is absent, or exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The file must exist already.
    #[default]
    Never,
    /// It is created unless it exists.
    IfAbsent,
    /// It must not exist yet.
    New,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether a missing file is created.
    pub create: Create,
    /// For a new file: its size is not kept across a crash, and its reader finds the end of the
    /// data itself. A sync that follows appends then writes no metadata. After a crash of the
    /// machine the size of the file is its allocated space; bytes after the last ones written are
    /// zeroes, or earlier contents of the file itself.
    pub open_end: bool,
    /// For a new file: it is about to be written. It gets its first pages as it is created, which
    /// costs a flush less than if the first write asked for them.
    pub written_next: bool,
}

impl From<Create> for OpenOptions {
    fn from(create: Create) -> Self {
        Self {
            create,
            ..Self::default()
        }
    }
}

/// An entry of the list of files.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileInfo {
    /// Name of the file, unique in the store.
    pub name: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Pages allocated to it.
    pub pages: u64,
    /// Number of extents; 0 where only the operating system knows.
    pub extents: usize,
    /// Its reader finds the end after a crash.
    pub open_end: bool,
    /// Present if it is a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchInfo>,
}

/// Where a branch comes from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BranchInfo {
    /// Name of the file that it is a branch of; `None` if that file has been deleted or merged.
    pub parent: Option<String>,
    /// That file has changed since the branch was made.
    pub parent_changed: bool,
    /// When it was made: seconds since 1970.
    pub made_at: u64,
}

/// A branch to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBranch<'a> {
    /// Name of the file whose contents it gets.
    pub from: &'a str,
    /// Name of the branch; it must be free.
    pub to: &'a str,
}

/// Consecutive pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PageRun {
    /// Number of the first one, in the file.
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
}

/// Pages of a file, on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FileSpace {
    /// Pages allocated to it.
    pub pages: u64,
    /// Flash pages that only this file uses: deleting it frees as many.
    pub alone: u64,
}

/// One write of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The bytes to write.
    pub data: &'a [u8],
}

impl FileWrite<'_> {
    /// Offset after its last byte; `u64::MAX` if it would overflow.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.data.len() as u64)
    }
}

/// A range of bytes to share from a file to another one, or within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The source file.
    pub from: FileId,
    /// Offset in the source, in bytes.
    pub from_offset: u64,
    /// The target file.
    pub to: FileId,
    /// Offset in the target, in bytes.
    pub to_offset: u64,
    /// Length in bytes. The source must have them.
    pub bytes: u64,
}

/// Counters of this process's operations on a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages shared by calls of `share`.
    pub pages_shared: u64,
    /// Pages that calls of `share` had to copy.
    pub pages_copied: u64,
    /// Reason why the first of these could not be shared.
    pub copied_because: Option<String>,
    /// Pages of files written, those of `pages_copied` excluded.
    pub pages_written: u64,
    /// Pages read before a partial write.
    pub pages_read_to_write: u64,
    /// Pages of files read from the disk.
    pub pages_read: u64,
    /// Pages of files found in the cache instead.
    pub pages_found: u64,
    /// Pages of files deallocated by `discard`.
    pub pages_discarded: u64,
    /// Pages of metadata written.
    pub pages_metadata: u64,
    /// Flushes, including those for metadata.
    pub syncs: u64,
}

impl Statistics {
    /// Counts pages that were copied, not shared.
    pub(crate) fn copied(&mut self, pages: u64, why: impl FnOnce() -> String) {
        self.pages_copied += pages;
        if pages > 0 {
            self.copied_because.get_or_insert_with(why);
        }
    }
}

/// Inodes of the operating system's files by which host software locks a file of a volume. 0: none;
/// `u64::MAX`: the file no longer exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockFiles {
    /// The file with the locks.
    pub locks: u64,
    /// The file of the shared memory.
    pub memory: u64,
}

impl LockFiles {
    /// Merges two records; `None` if they disagree.
    pub(crate) fn with(self, other: Self) -> Option<Self> {
        // No file has this inode: the lock file was removed.
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
    /// Identifies this store: the UUID of a volume. `None` where files can be read without this
    /// store: files of the operating system.
    fn identity(&self) -> Option<[u8; 16]>;

    /// Opens a file.
    ///
    /// # Errors
    /// The file is missing, exists already, or there is no room for one.
    fn open(&self, name: &str, options: OpenOptions) -> Result<FileId, StoreError>;

    /// Closes a handle. Nothing is synced.
    fn close(&self, file: FileId);

    /// Called in a child of `fork`, which must not use its parent's store: closes the inherited
    /// descriptors, so that what they hold ends with the parent. Does not affect the parent, and
    /// does not wait.
    fn close_inherited(&self) {}

    /// Deletes a file. Its handles must not be used any more; a volume refuses them, in every
    /// process.
    ///
    /// # Errors
    /// There is no such file.
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Renames a file; the new name must be free.
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

    /// Truncates or extends a file; new bytes are zeroes. Durable with the next sync.
    ///
    /// # Errors
    /// No room.
    fn set_size(&self, file: FileId, size: u64) -> Result<(), StoreError>;

    /// Reads up to the end of the file. Returns the number of bytes read.
    ///
    /// # Errors
    /// The disk or the system.
    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, StoreError>;

    /// Writes, extending the file if necessary.
    ///
    /// # Errors
    /// No room.
    fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<(), StoreError>;

    /// Writes to many ranges of a file, which do not overlap, in order. A list costs a few round
    /// trips to the device, however long it is.
    ///
    /// # Errors
    /// As `write`. Part of the list may have been done.
    fn write_all(&self, file: FileId, writes: &[FileWrite<'_>]) -> Result<(), StoreError> {
        writes
            .iter()
            .try_for_each(|write| self.write(file, write.offset, write.data))
    }

    /// Zeroes a range of a file; whole pages are deallocated on the device. The size stays.
    ///
    /// # Errors
    /// The disk or the system.
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), StoreError>;

    /// Shares ranges between files, with the effect of reading and writing them in order. Whole
    /// pages at multiples of 4 KiB in both files are shared without being written, where possible;
    /// the rest is copied, and counted as such. A list costs a few round trips to the device,
    /// however long it is. Durable with the next sync of the changed files.
    ///
    /// # Errors
    /// A source range beyond the end of its file, or no room. Part of the list may have been done.
    fn share_all(&self, shares: &[Share]) -> Result<(), StoreError>;

    /// Shares one range.
    ///
    /// # Errors
    /// As `share_all`.
    fn share(&self, share: &Share) -> Result<(), StoreError> {
        self.share_all(std::slice::from_ref(share))
    }

    /// Makes branches: new files with the contents of others, all of one instant, durable on return.
    /// The last of a list exists only if all others do. `made_at`: seconds since 1970. Files that
    /// branches are made of must not be written meanwhile.
    ///
    /// # Errors
    /// A name is taken or missing, there is no room, or the store has no branches. Then no branch
    /// was made, but after an error of the disk the first ones of the list may be there.
    fn branch(&self, _branches: &[NewBranch<'_>], _made_at: u64) -> Result<(), StoreError> {
        Err(StoreError::Unsupported(
            "branches are made of files of a volume, not of ordinary files",
        ))
    }

    /// Makes a file's contents, its name and (but for open ends) its size survive a crash of the
    /// machine.
    ///
    /// # Errors
    /// It could not be made durable.
    fn sync(&self, file: FileId) -> Result<(), StoreError>;

    /// Syncs all files, and deletions.
    ///
    /// # Errors
    /// It could not be made durable.
    fn sync_all(&self) -> Result<(), StoreError>;

    /// Makes created, deleted and renamed files' names survive a crash of the machine.
    ///
    /// # Errors
    /// It could not be made durable.
    fn sync_names(&self) -> Result<(), StoreError>;

    /// The folder for files shared by the processes that use the store, such as locks; `None` if
    /// this process is the only one, or such files are beside those of the store.
    fn folder(&self) -> Option<PathBuf> {
        None
    }

    /// Marks a file as open. With `alone`, fails if it is open anywhere, and prevents opening.
    /// Holds until the result is dropped. Only files marked by this method count as open.
    ///
    /// # Errors
    /// Another process has it open, or holds it alone.
    fn hold_file(&self, _name: &str, _alone: bool) -> Result<FileHold, StoreError> {
        Ok(FileHold::NONE)
    }

    /// Compares this process's lock files of a file with those of other processes.
    ///
    /// # Errors
    /// They differ: some have been removed and recreated.
    fn note_lock_files(&self, _file: FileId, _locks: LockFiles) -> Result<(), StoreError> {
        Ok(())
    }

    /// Checks that the store has not been lost to another holder unnoticed. To be called before
    /// relying on data read earlier; costs a system call.
    ///
    /// # Errors
    /// It is lost, or cannot be reached.
    fn still_held(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Counters of this process so far.
    fn statistics(&self) -> Statistics;
}
