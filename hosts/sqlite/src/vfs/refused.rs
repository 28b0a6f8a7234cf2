//! A database that could not be opened: SQLite's core sees it as open until SQLite runs its
//! extensions, and then its opening fails with a message.
//!
//! A VFS can only return a number, and programs that see no more than `sqlite3_errmsg` (Python's
//! module, most drivers) would report "unable to open database file" for every reason. An automatic
//! extension, which SQLite runs at the end of each opening, can return a message (`reserve` in the
//! parent).
//!
//! Invariants: such a file cannot be read, locked or written: where no extension runs (`ATTACH`)
//! the first lock returns the result code of the opening. A name whose parameters say that SQLite
//! takes no locks fails at once.
//!
//! Absent: files of the operating system, whose failures are the same as with stock SQLite.

use super::entry::{entry, file_methods};
use super::file::answer;
use libsqlite3_sys as ffi;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};

/// Reason and result code of a failed opening.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub code: c_int,
    pub sentence: String,
}

thread_local! {
    /// The refusal of a name, kept between the call for its full name and the one that opens it.
    static PENDING: RefCell<Option<(String, Refusal)>> = const { RefCell::new(None) };
}

/// Keeps a refusal for the opening that follows; `None` clears an earlier one.
pub(super) fn keep(pending: Option<(String, Refusal)>) {
    PENDING.set(pending);
}

/// Takes the refusal of a name.
pub(super) fn take(name: &str) -> Option<Refusal> {
    PENDING
        .take()
        .filter(|(refused, _)| refused == name)
        .map(|(_, refusal)| refusal)
}

/// The file as SQLite holds it.
#[repr(C)]
pub(super) struct RefusedFile {
    base: ffi::sqlite3_file,
    refusal: *mut Refusal,
}

impl RefusedFile {
    pub(super) fn new(refusal: Refusal) -> Self {
        Self {
            base: ffi::sqlite3_file { pMethods: &METHODS },
            refusal: Box::into_raw(Box::new(refusal)),
        }
    }
}

/// Fails an opening whose database is such a file. Returns `SQLITE_OK` for other files.
///
/// # Safety
/// `db` is an open connection, `message` a place for a message that SQLite frees.
pub(super) unsafe fn fail_opening(db: *mut ffi::sqlite3, message: *mut *mut c_char) -> c_int {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: the operation takes a place for a pointer; the functions of a file are at its
    // beginning, and only a file with `METHODS` is a `RefusedFile`.
    unsafe {
        let asked = ffi::sqlite3_file_control(
            db,
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            (&raw mut file).cast(),
        );

        if asked != ffi::SQLITE_OK || file.is_null() || !std::ptr::eq((*file).pMethods, &METHODS) {
            return ffi::SQLITE_OK;
        }

        let refusal = &*(*file.cast::<RefusedFile>()).refusal;
        if !message.is_null() {
            answer(message, &refusal.sentence);
        }
        refusal.code
    }
}

static METHODS: ffi::sqlite3_io_methods = file_methods! {
    // No shared memory, and no mapping.
    version: 1,
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

unsafe fn code(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite calls with an open file of this VFS.
    unsafe { (*(*file.cast::<RefusedFile>()).refusal).code }
}

unsafe fn x_close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and uses it no more.
    drop(unsafe { Box::from_raw((*file.cast::<RefusedFile>()).refusal) });
    ffi::SQLITE_OK
}

/// During opening SQLite reads the header without a lock: there is none.
unsafe fn x_read(_: *mut ffi::sqlite3_file, into: *mut c_void, bytes: c_int, _: i64) -> c_int {
    // SAFETY: SQLite's buffer has `bytes` bytes.
    unsafe { into.cast::<u8>().write_bytes(0, bytes as usize) };
    ffi::SQLITE_IOERR_SHORT_READ
}

unsafe fn x_write(file: *mut ffi::sqlite3_file, _: *const c_void, _: c_int, _: i64) -> c_int {
    // SAFETY: as above.
    unsafe { code(file) }
}

unsafe fn x_truncate(file: *mut ffi::sqlite3_file, _: i64) -> c_int {
    // SAFETY: as above.
    unsafe { code(file) }
}

unsafe fn x_sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { code(file) }
}

unsafe fn x_file_size(_: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite gives a place for the result.
    unsafe { out.write(0) };
    ffi::SQLITE_OK
}

unsafe fn x_lock(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { code(file) }
}

unsafe fn x_unlock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe fn x_check_reserved_lock(_: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite gives a place for the result.
    unsafe { out.write(0) };
    ffi::SQLITE_OK
}

unsafe fn x_file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe fn x_sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe fn x_device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    0
}
