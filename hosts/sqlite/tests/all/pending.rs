//! Pages of a transaction are written together, and all of them before SQLite reports its end.

use crate::kit::disks::mounted;
use crate::kit::engine::Db;
use remap_ssd_store::{Processes, Volume};
use remap_ssd_testkit::{MemDisk, Op};
use std::sync::Arc;

const ROWS: i64 = 600;

/// Rows in a volume on a new disk, in a database registered under this name and opened with these
/// statements.
fn filled(name: &str, first: &[&str]) -> (MemDisk, Db, remap_ssd_sqlite::Mounted) {
    let (disk, mounted) = mounted(name, 4000);
    let db = Db::open(&format!("file:app.db?vfs=remap&store={name}")).expect("possible");
    let fill = [
        "CREATE TABLE t(a INTEGER PRIMARY KEY, v)",
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 600) \
         INSERT INTO t SELECT a, printf('%0200d', 0) FROM n",
    ];
    for sql in first.iter().copied().chain(fill) {
        db.run(sql)
            .unwrap_or_else(|failure| panic!("{sql}: {failure}"));
    }
    (disk, db, mounted)
}

#[test]
fn a_transaction_writes_its_pages_together() {
    let (disk, db, mounted) = filled("together", &[]);
    let pages = db.value("PRAGMA page_count").expect("readable").integer() as usize;
    assert!(pages > 30, "a row is 200 bytes");

    let done = || {
        let medium = disk.medium();
        (medium.writes, medium.log.len(), medium.reads)
    };
    let before = done();
    db.run("UPDATE t SET v = printf('%0200d', a)")
        .expect("possible");
    let (writes, changes) = (done().0 - before.0, done().1 - before.1);
    assert!(
        changes > pages,
        "each page is written: {changes} of {pages}"
    );
    // The metadata of the journal, and all pages of the database.
    assert!(writes <= 4, "{writes} commands for {pages} pages");
    assert_eq!(
        done().2,
        before.2,
        "what this connection has written or ended is not read again"
    );
    drop((db, mounted));
}

/// A small cache evicts pages in the middle of a transaction and rereads them before its end.
#[test]
fn a_transaction_reads_the_pages_that_it_gave_back() {
    for journal in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY"] {
        let (name, mode) = (
            format!("reread-{journal}"),
            format!("PRAGMA journal_mode={journal}"),
        );
        let (_, db, mounted) = filled(
            &name,
            &[&mode, "PRAGMA cache_size=10", "PRAGMA mmap_size=0"],
        );
        db.run("BEGIN").expect("possible");
        db.run("UPDATE t SET v = printf('%0200d', a)")
            .expect("possible");

        let changed = db
            .value("SELECT count(*) FROM t WHERE v = printf('%0200d', a)")
            .expect("readable");
        assert_eq!(changed.integer(), ROWS, "{journal}");
        db.run("ROLLBACK").expect("possible");
        let back = db
            .value("SELECT count(*) FROM t WHERE v = printf('%0200d', 0)")
            .expect("readable");
        assert_eq!(back.integer(), ROWS, "{journal}");
        drop((db, mounted));
    }
}

/// A process may die as soon as SQLite has returned, without losing data.
#[test]
fn what_is_committed_is_on_the_disk_however_little_is_synced() {
    let changed = [
        "UPDATE t SET v = printf('%0200d', a)",
        "BEGIN",
        "UPDATE t SET v = v || 'x'",
        "ROLLBACK",
    ];
    for journal in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"] {
        let (name, mode) = (
            format!("committed-{journal}"),
            format!("PRAGMA journal_mode={journal}"),
        );
        let first = [
            "PRAGMA synchronous=OFF",
            "PRAGMA locking_mode=EXCLUSIVE",
            &mode,
            "PRAGMA cache_size=10",
        ];
        let (disk, db, mounted) = filled(&name, &first);
        // Without a journal there is no rollback.
        let statements = if journal == "OFF" {
            &changed[..1]
        } else {
            &changed
        };
        for sql in statements {
            db.run(sql)
                .unwrap_or_else(|failure| panic!("{journal}: {sql}: {failure}"));
        }

        // The present contents, without later writes from closing the database.
        let copy = MemDisk::holding(4000, disk.medium().contents());
        drop((db, mounted));
        let volume = Volume::open(copy, &Processes::One).expect("a volume");
        let other = format!("{name}-after");
        let after = remap_ssd_sqlite::mount(&other, Arc::new(volume)).expect("the name is free");
        let found = Db::open(&format!("file:app.db?vfs=remap&store={other}")).expect("possible");
        let [verdict, rows] = [
            "PRAGMA integrity_check",
            "SELECT count(*) FROM t WHERE v = printf('%0200d', a)",
        ]
        .map(|sql| {
            found
                .value(sql)
                .unwrap_or_else(|failure| panic!("{journal}: {sql}: {failure}"))
        });
        assert_eq!((verdict.text(), rows.integer()), ("ok", ROWS), "{journal}");
        drop((found, after));
    }
}

/// Flushes of a transaction that changes all rows, in each of the modes that have a journal.
#[test]
fn a_transaction_at_off_flushes_nothing_and_one_at_full_still_flushes_the_end_of_its_journal() {
    for journal in ["DELETE", "TRUNCATE", "PERSIST"] {
        let name = format!("flushes-{journal}");
        let (disk, db, mounted) = filled(&name, &[&format!("PRAGMA journal_mode={journal}")]);
        // No row grows, and the journal has its place: files keep their sizes.
        let change = "UPDATE t SET v = printf('%0200d', a + random() % 1000)";
        db.run(change).expect("possible");
        let flushes = |synchronous: &str| {
            db.run(&format!("PRAGMA synchronous={synchronous}"))
                .expect("possible");
            let before = disk.medium().log.len();
            db.run(change).expect("possible");
            let medium = disk.medium();
            let log = medium.log[before..].iter();
            log.filter(|op| matches!(op, Op::Flush)).count()
        };
        // FULL: the journal, the database, the journal's end.
        let found = ["FULL", "OFF", "OFF", "FULL"].map(flushes);
        assert_eq!(found, [3, 0, 0, 3], "{journal}");
        drop((db, mounted));
    }
}
