//! A copy of an image that is served and written to meanwhile: what one instant was.

use crate::kit::{run, serve};
use remap_ssd_nvme::tcp::client::{Client, Options};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Blocks that are written round after round.
const BLOCKS: u64 = 3000;

fn block(number: u64) -> Vec<u8> {
    let word = |at: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at).to_le_bytes();
    [number.to_le_bytes()]
        .into_iter()
        .chain((1..512).map(word))
        .flatten()
        .collect()
}

// One host writes numbered blocks, one after the other, so that an instant is a number: every block
// of the copy must hold the newest write up to the same one, and those that were acknowledged
// before must be among them.
#[test]
fn a_snapshot_under_load_is_the_device_at_one_instant() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, copy) = (dir.path().join("disk"), dir.path().join("copy"));
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    run(&["image", "create", &text(&image), "--size", "32MiB"]).ok();
    let served = serve(&["--image", &text(&image)]);

    let (acknowledged, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let writer = std::thread::spawn({
        let (address, acknowledged, stop) =
            (served.nvme.clone(), acknowledged.clone(), stop.clone());
        move || {
            let mut host =
                Client::connect(address.as_str(), Options::default()).expect("it connects");
            for number in 1.. {
                host.write(number % BLOCKS, &block(number))
                    .expect("written");
                acknowledged.store(number, SeqCst);
                if stop.load(SeqCst) {
                    return;
                }
            }
        }
    });
    // Long enough that garbage is collected and superblocks are written again.
    while acknowledged.load(SeqCst) < 8 * BLOCKS {
        assert!(!writer.is_finished(), "the writer has failed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }

    for round in 0..3 {
        let before = acknowledged.load(SeqCst);
        let done = served.ctl(&["snapshot", &text(&copy)]).ok();
        let after = acknowledged.load(SeqCst) + 1;
        assert!(done["bytes"].as_u64() > Some(1 << 20), "{done}");
        served.ctl(&["snapshot", &text(&copy)]).fails(1, "exists");

        assert_eq!(
            run(&["image", "check", &text(&copy)]).code,
            0,
            "round {round}: {done}"
        );
        let copied = serve(&["--image", &text(&copy)]);
        let read = copied.host().read(0, BLOCKS).expect("readable");
        let numbers: Vec<u64> = read
            .chunks(4096)
            .map(|page| {
                let number = u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
                assert!(page == block(number), "a block of the copy is torn");
                number
            })
            .collect();
        let newest = *numbers.iter().max().expect("blocks");
        assert!(
            (before..=after).contains(&newest),
            "{before} {newest} {after}"
        );
        for (lba, number) in (0..).zip(&numbers) {
            let expected = newest - (newest + BLOCKS - lba) % BLOCKS;
            assert_eq!(
                *number, expected,
                "round {round}: block {lba} is of another instant"
            );
        }
        copied.stop();
        std::fs::remove_dir_all(&copy).expect("ours");
    }

    stop.store(true, SeqCst);
    writer.join().expect("the writer has ended well");
    served
        .ctl(&["snapshot", "/proc/nowhere/copy"])
        .fails(1, "nowhere");
    served.stop();
    assert_eq!(run(&["image", "check", &text(&image)]).code, 0);
    let memory = serve(&["--memory", "32MiB"]);
    memory
        .ctl(&["snapshot", &text(&copy)])
        .fails(1, "in memory");
    memory.stop();
}
