//! Opening a file: finds its connection, and its role there.
//!
//! Invariants: an open file is closed by `file::x_close`. An open database has its lock file.

use super::file::{File, Handle};
use super::inherited::settle;
use super::lock::LockFile;
use super::ordinary::{Opened, make_like, may_write};
use super::owners::{self, Known};
use super::refused::{self, Refusal, RefusedFile};
use super::{JOURNAL, is_without_locks, refused as no_place, system, system_pointer, text};
use crate::connection::{Connection, Role};
use crate::log;
use crate::place::{self, StorePlace};
use libsqlite3_sys as ffi;
use remap_ssd_nvme::process::Process;
use remap_ssd_store::{Create, FileHold, OpenOptions, StoreError};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

/// SQLite's purposes for files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Database,
    Wal,
    Journal,
    SuperJournal,
    /// Deleted with its connection: not shared, not kept.
    Temporary,
}

impl Kind {
    fn of(flags: c_int, name: &str) -> Self {
        let has = |flag| flags & flag != 0;
        // SQLite searches other databases' journals for the super-journal's name, and opens them as
        // super-journals.
        let is_child = has(ffi::SQLITE_OPEN_SUPER_JOURNAL) && name.ends_with(JOURNAL);
        if name.is_empty() || has(ffi::SQLITE_OPEN_DELETEONCLOSE) {
            Self::Temporary
        } else if has(ffi::SQLITE_OPEN_MAIN_DB) {
            Self::Database
        } else if has(ffi::SQLITE_OPEN_WAL) {
            Self::Wal
        } else if has(ffi::SQLITE_OPEN_MAIN_JOURNAL) || is_child {
            Self::Journal
        } else if has(ffi::SQLITE_OPEN_SUPER_JOURNAL) {
            Self::SuperJournal
        } else {
            Self::Temporary
        }
    }
}

pub(super) unsafe fn x_open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    settle();
    // SAFETY: SQLite gives a C string or null.
    let full = unsafe { text(name) };
    let kind = Kind::of(flags, full);
    if kind == Kind::Temporary {
        // SAFETY: the arguments are those that SQLite gave us, and the file has room for the
        // system's part.
        return unsafe {
            system().xOpen.map_or(ffi::SQLITE_CANTOPEN, |call| {
                call(system_pointer(), name, file, flags, out_flags)
            })
        };
    }

    // SQLite does not close a file whose functions are null.
    // SAFETY: SQLite gives memory for a file of this VFS.
    unsafe { (*file).pMethods = std::ptr::null() };
    let has_owner = flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
    let owner = if has_owner { owners::owner(name) } else { None };
    // SAFETY: SQLite has made the names that it opens databases by.
    let locks = kind == Kind::Database && !unsafe { is_without_locks(name) };
    let opened = open_or_refuse(full, kind, flags, owner, locks);
    if kind == Kind::Database {
        place::release();
    }
    let mut handle = match opened {
        Ok(handle) => handle,
        Err(OpenFailure::Code(code)) => return code,
        Err(OpenFailure::Refused(refusal)) => {
            // SAFETY: the memory is as large as `szOsFile` says.
            unsafe {
                file.cast::<RefusedFile>().write(RefusedFile::new(refusal));
                if !out_flags.is_null() {
                    out_flags.write(flags);
                }
            }
            return ffi::SQLITE_OK;
        }
    };
    let writing = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
    let flags = if handle.read_only {
        flags & !writing | ffi::SQLITE_OPEN_READONLY
    } else {
        flags
    };
    if kind == Kind::Database {
        // SAFETY: SQLite keeps the name until the file is closed.
        handle.known = Some(unsafe { Known::new(name, &handle.connection) });
    }

    // SAFETY: the memory is as large as `szOsFile` says; the handle is given back in `x_close`.
    unsafe {
        file.cast::<File>().write(File::new(handle));
        if !out_flags.is_null() {
            out_flags.write(flags);
        }
    }
    ffi::SQLITE_OK
}

/// Why a file has not been opened.
enum OpenFailure {
    /// As with stock SQLite.
    Code(c_int),
    /// SQLite gets a file whose functions fail with a sentence.
    Refused(Refusal),
}

fn open_or_refuse(
    full: &str,
    kind: Kind,
    flags: c_int,
    owner: Option<Arc<Mutex<Connection>>>,
    locks: bool,
) -> Result<Box<Handle>, OpenFailure> {
    let refusal = (kind == Kind::Database)
        .then(|| refused::take(full))
        .flatten();
    log::take_last();
    if let Some(refusal) = refusal {
        return Err(OpenFailure::Refused(refusal));
    }

    open(full, kind, flags, owner, locks).map_err(|code| {
        // Failures of ordinary files are the same as with stock SQLite.
        let is_ours = locks && place::is_in_volume(full);
        match log::take_last().filter(|_| is_ours) {
            Some((_, sentence)) => OpenFailure::Refused(Refusal { code, sentence }),
            None => OpenFailure::Code(code),
        }
    })
}

fn open(
    full: &str,
    kind: Kind,
    flags: c_int,
    owner: Option<Arc<Mutex<Connection>>>,
    locks: bool,
) -> Result<Box<Handle>, c_int> {
    let (place, name) = place::of_full_name(full).map_err(|error| no_place(&error))?;
    let create = match (
        flags & ffi::SQLITE_OPEN_CREATE != 0,
        flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0,
    ) {
        (true, true) => Create::New,
        (true, false) => Create::IfAbsent,
        (false, _) => Create::Never,
    };
    // Before it is opened: a deleting process checks for this.
    let hold = if kind == Kind::Database {
        place.store.hold_file(&name, false)
    } else {
        Ok(FileHold::NONE)
    };
    let hold = hold.map_err(|error| log::failed(&error, ffi::SQLITE_CANTOPEN))?;
    let opened = attach(&place, &name, kind, create, owner);
    let (connection, role) = opened.map_err(|error| log::failed(&error, ffi::SQLITE_CANTOPEN))?;
    // Tells SQLite if it may only read a database, or its log, that it wanted to write.
    let read_only = match kind {
        Kind::Database if flags & ffi::SQLITE_OPEN_READONLY != 0 => true,
        Kind::Database | Kind::Wal => place.ordinary(&name).is_some_and(|path| !may_write(&path)),
        Kind::Journal | Kind::SuperJournal | Kind::Temporary => false,
    };
    let kept = Arc::clone(&place);
    let mut handle = Handle {
        connection,
        role,
        read_only,
        lock: None,
        known: None,
        ordinary: None,
        beside: None,
        _hold: hold,
        place: kept,
        process: Process::current(),
    };

    if kind == Kind::Database {
        // A missing database leaves no lock file. Where SQLite takes no locks, the folder
        // may be read-only.
        if locks {
            let path = place.lock_path(&name);
            let mut lock = LockFile::open(&path).inspect_err(|code| {
                let path = path.display();
                log::note(
                    *code,
                    &format_args!("{path}, the lock file of {name}, cannot be opened"),
                );
            })?;
            if place.ordinary(&name).is_none() {
                let noted = lock.note_in(&place.store, &name);
                noted.map_err(|error| log::failed(&error, ffi::SQLITE_CANTOPEN))?;
            }
            handle.lock = Some(lock);
        }
        handle.ordinary = place.ordinary(&name).map(Opened::at);
    }
    Ok(Box::new(handle))
}

/// Opens the file in its store, and attaches it to its owner's connection, or to a new one.
fn attach(
    place: &StorePlace,
    name: &str,
    kind: Kind,
    create: Create,
    owner: Option<Arc<Mutex<Connection>>>,
) -> Result<(Arc<Mutex<Connection>>, Role), StoreError> {
    // Readers of these find the end themselves: appending costs no metadata.
    let open_end = kind != Kind::SuperJournal;

    if create != Create::Never
        && let (Some(path), Some(database)) = (place.ordinary(name), database_of(name))
        && let Some(database) = place.ordinary(database)
    {
        make_like(&database, &path).map_err(|error| StoreError::System {
            what: path.display().to_string(),
            error,
        })?;
    }

    let options = OpenOptions {
        // SQLite creates the log of a database at its first read. In a volume, where a file costs
        // flushes and one of a few slots, its first frame creates it: a missing log is empty.
        create: match kind {
            Kind::Wal if place.ordinary(name).is_none() => Create::Never,
            _ => create,
        },
        open_end,
        written_next: false,
    };

    let file = match place.store.open(name, options) {
        Err(StoreError::NotFound(_)) if kind == Kind::Wal && create != Create::Never => None,
        opened => Some(opened?),
    };

    let alone = owner.is_none();
    let connection = owner.unwrap_or_else(|| {
        Arc::new(Mutex::new(Connection::new(
            Arc::clone(&place.store),
            Arc::clone(&place.page_places),
            Arc::clone(&place.never_synced),
        )))
    });

    let role = {
        let mut connection = super::file::locked(&connection);
        let follows = matches!(kind, Kind::Wal | Kind::Journal);
        if alone
            && follows
            && let Some(database) = database_of(name)
        {
            // Pages are shared with the database's file even if SQLite has it from another VFS.
            match place.store.open(database, OpenOptions::default()) {
                Ok(file) => connection.open_database(file)?,
                Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }

        match (kind, file) {
            (_, None) => {
                connection.open_wal_without_file(name);
                Role::Wal
            }
            (Kind::Database, Some(file)) => {
                connection.open_database(file).map(|()| Role::Database)?
            }
            (Kind::Wal, Some(file)) => connection.open_wal(file).map(|()| Role::Wal)?,
            (Kind::Journal, Some(file)) => connection.open_journal(file).map(|()| Role::Journal)?,
            (Kind::SuperJournal | Kind::Temporary, Some(file)) => Role::Plain(file),
        }
    };
    Ok((connection, role))
}

/// The database that a log or journal belongs to, by its name.
fn database_of(name: &str) -> Option<&str> {
    name.strip_suffix("-wal")
        .or_else(|| name.strip_suffix(JOURNAL))
}
