//! The entry point of the loadable extension.
//!
//! After `.load libremap_ssd_sqlite`, `sqlite3_load_extension`, or `load_extension` in SQL, the
//! process has a VFS named `remap`. With `REMAP_SSD_SQLITE_DEFAULT` in the environment it is the
//! default one.

use crate::vfs;
use libsqlite3_sys as ffi;
use std::ffi::{c_char, c_int};

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
