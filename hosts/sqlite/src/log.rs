//! Error messages in SQLite's own log (`sqlite3_config(SQLITE_CONFIG_LOG, ...)`), which explain the
//! result code. Few programs use that log, so the environment may name another destination:
//! `REMAP_SSD_LOG=stderr`, or a file to append to.

use libsqlite3_sys as ffi;
use remap_ssd_store::StoreError;
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Write};

thread_local! {
    /// The last message of this thread, and the result code that SQLite was given with it.
    static LAST: RefCell<(c_int, String)> = const { RefCell::new((ffi::SQLITE_OK, String::new())) };
}

/// Takes the last message of this thread since the previous call.
pub(crate) fn take_last() -> Option<(c_int, String)> {
    Some(LAST.take()).filter(|(_, sentence)| !sentence.is_empty())
}

/// Writes a line to the destination in `REMAP_SSD_LOG`. Errors are ignored: the program has its
/// result code.
fn write_line(code: c_int, sentence: &str) {
    let Some(place) = std::env::var_os("REMAP_SSD_LOG").filter(|place| !place.is_empty()) else {
        return;
    };
    // In one write, so that lines of several processes stay whole. The message has no line breaks.
    let sentence = sentence.replace(['\n', '\r'], " ");
    let line = format!(
        "remap-ssd: process {}: {sentence} (SQLite result {code})\n",
        std::process::id()
    );
    let _ = if place == "stderr" {
        std::io::stderr().write_all(line.as_bytes())
    } else {
        let file = File::options().append(true).create(true).open(place);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
    };
}

/// Writes a message to the logs.
pub(crate) fn note(code: c_int, sentence: &dyn Display) {
    let sentence = sentence.to_string();
    write_line(code, &sentence);
    LAST.set((code, format!("remap: {sentence}")));
    let Ok(text) = CString::new(format!("remap: {sentence}").replace('\0', " ")) else {
        return;
    };
    // SAFETY: the format takes one string, and both are C strings that live until the call returns.
    unsafe { ffi::sqlite3_log(code, c"%s".as_ptr(), text.as_ptr()) };
}

/// Logs a store's error, and returns SQLite's result code for it; `otherwise` is the code of the
/// failed operation.
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
