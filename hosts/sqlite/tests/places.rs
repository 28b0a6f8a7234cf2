//! Volumes are open as long as they are used, and no longer; and a name leads to one place.
//!
//! A program of its own: the tests depend on the volumes that the process has open, and on the last.

mod kit;

use kit::disks::{mounted, volume};
use kit::engine::{Db, start_with_vfs};
use libsqlite3_sys as ffi;
use remap_ssd_store::{Create, ImageDisk, OpenOptions, OsStore, Store, uuid_text};
use remap_ssd_testkit::MemDisk;
use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A device in a folder, with a volume; returns its path.
fn image(folder: &Path) -> String {
    kit::disks::image(folder);
    folder.display().to_string()
}

#[test]
fn an_image_is_free_after_an_opening_that_failed() {
    start_with_vfs();
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    let image = image(&folder);
    let absent = format!("file:no.db?vfs=remap&image={image}&mode=rw");
    assert!(
        Db::open(&absent)
            .and_then(|db| db.run("SELECT * FROM sqlite_schema"))
            .is_err()
    );
    ImageDisk::open(&folder, 1).expect("it is free");

    let db = Db::open(&format!("file:app.db?vfs=remap&image={image}")).expect("possible");
    assert!(ImageDisk::open(&folder, 1).is_err(), "it is in use");
    drop(db);
    ImageDisk::open(&folder, 1).expect("it is free");
}

#[test]
fn a_volume_stays_open_between_a_name_and_its_opening_whatever_other_threads_do() {
    start_with_vfs();
    let dir = tempfile::tempdir().expect("a folder");
    let uri = format!(
        "file:app.db?vfs=remap&image={}",
        image(&dir.path().join("disk"))
    );

    // SQLite asks for the full name first.
    let image = CString::new(dir.path().join("disk").display().to_string()).expect("no zeroes");
    let mut parameters = [c"image".as_ptr(), image.as_ptr()];
    let mut full = vec![0; 1024];
    // SAFETY: a VFS that is registered is valid for as long as the process; its functions get what
    // SQLite gives them.
    let (vfs, code) = unsafe {
        let vfs = &mut *ffi::sqlite3_vfs_find(remap_ssd_sqlite::NAME.as_ptr());
        let (database, journal, wal) = (
            c"app.db".as_ptr(),
            c"app.db-journal".as_ptr(),
            c"app.db-wal".as_ptr(),
        );
        let name = ffi::sqlite3_create_filename(database, journal, wal, 1, parameters.as_mut_ptr());
        let call = vfs.xFullPathname.expect("it has one");
        let code = call(vfs, name, full.len() as c_int, full.as_mut_ptr());
        ffi::sqlite3_free_filename(name);
        (vfs, code)
    };
    assert_eq!(code, ffi::SQLITE_OK);

    std::thread::spawn(move || {
        Db::open(&uri)
            .expect("possible")
            .run("CREATE TABLE t(a)")
            .expect("possible")
    })
    .join()
    .expect("it did not panic");

    // The name still leads to an open volume.
    let mut there: c_int = 0;
    // SAFETY: the name is a C string, which the VFS has written.
    let code = unsafe {
        assert!(
            CStr::from_ptr(full.as_ptr())
                .to_bytes()
                .ends_with(b"/app.db")
        );
        vfs.xAccess.expect("it has one")(vfs, full.as_ptr(), ffi::SQLITE_ACCESS_EXISTS, &mut there)
    };
    assert_eq!((code, there), (ffi::SQLITE_OK, 1));
}

#[test]
fn a_copy_of_a_volume_that_is_open_is_refused_and_not_taken_for_it() {
    start_with_vfs();
    let dir = tempfile::tempdir().expect("a folder");
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let image = image(&first);
    std::fs::create_dir(&second).expect("room for it");
    for file in std::fs::read_dir(&first).expect("it is there") {
        let file = file.expect("readable");
        std::fs::copy(file.path(), second.join(file.file_name())).expect("room for it");
    }

    let uri = |image: &str| format!("file:app.db?vfs=remap&image={image}");
    let copy = second.display().to_string();
    let db = Db::open(&uri(&image)).expect("possible");
    db.run("CREATE TABLE t AS SELECT 'first' AS a")
        .expect("possible");
    let refused =
        Db::open(&uri(&copy)).and_then(|db| db.run("CREATE TABLE t AS SELECT 'second' AS a"));
    assert!(refused.expect_err("the other one is open").cannot_open());

    // They can be used in turn, and each has its own.
    drop(db);
    let db = Db::open(&uri(&copy)).expect("possible");
    db.run("CREATE TABLE t AS SELECT 'second' AS a")
        .expect("there is no such table");
    drop(db);
    let db = Db::open(&uri(&image)).expect("possible");
    assert_eq!(
        db.value("SELECT a FROM t").expect("readable").text(),
        "first"
    );
}

#[test]
fn a_program_gives_the_vfs_a_store_of_its_own() {
    start_with_vfs();
    let volume = || volume(MemDisk::new(4000));
    let uri = "file:app.db?vfs=remap&store=mine";
    assert!(Db::open(uri).is_err(), "there is none yet");
    let mounted = remap_ssd_sqlite::mount("mine", Arc::new(volume())).expect("the name is free");
    let db = Db::open(uri).expect("possible");
    db.run("CREATE TABLE t AS SELECT 'kept' AS a")
        .expect("possible");

    // Neither another store of that name, nor the same volume under another one.
    let refused = |name: &str, store| {
        remap_ssd_sqlite::mount(name, store)
            .err()
            .expect("refused")
            .to_string()
    };
    assert!(refused("mine", Arc::new(volume())).contains("a store of that name already"));
    assert!(refused("other", Arc::clone(mounted.store())).contains("the volume open already"));
    let dir = tempfile::tempdir().expect("a folder");
    let files = OsStore::open(dir.path()).expect("possible");
    assert!(refused("files", Arc::new(files)).contains("opened by their paths"));

    // Open databases stay usable; afterwards the name is unknown.
    drop(mounted);
    assert_eq!(
        db.value("SELECT a FROM t").expect("readable").text(),
        "kept"
    );
    drop(db);
    assert!(Db::open(uri).is_err());
}

// The last connection to close a database deletes its log, while another process checks if there is
// one.
#[test]
fn a_file_that_is_deleted_while_sqlite_looks_for_it_is_absent_and_no_error() {
    start_with_vfs();
    let store = kit::noting::Noting::new(volume(MemDisk::new(4000)));
    let uuid = uuid_text(&store.identity().expect("a volume has one"));
    let mounted = remap_ssd_sqlite::mount("deleted", Arc::clone(&store) as Arc<dyn Store>);
    let _mounted = mounted.expect("possible");

    // SAFETY: SQLite knows this VFS for as long as the process runs.
    let vfs = unsafe { ffi::sqlite3_vfs_find(c"remap".as_ptr()) };
    // SAFETY: as above.
    let access = unsafe { (*vfs).xAccess }.expect("a VFS has it");
    let is_there = |name: &str| {
        let full = CString::new(format!("/{uuid}/{name}")).expect("no zeroes");
        let mut there: c_int = -1;
        // SAFETY: a C string, and a place for the result.
        let code = unsafe { access(vfs, full.as_ptr(), ffi::SQLITE_ACCESS_EXISTS, &mut there) };
        (code, there)
    };

    for name in ["app.db-wal", "app.db-journal"] {
        let options = OpenOptions::from(Create::New);
        let file = store.open(name, options).expect("possible");
        store.write(file, 0, &[1; 4096]).expect("possible");
        let is_log = c_int::from(name == "app.db-wal");
        assert_eq!(
            is_there(name),
            (ffi::SQLITE_OK, is_log),
            "{name}: bytes are no journal"
        );

        store.deletes_opened.store(true, Ordering::Relaxed);
        assert_eq!(
            is_there(name),
            (ffi::SQLITE_OK, 0),
            "{name} was just deleted"
        );
        store.deletes_opened.store(false, Ordering::Relaxed);
    }
}

/// The full name of a connection's database.
fn full_name(db: &Db) -> String {
    let rows = db.rows("PRAGMA database_list", &[]).expect("possible");
    rows[0][2].text().to_owned()
}

fn table(uri: &str, content: &str) -> Db {
    let db = Db::open(uri).expect("possible");
    db.run(&format!("CREATE TABLE t AS SELECT '{content}' AS a"))
        .expect("there is none yet");
    db
}

fn content(uri: &str) -> String {
    let db = Db::open(uri).expect("possible");
    let content = db.value("SELECT a FROM t").expect("readable");
    content.text().to_owned()
}

#[test]
fn an_absolute_name_is_of_a_file_of_the_system_although_a_volume_is_open() {
    start_with_vfs();
    let dir = tempfile::tempdir().expect("a folder");
    let (_, mounted) = mounted("absolute", 4000);
    let db = table("file:app.db?vfs=remap&store=absolute", "in the volume");

    let [opened, attached] =
        ["opened.db", "attached.db"].map(|name| dir.path().join(name).display().to_string());
    let uri = format!("file:{opened}?vfs=remap");
    drop(table(&uri, "in the folder"));
    assert_eq!(content(&uri), "in the folder");
    db.run(&format!("ATTACH '{attached}' AS other"))
        .expect("possible");
    db.run("CREATE TABLE other.t(a)").expect("possible");

    for name in [&opened, &attached] {
        assert!(Path::new(name).exists(), "{name}");
    }
    let files = mounted.store().list().expect("possible");
    let names: Vec<_> = files.into_iter().map(|file| file.name).collect();
    assert!(
        names.iter().all(|name| name.starts_with("app.db")),
        "{names:?}"
    );
}

/// The folder with the files of the process below.
const PART: &str = "SQLITE_PLACES_PART";

#[test]
fn the_environment_places_relative_names_and_volumes_that_are_not_open() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(&dir.path().join("disk"));
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command
        .args(["--exact", "process", "--ignored", "--nocapture", "--quiet"])
        .current_dir(dir.path())
        .env(PART, dir.path())
        .env("REMAP_SSD_IMAGE", image)
        .env_remove("REMAP_SSD_DEVICE")
        .env_remove("REMAP_SSD_FOLDER");
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}

/// Opens databases by all kinds of names, with an image in the environment.
#[test]
#[ignore = "another test starts this one, in a process of its own"]
fn process() {
    let folder = std::env::var(PART).expect("another test starts this one");
    start_with_vfs();
    let (_, mounted) = mounted("mine", 4000);

    // One name in three places.
    let named = "file:app.db?vfs=remap&store=mine";
    let absolute = format!("file:{folder}/app.db?vfs=remap");
    let relative = "file:app.db?vfs=remap";
    let in_store = table(named, "in the store");
    drop(table(&absolute, "in the folder"));
    let in_image = table(relative, "in the image");

    assert_eq!(content(named), "in the store");
    assert_eq!(content(&absolute), "in the folder");
    assert_eq!(content(relative), "in the image");

    // Full names of two volumes, as SQLite's super-journals have them.
    let uri = |db: &Db| format!("file:{}?vfs=remap", full_name(db));
    let (store_uri, image_uri) = (uri(&in_store), uri(&in_image));
    assert_ne!(store_uri, image_uri);
    assert_eq!(content(&store_uri), "in the store");
    assert_eq!(content(&image_uri), "in the image");

    // The image is closed, and opened again as the environment says; the store is gone.
    drop((in_store, in_image, mounted));
    ImageDisk::open(Path::new(&folder).join("disk").as_path(), 1).expect("it is not in use");
    assert_eq!(content(&image_uri), "in the image");
    let named = format!("{relative}&image={folder}/disk");
    assert_eq!(content(&named), "in the image");
    assert!(Db::open(&store_uri).is_err(), "it is on another volume");
}

#[test]
fn a_device_in_memory_lives_as_long_as_the_process() {
    start_with_vfs();
    for rows in 1..4 {
        let db = Db::open("file:kept.db?vfs=remap&memory=16MiB").expect("possible");
        db.run("CREATE TABLE IF NOT EXISTS t(a)").expect("possible");
        db.run("INSERT INTO t VALUES (1)").expect("possible");
        assert_eq!(kit::disks::count(&db), rows);
    }
    let other = Db::open("file:kept.db?vfs=remap&memory=17825792").expect("possible");
    assert!(
        other.run("SELECT * FROM t").is_err(),
        "another size is another device"
    );
}

#[test]
fn a_folder_that_does_not_exist_becomes_a_device_if_a_size_is_given() {
    start_with_vfs();
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("made");
    let uri = format!("file:app.db?vfs=remap&image={}", folder.display());
    for existing_only in [
        String::new(),
        "&size=16MiB&mode=rw".into(),
        "&size=16MiB&mode=ro".into(),
    ] {
        assert!(Db::open(&(uri.clone() + &existing_only)).is_err());
        assert!(!folder.exists());
    }
    for (wrong, why) in [("&size=lots", "size=lots"), ("&size=1KiB", "MiB")] {
        let failure = Db::open(&(uri.clone() + wrong))
            .err()
            .expect("it cannot be made");
        assert!(failure.message.contains(why), "{failure}");
    }
    assert_eq!(dir.path().read_dir().expect("a folder").count(), 0);

    let sized = uri.clone() + "&size=16MiB";
    let db = Db::open(&sized).expect("possible");
    db.run("CREATE TABLE t(a)").expect("possible");
    let again = Db::open(&uri).expect("it is one place, open already");
    assert_eq!(kit::disks::count(&again), 0);
    drop((db, again));

    // The size of a device that exists stays.
    let db = Db::open(&(uri + "&size=64MiB")).expect("possible");
    assert_eq!(kit::disks::count(&db), 0);
    assert_eq!(dir.path().read_dir().expect("a folder").count(), 1);
}
