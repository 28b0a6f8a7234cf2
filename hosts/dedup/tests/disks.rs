//! What the disks do without power cuts: on the real firmware, stacked, on devices that demote,
//! after a restart, with damage.

mod kit;

use kit::disk::MemDisk;
use kit::{PAGE, Setup, content, contents, number};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_dedup::{
    Ccaw, CcawOptions, DedupError, Hash, NewDedup, OrderMerge, OrderMergeOptions, Scheme,
    Statistics, scheme_on,
};
use remap_ssd_device::{Device, DeviceConfig, Disk, DiskRemap, LocalDisk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, Volume};

fn device() -> LocalDisk {
    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    LocalDisk::new(Device::in_memory(config).expect("possible"))
}

fn programs(disk: &LocalDisk) -> u64 {
    disk.device().ftl().stats().programs()
}

fn new(hash: Hash) -> NewDedup {
    NewDedup {
        hash,
        spare: 64,
        ..NewDedup::default()
    }
}

fn ccaw<D: Disk>(disk: D, hash: Hash) -> Ccaw<D> {
    Ccaw::create(disk, &new(hash), CcawOptions::default(), &mut |_, _| {}).expect("it fits")
}

fn order_merge<D: Disk>(disk: D, hash: Hash) -> OrderMerge<D> {
    OrderMerge::create(
        disk,
        &new(hash),
        OrderMergeOptions::default(),
        &mut |_, _| {},
    )
    .expect("it fits")
}

fn setup(scheme: Scheme) -> Setup {
    Setup {
        scheme,
        hash: Hash::Blake3,
        pages: 600,
        window: 10,
        commit_after: u32::MAX,
        entries_max: u32::MAX,
        without: None,
    }
}

/// Writes, trims, copies and moves at random, and compares with an array.
fn is_a_disk(disk: &mut impl Disk, seed: u64) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let pages = disk.pages().min(300);
    disk.trim(0, pages).expect("it works");
    let mut model = vec![0u64; pages as usize];
    for step in 0..600 {
        let count = random.random_range(1..20);
        let at = random.random_range(0..=pages - count);
        let range = at as usize..(at + count) as usize;
        match random.random_range(0..10) {
            0 => {
                disk.trim(at, count).expect("it works");
                model[range].fill(0);
            }
            1 | 2 => {
                let source = random.random_range(0..=pages - count);
                let relocate = random.random_bool(0.5);
                let remap = DiskRemap {
                    target: at,
                    source,
                    pages: count as u32,
                    relocate,
                    atomic: false,
                };
                disk.remap(&remap).expect("it works");
                let moved = model[source as usize..(source + count) as usize].to_vec();
                if relocate {
                    model[source as usize..(source + count) as usize].fill(0);
                }
                model[range].copy_from_slice(&moved);
            }
            3 => disk.flush().expect("it works"),
            _ => {
                let draw = |_| {
                    if random.random_bool(0.6) {
                        random.random_range(1..30)
                    } else {
                        1000 + step * 20
                    }
                };
                let numbers: Vec<u64> = (0..count).map(draw).collect();
                disk.write(at, &contents(&numbers)).expect("it works");
                model[range].copy_from_slice(&numbers);
            }
        }
        let mut found = vec![0; pages as usize * PAGE];
        if step % 10 == 0 {
            disk.read(0, &mut found).expect("it works");
            let numbers: Vec<u64> = found.as_chunks::<PAGE>().0.iter().map(number).collect();
            assert!(numbers == model, "step {step}");
        }
    }
    assert!(
        disk.read(disk.pages(), &mut [0; PAGE]).is_err()
            && disk.write(disk.pages() - 1, &[0; 2 * PAGE]).is_err()
    );
    assert!(disk.write(0, &[0; 100]).is_err() && disk.trim(u64::MAX, 2).is_err());
}

#[test]
fn both_are_disks_on_the_real_firmware_and_on_each_other() {
    for hash in [Hash::Md5, Hash::Blake3] {
        is_a_disk(&mut ccaw(device(), hash), 1);
        is_a_disk(&mut order_merge(device(), hash), 2);
        is_a_disk(&mut order_merge(ccaw(device(), hash), hash), 3);
        is_a_disk(&mut ccaw(order_merge(device(), hash), hash), 4);
    }
}

#[test]
fn a_volume_of_files_lies_on_a_disk_that_deduplicates() {
    let disk = ccaw(device(), Hash::Md5);
    let volume = Volume::create(disk, &Processes::One, &NewVolume::default(), &mut |_, _| {})
        .expect("it fits");
    let make = OpenOptions {
        create: Create::New,
        ..OpenOptions::default()
    };
    let data = contents(&(100..200).collect::<Vec<u64>>());
    for name in ["one", "two"] {
        let file = volume.open(name, make).expect("a new file");
        volume.write(file, 0, &data).expect("there is room");
        volume.sync(file).expect("it works");
    }
    let disk = volume.into_disk();
    assert!(
        disk.statistics().duplicates >= 100,
        "{:?}",
        disk.statistics()
    );
    let programs = programs(disk.disk());
    assert!(programs < 160, "{programs} programs for 200 pages");
    let volume = Volume::open(
        Ccaw::open(disk.into_disk(), CcawOptions::default()).expect("it is there"),
        &Processes::One,
    );
    let volume = volume.expect("it is there");
    let file = volume
        .open("two", OpenOptions::default())
        .expect("it is there");
    let mut found = vec![0; data.len()];
    volume.read(file, 0, &mut found).expect("it works");
    assert!(found == data);
}

// What each costs below, exactly: a duplicate is a copy to one and a mapping to the other.
#[test]
fn a_duplicate_programs_nothing_and_a_window_costs_its_flushes() {
    let options = CcawOptions {
        window: 10,
        compare: Some(false),
        ..CcawOptions::default()
    };
    let mut disk =
        Ccaw::create(device(), &new(Hash::Md5), options, &mut |_, _| {}).expect("it fits");
    disk.write(0, &contents(&[1, 2, 3, 4, 5]))
        .expect("it works");
    let (before, remaps) = (
        programs(disk.disk()),
        disk.disk().device().ftl().stats().remaps,
    );
    disk.write(100, &contents(&[1, 2, 3, 4, 5]))
        .expect("it works");
    assert_eq!(programs(disk.disk()), before);
    assert_eq!(disk.disk().device().ftl().stats().remaps, remaps + 5);
    let expected = Statistics {
        host_pages: 10,
        data_pages: 5,
        duplicates: 5,
        flushes: 1,
        ..Statistics::default()
    };
    assert_eq!(disk.statistics(), expected);

    let options = OrderMergeOptions {
        window: 10,
        compare: Some(false),
        ..OrderMergeOptions::default()
    };
    let mut disk =
        OrderMerge::create(device(), &new(Hash::Md5), options, &mut |_, _| {}).expect("it fits");
    disk.write(0, &contents(&[1, 2, 3, 4, 5]))
        .expect("it works");
    disk.write(1500, &contents(&[1, 2, 3, 4, 5]))
        .expect("it works");
    // A page of counts, and two of mappings.
    let expected = Statistics {
        data_pages: 5,
        metadata_pages: 3,
        flushes: 2,
        ..expected
    };
    assert_eq!(disk.statistics(), expected);
}

// Remap-SSD counts 15 references of a page: the next copy is made in full, and the ones after it
// are of that one.
#[test]
fn a_device_that_demotes_copies_gives_the_same_contents_and_one_program_in_fifteen() {
    let options = CcawOptions {
        shared_max: u8::MAX,
        ..CcawOptions::default()
    };
    let mut disk =
        Ccaw::create(device(), &new(Hash::Blake3), options, &mut |_, _| {}).expect("it fits");
    let before = programs(disk.disk());
    for page in 0..600 {
        disk.write(page, &content(77)).expect("it works");
    }
    let stats = disk.disk().device().ftl().stats();
    assert!(stats.demoted() > 30, "{} demoted", stats.demoted());
    assert!(
        programs(disk.disk()) - before < 600 / 14,
        "{} programs",
        programs(disk.disk()) - before
    );
    let mut found = vec![0; 600 * PAGE];
    disk.read(0, &mut found).expect("it works");
    assert!(found == contents(&[77; 600]));

    // A host that knows how far the device counts writes instead, which is as many programs and
    // less work.
    let mut disk = ccaw(device(), Hash::Blake3);
    let (before, len) = (programs(disk.disk()), 50);
    for page in (0..600).step_by(len) {
        disk.write(page, &contents(&vec![77; len]))
            .expect("it works");
    }
    assert_eq!(
        (
            disk.disk().device().ftl().stats().demoted(),
            disk.statistics().duplicates
        ),
        (0, 560)
    );
    assert_eq!(programs(disk.disk()) - before, 600 / 15);

    // Without NVRAM for more than a few remaps.
    let config =
        DeviceConfig::for_service_with_log(16 << 20, SchemeKind::RemapSsd, false, Some(20 << 10));
    let small = LocalDisk::new(Device::in_memory(config.expect("possible")).expect("possible"));
    let mut disk = ccaw(small, Hash::Blake3);
    is_a_disk(&mut disk, 9);
    for page in 0..2000 {
        disk.write(page, &content(1 + page % 500))
            .expect("it works");
    }
    let stats = disk.disk().device().ftl().stats();
    assert!(
        stats.demoted_nvram_full + stats.demoted_watermark > 0,
        "{stats:?}"
    );
    for page in 0..2000 {
        let mut found = [0; PAGE];
        disk.read(page, &mut found).expect("it works");
        assert_eq!(number(&found), 1 + page % 500);
    }
}

#[test]
fn after_a_restart_duplicates_are_found_again_and_after_a_crash_those_of_valid_segments() {
    for scheme in [Scheme::Ccaw, Scheme::OrderMerge] {
        let setup = setup(scheme);
        let disk = MemDisk::new(setup.pages);
        let mut subject = setup.create(disk.clone(), 1, false).expect("it fits");
        subject
            .disk()
            .write(0, &contents(&[1, 2, 3]))
            .expect("it works");
        subject
            .disk()
            .write(510, &contents(&[4]))
            .expect("it works");
        subject.close().expect("it closes");

        let mut subject = setup.open(disk.clone()).expect("it is there");
        assert!(
            subject
                .notes()
                .iter()
                .all(|note| note.contains("not valid")),
            "{:?}",
            subject.notes()
        );
        subject
            .disk()
            .write(20, &contents(&[1, 2, 3, 4]))
            .expect("it works");
        assert_eq!(
            (
                subject.statistics().duplicates,
                subject.statistics().data_pages
            ),
            (4, 0),
            "{scheme:?}"
        );
        subject.disk().flush().expect("it works");
        drop(subject);

        // The process has ended without closing: of CCAW's table the second segment is valid.
        let mut subject = setup.open(disk.clone()).expect("it is there");
        subject
            .disk()
            .write(30, &contents(&[1, 2, 3, 4]))
            .expect("it works");
        let found = if scheme == Scheme::Ccaw { 1 } else { 4 };
        assert_eq!(subject.statistics().duplicates, found, "{scheme:?}");
        let numbers: Vec<u64> = (30..34).map(|page| subject.read(page)).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }
}

#[test]
fn a_damaged_segment_is_not_believed_and_costs_duplicates_only() {
    let setup = setup(Scheme::Ccaw);
    for damaged in [2, 3] {
        let disk = MemDisk::new(setup.pages);
        let mut subject = setup.create(disk.clone(), 1, false).expect("it fits");
        subject
            .disk()
            .write(0, &contents(&[1, 2]))
            .expect("it works");
        subject
            .disk()
            .write(300, &contents(&[3]))
            .expect("it works");
        subject.close().expect("it closes");
        // Page 2 is the header of the first segment, 3 its first page of signatures.
        let mut page = *disk.medium().content(damaged).expect("it was written");
        page[40] ^= 1;
        disk.medium().set(damaged, Some(page.into()));

        let mut subject = setup.open(disk.clone()).expect("it is there");
        assert!(
            subject
                .notes()
                .iter()
                .any(|note| note.contains("valid") || note.contains("page 3"))
        );
        subject
            .disk()
            .write(20, &contents(&[1, 2, 3]))
            .expect("it works");
        assert_eq!(subject.statistics().duplicates, damaged - 2);
        assert_eq!(
            [0, 1, 300, 20, 21, 22].map(|page| subject.read(page)),
            [1, 2, 3, 1, 2, 3]
        );

        // It is whole again.
        subject.close().expect("it closes");
        let mut subject = setup.open(disk).expect("it is there");
        subject
            .disk()
            .write(40, &contents(&[1, 2]))
            .expect("it works");
        assert_eq!(subject.statistics().duplicates, 2);
    }
}

/// A disk of which a page cannot be read, and may be copied all the same.
struct Unreadable(MemDisk, u64);

impl Disk for Unreadable {
    type Error = <MemDisk as Disk>::Error;

    fn pages(&self) -> u64 {
        self.0.pages()
    }
    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        let is_in = (page..page + (into.len() / PAGE) as u64).contains(&self.1);
        if is_in {
            self.0.read(u64::MAX, into)
        } else {
            self.0.read(page, into)
        }
    }
    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error> {
        self.0.write(page, data)
    }
    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error> {
        self.0.trim(page, pages)
    }
    fn flush(&mut self) -> Result<(), Self::Error> {
        self.0.flush()
    }
    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error> {
        self.0.remap(remap)
    }
}

// What cannot be read cannot be compared, and is not copied.
#[test]
fn a_page_that_cannot_be_read_is_no_source_where_contents_are_compared() {
    let mut disk = ccaw(Unreadable(MemDisk::new(5000), u64::MAX), Hash::Md5);
    disk.write(5, &content(8)).expect("it works");
    // Where address 5 is: data is at the end.
    disk.disk_mut().1 = 5000 - disk.pages() + 5;
    assert!(disk.read(5, &mut [0; PAGE]).is_err());
    disk.write(6, &content(8)).expect("it works");
    let mut found = [0; PAGE];
    disk.read(6, &mut found).expect("it was written");
    assert_eq!(
        (
            number(&found),
            disk.statistics().duplicates,
            disk.statistics().mismatches
        ),
        (8, 0, 1)
    );
    disk.write(7, &content(8)).expect("it works");
    assert_eq!(disk.statistics().duplicates, 1, "of the new one");
}

#[test]
fn damaged_mappings_are_errors_until_they_are_written_and_their_blocks_go_to_nobody() {
    let setup = Setup {
        pages: 1100,
        ..setup(Scheme::OrderMerge)
    };
    let disk = MemDisk::new(setup.pages);
    let mut subject = setup.create(disk.clone(), 1, false).expect("it fits");
    let pages = subject.disk().pages();
    let all: Vec<u64> = (0..pages).map(|page| 1000 + page).collect();
    subject
        .disk()
        .write(0, &contents(&all))
        .expect("there is room");
    subject.close().expect("it closes");

    let first_mapping = 2 + (pages + 3).div_ceil(204);
    let before = *disk
        .medium()
        .content(first_mapping)
        .expect("it was written");
    let mut page = before;
    page[400] ^= 1;
    disk.medium().set(first_mapping, Some(page.into()));
    let mut subject = setup.open(disk.clone()).expect("it is there");
    assert!(
        subject
            .notes()
            .iter()
            .any(|note| note.contains("pages 0 to 1019")),
        "{:?}",
        subject.notes()
    );
    let error = subject
        .disk()
        .read(1019, &mut [0; 2 * PAGE])
        .expect_err("a mapping is lost");
    assert!(error.to_string().contains("page 1019"), "{error}");
    let remap = DiskRemap {
        target: 1030,
        source: 5,
        pages: 1,
        relocate: false,
        atomic: false,
    };
    assert!(subject.disk().remap(&remap).is_err());
    assert_eq!(subject.read(1020), 2020);

    // Blocks of lost mappings are not written to: only those to spare are free.
    for round in 0..20 {
        subject
            .disk()
            .write(1025, &content(5000 + round))
            .expect("there are blocks to spare");
        subject.disk().flush().expect("it works");
    }
    drop(subject);
    disk.medium().set(first_mapping, Some(before.into()));
    let mut subject = setup.open(disk.clone()).expect("it is there");
    assert!(
        (0..1020).all(|page| subject.read(page) == 1000 + page),
        "whoever mends the page has everything"
    );
    drop(subject);

    // What is written can be read; the others are errors after the next opening too.
    disk.medium().set(first_mapping, Some(page.into()));
    let mut subject = setup.open(disk.clone()).expect("it is there");
    subject
        .disk()
        .write(7, &content(7))
        .expect("there are blocks to spare");
    subject.close().expect("it closes");
    let mut subject = setup.open(disk).expect("it is there");
    assert_eq!(subject.read(7), 7);
    assert!(subject.disk().read(8, &mut [0; PAGE]).is_err());
    subject.disk().trim(8, 1).expect("it works");
    assert_eq!(subject.read(8), 0);
}

#[test]
fn a_full_table_gives_up_entries_and_copies_what_it_still_knows() {
    let options = CcawOptions {
        entries_max: 100,
        ..CcawOptions::default()
    };
    let mut disk =
        Ccaw::create(device(), &new(Hash::Md5), options, &mut |_, _| {}).expect("it fits");
    let fresh: Vec<u64> = (1..=1000).collect();
    disk.write(0, &contents(&fresh)).expect("it works");
    assert_eq!(disk.statistics().entries_discarded, 900);
    disk.write(2000, &contents(&fresh[950..]))
        .expect("it works");
    assert_eq!(disk.statistics().duplicates, 50);
    is_a_disk(&mut disk, 12);
}

/// 128 bytes of Wang and Yu's (2004) two messages of one MD5, which stay one if the same is put
/// behind both.
const COLLISION: &str = "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488832571415a085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70";
/// Where the second message differs: in the highest bit of these bytes.
const DIFFERENCES: [usize; 6] = [19, 45, 59, 83, 109, 123];

fn colliding() -> [[u8; PAGE]; 2] {
    let mut pages = [[0; PAGE]; 2];
    for (index, pair) in COLLISION.as_bytes().chunks(2).enumerate() {
        let byte =
            u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("a byte");
        pages[0][index] = byte;
        pages[1][index] = if DIFFERENCES.contains(&index) {
            byte ^ 0x80
        } else {
            byte
        };
    }
    pages
}

// Two pages of one MD5 are two pages, since hits are compared; without comparison they are not.
#[test]
fn pages_of_one_md5_are_told_apart() {
    let pages = colliding();
    let both = |disk: &mut dyn Disk<Error = kit::Error>| {
        disk.write(0, &pages[0]).expect("it works");
        disk.write(1, &pages[1]).expect("it works");
        disk.write(2, pages.as_flattened()).expect("it works");
        let mut found = [[0; PAGE]; 4];
        disk.read(0, found.as_flattened_mut()).expect("it works");
        found == [pages[0], pages[1], pages[0], pages[1]]
    };
    for (compare, told_apart) in [(None, true), (Some(false), false)] {
        let options = CcawOptions {
            compare,
            ..CcawOptions::default()
        };
        let mut disk = Ccaw::create(MemDisk::new(5000), &new(Hash::Md5), options, &mut |_, _| {})
            .expect("it fits");
        assert_eq!(both(&mut disk), told_apart);
        assert_eq!(disk.statistics().mismatches > 0, told_apart);
        let options = OrderMergeOptions {
            compare,
            ..OrderMergeOptions::default()
        };
        let mut disk =
            OrderMerge::create(MemDisk::new(5000), &new(Hash::Md5), options, &mut |_, _| {})
                .expect("it fits");
        assert_eq!(both(&mut disk), told_apart);
    }
    assert!(both(&mut ccaw(MemDisk::new(5000), Hash::Blake3)));
}

#[test]
fn what_is_there_is_not_overwritten_unasked_and_not_taken_for_something_else() {
    let setup = setup(Scheme::Ccaw);
    let mut disk = MemDisk::new(setup.pages);
    assert!(scheme_on(&mut disk).expect("it can be read").is_none());
    assert!(matches!(
        setup.open(disk.clone()),
        Err(DedupError::NotFound(_))
    ));
    disk.write(300, &content(1)).expect("it works");
    let error = setup
        .create(disk.clone(), 1, false)
        .err()
        .expect("it is not blank")
        .to_string();
    assert!(
        error.contains("page 300") && error.contains("--force"),
        "{error}"
    );
    setup
        .create(disk.clone(), 1, true)
        .expect("it was asked for")
        .close()
        .expect("it closes");
    assert_eq!(
        scheme_on(&mut disk).expect("it can be read"),
        Some(Scheme::Ccaw)
    );
    assert!(matches!(
        setup.create(disk.clone(), 1, false),
        Err(DedupError::NotBlank(_))
    ));

    let other = Setup {
        scheme: Scheme::OrderMerge,
        ..setup
    };
    let error = other
        .open(disk.clone())
        .err()
        .expect("it is CCAW's")
        .to_string();
    assert!(error.contains("ccaw, not ordermerge"), "{error}");
    assert!(matches!(
        setup.create(MemDisk::new(4), 1, false),
        Err(DedupError::BadShape(_))
    ));

    // One superblock is enough, and the other is made again.
    disk.trim(0, 1).expect("it works");
    let subject = setup.open(disk.clone()).expect("there are two");
    assert!(
        subject
            .notes()
            .iter()
            .any(|note| note.contains("page 0 was written again")),
        "{:?}",
        subject.notes()
    );
    drop(subject);
    disk.trim(1, 1).expect("it works");
    setup.open(disk).expect("page 0 is there again");
}

#[test]
fn an_atomic_remap_is_one_page_of_mappings_or_refused() {
    let mut disk = order_merge(MemDisk::new(5000), Hash::Blake3);
    disk.write(0, &contents(&[1, 2, 3, 4])).expect("it works");
    let remap = DiskRemap {
        target: 1000,
        source: 0,
        pages: 4,
        relocate: true,
        atomic: true,
    };
    disk.remap(&remap).expect("all of it is in one page");
    let error = disk
        .remap(&DiskRemap {
            target: 1018,
            source: 1000,
            ..remap
        })
        .expect_err("it is in two");
    assert!(matches!(error, DedupError::NotAtomic));
    let mut found = [[0; PAGE]; 4];
    disk.read(1000, found.as_flattened_mut()).expect("it works");
    assert_eq!(
        found.map(|page| number(&page)),
        [1, 2, 3, 4],
        "nothing has changed"
    );
}
