//! Branches of databases by SQL, with the system's SQLite.

use crate::kit::disks::{count, mounted};
use crate::kit::engine::{Db, start_with_vfs};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_sqlite::mount;
use remap_ssd_store::{Processes, Store, Volume};
use remap_ssd_testkit::{MemDisk, kept, subsets};
use std::sync::Arc;

const PAGES: u64 = 2000;

fn uri(name: &str, store: &str) -> String {
    format!("file:{name}?vfs=remap&store={store}")
}

/// A database of 100 rows, in this journal mode.
fn database(store: &str, mode: &str) -> Db {
    let db = Db::open(&uri("app.db", store)).expect("possible");
    db.value(&format!("PRAGMA journal_mode={mode}"))
        .expect("possible");
    db.run("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        .expect("possible");
    insert(&db, 100);
    db
}

fn insert(db: &Db, rows: u32) {
    db.run(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
         INSERT INTO t(b) SELECT hex(randomblob(200)) FROM n"
    ))
    .expect("there is room");
}

fn refused(db: &Db, sql: &str) -> String {
    db.run(sql).expect_err("refused").to_string()
}

#[test]
fn a_branch_of_a_database_can_be_attached_and_changed_by_itself() {
    for (mode, store) in [("WAL", "branches WAL"), ("DELETE", "branches DELETE")] {
        let (_, _mounted) = mounted(store, PAGES);
        let db = database(store, mode);
        let made = db.value("SELECT remap_branch('b1')").expect("possible");
        assert_eq!(made.text(), "b1");
        db.run(&format!("ATTACH '{}' AS b1", uri("b1", store)))
            .expect("it is there");
        let same = "SELECT count(*) FROM t JOIN b1.t USING (a, b)";
        assert_eq!(db.value(same).expect("readable").integer(), 100);

        db.run("DELETE FROM b1.t WHERE a <= 10").expect("possible");
        insert(&db, 5);
        assert_eq!(count(&db), 105);
        let left = db.value("SELECT count(*) FROM b1.t").expect("readable");
        assert_eq!(left.integer(), 90);
        let verdict = db.value("PRAGMA b1.integrity_check").expect("readable");
        assert_eq!(verdict.text(), "ok");

        // A branch of the branch, by its schema; and the name in a connection of its own.
        db.run("SELECT remap_branch('b2', 'b1')").expect("possible");
        let other = Db::open(&uri("b2", store)).expect("it is there");
        assert_eq!(count(&other), 90);
        let mode_of = other.value("PRAGMA journal_mode").expect("readable");
        assert_eq!(mode_of.text().to_uppercase(), mode);
    }
}

#[test]
fn a_hundred_branches_are_one_statement() {
    let store = "branches many";
    let (_, _mounted) = mounted(store, 20_000);
    let db = database(store, "WAL");
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) \
                SELECT count(remap_branch('b' || i)) FROM n";
    assert_eq!(db.value(many).expect("there is room").integer(), 100);
    assert_eq!(
        count(&Db::open(&uri("b77", store)).expect("it is there")),
        100
    );
    let all = many.replace("remap_branch(", "remap_branch_delete(");
    assert_eq!(db.value(&all).expect("they are closed").integer(), 100);
}

#[test]
fn what_cannot_be_a_branch_is_one_sentence() {
    let store = "branches refused";
    let (_, _mounted) = mounted(store, PAGES);
    let db = database(store, "WAL");
    db.run("BEGIN").expect("possible");
    insert(&db, 1);
    let why = refused(&db, "SELECT remap_branch('b')");
    assert!(why.contains("COMMIT or ROLLBACK"), "{why}");
    db.run("ROLLBACK").expect("possible");

    // Another connection's transaction.
    let other = Db::open(&uri("app.db", store)).expect("it is there");
    other.run("BEGIN IMMEDIATE").expect("possible");
    assert!(
        db.run("SELECT remap_branch('b')")
            .expect_err("locked")
            .is_busy()
    );
    other.run("COMMIT").expect("possible");

    db.run("SELECT remap_branch('b')").expect("possible");
    let why = refused(&db, "SELECT remap_branch('b')");
    assert!(why.contains("there is a file b already"), "{why}");
    assert!(refused(&db, "SELECT remap_branch(7)").contains("names are text"));
    assert!(refused(&db, "SELECT remap_branch('')").contains("cannot be a file's name"));
    assert!(refused(&db, "SELECT remap_branch('c', 'x')").contains("x is not a database"));
    assert!(refused(&db, "SELECT remap_branch('c', 'temp')").contains("not a database"));
    assert!(refused(&db, "SELECT remap_branch_delete('c')").contains("there is no file c"));
    assert!(
        refused(&db, "SELECT remap_branch_delete('app.db')").contains("open in this connection")
    );
    let plain = Db::open(&uri("plain.db", store)).expect("possible");
    plain.run("CREATE TABLE t (a)").expect("possible");
    assert!(refused(&db, "SELECT remap_branch_delete('plain.db')").contains("not a branch"));
    // No trigger or view may make files.
    db.run("CREATE VIEW v AS SELECT remap_branch('d')")
        .expect("it is not run yet");
    assert!(refused(&db, "SELECT * FROM v").contains("unsafe use"));
    assert!(!db.in_transaction());

    // The name is free again, and so is that of the log.
    let branch = Db::open(&uri("b", store)).expect("it is there");
    insert(&branch, 3);
    drop(branch);
    db.run("SELECT remap_branch_delete('b')")
        .expect("it is closed");
    db.run("SELECT remap_branch('b')").expect("possible");
    assert_eq!(
        count(&Db::open(&uri("b", store)).expect("it is there")),
        100
    );
}

/// Power is cut after each operation of a branch: there is none, or one with all rows; the database
/// has all of its own, and the branch can be made.
#[test]
fn a_cut_leaves_a_whole_branch_or_none() {
    for (mode, store) in [
        ("WAL", "branches cut WAL"),
        ("DELETE", "branches cut DELETE"),
    ] {
        let (disk, kept_mounted) = mounted(store, PAGES);
        let db = database(store, mode);
        disk.medium().log.clear();
        let base = disk.medium().contents();
        db.run("SELECT remap_branch('b')").expect("possible");
        let log = std::mem::take(&mut disk.medium().log);
        drop((db, kept_mounted));

        let random = &mut Xoshiro256PlusPlus::seed_from_u64(7);
        let mut found = [0; 2];
        for operations in 0..=log.len() {
            for subset in subsets(&log[..operations], random) {
                let pages = kept(&base, &log[..operations], |index| subset[index]);
                let is_there = after_cut(MemDisk::holding(PAGES, pages), &format!("{store} after"));
                found[usize::from(is_there)] += 1;
            }
        }
        assert!(found.iter().all(|count| *count > 0), "{mode}: {found:?}");
    }
}

/// Opens the volume after a cut; returns true if the branch is there.
fn after_cut(disk: MemDisk, store: &str) -> bool {
    start_with_vfs();
    let volume = Arc::new(Volume::open(disk, &Processes::One).expect("it is whole"));
    let names: Vec<String> = volume
        .list()
        .expect("readable")
        .into_iter()
        .map(|info| info.name)
        .collect();
    let is_there = names.iter().any(|name| name == "b");
    let _mounted = mount(store, volume).expect("the name is free");
    let db = Db::open(&uri("app.db", store)).expect("it is there");
    assert_eq!(count(&db), 100);
    if !is_there {
        db.run("SELECT remap_branch('b')").expect("possible");
    }
    assert_eq!(
        count(&Db::open(&uri("b", store)).expect("it is there")),
        100
    );
    is_there
}
