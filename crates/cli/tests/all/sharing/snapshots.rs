//! Snapshots of namespaces, and rollbacks while others write or the server is killed.

use super::{Rig, bytes, get, path, share};
use crate::kit::{Words, run};
use crate::served::serve;

/// Makes a snapshot, changes the source, and rolls back; then deletes it.
fn snapshots(place: &[&str], put: &dyn Fn(u64, &[u8]), get: &dyn Fn(&str, usize) -> Vec<u8>) {
    let data = bytes(4, 500 * 4096);
    put(0, &data);
    let snapshot = |args: &[&str]| share(&"snapshot".and(args), place);
    assert_eq!(snapshot(&["list"]).ok().out, "no snapshots\n");
    let made = snapshot(&["create", "monday", "--json"]).ok().json();
    assert_eq!(
        (&made["snapshot"], &made["namespace"]),
        (&"monday".into(), &2.into())
    );
    assert_eq!(
        (&made["shared"], &made["flash_pages"]["data"]),
        (&500.into(), &0.into()),
        "{made}"
    );
    snapshot(&["create", "monday"]).fails_in_one_line(1, &["monday already", "namespace 2"]);

    put(100, &bytes(5, 50 * 4096));
    put(600, &bytes(6, 50 * 4096));
    let changed = get("1", 700);
    snapshot(&["create", "tuesday"]).ok();
    snapshot(&["create", "wednesday"]).fails_in_one_line(1, &["no free namespace", "--snapshots"]);
    let listed = snapshot(&["list", "--json"]).ok().json();
    let names: Vec<&str> = [0, 1]
        .map(|at| listed["snapshots"][at]["name"].as_str().expect("text"))
        .to_vec();
    assert_eq!(names, ["monday", "tuesday"], "{listed}");
    assert!(snapshot(&["list"]).ok().out.contains("whole"));

    let mut whole = data.clone();
    whole.resize(700 * 4096, 0);
    assert!(get("2", 700) == whole, "it can be read as a namespace");
    let back = snapshot(&["rollback", "monday", "--json"]).ok().json();
    assert_eq!(back["flash_pages"]["data"], 0, "{back}");
    assert!(get("1", 700) == whole);
    snapshot(&["rollback", "tuesday"]).ok();
    assert!(get("1", 700) == changed);

    snapshot(&["rollback", "never"]).fails_in_one_line(1, &["no snapshot never"]);
    snapshot(&["delete", "never"]).fails_in_one_line(1, &["no snapshot never"]);
    snapshot(&["delete", "monday"]).ok();
    snapshot(&["create", "not a name"]).fails_in_one_line(2, &["cannot be a snapshot's name"]);
    snapshot(&["create", "x", "--into", "1"]).fails_in_one_line(1, &["needs another one"]);
    snapshot(&["create", "x", "--into", "3"]).fails_in_one_line(1, &["tuesday is in it"]);
    assert!(
        snapshot(&["list"])
            .ok()
            .out
            .contains("free for snapshots: namespace 2")
    );
    snapshot(&["create", "x", "--into", "2"]).ok();
}

#[test]
fn a_namespace_of_an_image_goes_back_to_a_snapshot() {
    let rig = Rig::new(&["--size", "16MiB", "--snapshots", "2"], &[1; 4096]);
    let put = |lba: u64, data: &[u8]| rig.put(lba, data);
    snapshots(&["--image", &rig.image], &put, &|nsid, blocks| {
        rig.get(nsid, 0, blocks)
    });

    // The options must match the image.
    let opened = |args: &[&str]| run(&[&["serve", "--image", &rig.image], args].concat());
    opened(&["--snapshots", "3"]).fails(2, &["--snapshots: the image was created with 2"]);
    opened(&["--namespaces", "3"]).fails(2, &["--namespaces: the image was created with 1"]);
    opened(&["--size", "32MiB"]).fails(2, &["--size: the image was created with 16"]);
    let served = serve(&[
        "--image",
        &rig.image,
        "--size",
        "16MiB",
        "--namespaces",
        "1",
        "--snapshots",
        "2",
    ]);
    share("snapshot list", &["--image", &rig.image]).fails_in_one_line(1, &["in use"]);
    served.stop();
}

#[test]
fn a_namespace_of_a_served_device_goes_back_to_a_snapshot() {
    let dir = tempfile::tempdir().expect("a folder");
    let served = serve("--memory 16MiB --snapshots 2 --block 512");
    let file = path(dir.path(), "data");
    let put = |lba: u64, data: &[u8]| {
        std::fs::write(&file, data).expect("room for it");
        served
            .io(&["write", "--lba", &lba.to_string(), "--file", &file])
            .ok();
    };
    snapshots(
        &["--connect", served.nvme.as_str()],
        &put,
        &|nsid, blocks| get(&served, dir.path(), nsid, 0, blocks),
    );
    served.stop();
}

#[test]
fn a_snapshot_of_a_device_that_another_host_writes_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let served = serve("--memory 512MiB --snapshots 1");
    let file = path(dir.path(), "data");
    std::fs::write(&file, bytes(7, 8 << 20)).expect("room for it");
    for lba in (0..131_072).step_by(2048) {
        served
            .io(&["write", "--lba", &lba.to_string(), "--file", &file])
            .ok();
    }
    let place = ["--connect", served.nvme.as_str()];

    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut refused = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                served.io(&["write", "--lba", "5", "--file", &file]).ok();
            }
        });
        for _ in 0..5 {
            let ran = share("snapshot create a", &place);
            match ran.code {
                0 => drop(share("snapshot delete a", &place).ok()),
                _ => {
                    ran.fails_in_one_line(1, &["another host wrote", "run this again"]);
                    refused += 1;
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(refused > 0);
    let listed = share("snapshot list --json", &place).ok().json();
    assert_eq!(
        (
            listed["snapshots"].as_array().map(Vec::len),
            &listed["vacant"][0]
        ),
        (Some(0), &2.into()),
        "{listed}"
    );
    share("snapshot create a", &place).ok();
    served.stop();
}

#[test]
fn a_server_that_is_killed_in_a_rollback_loses_nothing_and_the_rollback_is_finished() {
    let data = bytes(9, 64 << 20);
    let pages = data.len() / 4096;
    let rig = Rig::new(&["--size", "64MiB", "--snapshots", "1"], &data);
    let image = ["--image", rig.image.as_str()];
    share("snapshot create a", &image).ok();
    let changed = bytes(10, data.len());
    let mut interrupted = 0;
    for round in 0..6u64 {
        rig.put(0, &changed);
        let served = rig.served();
        let place = ["--connect", served.nvme.as_str()].map(str::to_owned);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| share("snapshot rollback a", &[&place[0], &place[1]]));
            std::thread::sleep(std::time::Duration::from_millis(15 + 12 * round));
            served.kill();
            let ran = client.join().expect("it ends");
            if ran.code != 0 {
                ran.fails_in_one_line(1, &[&place[1]]);
            }
        });

        // Each page is the changed one or the snapshot's; a mixture requires a record that says so.
        let listed = share("snapshot list --json", &image).ok().json();
        let under_way = listed["snapshots"][0]["state"] == "rollback interrupted";
        interrupted += u32::from(under_way);
        let found = rig.get("1", 0, pages);
        let same =
            |page: usize, of: &[u8]| found[page * 4096..][..4096] == of[page * 4096..][..4096];
        assert!((0..pages).all(|page| same(page, &data) || same(page, &changed)));
        assert!(
            under_way || found == data || found == changed,
            "a mixture that nothing tells of"
        );
        if under_way {
            share("snapshot delete a", &image).fails_in_one_line(1, &["interrupted", "rollback a"]);
        }
        share("snapshot rollback a", &image).ok();
        assert!(rig.get("1", 0, pages) == data);
        assert!(rig.get("2", 0, pages) == data, "the snapshot is as it was");
    }
    println!("{interrupted} rollbacks were interrupted");
}
