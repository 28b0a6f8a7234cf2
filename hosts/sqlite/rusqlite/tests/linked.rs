//! A program that links with SQLite has the same features as with the extension.

use remap_ssd_rusqlite_example::{create, open, statistics};

#[test]
fn a_checkpoint_shares_all_pages_and_a_reopened_database_has_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    create(&folder, 64 << 20).expect("room for it");

    let mut database = open(&folder, "app.db").expect("possible");
    database
        .pragma_update(None, "journal_mode", "wal")
        .expect("it is a log");
    database
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)")
        .expect("possible");
    for _ in 0..50 {
        let transaction = database.transaction().expect("possible");
        transaction
            .execute("INSERT INTO t (b) VALUES (randomblob(12000))", [])
            .expect("possible");
        transaction.commit().expect("possible");
    }
    database
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .expect("there is no reader");

    let counted = statistics(&database).expect("it is on the VFS");
    let pages = |name: &str| {
        counted["database"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {counted}"))
    };
    assert!(pages("pages_shared") >= 150, "{counted}");
    assert_eq!(pages("pages_written_in_checkpoints"), 0, "{counted}");
    drop(database);

    let database = open(&folder, "app.db").expect("it is free again");
    let rows: i64 = database
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .expect("possible");
    let verdict: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("possible");
    assert_eq!((rows, verdict.as_str()), (50, "ok"));
}

#[test]
fn a_folder_without_a_device_cannot_be_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    let refused = open(dir.path(), "app.db")
        .and_then(|database| database.execute_batch("CREATE TABLE t (x)"));
    let code = refused.expect_err("there is no device").sqlite_error_code();
    assert_eq!(code, Some(rusqlite::ErrorCode::CannotOpen));
}
