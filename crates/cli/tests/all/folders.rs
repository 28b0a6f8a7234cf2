//! Images in folders: damage, copies, mismatched options, and the effect of signals and a full disk
//! on a service.

use crate::kit::{Words, run, run_in};
use crate::served::serve;
use std::path::{Path, PathBuf};

fn create(dir: &Path, options: &[&str]) -> (PathBuf, String) {
    let image = dir.join("disk");
    let text = image.to_str().expect("text").to_owned();
    run(&[&["image", "create", &text, "--size", "16MiB"], options].concat()).ok();
    (image, text)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("there");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("room for it");
}

fn data(dir: &Path, value: u8) -> String {
    let path = dir.join("data");
    std::fs::write(&path, [value; 4096]).expect("room for it");
    path.to_str().expect("text").to_owned()
}

#[test]
fn damage_is_refused_checked_and_repaired_only_when_the_loss_is_accepted() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    assert_eq!(
        run(&["image", "check", &text, "--json"]).ok().json()["clean"],
        true
    );
    run(&["image", "repair", &text]).ok();
    let served = serve(&["--image", &text]);
    served
        .io(&["write", "--lba", "5", "--file", &data(dir.path(), 7)])
        .ok();
    served.io("flush").ok();
    served.kill();
    // The first record after the newest state.
    let generation = |name: &str| std::fs::read(image.join(name)).expect("there")[48];
    let newest = u8::from(generation("state.1") > generation("state.0"));
    let journal = format!("journal.{newest}");
    flip(&image.join(&journal), 16 + 9);
    let listen = ["--listen", "127.0.0.1:0"];
    let refused = run(&[&["serve", "--image", &text], &listen[..]].concat());
    refused.fails(
        1,
        &[
            &format!("{journal}, byte 16"),
            "nothing was changed",
            "image check",
        ],
    );
    let found = run(&["image", "check", &text, "--json"])
        .fails(1, &[])
        .json();
    assert_eq!(
        (&found["damage"][0]["file"], &found["damage"][0]["offset"]),
        (&journal.as_str().into(), &16.into())
    );
    let before = std::fs::read(image.join(&journal)).expect("there");
    run(&["image", "repair", &text]).fails(1, &["nothing was changed", "--accept-loss"]);
    assert!(before == std::fs::read(image.join(&journal)).expect("there"));
    let repaired = run(&["image", "repair", &text, "--accept-loss"]).ok().out;
    assert!(
        repaired.contains("lost: ") && repaired.contains("before-repair-1"),
        "{repaired}"
    );
    run(&["image", "check", &text]).ok();
    serve(&["--image", &text]).stop();
}

#[test]
fn a_damaged_name_or_block_size_is_refused_and_counters_are_not_missed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    let path = image.join("service.json");
    let good = std::fs::read_to_string(&path).expect("there");
    let serve_fails = |words: &[&str]| {
        drop(run(&["serve", "--image", &text, "--listen", "127.0.0.1:0"]).fails(1, words))
    };
    std::fs::write(&path, good.replace("4096", "512")).expect("room for it");
    serve_fails(&["service.json", "checksum"]);
    run(&["image", "check", &text]).fails(1, &[]);
    for at in 0..good.len() {
        std::fs::write(&path, &good).expect("room for it");
        flip(&path, at);
        if at % 7 == 0 {
            serve_fails(&["service.json"]);
        }
    }
    run(&["image", "repair", &text, "--accept-loss"]).ok();
    run(&["image", "check", &text]).ok();
    std::fs::write(&path, &good).expect("room for it");
    // Even without a checksum, as in earlier versions, impossible values are found.
    let value: serde_json::Value = serde_json::from_str(&good).expect("JSON");
    let old = |block: u32| {
        serde_json::json!({
            "nqn": value["nqn"], "namespaces": [{"pages": value["namespaces"][0]["pages"], "block_bytes": block}],
        })
    };
    std::fs::write(&path, old(4095).to_string()).expect("room for it");
    serve_fails(&["service.json", "512 or 4096"]);
    // It has no serial number either, and the image has had files with one.
    std::fs::write(&path, old(4096).to_string()).expect("room for it");
    serve_fails(&["service.json", "not the newest", "no serial number"]);
    run(&["image", "repair", &text, "--accept-loss"]).ok();
    serve(&["--image", &text]).stop();
    assert!(
        std::fs::read_to_string(&path)
            .expect("there")
            .contains("crc32c"),
        "it has a checksum from now on"
    );
    std::fs::write(image.join("health.json"), "{").expect("room for it");
    serve(&["--image", &text]).stop();
}

#[test]
fn an_image_with_an_invalid_name_is_not_created() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("image");
    let text = image.to_str().expect("text");
    run(&["image", "create", text, "--size", "64MiB", "--nqn", "disk"])
        .fails_in_one_line(2, &["`disk`", "NQN"]);
    assert!(!image.exists(), "nothing is left");
}

#[test]
fn settings_beside_an_image_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_, text) = create(dir.path(), &[]);
    let set = |setting: &str| run(&["serve", "--image", &text, "--set", setting]);
    set("firmware.gc_free=0.2").fails(2, &["--set", "image"]);
    set("nonsense").fails(2, &["nonsense"]);
}

/// A namespace deleted by hosts, or its pages in another namespace, would come back.
#[test]
fn an_older_copy_of_the_list_of_namespaces_is_refused_until_that_is_accepted() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    let path = image.join("service.json");
    let older = std::fs::read_to_string(&path).expect("there");
    run(&["image", "adopt", &text, "--nqn", "nqn.2026-11.test:new"]).ok();
    let newest = std::fs::read_to_string(&path).expect("there");

    std::fs::write(&path, &older).expect("room for it");
    let words = [
        "service.json",
        "not the newest",
        "serial number",
        "image repair",
    ];
    run(&["serve", "--image", &text, "--listen", "127.0.0.1:0"]).fails(1, &words);
    let found = run(&["image", "check", &text, "--json"])
        .fails(1, &[])
        .json();
    assert_eq!(found["damage"][0]["file"], "service.json");

    // The newest one still works; the older one does after it was accepted.
    std::fs::write(&path, &newest).expect("room for it");
    run(&["image", "check", &text]).ok();
    std::fs::write(&path, &older).expect("room for it");
    run(&["image", "repair", &text, "--accept-loss"]).ok();
    serve(&["--image", &text]).stop();
    std::fs::write(&path, &newest).expect("room for it");
    run(&["image", "check", &text]).fails(1, &[]);
}

#[test]
fn a_check_counts_mapped_pages_that_no_namespace_has() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    let served = serve(&["--image", &text]);
    for lba in ["5", "500", "501"] {
        served
            .io(&["write", "--lba", lba, "--file", &data(dir.path(), 7)])
            .ok();
    }
    served.stop();
    let outside = |json: serde_json::Value| json["mapped_outside_namespaces"].clone();
    let check = ["image", "check", &text, "--json"];
    assert_eq!(outside(run(&check).ok().json()), 0);

    // A list with a smaller namespace, accepted by the operator.
    let small = serde_json::json!({
        "nqn": "nqn.2026-11.test:small", "namespaces": [{"pages": 100, "block_bytes": 4096}],
    });
    std::fs::write(image.join("service.json"), small.to_string()).expect("room for it");
    run(&["image", "repair", &text, "--accept-loss"]).ok();
    assert_eq!(outside(run(&check).ok().json()), 2);
    let said = run(&["image", "check", &text]).ok().out;
    assert!(said.contains("2 of which are in no namespace"), "{said}");
}

#[test]
fn options_that_an_image_was_not_made_with_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_, text) = create(dir.path(), &["--block", "512", "--dedup", "on"]);
    for (option, value) in [
        ("--size", "32MiB"),
        ("--scheme", "flog"),
        ("--dedup", "off"),
        ("--log-size", "1MiB"),
        ("--block", "4096"),
        ("--namespaces", "2"),
        ("--nqn", "nqn.2014-08.org.nvmexpress:uuid:other"),
    ] {
        let ran = run(&format!(
            "serve --image {text} --listen 127.0.0.1:0 {option} {value}"
        ));
        ran.fails(2, &[option, "cannot be changed"]);
    }
    serve(&format!(
        "--image {text} --size 16MiB --scheme remap-ssd --dedup on --block 512"
    ))
    .stop();
    run("serve --memory 16MiB --size 32MiB").fails(2, &["--size", "--memory"]);
}

#[test]
fn a_copy_is_told_from_its_original_until_it_is_adopted() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).expect("a new folder");
    for file in std::fs::read_dir(&image).expect("a folder") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), copy.join(file.file_name())).expect("room for it");
    }
    let copy = copy.to_str().expect("text");
    let warns = |image: &str| {
        let served = serve(&["--image", image]);
        let warns = served
            .opening
            .iter()
            .any(|line| line.contains("image adopt"));
        let name = served.io("id --json").ok().json();
        served.stop();
        (warns, name["nqn"].to_string(), name["serial"].to_string())
    };
    let original = warns(&text);
    assert!(!original.0);
    assert_eq!(warns(copy), (true, original.1.clone(), original.2.clone()));
    let served = serve(&["--image", copy]);
    run(&["image", "adopt", copy]).fails_in_one_line(1, &["in use"]);
    served.stop();
    run(&["image", "adopt", copy, "--keep-name"]).ok();
    assert_eq!(warns(copy), (false, original.1.clone(), original.2.clone()));
    run(&["image", "adopt", copy]).ok();
    let adopted = warns(copy);
    assert!(
        !adopted.0 && adopted.1 != original.1 && adopted.2 != original.2,
        "{adopted:?}"
    );
}

#[test]
fn signals_end_the_service_in_good_order_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    let is_clean = || {
        let text = std::fs::read_to_string(image.join("health.json")).expect("there");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["clean"] == true
    };
    for signal in ["TERM", "INT", "QUIT"] {
        let served = serve(&["--image", &text]);
        served.signal("USR1");
        served.logged("statistics");
        served.signal("USR2");
        // A closed terminal, too, is no reason to stop.
        served.signal("HUP");
        served.logged("nothing to load again");
        served
            .io(&["write", "--lba", "1", "--file", &data(dir.path(), 3)])
            .ok();
        assert!(!is_clean());
        served.stop_with(signal);
        assert!(is_clean(), "SIG{signal}");
    }
}

#[test]
fn what_is_wrong_with_the_options_is_said_before_the_recovery() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_, text) = create(dir.path(), &[]);
    let other = serve(&["--memory", "16MiB"]);
    let taken = dir.path().join("taken").display().to_string();
    std::fs::write(&taken, "").expect("room for it");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--listen", &other.nvme], 1, "in use"),
        (
            &["--listen", "127.0.0.1:0", "--http", &other.nvme],
            1,
            "in use",
        ),
        (&["--listen", "127.0.0.1:0", "--size", "1GiB"], 2, "--size"),
        (&["--listen", "127.0.0.1:0", "--record", &taken], 1, "taken"),
        (&["--listen", "127.0.0.1:0", "--keys", "none"], 1, "none"),
    ];
    for (args, code, word) in cases {
        let ran = run(&["serve", "--image", &text].and(args)).fails(code, &[word]);
        assert!(!ran.err.contains("recovered"), "{}", ran.err);
    }
    run("serve").fails(2, &["--image", "--memory"]);
    run("serve --image nowhere").fails(1, &["nowhere", "`remap-ssd image create`"]);
    other.stop();
}

#[test]
fn sizes_that_contradict_each_other_are_noted_and_room_that_is_missing_is_said() {
    let dir = tempfile::tempdir().expect("a folder");
    let create = |args: &[&str]| run_in(dir.path(), &["image", "create"].and(args));
    let plain = create(&["plain", "--size", "16MiB"]).ok();
    assert_eq!(plain.err, "");
    let spare = [
        "spare",
        "--size",
        "16MiB",
        "--set",
        "geometry.superblocks=150",
    ];
    let spare = create(&spare).ok();
    let words = ["note: the settings give", "16.0 MiB for hosts", "--size"];
    assert!(
        words.iter().all(|word| spare.err.contains(word)),
        "{}",
        spare.err
    );

    // The largest device needs more than a disk has, but for disks of 5 TB and more.
    let disk = rustix::fs::statvfs(dir.path()).expect("a file system");
    if disk.f_bavail * disk.f_frsize < 4 << 40 {
        create(&["large", "--size", "4TiB"])
            .fails_in_one_line(1, &["No space left", "it needs 4", "are free"]);
    }
}

#[test]
fn counters_that_cannot_be_written_end_no_service() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    // No file with this name can be written, as on a full disk.
    std::fs::create_dir(image.join("health.json.part")).expect("a new folder");
    let served = serve(&["--image", &text]);
    served.logged("health.json");
    served
        .io(&["write", "--lba", "1", "--file", &data(dir.path(), 3)])
        .ok();
    served.io("flush").ok();
    served.stop();
}

// Data flushed or written with FUA survive. The rest is lost here, since the server is killed, and
// nothing is torn.
#[test]
fn a_server_with_a_volatile_cache_that_is_killed_keeps_what_was_flushed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_, text) = create(dir.path(), &[]);
    let served = serve(&["--image", &text, "--volatile-cache", "1MiB"]);
    let write = |value| {
        let file = data(dir.path(), value);
        served.io(&["write", "--lba", "0", "--file", &file]).ok();
    };
    write(1);
    served.io("flush").ok();
    write(2);
    served.kill();

    let served = serve(&["--image", &text]);
    let left = dir.path().join("left");
    let to = left.to_str().expect("text");
    served
        .io(&["read", "--lba", "0", "--blocks", "1", "--file", to])
        .ok();
    assert_eq!(std::fs::read(left).expect("read"), [1; 4096]);
    served.stop();
}

#[test]
fn a_power_cut_says_what_it_has_lost_and_the_server_ends() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &[]);
    let served = serve(&format!(
        "--image {text} --volatile-cache 1MiB --cut-seed 7"
    ));
    served
        .io(&["write", "--lba", "0", "--file", &data(dir.path(), 1)])
        .ok();
    served.signal("USR2");
    served.logged("the power was cut");
    served.logged("\"seed\":7");
    drop(served);

    let served = serve(&["--image", &text, "--volatile-cache", "1MiB"]);
    served
        .io(&["write", "--lba", "0", "--file", &data(dir.path(), 2)])
        .ok();
    // A clean shutdown is no power cut.
    served.stop_with("TERM");
    let health = std::fs::read_to_string(image.join("health.json")).expect("there");
    assert!(health.contains("\"unsafe_shutdowns\": 1"), "{health}");
}

#[test]
fn a_cache_that_is_too_small_is_refused() {
    run("serve --memory 16MiB --volatile-cache 4KiB").fails(2, &["at least 64 KiB"]);
}

#[test]
fn a_cache_of_pages_is_refused_on_larger_units() {
    let units =
        "geometry.page_bytes=16KiB,geometry.indirection_bytes=16KiB,geometry.pages_per_block=64";
    let args = format!("serve --memory 256MiB --set {units} --volatile-cache 1MiB");
    run(&args).fails(2, &["indirection units larger than 4 KiB"]);
}

/// Settings of a device whose own write buffer is volatile.
const VOLATILE: &str = "firmware.write_buffer_bytes=1MiB,firmware.power_loss_protection=false";

#[test]
fn a_device_with_a_volatile_write_buffer_tells_hosts_and_loses_it_at_a_power_cut() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, text) = create(dir.path(), &["--set", VOLATILE]);
    let refused = run(&["serve", "--image", &text, "--volatile-cache", "1MiB"]);
    refused.fails(2, &["--volatile-cache", "volatile write buffer of its own"]);

    let served = serve(&["--image", &text]);
    let identified = served.io("id --json").ok().json();
    assert_eq!(identified["volatile_write_cache"], true);
    let write = |served: &crate::served::Served, lba: &str, value| {
        let file = data(dir.path(), value);
        served.io(&["write", "--lba", lba, "--file", &file]).ok();
    };
    write(&served, "0", 1);
    served.io("flush").ok();
    write(&served, "0", 2);
    write(&served, "1", 2);
    served.signal("USR2");
    served.logged("the power was cut");
    served.logged("\"buffered_pages_lost\":2");
    drop(served);

    let left = || {
        let served = serve(&["--image", &text]);
        let left = dir.path().join("left");
        let to = left.to_str().expect("text");
        served
            .io(&["read", "--lba", "0", "--blocks", "1", "--file", to])
            .ok();
        (served, std::fs::read(left).expect("read")[0])
    };
    let (served, value) = left();
    assert_eq!(value, 1);
    write(&served, "0", 3);
    // A clean shutdown is no power cut.
    served.stop_with("TERM");
    let (served, value) = left();
    assert_eq!(value, 3);
    served.stop();
    let health = std::fs::read_to_string(image.join("health.json")).expect("there");
    assert!(health.contains("\"unsafe_shutdowns\": 1"), "{health}");
}
