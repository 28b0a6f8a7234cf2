//! Cost of opening a database, counted: connections to a served device, and written files of an
//! image. Programs that connect per request pay it each time.
//!
//! A program of its own: the extension keeps the tables of the one image that a process closed last.

mod kit;

use kit::disks::{image, mounted};
use kit::engine::{Db, start_with_vfs};
use kit::served::{ANY_PORT, Served};
use remap_ssd_store::{ImageDisk, Processes, Store, Volume};
use remap_ssd_testkit::Op;
use std::path::Path;

/// Number of connections that the server accepts during `work`.
fn connections(served: &Served, work: impl FnOnce()) -> u64 {
    let accepted = || served.roster().tally().accepted;
    let before = accepted();
    work();
    accepted() - before
}

/// A program that connects for one request.
fn request(uri: &str) {
    let db = Db::open(uri).expect("possible");
    db.run("CREATE TABLE IF NOT EXISTS t(a)").expect("possible");
    db.run("INSERT INTO t VALUES(1)").expect("possible");
}

fn rows(uri: &str) -> i64 {
    let db = Db::open(uri).expect("possible");
    db.value("SELECT count(*) FROM t")
        .expect("possible")
        .integer()
}

#[test]
fn an_opening_on_a_device_connects_twice_and_asks_for_its_name_once() {
    start_with_vfs();
    let served = Served::with_volume(ANY_PORT);
    let uri = served.uri();
    assert_eq!(connections(&served, || request(&uri)), 3, "the first one");
    assert_eq!(connections(&served, || request(&uri)), 2, "the second one");
    assert_eq!(rows(&uri), 2);

    let named = format!("{uri}&nqn={}", served.nqn);
    assert_eq!(connections(&served, || request(&named)), 2, "with its name");
}

#[test]
fn a_device_of_another_name_at_the_same_address_is_found() {
    start_with_vfs();
    let first = Served::with_volume(ANY_PORT);
    let (address, uri) = (first.address, first.uri());
    request(&uri);
    drop(first);

    let second = Served::with_volume(&address.to_string());
    request(&uri);
    assert_eq!(rows(&uri), 1, "of the second device");
    let again = connections(&second, || request(&uri));
    assert_eq!(again, 2, "its name is known now");
}

fn uri_of(folder: &Path) -> String {
    format!("file:app.db?vfs=remap&image={}", folder.display())
}

/// A device in a folder, with a volume and a database in this journal mode.
fn image_with_database(folder: &Path, mode: &str) -> String {
    image(folder);
    let uri = uri_of(folder);
    let db = Db::open(&uri).expect("possible");
    db.run(&format!("PRAGMA journal_mode={mode}"))
        .expect("possible");
    uri
}

fn files(folder: &Path, names: &[&str]) -> Vec<Vec<u8>> {
    let read = |name: &&str| std::fs::read(folder.join(name)).expect("it is there");
    names.iter().map(read).collect()
}

#[test]
fn an_opening_on_an_image_writes_nothing_but_the_change() {
    const ALL: [&str; 5] = ["contents", "journal.0", "journal.1", "state.0", "state.1"];
    start_with_vfs();
    for mode in ["DELETE", "WAL"] {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("disk");
        let uri = image_with_database(&folder, mode);
        request(&uri);

        // A reader leaves the device unchanged: no log is created in WAL mode.
        let before = files(&folder, &ALL);
        assert_eq!(rows(&uri), 1);
        assert!(
            files(&folder, &ALL) == before,
            "{mode}: nothing was written"
        );

        // A change is recorded in the journal, without writing a state.
        let states = files(&folder, &ALL[3..]);
        for row in 2..6 {
            request(&uri);
            assert_eq!(rows(&uri), row);
        }
        assert!(
            files(&folder, &ALL[3..]) == states,
            "{mode}: a state was written"
        );
    }
}

#[test]
fn a_log_that_lasts_for_one_transaction_costs_seven_flushes_and_a_reader_none() {
    let (disk, mounted) = mounted("flushes", 4000);
    let uri = "file:app.db?vfs=remap&store=flushes";
    let flushes = || {
        let medium = disk.medium();
        medium
            .log
            .iter()
            .filter(|op| matches!(op, Op::Flush))
            .count()
    };
    let has_log = || {
        let files = mounted.store().list().expect("readable");
        files.iter().any(|file| file.name == "app.db-wal")
    };
    let db = Db::open(uri).expect("possible");
    db.run("PRAGMA journal_mode=WAL").expect("possible");
    drop(db);
    request(uri);

    // Two create the log with its first pages, one follows its header, and one its frame. SQLite syncs
    // log and database in the checkpoint; the deletion is the last one.
    let before = flushes();
    let db = Db::open(uri).expect("possible");
    db.run("INSERT INTO t VALUES(2)").expect("possible");
    assert_eq!(flushes() - before, 4, "until the transaction has ended");
    assert!(has_log());
    drop(db);
    assert_eq!(flushes() - before, 7, "until the database was closed");
    assert!(!has_log());

    let before = flushes();
    let db = Db::open(uri).expect("possible");
    let count = db.value("SELECT count(*) FROM t").expect("readable");
    assert_eq!(count.integer(), 2);
    assert!(!has_log(), "no log for a reader");
    drop(db);
    assert_eq!(flushes(), before, "a reader");
}

// Tables of the image stay in this process. Another one changes the image, or replaces it.
#[test]
fn an_image_that_changed_while_it_was_closed_is_read_again() {
    start_with_vfs();
    for mode in ["DELETE", "WAL"] {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("disk");
        let uri = image_with_database(&folder, mode);
        for row in 1..4 {
            request(&uri);
            assert_eq!(rows(&uri), row);
        }

        let disk = ImageDisk::open(&folder, 1).expect("it is closed");
        let volume = Volume::open(disk, &Processes::One).expect("it has a volume");
        volume.delete("app.db").expect("it is closed");
        drop(volume);
        request(&uri);
        assert_eq!(rows(&uri), 1, "of a new database");

        std::fs::remove_dir_all(&folder).expect("it is closed");
        assert!(Db::open(&uri).is_err(), "there is no image");
        image(&folder);
        request(&uri);
        request(&uri);
        assert_eq!(rows(&uri), 2, "on another image");
    }
}
