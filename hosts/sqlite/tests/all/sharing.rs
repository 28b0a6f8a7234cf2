//! A page that was read from a log or another database is shared only if it is still there. SQLite's
//! own functions are bypassed: the VFS gets calls in an order that SQLite rarely makes.

use crate::kit::disks::mounted;
use crate::kit::engine::Db;
use libsqlite3_sys as ffi;
use remap_ssd_sqlite::Mounted;
use std::ffi::c_int;
use std::ops::Range;
use std::ptr;

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

    fn truncate(&self, bytes: i64) {
        // SAFETY: the file is open.
        let code = unsafe { self.methods().xTruncate.expect("it has one")(self.0, bytes) };
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
    let (_, mounted) = mounted("sharing", 4000);
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

/// A page with contents of its own.
fn page(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(PAGE / size_of::<u64>())
}

/// Two databases of one volume, and the files that SQLite has open for them.
struct Copying {
    source: File,
    target: File,
    // Dropped in this order: first the databases, then their store.
    target_db: Db,
    _source_db: Db,
    _mounted: Mounted,
}

impl Copying {
    /// Place of the first page that is not SQLite's.
    const FIRST: u64 = 10;

    fn new(store: &str) -> Self {
        let (_, mounted) = mounted(store, 4000);

        let [source_db, target_db] = ["source", "target"].map(|name| {
            let db = Db::open(&format!("file:{name}.db?vfs=remap&store={store}"));
            let db = db.expect("possible");
            db.run("CREATE TABLE t(a)").expect("possible");
            db
        });
        let file = |db| File::of(db, ffi::SQLITE_FCNTL_FILE_POINTER);
        Self {
            source: file(&source_db),
            target: file(&target_db),
            target_db,
            _source_db: source_db,
            _mounted: mounted,
        }
    }

    fn offset(index: u64) -> i64 {
        (Self::FIRST + index) as i64 * PAGE as i64
    }

    /// The source gets pages with these contents, and they are read from it.
    fn have_read(&self, pages: Range<u64>) {
        for index in pages.clone() {
            self.source.write(Self::offset(index), &page(index));
        }
        self.source.sync();
        for index in pages {
            assert!(self.source.read(Self::offset(index)) == page(index));
        }
    }

    /// Writes pages with these contents to the target. Returns how many of them were shared, and
    /// how many written.
    fn copied(&self, pages: Range<u64>) -> (u64, u64) {
        let before = self.counted();
        for index in pages.clone() {
            self.target.write(Self::offset(index), &page(index));
        }
        self.target.sync();
        let after = self.counted();

        for index in pages {
            assert!(
                self.target.read(Self::offset(index)) == page(index),
                "page {index} has other contents"
            );
        }
        (after.0 - before.0, after.1 - before.1)
    }

    fn counted(&self) -> (u64, u64) {
        let text = self.target_db.value("PRAGMA remap_ssd_statistics");
        let all: serde_json::Value =
            serde_json::from_str(text.expect("possible").text()).expect("it is JSON");
        let count = |name: &str| all["database"][name].as_u64().expect("a counter");
        (count("pages_shared_with_others"), count("pages_written"))
    }
}

// More than are gathered at a time.
#[test]
fn a_copy_of_a_database_shares_every_page_that_was_read_from_it() {
    const PAGES: u64 = 300;
    let copying = Copying::new("copies");
    copying.have_read(0..PAGES);
    assert_eq!(copying.copied(0..PAGES), (PAGES, 0));

    // These are in no file yet.
    assert_eq!(copying.copied(PAGES..PAGES + 5), (0, 5));
}

#[test]
fn a_page_that_another_database_no_longer_has_is_written() {
    let copying = Copying::new("changes");
    copying.have_read(0..8);

    // Three of the eight pages change after they were read.
    for index in 2..5 {
        copying
            .source
            .write(Copying::offset(index), &page(1000 + index));
    }
    copying.source.sync();
    assert_eq!(copying.copied(0..8), (5, 3));
}

#[test]
fn pages_of_another_database_that_has_become_shorter_are_written() {
    let copying = Copying::new("ends");
    copying.have_read(0..8);
    copying.source.truncate(Copying::offset(4));
    let (shared, written) = copying.copied(0..8);
    assert_eq!(shared + written, 8);
    assert!(written >= 4, "{written} pages were written");
}
