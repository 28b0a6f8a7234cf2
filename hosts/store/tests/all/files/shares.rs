//! Lists of shares take effect in order, even if the disk refuses a list that it has done in part;
//! and they are as few commands as possible.

use remap_ssd_store::{Create, FileId, NewVolume, OpenOptions, Processes, Share, Store, Volume};
use remap_ssd_testkit::{MemDisk, PAGE, contents, tagged};

/// Pages of the file within which lists of shares are tried.
const PAGES: u64 = 4;

fn volume(disk: &MemDisk, cache_pages: u64) -> Volume<MemDisk> {
    let new = NewVolume::default();
    let volume = Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {});
    volume
        .expect("possible")
        .with_cache(cache_pages * PAGE as u64)
}

fn create(volume: &Volume<MemDisk>, name: &str, content: &[u8]) -> FileId {
    let options = OpenOptions::from(Create::New);
    let file = volume.open(name, options).expect("possible");
    volume.write(file, 0, content).expect("possible");
    file
}

fn share([from, to]: [FileId; 2], [source, target]: [u64; 2], pages: u64) -> Share {
    let page = PAGE as u64;
    Share {
        from,
        from_offset: source * page,
        to,
        to_offset: target * page,
        bytes: pages * page,
    }
}

/// All shares of one or two pages within the file that do not overlap themselves.
fn all_shares(file: FileId) -> Vec<Share> {
    let mut shares = Vec::new();
    for pages in 1..=2 {
        let starts = 0..=PAGES - pages;
        for (source, target) in starts
            .clone()
            .flat_map(|source| starts.clone().map(move |target| (source, target)))
        {
            if source.abs_diff(target) >= pages {
                shares.push(share([file; 2], [source, target], pages));
            }
        }
    }
    shares
}

// All lists of three shares, and for each all sets of remaps that are done when the disk refuses.
#[test]
fn a_list_that_is_refused_when_any_part_of_it_is_done_has_the_effect_of_its_ranges_in_order() {
    // With pages in memory, and without.
    for cache_pages in [0, 64] {
        let disk = MemDisk::new(1000);
        let volume = volume(&disk, cache_pages);
        let before = (0..PAGES).flat_map(|page| tagged(page, PAGE));
        let before: Vec<u8> = before.collect();
        let file = create(&volume, "database", &before);

        let shares = all_shares(file);
        for index in 0..shares.len().pow(3) {
            let digits = [1, shares.len(), shares.len().pow(2)];
            let list = digits.map(|digit| shares[index / digit % shares.len()]);

            let mut expected = before.clone();
            for share in list {
                let from = share.from_offset as usize;
                expected.copy_within(from..from + share.bytes as usize, share.to_offset as usize);
            }

            for done in 0..1 << list.len() {
                volume.write(file, 0, &before).expect("possible");
                disk.medium().refuses_list_after = Some(done);
                volume.share_all(&list).expect("it is copied instead");
                assert!(
                    contents(&volume, file) == expected,
                    "{list:?}, refused after {done:03b}"
                );
                disk.medium().log.clear();
            }
        }
    }
}

#[test]
fn pages_from_all_over_one_file_to_all_over_another_are_one_list() {
    const RUNS: u64 = 40;
    let disk = MemDisk::new(1000);
    let volume = volume(&disk, 0);
    let bytes = 2 * RUNS as usize * PAGE;
    let [database, log] = [("database", 1), ("database-wal", 2)]
        .map(|(name, tag)| create(&volume, name, &tagged(tag, bytes)));

    // Of a log to its database, and of a database to its journal.
    for files in [[log, database], [database, log]] {
        let runs = (0..RUNS).map(|run| {
            let (source, target) = (run * 7 % RUNS, run * 11 % RUNS);
            share(files, [2 * source, 2 * target], 2)
        });
        let (lists, shared) = (disk.medium().remap_lists, volume.statistics().pages_shared);
        volume
            .share_all(&runs.collect::<Vec<_>>())
            .expect("possible");
        assert_eq!(disk.medium().remap_lists, lists + 1);
        assert_eq!(volume.statistics().pages_shared, shared + 2 * RUNS);
    }
}
