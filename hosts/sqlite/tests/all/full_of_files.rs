//! A volume with its maximum number of files: its databases can be read, and written as soon as
//! there is room for their logs again.

use crate::kit::disks::count;
use crate::kit::engine::{Db, start_with_vfs};
use libsqlite3_sys as ffi;
use remap_ssd_sqlite::{Mounted, mount};
use remap_ssd_store::{
    Create, FileInfo, NewVolume, OpenOptions, Processes, Store, StoreError, Volume,
};
use remap_ssd_testkit::MemDisk;
use std::sync::Arc;

const FILES_MAX: u32 = 16;
const ROWS: i64 = 3;

/// A volume, registered with the VFS under a name, with a database in each mode and no room for
/// another file.
fn full(store: &str) -> Mounted {
    let new = NewVolume {
        files_max: FILES_MAX,
        ..NewVolume::default()
    };
    let disk = MemDisk::new(4000);
    let volume = Volume::create(disk, &Processes::One, &new, &mut |_, _| {}).expect("it is blank");
    let mounted = mount(store, Arc::new(volume)).expect("the name is free");

    for mode in ["wal", "delete"] {
        let db = open(store, mode, "rwc");
        let now = db.value(&format!("PRAGMA journal_mode={mode}"));
        assert_eq!(now.expect("possible").text(), mode);
        db.run("CREATE TABLE t(a)").expect("possible");
        db.run("INSERT INTO t VALUES (1), (2), (3)")
            .expect("possible");
        drop(db);

        // As after an import of the database alone.
        let volume = mounted.store();
        volume
            .delete(&format!("{mode}.db-journal"))
            .expect("it keeps its space");
        assert_eq!(beside(volume.as_ref(), mode), Vec::<String>::new());
    }
    fill(mounted.store().as_ref());
    mounted
}

fn open(store: &str, name: &str, mode: &str) -> Db {
    Db::open(&format!(
        "file:{name}.db?vfs=remap&store={store}&mode={mode}"
    ))
    .expect("a full volume is opened")
}

fn fill(volume: &dyn Store) {
    let options = OpenOptions::from(Create::New);
    let refused = (0..=FILES_MAX)
        .find_map(|number| volume.open(&format!("filler {number}"), options).err())
        .expect("it is full in the end");
    assert!(
        matches!(refused, StoreError::NoSlot(FILES_MAX)),
        "{refused}"
    );
}

/// Names of a database's companion files.
fn beside(volume: &dyn Store, name: &str) -> Vec<String> {
    let start = format!("{name}.db-");
    let names = volume.list().expect("readable").into_iter();
    names
        .map(|FileInfo { name, .. }| name)
        .filter(|name| name.starts_with(&start))
        .collect()
}

#[test]
fn a_database_in_a_volume_that_is_full_of_files_is_read() {
    start_with_vfs();
    let mounted = full("full-read");
    for mode in ["wal", "delete"] {
        for access in ["rwc", "rw", "ro"] {
            let both = [(); 2].map(|()| open("full-read", mode, access));
            for db in &both {
                assert_eq!(count(db), ROWS, "{mode}, {access}");
                let now = db.value("PRAGMA journal_mode").expect("readable");
                assert_eq!(now.text(), mode);
            }
        }
        assert_eq!(
            beside(mounted.store().as_ref(), mode),
            Vec::<String>::new(),
            "{mode}"
        );
    }
}

#[test]
fn a_write_to_a_volume_that_is_full_of_files_fails_and_changes_nothing() {
    start_with_vfs();
    let _mounted = full("full-write");
    for mode in ["wal", "delete"] {
        let db = open("full-write", mode, "rw");
        for _ in 0..2 {
            assert_eq!(count(&db), ROWS);
            let refused = db
                .run("INSERT INTO t VALUES (4)")
                .expect_err("there is no room for the log or the journal");
            let sentence = refused.to_string();
            assert!(sentence.contains("no room for another one"), "{sentence}");
            assert!(!db.in_transaction());
        }

        // A second connection sees the same.
        assert_eq!(count(&open("full-write", mode, "rw")), ROWS);
        drop(db);
        assert_eq!(count(&open("full-write", mode, "rw")), ROWS);
    }
}

// A connection that has a log without a file finds the file created by another one.
#[test]
fn a_log_that_is_made_when_there_is_room_again_is_seen_by_all_connections() {
    start_with_vfs();
    let mounted = full("full-room");
    let volume = mounted.store();
    let [writer, reader, late] = [(); 3].map(|()| open("full-room", "wal", "rw"));
    for db in [&writer, &reader, &late] {
        assert_eq!(count(db), ROWS);
    }
    let refused = writer.run("INSERT INTO t VALUES (4)");
    assert_eq!(refused.expect_err("no room").code & 0xff, ffi::SQLITE_FULL);

    volume.delete("filler 0").expect("it is there");
    writer
        .run("INSERT INTO t VALUES (4)")
        .expect("there is room");
    assert_eq!(beside(volume.as_ref(), "wal"), ["wal.db-wal"]);
    for db in [&writer, &reader, &late] {
        assert_eq!(count(db), ROWS + 1);
    }

    // The volume is full again: the existing log takes frames of all connections, and a checkpoint
    // copies them.
    late.run("INSERT INTO t VALUES (5)").expect("there is room");
    let checkpoint = reader.rows("PRAGMA wal_checkpoint(TRUNCATE)", &[]);
    let busy = checkpoint.expect("possible")[0][0].integer();
    assert_eq!(busy, 0);
    for db in [&writer, &reader, &late] {
        assert_eq!(count(db), ROWS + 2);
    }

    drop((writer, reader, late));
    assert_eq!(beside(volume.as_ref(), "wal"), Vec::<String>::new());
    assert_eq!(count(&open("full-room", "wal", "rw")), ROWS + 2);
}
