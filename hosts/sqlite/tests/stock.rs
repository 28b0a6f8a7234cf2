//! On ordinary files a program sees the same as with SQLite's own VFS, in cases where SQLite's
//! tests have found a difference.
//!
//! A program of its own: a name without a place is looked for in the volume opened last by the process.

mod kit;

use kit::disks::mounted;
use kit::engine::{Db, start_with_vfs};
use libsqlite3_sys as ffi;
use remap_ssd_sqlite::unfinished;
use remap_ssd_store::{Create, OpenOptions};
use std::ffi::c_int;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;
use std::thread;

/// SQLite's VFS, and this crate's.
const VFSES: [&str; 2] = ["unix", "remap"];

fn open(vfs: &str, path: &Path, more: &str) -> Db {
    Db::open(&format!("file:{}?vfs={vfs}{more}", path.display())).expect("it can be opened")
}

fn code(result: Result<(), kit::engine::Failure>) -> c_int {
    result.map_or_else(|failure| failure.code, |()| ffi::SQLITE_OK)
}

/// Closes a log that is wholly or not at all in the database, with a read-only connection as the
/// last one.
fn is_read_only(vfs: &str, all_copied: bool) {
    let context = format!("{vfs}, all copied: {all_copied}");
    let dir = tempfile::tempdir().expect("a folder");
    let (path, log) = (dir.path().join("app.db"), dir.path().join("app.db-wal"));
    let writer = open(vfs, &path, "");
    for sql in [
        "PRAGMA journal_mode=WAL",
        "CREATE TABLE t(a)",
        "PRAGMA wal_checkpoint",
        "INSERT INTO t VALUES(5)",
    ] {
        writer.run(sql).expect("possible");
    }
    let reader = open(vfs, &path, "&mode=ro");
    assert_eq!(
        reader.value("SELECT a FROM t").expect("readable").integer(),
        5,
        "{context}"
    );
    assert_eq!(
        code(reader.run("INSERT INTO t VALUES(6)")),
        ffi::SQLITE_READONLY,
        "{context}"
    );
    if all_copied {
        writer.run("PRAGMA wal_checkpoint").expect("possible");
    } else {
        assert_eq!(
            code(reader.run("PRAGMA wal_checkpoint")),
            ffi::SQLITE_IOERR_WRITE,
            "{context}"
        );
    }

    drop(writer);
    let before = fs::read(&path).expect("readable");
    // The last one to close makes a checkpoint and deletes the log, if permitted.
    drop(reader);
    assert!(
        fs::read(&path).expect("readable") == before,
        "{context}: the database was changed"
    );
    assert!(
        fs::metadata(&log).is_ok_and(|log| log.len() > 0),
        "{context}: the log is gone"
    );

    let writer = open(vfs, &path, "");
    assert_eq!(
        writer.value("SELECT a FROM t").expect("readable").integer(),
        5,
        "{context}"
    );
    drop(writer);
    assert!(
        !log.exists(),
        "{context}: it was not deleted by a connection that may"
    );
}

#[test]
fn a_connection_that_may_only_read_changes_nothing() {
    start_with_vfs();
    for vfs in VFSES {
        is_read_only(vfs, false);
        is_read_only(vfs, true);
    }
}

#[test]
fn a_database_whose_first_page_was_lost_is_not_an_empty_one() {
    start_with_vfs();
    for vfs in VFSES {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("app.db");
        open(vfs, &path, "")
            .run("CREATE TABLE t AS SELECT 'kept' AS a")
            .expect("possible");

        let mut bytes = fs::read(&path).expect("readable");
        bytes[..4096].fill(0);
        fs::write(&path, &bytes).expect("writable");
        let db = open(vfs, &path, "");
        assert_eq!(
            code(db.run("CREATE TABLE u(a)")),
            ffi::SQLITE_NOTADB,
            "{vfs}"
        );
        drop(db);
        assert!(
            fs::read(&path).expect("readable") == bytes,
            "{vfs}: what was left is gone"
        );
    }
}

#[test]
fn a_file_of_one_byte_is_an_empty_database() {
    start_with_vfs();
    for vfs in VFSES {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("app.db");
        fs::write(&path, [0]).expect("writable");
        let db = open(vfs, &path, "");
        assert_eq!(code(db.run("CREATE TABLE u(a)")), ffi::SQLITE_OK, "{vfs}");
    }
}

/// Runs a task as a user to whom permissions apply. The folder is that user's.
fn as_user<T: Send>(folder: &Path, task: impl FnOnce() -> T + Send) -> T {
    const NOBODY: u32 = 65534;
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(folder, Some(NOBODY), None).expect("root may");
    }
    let run = || {
        if is_root {
            // For this thread only.
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(None, nobody, None).expect("root may");
        }
        task()
    };
    thread::scope(|scope| scope.spawn(run).join().expect("it did not panic"))
}

#[test]
fn a_database_that_may_not_be_written_is_opened_to_be_read() {
    start_with_vfs();
    for vfs in VFSES {
        for mode in ["delete", "wal"] {
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("app.db");
            as_user(dir.path(), || {
                let db = open(vfs, &path, "");
                db.value(&format!("PRAGMA journal_mode={mode}"))
                    .expect("possible");
                db.run("CREATE TABLE t AS SELECT 7 AS a").expect("possible");
                drop(db);
                fs::set_permissions(&path, Permissions::from_mode(0o444)).expect("it is ours");

                let context = format!("{vfs}, {mode}");
                let before = fs::read(&path).expect("readable");
                let db = open(vfs, &path, "");
                assert_eq!(
                    db.value("SELECT a FROM t").expect("readable").integer(),
                    7,
                    "{context}"
                );
                assert_eq!(
                    code(db.run("INSERT INTO t VALUES(8)")),
                    ffi::SQLITE_READONLY,
                    "{context}"
                );
                drop(db);
                assert!(
                    fs::read(&path).expect("readable") == before,
                    "{context}: the database was changed"
                );
            });
        }
    }
}

/// Runs statements in SQLite's own shell, a program without this VFS; returns its output.
fn shell(path: &Path, sql: &str) -> Option<(bool, String)> {
    let ran = std::process::Command::new("sqlite3")
        .arg(path)
        .arg(sql)
        .output();
    match ran {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            Some((
                output.status.success(),
                String::from_utf8_lossy(&said).into_owned(),
            ))
        }
        Err(_) => {
            println!("left out: there is no sqlite3");
            None
        }
    }
}

// Its locks are on the database's file, unlike this VFS's, and the logs differ.
#[test]
fn sqlites_own_shell_and_this_vfs_never_have_one_database_at_the_same_time() {
    start_with_vfs();
    for mode in ["WAL", "DELETE"] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("app.db");
        let ours = open("remap", &path, "");
        ours.run(&format!("PRAGMA journal_mode={mode}"))
            .expect("possible");
        ours.run("CREATE TABLE t(a)").expect("possible");
        let second = open("remap", &path, "");
        for number in 0..150 {
            let db = if number % 2 == 0 { &ours } else { &second };
            db.run(&format!("INSERT INTO t VALUES({number})"))
                .expect("possible");
            if number % 50 == 7 {
                for sql in ["SELECT count(*) FROM t", "INSERT INTO t VALUES(-1)"] {
                    let Some((done, said)) = shell(&path, sql) else {
                        return;
                    };
                    assert!(!done && said.contains("locked"), "{mode}: {said}");
                }
            }
        }
        drop((ours, second));

        // Closed, it is an ordinary database with all acknowledged transactions.
        let (done, said) = shell(&path, "SELECT count(*) FROM t; PRAGMA integrity_check")
            .expect("there is a shell");
        assert!(done && said.trim() == "150\nok", "{mode}: {said}");

        // The reverse: the shell has a transaction open.
        let mut stock = std::process::Command::new("sqlite3")
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut input = stock.stdin.take().expect("piped");
        writeln!(input, "BEGIN IMMEDIATE; SELECT 'begun';").expect("it listens");
        let mut said = String::new();
        let mut output = BufReader::new(stock.stdout.take().expect("piped"));
        output.read_line(&mut said).expect("it speaks");
        assert_eq!(said.trim(), "begun");
        let ours = open("remap", &path, "");
        let refused = ours
            .run("INSERT INTO t VALUES(-2)")
            .expect_err("it is in use");
        assert!(refused.is_busy(), "{mode}: {refused}");
        drop(input);
        stock.wait().expect("it ends");
        ours.run("INSERT INTO t VALUES(150)")
            .expect("the only reference");
        let count = ours.value("SELECT count(*) FROM t").expect("readable");
        assert_eq!(count.integer(), 151);
    }
}

// An export in that state would have a partial transaction, or lack committed ones.
#[test]
fn a_hot_journal_and_a_log_are_known_as_long_as_they_count() {
    let (_, mounted) = mounted("unfinished", 4000);
    let store = mounted.store();
    let found = || unfinished(store.as_ref(), "app.db").expect("readable");

    for mode in ["delete", "truncate", "persist", "wal"] {
        let db = Db::open("file:app.db?vfs=remap&store=unfinished").expect("possible");
        for sql in [
            &format!("PRAGMA journal_mode={mode}"),
            "PRAGMA cache_size=2",
            "CREATE TABLE IF NOT EXISTS t(v)",
            "INSERT INTO t VALUES(randomblob(90000))",
        ] {
            db.run(sql).expect("possible");
        }
        let log = (mode == "wal").then(|| "app.db-wal".to_owned());
        assert_eq!(found(), log, "{mode}: committed");

        // The cache is too small: pages of the database are overwritten before the commit.
        db.run("BEGIN").expect("possible");
        db.run("UPDATE t SET v = randomblob(90001)")
            .expect("possible");
        let hot = log.clone().unwrap_or_else(|| "app.db-journal".into());
        assert_eq!(found(), Some(hot), "{mode}: in a transaction");
        db.run("COMMIT").expect("possible");
        assert_eq!(found(), log, "{mode}: committed again");

        drop(db);
        assert_eq!(found(), None, "{mode}: closed");
    }

    // A log whose process died before its first frame.
    let options = OpenOptions {
        create: Create::New,
        open_end: true,
        written_next: true,
    };
    let log = store.open("app.db-wal", options).expect("possible");
    store.write(log, 0, &[0; 65536]).expect("possible");
    assert_eq!(found(), None, "only zeroes");
}
