//! Cost of duplicates on the disk below, counted exactly.

use super::*;

// Exact cost below: a duplicate is a copy in one scheme and a mapping in the other.
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

// Remap-SSD counts 15 references of a page: the next copy is made in full, and later copies share
// that one.
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

    // A host that knows the device's limit writes instead, which takes as many programs and less
    // work.
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

    // With NVRAM for only a few remaps.
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
