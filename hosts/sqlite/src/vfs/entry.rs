//! The functions that SQLite calls.
//!
//! Invariant: no panic reaches SQLite: a call that panics is logged, and returns the result given
//! for that. Every function in a table is made by `entry!`, which adds the guard. Absent: what the
//! functions do.

use crate::log;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function for SQLite that calls a function of the same arguments, and returns a result code if
/// that panics. If it returns no code, the value to return then is given too.
macro_rules! entry {
    ($call:ident($($arg:ident: $type:ty),*), $code:expr) => {
        entry!($call($($arg: $type),*) -> std::ffi::c_int, $code, $code)
    };
    ($call:ident($($arg:ident: $type:ty),*) -> $result:ty, $code:expr, $otherwise:expr) => {{
        unsafe extern "C" fn entry($($arg: $type),*) -> $result {
            // SAFETY: the arguments are those that SQLite gives to this function.
            let call = || unsafe { $call($($arg),*) };
            $crate::vfs::entry::guarded($code, call).unwrap_or($otherwise)
        }
        entry
    }};
}
pub(super) use entry;

/// A file that SQLite has open.
pub(super) type OpenFile = *mut libsqlite3_sys::sqlite3_file;

/// The functions of a kind of file, from the functions `x_...` in scope; `rest` are the entries
/// after those of version 1.
macro_rules! file_methods {
    (version: $version:expr, $($rest:tt)*) => {{
        use $crate::vfs::entry::OpenFile;
        ffi::sqlite3_io_methods {
            iVersion: $version,
            xClose: Some(entry!(x_close(file: OpenFile), ffi::SQLITE_IOERR_CLOSE)),
            xRead: Some(entry!(
                x_read(file: OpenFile, into: *mut c_void, bytes: c_int, offset: i64),
                ffi::SQLITE_IOERR_READ
            )),
            xWrite: Some(entry!(
                x_write(file: OpenFile, data: *const c_void, bytes: c_int, offset: i64),
                ffi::SQLITE_IOERR_WRITE
            )),
            xTruncate: Some(entry!(
                x_truncate(file: OpenFile, size: i64),
                ffi::SQLITE_IOERR_TRUNCATE
            )),
            xSync: Some(entry!(x_sync(file: OpenFile, flags: c_int), ffi::SQLITE_IOERR_FSYNC)),
            xFileSize: Some(entry!(
                x_file_size(file: OpenFile, out: *mut i64),
                ffi::SQLITE_IOERR_FSTAT
            )),
            xLock: Some(entry!(x_lock(file: OpenFile, level: c_int), ffi::SQLITE_IOERR_LOCK)),
            xUnlock: Some(entry!(x_unlock(file: OpenFile, level: c_int), ffi::SQLITE_IOERR_UNLOCK)),
            xCheckReservedLock: Some(entry!(
                x_check_reserved_lock(file: OpenFile, out: *mut c_int),
                ffi::SQLITE_IOERR_CHECKRESERVEDLOCK
            )),
            xFileControl: Some(entry!(
                x_file_control(file: OpenFile, operation: c_int, argument: *mut c_void),
                ffi::SQLITE_IOERR
            )),
            xSectorSize: Some(entry!(
                x_sector_size(file: OpenFile) -> c_int,
                ffi::SQLITE_IOERR, 4096
            )),
            xDeviceCharacteristics: Some(entry!(
                x_device_characteristics(file: OpenFile) -> c_int,
                ffi::SQLITE_IOERR, 0
            )),
            $($rest)*
        }
    }};
}
pub(super) use file_methods;

/// Runs a call from SQLite; `None` if it panics.
pub(crate) fn guarded<T>(code: c_int, call: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(call)).ok();
    if done.is_none() {
        let why = "a bug of the extension: a call was ended by a panic";
        // In a thread that ends, the log may be gone.
        let _ = catch_unwind(|| log::note(code, &why));
    }
    done
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::path::Path;

    #[test]
    fn a_call_that_panics_returns_its_result() {
        unsafe fn half(number: c_int) -> c_int {
            assert!(number % 2 == 0, "an even number");
            number / 2
        }
        let entry = entry!(half(number: c_int), 99);
        // SAFETY: it takes any number.
        assert_eq!(unsafe { [entry(8), entry(9)] }, [4, 99]);
    }

    /// The handlers of `fork` are called by the C library. The extension's two functions have the guard
    /// in their bodies, since programs look for their names.
    #[test]
    fn no_function_that_sqlite_calls_is_without_the_guard() {
        let allowed = [
            "entry",
            "close_gate",
            "open_gate",
            "leave_gate",
            "sqlite3_extension_init",
            "remap_ssd_sqlite_reason",
        ];

        let (mut folders, mut found) = (vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")], 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder of sources") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }

                let text = std::fs::read_to_string(&path).expect("a source file");
                for after in text.split("extern \"C\" fn ").skip(1) {
                    let name = after.split('(').next().expect("a first part");
                    assert!(allowed.contains(&name), "{name} in {}", path.display());
                    found += 1;
                }
            }
        }

        assert_eq!(found, allowed.len());
    }
}
