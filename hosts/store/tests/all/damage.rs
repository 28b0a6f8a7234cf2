//! Damaged pages of a volume: repaired from a copy where there is one, reported where there is
//! none.

use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, StoreError, Volume};
use remap_ssd_testkit::{MemDisk, PAGE, contents, tagged};
use std::sync::Arc;

const NEW: OpenOptions = OpenOptions {
    create: Create::New,
    open_end: false,
    written_next: false,
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

        // A missing file may be the damaged one, so none may be treated as absent.
        let unknown = [
            volume.open("a", OpenOptions::default()).map(drop),
            volume.delete("nothing"),
        ];
        for answer in unknown {
            let error = answer.expect_err("that is unknown").to_string();
            assert!(
                error.contains("page 2 ") && error.contains("it is unknown whether"),
                "{error}"
            );
        }

        // Pages and name of the damaged file are unknown.
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

    // Another process changes the layout, so that the whole table must be reread.
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

    // One unreadable page affects one file.
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
    // Nor is a record of another volume.
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

/// The result of two holders of a volume unaware of each other: each has claimed free pages, and
/// the later records are those of both.
fn claimed_twice(seed: u64) -> (MemDisk, Vec<(String, Vec<u8>)>) {
    let common = made();
    let mut files = Vec::new();
    let [ours, theirs] = [0, 1].map(|owner| {
        let disk = MemDisk::new(500);
        for page in 0..500 {
            let content = common.medium().content(page);
            disk.medium().set(page, content);
        }
        let volume = open(&disk).expect("possible");
        // Two files each, in separate slots: the other's slots have deleted files.
        let names = ["c", "d", "e", "f"];
        for (at, name) in names.iter().enumerate() {
            let file = volume.open(name, NEW).expect("possible");
            if at / 2 == owner {
                let pages = 1 + (seed >> (8 * at)) as usize % 24;
                let data = tagged((seed << 3) | (1 + at as u64), pages * PAGE);
                volume.write(file, 0, &data).expect("there is room");
                files.push((name.to_string(), data));
            }
        }
        for (at, name) in names.iter().enumerate() {
            if at / 2 != owner {
                volume.delete(name).expect("possible");
            }
        }
        volume.sync_all().expect("possible");
        drop(volume);
        disk
    });

    // A page written by only one of them has its data; else the first one's.
    for page in 0..500 {
        let blank = |content: &Option<Arc<[u8; PAGE]>>| {
            content.as_ref().is_none_or(|bytes| **bytes == [0; PAGE])
        };
        let (our, their) = (ours.medium().content(page), theirs.medium().content(page));
        if blank(&our) && !blank(&their) {
            ours.medium().set(page, their);
        }
    }
    (ours, files)
}

#[test]
fn files_that_claim_one_page_are_refused_and_all_others_are_used() {
    let mut collisions = 0;
    for seed in 0..40_u64 {
        let (disk, files) = claimed_twice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let volume = open(&disk).expect("the volume is opened");
        let open_file = |name: &str| volume.open(name, OpenOptions::default());
        let check = |name: &str, data: &[u8]| {
            let file = open_file(name).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(contents(&volume, file) == data, "seed {seed}: {name}");
        };

        // Files older than both are whole.
        let before = [("a", 1), ("b", 2)];
        for (name, tag) in before {
            check(name, &tagged(tag, 30 * PAGE + 9));
        }
        let (mut refused, mut whole) = (Vec::new(), Vec::new());
        for (name, data) in &files {
            match open_file(name) {
                Ok(file) => {
                    assert!(contents(&volume, file) == *data, "seed {seed}: {name}");
                    whole.push((name, data));
                }
                Err(error) => {
                    let sentence = error.to_string();
                    assert!(sentence.contains("claimed by two files"), "{sentence}");
                    assert!(sentence.contains(name.as_str()), "{sentence}");
                    refused.push((name, data));
                }
            }
        }
        assert_ne!(refused.len(), 1, "seed {seed}: it takes two");
        collisions += usize::from(!refused.is_empty());
        let damage = volume.damage().expect("readable").join("\n");
        assert!(
            refused
                .iter()
                .all(|(name, _)| damage.contains(name.as_str()))
        );
        let counted = volume.damaged_files().expect("readable");
        assert_eq!(counted, refused.len() as u64, "seed {seed}");

        // A new file gets unclaimed pages, and takes none from other files.
        let new = volume.open("new", NEW).expect("there is room");
        volume
            .write(new, 0, &tagged(77, 40 * PAGE))
            .expect("there is room");

        // Without the second holder's files, those of the first are whole, and so are all others.
        for (name, _) in refused.iter().filter(|(name, _)| name.as_str() > "d") {
            volume
                .delete(name)
                .expect("a file that is refused can be deleted");
        }
        for (name, data) in refused.iter().filter(|(name, _)| name.as_str() <= "d") {
            check(name, data);
        }
        for (name, data) in whole {
            check(name, data);
        }
        for (name, tag) in before {
            check(name, &tagged(tag, 30 * PAGE + 9));
        }
        assert!(contents(&volume, new) == tagged(77, 40 * PAGE));
        assert!(volume.damage().expect("readable").is_empty());
    }
    assert!(collisions > 20, "{collisions} of 40 volumes");
}
