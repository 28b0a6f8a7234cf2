//! `share` as users see it: copies, moves, snapshots, branches and defragmentation on a device in a folder
//! and on a served one.

mod branches;
mod files;
mod snapshots;

use crate::kit::{Ran, Words, bytes, path, run, run_in};
use crate::served::{Served, serve};
use serde_json::Value;
use std::path::Path;

fn share<W: Words + ?Sized>(args: &W, place: &[&str]) -> Ran {
    run(&"share".and(args).and(place))
}

/// From JSON output: pages, shared, copied, and flash pages programmed with data.
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

/// A device in a folder with room for snapshots, and with data written while it was served.
struct Rig {
    dir: tempfile::TempDir,
    image: String,
}

impl Rig {
    fn new(args: &[&str], data: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let image = path(dir.path(), "disk");
        run(&["image", "create", &image].and(args)).ok();
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
    served
        .io(&format!(
            "--nsid {nsid} read --lba {lba} --blocks {blocks} --file {file}"
        ))
        .ok();
    std::fs::read(file).expect("written")
}

#[test]
fn pages_of_an_image_are_copied_and_moved_without_programming_one() {
    let data = bytes(1, 300 * 4096);
    let rig = Rig::new(&["--size", "16MiB", "--namespaces", "2"], &data);
    let place = ["--image", rig.image.as_str()];
    let copied = share("copy --from 0 --to 1000 --pages 300 --json", &place);
    assert_eq!(costs(copied), [300, 300, 0, 0]);
    let args = "copy --from 0 --to 7 --pages 300 --to-nsid 2 --json";
    assert_eq!(costs(share(args, &place)), [300, 300, 0, 0]);
    let args = "move --from 1000 --to 1500 --pages 300";
    let said = share(args, &place).ok().out;
    assert!(said.contains("shared") && said.contains("300"), "{said}");
    share(args, &place).fails_in_one_line(1, &["page 1000 is empty", "--resume", "--force"]);
    assert_eq!(
        costs(share(&args.and("--resume --json"), &place)),
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
    let place = ["--connect", served.nvme.as_str()];
    for (to, nsid) in [("1000", "1"), ("0", "2")] {
        let args = format!("copy --from 0 --to {to} --to-nsid {nsid} --pages 300 --json");
        assert_eq!(costs(share(&args, &place)), [300, 300, 0, 0]);
        let lba = to.parse().expect("a number");
        assert!(
            get(&served, rig.dir.path(), nsid, lba, 300) == data,
            "{nsid}"
        );
    }
    let args = "move --from 0 --to 500 --to-nsid 2 --pages 300 --json";
    assert_eq!(costs(share(args, &place)), [300, 300, 0, 0]);
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
                &format!("copy --from 0 --to {to} --pages 10 --json"),
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

#[test]
fn mistakes_with_sharing_are_sentences() {
    let rig = Rig::new(&["--size", "16MiB"], &[1; 4096]);
    let place = ["--image", rig.image.as_str()];
    share("copy --from 0 --to 5 --pages 6", &place).fails_in_one_line(2, &["overlap"]);
    share("copy --from 0 --to 4090 --pages 7", &place).fails_in_one_line(2, &["has 4096 pages"]);
    share("copy --from 0 --to 0 --pages 1 --to-nsid 9", &place)
        .fails_in_one_line(1, &["no namespace 9, only 1"]);
    share("copy --from 0 --pages 7", &place).fails(2, &["--to"]);
    share("copy", &place).fails(2, &["--from"]);
    share("copy --file a", &place).fails(2, &["--as"]);
    share("snapshot create a", &place)
        .fails_in_one_line(1, &["no free namespace", "image create --snapshots"]);
    share("snapshot create a --volume", &place).fails_in_one_line(1, &["no volume here"]);
    share("defrag", &place).fails_in_one_line(1, &["no volume here"]);
    share("defrag --extents /nowhere/at/all --to 1", &place)
        .fails_in_one_line(1, &["/nowhere/at/all"]);
    share("snapshot list", &["--connect", "127.0.0.1:1"]).fails_in_one_line(1, &["127.0.0.1:1"]);
    share("snapshot list", &["--image", "/nowhere/at/all"])
        .fails_in_one_line(1, &["/nowhere/at/all"]);
    run_in(
        rig.dir.path(),
        "image create x --size 16MiB --namespaces 100 --snapshots 100",
    )
    .fails_in_one_line(2, &["at most 128"]);
    // Even the maximum number of namespaces needs no more connections than a host may have.
    let many = serve("--memory 32MiB --namespaces 64 --snapshots 64");
    let there = ["--connect", many.nvme.as_str(), "--nsid", "60"];
    assert_eq!(
        share("snapshot create a --json", &there).ok().json()["namespace"],
        65
    );
    assert!(share("snapshot list", &there).ok().out.contains("whole"));
    many.stop();

    // A namespace in other use is not taken for a snapshot.
    let two = Rig::new(&["--size", "16MiB", "--namespaces", "2"], &[1; 4096]);
    share("snapshot create a", &["--image", &two.image]).fails_in_one_line(1, &["2049 pages"]);
}
