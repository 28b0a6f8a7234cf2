//! Branches of files of a volume, in a folder and on a served device.

use super::share;
use crate::kit::{bytes, path, run};
use crate::served::serve;

#[test]
fn a_file_is_branched_compared_merged_and_deleted() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    run(&["image", "create", &image, "--size", "64MiB"]).ok();
    let place = ["--image", image.as_str()];
    let volume = |args: &[&str]| run(&[&["volume"], args, &place].concat());
    let import = |name: &str, data: &[u8]| {
        let file = path(dir.path(), "local");
        std::fs::write(&file, data).expect("room for it");
        volume(&["import", &file, "--name", name, "--force"]).ok();
    };
    let exported = |name: &str| {
        let back = path(dir.path(), "back");
        volume(&["export", "--force", name, &back]).ok();
        std::fs::read(back).expect("written")
    };
    volume(&["create", "--files", "32"]).ok();
    let data = bytes(1, 1_000_000);
    import("a", &data);

    let made = share("branch create b --file a --json", &place).ok().json();
    assert_eq!(made["shared"], 1_000_000u64.div_ceil(4096), "{made}");
    assert_eq!(
        made["flash_pages"]["data"], made["volume_records_written"],
        "{made}"
    );
    let many = share("branch create t --file a --count 5 --json", &place)
        .ok()
        .json();
    assert_eq!(many["branches"], 5, "{many}");
    assert!(exported("t-5") == data);
    share("branch create c --file b", &place).ok();

    // Branches of one device share pages with the same file, so b and t-1 differ in nothing.
    let diff = share("branch diff b --with t-1 --json", &place).ok().json();
    assert_eq!(diff["pages"], 0, "{diff}");
    let list = share("branch list --json", &place).ok().json();
    let listed = list["branches"].as_array().expect("a list");
    assert_eq!(listed.len(), 7, "{list}");
    assert_eq!(listed[0]["name"], "b", "{list}");
    assert_eq!(
        (&listed[0]["parent"], &listed[0]["space"]["alone"]),
        (&"a".into(), &0.into())
    );

    // The branch in the middle is deleted: the one made of it lives on.
    share("branch delete b", &place).ok();
    assert!(exported("c") == data);
    let text = share("branch list", &place).ok().out;
    assert!(text.contains("(gone)"), "{text}");
    share("branch merge c", &place).fails(1, &["has been deleted"]);
    share("branch diff c", &place).fails(1, &["is gone"]);

    // One merge, and the next would lose it.
    share("branch merge t-1", &place).ok();
    share("branch merge t-2", &place).fails(1, &["a has changed since"]);
    share("branch merge t-2 --force", &place).ok();
    assert!(exported("a") == data);

    for (args, why) in [
        ("branch create t-3 --file a", "already"),
        ("branch create x --file nothing", "there is no file nothing"),
        ("branch delete a", "not a branch"),
        ("branch merge a", "not a branch"),
        ("branch delete nothing", "there is no file nothing"),
    ] {
        share(args, &place).fails(1, &[why]);
    }
    share("branch create x", &place).fails(2, &[]);
    share("branch create x --file a --count 0", &place).fails(2, &[]);
    share(&["branch", "create", "", "--file", "a"][..], &place).fails(2, &[]);

    // Over the network all but the comparison.
    let served = serve(&["--image", &image]);
    let place = ["--connect", &served.address().to_string()];
    share("branch create far --file a", &place).ok();
    let list = share("branch list --json", &place).ok().json();
    assert!(list["branches"][0]["space"].is_null(), "{list}");
    share("branch diff far", &place).fails(1, &["with --image"]);
    share("branch merge far", &place).ok();
    served.stop();
}
