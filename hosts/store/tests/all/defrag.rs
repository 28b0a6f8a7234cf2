//! Files that become contiguous by remaps, and those that cannot.

use remap_ssd_store::{Create, FileId, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{MemDisk, PAGE, contents, tagged};

const NEW: OpenOptions = OpenOptions {
    create: Create::New,
    open_end: false,
    written_next: false,
};

/// A volume with a fragmented file `x`, between whose extents other files were.
fn fragmented(pages: u64) -> (MemDisk, Volume<MemDisk>, FileId, Vec<u8>) {
    let disk = MemDisk::new(pages);
    let new = NewVolume {
        files_max: 6,
        ..NewVolume::default()
    };
    let volume =
        Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("possible");
    let file = volume.open("x", NEW).expect("there is room");
    let mut bytes = Vec::new();
    for round in 0..4u64 {
        let other = volume
            .open(&format!("other {round}"), NEW)
            .expect("there is room");
        let part = tagged(round, 20 * PAGE);
        volume
            .write(file, bytes.len() as u64, &part)
            .expect("there is room");
        bytes.extend(part);
        volume
            .write(other, 0, &tagged(100 + round, 40 * PAGE))
            .expect("there is room");
    }
    assert!(extents(&volume) > 1, "it is fragmented");
    (disk, volume, file, bytes)
}

fn extents(volume: &Volume<MemDisk>) -> usize {
    volume
        .list()
        .expect("readable")
        .iter()
        .find(|info| info.name == "x")
        .expect("it is there")
        .extents
}

#[test]
fn a_file_in_pieces_becomes_contiguous_and_its_old_pages_are_free() {
    let (disk, volume, file, bytes) = fragmented(600);
    let before = volume.info().expect("readable");
    let plan = volume.defrag_plan(file).expect("readable");
    assert!(plan.is_gain() && plan.to.len() == 1, "{plan:?}");
    assert!(extents(&volume) > 1, "a plan changes nothing");

    let mut seen = 0;
    assert_eq!(
        volume
            .defrag(file, &mut |done, _| seen = done)
            .expect("possible"),
        plan
    );
    assert_eq!((seen, extents(&volume)), (plan.pages(), 1));
    assert!(contents(&volume, file) == bytes);
    assert_eq!(
        volume.info().expect("readable").pages_free,
        before.pages_free
    );
    assert!(
        !volume
            .defrag(file, &mut |_, _| {})
            .expect("possible")
            .is_gain(),
        "once is enough"
    );

    drop(volume);
    let again = Volume::open(disk, &Processes::One).expect("it is there");
    let file = again
        .open("x", OpenOptions::default())
        .expect("it is there");
    assert!(contents(&again, file) == bytes);
}

#[test]
fn without_room_or_remaps_a_file_stays_as_it_is() {
    let (_, volume, file, bytes) = fragmented(300);
    let plan = volume.defrag(file, &mut |_, _| {}).expect("possible");
    assert!(
        !plan.is_gain() && plan.free_in_a_row < plan.pages(),
        "{plan:?}"
    );
    assert!(contents(&volume, file) == bytes);

    let (disk, volume, file, bytes) = fragmented(600);
    disk.medium().no_remap = true;
    let refused = volume
        .defrag(file, &mut |_, _| {})
        .expect_err("it cannot remap")
        .to_string();
    assert!(refused.contains("cannot remap"), "{refused}");
    assert!(contents(&volume, file) == bytes && extents(&volume) > 1);

    // The volume stays usable.
    let later = volume.open("later", NEW).expect("there is room");
    volume
        .write(later, 0, &tagged(7, 3 * PAGE))
        .expect("there is room");
    disk.medium().no_remap = false;
    volume.defrag(file, &mut |_, _| {}).expect("possible");
    assert!(contents(&volume, file) == bytes && extents(&volume) == 1);
}
