//! The experiments' recordings (`experiments/recordings`) are of an extension with the present
//! behaviour: small fixed loads send as many commands as when they were made.
//!
//! Counts, not a digest of sources: they change only if the commands do. Absent: recordings of
//! stock SQLite, which have none of this crate in them.

use crate::kit::disks::mounted;
use crate::kit::engine::Db;
use remap_ssd_testkit::Op;
use std::fmt::Write;

const README: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../experiments/recordings/README.md"
);
const INSERTS: u64 = 200;
/// The families of recordings: the arm, and its pragmas after those of `db_bench`.
const FAMILIES: [(&str, &str); 4] = [
    ("rollback, full", "synchronous=FULL"),
    ("rollback, off", "synchronous=OFF"),
    ("no journal, off", "synchronous=OFF journal_mode=OFF"),
    (
        "log, normal",
        "synchronous=NORMAL journal_mode=WAL wal_autocheckpoint=32",
    ),
];

/// A line of the table in the README: what one load has the device do.
fn line(family: &str, pragmas: &str) -> String {
    let name = format!("recorded {family}");
    let (disk, mounted) = mounted(&name, 20_000);
    let db = Db::open(&format!("file:app.db?vfs=remap&store={name}")).expect("possible");
    db.run("PRAGMA locking_mode=EXCLUSIVE").expect("possible");
    for pragma in pragmas.split(' ') {
        db.run(&format!("PRAGMA {pragma}")).expect("possible");
    }
    db.run("CREATE TABLE t(k BLOB, v BLOB, PRIMARY KEY(k))")
        .expect("possible");

    let counts = || {
        let medium = disk.medium();
        let flushes = |op: &&Op| matches!(op, Op::Flush);
        let flushes = medium.log.iter().filter(flushes).count();
        let changed = medium.log.len() - flushes;
        [
            medium.reads,
            medium.writes,
            medium.remap_lists,
            changed,
            flushes,
        ]
    };
    let before = counts();
    for number in 0..INSERTS {
        // Keys in an order without neighbours.
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        db.run(&format!(
            "REPLACE INTO t VALUES (x'{key:016x}', zeroblob(1000) || {number})"
        ))
        .expect("possible");
    }
    let after = counts();
    drop((db, mounted));

    let mut line = format!("| {family} |");
    for (after, before) in after.into_iter().zip(before) {
        write!(line, " {} |", after - before).expect("a string");
    }
    line
}

#[test]
fn the_extension_sends_the_commands_that_it_sent_when_the_recordings_were_made() {
    let readme = std::fs::read_to_string(README).expect("beside the recordings");
    let version = {
        let db = Db::open(":memory:").expect("possible");
        let version = db.value("SELECT sqlite_version()").expect("readable");
        version.text().to_owned()
    };
    // Another SQLite may read or write other pages.
    if !readme.contains(&format!("SQLite {version}")) {
        println!("not compared: the recordings are of another SQLite than {version}");
        return;
    }

    let found: Vec<String> = FAMILIES
        .iter()
        .map(|(family, pragmas)| line(family, pragmas))
        .collect();
    let missing: Vec<&String> = found
        .iter()
        .filter(|line| !readme.contains(*line))
        .collect();
    assert!(
        missing.is_empty(),
        "experiments/recordings are of an extension that sends other commands: make them again with \
         rig/sqlite-figures, then write into experiments/recordings/README.md:\n{}",
        found.join("\n")
    );
}
