//! Cost of opening a database, counted: connections to a served device, and written files of an
//! image. Programs that connect per request pay it each time.
//!
//! A program of its own: the extension keeps the tables of the one image that a process closed last.

mod kit;

use kit::engine::{Db, start_with_vfs};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Health, Latency, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use remap_ssd_sqlite::mount;
use remap_ssd_store::{ImageDisk, NewVolume, Processes, Store, Volume};
use remap_ssd_testkit::{MemDisk, Op};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

struct Quiet;

impl Log for Quiet {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

/// A served device in memory, with a volume.
struct Served {
    address: SocketAddr,
    accepted: Box<dyn Fn() -> u64>,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(name: &str, at: SocketAddr) -> Self {
        start_with_vfs();
        let config =
            DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
        let device = Device::in_memory(config).expect("room for it");
        // Processes that use volumes would take devices of the same name for one.
        let nqn = nqn(name);
        let subsystem = Subsystem::new(device, &nqn, &[], Latency::None, true, Health::default());
        let allowed = Allowed {
            anybody: true,
            ..Allowed::default()
        };
        let port = Port::new(Arc::new(subsystem.expect("possible")), allowed);
        let server = Server::bind(at, port, Box::new(Quiet)).expect("a free port");
        let (address, stopper) = (server.address(), server.stopper());
        let roster = server.roster();
        let served = Self {
            address: address.expect("bound"),
            accepted: Box::new(move || roster.tally().accepted),
            stopper: stopper.expect("bound"),
            thread: Some(std::thread::spawn(|| {
                server.run().expect("the device works")
            })),
        };
        let disk = Client::connect(served.address, Options::default()).expect("it serves");
        let new = NewVolume::default();
        Volume::create(disk, &Processes::local(), &new, &mut |_, _| {}).expect("it is blank");
        served
    }

    fn uri(&self) -> String {
        format!("file:app.db?vfs=remap&device={}", self.address)
    }

    /// Number of connections that the server accepts during `work`.
    fn connections(&self, work: impl FnOnce()) -> u64 {
        let before = (self.accepted)();
        work();
        (self.accepted)() - before
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

fn nqn(name: &str) -> String {
    format!(
        "nqn.2026-11.test:remap-ssd-openings:{name}:{}",
        std::process::id()
    )
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
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
    let served = Served::new("named", any_port());
    let uri = served.uri();
    assert_eq!(served.connections(|| request(&uri)), 3, "the first one");
    assert_eq!(served.connections(|| request(&uri)), 2, "the second one");
    assert_eq!(rows(&uri), 2);

    let named = format!("{uri}&nqn={}", nqn("named"));
    assert_eq!(served.connections(|| request(&named)), 2, "with its name");
}

#[test]
fn a_device_of_another_name_at_the_same_address_is_found() {
    let first = Served::new("first", any_port());
    let (address, uri) = (first.address, first.uri());
    request(&uri);
    drop(first);

    let second = Served::new("second", address);
    request(&uri);
    assert_eq!(rows(&uri), 1, "of the second device");
    let again = second.connections(|| request(&uri));
    assert_eq!(again, 2, "its name is known now");
}

/// A device in a folder, with a volume.
fn image(folder: &Path) -> String {
    let config =
        DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
    Device::create_in_folder(folder, config, None)
        .expect("room for it")
        .close()
        .expect("possible");
    let disk = ImageDisk::open(folder, 1).expect("it is there");
    Volume::create(disk, &Processes::One, &NewVolume::default(), &mut |_, _| {})
        .expect("it is blank");
    format!("file:app.db?vfs=remap&image={}", folder.display())
}

/// The same, with a database in this journal mode.
fn image_with_database(folder: &Path, mode: &str) -> String {
    let uri = image(folder);
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
    start_with_vfs();
    let disk = MemDisk::new(4000);
    let volume = Volume::create(
        disk.clone(),
        &Processes::One,
        &NewVolume::default(),
        &mut |_, _| {},
    );
    let volume = Arc::new(volume.expect("it is blank"));
    let _mounted = mount("flushes", volume.clone()).expect("the name is free");
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
        let files = volume.list().expect("readable");
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
        assert_eq!(image(&folder), uri);
        request(&uri);
        request(&uri);
        assert_eq!(rows(&uri), 2, "on another image");
    }
}
