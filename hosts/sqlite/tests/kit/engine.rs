//! Real SQLite: the system's library, called as a program would.
//!
//! The crate is built as an extension, which calls SQLite through a given table of functions. An
//! automatic extension gets that table when a database is opened, so after `start` all functions of
//! `libsqlite3_sys` work here too.
//!
//! Absent: anything between SQLite and its VFS.

use libsqlite3_sys as ffi;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

/// Debian's name, and that of other systems.
const LIBRARY: &str = "libsqlite3.so.0";

/// An SQL value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Value {
    pub fn integer(&self) -> i64 {
        let Self::Integer(integer) = self else {
            panic!("{self:?} is no integer")
        };
        *integer
    }

    pub fn text(&self) -> &str {
        let Self::Text(text) = self else {
            panic!("{self:?} is no text")
        };
        text
    }
}

/// SQLite's error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    pub code: c_int,
    pub message: String,
}

impl Failure {
    /// Another connection has a lock.
    pub fn is_busy(&self) -> bool {
        self.code & 0xff == ffi::SQLITE_BUSY
    }

    /// The file could not be read or written.
    pub fn is_io(&self) -> bool {
        self.code & 0xff == ffi::SQLITE_IOERR
    }

    pub fn cannot_open(&self) -> bool {
        self.code & 0xff == ffi::SQLITE_CANTOPEN
    }
}

thread_local! {
    /// SQLite's last log message in this thread: the reason, if it is from the extension.
    static LOGGED: RefCell<String> = const { RefCell::new(String::new()) };
}

unsafe extern "C" fn log(_: *mut c_void, code: c_int, text: *const c_char) {
    // SAFETY: SQLite gives a C string.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if text.starts_with("remap: ") {
        LOGGED.with_borrow_mut(|logged| *logged = format!("{code}: {text}"));
    }
}

type Entry = unsafe extern "C" fn();

unsafe extern "C" fn init(
    _: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    api: *mut ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite gives its own table.
    unsafe { ffi::rusqlite_extension_init2(api) }.map_or(ffi::SQLITE_ERROR, |_| ffi::SQLITE_OK)
}

/// Loads the system's SQLite, once in a process.
pub fn start() -> &'static libloading::Library {
    static STARTED: OnceLock<libloading::Library> = OnceLock::new();
    STARTED.get_or_init(|| {
        type Init = unsafe extern "C" fn(
            *mut ffi::sqlite3,
            *mut *mut c_char,
            *mut ffi::sqlite3_api_routines,
        ) -> c_int;
        // SAFETY: the functions have the types that SQLite documents, and the library is never
        // unloaded.
        unsafe {
            let library = libloading::Library::new(LIBRARY)
                .expect("SQLite's library is installed (libsqlite3-0)");
            type Logger = unsafe extern "C" fn(*mut c_void, c_int, *const c_char);
            let config: libloading::Symbol<unsafe extern "C" fn(c_int, ...) -> c_int> =
                library.get(b"sqlite3_config").expect("it is SQLite");
            config(
                ffi::SQLITE_CONFIG_LOG,
                log as Logger,
                ptr::null_mut::<c_void>(),
            );
            let register: libloading::Symbol<unsafe extern "C" fn(Entry) -> c_int> = library
                .get(b"sqlite3_auto_extension")
                .expect("it is SQLite");
            let open: libloading::Symbol<
                unsafe extern "C" fn(*const c_char, *mut *mut ffi::sqlite3) -> c_int,
            > = library.get(b"sqlite3_open").expect("it is SQLite");

            let entry = std::mem::transmute::<Init, Entry>(init);
            assert_eq!(register(entry), ffi::SQLITE_OK);
            let mut db = ptr::null_mut();
            assert_eq!(open(c":memory:".as_ptr(), &mut db), ffi::SQLITE_OK);
            ffi::sqlite3_cancel_auto_extension(Some(entry));
            ffi::sqlite3_close(db);
            library
        }
    })
}

/// Loads SQLite, and registers the VFS with it.
pub fn start_with_vfs() {
    static REGISTERED: OnceLock<()> = OnceLock::new();
    start();
    REGISTERED.get_or_init(|| remap_ssd_sqlite::register(false).expect("SQLite takes a VFS"));
}

/// A connection, closed when it is dropped.
pub struct Db(*mut ffi::sqlite3);

// SAFETY: Debian's library is serialized: any thread may use a connection.
unsafe impl Send for Db {}

impl Db {
    /// Opens or creates a database; the name may be a URI.
    pub fn open(name: &str) -> Result<Self, Failure> {
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_URI;
        let name = CString::new(name).expect("no zeroes in it");
        let mut db = ptr::null_mut();
        // SAFETY: a C string, and a place for the result, which is a connection even on failure.
        let code = unsafe { ffi::sqlite3_open_v2(name.as_ptr(), &mut db, flags, ptr::null()) };
        let db = Self(db);
        db.check(code)?;
        Ok(db)
    }

    pub fn pointer(&self) -> *mut ffi::sqlite3 {
        self.0
    }

    fn check(&self, code: c_int) -> Result<(), Failure> {
        if matches!(code, ffi::SQLITE_OK | ffi::SQLITE_ROW | ffi::SQLITE_DONE) {
            return Ok(());
        }
        // SAFETY: the connection is open; SQLite's message is a C string.
        let (code, message) = unsafe {
            (
                ffi::sqlite3_extended_errcode(self.0),
                CStr::from_ptr(ffi::sqlite3_errmsg(self.0)),
            )
        };
        let logged = LOGGED.with_borrow_mut(std::mem::take);
        Err(Failure {
            code,
            message: format!("{} ({logged})", message.to_string_lossy()),
        })
    }

    /// Loads an extension from a file.
    pub fn load_extension(&self, path: &str) -> Result<(), Failure> {
        let path = CString::new(path).expect("no zeroes in it");
        // SAFETY: the function has the type that SQLite documents; the connection is open; C
        // strings or null.
        unsafe {
            let enable: libloading::Symbol<
                unsafe extern "C" fn(*mut ffi::sqlite3, c_int) -> c_int,
            > = start()
                .get(b"sqlite3_enable_load_extension")
                .expect("it is SQLite");
            enable(self.0, 1);
            self.check(ffi::sqlite3_load_extension(
                self.0,
                path.as_ptr(),
                ptr::null(),
                ptr::null_mut(),
            ))
        }
    }

    /// Sets the bytes that SQLite reserves at the end of each page, from the next new database or
    /// VACUUM on.
    pub fn reserve(&self, mut bytes: c_int) {
        // SAFETY: the connection is open, and the operation takes an integer.
        unsafe {
            let operation = ffi::SQLITE_FCNTL_RESERVE_BYTES;
            ffi::sqlite3_file_control(self.0, c"main".as_ptr(), operation, (&raw mut bytes).cast());
        }
    }

    /// Returns true if a transaction is open.
    pub fn in_transaction(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_get_autocommit(self.0) == 0 }
    }

    /// Waits for locks, for ten minutes at most: on a slow machine writers leave a reader few moments.
    pub fn wait_for_locks(&self) {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_busy_timeout(self.0, 600_000) };
    }

    /// Runs one statement, and returns its rows.
    pub fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, Failure> {
        let text = CString::new(sql).expect("no zeroes in it");
        let mut statement = ptr::null_mut();
        // SAFETY: the connection is open; the statement is finalized below; what is bound lives
        // until then.
        unsafe {
            let prepared =
                ffi::sqlite3_prepare_v2(self.0, text.as_ptr(), -1, &mut statement, ptr::null_mut());
            self.check(prepared)?;
            for (at, value) in (1..).zip(values) {
                bind(statement, at, value);
            }
            let mut rows = Vec::new();
            let result = loop {
                match ffi::sqlite3_step(statement) {
                    ffi::SQLITE_ROW => {
                        let columns = 0..ffi::sqlite3_column_count(statement);
                        rows.push(columns.map(|at| column(statement, at)).collect());
                    }
                    code => break self.check(code),
                }
            };
            ffi::sqlite3_finalize(statement);
            result.map(|()| rows)
        }
    }

    /// Runs one statement to its end.
    pub fn run(&self, sql: &str) -> Result<(), Failure> {
        self.rows(sql, &[]).map(drop)
    }

    /// The first value of a statement's first row.
    pub fn value(&self, sql: &str) -> Result<Value, Failure> {
        Ok(self
            .rows(sql, &[])?
            .into_iter()
            .flatten()
            .next()
            .unwrap_or(Value::Null))
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: no statement is left; the connection is not used any more.
        unsafe { ffi::sqlite3_close(self.0) };
    }
}

/// # Safety
/// The statement is prepared, and run before `value` is dropped.
unsafe fn bind(statement: *mut ffi::sqlite3_stmt, at: c_int, value: &Value) {
    // SAFETY: as promised by the caller; a null destructor says that the bytes stay where they are.
    unsafe {
        match value {
            Value::Null => ffi::sqlite3_bind_null(statement, at),
            Value::Integer(integer) => ffi::sqlite3_bind_int64(statement, at, *integer),
            Value::Text(text) => ffi::sqlite3_bind_text(
                statement,
                at,
                text.as_ptr().cast(),
                text.len() as c_int,
                None,
            ),
            Value::Blob(bytes) => ffi::sqlite3_bind_blob(
                statement,
                at,
                bytes.as_ptr().cast(),
                bytes.len() as c_int,
                None,
            ),
        };
    }
}

/// # Safety
/// The statement has a row.
unsafe fn column(statement: *mut ffi::sqlite3_stmt, at: c_int) -> Value {
    // SAFETY: as promised by the caller; the bytes are valid until the next step, and are copied
    // before.
    unsafe {
        let bytes = |from: *const u8| {
            let len = ffi::sqlite3_column_bytes(statement, at) as usize;
            if len == 0 {
                Vec::new()
            } else {
                std::slice::from_raw_parts(from, len).to_vec()
            }
        };
        match ffi::sqlite3_column_type(statement, at) {
            ffi::SQLITE_INTEGER => Value::Integer(ffi::sqlite3_column_int64(statement, at)),
            ffi::SQLITE_TEXT => {
                let text = bytes(ffi::sqlite3_column_text(statement, at));
                Value::Text(String::from_utf8(text).expect("UTF-8"))
            }
            ffi::SQLITE_BLOB => Value::Blob(bytes(ffi::sqlite3_column_blob(statement, at).cast())),
            _ => Value::Null,
        }
    }
}
