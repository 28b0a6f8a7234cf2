//! Deduplication of a served device after its server was restarted.

use crate::kit::run;
use crate::served::{Served, serve};
use std::time::{Duration, Instant};

const PAGES: usize = 1000;

/// Pages with unique contents.
fn pages() -> Vec<[u8; 4096]> {
    (0..PAGES as u64)
        .map(|number| {
            let mut page = [3; 4096];
            page[..8].copy_from_slice(&(number + 1).to_le_bytes());
            page
        })
        .collect()
}

/// Writes pages from `lba` on; returns how many of them were duplicates.
fn found(served: &Served, file: &std::path::Path, lba: usize, pages: &[[u8; 4096]]) -> u64 {
    let before = served.stat("dedup_hits");
    std::fs::write(file, pages.as_flattened()).expect("room for it");
    served
        .io(&[
            "write",
            "--lba",
            &lba.to_string(),
            "--file",
            file.to_str().expect("text"),
        ])
        .ok();
    served.stat("dedup_hits") - before
}

#[test]
fn duplicates_are_found_after_a_shutdown_at_once_and_after_a_kill_soon() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, file) = (dir.path().join("disk"), dir.path().join("pages"));
    let path = image.to_str().expect("text");
    run(&["image", "create", path, "--size", "64MiB", "--dedup", "on"]).ok();
    let pages = pages();
    let most = (PAGES * 98 / 100) as u64;

    let served = serve(&["--image", path]);
    assert_eq!(found(&served, &file, 0, &pages), 0);
    served.stop();
    assert!(image.join("fingerprints").exists());

    let served = serve(&["--image", path]);
    assert!(!image.join("fingerprints").exists());
    let again = found(&served, &file, 2000, &pages);
    assert!(again >= most, "{again}");
    served.kill();

    // One page after the other, until one of them is found: by then all are.
    let served = serve(&["--image", path]);
    let began = Instant::now();
    let tried = (0..PAGES / 2).find(|at| {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "a minute is enough to read 4 MB"
        );
        found(&served, &file, 4000 + at, &pages[*at..=*at]) == 1
    });
    assert!(tried.is_some(), "nothing was learnt");
    std::thread::sleep(Duration::from_millis(500));
    let again = found(&served, &file, 6000, &pages);
    assert!(again >= most, "{again}");
    served.stop();
}

#[test]
fn a_namespace_that_shares_nothing_has_all_its_pages_to_itself() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, file) = (dir.path().join("disk"), dir.path().join("pages"));
    let path = image.to_str().expect("text");
    let shape = ["--size", "64MiB", "--dedup", "on", "--namespaces", "2"];
    let refused = run(&[&["image", "create", path, "--unshared", "3"], &shape[..]].concat());
    refused.fails(2, &["--unshared 3: there are 2 namespaces"]);
    run(&[&["image", "create", path, "--unshared", "2"], &shape[..]].concat()).ok();

    let pages = pages();
    std::fs::write(&file, pages.as_flattened()).expect("room for it");
    let file = file.to_str().expect("text");
    for start in 0..2 {
        let served = serve(&["--image", path]);
        let write = |nsid: &str| {
            let before = served.stat("dedup_hits");
            served
                .io(&["--nsid", nsid, "write", "--lba", "0", "--file", file])
                .ok();
            served.stat("dedup_hits") - before
        };
        // At the first start of the device it is empty. Later the same data are written to the same
        // place.
        let found = write("1");
        assert!(
            if start == 0 {
                found == 0
            } else {
                found == PAGES as u64
            },
            "{found}"
        );
        assert_eq!(write("2"), 0, "what the first one has");
        assert_eq!(write("2"), 0, "what it has itself");

        let remaps = served.stat("remaps");
        served
            .io("--nsid 2 copy --from 0 --to 2000 --blocks 100")
            .ok();
        assert_eq!(served.stat("remaps"), remaps, "a copy is programmed");
        served.stop();
    }

    run(&["serve", "--image", path, "--unshared", "1"])
        .fails(2, &["--unshared: the image was created with 2"]);
}
