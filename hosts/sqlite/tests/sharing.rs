//! A page read from a log is shared only if it is still there. SQLite's own functions are bypassed:
//! the VFS gets calls in an order that SQLite rarely makes.

mod kit;

use kit::disk::MemDisk;
use kit::engine::{Db, start_with_vfs};
use libsqlite3_sys as ffi;
use remap_ssd_store::{NewVolume, Processes, Volume};
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

const PAGE: usize = 4096;
/// Offset of the first frame's page in a log.
const FIRST_PAGE: i64 = 32 + 24;

/// An open file of SQLite.
struct File(*mut ffi::sqlite3_file);

impl File {
    fn of(db: &Db, which: c_int) -> Self {
        let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
        // SAFETY: the connection is open, and the operation takes a place for a file's address.
        let code = unsafe {
            ffi::sqlite3_file_control(
                db.pointer(),
                c"main".as_ptr(),
                which,
                (&raw mut file).cast(),
            )
        };
        assert!(code == ffi::SQLITE_OK && !file.is_null());
        Self(file)
    }

    fn methods(&self) -> &ffi::sqlite3_io_methods {
        // SAFETY: an open file has functions, which are valid for as long as the process.
        unsafe { &*(*self.0).pMethods }
    }

    fn read(&self, offset: i64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        // SAFETY: the file is open, and the buffer has the given length.
        let code = unsafe {
            self.methods().xRead.expect("it has one")(
                self.0,
                page.as_mut_ptr().cast(),
                PAGE as c_int,
                offset,
            )
        };
        assert_eq!(code, ffi::SQLITE_OK);
        page
    }

    fn write(&self, offset: i64, page: &[u8]) {
        // SAFETY: as above.
        let code = unsafe {
            self.methods().xWrite.expect("it has one")(
                self.0,
                page.as_ptr().cast(),
                page.len() as c_int,
                offset,
            )
        };
        assert_eq!(code, ffi::SQLITE_OK);
    }

    fn sync(&self) {
        // SAFETY: as above.
        let code =
            unsafe { self.methods().xSync.expect("it has one")(self.0, ffi::SQLITE_SYNC_NORMAL) };
        assert_eq!(code, ffi::SQLITE_OK);
    }
}

#[test]
fn a_page_that_was_read_and_is_overwritten_is_not_shared() {
    start_with_vfs();
    let volume = Volume::create(
        MemDisk::new(4000),
        &Processes::One,
        &NewVolume::default(),
        &mut |_, _| {},
    )
    .expect("possible");
    let mounted = remap_ssd_sqlite::mount("sharing", Arc::new(volume)).expect("the name is free");
    let db = Db::open("file:app.db?vfs=remap&store=sharing").expect("possible");
    for sql in [
        "PRAGMA journal_mode=WAL",
        "CREATE TABLE t(a)",
        "INSERT INTO t VALUES(randomblob(3000))",
    ] {
        db.run(sql).expect("possible");
    }
    let (database, log) = (
        File::of(&db, ffi::SQLITE_FCNTL_FILE_POINTER),
        File::of(&db, ffi::SQLITE_FCNTL_JOURNAL_POINTER),
    );

    // The normal case: the page read is shared with the database.
    let page = log.read(FIRST_PAGE);
    let shared = || {
        db.value("PRAGMA remap_ssd_statistics")
            .expect("possible")
            .text()
            .contains("\"pages_shared\":1")
    };
    database.write(10 * PAGE as i64, &page);
    assert!(database.read(10 * PAGE as i64) == page && shared());

    // The log's page changes before the database gets the one that was read.
    let page = log.read(FIRST_PAGE);
    log.write(FIRST_PAGE, &[7; PAGE]);
    log.sync();
    database.write(11 * PAGE as i64, &page);
    assert!(
        database.read(11 * PAGE as i64) == page,
        "the database got what has come into the log since"
    );
    drop((db, mounted));
}
