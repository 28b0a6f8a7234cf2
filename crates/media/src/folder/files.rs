//! The files of a folder: their names, their locks, and their space.
//!
//! Invariants: two files are locked, one of them `contents`, which cannot be removed without losing
//! the data; every error names its file; a file opened for writing has all its blocks allocated, if
//! the file system can do that. Absent: the contents of files.

use crate::image_file::ImageError;
use crate::pages::CONTENTS;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) const STATES: [&str; 2] = ["state.0", "state.1"];
pub(super) const JOURNALS: [&str; 2] = ["journal.0", "journal.1"];
const LOCK: &str = "lock";

/// Names of all files.
pub(crate) fn all(dir: &Path) -> Vec<PathBuf> {
    STATES
        .iter()
        .chain(&JOURNALS)
        .chain([&CONTENTS, &LOCK])
        .map(|name| dir.join(name))
        .collect()
}

/// Adds the file's name to an error.
pub(super) fn about(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Access mode of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderAccess {
    /// Exclusive use by this process.
    Own,
    /// Read only: nothing is written, not even a missing file.
    Look,
}

/// The locks of a folder, held until dropped.
pub(super) struct Locks {
    _lock: Option<File>,
    contents: File,
}

impl Locks {
    /// Locks a folder. Earlier versions lock the file `lock` only. If it is removed, locking a new
    /// one does not exclude the holder of the old one; the lock on `contents` does.
    pub(super) fn take(dir: &Path, access: FolderAccess) -> Result<Self, ImageError> {
        // Inspection must not change the folder, so a missing lock file stays missing.
        let lock = match access {
            FolderAccess::Own => OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(dir.join(LOCK))
                .map(Some),
            FolderAccess::Look => match File::open(dir.join(LOCK)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some),
            },
        };

        let lock = lock.map_err(|error| about(LOCK, error))?;
        let lock = lock.map(|file| exclusive(file, LOCK)).transpose()?;
        let contents = exclusive(open(dir, CONTENTS, access)?, CONTENTS)?;
        Ok(Self {
            _lock: lock,
            contents,
        })
    }

    /// Releases the locks, also for copies of their descriptors. Where that fails they end with the
    /// files.
    pub(super) fn release(&self) {
        let _ = self.contents.unlock();
        let _ = self._lock.as_ref().map(File::unlock);
    }

    /// The file of pages' contents.
    pub(super) fn contents(&self) -> &File {
        &self.contents
    }
}

fn exclusive(file: File, name: &str) -> Result<File, ImageError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ImageError::InUse),
        Err(TryLockError::Error(error)) => Err(about(name, error).into()),
    }
}

pub(super) fn open(dir: &Path, name: &str, access: FolderAccess) -> io::Result<File> {
    let opened = OpenOptions::new()
        .read(true)
        .write(access == FolderAccess::Own)
        .open(dir.join(name));
    opened.map_err(|error| about(name, error))
}

/// Checks the length of a file.
pub(super) fn check_length(file: &File, name: &str, bytes: u64) -> Result<(), ImageError> {
    let have = file.metadata().map_err(|error| about(name, error))?.len();
    if have < bytes {
        Err(ImageError::Damaged(format!(
            "{name}, byte {have}: the file ends here, and should have {bytes} bytes"
        )))
    } else {
        Ok(())
    }
}

/// Creates a file with its blocks allocated, where the file system can do that.
pub(super) fn create(dir: &Path, name: &str, bytes: u64) -> io::Result<File> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.join(name));
    let file = opened.map_err(|error| about(name, error))?;
    // A full disk must be an error here. Later it would be a failed write of acknowledged data, or
    // a signal in a store to the mapping.
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP) => {
            write_zeroes(&file, bytes).map_err(|error| about(name, error))?
        }
        Err(error) => return Err(about(name, error.into())),
    }
    Ok(file)
}

/// Bytes that the file system of a folder has free.
pub(super) fn free_bytes(dir: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The error of a full disk, with the space that all files need and the space that was free.
pub(super) fn with_room(error: io::Error, needed: u64, free: u64) -> io::Error {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match error.kind() {
        io::ErrorKind::StorageFull => {
            let (needed, free) = (gib(needed), gib(free));
            let text = format!("{error}: it needs {needed:.2} GiB, and {free:.2} GiB are free");
            io::Error::new(error.kind(), text)
        }
        _ => error,
    }
}

fn write_zeroes(mut file: &File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file).map(drop)
}

/// Allocates the missing blocks of a file, such as a sparse copy: a write into a hole needs space
/// that may not be there, and a store into its mapping would kill the process. Existing data stays.
/// File systems that cannot allocate are left alone.
pub(super) fn reserve(file: &File, name: &str, bytes: u64) -> Result<(), ImageError> {
    let about = file.metadata().map_err(|error| about(name, error))?;
    // `st_blocks` is in units of 512 bytes on every file system.
    if about.len() >= bytes && about.blocks().saturating_mul(512) >= bytes {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(ImageError::NoRoom {
            file: name.to_owned(),
            error: error.into(),
        }),
    }
}

/// Replaces a file by another one of the same name, durably and as a whole.
///
/// # Errors
/// The system's reason; then the old file is there, or the new one.
pub fn replace_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let aside = dir.join(format!("{name}.part"));

    // 1. the file is durable  2. it has its name  3. the name is durable. A cut before 2, or before 3
    // has ended, leaves the old file; then the new one is there whole.
    let replaced = File::create(&aside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&aside, dir.join(name)))
        .and_then(|()| sync_dir(dir));
    replaced.inspect_err(|_| {
        // A partial file is useless, and the disk may be full.
        let _ = std::fs::remove_file(&aside);
    })
}

/// Makes names in a folder durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
