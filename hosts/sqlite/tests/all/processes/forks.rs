//! Processes that fork while a database is open.

use crate::kit::disks::count;
use crate::kit::engine::{Db, start_with_vfs};
use crate::processes::child::ForkedChild;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use std::io::{Read, Write, pipe};

const CHILDREN: usize = 4;
const ROWS_EACH: usize = 25;

fn open(uri: &str) -> Db {
    let db = Db::open(uri).expect("the device is served");
    db.wait_for_locks();
    db
}

fn database(uri: &str, mode: &str) -> Db {
    start_with_vfs();
    let db = open(uri);
    db.run(&format!("PRAGMA journal_mode={mode}"))
        .expect("possible");
    db.run("CREATE TABLE IF NOT EXISTS t(who, k)")
        .expect("possible");
    db.run("DELETE FROM t").expect("possible");
    db
}

fn insert(db: &Db, who: usize) {
    for k in 0..ROWS_EACH {
        db.run(&format!("INSERT INTO t VALUES({who}, {k})"))
            .unwrap_or_else(|failure| panic!("{who}, row {k}: {failure}"));
    }
}

/// The parent keeps writing while its children write.
pub fn pool(uri: &str) {
    for mode in ["wal", "delete"] {
        let db = database(uri, mode);
        let children: Vec<_> = (1..=CHILDREN)
            .map(|who| ForkedChild::start(|| insert(&open(uri), who)))
            .collect();
        insert(&db, 0);

        children.into_iter().for_each(ForkedChild::wait);
        assert_eq!(
            count(&db),
            (1 + CHILDREN as i64) * ROWS_EACH as i64,
            "{mode}"
        );
    }
}

/// The child uses an inherited connection, in a transaction of the parent, and closes it.
pub fn inherited(uri: &str) {
    for mode in ["wal", "delete"] {
        let db = database(uri, mode);
        db.run("INSERT INTO t VALUES(0, 0)").expect("possible");
        db.run("BEGIN").expect("possible");
        db.run("INSERT INTO t VALUES(1, 1)").expect("possible");

        // The child ends without dropping values that it did not take.
        let mut owned = Some(db);
        let child = ForkedChild::start(|| {
            let db = owned.take().expect("it is open");
            let failure = db.run("COMMIT").expect_err("it is the parent's");
            assert!(failure.is_io(), "{mode}: {failure}");
            assert!(failure.message.contains("before fork()"), "{failure}");
            drop(db);

            // It can open its own, which sees the parent's commits.
            assert_eq!(count(&open(uri)), 1);
        });
        child.wait();

        let db = owned.expect("the parent has its own");
        db.run("COMMIT").expect("the child has not touched it");
        assert_eq!(count(&db), 2, "{mode}");
    }

    // Between transactions there are no locks, and reading is an error nevertheless.
    for mode in ["wal", "delete"] {
        let db = database(uri, mode);
        ForkedChild::start(|| {
            let failure = db.run("SELECT * FROM t").expect_err("it is the parent's");
            assert!(failure.is_io(), "{mode}: {failure}");
            // Also after the inherited locks are closed.
            assert_eq!(count(&open(uri)), 0);
            let failure = db.run("SELECT * FROM t").expect_err("it is the parent's");
            assert!(failure.is_io(), "{mode}: {failure}");
        })
        .wait();
        assert_eq!(count(&db), 0);
    }
}

/// The parent closes the database while a child has it open by its own connection.
pub fn log(uri: &str) {
    let db = database(uri, "wal");
    let (mut child_reads, mut parent_writes) = pipe().expect("room for it");
    let (mut parent_reads, mut child_writes) = pipe().expect("room for it");
    let child = ForkedChild::start(|| {
        let db = open(uri);
        insert(&db, 1);
        child_writes.write_all(b"1").expect("it reads");
        child_reads.read_exact(&mut [0]).expect("it writes");

        insert(&db, 2);
        // It ends without closing: its commits are in the log.
        std::mem::forget(db);
    });

    parent_reads.read_exact(&mut [0]).expect("it writes");
    // The only connection to a database copies the log into it and deletes the log.
    drop(db);
    parent_writes.write_all(b"1").expect("it reads");
    child.wait();
    assert_eq!(count(&open(uri)), 2 * ROWS_EACH as i64);
}

/// Without SQLite: a host's connection, and a queue.
pub fn client(address: &str) {
    let connect = || Client::connect(address, Options::default()).expect("it serves");
    let mut client = connect();
    let mut queue = client.another_queue(2).expect("there is one more");
    let before = client.read(0, 1).expect("possible");

    ForkedChild::start(|| {
        assert!(matches!(client.read(0, 1), Err(ClientError::Forked)));
        assert!(matches!(client.another_queue(3), Err(ClientError::Forked)));
        assert!(matches!(queue.send(), Err(ClientError::Forked)));
        assert!(matches!(queue.abandon(), Err(ClientError::Forked)));
        assert_eq!(connect().read(0, 1).expect("its own"), before);
    })
    .wait();
    assert_eq!(client.read(0, 1).expect("unharmed"), before);
}
