//! Branches of files: what they share, how they come apart, and how they are merged.

use remap_ssd_device::{Device, DeviceConfig, LocalDisk, SchemeKind};
use remap_ssd_store::{
    BranchInfo, Create, FileSpace, NewBranch, NewVolume, OpenOptions, PageRun, Processes, Store,
    Volume,
};
use remap_ssd_testkit::{MemDisk, PAGE, contents, tagged};

/// A volume on a device of 128 MiB whose pages may have many owners.
fn volume(files_max: u32) -> Volume<LocalDisk> {
    let config = DeviceConfig::for_service(128 << 20, SchemeKind::RemapSsdX, false);
    let mut config = config.expect("possible");
    config.firmware.count_max = 65_535;
    let device = Device::in_memory(config).expect("possible");
    let new = NewVolume {
        files_max,
        ..NewVolume::default()
    };
    let volume = Volume::create(
        LocalDisk::new(device),
        &Processes::One,
        &new,
        &mut |_, _| {},
    );
    volume.expect("possible")
}

fn put(store: &dyn Store, name: &str, at: usize, bytes: &[u8]) {
    let file = store.open(name, Create::IfAbsent.into()).expect("possible");
    store.write(file, at as u64, bytes).expect("there is room");
    store.sync(file).expect("possible");
}

fn get(store: &dyn Store, name: &str) -> Vec<u8> {
    contents(
        store,
        store
            .open(name, OpenOptions::default())
            .expect("it is there"),
    )
}

fn branch(store: &dyn Store, from: &str, to: &str) {
    store
        .branch(&[NewBranch { from, to }], 7)
        .expect("possible");
}

fn info(store: &dyn Store, name: &str) -> Option<BranchInfo> {
    let list = store.list().expect("possible");
    let found = list.into_iter().find(|info| info.name == name);
    found.expect("it is there").branch
}

fn differing(volume: &Volume<LocalDisk>, a: &str, b: &str) -> Vec<PageRun> {
    let [a, b] = [a, b].map(|name| volume.open(name, OpenOptions::default()).expect("there"));
    volume.differing(a, b).expect("the device knows")
}

fn space(volume: &Volume<LocalDisk>, name: &str) -> FileSpace {
    let file = volume
        .open(name, OpenOptions::default())
        .expect("it is there");
    volume.space(file).expect("the device knows")
}

fn data_pages(volume: Volume<LocalDisk>) -> u64 {
    let disk = volume.into_disk();
    assert!(disk.device().ftl().check().is_ok());
    disk.device().stats().host_programs
}

#[test]
fn a_branch_shares_all_pages_until_one_of_the_two_is_written() {
    let volume = volume(8);
    let bytes = tagged(1, 20 * PAGE + 100);
    put(&volume, "a", 0, &bytes);
    assert_eq!(info(&volume, "a"), None);
    branch(&volume, "a", "b");
    assert!(get(&volume, "b") == bytes);
    let of_a = |parent_changed| BranchInfo {
        parent: Some("a".into()),
        parent_changed,
        made_at: 7,
    };
    assert_eq!(info(&volume, "b"), Some(of_a(false)));
    assert_eq!(differing(&volume, "a", "b"), []);
    assert_eq!(
        space(&volume, "b"),
        FileSpace {
            pages: 21,
            alone: 0
        }
    );

    put(&volume, "b", 3 * PAGE, &tagged(2, 2 * PAGE));
    put(&volume, "b", 21 * PAGE, &tagged(3, PAGE));
    assert_eq!(
        info(&volume, "b"),
        Some(of_a(false)),
        "only the branch has changed"
    );
    let runs = [(3, 2), (20, 2)].map(|(first, pages)| PageRun { first, pages });
    assert_eq!(
        differing(&volume, "a", "b"),
        runs,
        "20: zeroed after its end"
    );
    assert_eq!(space(&volume, "b").alone, 4);

    put(&volume, "a", 0, &tagged(4, PAGE));
    assert_eq!(info(&volume, "b"), Some(of_a(true)));
    assert!(get(&volume, "b")[..PAGE] == bytes[..PAGE]);
    assert!(get(&volume, "a")[3 * PAGE..5 * PAGE] == bytes[3 * PAGE..5 * PAGE]);
}

#[test]
fn a_branch_costs_one_programmed_page_and_its_parent_one() {
    let volume = volume(1100);
    put(&volume, "a", 0, &tagged(1, 25 * PAGE + 1));
    let disk = volume.into_disk();
    let before = disk.device().stats().host_programs;
    let volume = Volume::open(disk, &Processes::One).expect("it is there");
    for number in 0..1000 {
        branch(&volume, "a", &format!("b{number}"));
    }
    let statistics = volume.statistics();
    assert_eq!(
        (statistics.pages_shared, statistics.pages_copied),
        (26_000, 0)
    );
    assert_eq!(statistics.pages_metadata, 1001);
    assert_eq!(data_pages(volume) - before, 1001);
}

#[test]
fn a_merge_gives_the_parent_the_pages_of_the_branch() {
    let volume = volume(8);
    put(&volume, "a", 0, &tagged(1, 20 * PAGE));
    branch(&volume, "a", "b");
    put(&volume, "b", 19 * PAGE, &tagged(2, 3 * PAGE));
    let bytes = get(&volume, "b");
    let free = volume.info().expect("possible").pages_free;
    let pages = space(&volume, "a").pages;
    assert_eq!(
        volume.merge("b", false).expect("nothing is in the way"),
        "a"
    );
    assert!(get(&volume, "a") == bytes);
    assert!(volume.open("b", OpenOptions::default()).is_err());
    assert_eq!(volume.info().expect("possible").pages_free, free + pages);

    // Again, with another branch, and a handle that was opened before.
    let file = volume
        .open("a", OpenOptions::default())
        .expect("it is there");
    branch(&volume, "a", "c");
    put(&volume, "c", 0, &tagged(3, PAGE));
    volume.merge("c", false).expect("nothing is in the way");
    assert!(contents(&volume, file)[..PAGE] == tagged(3, PAGE));
    drop(volume.into_disk());
}

#[test]
fn a_merge_that_would_lose_something_is_refused() {
    let volume = volume(8);
    put(&volume, "a", 0, &tagged(1, 4 * PAGE));
    let merge = |name: &str, force| volume.merge(name, force).expect_err("refused").to_string();
    assert!(merge("a", true).contains("it is not a branch"));
    assert!(merge("z", true).contains("there is no file z"));

    branch(&volume, "a", "b");
    branch(&volume, "a", "c");
    put(&volume, "b", 0, &tagged(2, PAGE));
    volume.merge("b", false).expect("a has not changed");
    assert!(merge("c", false).contains("a has changed since"));
    put(&volume, "c", PAGE, &tagged(3, PAGE));
    let bytes = get(&volume, "c");
    volume.merge("c", true).expect("it is forced");
    assert!(get(&volume, "a") == bytes);
}

#[test]
fn a_branch_of_a_branch_that_is_deleted_lives_on() {
    let volume = volume(8);
    put(&volume, "a", 0, &tagged(1, 6 * PAGE));
    branch(&volume, "a", "b");
    put(&volume, "b", 0, &tagged(2, PAGE));
    branch(&volume, "b", "c");
    let bytes = get(&volume, "c");
    volume.delete("b").expect("it is there");
    // Its pages go to another file.
    put(&volume, "d", 0, &tagged(3, 30 * PAGE));

    assert!(get(&volume, "c") == bytes);
    assert_eq!(info(&volume, "c").and_then(|branch| branch.parent), None);
    let refused = volume.merge("c", true).expect_err("there is no parent");
    assert!(
        refused.to_string().contains("has been deleted"),
        "{refused}"
    );
    // A file of the same name is another one.
    put(&volume, "b", 0, &tagged(4, PAGE));
    assert!(volume.merge("c", true).is_err());
    let one = PageRun { first: 0, pages: 1 };
    assert_eq!(differing(&volume, "a", "c"), [one]);
    branch(&volume, "c", "e");
    volume.merge("e", false).expect("its parent is there");
}

#[test]
fn branches_that_cannot_be_made_leave_everything_as_it_was() {
    let new = NewVolume {
        files_max: 4,
        ..NewVolume::default()
    };
    let volume = Volume::create(MemDisk::new(60), &Processes::One, &new, &mut |_, _| {});
    let volume = volume.expect("possible");
    put(&volume, "a", 0, &tagged(1, 20 * PAGE));
    put(&volume, "b", 0, &tagged(2, PAGE));
    let before = volume.list().expect("possible");
    let refused = |list: &[(&str, &str)]| {
        let list: Vec<NewBranch<'_>> = list
            .iter()
            .map(|(from, to)| NewBranch { from, to })
            .collect();
        volume.branch(&list, 0).expect_err("refused").to_string()
    };
    assert!(refused(&[("z", "y")]).contains("there is no file z"));
    assert!(refused(&[("a", "b")]).contains("there is a file b already"));
    assert!(refused(&[("a", "c"), ("b", "c")]).contains("there is a file c already"));
    assert!(refused(&[("a", "")]).contains("cannot be a file's name"));
    assert!(refused(&[("a", "c"), ("a", "d"), ("a", "e")]).contains("maximum of 4 files"));
    assert!(refused(&[("a", "c"), ("a", "d")]).contains("the volume is full"));
    assert_eq!(volume.list().expect("possible"), before);
    volume.branch(&[], 0).expect("nothing to do");
}

#[test]
fn a_file_with_an_open_end_has_branches_with_one() {
    let disk = MemDisk::new(200);
    let new = NewVolume {
        files_max: 8,
        ..NewVolume::default()
    };
    let volume = Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {});
    let volume = volume.expect("possible");
    let options = OpenOptions {
        create: Create::New,
        open_end: true,
        written_next: true,
    };
    let file = volume.open("log", options).expect("possible");
    volume
        .write(file, 0, &tagged(1, 2 * PAGE))
        .expect("there is room");
    branch(&volume, "log", "log2");
    assert!(get(&volume, "log2") == tagged(1, 2 * PAGE));
    drop(volume);
    let volume = Volume::open(disk, &Processes::One).expect("it is there");
    assert!(
        get(&volume, "log2") == tagged(1, 2 * PAGE),
        "no page after the data"
    );
}
