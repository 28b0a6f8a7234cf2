//! `share` as a user has it: copies, moves, snapshots and defragmentation on a device in a folder
//! and on one that is served.

use crate::kit::{Ran, run, run_in};
use crate::service::{Served, serve};
use serde_json::Value;
use std::path::Path;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed) >> 40) as u8)
        .collect()
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().expect("text").to_owned()
}

fn share(args: &[&str], place: &[&str]) -> Ran {
    run(&[&["share"], args, place].concat())
}

/// Of a JSON answer: pages, shared, copied, and flash pages programmed with data.
fn costs(ran: Ran) -> [u64; 4] {
    let value = ran.ok().json();
    let of = |value: &Value| {
        value
            .as_u64()
            .unwrap_or_else(|| panic!("no number: {value}"))
    };
    [
        &value["pages"],
        &value["shared"],
        &value["copied"],
        &value["flash_pages"]["data"],
    ]
    .map(of)
}

/// A device in a folder with room for snapshots, in which data was written while it was served.
struct Rig {
    dir: tempfile::TempDir,
    image: String,
}

impl Rig {
    fn new(args: &[&str], data: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let image = path(dir.path(), "disk");
        run(&[&["image", "create", &image], args].concat()).ok();
        let rig = Self { dir, image };
        rig.put(0, data);
        rig
    }

    fn served(&self) -> Served {
        serve(&["--image", &self.image])
    }

    fn put(&self, lba: u64, data: &[u8]) {
        let file = path(self.dir.path(), "data");
        std::fs::write(&file, data).expect("room for it");
        let served = self.served();
        served
            .io(&["write", "--lba", &lba.to_string(), "--file", &file])
            .ok();
        served.stop();
    }

    fn get(&self, nsid: &str, lba: u64, blocks: usize) -> Vec<u8> {
        let served = self.served();
        let data = get(&served, self.dir.path(), nsid, lba, blocks);
        served.stop();
        data
    }
}

fn get(served: &Served, dir: &Path, nsid: &str, lba: u64, blocks: usize) -> Vec<u8> {
    let file = path(dir, "back");
    let range = [
        "--lba",
        &lba.to_string(),
        "--blocks",
        &blocks.to_string(),
        "--file",
        &file,
    ];
    served
        .io(&[&["--nsid", nsid, "read"][..], &range[..]].concat())
        .ok();
    std::fs::read(file).expect("written")
}

#[test]
fn pages_of_an_image_are_copied_and_moved_without_programming_one() {
    let data = bytes(1, 300 * 4096);
    let rig = Rig::new(&["--size", "16MiB", "--namespaces", "2"], &data);
    let place = ["--image", rig.image.as_str()];
    let copied = share(
        &[
            "copy", "--from", "0", "--to", "1000", "--pages", "300", "--json",
        ],
        &place,
    );
    assert_eq!(costs(copied), [300, 300, 0, 0]);
    let args = [
        "copy",
        "--from",
        "0",
        "--to",
        "7",
        "--pages",
        "300",
        "--to-nsid",
        "2",
        "--json",
    ];
    assert_eq!(costs(share(&args, &place)), [300, 300, 0, 0]);
    let args = ["move", "--from", "1000", "--to", "1500", "--pages", "300"];
    let said = share(&args, &place).ok().out;
    assert!(said.contains("shared") && said.contains("300"), "{said}");
    share(&args, &place).fails_in_one_line(1, &["page 1000 is empty", "--resume", "--force"]);
    assert_eq!(
        costs(share(
            &[&args[..], &["--resume", "--json"]].concat(),
            &place
        )),
        [0, 0, 0, 0]
    );

    assert!(rig.get("1", 1500, 300) == data);
    assert!(rig.get("2", 7, 300) == data);
    assert!(rig.get("1", 1000, 300) == vec![0; 300 * 4096]);
    assert!(rig.get("1", 0, 300) == data);
}

#[test]
fn a_served_device_copies_within_a_namespace_and_across() {
    let data = bytes(2, 300 * 4096);
    let rig = Rig::new(
        &["--size", "16MiB", "--namespaces", "2", "--block", "512"],
        &data,
    );
    let served = rig.served();
    let place = ["--connect", served.address()];
    for (to, nsid) in [("1000", "1"), ("0", "2")] {
        let args = [
            "copy",
            "--from",
            "0",
            "--to",
            to,
            "--to-nsid",
            nsid,
            "--pages",
            "300",
            "--json",
        ];
        assert_eq!(costs(share(&args, &place)), [300, 300, 0, 0]);
        let lba = to.parse().expect("a number");
        assert!(
            get(&served, rig.dir.path(), nsid, lba, 300) == data,
            "{nsid}"
        );
    }
    let args = [
        "move",
        "--from",
        "0",
        "--to",
        "500",
        "--to-nsid",
        "2",
        "--pages",
        "300",
        "--json",
    ];
    assert_eq!(costs(share(&args, &place)), [300, 300, 0, 0]);
    assert!(get(&served, rig.dir.path(), "2", 500, 300) == data);
    assert!(get(&served, rig.dir.path(), "1", 0, 300) == vec![0; 300 * 4096]);
    served.stop();
}

#[test]
fn pages_with_too_many_owners_are_said_to_be_copied() {
    let rig = Rig::new(&["--size", "16MiB"], &bytes(3, 10 * 4096));
    let place = ["--image", rig.image.as_str()];
    for round in 1..15u64 {
        let to = (round * 100).to_string();
        assert_eq!(
            costs(share(
                &[
                    "copy", "--from", "0", "--to", &to, "--pages", "10", "--json"
                ],
                &place
            )),
            [10, 10, 0, 0]
        );
    }
    let more = ["copy", "--from", "0", "--to", "2000", "--pages", "10"];
    let said = share(&more, &place).ok().out;
    assert!(
        said.contains("10 since the pages had as many owners"),
        "{said}"
    );
    assert!(said.contains("10 data"), "{said}");
}

/// Makes a snapshot, changes the source, and rolls back; then deletes it.
fn snapshots(place: &[&str], put: &dyn Fn(u64, &[u8]), get: &dyn Fn(&str, usize) -> Vec<u8>) {
    let data = bytes(4, 500 * 4096);
    put(0, &data);
    let snapshot = |args: &[&str]| share(&[&["snapshot"], args].concat(), place);
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

    // What is served has to be what it was made with.
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
    share(&["snapshot", "list"], &["--image", &rig.image]).fails_in_one_line(1, &["in use"]);
    served.stop();
}

#[test]
fn a_namespace_of_a_served_device_goes_back_to_a_snapshot() {
    let dir = tempfile::tempdir().expect("a folder");
    let served = serve(&["--memory", "16MiB", "--snapshots", "2", "--block", "512"]);
    let file = path(dir.path(), "data");
    let put = |lba: u64, data: &[u8]| {
        std::fs::write(&file, data).expect("room for it");
        served
            .io(&["write", "--lba", &lba.to_string(), "--file", &file])
            .ok();
    };
    snapshots(&["--connect", served.address()], &put, &|nsid, blocks| {
        get(&served, dir.path(), nsid, 0, blocks)
    });
    served.stop();
}

#[test]
fn a_snapshot_of_a_device_that_another_host_writes_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let served = serve(&["--memory", "512MiB", "--snapshots", "1"]);
    let file = path(dir.path(), "data");
    std::fs::write(&file, bytes(7, 8 << 20)).expect("room for it");
    for lba in (0..131_072).step_by(2048) {
        served
            .io(&["write", "--lba", &lba.to_string(), "--file", &file])
            .ok();
    }
    let place = ["--connect", served.address()];

    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut refused = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                served.io(&["write", "--lba", "5", "--file", &file]).ok();
            }
        });
        for _ in 0..5 {
            let ran = share(&["snapshot", "create", "a"], &place);
            match ran.code {
                0 => drop(share(&["snapshot", "delete", "a"], &place).ok()),
                _ => {
                    ran.fails_in_one_line(1, &["another host wrote", "run this again"]);
                    refused += 1;
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(refused > 0);
    let listed = share(&["snapshot", "list", "--json"], &place).ok().json();
    assert_eq!(
        (
            listed["snapshots"].as_array().map(Vec::len),
            &listed["vacant"][0]
        ),
        (Some(0), &2.into()),
        "{listed}"
    );
    share(&["snapshot", "create", "a"], &place).ok();
    served.stop();
}

#[test]
fn files_of_a_volume_are_copied_snapshotted_and_made_contiguous() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    run(&["image", "create", &image, "--size", "64MiB"]).ok();
    let place = ["--image", image.as_str()];
    let volume = |args: &[&str]| run(&[&["volume"], args, &place].concat());
    let local = |name: &str, data: &[u8]| {
        let file = path(dir.path(), name);
        std::fs::write(&file, data).expect("room for it");
        file
    };
    let exported = |name: &str| {
        let back = path(dir.path(), "back");
        volume(&["export", name, &back]).ok();
        std::fs::read(back).expect("written")
    };
    volume(&["create", "--size", "48MiB", "--files", "32"]).ok();

    // Files with gaps between them, and one that has to take the gaps.
    for number in 0..10 {
        volume(&[
            "import",
            &local(&format!("f{number}"), &bytes(number, 1_000_000)),
        ])
        .ok();
    }
    for number in (0..10).step_by(2) {
        volume(&["delete", &format!("f{number}")]).ok();
    }
    let longest = volume(&["stat", "--json"]).ok().json()["pages_free_in_a_row"]
        .as_u64()
        .expect("a number");
    let fill = bytes(70, (longest as usize - 40) * 4096);
    volume(&["import", &local("fill", &fill)]).ok();
    let big = bytes(71, 3_500_001);
    volume(&["import", &local("big", &big)]).ok();
    volume(&["delete", "fill"]).ok();

    let plan = share(&["defrag", "big", "--dry-run", "--json"], &place)
        .ok()
        .json();
    let extents = |value: &Value, of: &str| value["files"][0][of].as_array().map(Vec::len);
    assert!(
        extents(&plan, "from") > Some(1) && extents(&plan, "to") == Some(1),
        "{plan}"
    );
    let list = || volume(&["list", "--json"]).ok().json();
    let before = list();
    assert_eq!(before, list(), "a dry run changes nothing");
    let done = share(&["defrag", "big", "--json"], &place).ok().json();
    assert_eq!(extents(&done, "to"), Some(1), "{done}");
    assert_eq!(done["shared"], 3_500_001u64.div_ceil(4096), "{done}");
    assert_eq!(
        done["flash_pages"]["data"], done["volume_records_written"],
        "no page of the file: {done}"
    );
    assert!(exported("big") == big);
    let said = share(&["defrag"], &place).ok().out;
    assert!(
        said.contains("contiguous") && said.contains("big"),
        "{said}"
    );

    // A copy shares all but the end of the file, which is no whole page.
    let copied = share(&["copy", "--file", "big", "--as", "copy", "--json"], &place)
        .ok()
        .json();
    assert_eq!(
        (&copied["shared"], &copied["written_instead"]),
        (&854.into(), &1.into()),
        "{copied}"
    );
    assert!(exported("copy") == big);
    share(&["copy", "--file", "big", "--as", "copy"], &place)
        .fails_in_one_line(1, &["a file copy already"]);
    share(&["move", "--file", "copy", "--as", "moved"], &place).ok();
    share(&["copy", "--file", "copy", "--as", "x"], &place).fails_in_one_line(1, &["no file copy"]);

    // A snapshot of all files, and of one.
    let snapshot = |args: &[&str]| share(&[&["snapshot"], args].concat(), &place);
    let made = snapshot(&["create", "monday", "--volume", "--json"])
        .ok()
        .json();
    assert_eq!(made["files"], 7, "{made}");
    snapshot(&["create", "one", "--file", "big"]).ok();
    snapshot(&["create", "monday", "--volume"]).fails_in_one_line(1, &["monday already"]);
    snapshot(&["create", "other", "--file", "nothing"]).fails_in_one_line(1, &["no file nothing"]);
    volume(&["import", &local("big", b"short"), "--force"]).ok();
    volume(&["delete", "f1"]).ok();
    volume(&["import", &local("later", b"later")]).ok();
    snapshot(&["rollback", "monday", "--volume"]).ok();
    assert!(exported("big") == big);
    assert!(exported("f1") == bytes(1, 1_000_000));
    assert!(exported("later") == b"later", "files that came later stay");
    let listed = snapshot(&["list", "--volume"]).ok().out;
    assert!(
        listed.contains("monday") && listed.contains("one") && listed.contains("whole"),
        "{listed}"
    );
    snapshot(&["delete", "monday", "--volume"]).ok();
    snapshot(&["delete", "one", "--volume"]).ok();
    assert_eq!(snapshot(&["list", "--volume"]).ok().out, "no snapshots\n");

    // Served: as long as another process has the volume open, it is left alone.
    let served = serve(&["--image", &image]);
    let there = ["--connect", served.address()];
    share(&["defrag", "--dry-run"], &there).ok();
    share(&["snapshot", "create", "served", "--volume"], &there).ok();
    share(&["copy", "--file", "big", "--as", "served copy"], &there).ok();
    served.stop();
    assert!(exported("served copy") == big);
}

#[test]
fn a_list_of_extents_is_gathered_and_its_new_layout_is_printed() {
    let data = bytes(8, 100 * 4096);
    let rig = Rig::new(&["--size", "16MiB"], &data);
    let place = ["--image", rig.image.as_str()];
    let list = path(rig.dir.path(), "list");
    std::fs::write(&list, "50 10\n0 5\n90 10\n").expect("room for it");
    let gather = |more: &[&str]| {
        share(
            &[&["defrag", "--extents", &list, "--to", "1000"], more].concat(),
            &place,
        )
    };
    let plan = gather(&["--dry-run", "--json"]).ok().json();
    assert_eq!(
        plan["extents"][2],
        serde_json::json!({ "offset": 15, "from": 90, "pages": 10, "to": 1015 })
    );
    assert_eq!(costs(gather(&["--json"])), [25, 25, 0, 0]);
    let wanted = [
        &data[50 * 4096..60 * 4096],
        &data[..5 * 4096],
        &data[90 * 4096..],
    ]
    .concat();
    assert!(rig.get("1", 1000, 25) == wanted);
    gather(&[]).fails_in_one_line(1, &["something is in page 1000", "--force"]);
    let said = gather(&["--force"]).ok().out;
    assert!(said.contains("offset") && said.contains("1015"), "{said}");
    std::fs::write(&list, "50 ten\n").expect("room for it");
    gather(&[]).fails_in_one_line(1, &["line 1 is not an extent", "filefrag"]);
}

#[test]
fn mistakes_with_sharing_are_sentences() {
    let rig = Rig::new(&["--size", "16MiB"], &[1; 4096]);
    let place = ["--image", rig.image.as_str()];
    share(
        &["copy", "--from", "0", "--to", "5", "--pages", "6"],
        &place,
    )
    .fails_in_one_line(2, &["overlap"]);
    share(
        &["copy", "--from", "0", "--to", "4090", "--pages", "7"],
        &place,
    )
    .fails_in_one_line(2, &["has 4096 pages"]);
    share(
        &[
            "copy",
            "--from",
            "0",
            "--to",
            "0",
            "--pages",
            "1",
            "--to-nsid",
            "9",
        ],
        &place,
    )
    .fails_in_one_line(1, &["no namespace 9, only 1"]);
    share(&["copy", "--from", "0", "--pages", "7"], &place).fails(2, &["--to"]);
    share(&["copy"], &place).fails(2, &["--from"]);
    share(&["copy", "--file", "a"], &place).fails(2, &["--as"]);
    share(&["snapshot", "create", "a"], &place)
        .fails_in_one_line(1, &["no free namespace", "image create --snapshots"]);
    share(&["snapshot", "create", "a", "--volume"], &place)
        .fails_in_one_line(1, &["no volume here"]);
    share(&["defrag"], &place).fails_in_one_line(1, &["no volume here"]);
    share(
        &["defrag", "--extents", "/nowhere/at/all", "--to", "1"],
        &place,
    )
    .fails_in_one_line(1, &["/nowhere/at/all"]);
    share(&["snapshot", "list"], &["--connect", "127.0.0.1:1"])
        .fails_in_one_line(1, &["127.0.0.1:1"]);
    share(&["snapshot", "list"], &["--image", "/nowhere/at/all"])
        .fails_in_one_line(1, &["/nowhere/at/all"]);
    share(&["snapshot", "list"], &[]).fails(2, &["--connect"]);
    run_in(
        rig.dir.path(),
        &[
            "image",
            "create",
            "x",
            "--size",
            "16MiB",
            "--namespaces",
            "100",
            "--snapshots",
            "100",
        ],
    )
    .fails_in_one_line(2, &["at most 128"]);
    // As many namespaces as there can be need no more connections than a host may have.
    let many = serve(&[
        "--memory",
        "32MiB",
        "--namespaces",
        "64",
        "--snapshots",
        "64",
    ]);
    let there = ["--connect", many.address(), "--nsid", "60"];
    assert_eq!(
        share(&["snapshot", "create", "a", "--json"], &there)
            .ok()
            .json()["namespace"],
        65
    );
    assert!(
        share(&["snapshot", "list"], &there)
            .ok()
            .out
            .contains("whole")
    );
    many.stop();

    // A namespace that is used for something else is not taken for a snapshot.
    let two = Rig::new(&["--size", "16MiB", "--namespaces", "2"], &[1; 4096]);
    share(&["snapshot", "create", "a"], &["--image", &two.image])
        .fails_in_one_line(1, &["2049 pages"]);
}

#[test]
fn a_server_that_is_killed_in_a_rollback_loses_nothing_and_the_rollback_is_finished() {
    let data = bytes(9, 64 << 20);
    let pages = data.len() / 4096;
    let rig = Rig::new(&["--size", "64MiB", "--snapshots", "1"], &data);
    let image = ["--image", rig.image.as_str()];
    share(&["snapshot", "create", "a"], &image).ok();
    let changed = bytes(10, data.len());
    let mut interrupted = 0;
    for round in 0..6u64 {
        rig.put(0, &changed);
        let served = rig.served();
        let place = ["--connect", served.address()].map(str::to_owned);
        std::thread::scope(|scope| {
            let client =
                scope.spawn(|| share(&["snapshot", "rollback", "a"], &[&place[0], &place[1]]));
            std::thread::sleep(std::time::Duration::from_millis(15 + 12 * round));
            served.kill();
            let ran = client.join().expect("it ends");
            if ran.code != 0 {
                ran.fails_in_one_line(1, &[&place[1]]);
            }
        });

        // Each page is the changed one or the snapshot's; if some are, a record says so.
        let listed = share(&["snapshot", "list", "--json"], &image).ok().json();
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
            share(&["snapshot", "delete", "a"], &image)
                .fails_in_one_line(1, &["interrupted", "rollback a"]);
        }
        share(&["snapshot", "rollback", "a"], &image).ok();
        assert!(rig.get("1", 0, pages) == data);
        assert!(rig.get("2", 0, pages) == data, "the snapshot is as it was");
    }
    println!("{interrupted} rollbacks were interrupted");
}
