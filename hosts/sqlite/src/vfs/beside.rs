//! Excludes SQLite's own VFS from an open ordinary database: its log and journal have different
//! layouts here, and the locks are on another file.
//!
//! SQLite's own VFS locks bytes of the database's file: a reader has a read lock on all 510 bytes
//! of the shared range (SQLite: "File Locking And Concurrency In SQLite Version 3"; `os_unix.c`).
//! Each process with this VFS has a write lock on *one* of these bytes, from its first transaction
//! until it closes the database. So processes with this VFS do not exclude each other, while each
//! of them excludes all those with SQLite's own, and vice versa: the second one gets `SQLITE_BUSY`.
//!
//! Invariant: locks are those of an open file (F_OFD_SETLK). A process loses its ordinary ones when
//! it closes any handle of the file, as stores do. Absent: locks among processes with this VFS
//! (`lock`).

use crate::forked::PerProcess;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The first byte that readers lock, and the number of bytes: `SHARED_FIRST`, `SHARED_SIZE`.
const SHARED_FIRST: i64 = 0x4000_0002;
const SHARED_SIZE: i64 = 510;

/// A lock of one of the bytes, held until dropped.
#[derive(Debug)]
pub(super) struct BesideLock {
    _file: File,
}

/// Device and inode of a file.
type FileNumber = (u64, u64);

/// The locks of this process.
static LOCKS: PerProcess<Mutex<HashMap<FileNumber, Weak<BesideLock>>>> = PerProcess::new();

impl BesideLock {
    /// Locks one of the bytes; `None` if SQLite's own VFS has the file open.
    pub(super) fn take(path: &Path) -> io::Result<Option<Arc<Self>>> {
        let mut all = LOCKS.get().lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, lock| lock.strong_count() > 0);

        // Without write permission, only writers can be excluded.
        let (file, kind) = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => (file, libc::F_WRLCK),
            Err(_) => (File::open(path)?, libc::F_RDLCK),
        };
        let metadata = file.metadata()?;
        let number = (metadata.dev(), metadata.ino());
        if let Some(lock) = all.get(&number).and_then(Weak::upgrade) {
            return Ok(Some(lock));
        }

        // Other processes with this VFS most likely begin elsewhere.
        let first = i64::from(std::process::id()) % SHARED_SIZE;
        for step in 0..SHARED_SIZE {
            let at = SHARED_FIRST + (first + step) % SHARED_SIZE;
            match lock_byte(&file, kind, at) {
                Ok(()) => {
                    let lock = Arc::new(Self { _file: file });
                    all.insert(number, Arc::downgrade(&lock));
                    return Ok(Some(lock));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Locks a byte of an open file, without waiting.
fn lock_byte(file: &File, kind: libc::c_int, at: i64) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, for which zeroes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (at, 1);
    // SAFETY: the descriptor is open, and the command takes a pointer to such a structure.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
