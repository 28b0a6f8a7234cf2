//! One sentence for SQLite's own log (`sqlite3_config(SQLITE_CONFIG_LOG, ...)`): the result code
//! says what, this says why.

use libsqlite3_sys as ffi;
use remap_ssd_store::StoreError;
use std::ffi::{CString, c_int};
use std::fmt::Display;
use std::io::ErrorKind;

/// Writes a sentence to SQLite's log.
pub(crate) fn note(code: c_int, sentence: &dyn Display) {
    let Ok(text) = CString::new(format!("remap: {sentence}").replace('\0', " ")) else {
        return;
    };
    // SAFETY: the format takes one string, and both are C strings that live until the call returns.
    unsafe { ffi::sqlite3_log(code, c"%s".as_ptr(), text.as_ptr()) };
}

/// Logs why a store did not do something, and answers SQLite's result code for it; `otherwise` says
/// what was tried.
pub(crate) fn failed(error: &StoreError, otherwise: c_int) -> c_int {
    let code = match error {
        StoreError::Full { .. } | StoreError::NoSlot(_) | StoreError::Fragmented(_) => {
            ffi::SQLITE_FULL
        }
        StoreError::System { error, .. } if error.kind() == ErrorKind::StorageFull => {
            ffi::SQLITE_FULL
        }
        StoreError::Damaged(_) => ffi::SQLITE_IOERR_CORRUPTFS,
        StoreError::InUse | StoreError::Held(_) | StoreError::FileInUse(_) => ffi::SQLITE_BUSY,
        StoreError::NotFound(_) | StoreError::NoVolume(_) | StoreError::BadName { .. } => {
            ffi::SQLITE_CANTOPEN
        }
        _ => otherwise,
    };
    note(code, error);
    code
}
