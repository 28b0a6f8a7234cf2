//! Files of a volume: copied, kept in snapshots, made contiguous; and lists of extents.

use super::{Rig, costs, share};
use crate::kit::{Words, bytes, path, run};
use crate::served::serve;
use serde_json::Value;

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
        volume(&["export", "--force", name, &back]).ok();
        std::fs::read(back).expect("written")
    };
    volume(&["create", "--size", "48MiB", "--files", "32"]).ok();

    // Files with gaps between them, and one that has to fill the gaps.
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

    let plan = share("defrag big --dry-run --json", &place).ok().json();
    let extents = |value: &Value, of: &str| value["files"][0][of].as_array().map(Vec::len);
    assert!(
        extents(&plan, "from") > Some(1) && extents(&plan, "to") == Some(1),
        "{plan}"
    );
    let list = || volume(&["list", "--json"]).ok().json();
    let before = list();
    assert_eq!(before, list(), "a dry run changes nothing");
    let done = share("defrag big --json", &place).ok().json();
    assert_eq!(extents(&done, "to"), Some(1), "{done}");
    assert_eq!(done["shared"], 3_500_001u64.div_ceil(4096), "{done}");
    assert_eq!(
        done["flash_pages"]["data"], done["volume_records_written"],
        "no page of the file: {done}"
    );
    assert!(exported("big") == big);
    let said = share("defrag", &place).ok().out;
    assert!(
        said.contains("contiguous") && said.contains("big"),
        "{said}"
    );

    // A copy shares everything except the end of the file, which is no whole page.
    let copied = share("copy --file big --as copy --json", &place)
        .ok()
        .json();
    assert_eq!(
        (&copied["shared"], &copied["written_instead"]),
        (&854.into(), &1.into()),
        "{copied}"
    );
    assert!(exported("copy") == big);
    share("copy --file big --as copy", &place).fails_in_one_line(1, &["a file copy already"]);
    share("move --file copy --as moved", &place).ok();
    share("copy --file copy --as x", &place).fails_in_one_line(1, &["no file copy"]);

    // A snapshot of all files, and of one.
    let snapshot = |args: &[&str]| share(&"snapshot".and(args), &place);
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

    // Served: while another process has the volume open, it is not changed.
    let served = serve(&["--image", &image]);
    let there = ["--connect", served.nvme.as_str()];
    share("defrag --dry-run", &there).ok();
    share("snapshot create served --volume", &there).ok();
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
