//! Saved devices: round trips, and every kind of invalid file.

use crate::kit::{Ran, TINY, Words, run_in};
use std::fs;
use std::path::{Path, PathBuf};

/// Saves a device of a scheme.
fn save(directory: &Path, scheme: &str) -> PathBuf {
    let args = format!("compare --json --scheme {scheme} --save-aged aged.img");
    run_in(directory, &args.and(TINY)).ok();
    directory.join("aged.img")
}

fn inspect(directory: &Path, more: &[&str]) -> Ran {
    run_in(directory, &"inspect aged.img".and(more))
}

#[test]
fn a_saved_device_is_sound_and_inspecting_it_changes_nothing() {
    for scheme in ["none", "remap-ssd", "flog", "nlog"] {
        let directory = tempfile::tempdir().unwrap();
        let image = save(directory.path(), scheme);
        let before = fs::read(&image).unwrap();
        let found = inspect(directory.path(), &["--json"]).ok().json();
        assert_eq!(found["scheme"], scheme);
        assert_eq!(
            (&found["consistent"], &found["unreadable_pages"]),
            (&true.into(), &0.into())
        );
        let superblocks = found["superblocks"].as_array().unwrap();
        assert_eq!(superblocks.len(), 576);
        for field in [
            "id",
            "state",
            "stream",
            "live",
            "remapped",
            "capacity",
            "erases",
            "bad_blocks",
        ] {
            assert!(!superblocks[0][field].is_null(), "{field}");
        }
        let live: u64 = superblocks
            .iter()
            .map(|sb| sb["live"].as_u64().unwrap())
            .sum();
        assert!(live > 10_000, "{live}");
        assert!(found["recovery"]["mapped"].as_u64().unwrap() >= live);
        let shown = inspect(directory.path(), &[]).ok().out;
        assert!(
            shown.contains("agree with each other") && shown.contains("all readable"),
            "{shown}"
        );
        assert!(shown.lines().count() > 576);
        assert!(
            inspect(directory.path(), &["--summary"])
                .ok()
                .out
                .lines()
                .count()
                < 40
        );
        assert_eq!(fs::read(&image).unwrap(), before);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }
}

#[test]
fn a_run_goes_on_from_a_saved_device() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), "remap-ssd");
    let args = ["compare", "--age", "aged.img", "--writes", "3000", "--json"];
    let result = run_in(directory.path(), &args).ok();
    let run = &result.json()["runs"][0];
    assert_eq!(
        (&run["scheme"], &run["host_pages"]),
        (&"remap-ssd".into(), &3000.into())
    );
    assert!(run["recovery"]["mapped"].as_u64().unwrap() > 10_000);
    assert!(run["gc_pages"].as_u64().unwrap() > 0, "the device is aged");
    assert_eq!(result.out, run_in(directory.path(), &args).ok().out);
}

#[test]
fn several_schemes_are_saved_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let ran = run_in(directory.path(), &"compare --save-aged aged.img".and(TINY)).ok();
    assert!(
        ran.err.contains("`opt` keeps its remaps in DRAM"),
        "{}",
        ran.err
    );
    for scheme in ["none", "remap-ssd", "flog", "nlog"] {
        assert!(directory.path().join(format!("aged.{scheme}.img")).exists());
    }
    let result = run_in(
        directory.path(),
        "compare --age aged.img --writes 500 --json",
    )
    .ok()
    .json();
    assert_eq!(result["runs"].as_array().unwrap().len(), 4);
    let args = [
        "compare", "--age", "aged.img", "--scheme", "nlog", "--writes", "500", "--json",
    ];
    assert_eq!(
        run_in(directory.path(), &args).ok().json()["runs"][0]["scheme"],
        "nlog"
    );
    let args = "compare --age aged.img --scheme opt --writes 500";
    run_in(directory.path(), args).fails_in_one_line(1, &["aged.opt.img", "No such file"]);
}

#[test]
fn a_scheme_that_forgets_is_not_saved() {
    let directory = tempfile::tempdir().unwrap();
    let args = "compare --scheme opt --save-aged aged.img".and(TINY);
    run_in(directory.path(), &args).fails_in_one_line(1, &["aged.img", "keeps its remaps in DRAM"]);
    assert!(!directory.path().join("aged.img").exists());
}

#[test]
fn every_damage_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let args = "compare --json --scheme remap-ssd --scale 1/256 --writes 100 --save-aged aged.img";
    run_in(directory.path(), args).ok();
    let image = directory.path().join("aged.img");
    let good = fs::read(&image).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&image, bytes).unwrap();
        let ran = inspect(directory.path(), &[]);
        assert_eq!(ran.code, 1, "{what}: {}{}", ran.out, ran.err);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{what}: {}", ran.err);
        assert!(
            ran.err.starts_with("error: aged.img: "),
            "{what}: {}",
            ran.err
        );
        assert_eq!(ran.out, "", "{what}");
        ran.err
    };
    // Bits of each byte of the header: magic, version, mode, shape, NVRAM.
    for byte in 0..40 {
        for bit in [byte % 8, (byte + 3) % 8] {
            let mut bytes = good.clone();
            bytes[byte] ^= 1 << bit;
            refused(&bytes, &format!("bit {bit} of byte {byte}"));
        }
    }
    // Bits spread over the body.
    for step in 0..32 {
        let mut bytes = good.clone();
        let at = 40 + (good.len() - 41) * step / 31;
        bytes[at] ^= 1 << (step % 8);
        refused(&bytes, &format!("byte {at}"));
    }
    // Truncated at many positions.
    for len in (0..64)
        .step_by(3)
        .chain((1..32).map(|part| good.len() * part / 32))
        .chain([good.len() - 1])
    {
        refused(&good[..len], &format!("cut to {len} bytes"));
    }
    assert!(refused(b"", "empty").contains("not a device image"));
    assert!(
        refused(
            b"a text about something else, long enough to be an image's header",
            "foreign"
        )
        .contains("not a device image")
    );
    let mut newer = good.clone();
    newer[8] = 9;
    assert!(refused(&newer, "newer").contains("version 9"));
    fs::write(&image, &good).unwrap();
    inspect(directory.path(), &[]).ok();
}

#[test]
fn an_image_in_use_a_directory_and_no_file_are_said() {
    let directory = tempfile::tempdir().unwrap();
    inspect(directory.path(), &[]).fails_in_one_line(1, &["aged.img", "No such file"]);
    let image = save(directory.path(), "none");
    let file = fs::File::open(&image).unwrap();
    file.lock().unwrap();
    inspect(directory.path(), &[]).fails_in_one_line(1, &["aged.img", "in use"]);
    run_in(directory.path(), "compare --age aged.img")
        .fails_in_one_line(1, &["aged.img", "in use"]);
    drop(file);
    inspect(directory.path(), &[]).ok();
    run_in(directory.path(), "inspect .").fails_in_one_line(1, &[]);
}
