//! A disk that fails at any command, and one that is full: SQLite reports it, a transaction is done
//! or not, and later reads agree with the first one. SQLite's own tests of this inject their errors
//! into the system's VFS, which this extension's files bypass.

use crate::kit::disks::volume;
use crate::kit::engine::{Db, Failure, start_with_vfs};
use libsqlite3_sys as ffi;
use remap_ssd_device::{Disk, DiskRemap};
use remap_ssd_sqlite::{Mounted, mount};
use remap_ssd_store::{Processes, Volume};
use remap_ssd_testkit::{MemDisk, MemError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const PAGES: u64 = 4000;

/// Schedule of failing commands.
#[derive(Default)]
struct Plan {
    /// Number of commands that still succeed; 0 if none is going to fail.
    left: AtomicI64,
    /// The following ones fail as well.
    persists: AtomicBool,
    hits: AtomicI64,
    /// Panics when asked whether the disk is still held.
    panics: AtomicBool,
}

impl Plan {
    fn after(&self, commands: i64, persists: bool) {
        self.hits.store(0, Ordering::Relaxed);
        self.persists.store(persists, Ordering::Relaxed);
        self.left.store(commands, Ordering::Relaxed);
    }

    /// Returns the number of failed commands.
    fn end(&self) -> i64 {
        self.left.store(0, Ordering::Relaxed);
        self.persists.store(false, Ordering::Relaxed);
        self.hits.swap(0, Ordering::Relaxed)
    }

    fn command(&self) -> Result<(), FaultyError> {
        let now =
            self.left.load(Ordering::Relaxed) > 0 && self.left.fetch_sub(1, Ordering::Relaxed) == 1;
        let still = self.persists.load(Ordering::Relaxed) && self.hits.load(Ordering::Relaxed) > 0;
        if now || still {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Err(FaultyError::Planted);
        }
        Ok(())
    }
}

/// A disk that fails according to a plan.
struct Faulty {
    disk: MemDisk,
    plan: Arc<Plan>,
}

#[derive(Debug, thiserror::Error)]
enum FaultyError {
    #[error("a planted error")]
    Planted,
    #[error(transparent)]
    Disk(#[from] MemError),
}

impl Disk for Faulty {
    type Error = FaultyError;

    fn pages(&self) -> u64 {
        self.disk.pages()
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), FaultyError> {
        self.plan.command()?;
        Ok(self.disk.read(page, into)?)
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), FaultyError> {
        self.plan.command()?;
        Ok(self.disk.write(page, data)?)
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), FaultyError> {
        self.plan.command()?;
        Ok(self.disk.trim(page, pages)?)
    }

    fn flush(&mut self) -> Result<(), FaultyError> {
        self.plan.command()?;
        Ok(self.disk.flush()?)
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), FaultyError> {
        self.plan.command()?;
        Ok(self.disk.remap(remap)?)
    }

    fn still_held(&mut self) -> Result<(), FaultyError> {
        assert!(!self.plan.panics.load(Ordering::Relaxed), "a planted bug");
        Ok(())
    }
}

/// A volume on such a disk, registered with the VFS under a name.
fn mounted(store: &str, disk: &MemDisk, plan: &Arc<Plan>) -> Mounted {
    let volume = Volume::open(
        Faulty {
            disk: disk.clone(),
            plan: Arc::clone(plan),
        },
        &Processes::One,
    );
    mount(store, Arc::new(volume.expect("it is one"))).expect("the name is free")
}

/// A disk with a database of `rows` rows.
fn disk_with_rows(store: &str, pages: u64, mode: &str, rows: u32) -> MemDisk {
    let disk = MemDisk::new(pages);
    volume(disk.clone());
    let mounted = mounted(store, &disk, &Arc::default());
    let db = open(store).expect("possible");
    let rows =
        format!("WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < {rows})");
    for sql in [
        &format!("PRAGMA journal_mode={mode}"),
        "CREATE TABLE t(a INTEGER PRIMARY KEY, round, v)",
        &format!("INSERT INTO t {rows} SELECT a, 0, printf('%01000d', a) FROM n"),
    ] {
        db.run(sql).expect("possible");
    }
    drop((db, mounted));
    disk
}

fn open(store: &str) -> Result<Db, Failure> {
    Db::open(&format!("file:app.db?vfs=remap&store={store}"))
}

/// A transaction that does not fit into the cache, and a checkpoint. Returns SQLite's result.
fn transaction(db: &Db, mode: &str) -> Result<(), Failure> {
    let all = [
        "BEGIN",
        "UPDATE t SET round = 1",
        "DELETE FROM t WHERE a % 3 = 0",
        "COMMIT",
    ];
    let done = all.into_iter().try_for_each(|sql| db.run(sql));
    if done.is_err() {
        let _ = db.run("ROLLBACK");
    }
    if mode == "wal" {
        // Its result is independent of the transaction's.
        let _ = db.run("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    done
}

/// Returns true if the transaction was done, according to the database's contents.
fn is_done(db: &Db, rows: i64, context: &str) -> bool {
    let value = |sql: &str| {
        db.value(sql)
            .unwrap_or_else(|failure| panic!("{context}: {sql}: {failure}"))
    };
    assert_eq!(value("PRAGMA integrity_check").text(), "ok", "{context}");
    let found = [
        "SELECT count(*) FROM t WHERE v = printf('%01000d', a)",
        "SELECT sum(round) FROM t",
    ]
    .map(|sql| value(sql).integer());
    let after = rows - rows / 3;
    assert!(
        found == [rows, 0] || found == [after, after],
        "{context}: a part of the transaction is there: {found:?}"
    );
    found == [after, after]
}

fn fails_anywhere(mode: &str) {
    const ROWS: i64 = 60;
    start_with_vfs();
    let store = format!("faults-{mode}");
    let base = disk_with_rows(&store, PAGES, mode, ROWS as u32)
        .medium()
        .contents();
    let (mut failed, mut done) = (0, 0);
    for persists in [false, true] {
        for commands in 1.. {
            let context = format!(
                "{mode}, command {commands} {}",
                if persists { "and all others" } else { "alone" }
            );
            let disk = MemDisk::holding(PAGES, base.clone());
            let plan = Arc::default();
            let place = mounted(&store, &disk, &plan);
            let db = open(&store).expect("possible");
            for sql in [
                "PRAGMA cache_size=3",
                "PRAGMA synchronous=FULL",
                "SELECT count(*) FROM t",
            ] {
                db.run(sql).expect("possible");
            }

            plan.after(commands, persists);
            let said = transaction(&db, mode);
            if plan.end() == 0 {
                said.unwrap_or_else(|failure| panic!("{context}: nothing has failed: {failure}"));
                break;
            }
            let is_there = is_done(&db, ROWS, &context);
            match said {
                Ok(()) => assert!(is_there, "{context}: it was said to be done"),
                Err(failure) => assert!(failure.is_io(), "{context}: {failure}"),
            }
            (failed, done) = (failed + u32::from(!is_there), done + u32::from(is_there));

            drop((db, place));
            let place = mounted(&store, &disk, &plan);
            let db = open(&store).expect("possible");
            assert_eq!(
                is_done(&db, ROWS, &context),
                is_there,
                "{context}: later it is otherwise"
            );
            drop((db, place));
        }
    }
    assert!(
        failed > 10,
        "{mode}: {failed} of {} transactions have failed",
        failed + done
    );
}

#[test]
fn a_disk_may_fail_anywhere_where_the_journal_is_deleted() {
    fails_anywhere("delete");
}

#[test]
fn a_disk_may_fail_anywhere_where_the_journal_stays() {
    fails_anywhere("persist");
}

#[test]
fn a_disk_may_fail_anywhere_where_there_is_a_log() {
    fails_anywhere("wal");
}

#[test]
fn a_volume_that_is_full_is_said_to_be_and_its_database_stays_whole() {
    start_with_vfs();
    for mode in ["delete", "persist", "wal"] {
        let store = format!("full-{mode}");
        let disk = disk_with_rows(&store, 600, mode, 3);
        let place = mounted(&store, &disk, &Arc::default());
        let db = open(&store).expect("possible");
        let insert =
            || db.run("INSERT INTO t SELECT max(a) + 1, 0, printf('%09000d', max(a) + 1) FROM t");
        let mut rows = 3;
        let failure = loop {
            match insert() {
                Ok(()) => rows += 1,
                Err(failure) => break failure,
            }
            assert!(rows < 1000, "{mode}: the disk has 600 pages");
        };
        assert_eq!(failure.code, ffi::SQLITE_FULL, "{mode}: {failure}");
        assert!(rows > 50, "{mode}: it was full after {rows} rows");

        let check = |db: &Db| {
            assert_eq!(
                db.value("PRAGMA integrity_check").expect("readable").text(),
                "ok",
                "{mode}"
            );
            assert_eq!(
                db.value("SELECT count(*) FROM t")
                    .expect("readable")
                    .integer(),
                rows,
                "{mode}"
            );
        };
        check(&db);
        let vacuum = db.run("VACUUM").expect_err("there is no room for a copy");
        assert_eq!(vacuum.code, ffi::SQLITE_FULL, "{mode}: {vacuum}");
        check(&db);
        drop((db, place));

        let place = mounted(&store, &disk, &Arc::default());
        let db = open(&store).expect("possible");
        check(&db);
        drop((db, place));
    }
}

// SQLite asks for the lock of the database in the first mode, for one in the shared memory in the
// second.
#[test]
fn a_panic_in_a_call_for_a_lock_is_an_error_for_sqlite_and_the_database_stays_usable() {
    start_with_vfs();
    for mode in ["delete", "wal"] {
        let store = format!("panics-{mode}");
        let disk = disk_with_rows(&store, PAGES, mode, 3);
        let plan = Arc::default();
        let place = mounted(&store, &disk, &plan);
        let db = open(&store).expect("possible");
        let rows = || {
            db.value("SELECT count(*) FROM t")
                .map(|rows| rows.integer())
        };
        assert_eq!(rows().expect("possible"), 3, "{mode}");

        plan.panics.store(true, Ordering::Relaxed);
        assert!(rows().expect_err("a planted bug").is_io(), "{mode}");
        plan.panics.store(false, Ordering::Relaxed);
        assert_eq!(rows().expect("possible"), 3, "{mode}");
        drop((db, place));
    }
}
