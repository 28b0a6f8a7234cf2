//! Invalid or unsupported uses: each gives an SQLite result code and a message in its log, and
//! leaves the database unchanged.
//!
//! A full volume is in `faults.rs`, a copy of a volume in `places.rs`, pages without room for a
//! frame's header (those of an encrypting application) byte by byte in `wal.rs`.

use crate::kit::disks::count;
use crate::kit::engine::{Db, Failure, Value, start_with_vfs};
use crate::kit::served::{ANY_PORT, Served};
use libsqlite3_sys as ffi;
use remap_ssd_store::{Create, OpenOptions, Processes, Store, Volume};

fn refused(result: Result<Db, Failure>) -> Failure {
    result.err().expect("it cannot be")
}

#[test]
fn without_a_device_or_a_volume_a_database_cannot_be_opened_and_the_log_says_why() {
    start_with_vfs();
    let mut served = Served::new(ANY_PORT);
    let no_volume = refused(served.open());
    assert!(no_volume.cannot_open(), "{no_volume}");
    assert!(no_volume.message.contains("volume"), "{no_volume}");

    let address = served.address.to_string();
    served.end();
    let no_device = refused(served.open());
    assert!(no_device.cannot_open(), "{no_device}");
    assert!(no_device.message.contains(&address), "{no_device}");
}

#[test]
fn a_volume_that_somebody_has_alone_is_busy() {
    start_with_vfs();
    let served = Served::with_volume(ANY_PORT);
    let alone = Volume::open_alone(served.disk(), &Processes::local()).expect("it is free");
    let busy = refused(served.open());
    assert!(busy.is_busy(), "{busy}");
    assert!(busy.message.contains("in use"), "{busy}");

    drop(alone);
    let db = served.open().expect("it is free");
    db.run("CREATE TABLE t(a)").expect("possible");
    assert_eq!(count(&db), 0);
}

#[test]
fn a_foreign_file_is_not_a_database_and_stays_as_it_is() {
    start_with_vfs();
    let served = Served::with_volume(ANY_PORT);
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at * 7 + 1) as u8).collect();
    let volume = Volume::open(served.disk(), &Processes::local()).expect("possible");
    let options = OpenOptions::from(Create::New);
    let file = volume.open("app.db", options).expect("possible");
    volume.write(file, 0, &bytes).expect("possible");

    let db = served.open().expect("SQLite looks into it later");
    for sql in ["SELECT * FROM sqlite_schema", "CREATE TABLE t(a)"] {
        let failure = db.run(sql).expect_err("it is no database");
        assert_eq!(failure.code, ffi::SQLITE_NOTADB, "{sql}: {failure}");
    }
    drop(db);
    let mut found = vec![0; bytes.len()];
    volume.read(file, 0, &mut found).expect("possible");
    assert!(found == bytes, "nothing was written");
}

#[test]
fn pages_below_4_kib_are_stored_and_share_nothing() {
    start_with_vfs();
    for mode in ["wal", "delete"] {
        let served = Served::with_volume(ANY_PORT);
        let db = served.open().expect("possible");
        db.run("PRAGMA page_size=1024").expect("possible");
        db.run(&format!("PRAGMA journal_mode={mode}"))
            .expect("possible");
        db.run("CREATE TABLE t(a INTEGER PRIMARY KEY, v)")
            .expect("possible");
        for round in 0..20 {
            db.run(&format!("INSERT INTO t VALUES({round}, randomblob(3000))"))
                .expect("possible");
            db.run("UPDATE t SET v = randomblob(2900)")
                .expect("possible");
        }
        if mode == "wal" {
            db.run("PRAGMA wal_checkpoint(TRUNCATE)").expect("possible");
        }

        let told = db.value("PRAGMA remap_ssd_statistics").expect("ours");
        let told: serde_json::Value = serde_json::from_str(told.text()).expect("JSON");
        assert_eq!(told["store"]["pages_shared"], 0, "{mode}: {told}");
        drop(db);
        let db = served.open().expect("possible");
        assert_eq!(
            db.value("PRAGMA page_size").expect("readable"),
            Value::Integer(1024)
        );
        assert_eq!(count(&db), 20, "{mode}");
    }
}

// As with SQLCipher or a checksum VFS: the end of each page is the application's, as is every byte
// of an encrypted page.
#[test]
fn pages_whose_ends_belong_to_the_application_are_read_as_they_were_written() {
    start_with_vfs();
    for (reserved, mode) in [
        (0, "wal"),
        (8, "wal"),
        (80, "wal"),
        (0, "delete"),
        (80, "delete"),
    ] {
        let served = Served::with_volume(ANY_PORT);
        let db = served.open().expect("possible");
        db.reserve(reserved);
        db.run(&format!("PRAGMA journal_mode={mode}"))
            .expect("possible");
        db.run("CREATE TABLE t(a INTEGER PRIMARY KEY, v, sum)")
            .expect("possible");

        // Values of several pages: with no reserved bytes they fill pages to the end.
        db.run(
            "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 30) \
             INSERT INTO t SELECT a, randomblob(20000), NULL FROM n",
        )
        .expect("possible");
        db.run("UPDATE t SET sum = hex(substr(v, 4000, 200)) WHERE a % 2 = 0")
            .expect("possible");
        db.run("UPDATE t SET v = randomblob(20000), sum = NULL WHERE a % 3 = 0")
            .expect("possible");
        db.run("UPDATE t SET sum = hex(substr(v, 4000, 200))")
            .expect("possible");
        drop(db);

        let db = served.open().expect("possible");
        assert_eq!(count(&db), 30, "{reserved} bytes, {mode}");
        let wrong = db.value("SELECT count(*) FROM t WHERE sum <> hex(substr(v, 4000, 200))");
        assert_eq!(
            wrong.expect("readable"),
            Value::Integer(0),
            "{reserved} bytes, {mode}"
        );
    }
}

#[test]
fn an_application_that_asks_for_mapped_memory_reads_without() {
    start_with_vfs();
    let served = Served::with_volume(ANY_PORT);
    let db = served.open().expect("possible");
    let granted = db.value("PRAGMA mmap_size=268435456").expect("possible");
    assert!(
        matches!(granted, Value::Integer(0) | Value::Null),
        "{granted:?}"
    );
    db.run("CREATE TABLE t AS SELECT randomblob(100000) AS v")
        .expect("possible");
    assert_eq!(count(&db), 1);
}

// The device disappears between two statements of a transaction, and returns.
#[test]
fn a_connection_that_is_lost_in_mid_transaction_is_an_io_error_and_a_rollback() {
    start_with_vfs();
    for mode in ["wal", "delete", "truncate", "persist"] {
        let mut served = Served::with_volume(ANY_PORT);
        let db = served.open().expect("possible");
        db.run(&format!("PRAGMA journal_mode={mode}"))
            .expect("possible");
        db.run("CREATE TABLE t(a INTEGER PRIMARY KEY, v)")
            .expect("possible");
        db.run("INSERT INTO t VALUES(1, randomblob(9000))")
            .expect("possible");

        db.run("BEGIN").expect("possible");
        db.run("INSERT INTO t VALUES(2, randomblob(9000))")
            .expect("possible");
        served.end();
        let failure = db
            .run("UPDATE t SET v = randomblob(9001)")
            .and_then(|()| db.run("COMMIT"))
            .expect_err("the device is not served");
        assert!(failure.is_io(), "{mode}: {failure}");
        assert!(
            failure.message.contains("remap: "),
            "{mode}: no sentence in {failure}"
        );
        if db.in_transaction() {
            db.run("ROLLBACK")
                .expect("SQLite's own memory is enough, or it is done later");
        }

        // The same connection continues: it reconnects, and rolls back.
        served.begin();
        assert_eq!(count(&db), 1, "{mode}: the transaction was not done");
        db.run("INSERT INTO t VALUES(3, randomblob(9000))")
            .expect("the device is there");
        drop(db);
        assert_eq!(count(&served.open().expect("possible")), 2, "{mode}");
    }
}

/// The failure of opening a URI.
fn refusal_of(uri: &str) -> Failure {
    refused(Db::open(uri))
}

// Python's module, and most drivers, report nothing else.
#[test]
fn the_message_of_a_failed_opening_says_why() {
    start_with_vfs();
    let mut served = Served::with_volume(ANY_PORT);
    let absent = refusal_of(&format!("{}&mode=rw", served.uri()));
    assert!(absent.cannot_open(), "{absent}");
    let begins = "automatic extension loading failed: remap: ";
    assert!(absent.message.starts_with(begins), "{absent}");
    assert!(absent.message.contains("app.db"), "{absent}");

    let db = Db::open(":memory:").expect("possible");
    let address = served.address;
    served.end();
    let gone = refusal_of(&served.uri());
    assert!(gone.message.starts_with(begins), "{gone}");
    assert!(gone.message.contains(&address.to_string()), "{gone}");
    assert!(gone.message.contains("refused"), "{gone}");

    // An attachment has no such message, and fails nevertheless.
    let attach = format!("ATTACH '{}' AS other", served.uri());
    let failure = db.run(&attach).expect_err("it is not served");
    assert!(failure.cannot_open(), "{failure}");
    for lockless in ["nolock=1", "immutable=1"] {
        let attach = format!("ATTACH '{}&{lockless}' AS other", served.uri());
        let failure = db.run(&attach).expect_err("it is not served");
        assert!(failure.cannot_open(), "{failure}");
    }
}

#[test]
fn a_misspelt_parameter_makes_no_local_database() {
    start_with_vfs();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db");
    let wrong = refusal_of(&format!(
        "file:{}?vfs=remap&devise=127.0.0.1:1",
        path.display()
    ));
    assert!(wrong.cannot_open(), "{wrong}");
    assert!(
        wrong.message.contains("devise=") && wrong.message.contains("nearest is device="),
        "{wrong}"
    );
    assert!(!path.exists(), "nothing was made");
}

#[test]
fn the_name_that_sqlite_gives_for_a_database_opens_it_again() {
    start_with_vfs();
    let served = Served::with_volume(ANY_PORT);
    let db = served.open().expect("possible");
    db.run("CREATE TABLE t(a)").expect("possible");
    let list = db.rows("PRAGMA database_list", &[]).expect("readable");
    let name = list[0][2].text().to_owned();

    // By name alone while the volume is open in this process, and with its device at any time.
    let again = Db::open(&format!("file:{name}?vfs=remap")).expect("the volume is open");
    assert_eq!(count(&again), 0);
    drop((again, db));
    let device = format!("file:{name}?vfs=remap&device={}", served.address);
    assert_eq!(count(&Db::open(&device).expect("it is served")), 0);

    let closed = refusal_of(&format!("file:{name}?vfs=remap"));
    assert!(closed.message.contains("not opened"), "{closed}");
    let other = name.replacen(|digit: char| digit.is_ascii_hexdigit(), "", 1);
    let other = format!(
        "/{}{}",
        if name.starts_with("/0") { '1' } else { '0' },
        &other[1..]
    );
    let device = format!("file:{other}?vfs=remap&device={}", served.address);
    let wrong = refusal_of(&device);
    assert!(wrong.message.contains("another volume"), "{wrong}");
}

#[test]
fn without_locks_a_database_is_read_where_no_lock_file_can_be_made() {
    start_with_vfs();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db");
    let uri = |parameter: &str| format!("file:{}?vfs=remap{parameter}", path.display());
    Db::open(&uri(""))
        .and_then(|db| db.run("CREATE TABLE t AS SELECT 5 AS a"))
        .expect("possible");

    // A folder in place of the lock file stops root too.
    let lock = dir.path().join("app.db-lock");
    std::fs::remove_file(&lock).expect("it was made");
    std::fs::create_dir(&lock).expect("possible");
    assert!(refusal_of(&uri("")).cannot_open());
    for parameter in ["&immutable=1", "&nolock=1&mode=ro"] {
        let db = Db::open(&uri(parameter)).expect("it is only read");
        assert_eq!(count(&db), 1, "{parameter}");
    }
}
