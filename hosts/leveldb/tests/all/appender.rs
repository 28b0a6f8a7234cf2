//! Appending bytes and pages of other files, compared with a vector of bytes.

use crate::{contents, disk, files, write};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_testkit::{MemDisk, kept};
use std::collections::HashMap;

const PAGE: usize = 4096;
const SOURCE_PAGES: usize = 40;

#[test]
fn appended_bytes_and_shared_pages_are_read_back_in_order() {
    for seed in 0..30 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let files = files(&disk());
        let source: Vec<u8> = (0..SOURCE_PAGES * PAGE).map(|_| random.random()).collect();
        write(&files, "source", &source);
        let from = files.reader("source").expect("there");

        let mut model = Vec::new();
        let mut appender = files.appender("target", false).expect("possible");
        for _ in 0..60 {
            match random.random_range(0..8) {
                0 => appender.sync().expect("possible"),
                1 => {
                    appender.close().expect("possible");
                    appender = files.appender("target", true).expect("possible");
                }
                2..5 => {
                    let bytes = random.random_range(0..3 * PAGE);
                    let bytes = if random.random() {
                        bytes
                    } else {
                        model.len().next_multiple_of(PAGE) - model.len()
                    };
                    let data: Vec<u8> = (0..bytes).map(|_| random.random()).collect();
                    appender.append(&data).expect("room");
                    model.extend(data);
                }
                _ => {
                    let first = random.random_range(0..SOURCE_PAGES);
                    let pages = random.random_range(0..=(SOURCE_PAGES - first).min(4));
                    let range = first * PAGE..(first + pages) * PAGE;
                    let shared = appender
                        .share(&from, range.start as u64, range.len() as u64)
                        .expect("there");
                    assert_eq!(shared, model.len().is_multiple_of(PAGE) && pages > 0);
                    if shared {
                        model.extend(&source[range]);
                    }
                }
            }
        }
        appender.close().expect("possible");
        assert_eq!(contents(&files, "target"), model, "seed {seed}");
    }
}

#[test]
fn shared_pages_are_not_written_and_blocks_in_a_row_are_one_remap() {
    let disk = disk();
    let files = files(&disk);
    write(&files, "source", &vec![7; 8 * PAGE]);
    let from = files.reader("source").expect("there");
    let mut appender = files.appender("target", false).expect("possible");
    appender.append(&[1; PAGE]).expect("room");

    let lists = disk.medium().remap_lists;
    for page in 0..8 {
        assert!(appender.share(&from, page * 4096, 4096).expect("there"));
    }
    appender.sync().expect("possible");
    assert_eq!(disk.medium().remap_lists - lists, 1);
    let statistics = files.store().statistics();
    assert_eq!((statistics.pages_shared, statistics.pages_copied), (8, 0));
    assert_eq!(contents(&files, "target")[PAGE..], vec![7; 8 * PAGE]);
}

#[test]
fn what_was_synced_survives_every_cut() {
    let disk = disk();
    let before = files(&disk);
    write(&before, "source", &vec![9; 4 * PAGE]);
    let from = before.reader("source").expect("there");
    let mut model = Vec::new();
    // Operations after each sync, and the size that was synced.
    let mut synced = Vec::new();
    let mut appender = before.appender("target", false).expect("possible");
    for round in 0..12_u8 {
        let bytes = [100, PAGE, 5000][usize::from(round) % 3];
        appender.append(&vec![round + 1; bytes]).expect("room");
        model.extend(vec![round + 1; bytes]);
        if appender.share(&from, 4096, 2 * 4096).expect("there") {
            model.extend(vec![9; 2 * PAGE]);
        }
        appender.sync().expect("possible");
        synced.push((disk.medium().log.len(), model.len()));
    }

    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let log = disk.medium().log.clone();
    for end in synced[0].0..=log.len() {
        let now = kept(&HashMap::new(), &log[..end], |_| random.random());
        let after = files(&MemDisk::holding(crate::PAGES, now));
        let least = synced.iter().rev().find(|(at, _)| *at <= end);
        let least = least.expect("from the first sync on").1;
        let found = contents(&after, "target");
        assert!(found.len() >= least, "{} < {least}", found.len());
        assert_eq!(found[..least], model[..least]);
    }
}
