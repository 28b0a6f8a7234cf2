//! Finds the connection of a log or journal by the address of its name.
//!
//! ```text
//! database \0 | key \0 value \0 | .. | \0 | journal \0 | log \0
//! ```
//!
//! SQLite has the names of a database and of its files in one piece of memory like this, and opens
//! each by a pointer into it. `sqlite3_database_file_object` gives similar information, but assumes
//! that the name is SQLite's. A VFS above this one may have made up the name, and then that
//! function follows a stray pointer; and it returns the file of the topmost VFS, which is not this
//! one.
//!
//! Invariants: a database is registered from its opening to its closing, as long as SQLite keeps
//! the memory. Only names of registered databases are read.

use crate::connection::Connection;
use crate::forked::PerProcess;
use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Larger than all names and parameters of a database.
const NAMES_BYTES: usize = 1 << 20;

/// Registration of an open database, until dropped.
pub(super) struct Known {
    name: usize,
    connection: Weak<Mutex<Connection>>,
}

/// The names' addresses and the connections of all open databases in this process.
static DATABASES: PerProcess<Mutex<Vec<NamedConnection>>> = PerProcess::new();

type NamedConnection = (usize, Weak<Mutex<Connection>>);

fn databases() -> MutexGuard<'static, Vec<NamedConnection>> {
    let databases = DATABASES.get().lock();
    databases.unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// # Safety
    /// A database was opened by `name`; it stays valid until the result is dropped.
    pub(super) unsafe fn new(name: *const c_char, connection: &Arc<Mutex<Connection>>) -> Self {
        let known = Self {
            name: name.addr(),
            connection: Arc::downgrade(connection),
        };
        name.expose_provenance();
        databases().push((known.name, known.connection.clone()));
        known
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        databases().retain(|(name, connection)| {
            *name != self.name || !connection.ptr_eq(&self.connection)
        });
    }
}

/// The connection of the database that a log's or journal's name belongs to, if SQLite made the
/// name.
pub(super) fn owner(name: *const c_char) -> Option<Arc<Mutex<Connection>>> {
    let known = databases();
    let mut near = known.iter().filter(|(database, _)| {
        let distance = name.addr().wrapping_sub(*database);
        // SAFETY: the database is open, so the name is valid, with the names that SQLite keeps
        // after it.
        distance < NAMES_BYTES
            && unsafe { has_file(std::ptr::with_exposed_provenance(*database), name) }
    });
    near.next().and_then(|(_, connection)| connection.upgrade())
}

/// Returns true if `name` is the journal's or the log's after a database's name.
///
/// # Safety
/// `database` is a name with parameters as SQLite makes it. The names after them are read only if
/// `name` points there.
unsafe fn has_file(database: *const c_char, name: *const c_char) -> bool {
    // SAFETY: as promised by the caller; a pointer that is only compared is not dereferenced.
    unsafe {
        let mut at = database.add(CStr::from_ptr(database).count_bytes() + 1);
        while *at != 0 {
            at = at.add(CStr::from_ptr(at).count_bytes() + 1);
            at = at.add(CStr::from_ptr(at).count_bytes() + 1);
        }
        let journal = at.add(1);
        if name.addr() <= journal.addr() {
            return name == journal;
        }
        name == journal.add(CStr::from_ptr(journal).count_bytes() + 1)
    }
}
