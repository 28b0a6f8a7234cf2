//! The functions of an open file.
//!
//! Invariants: a read beyond the end of the file is zero-filled and reported as short. Before a
//! lock is released, and before shared memory refers to data, that data is in the store. No file of
//! a store is mapped: pages may carry stamps that readers must not see. A database opened read-only
//! is not changed: SQLite relies on the system to refuse a write lock, and closes such a connection
//! without a checkpoint.
//!
//! Absent: opening.

use super::beside::BesideLock;
use super::entry::{entry, file_methods, guarded};
use super::inherited::settle;
use super::lock::LockFile;
use super::ordinary::Opened;
use super::owners::Known;
use super::text;
use crate::connection::{Connection, Role};
use crate::log;
use crate::place::StorePlace;
use libsqlite3_sys as ffi;
use remap_ssd_nvme::process::Process;
use remap_ssd_store::{FileHold, StoreError};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file as SQLite holds it.
#[repr(C)]
pub(super) struct File {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

/// The state of an open file.
pub(super) struct Handle {
    pub connection: Arc<Mutex<Connection>>,
    pub role: Role,
    /// True for a database opened read-only, and for one, or its log, without write permission.
    pub read_only: bool,
    /// Lock file, for databases.
    pub lock: Option<LockFile>,
    /// Registration of a database, by which its log and journal find it.
    pub known: Option<Known>,
    /// An ordinary database's file, to detect that its name leads elsewhere.
    pub ordinary: Option<Opened>,
    /// Excludes SQLite's own VFS from an ordinary database, from its first use until it is closed.
    pub beside: Option<Arc<BesideLock>>,
    /// Keeps other processes from deleting an open database.
    pub _hold: FileHold,
    /// Keeps the place open.
    pub place: Arc<StorePlace>,
    /// The process that opened it.
    pub process: Process,
}

/// Error of a file opened by the parent before `fork`, when used in the child.
fn inherited(code: c_int) -> c_int {
    log::note(
        code,
        &"this database was opened before fork(), by the parent process: a child must open its own",
    );
    code
}

impl File {
    pub(super) fn new(handle: Box<Handle>) -> Self {
        Self {
            base: ffi::sqlite3_file { pMethods: &METHODS },
            handle: Box::into_raw(handle),
        }
    }

    /// # Safety
    /// `file` is an open file of this VFS that no other thread uses (SQLite serializes threads per
    /// file).
    pub(super) unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Handle {
        // SAFETY: as promised by the caller; the handle lives until `x_close`.
        unsafe { &mut *(*file.cast::<Self>()).handle }
    }
}

/// Locks a connection for one call. A call that panicked leaves partial changes only in memory, and
/// has returned an error.
pub(super) fn locked(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

static METHODS: ffi::sqlite3_io_methods = file_methods! {
    version: 3,
    xShmMap: Some(entry!(
        x_shm_map(file: OpenFile, region: c_int, bytes: c_int, extend: c_int, out: *mut *mut c_void),
        ffi::SQLITE_IOERR_SHMMAP
    )),
    xShmLock: Some(entry!(
        x_shm_lock(file: OpenFile, offset: c_int, count: c_int, flags: c_int),
        ffi::SQLITE_IOERR_SHMLOCK
    )),
    xShmBarrier: Some(entry!(x_shm_barrier(file: OpenFile) -> (), ffi::SQLITE_IOERR, ())),
    xShmUnmap: Some(entry!(x_shm_unmap(file: OpenFile, delete: c_int), ffi::SQLITE_IOERR_SHMMAP)),
    xFetch: Some(entry!(
        x_fetch(file: OpenFile, offset: i64, bytes: c_int, out: *mut *mut c_void),
        ffi::SQLITE_IOERR
    )),
    xUnfetch: Some(entry!(
        x_unfetch(file: OpenFile, offset: i64, page: *mut c_void),
        ffi::SQLITE_IOERR
    )),
};

/// Returns true for a file of this VFS.
///
/// # Safety
/// `file` is an open file.
pub(super) unsafe fn is_ours(file: *mut ffi::sqlite3_file) -> bool {
    // SAFETY: as promised by the caller; the functions of a file are at its beginning.
    unsafe { std::ptr::eq((*file).pMethods, &METHODS) }
}

/// Writes what is gathered of a database to its store.
///
/// # Safety
/// As `File::handle`.
pub(super) unsafe fn flush(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe {
        on_connection(file, ffi::SQLITE_IOERR_WRITE, |connection, _| {
            connection.flush_database().map(|()| ffi::SQLITE_OK)
        })
    }
}

/// Runs a call on a file's connection, and converts its error, or a panic, to a result code: what
/// follows, such as the release of a lock, still happens.
///
/// # Safety
/// As `File::handle`.
unsafe fn on_connection(
    file: *mut ffi::sqlite3_file,
    otherwise: c_int,
    call: impl FnOnce(&mut Connection, Role) -> Result<c_int, StoreError>,
) -> c_int {
    let done = guarded(otherwise, || {
        // SAFETY: as promised by the caller.
        let handle = unsafe { File::handle(file) };
        if !handle.process.is_current() {
            return inherited(otherwise);
        }
        let result = call(&mut locked(&handle.connection), handle.role);
        result.unwrap_or_else(|error| log::failed(&error, otherwise))
    });
    done.unwrap_or(otherwise)
}

/// Runs a call on a database's lock file; other files have no locks. A child of `fork` has none of
/// its parent's: it gets `otherwise`.
///
/// # Safety
/// As `File::handle`.
unsafe fn on_lock(
    file: *mut ffi::sqlite3_file,
    none: c_int,
    otherwise: c_int,
    call: impl FnOnce(&mut LockFile) -> c_int,
) -> c_int {
    // SAFETY: as promised by the caller.
    let handle = unsafe { File::handle(file) };
    if !handle.process.is_current() {
        return inherited(otherwise);
    }
    handle.lock.as_mut().map_or(none, call)
}

unsafe fn x_close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and uses it no more.
    let handle = unsafe { Box::from_raw((*file.cast::<File>()).handle) };
    if !handle.process.is_current() {
        // Dropping it would access the parent's store. Its descriptors are closed by now.
        settle();
        std::mem::forget(handle);
        return ffi::SQLITE_OK;
    }
    let closed = locked(&handle.connection).close(handle.role);

    // Data not in the store when the locks are released was never committed, or is an error
    // here.
    drop(handle);
    closed.map_or_else(
        |error| log::failed(&error, ffi::SQLITE_IOERR_CLOSE),
        |()| ffi::SQLITE_OK,
    )
}

unsafe fn x_read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    bytes: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's buffer has `bytes` bytes, and is not used elsewhere during the call. They
    // may be uninitialised: they are written first.
    let into = unsafe {
        into.cast::<u8>().write_bytes(0, bytes as usize);
        std::slice::from_raw_parts_mut(into.cast::<u8>(), bytes as usize)
    };

    // SAFETY: SQLite calls with an open file.
    unsafe {
        on_connection(file, ffi::SQLITE_IOERR_READ, |connection, role| {
            let read = connection.read(role, offset as u64, into)?;
            Ok(if read == into.len() {
                ffi::SQLITE_OK
            } else {
                ffi::SQLITE_IOERR_SHORT_READ
            })
        })
    }
}

unsafe fn x_write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    bytes: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's buffer has `bytes` bytes, which do not change during the call.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize) };

    // SAFETY: SQLite calls with an open file.
    unsafe {
        if File::handle(file).read_only {
            return ffi::SQLITE_IOERR_WRITE;
        }
        on_connection(file, ffi::SQLITE_IOERR_WRITE, |connection, role| {
            connection
                .write(role, offset as u64, data)
                .map(|()| ffi::SQLITE_OK)
        })
    }
}

unsafe fn x_truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe {
        if File::handle(file).read_only {
            return ffi::SQLITE_IOERR_TRUNCATE;
        }
        on_connection(file, ffi::SQLITE_IOERR_TRUNCATE, |connection, role| {
            connection
                .truncate(role, size as u64)
                .map(|()| ffi::SQLITE_OK)
        })
    }
}

unsafe fn x_sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe {
        on_connection(file, ffi::SQLITE_IOERR_FSYNC, |connection, role| {
            connection.sync(role).map(|()| ffi::SQLITE_OK)
        })
    }
}

unsafe fn x_file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite calls with an open file, and a place for the answer.
    unsafe {
        on_connection(file, ffi::SQLITE_IOERR_FSTAT, |connection, role| {
            out.write(connection.size(role)? as i64);
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe fn x_lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe {
        // The lock file is always writable, so it would grant the lock.
        if File::handle(file).read_only && level > ffi::SQLITE_LOCK_SHARED {
            return ffi::SQLITE_IOERR_LOCK;
        }

        if !File::handle(file).process.is_current() {
            return inherited(ffi::SQLITE_IOERR_LOCK);
        }

        // Each transaction begins with this lock: another holder may have the device by now.
        if level == ffi::SQLITE_LOCK_SHARED
            && let Err(error) = File::handle(file).place.store.still_held()
        {
            return log::failed(&error, ffi::SQLITE_IOERR_LOCK);
        }

        match keep_others_out(File::handle(file)) {
            ffi::SQLITE_OK => on_lock(file, ffi::SQLITE_OK, ffi::SQLITE_IOERR_LOCK, |lock| {
                lock.lock(level)
            }),
            refused => refused,
        }
    }
}

/// Before the first use of an ordinary database: excludes SQLite's own VFS.
fn keep_others_out(handle: &mut Handle) -> c_int {
    let Some(ordinary) = handle.ordinary.as_ref().filter(|_| handle.beside.is_none()) else {
        return ffi::SQLITE_OK;
    };

    match BesideLock::take(ordinary.path()) {
        Ok(Some(lock)) => {
            handle.beside = Some(lock);
            ffi::SQLITE_OK
        }
        Ok(None) => {
            log::note(
                ffi::SQLITE_BUSY,
                &"a program without this VFS has the database open: close it there first",
            );
            ffi::SQLITE_BUSY
        }
        // The file is gone, or its file system has no such locks: SQLite's own VFS has none either.
        Err(_) => ffi::SQLITE_OK,
    }
}

unsafe fn x_unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe {
        let flushed = on_connection(file, ffi::SQLITE_IOERR_UNLOCK, |connection, _| {
            connection.flush_database().map(|()| ffi::SQLITE_OK)
        });
        // Released even if the flush failed, or other connections would be locked out; SQLite gets
        // the flush's error.
        let unlocked = on_lock(file, ffi::SQLITE_OK, ffi::SQLITE_IOERR_UNLOCK, |lock| {
            lock.unlock(level)
        });
        if flushed == ffi::SQLITE_OK {
            unlocked
        } else {
            flushed
        }
    }
}

unsafe fn x_check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite calls with an open file, and a place for the answer.
    unsafe {
        out.write(0);
        on_lock(
            file,
            ffi::SQLITE_OK,
            ffi::SQLITE_IOERR_CHECKRESERVEDLOCK,
            |lock| lock.check_reserved(out),
        )
    }
}

unsafe fn x_file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls with an open file, and an argument as the operation wants it.
    unsafe {
        let is_database = File::handle(file).role == Role::Database;

        match operation {
            // A checkpoint's writes become shares.
            ffi::SQLITE_FCNTL_CKPT_START if is_database => checkpoint(file, true),
            ffi::SQLITE_FCNTL_CKPT_DONE if is_database => checkpoint(file, false),
            // All of a transaction is written, even if no sync follows.
            ffi::SQLITE_FCNTL_SYNC if is_database => flush(file),

            // Space is claimed in extents that grow with the file.
            ffi::SQLITE_FCNTL_SIZE_HINT | ffi::SQLITE_FCNTL_CHUNK_SIZE => ffi::SQLITE_OK,
            ffi::SQLITE_FCNTL_MMAP_SIZE => {
                argument.cast::<i64>().write(0);
                ffi::SQLITE_OK
            }
            ffi::SQLITE_FCNTL_HAS_MOVED if File::handle(file).ordinary.is_some() => {
                let moved = File::handle(file)
                    .ordinary
                    .as_ref()
                    .is_some_and(Opened::has_moved);
                argument.cast::<c_int>().write(moved.into());
                ffi::SQLITE_OK
            }

            // A file in a volume cannot be renamed from outside. Its lock file may have been
            // removed, which does not affect connections that have it open.
            ffi::SQLITE_FCNTL_HAS_MOVED if is_database => {
                argument.cast::<c_int>().write(0);
                ffi::SQLITE_OK
            }

            ffi::SQLITE_FCNTL_VFSNAME => answer(argument.cast(), "remap"),
            ffi::SQLITE_FCNTL_PRAGMA => pragma(file, argument.cast()),
            // The system's VFS has the locks, and handles the operations on them.
            _ => on_lock(file, ffi::SQLITE_NOTFOUND, ffi::SQLITE_NOTFOUND, |lock| {
                lock.control(operation, argument)
            }),
        }
    }
}

unsafe fn checkpoint(file: *mut ffi::sqlite3_file, begins: bool) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe {
        if begins {
            on_lock(file, ffi::SQLITE_OK, ffi::SQLITE_IOERR_WRITE, |lock| {
                lock.note_backfill();
                ffi::SQLITE_OK
            });
        }
        on_connection(file, ffi::SQLITE_IOERR_WRITE, |connection, _| {
            connection.checkpoint(begins).map(|()| ffi::SQLITE_OK)
        })
    }
}

/// `PRAGMA remap_ssd_statistics`: the counters as JSON.
///
/// # Safety
/// As `File::handle`; `arguments` are those of `SQLITE_FCNTL_PRAGMA`: a place for the result, a
/// name, a value.
unsafe fn pragma(file: *mut ffi::sqlite3_file, arguments: *mut *mut c_char) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe {
        if !text(*arguments.add(1)).eq_ignore_ascii_case("remap_ssd_statistics") {
            return on_lock(file, ffi::SQLITE_NOTFOUND, ffi::SQLITE_NOTFOUND, |lock| {
                lock.control(ffi::SQLITE_FCNTL_PRAGMA, arguments.cast())
            });
        }
        on_connection(file, ffi::SQLITE_ERROR, |connection, _| {
            Ok(answer(arguments, &connection.statistics().to_string()))
        })
    }
}

/// Returns a string that SQLite frees.
///
/// # Safety
/// `out` is a place for the result.
pub(crate) unsafe fn answer(out: *mut *mut c_char, text: &str) -> c_int {
    // SAFETY: memory of SQLite's with room for the text and a zero.
    unsafe {
        let memory: *mut c_char = ffi::sqlite3_malloc64(text.len() as u64 + 1).cast();
        if memory.is_null() {
            return ffi::SQLITE_NOMEM;
        }
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), memory, text.len());
        memory.add(text.len()).write(0);
        out.write(memory);
        ffi::SQLITE_OK
    }
}

/// A page of the device is old or new after any crash.
unsafe fn x_sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// A write does not damage bytes around it, and a torn append leaves a shorter journal, never a
/// wrong one: its images have checksums.
unsafe fn x_device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE | ffi::SQLITE_IOCAP_SAFE_APPEND
}

unsafe fn x_shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls with an open database, and a place for the answer.
    unsafe {
        let otherwise = ffi::SQLITE_IOERR_SHMMAP;
        on_lock(file, otherwise, otherwise, |lock| {
            lock.shm_map(region, bytes, extend, out)
        })
    }
}

unsafe fn x_shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    const WRITE_LOCK: c_int = 0;
    const READ_LOCK_0: c_int = 3;
    let gives_up =
        |lock| offset == lock && flags == ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE;

    // SAFETY: SQLite calls with an open database.
    unsafe {
        if !File::handle(file).process.is_current() {
            return inherited(ffi::SQLITE_IOERR_SHMLOCK);
        }
        // A transaction begins: cached data is valid only while the volume is held.
        if flags == ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED
            && let Err(error) = File::handle(file).place.store.still_held()
        {
            return log::failed(&error, ffi::SQLITE_IOERR_SHMLOCK);
        }
        if gives_up(WRITE_LOCK) {
            // Frames of a rolled-back transaction: they must not overwrite those of the next one.
            flush_wal_deferring_error(file);
        }
        // This ends a checkpoint. It may have recorded frames as copied whose shares failed.
        if gives_up(READ_LOCK_0) && locked(&File::handle(file).connection).take_checkpoint_error() {
            on_lock(
                file,
                ffi::SQLITE_OK,
                ffi::SQLITE_IOERR_SHMLOCK,
                LockFile::restore_backfill,
            );
        }
        let otherwise = ffi::SQLITE_IOERR_SHMLOCK;
        on_lock(file, otherwise, otherwise, |lock| {
            lock.shm_lock(offset, count, flags)
        })
    }
}

unsafe fn x_shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: SQLite calls with an open database.
    unsafe {
        flush_wal_deferring_error(file);
        on_lock(file, ffi::SQLITE_OK, ffi::SQLITE_OK, |lock| {
            lock.shm_barrier();
            ffi::SQLITE_OK
        });
    }
}

/// Writes the gathered frames of the log; on failure, the next call on the log returns the error.
///
/// # Safety
/// As `File::handle`.
unsafe fn flush_wal_deferring_error(file: *mut ffi::sqlite3_file) {
    // SAFETY: as promised by the caller.
    unsafe {
        on_connection(file, ffi::SQLITE_OK, |connection, _| {
            connection.flush_wal_deferring_error();
            Ok(ffi::SQLITE_OK)
        });
    }
}

unsafe fn x_shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: SQLite calls with an open database.
    unsafe {
        // In a volume's folder the file of the shared memory stays: other processes identify it by
        // its inode.
        let is_ordinary = File::handle(file).ordinary.is_some();
        let delete = if is_ordinary { delete } else { 0 };
        on_lock(file, ffi::SQLITE_OK, ffi::SQLITE_OK, |lock| {
            lock.shm_unmap(delete)
        })
    }
}

unsafe fn x_fetch(_: *mut ffi::sqlite3_file, _: i64, _: c_int, out: *mut *mut c_void) -> c_int {
    // SAFETY: SQLite gives a place for the result; null tells it to read instead.
    unsafe { out.write(std::ptr::null_mut()) };
    ffi::SQLITE_OK
}

unsafe fn x_unfetch(_: *mut ffi::sqlite3_file, _: i64, _: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}
