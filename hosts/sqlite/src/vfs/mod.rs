//! The VFS registered with SQLite: names, opening and deleting files. (SQLite: "The OS Backend
//! (VFS) To SQLite".)
//!
//! ```text
//! database, log, journal   this crate: `Connection` on a store
//! locks, shared memory     the system's own VFS, on a small file for each database
//! temporary files, time    the system's own VFS
//! ```
//!
//! Invariants: a log or journal belongs to the connection whose database SQLite names for it. In a
//! volume, a journal that SQLite deletes is emptied and keeps its space: creating a file costs two
//! flushes, and each transaction has a journal.
//!
//! Absent: the contents of files.

mod beside;
mod entry;
mod file;
mod functions;
mod inherited;
mod lock;
mod open;
mod ordinary;
mod owners;
mod refused;

#[cfg(feature = "loadable_extension")]
pub(crate) use {entry::guarded, file::answer};

use crate::journal::Journal;
use crate::log;
use crate::made;
use crate::mark::{Mark, STAMP_BYTES};
use crate::parameters;
use crate::place::{self, PlaceError, Spec, StorePlace};
use entry::entry;
use inherited::settle;
use libsqlite3_sys as ffi;
use open::x_open;
use remap_ssd_store::{OpenOptions, StoreError};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The name of the VFS.
pub const NAME: &CStr = c"remap";

/// Suffix of a journal's name.
const JOURNAL: &str = "-journal";

/// The registered VFS, and the system's one that it uses.
struct Registered {
    ours: *mut ffi::sqlite3_vfs,
    system: *mut ffi::sqlite3_vfs,
}

// SAFETY: both are made once, are never freed, and SQLite itself uses them from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above; this crate does not write to them after registration.
unsafe impl Sync for Registered {}

static REGISTERED: OnceLock<Registered> = OnceLock::new();

/// Registers the VFS with SQLite under the name `remap`, and makes new databases on it reserve the
/// bytes that a log's frame needs.
///
/// # Errors
/// SQLite's result code.
pub fn register(default: bool) -> Result<(), c_int> {
    // SAFETY: SQLite's own functions; a null name asks for the default VFS.
    let system = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    if system.is_null() {
        return Err(ffi::SQLITE_ERROR);
    }
    let registered = REGISTERED.get_or_init(|| Registered {
        ours: Box::into_raw(Box::new(table(system))),
        system,
    });
    inherited::watch_forks();

    // SAFETY: the table is never freed; the function has the type by which SQLite calls it.
    unsafe {
        let result = ffi::sqlite3_vfs_register(registered.ours, c_int::from(default));
        if result != ffi::SQLITE_OK {
            return Err(result);
        }
        type Entry =
            unsafe extern "C" fn(*mut ffi::sqlite3, *mut *mut c_char, *const c_void) -> c_int;
        // The declared type of the function depends on SQLite's version.
        #[allow(clippy::missing_transmute_annotations)]
        let entry = std::mem::transmute::<Entry, _>(entry!(
            reserve(db: *mut ffi::sqlite3, message: *mut *mut c_char, api: *const c_void),
            ffi::SQLITE_ERROR
        ));
        // Called at each opening in this process, also for databases on another VFS.
        match ffi::sqlite3_auto_extension(Some(entry)) {
            ffi::SQLITE_OK => Ok(()),
            result => Err(result),
        }
    }
}

/// Runs at each opening: a new database reserves room for a frame's header at the end of each page,
/// the connection gets the SQL functions, and a database that could not be opened fails with a message.
unsafe fn reserve(db: *mut ffi::sqlite3, message: *mut *mut c_char, _: *const c_void) -> c_int {
    let mut vfs: *mut ffi::sqlite3_vfs = null_mut();
    let mut bytes = STAMP_BYTES as c_int;
    // SAFETY: SQLite calls this with an open connection; each operation takes a pointer to the type
    // given to it.
    unsafe {
        let asked = ffi::sqlite3_file_control(
            db,
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_VFS_POINTER,
            (&raw mut vfs).cast(),
        );
        let is_ours = asked == ffi::SQLITE_OK
            && REGISTERED
                .get()
                .is_some_and(|registered| registered.ours == vfs);

        if is_ours {
            let opened = refused::fail_opening(db, message);
            if opened != ffi::SQLITE_OK {
                return opened;
            }
            ffi::sqlite3_file_control(
                db,
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_RESERVE_BYTES,
                (&raw mut bytes).cast(),
            );
            return functions::add(db);
        }
    }
    ffi::SQLITE_OK
}

type Vfs = *mut ffi::sqlite3_vfs;
type Symbol = Option<unsafe extern "C" fn(Vfs, *mut c_void, *const c_char)>;

/// A function about the system rather than files: the system's own.
macro_rules! passed_on {
    ($method:ident($($arg:ident: $type:ty),*) -> $result:ty, $otherwise:expr) => {{
        unsafe fn pass_on(_: Vfs, $($arg: $type),*) -> $result {
            let method = system().$method;
            // SAFETY: the arguments are those that SQLite gave us.
            method.map_or($otherwise, |call| unsafe { call(system_pointer(), $($arg),*) })
        }
        Some(entry!(pass_on(vfs: Vfs, $($arg: $type),*) -> $result, ffi::SQLITE_ERROR, $otherwise))
    }};
}

/// This VFS's table of functions.
fn table(system: *mut ffi::sqlite3_vfs) -> ffi::sqlite3_vfs {
    // SAFETY: SQLite's default VFS is valid for as long as the process.
    let theirs = unsafe { *system };

    ffi::sqlite3_vfs {
        iVersion: 2,
        szOsFile: theirs.szOsFile.max(size_of::<file::File>() as c_int),
        mxPathname: theirs.mxPathname.max(1024),
        pNext: null_mut(),
        zName: NAME.as_ptr(),
        pAppData: null_mut(),
        xOpen: Some(entry!(
            x_open(
                vfs: Vfs,
                name: *const c_char,
                file: *mut ffi::sqlite3_file,
                flags: c_int,
                out_flags: *mut c_int
            ),
            ffi::SQLITE_CANTOPEN
        )),
        xDelete: Some(entry!(
            x_delete(vfs: Vfs, name: *const c_char, sync: c_int),
            ffi::SQLITE_IOERR_DELETE
        )),
        xAccess: Some(entry!(
            x_access(vfs: Vfs, name: *const c_char, flags: c_int, out: *mut c_int),
            ffi::SQLITE_IOERR_ACCESS
        )),
        xFullPathname: Some(entry!(
            x_full_pathname(vfs: Vfs, name: *const c_char, bytes: c_int, out: *mut c_char),
            ffi::SQLITE_CANTOPEN
        )),
        xDlOpen: passed_on!(xDlOpen(name: *const c_char) -> *mut c_void, null_mut()),
        xDlError: passed_on!(xDlError(bytes: c_int, out: *mut c_char) -> (), ()),
        xDlSym: passed_on!(xDlSym(library: *mut c_void, name: *const c_char) -> Symbol, None),
        xDlClose: passed_on!(xDlClose(library: *mut c_void) -> (), ()),
        xRandomness: passed_on!(xRandomness(bytes: c_int, out: *mut c_char) -> c_int, 0),
        xSleep: passed_on!(xSleep(microseconds: c_int) -> c_int, 0),
        xCurrentTime: passed_on!(xCurrentTime(out: *mut f64) -> c_int, ffi::SQLITE_ERROR),
        xGetLastError: passed_on!(xGetLastError(bytes: c_int, out: *mut c_char) -> c_int, 0),
        xCurrentTimeInt64: passed_on!(
            xCurrentTimeInt64(out: *mut ffi::sqlite3_int64) -> c_int,
            ffi::SQLITE_ERROR
        ),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }
}

fn system() -> &'static ffi::sqlite3_vfs {
    let registered = REGISTERED
        .get()
        .expect("SQLite calls us after we have been registered");
    // SAFETY: it is valid for as long as the process, and is not written to.
    unsafe { &*registered.system }
}

/// The system's VFS, as an argument.
fn system_pointer() -> *mut ffi::sqlite3_vfs {
    REGISTERED
        .get()
        .expect("SQLite calls us after we have been registered")
        .system
}

/// Converts a C string from SQLite; empty if it is null or not UTF-8.
///
/// # Safety
/// It is null or a C string that outlives the result.
unsafe fn text<'a>(name: *const c_char) -> &'a str {
    if name.is_null() {
        return "";
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default()
}

/// A parameter of the URI of a database.
///
/// # Safety
/// `name` is a file name that SQLite made.
unsafe fn parameter(name: *const c_char, key: &CStr) -> Option<String> {
    // SAFETY: as promised by the caller; the result lives as long as the name.
    let value = unsafe { text(ffi::sqlite3_uri_parameter(name, key.as_ptr())) };
    (!value.is_empty()).then(|| value.to_string())
}

/// Returns true if SQLite takes no locks, since the name's parameters say that there are no writers
/// or that the program handles locking.
///
/// # Safety
/// `name` is a file name that SQLite made.
unsafe fn is_without_locks(name: *const c_char) -> bool {
    // SAFETY: as promised by the caller.
    [c"nolock", c"immutable"]
        .iter()
        .any(|key| unsafe { ffi::sqlite3_uri_boolean(name, key.as_ptr(), 0) != 0 })
}

/// An error if one of a name's parameters is not allowed.
///
/// # Safety
/// `name` is a file name that SQLite made.
unsafe fn unknown_parameter(name: *const c_char) -> Option<String> {
    // SAFETY: as promised by the caller; keys live as long as the name. A null follows the last
    // one.
    let keys = (0..)
        .map(|at| unsafe { ffi::sqlite3_uri_key(name, at) })
        .take_while(|key| !key.is_null())
        .map(|key| unsafe { text(key) });
    // SAFETY: as above.
    let names_us = unsafe { parameter(name, c"vfs") }.as_deref() == NAME.to_str().ok();
    parameters::unknown(keys, names_us)
}

/// The location given by a name's parameters or the environment.
///
/// # Safety
/// `name` is a file name that SQLite made.
unsafe fn spec(name: *const c_char) -> Result<Option<Spec>, PlaceError> {
    // SAFETY: passed on from the caller.
    let parameter = |key| unsafe { parameter(name, key) };

    let number = |text: Option<String>| match text {
        None => Ok(1),
        Some(text) => text.parse().map_err(|_| {
            PlaceError::Parameter(format!("nsid={text}: namespaces are numbers from 1 on"))
        }),
    };
    let environment = |key: &str| std::env::var(key).ok().filter(|value| !value.is_empty());

    // SAFETY: passed on from the caller.
    if let Some(why) = unsafe { unknown_parameter(name) } {
        return Err(PlaceError::Parameter(why));
    }

    let (device, image) = (parameter(c"device"), parameter(c"image"));
    let (memory, store) = (parameter(c"memory"), parameter(c"store"));
    let places = [&device, &image, &memory, &store];
    if places.into_iter().flatten().count() > 1 {
        return Err(PlaceError::Parameter(
            "a database is in one place: name one of device=, image=, memory= and store=".into(),
        ));
    }
    if let Some(name) = store {
        return Ok(Some(Spec::Mounted(name)));
    }
    if let Some(text) = memory {
        return Ok(Some(Spec::Memory(made::size("memory", &text)?)));
    }
    if let Some(text) = parameter(c"size") {
        let bytes = made::size("size", &text)?;
        let folder = image.as_ref().ok_or_else(|| {
            PlaceError::Parameter(
                "size= is that of a new device in a folder: name it with image=".into(),
            )
        })?;
        // As SQLite creates a database: not for a program that only wants an existing one.
        if !matches!(parameter(c"mode").as_deref(), Some("ro" | "rw")) {
            made::in_folder(Path::new(folder), bytes)?;
        }
    }
    // An absolute name needs nothing from the environment.
    // SAFETY: as above.
    let is_full = place::is_full(unsafe { text(name) });
    let (device, image) = match (device, image) {
        (None, None) if is_full => return Ok(None),
        (None, None) if environment("REMAP_SSD_FOLDER").is_some() => return Ok(Some(Spec::Files)),
        (None, None) => (
            environment("REMAP_SSD_DEVICE"),
            environment("REMAP_SSD_IMAGE"),
        ),
        named => named,
    };

    let nsid = number(parameter(c"nsid"))?;
    Ok(match (device, image) {
        (Some(address), _) => Some(Spec::Device {
            address,
            nsid,
            nqn: parameter(c"nqn"),
            hostnqn: parameter(c"hostnqn"),
            secret: parameter(c"secret"),
        }),
        (None, Some(folder)) => Some(Spec::Image {
            folder: PathBuf::from(folder),
            nsid,
        }),
        (None, None) => None,
    })
}

unsafe fn x_full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    settle();
    refused::keep(None);
    // SAFETY: SQLite asks for the full name of a name that it made itself.
    let (given, found) = unsafe { (text(name), full_name(name)) };
    let full = match found {
        Ok(Some(full)) => full,
        Ok(None) => {
            // SAFETY: the arguments are those that SQLite gave us.
            return unsafe {
                system().xFullPathname.map_or(ffi::SQLITE_CANTOPEN, |call| {
                    call(system_pointer(), name, bytes, out)
                })
            };
        }
        Err(error) => {
            let code = refused(&error);
            // SAFETY: as above.
            if unsafe { is_without_locks(name) } {
                return code;
            }
            // Reported by the opening that follows.
            let sentence = format!("remap: {error}");
            let refusal = refused::Refusal { code, sentence };
            refused::keep(Some((given.to_owned(), refusal)));
            given.to_owned()
        }
    };

    let room = usize::try_from(bytes).unwrap_or(0);
    if full.len() >= room {
        return refused(&PlaceError::Parameter(format!(
            "{given}: the name is too long"
        )));
    }
    // SAFETY: SQLite's buffer has `bytes` bytes, and the name with its zero is not longer.
    unsafe {
        std::ptr::copy_nonoverlapping(full.as_ptr(), out.cast(), full.len());
        out.add(full.len()).write(0);
    }
    ffi::SQLITE_OK
}

/// The full name of a file in a volume; `None` if the system is responsible for it.
///
/// # Safety
/// `name` is a file name that SQLite made.
unsafe fn full_name(name: *const c_char) -> Result<Option<String>, PlaceError> {
    // SAFETY: passed on from the caller.
    let (given, spec) = unsafe { (text(name), spec(name)?) };
    let place = match spec {
        Some(Spec::Files) => None,
        Some(spec) => Some(place::hold(&spec)?),
        None if place::is_full(given) || place::is_in_volume(given) => None,
        None => place::last(),
    };
    let Some(place) = place else { return Ok(None) };
    Ok(Some(place.full_name(place.name_here(given)?)))
}

/// Logs an error of a location, and returns its result code.
fn refused(error: &PlaceError) -> c_int {
    match error {
        PlaceError::Store {
            error: error @ (StoreError::InUse | StoreError::Held(_)),
            ..
        } => log::failed(error, ffi::SQLITE_CANTOPEN),
        error => {
            log::note(ffi::SQLITE_CANTOPEN, error);
            ffi::SQLITE_CANTOPEN
        }
    }
}

/// The place of a full name, and the name in it, if it is in a volume.
fn volume_of(full: &str) -> Result<Option<(std::sync::Arc<StorePlace>, String)>, PlaceError> {
    if !place::is_in_volume(full) {
        return Ok(None);
    }
    place::of_full_name(full).map(Some)
}

/// Opens the file of a journal in a volume, which may have no journal in it.
fn journal_in(place: &StorePlace, name: &str) -> Result<Option<Journal>, StoreError> {
    match place.store.open(name, OpenOptions::default()) {
        Ok(file) => {
            let mark = Mark::of(&place.store.identity().unwrap_or_default());
            Ok(Some(Journal::open(
                std::sync::Arc::clone(&place.store),
                file,
                mark,
                None,
            )))
        }
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

unsafe fn x_delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite gives a C string.
    let full = unsafe { text(name) };

    match volume_of(full) {
        // SAFETY: the arguments are those that SQLite gave us.
        Ok(None) => unsafe {
            system().xDelete.map_or(ffi::SQLITE_IOERR_DELETE, |call| {
                call(system_pointer(), name, sync)
            })
        },
        Ok(Some((place, name))) => match delete(&place, &name) {
            Ok(true) => ffi::SQLITE_OK,
            Ok(false) => ffi::SQLITE_IOERR_DELETE_NOENT,
            Err(error) => log::failed(&error, ffi::SQLITE_IOERR_DELETE),
        },
        Err(error) => refused(&error),
    }
}

/// Deletes a file in a volume. Returns false if there was none.
fn delete(place: &StorePlace, name: &str) -> Result<bool, StoreError> {
    if !name.ends_with(JOURNAL) {
        return match place.store.delete(name) {
            Ok(()) => Ok(true),
            Err(StoreError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        };
    }
    let Some(mut journal) = journal_in(place, name)? else {
        return Ok(false);
    };
    if !journal.exists()? {
        return Ok(false);
    }
    // Durable even if SQLite does not ask for it, as the next transaction reuses the space; unless
    // the transaction itself was never synced.
    journal.delete(&place.never_synced)?;
    Ok(true)
}

unsafe fn x_access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives a C string.
    let full = unsafe { text(name) };
    let there = match volume_of(full) {
        // SAFETY: the arguments are those that SQLite gave us.
        Ok(None) => unsafe {
            return system().xAccess.map_or(ffi::SQLITE_IOERR_ACCESS, |call| {
                call(system_pointer(), name, flags, out)
            });
        },
        Ok(Some((place, name))) => exists(&place, &name),
        Err(error) => {
            log::note(ffi::SQLITE_IOERR_ACCESS, &error);
            return ffi::SQLITE_IOERR_ACCESS;
        }
    };

    match there {
        Ok(there) => {
            // SAFETY: SQLite gives a place for the result.
            unsafe { out.write(there.into()) };
            ffi::SQLITE_OK
        }
        Err(error) => log::failed(&error, ffi::SQLITE_IOERR_ACCESS),
    }
}

/// Returns true if a file in a volume exists and is not empty.
fn exists(place: &StorePlace, name: &str) -> Result<bool, StoreError> {
    let found = if name.ends_with(JOURNAL) {
        journal_in(place, name)?.map_or(Ok(false), |mut journal| journal.exists())
    } else {
        // As in SQLite's VFS for Unix, an empty file does not exist.
        place
            .store
            .open(name, OpenOptions::default())
            .and_then(|file| place.store.size(file))
            .map(|bytes| bytes > 0)
    };

    // Another process may delete it between the two calls: the last one to close a database deletes
    // its log.
    let is_gone = matches!(found, Err(StoreError::NotFound(_) | StoreError::Gone));
    if is_gone { Ok(false) } else { found }
}
