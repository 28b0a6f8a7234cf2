//! Which connection a log or journal belongs to: told by where SQLite has its name.
//!
//! ```text
//! database \0 | key \0 value \0 | .. | \0 | journal \0 | log \0
//! ```
//!
//! SQLite has the names of a database and of its files in one piece of memory like this, and opens
//! each by a pointer into it. `sqlite3_database_file_object` tells as much, but takes it for
//! granted that the name is SQLite's. A VFS above ours may have made it up, and then that function
//! follows a stray pointer; and it names the file of the topmost VFS, which is not ours.
//!
//! Invariants: a database is known from its opening to its closing, as long as SQLite keeps the
//! memory. Nothing is read but names of known databases.

use crate::connection::Connection;
use crate::forked::PerProcess;
use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Longer than all names and parameters of a database are.
const NAMES_BYTES: usize = 1 << 20;

/// A database that is open. It is forgotten when this is dropped.
pub(super) struct Known {
    name: usize,
    connection: Weak<Mutex<Connection>>,
}

/// The names' addresses and the connections of all databases that are open in this process.
static DATABASES: PerProcess<Mutex<Vec<NamedConnection>>> = PerProcess::new();

type NamedConnection = (usize, Weak<Mutex<Connection>>);

fn databases() -> MutexGuard<'static, Vec<NamedConnection>> {
    let databases = DATABASES.get().lock();
    databases.unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// # Safety
    /// `name` is what a database was opened by; it stays valid until the answer is dropped.
    pub unsafe fn new(name: *const c_char, connection: &Arc<Mutex<Connection>>) -> Self {
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

/// The connection of the database to which a log's or journal's name belongs, if it is one that
/// SQLite has made.
pub(super) fn owner(name: *const c_char) -> Option<Arc<Mutex<Connection>>> {
    let known = databases();
    let mut near = known.iter().filter(|(database, _)| {
        let distance = name.addr().wrapping_sub(*database);
        // SAFETY: the database is open, so the name is there, and what SQLite has behind it.
        distance < NAMES_BYTES
            && unsafe { has_file(std::ptr::with_exposed_provenance(*database), name) }
    });
    near.next().and_then(|(_, connection)| connection.upgrade())
}

/// Whether `name` is the journal's or the log's behind a database's name.
///
/// # Safety
/// `database` is a name with parameters as SQLite makes it. What is behind them is read only if
/// `name` points there.
unsafe fn has_file(database: *const c_char, name: *const c_char) -> bool {
    // SAFETY: as promised by the caller; a pointer that is compared is not followed.
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
