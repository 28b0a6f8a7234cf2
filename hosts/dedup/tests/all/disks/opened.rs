//! Reopened disks: after a restart, with damage, and in place of another.

use super::*;

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

        // The process ended without closing: the second segment of CCAW's table is valid.
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

        // The segment is valid again.
        subject.close().expect("it closes");
        let mut subject = setup.open(disk).expect("it is there");
        subject
            .disk()
            .write(40, &contents(&[1, 2]))
            .expect("it works");
        assert_eq!(subject.statistics().duplicates, 2);
    }
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

    // Blocks of lost mappings are not reused: only the spare ones are free.
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
        "once the page is mended, all is there"
    );
    drop(subject);

    // Written pages can be read; the others are still errors after reopening.
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

    // One superblock is enough, and the other is rewritten.
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
