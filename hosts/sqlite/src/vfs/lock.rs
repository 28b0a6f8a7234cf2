//! A small file of the system's own VFS, with a database's locks and its connections' shared
//! memory.
//!
//! Invariants: it is never the file with the database: a process that closes any handle of a file
//! loses all locks it has on it (POSIX), and stores open and close files at any time. In a child of
//! `fork` the system's VFS still believes that it has the parent's locks; the inherited lock files
//! are closed there before one is opened, so that it asks the kernel anew (`inherited.rs`).

use super::inherited::{self, KnownLock};
use crate::log;
use libsqlite3_sys as ffi;
use remap_ssd_store::{FileId, LockFiles, OpenOptions, Store, StoreError};
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The lock file, as opened by the system's VFS.
pub(super) struct LockFile {
    /// The system's VFS's part of the file: its `szOsFile` bytes.
    memory: Box<[u64]>,
    /// Registration, by which a child of `fork` closes it.
    known: Option<KnownLock>,
    /// The name that it was opened by, in SQLite's format for names.
    name: *mut c_char,
    /// The first region of the shared memory, once it is mapped.
    index: *mut c_void,
    /// Number of log frames in the database when the last checkpoint began.
    backfill: u32,
    /// Its path.
    path: PathBuf,
    /// The file in a volume that it locks, once recorded there.
    noted: Option<(Arc<dyn Store>, FileId)>,
}

/// Offset in the first region of the number of log frames in the database: "WAL-mode File Format"
/// §2.1.
const BACKFILL_AT: usize = 96;

impl LockFile {
    /// Opens the file, created if missing.
    pub(super) fn open(path: &Path) -> Result<Self, c_int> {
        let system = super::system();
        let kept = path.to_path_buf();
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| ffi::SQLITE_CANTOPEN)?;
        let empty = c"".as_ptr();
        // SAFETY: C strings, and no parameters.
        let name = unsafe {
            ffi::sqlite3_create_filename(path.as_ptr(), empty, empty, 0, std::ptr::null_mut())
        };
        if name.is_null() {
            return Err(ffi::SQLITE_NOMEM);
        }
        // SQLite's header says `const char *` only since 3.39.
        #[allow(clippy::unnecessary_cast)]
        let name = name as *mut c_char;

        // As 8-byte words, so that the system's structure is aligned.
        let memory =
            vec![0; (system.szOsFile as usize).div_ceil(size_of::<u64>())].into_boxed_slice();
        let mut file = Self {
            memory,
            known: None,
            name,
            index: std::ptr::null_mut(),
            backfill: 0,
            path: kept,
            noted: None,
        };

        let flags = ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
        let open = system.xOpen.ok_or(ffi::SQLITE_CANTOPEN)?;
        let gate = inherited::gate();
        // SAFETY: the memory is as large as that VFS asks, and zeroed; the name lives as long as
        // the file.
        let result = unsafe {
            open(
                super::system_pointer(),
                name,
                file.pointer(),
                flags,
                std::ptr::null_mut(),
            )
        };
        if result == ffi::SQLITE_OK {
            file.known = Some(KnownLock::new(file.pointer(), &gate));
            Ok(file)
        } else {
            // Dropping the file passes the gate again.
            drop(gate);
            Err(result)
        }
    }

    /// Compares it with other processes' lock file for a file of a volume, and records it.
    pub(super) fn note_in(&mut self, store: &Arc<dyn Store>, name: &str) -> Result<(), StoreError> {
        let file = store.open(name, OpenOptions::default())?;
        let before = inode(&self.path)?;
        // Checked in between: the inode is that of the open file, not of a newer one.
        let mut moved: c_int = 1;
        // SAFETY: the operation takes a place for a number.
        let asked = unsafe { self.control(ffi::SQLITE_FCNTL_HAS_MOVED, (&raw mut moved).cast()) };
        let locks = LockFiles {
            locks: if asked == ffi::SQLITE_OK && moved == 0 {
                before
            } else {
                REMOVED
            },
            memory: 0,
        };
        store.note_lock_files(file, locks)?;
        self.noted = Some((Arc::clone(store), file));
        Ok(())
    }

    /// `note_in` for the file of the shared memory.
    fn note_memory(&self) -> Result<(), StoreError> {
        let Some((store, file)) = &self.noted else {
            return Ok(());
        };
        let mut path = self.path.clone().into_os_string();
        path.push("-shm");
        let memory = inode(Path::new(&path))?;
        store.note_lock_files(*file, LockFiles { locks: 0, memory })
    }

    fn pointer(&mut self) -> *mut ffi::sqlite3_file {
        self.memory.as_mut_ptr().cast()
    }

    /// Calls a function of the file, or returns `otherwise` if the system has none.
    fn call<F: Copy>(
        &mut self,
        otherwise: c_int,
        function: impl FnOnce(&ffi::sqlite3_io_methods) -> Option<F>,
        call: impl FnOnce(F, *mut ffi::sqlite3_file) -> c_int,
    ) -> c_int {
        let pointer = self.pointer();
        let _gate = inherited::gate();
        // SAFETY: the file is open, so it has a table of functions that is valid as long as the
        // process.
        let function = unsafe { (*pointer).pMethods.as_ref() }.and_then(function);
        function.map_or(otherwise, |function| call(function, pointer))
    }

    pub(super) fn lock(&mut self, level: c_int) -> c_int {
        // SAFETY: the file is open.
        self.call(
            ffi::SQLITE_IOERR_LOCK,
            |table| table.xLock,
            |lock, file| unsafe { lock(file, level) },
        )
    }

    pub(super) fn unlock(&mut self, level: c_int) -> c_int {
        // SAFETY: the file is open.
        self.call(
            ffi::SQLITE_IOERR_UNLOCK,
            |table| table.xUnlock,
            |unlock, file| unsafe { unlock(file, level) },
        )
    }

    /// # Safety
    /// `out` is a place for the result.
    pub(super) unsafe fn check_reserved(&mut self, out: *mut c_int) -> c_int {
        let otherwise = ffi::SQLITE_IOERR_CHECKRESERVEDLOCK;
        // SAFETY: the file is open; `out` as promised.
        self.call(
            otherwise,
            |table| table.xCheckReservedLock,
            |check, file| unsafe { check(file, out) },
        )
    }

    /// # Safety
    /// `argument` is what the operation takes.
    pub(super) unsafe fn control(&mut self, operation: c_int, argument: *mut c_void) -> c_int {
        let otherwise = ffi::SQLITE_NOTFOUND;
        // SAFETY: the file is open; `argument` as promised.
        self.call(
            otherwise,
            |table| table.xFileControl,
            |control, file| unsafe { control(file, operation, argument) },
        )
    }

    /// # Safety
    /// `out` is a place for the result.
    pub(super) unsafe fn shm_map(
        &mut self,
        region: c_int,
        bytes: c_int,
        extend: c_int,
        out: *mut *mut c_void,
    ) -> c_int {
        let otherwise = ffi::SQLITE_IOERR_SHMMAP;

        // SAFETY: the file is open; `out` as promised.
        unsafe {
            let result = self.call(
                otherwise,
                |table| table.xShmMap,
                |map, file| map(file, region, bytes, extend, out),
            );
            if result == ffi::SQLITE_OK
                && let Some(known) = &self.known
            {
                known.note_region(*out, bytes as usize);
            }

            if result != ffi::SQLITE_OK || region != 0 {
                return result;
            }

            if let Err(error) = self.note_memory() {
                return log::failed(&error, otherwise);
            }
            self.index = *out;
            result
        }
    }

    /// The word of the shared memory with the number of log frames in the database.
    fn shared_backfill(&self) -> Option<&AtomicU32> {
        if self.index.is_null() {
            return None;
        }
        // SAFETY: the region has 32 KiB, is aligned to a page, and stays mapped until `shm_unmap`;
        // SQLite reads and writes the word atomically.
        Some(unsafe { AtomicU32::from_ptr(self.index.cast::<u8>().add(BACKFILL_AT).cast()) })
    }

    /// Records the word when a checkpoint begins.
    pub(super) fn note_backfill(&mut self) {
        self.backfill = self
            .shared_backfill()
            .map_or(0, |word| word.load(Ordering::SeqCst));
    }

    /// Restores the word, since the checkpoint's shares failed. Its lock is still held, so that no
    /// other connection changes the word.
    ///
    /// Limit: a reader of another process that begins between SQLite's change of the word and this,
    /// which are a few instructions apart, reads the old contents of the database.
    pub(super) fn restore_backfill(&mut self) -> c_int {
        if let Some(word) = self.shared_backfill() {
            word.store(self.backfill, Ordering::SeqCst);
        }
        ffi::SQLITE_OK
    }

    pub(super) fn shm_lock(&mut self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        let otherwise = ffi::SQLITE_IOERR_SHMLOCK;
        // SAFETY: the file is open.
        self.call(
            otherwise,
            |table| table.xShmLock,
            |lock, file| unsafe { lock(file, offset, count, flags) },
        )
    }

    pub(super) fn shm_barrier(&mut self) {
        let barrier = |barrier: unsafe extern "C" fn(*mut ffi::sqlite3_file), file| {
            // SAFETY: the file is open.
            unsafe { barrier(file) };
            ffi::SQLITE_OK
        };
        self.call(ffi::SQLITE_OK, |table| table.xShmBarrier, barrier);
    }

    pub(super) fn shm_unmap(&mut self, delete: c_int) -> c_int {
        self.index = std::ptr::null_mut();
        // SAFETY: the file is open.
        self.call(
            ffi::SQLITE_OK,
            |table| table.xShmUnmap,
            |unmap, file| unsafe { unmap(file, delete) },
        )
    }
}

/// No file has this inode.
const REMOVED: u64 = u64::MAX;

fn inode(path: &Path) -> Result<u64, StoreError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.ino()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(REMOVED),
        Err(error) => Err(StoreError::System {
            what: path.display().to_string(),
            error,
        }),
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A file whose opening failed has no functions, and needs no closing.
        // SAFETY: the file is open, and is not used any more.
        self.call(
            ffi::SQLITE_OK,
            |table| table.xClose,
            |close, file| unsafe { close(file) },
        );
        // A child forked before this finds a file without functions.
        self.known = None;
        // SAFETY: it was made by `sqlite3_create_filename`, and the file that used it is closed.
        unsafe { ffi::sqlite3_free_filename(self.name) };
    }
}
