//! The C interface: `remap_files.h` describes each function.
//!
//! Invariants: no panic reaches C++; a failed call returns a negative number or null, and its sentence is
//! the calling thread's `remap_error`. Absent: decisions.

use crate::{Appender, Files, Place, Reader};
use remap_ssd_store::{FileHold, StoreError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// A failed call.
const FAILED: c_int = -1;
/// A failed call: there is no such file.
const MISSING: c_int = -2;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs a call; on failure keeps the sentence, and returns the code by `failed`.
pub(crate) fn guarded<R>(
    failed: impl FnOnce(c_int) -> R,
    call: impl FnOnce() -> Result<R, Failure>,
) -> R {
    let result = catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err("a bug in remap-ssd-leveldb: see standard error".into()));
    result.unwrap_or_else(|error| {
        let is_missing = matches!(error.downcast_ref(), Some(StoreError::NotFound(_)));
        let sentence = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
        LAST.set(sentence);
        failed(if is_missing { MISSING } else { FAILED })
    })
}

pub(crate) fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// # Safety
/// A string of C that lives as long as the result is used.
unsafe fn text<'a>(string: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: as promised by the caller.
    let string = unsafe { CStr::from_ptr(string) };
    string
        .to_str()
        .map_err(|_| "a file name that is no UTF-8".into())
}

/// The sentence of this thread's last failed call, valid until its next one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn remap_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Opens the files at the place that the environment names; 0 and null if it names none.
///
/// # Safety
/// `files` is a place for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_files_open(files: *mut *mut Files) -> c_int {
    guarded(
        |code| code,
        || {
            let place = Place::from_variables(|name| std::env::var(name).ok())?;
            let opened = place.map(|place| place.open()).transpose()?;
            // SAFETY: as promised by the caller.
            unsafe { *files = opened.map_or(null_mut(), boxed) };
            Ok(0)
        },
    )
}

/// Closes what `remap_files_open` opened; null is ignored.
///
/// # Safety
/// It is closed once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_files_close(files: *mut Files) {
    if !files.is_null() {
        guarded(
            |_| (),
            || {
                // SAFETY: it came from `boxed`, and is not used again.
                drop(unsafe { Box::from_raw(files) });
                Ok(())
            },
        );
    }
}

/// Size of a file in bytes.
///
/// # Safety
/// Open files, and a string of C.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_size(files: &Files, name: *const c_char) -> i64 {
    guarded(i64::from, || {
        // SAFETY: as promised by the caller.
        Ok(files.size(unsafe { text(name) }?)? as i64)
    })
}

/// Calls `found` with each name in a folder.
///
/// # Safety
/// Open files, a string of C, and a function that accepts `context`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_list(
    files: &Files,
    folder: *const c_char,
    found: unsafe extern "C" fn(*mut c_void, *const c_char),
    context: *mut c_void,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: as promised by the caller.
            for name in files.list(unsafe { text(folder) }?)? {
                let name = CString::new(name)?;
                // SAFETY: as promised by the caller.
                unsafe { found(context, name.as_ptr()) };
            }
            Ok(0)
        },
    )
}

/// Deletes a file.
///
/// # Safety
/// Open files, and a string of C.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_delete(files: &Files, name: *const c_char) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: as promised by the caller.
            files.delete(unsafe { text(name) }?)?;
            Ok(0)
        },
    )
}

/// Renames a file; one of the new name is replaced at one instant.
///
/// # Safety
/// Open files, and strings of C.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_replace(
    files: &Files,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: as promised by the caller.
            files.replace(unsafe { text(from) }?, unsafe { text(to) }?)?;
            Ok(0)
        },
    )
}

/// Pages shared so far instead of written, and pages that had to be copied.
///
/// # Safety
/// Open files, and places for two numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_shared(files: &Files, shared: &mut u64, copied: &mut u64) {
    let statistics = files.store().statistics();
    (*shared, *copied) = (statistics.pages_shared, statistics.pages_copied);
}

/// Holds a file, so that no other process can; null: another one does, or an error.
///
/// # Safety
/// Open files, and a string of C.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_hold(files: &Files, name: *const c_char) -> *mut FileHold {
    guarded(
        |_| null_mut(),
        || {
            // SAFETY: as promised by the caller.
            Ok(boxed(files.hold(unsafe { text(name) }?)?))
        },
    )
}

/// Ends a hold.
///
/// # Safety
/// It came from `remap_hold`, and ends once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_let_go(hold: *mut FileHold) {
    // SAFETY: it came from `boxed`, and is not used again.
    drop(unsafe { Box::from_raw(hold) });
}

/// Opens a file for reading.
///
/// # Safety
/// Open files, a string of C, and a place for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_reader_open(
    files: &Files,
    name: *const c_char,
    reader: &mut *mut Reader,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: as promised by the caller.
            *reader = boxed(files.reader(unsafe { text(name) }?)?);
            Ok(0)
        },
    )
}

/// Reads up to the end of the file; the number of bytes read.
///
/// # Safety
/// An open reader, and room for `bytes` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_read(
    reader: &Reader,
    offset: u64,
    into: *mut u8,
    bytes: usize,
) -> i64 {
    guarded(i64::from, || {
        // SAFETY: as promised by the caller.
        let into = unsafe { from_raw_parts_mut(into, bytes) };
        Ok(reader.read(offset, into)? as i64)
    })
}

/// Ends reading.
///
/// # Safety
/// It came from `remap_reader_open`, and is closed once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_reader_close(reader: *mut Reader) {
    // SAFETY: it came from `boxed`, and is not used again.
    drop(unsafe { Box::from_raw(reader) });
}

/// Opens a file for appending, empty unless `keep`.
///
/// # Safety
/// Open files, a string of C, and a place for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_appender_open(
    files: &Files,
    name: *const c_char,
    keep: bool,
    appender: &mut *mut Appender,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: as promised by the caller.
            *appender = boxed(files.appender(unsafe { text(name) }?, keep)?);
            Ok(0)
        },
    )
}

/// Appends bytes.
///
/// # Safety
/// An open appender, used by one thread at a time, and `bytes` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_append(
    appender: &mut Appender,
    data: *const u8,
    bytes: usize,
) -> c_int {
    guarded(
        |code| code,
        || {
            // A slice of no bytes may have any address in C++.
            let data = match bytes {
                0 => &[],
                // SAFETY: as promised by the caller.
                _ => unsafe { from_raw_parts(data, bytes) },
            };
            appender.append(data)?;
            Ok(0)
        },
    )
}

/// Appends whole pages of another file by sharing them: 1; 0 if they must be appended as bytes.
///
/// # Safety
/// An open appender, used by one thread at a time, and an open reader.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_share(
    appender: &mut Appender,
    from: &Reader,
    offset: u64,
    bytes: u64,
) -> c_int {
    guarded(
        |code| code,
        || Ok(c_int::from(appender.share(from, offset, bytes)?)),
    )
}

/// Makes all that was appended survive a power cut.
///
/// # Safety
/// An open appender, used by one thread at a time.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_sync(appender: &mut Appender) -> c_int {
    guarded(
        |code| code,
        || appender.sync().map(|()| 0).map_err(Into::into),
    )
}

/// Passes everything on to the store, and ends appending.
///
/// # Safety
/// It came from `remap_appender_open`, and is closed once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_appender_close(appender: *mut Appender) -> c_int {
    // SAFETY: it came from `boxed`, and is not used again.
    let mut appender = unsafe { Box::from_raw(appender) };
    guarded(
        |code| code,
        || appender.close().map(|()| 0).map_err(Into::into),
    )
}
