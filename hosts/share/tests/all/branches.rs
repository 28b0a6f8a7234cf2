//! Branches of databases: a file with its log and its journal.

use remap_ssd_device::{Device, DeviceConfig, LocalDisk, SchemeKind};
use remap_ssd_share::branches;
use remap_ssd_store::{Create, NewBranch, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{PAGE, contents, tagged};

fn volume() -> Volume<LocalDisk> {
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false);
    let device = Device::in_memory(config.expect("possible")).expect("possible");
    let new = NewVolume {
        files_max: 32,
        ..NewVolume::default()
    };
    let disk = LocalDisk::new(device);
    Volume::create(disk, &Processes::One, &new, &mut |_, _| {}).expect("possible")
}

fn put(store: &dyn Store, name: &str, bytes: &[u8]) {
    let file = store.open(name, Create::IfAbsent.into()).expect("possible");
    store.write(file, 0, bytes).expect("there is room");
    store.sync(file).expect("possible");
}

fn get(store: &dyn Store, name: &str) -> Option<Vec<u8>> {
    let file = store.open(name, OpenOptions::default()).ok()?;
    Some(contents(store, file))
}

fn create(store: &dyn Store, from: &str, names: &[&str]) -> Result<(), String> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = branches::create(store, from, &names, 7, &mut |_, _| {});
    made.map_err(|error| error.to_string())
}

#[test]
fn a_branch_has_the_log_of_its_parent_under_its_own_name() {
    let volume = volume();
    let [database, log] = [1, 2].map(|tag| tagged(tag, 5 * PAGE));
    put(&volume, "db", &database);
    put(&volume, "db-wal", &log);
    // A journal that has ended: its header is zeroes.
    put(&volume, "db-journal", &vec![0; 3 * PAGE]);
    create(&volume, "db", &["b", "c"]).expect("there is room");
    for name in ["b", "c"] {
        assert_eq!(get(&volume, name).as_ref(), Some(&database));
        assert_eq!(get(&volume, &format!("{name}-wal")).as_ref(), Some(&log));
        assert_eq!(get(&volume, &format!("{name}-journal")), None);
    }
    let why = create(&volume, "db", &["b"]).expect_err("it is there");
    assert!(why.contains("there is a file b already"), "{why}");

    // Neither the log of the branch nor that of the parent may be lost by a merge.
    let merged = branches::merge(&volume, "b", true).expect_err("it has a log");
    assert!(
        merged.to_string().contains("b has changes in b-wal"),
        "{merged}"
    );
    volume.delete("b-wal").expect("it is there");
    let merged = branches::merge(&volume, "b", true).expect_err("the parent has a log");
    assert!(
        merged.to_string().contains("db has changes in db-wal"),
        "{merged}"
    );
    volume.delete("db-wal").expect("it is there");
    assert_eq!(
        branches::merge(&volume, "b", false).expect("possible"),
        "db"
    );

    branches::delete(&volume, "c").expect("it is there");
    assert_eq!((get(&volume, "c"), get(&volume, "c-wal")), (None, None));
}

#[test]
fn what_a_cut_left_of_a_branch_is_removed_and_nothing_else() {
    let volume = volume();
    put(&volume, "db", &tagged(1, PAGE));
    put(&volume, "db-wal", &tagged(2, PAGE));
    // The first of the two files of a branch `b`, and a file that only looks like it.
    let first = NewBranch {
        from: "db-wal",
        to: "b-wal",
    };
    volume.branch(&[first], 7).expect("there is room");
    put(&volume, "c-wal", &tagged(3, PAGE));
    put(&volume, "db-wal", &tagged(4, PAGE));

    create(&volume, "db", &["b"]).expect("there is room");
    assert_eq!(get(&volume, "b-wal"), Some(tagged(4, PAGE)));
    let why = create(&volume, "db", &["c"]).expect_err("another file has the name of its log");
    assert!(why.contains("there is a file c-wal already"), "{why}");
    assert_eq!(get(&volume, "c-wal"), Some(tagged(3, PAGE)));
}
