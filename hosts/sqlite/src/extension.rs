//! The entry point of the loadable extension.
//!
//! After `.load libremap_ssd_sqlite`, `sqlite3_load_extension`, or `load_extension` in SQL, the
//! process has a VFS named `remap`. With `REMAP_SSD_SQLITE_DEFAULT` in the environment it is the
//! default one.

use crate::log;
use crate::vfs;
use libsqlite3_sys as ffi;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The table of functions of the SQLite that has loaded the extension. A process may have several
/// (APSW brings its own). All calls go through one table, so a second SQLite would get memory and
/// files of the first.
static LOADED_BY: AtomicPtr<ffi::sqlite3_api_routines> = AtomicPtr::new(null_mut());

/// Called by SQLite when it loads the extension.
///
/// # Safety
/// As SQLite does: a connection, a place for a message, and its own table of functions.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sqlite3_extension_init(
    _: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    api: *mut ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: passed on from the caller.
    let loaded = vfs::guarded(ffi::SQLITE_ERROR, || unsafe { load(message, api) });
    loaded.unwrap_or(ffi::SQLITE_ERROR)
}

/// # Safety
/// As `sqlite3_extension_init`.
unsafe fn load(message: *mut *mut c_char, api: *mut ffi::sqlite3_api_routines) -> c_int {
    let first = LOADED_BY.compare_exchange(null_mut(), api, Ordering::AcqRel, Ordering::Acquire);
    if first.is_err_and(|by| by != api) {
        let sentence = "remap: another SQLite in this process has loaded the extension already; \
                        load a copy of the file";
        // SAFETY: the table is that of the SQLite that calls, which frees the message.
        return unsafe { refuse_with(api, message, sentence) };
    }

    // SAFETY: the table is SQLite's own.
    if let Err(error) = unsafe { ffi::rusqlite_extension_init2(api) } {
        // SAFETY: the table has `malloc` if it has anything; the place for the message is SQLite's.
        return unsafe {
            refuse(
                message,
                ffi::SQLITE_ERROR,
                &format!("remap: this SQLite is too old: {error:?}; 3.34 or later is needed"),
            )
        };
    }

    let default =
        std::env::var_os("REMAP_SSD_SQLITE_DEFAULT").is_some_and(|value| !value.is_empty());
    match vfs::register(default) {
        Ok(()) => ffi::SQLITE_OK_LOAD_PERMANENTLY,
        // SAFETY: as above.
        Err(code) => unsafe {
            refuse(
                message,
                code,
                &format!("remap: the VFS could not be registered: result {code}"),
            )
        },
    }
}

/// As `refuse`, for an SQLite whose functions are not those that this crate calls.
///
/// # Safety
/// `api` is the table of the SQLite that calls, and `message` its place for a message, or null.
unsafe fn refuse_with(
    api: *mut ffi::sqlite3_api_routines,
    message: *mut *mut c_char,
    text: &str,
) -> c_int {
    // SAFETY: as promised by the caller; the buffer has room for the text and its zero.
    unsafe {
        if let Some(malloc) = (*api).malloc
            && !message.is_null()
            && let Ok(bytes) = c_int::try_from(text.len() + 1)
        {
            let buffer = malloc(bytes).cast::<u8>();
            if !buffer.is_null() {
                buffer.copy_from_nonoverlapping(text.as_ptr(), text.len());
                buffer.add(text.len()).write(0);
                *message = buffer.cast();
            }
        }
    }
    ffi::SQLITE_ERROR
}

/// The reason of the calling thread's last failure, if SQLite's result for it was `code` or an
/// extended form of it, or `code` is 0; otherwise null. Valid until the thread's next call. For
/// programs whose SQLite reports numbers only.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn remap_ssd_sqlite_reason(code: c_int) -> *const c_char {
    std::panic::catch_unwind(|| reason(code)).unwrap_or(null())
}

fn reason(code: c_int) -> *const c_char {
    thread_local! {
        static ANSWER: RefCell<CString> = RefCell::default();
    }
    let last = log::take_last().filter(|(last, _)| code == 0 || last & 0xff == code & 0xff);
    let Some(sentence) = last.and_then(|(_, sentence)| CString::new(sentence).ok()) else {
        return null();
    };
    ANSWER.with_borrow_mut(|answer| {
        *answer = sentence;
        answer.as_ptr()
    })
}

/// Stores a message that SQLite frees, and returns the code.
///
/// # Safety
/// `message` is SQLite's place for one, or null.
unsafe fn refuse(message: *mut *mut c_char, code: c_int, text: &str) -> c_int {
    if !message.is_null() {
        // SAFETY: as promised by the caller.
        unsafe { vfs::answer(message, text) };
    }
    code
}
