//! Pages of a volume that are not what was written: mended where a copy is left, named where none
//! is.

mod kit;

use kit::{MemDisk, PAGE, contents, tagged};
use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, StoreError, Volume};
use std::sync::Arc;

const NEW: OpenOptions = OpenOptions {
    create: Create::New,
    open_end: false,
};

/// A volume of two files.
fn made() -> MemDisk {
    let disk = MemDisk::new(500);
    let new = NewVolume {
        files_max: 8,
        ..NewVolume::default()
    };
    let volume =
        Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("possible");
    for (name, tag) in [("a", 1), ("b", 2)] {
        let file = volume.open(name, NEW).expect("possible");
        volume
            .write(file, 0, &tagged(tag, 30 * PAGE + 9))
            .expect("there is room");
    }
    volume.sync_all().expect("possible");
    disk
}

fn open(disk: &MemDisk) -> Result<Volume<MemDisk>, StoreError> {
    Volume::open(disk.clone(), &Processes::One)
}

fn flip(disk: &MemDisk, page: u64, byte: usize) {
    let mut medium = disk.medium();
    let mut bytes = medium.content(page).map_or([0; PAGE], |content| *content);
    bytes[byte] ^= 0x10;
    medium.set(page, Some(Arc::new(bytes)));
}

#[test]
fn a_damaged_superblock_is_written_again_from_its_copy() {
    for page in [0, 1] {
        let disk = made();
        let good = disk.medium().content(1 - page);
        flip(&disk, page, 100);
        let volume = open(&disk).expect("one is enough");
        let notes = volume.notes().join(" ");
        assert!(
            notes.contains(&format!("page {page} ")) && notes.contains("checksum"),
            "{notes}"
        );
        assert!(disk.medium().content(page) == good);
        let file = volume
            .open("b", OpenOptions::default())
            .expect("it is there");
        assert!(contents(&volume, file) == tagged(2, 30 * PAGE + 9));
        drop(volume);
        assert!(
            open(&disk).expect("possible").notes().is_empty(),
            "it is mended"
        );
    }
    let disk = made();
    flip(&disk, 0, 100);
    flip(&disk, 1, 0);
    let error = open(&disk)
        .err()
        .expect("neither can be believed")
        .to_string();
    assert!(
        error.contains("page 0: its checksum is wrong") && error.contains("page 1"),
        "{error}"
    );
}

#[test]
fn superblocks_of_two_volumes_are_refused() {
    let (disk, other) = (made(), made());
    let foreign = other.medium().content(1);
    disk.medium().set(1, foreign);
    let error = open(&disk).err().expect("which one?").to_string();
    assert!(error.contains("two different volumes"), "{error}");
}

#[test]
fn a_damaged_record_is_named_and_the_other_files_can_be_read() {
    for byte in [0, 9, 40, 300, 4000] {
        let disk = made();
        // Records begin at page 2.
        flip(&disk, 2, byte);
        let volume = open(&disk).expect("the volume is there");
        let damage = volume.damage().expect("possible");
        assert_eq!(damage.len(), 1);
        assert!(
            damage[0].contains("page 2 ") && damage[0].contains("checksum"),
            "{damage:?}"
        );
        let b = volume
            .open("b", OpenOptions::default())
            .expect("it is there");
        assert!(contents(&volume, b) == tagged(2, 30 * PAGE + 9));
        volume
            .write(b, 5, &tagged(3, 100))
            .expect("its pages are its own");

        // It may be any file that is not found, and none that is not found may be taken for absent.
        let unknown = [
            volume.open("a", OpenOptions::default()).map(drop),
            volume.delete("nothing"),
        ];
        for answer in unknown {
            let error = answer.expect_err("nobody knows").to_string();
            assert!(
                error.contains("page 2 ") && error.contains("nobody knows whether"),
                "{error}"
            );
        }

        // Nobody knows which pages the damaged file has, nor its name.
        for refused in [
            volume.write(b, 0, &tagged(4, 200 * PAGE)),
            volume.open("c", NEW).map(drop),
            volume.rename("b", "c"),
            volume.info().map(drop),
        ] {
            let error = refused
                .expect_err("it might hit the damaged file")
                .to_string();
            assert!(
                error.contains("page 2 ") && error.contains("nothing can be allocated"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_file_is_not_missing_because_the_disk_cannot_be_reached() {
    let (disk, dir) = (made(), tempfile::tempdir().expect("a folder"));
    let processes = Processes::Several(dir.path().into());
    let [volume, other] =
        [(); 2].map(|()| Volume::open(disk.clone(), &processes).expect("the volume is there"));
    let open = |name: &str| volume.open(name, OpenOptions::default());

    // Another process changes the layout, so that all must be read again.
    other.open("c", NEW).expect("possible");
    disk.medium().unreadable = 0..u64::MAX;
    for name in ["b", "nothing"] {
        let answer = open(name);
        assert!(
            matches!(answer, Err(StoreError::Disk(_))),
            "{name}: {answer:?}"
        );
    }
    assert!(matches!(volume.damage(), Err(StoreError::Disk(_))));

    // One page that cannot be read is one file's.
    disk.medium().unreadable = 3..4;
    assert!(open("a").is_ok() && open("c").is_ok() && open("b").is_err());
    let damage = volume.damage().expect("the disk can be reached");
    assert!(
        damage.len() == 1 && damage[0].contains("page 3 "),
        "{damage:?}"
    );

    disk.medium().unreadable = 0..0;
    let b = open("b").expect("it can be read again");
    assert!(contents(&volume, b) == tagged(2, 30 * PAGE + 9));
    assert!(volume.damage().expect("possible").is_empty());
}

#[test]
fn a_record_that_got_to_another_place_is_not_believed() {
    let disk = made();
    let record = disk.medium().content(2);
    disk.medium().set(5, record.clone());
    let damage = open(&disk)
        .expect("the volume is there")
        .damage()
        .expect("possible");
    assert!(
        damage.len() == 1 && damage[0].contains("page 5 "),
        "{damage:?}"
    );
    // Nor is one of another volume.
    let other = made();
    other.medium().set(2, record);
    let damage = open(&other)
        .expect("the volume is there")
        .damage()
        .expect("possible");
    assert!(
        damage.len() == 1 && damage[0].contains("page 2 "),
        "{damage:?}"
    );
}
