//! A checkpoint whose shares fail has no effect, and a rollback is repeated. SQLite takes no result
//! after the last page of a checkpoint, and it does not sync if it may not copy the whole log, if
//! there is a concurrent writer, or where `synchronous` is off.

use crate::kit::disks::mounted;
use crate::kit::engine::Db;

/// Puts rows into the log, runs a checkpoint during which the disk cannot be reached, and checks
/// the final contents of the database.
fn failing_checkpoint(store: &str, before: impl FnOnce(&str) -> Option<Db>) {
    let (disk, mounted) = mounted(store, 4000);
    let uri = format!("file:app.db?vfs=remap&store={store}");
    let db = Db::open(&uri).expect("possible");
    let run = |sql: &str| {
        db.run(sql)
            .unwrap_or_else(|failure| panic!("{sql}: {failure}"))
    };
    run("PRAGMA journal_mode=WAL");
    run("PRAGMA wal_autocheckpoint=0");
    run("CREATE TABLE t(a INTEGER PRIMARY KEY, v)");
    run("PRAGMA wal_checkpoint");
    let fill = |first: u32| {
        let rows = format!(
            "WITH RECURSIVE n(a) AS (SELECT {first} UNION ALL SELECT a + 1 FROM n WHERE a < {first} + 299)"
        );
        run(&format!(
            "INSERT INTO t {rows} SELECT a, printf('%0200d', a) FROM n"
        ));
    };
    fill(1);
    let reader = before(&uri);
    fill(301);

    disk.medium().fails_from_remap = Some(2);
    let answer = db.rows("PRAGMA wal_checkpoint", &[]);
    assert!(disk.medium().fails_from_remap.is_none(), "it shares pages");

    // Another connection completes it; then the log is overwritten.
    drop(reader);
    run("PRAGMA wal_checkpoint");
    run("UPDATE t SET v = v WHERE a = 1");
    run("PRAGMA wal_checkpoint");
    run("UPDATE t SET v = v WHERE a = 1");
    let fresh = Db::open(&uri).expect("possible");
    let [verdict, rows] = [
        "PRAGMA integrity_check",
        "SELECT count(*) FROM t WHERE v = printf('%0200d', a)",
    ]
    .map(|sql| {
        fresh
            .value(sql)
            .unwrap_or_else(|failure| panic!("{sql}: {failure}, after {answer:?}"))
    });
    assert_eq!(
        (verdict.text(), rows.integer()),
        ("ok", 600),
        "after {answer:?}"
    );
    drop((db, fresh, mounted));
}

#[test]
fn a_whole_checkpoint_that_fails_has_not_happened() {
    failing_checkpoint("whole", |_| None);
}

#[test]
fn a_part_of_a_checkpoint_that_fails_has_not_happened() {
    failing_checkpoint("part", |uri| {
        let reader = Db::open(uri).expect("possible");
        reader.run("BEGIN").expect("possible");
        reader.value("SELECT count(*) FROM t").expect("readable");
        Some(reader)
    });
}

#[test]
fn a_rollback_that_fails_is_done_again_where_synchronous_is_off() {
    let (disk, mounted) = mounted("off", 4000);
    let db = Db::open("file:app.db?vfs=remap&store=off").expect("possible");
    for sql in [
        "PRAGMA synchronous=OFF",
        "PRAGMA cache_size=5",
        "CREATE TABLE t(a INTEGER PRIMARY KEY, v)",
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 600) \
         INSERT INTO t SELECT a, printf('%0200d', a) FROM n",
        "BEGIN",
        "UPDATE t SET v = printf('%0200d', 0)",
    ] {
        db.run(sql)
            .unwrap_or_else(|failure| panic!("{sql}: {failure}"));
    }

    disk.medium().fails_from_remap = Some(2);
    let answer = db.run("ROLLBACK");
    assert!(disk.medium().fails_from_remap.is_none(), "it shares pages");
    let fresh = Db::open("file:app.db?vfs=remap&store=off").expect("possible");
    let rows = fresh
        .value("SELECT count(*) FROM t WHERE v = printf('%0200d', a)")
        .expect("readable");
    assert_eq!(rows.integer(), 600, "after {answer:?}");
    drop((db, fresh, mounted));
}
