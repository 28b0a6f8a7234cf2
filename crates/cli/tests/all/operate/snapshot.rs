//! A copy of an image that is served and written to: its state is that of one instant.

use crate::kit::run;
use crate::served::serve_http;
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::management::sel;
use remap_ssd_nvme::spec::opcode::admin;
use remap_ssd_nvme::tcp::client::{Answer, Call, Client, Options, entry};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Blocks rewritten in every round.
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
// of the copy must hold the newest write up to the same number, including all writes acknowledged
// before.
#[test]
fn a_snapshot_under_load_is_the_device_at_one_instant() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, copy) = (dir.path().join("disk"), dir.path().join("copy"));
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    run(&["image", "create", &text(&image), "--size", "32MiB"]).ok();
    let served = serve_http(&["--image", &text(&image)]);

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
    // Long enough for garbage collection and reuse of superblocks.
    while acknowledged.load(SeqCst) < 8 * BLOCKS {
        assert!(!writer.is_finished(), "the writer has failed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }

    for round in 0..3 {
        let before = acknowledged.load(SeqCst);
        let done = served.ctl(&["snapshot", &text(&copy)]).ok().json();
        let after = acknowledged.load(SeqCst) + 1;
        assert!(done["bytes"].as_u64() > Some(1 << 20), "{done}");
        served
            .ctl(&["snapshot", &text(&copy)])
            .fails_in_one_line(1, &["exists"]);

        assert_eq!(
            run(&["image", "check", &text(&copy)]).code,
            0,
            "round {round}: {done}"
        );
        let copied = serve_http(&["--image", &text(&copy)]);
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
        .ctl("snapshot /proc/nowhere/copy")
        .fails_in_one_line(1, &["nowhere"]);
    served.stop();
    assert_eq!(run(&["image", "check", &text(&image)]).code, 0);
    let memory = serve_http("--memory 32MiB");
    memory
        .ctl(&["snapshot", &text(&copy)])
        .fails_in_one_line(1, &["in memory"]);
    memory.stop();
}

// Each change of the list replaces its file before it takes effect, and the copy takes the file and
// the device of one instant: no snapshot is refused, and each is an image.
#[test]
fn snapshots_are_taken_while_namespaces_are_changed() {
    const ROUNDS: usize = 10;
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("disk");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    run(&[
        "image",
        "create",
        &text(&image),
        "--size",
        "64MiB",
        "--namespaces",
        "2",
    ])
    .ok();
    let served = serve_http(&["--image", &text(&image)]);

    let (changes, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let changer = std::thread::spawn({
        let (address, changes, stop) = (served.nvme.clone(), changes.clone(), stop.clone());
        move || {
            let mut host =
                Client::connect(address.as_str(), Options::default()).expect("it connects");
            let mut nsid = 2;
            while !stop.load(SeqCst) {
                delete_namespace(&mut host, nsid);
                nsid = create_namespace(&mut host);
                changes.fetch_add(1, SeqCst);
            }
        }
    });

    for round in 0..ROUNDS {
        let before = changes.load(SeqCst);
        while changes.load(SeqCst) == before {
            assert!(!changer.is_finished(), "the changes have failed");
            std::thread::yield_now();
        }
        let copy = dir.path().join(format!("copy-{round}"));
        served.ctl(&["snapshot", &text(&copy)]).ok();
        let checked = run(&["image", "check", &text(&copy)]);
        assert_eq!(checked.code, 0, "round {round}");
        let copied = serve_http(&["--image", &text(&copy)]);
        copied.host().read(0, 1).expect("readable");
        copied.stop();
    }

    stop.store(true, SeqCst);
    changer.join().expect("the changes have ended well");
    served.stop();
}

/// Creates a namespace of 2,048 blocks; returns its number.
fn create_namespace(host: &mut Client) -> u32 {
    // NSZE and NCAP (NVM 1.0 §4.1.6); all other fields are zero.
    let mut new = [2048u64, 2048].map(u64::to_le_bytes).concat();
    new.resize(4096, 0);
    let sqe = Sqe {
        cdw10: sel::CREATE.into(),
        ..entry(admin::NAMESPACE_MANAGEMENT, 0)
    };
    called(host, sqe, &new).result as u32
}

fn delete_namespace(host: &mut Client, nsid: u32) {
    let sqe = Sqe {
        cdw10: sel::DELETE.into(),
        ..entry(admin::NAMESPACE_MANAGEMENT, nsid)
    };
    called(host, sqe, &[]);
}

fn called(host: &mut Client, sqe: Sqe, send: &[u8]) -> Answer {
    let receive = 0;
    let call = Call { sqe, send, receive };
    host.admin(|queue| queue.call("namespaces", &call))
        .expect("served")
}
