//! Replacing a file by another, with the power cut at every operation.

use crate::{contents, disk, files, write};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_store::StoreError;
use remap_ssd_testkit::{MemDisk, kept, subsets};
use std::collections::HashMap;

#[test]
fn a_replaced_file_is_the_old_or_the_new_one_at_every_cut() {
    let disk = disk();
    let files_before = files(&disk);
    write(&files_before, "/db/CURRENT", b"old");
    write(&files_before, "/db/1.dbtmp", b"new");
    let begun = disk.medium().log.len();
    files_before
        .replace("/db/1.dbtmp", "/db/CURRENT")
        .expect("possible");
    let log = disk.medium().log.clone();
    assert!(log.len() > begun);

    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut found = HashMap::new();
    for end in begun..=log.len() {
        let log = &log[..end];
        for kept_ops in subsets(log, &mut random) {
            let now = kept(&HashMap::new(), log, |index| kept_ops[index]);
            let after = files(&MemDisk::holding(crate::PAGES, now));
            let bytes = contents(&after, "/db/CURRENT");
            assert!(bytes == b"old" || bytes == b"new", "{bytes:?} at {end}");
            let names = after.list("/db").expect("readable");
            assert!(!names.iter().any(|name| name.ends_with('~')), "{names:?}");
            *found.entry(bytes).or_insert(0) += 1;
        }
    }
    assert_eq!(found.len(), 2, "both happen: {found:?}");
}

#[test]
fn a_file_takes_a_free_name_and_loses_its_own() {
    let files = files(&disk());
    write(&files, "a", b"1");
    files.replace("a", "b").expect("possible");
    assert!(!files.exists("a").expect("readable"));
    assert_eq!(contents(&files, "b"), b"1");
    assert!(matches!(
        files.replace("a", "b"),
        Err(StoreError::NotFound(_))
    ));
    assert_eq!(contents(&files, "b"), b"1");
}

#[test]
fn a_name_of_an_unfinished_replacement_is_refused() {
    let files = files(&disk());
    write(&files, "a", b"1");
    for (from, to) in [("a", "b~"), ("a~", "b")] {
        assert!(matches!(
            files.replace(from, to),
            Err(StoreError::BadName { .. })
        ));
    }
    assert_eq!(contents(&files, "a"), b"1");
}

#[test]
fn a_folder_lists_its_own_files_alone() {
    let files = files(&disk());
    for name in ["/db/1", "/db/2", "/db/lost/3", "/dbx/4", "/5"] {
        write(&files, name, b"x");
    }
    let mut names = files.list("/db/").expect("readable");
    names.sort();
    assert_eq!(names, ["1", "2"]);
}
