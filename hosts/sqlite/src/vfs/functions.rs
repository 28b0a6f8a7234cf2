//! SQL functions for branches of the connection's database, in the same volume.
//!
//! ```text
//! remap_branch(NAME)            makes NAME, a branch of the main database; returns NAME
//! remap_branch(NAME, SCHEMA)    of an attached database
//! remap_branch_delete(NAME)     deletes a branch; returns NAME
//! ```
//!
//! Invariants: a branch has all committed transactions and no others. It is made under SQLite's
//! write lock, so that no transaction is under way: with a rollback journal the file is the
//! database; in WAL mode it is the file with its log, both of which are branched, the log first.
//! Checkpoints go on, since they change no content. Absent: ordinary files, which have no branches.

use super::JOURNAL;
use super::entry::entry;
use super::file::{self, File};
use crate::connection::Role;
use crate::log;
use crate::place::StorePlace;
use libsqlite3_sys as ffi;
use remap_ssd_store::{NewBranch, OpenOptions, Store, StoreError};
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

type Context = *mut ffi::sqlite3_context;
type Values = *mut *mut ffi::sqlite3_value;

const WAL: &str = "-wal";

/// Why a function failed: a result code and a sentence.
struct Failure(c_int, String);

impl Failure {
    fn new(sentence: impl Into<String>) -> Self {
        Self(ffi::SQLITE_ERROR, sentence.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let otherwise = match error {
            StoreError::Disk(_) => ffi::SQLITE_IOERR,
            _ => ffi::SQLITE_ERROR,
        };
        Self(log::failed(&error, otherwise), error.to_string())
    }
}

/// Adds the functions to a connection.
///
/// # Safety
/// `db` is an open connection.
pub(super) unsafe fn add(db: *mut ffi::sqlite3) -> c_int {
    let branch = entry!(x_branch(context: Context, count: c_int, values: Values) -> (), ffi::SQLITE_ERROR, ());
    let delete = entry!(x_delete(context: Context, count: c_int, values: Values) -> (), ffi::SQLITE_ERROR, ());
    let functions: [(&CStr, c_int, unsafe extern "C" fn(Context, c_int, Values)); 3] = [
        (c"remap_branch", 1, branch),
        (c"remap_branch", 2, branch),
        (c"remap_branch_delete", 1, delete),
    ];

    // Not from triggers and views: a database from elsewhere must not make or delete files.
    let flags = ffi::SQLITE_UTF8 | ffi::SQLITE_DIRECTONLY;
    for (name, arguments, function) in functions {
        // SAFETY: the name is a C string, and the functions have the type that SQLite calls.
        let added = unsafe {
            ffi::sqlite3_create_function_v2(
                db,
                name.as_ptr(),
                arguments,
                flags,
                null_mut(),
                Some(function),
                None,
                None,
                None,
            )
        };

        if added != ffi::SQLITE_OK {
            return added;
        }
    }
    ffi::SQLITE_OK
}

unsafe fn x_branch(context: Context, count: c_int, values: Values) {
    // SAFETY: SQLite gives a context and `count` values.
    unsafe {
        let name = argument(values, 0);
        let schema = if count > 1 {
            argument(values, 1)
        } else {
            Some("main".into())
        };
        let made = match name.zip(schema) {
            Some((name, schema)) => branch(ffi::sqlite3_context_db_handle(context), &name, &schema),
            None => Err(Failure::new("remap_branch: names are text")),
        };
        answer(context, made);
    }
}

unsafe fn x_delete(context: Context, _: c_int, values: Values) {
    // SAFETY: SQLite gives a context and a value.
    unsafe {
        let deleted = match argument(values, 0) {
            Some(name) => delete(ffi::sqlite3_context_db_handle(context), &name),
            None => Err(Failure::new("remap_branch_delete: a name is text")),
        };
        answer(context, deleted);
    }
}

/// An argument as text; `None` for other types.
///
/// # Safety
/// There are more than `at` values.
unsafe fn argument(values: Values, at: usize) -> Option<String> {
    // SAFETY: as promised by the caller; the text is valid until the function returns.
    unsafe {
        let value = *values.add(at);
        if ffi::sqlite3_value_type(value) != ffi::SQLITE_TEXT {
            return None;
        }
        let text = ffi::sqlite3_value_text(value);
        (!text.is_null()).then(|| super::text(text.cast()).to_owned())
    }
}

/// Gives SQLite the result of a function: a name, or an error.
///
/// # Safety
/// `context` is that of the function.
unsafe fn answer(context: Context, result: Result<String, Failure>) {
    // SAFETY: as promised by the caller; SQLite copies the texts.
    unsafe {
        match result {
            Ok(name) => ffi::sqlite3_result_text(
                context,
                name.as_ptr().cast(),
                name.len() as c_int,
                ffi::SQLITE_TRANSIENT(),
            ),
            Err(Failure(code, sentence)) => {
                ffi::sqlite3_result_error(
                    context,
                    sentence.as_ptr().cast(),
                    sentence.len() as c_int,
                );
                ffi::sqlite3_result_error_code(context, code);
            }
        }
    }
}

/// A database of a connection in a volume.
struct Here {
    place: Arc<StorePlace>,
    name: String,
    file: *mut ffi::sqlite3_file,
}

/// The file of a schema.
///
/// # Safety
/// `db` is an open connection.
unsafe fn database(db: *mut ffi::sqlite3, schema: &CStr) -> Result<Here, Failure> {
    let mut file: *mut ffi::sqlite3_file = null_mut();
    let name = schema.to_string_lossy();
    // SAFETY: the operation takes a place for a pointer; only a file of this VFS has its functions.
    unsafe {
        let asked = ffi::sqlite3_file_control(
            db,
            schema.as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            (&raw mut file).cast::<c_void>(),
        );

        let is_ours = asked == ffi::SQLITE_OK && !file.is_null() && file::is_ours(file);
        if !is_ours {
            return Err(Failure::new(format!(
                "{name} is not a database in a volume"
            )));
        }

        let handle = File::handle(file);
        let full = super::text(ffi::sqlite3_db_filename(db, schema.as_ptr()));
        if handle.role != Role::Database || handle.place.ordinary(full).is_some() {
            let why =
                format!("{name} is an ordinary file: branches are made of databases in a volume");
            return Err(Failure::new(why));
        }

        let place = Arc::clone(&handle.place);
        let name = place.name_here(full).map(str::to_owned);
        let name = name.map_err(|error| Failure::new(error.to_string()))?;
        Ok(Here { place, name, file })
    }
}

/// Makes a branch of a schema's database.
///
/// # Safety
/// `db` is an open connection.
unsafe fn branch(db: *mut ffi::sqlite3, to: &str, schema: &str) -> Result<String, Failure> {
    let schema = CString::new(schema).map_err(|_| Failure::new("a name has no zeroes"))?;
    // SAFETY: as promised by the caller.
    unsafe {
        let here = database(db, &schema)?;
        if ffi::sqlite3_get_autocommit(db) == 0 {
            return Err(Failure::new(
                "a branch has committed transactions only: COMMIT or ROLLBACK before remap_branch",
            ));
        }
        let to = here.place.name_here(to).map(str::to_owned);
        let to = to.map_err(|error| Failure::new(error.to_string()))?;

        // 1. the write lock: no transaction is under way  2. what SQLite has written is in the store
        // 3. the branch  4. the lock is released; nothing was written.
        run(db, c"BEGIN IMMEDIATE")?;
        let flushed = file::flush(here.file);
        let made = match flushed {
            ffi::SQLITE_OK => branch_files(&here.place, &here.name, &to),
            code => Err(Failure(code, "the database could not be written".into())),
        };
        let ended = run(db, c"COMMIT");
        made?;
        ended?;
        Ok(to)
    }
}

/// Makes branches of the database's file and its log.
fn branch_files(place: &StorePlace, from: &str, to: &str) -> Result<(), Failure> {
    let store = place.store.as_ref();
    match store.open(to, OpenOptions::default()) {
        Ok(_) => return Err(StoreError::Exists(to.to_owned()).into()),
        // What a cut has left of a branch of this name, or the journal of an earlier database.
        Err(StoreError::NotFound(_)) => delete_beside(store, to)?,
        Err(error) => return Err(error.into()),
    }

    let [log, to_log] = [from, to].map(|name| format!("{name}{WAL}"));
    let has_log = match store.open(&log, OpenOptions::default()) {
        Ok(file) => store.size(file)? > 0,
        Err(StoreError::NotFound(_)) => false,
        Err(error) => return Err(error.into()),
    };
    let with_log = NewBranch {
        from: &log,
        to: &to_log,
    };
    let mut list = if has_log { vec![with_log] } else { Vec::new() };
    list.push(NewBranch { from, to });
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(store.branch(&list, now.map_or(0, |since| since.as_secs()))?)
}

/// Deletes a branch of the volume of the main database.
///
/// # Safety
/// `db` is an open connection.
unsafe fn delete(db: *mut ffi::sqlite3, name: &str) -> Result<String, Failure> {
    // SAFETY: as promised by the caller.
    let here = unsafe { database(db, c"main") }?;
    let store = here.place.store.as_ref();
    let name = here.place.name_here(name);
    let name = name.map_err(|error| Failure::new(error.to_string()))?;
    if name == here.name {
        return Err(Failure::new(format!("{name} is open in this connection")));
    }

    // No other process has it open, nor opens it meanwhile.
    let _hold = store.hold_file(name, true)?;
    let found = store.list()?.into_iter().find(|info| info.name == name);
    match found {
        None => return Err(StoreError::NotFound(name.to_owned()).into()),
        Some(info) if info.branch.is_none() => {
            return Err(Failure::new(format!("{name} is a database, not a branch")));
        }
        Some(_) => {}
    }
    // 1. the branch  2. its log and journal. Cut between: a database of this name ignores them.
    store.delete(name)?;
    delete_beside(store, name)?;
    Ok(name.to_owned())
}

/// Deletes the log and the journal of a database that does not exist.
fn delete_beside(store: &dyn Store, name: &str) -> Result<(), StoreError> {
    for suffix in [WAL, JOURNAL] {
        match store.delete(&format!("{name}{suffix}")) {
            Err(StoreError::NotFound(_)) | Ok(()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs a statement.
///
/// # Safety
/// `db` is an open connection.
unsafe fn run(db: *mut ffi::sqlite3, sql: &CStr) -> Result<(), Failure> {
    // SAFETY: as promised by the caller; nothing is called for rows.
    unsafe {
        match ffi::sqlite3_exec(db, sql.as_ptr(), None, null_mut(), null_mut()) {
            ffi::SQLITE_OK => Ok(()),
            code => Err(Failure(
                code,
                super::text(ffi::sqlite3_errmsg(db)).to_owned(),
            )),
        }
    }
}
