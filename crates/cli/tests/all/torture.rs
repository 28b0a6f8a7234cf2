//! `torture` as users see it: exit codes, messages, JSON, and replays in another process. Without a
//! file system, only with FUSE; a machine without FUSE skips it and prints that.

use crate::kit::{Ran, Words, run, run_in};
use rustix::process::{Pid, Signal};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Two writes; the second must not survive without the first. `between` may sync.
fn out_of_order(directory: &Path, between: &str, more: &[&str]) -> Option<Ran> {
    let put = |at: u32, text: &str| {
        format!("printf {text} | dd of=$FILE seek={at} bs=4096 conv=notrunc{between} status=none; ")
    };
    let get = |at: u32, text: &str| {
        format!("dd if=$FILE skip={at} bs=4096 count=1 status=none | grep -aq {text}")
    };
    let workload = put(3, "first") + "echo acknowledged >> $MARKS; " + &put(9, "second");
    let check = format!(
        "! {} || {}; status=$?; echo status $status; exit $status",
        get(9, "second"),
        get(3, "first")
    );
    let args = "torture --file --size 1MiB --rounds 60".and(more);
    let commands = ["--workload", &workload, "--check", &check];
    let ran = run_in(directory, &args.and(&commands));
    if ran.code == 2 && (ran.err.contains("fuse") || ran.err.contains("mounting was refused")) {
        println!("skipped: {}", ran.err);
        return None;
    }
    Some(ran)
}

#[test]
fn a_program_that_syncs_passes_every_check() {
    let directory = tempfile::tempdir().unwrap();
    let Some(ran) = out_of_order(directory.path(), ",fsync", &["--json"]) else {
        return;
    };
    let found = ran.ok().json();
    assert_eq!(
        (&found["result"], &found["cuts"], &found["failed"]),
        (&"passed".into(), &60.into(), &0.into())
    );
    assert_eq!(found["recording"]["marks"], 1);
    assert!(found["recording"]["flushes"].as_u64() >= Some(2));
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "a recording is kept of failures only"
    );
}

#[test]
fn a_failed_check_has_a_seed_and_a_code_that_replays_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(ran) = out_of_order(directory.path(), "", &["--json", "--seed", "5"]) else {
        return;
    };
    let found = ran.json();
    assert_eq!(found["result"], "failed");
    let smallest = ran.replays_of_a_lost_block(directory.path());

    let other_check = ["torture", "--replay", &smallest, "--check", "true"];
    assert!(
        run_in(directory.path(), &other_check)
            .ok()
            .out
            .contains("every check passed")
    );
    run_in(directory.path(), "torture --replay 00000000-1-1")
        .fails(2, &["torture-00000000.recording"]);
}

// Ctrl-C during the search for a smaller failure keeps the failure.
#[test]
fn an_interrupted_campaign_shows_the_failure_that_it_has_found() {
    let directory = tempfile::tempdir().unwrap();
    let whole = "[ \"$(dd if=$FILE skip=3 bs=4096 count=1 status=none | head -c 5)\" = first ]";
    // The second failing check waits for the interruption.
    let check = format!(
        "{whole} && exit 0; [ ! -e first ] || {{ touch second; exec sleep 100; }}; touch first; exit 1"
    );
    let workload = "printf first | dd of=$FILE seek=3 bs=4096 conv=notrunc status=none";
    let args = "torture --file --size 1MiB --rounds 1000 --keep-going";
    let commands = ["--workload", workload, "--check", &check];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_remap-ssd"));
    command
        .args(args.and(&commands))
        .current_dir(directory.path());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    while !directory.path().join("second").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    if output.status.code() == Some(2)
        && (err.contains("fuse") || err.contains("mounting was refused"))
    {
        println!("skipped: {err}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{out}\n{err}");
    assert!(
        out.contains("FAILED") && out.contains("--replay") && err.contains("interrupted"),
        "{out}\n{err}"
    );
    assert!(std::fs::read_dir(directory.path()).unwrap().any(|file| {
        file.unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".recording")
    }));
}

#[test]
fn a_check_that_fails_without_any_cut_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let commands = ["--workload", "true", "--check", "echo words; false"];
    let ran = run_in(
        directory.path(),
        &"torture --file --size 1MiB".and(&commands),
    );
    if ran.code != 2 {
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(
            ran.out.contains("without any power cut") && ran.out.contains("| words"),
            "{}",
            ran.out
        );
    }
}

#[test]
fn mistakes_are_one_sentence_and_exit_code_2() {
    let both = ["--workload", "true", "--check", "true"];
    let torture = |more: &[&str]| run(&"torture".and(more));
    torture(&[]).fails_in_one_line(2, &["--workload", "--check"]);
    torture(&both).fails_in_one_line(2, &["--fs", "--file"]);
    torture(&[&both[..], &["--file", "--block", "1000"]].concat())
        .fails_in_one_line(2, &["512, or a power of two from 4096"]);
    torture(&[&both[..], &["--file", "--size", "4k"]].concat())
        .fails_in_one_line(2, &["1MiB to 64GiB"]);
    torture(&["--replay", "nonsense"]).fails(2, &["no replay code"]);
    torture(&["--from", "Cargo.toml"]).fails_in_one_line(2, &["Cargo.toml", "not a recording"]);
    // No root, no loop device, or no such program.
    torture(&[&both[..], &["--fs", "nosuchfs"]].concat()).fails_in_one_line(2, &[]);
}

// The firmware loses power as well, and recovers; the code names it, and a replay needs no other
// option.
#[test]
fn a_device_below_the_cache_loses_its_power_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let device = ["--size", "16MiB", "--json"];
    let Some(ran) = out_of_order(
        directory.path(),
        ",fsync",
        &[&device[..], &["--scheme", "remap-ssd-x"]].concat(),
    ) else {
        return;
    };
    let found = ran.ok().json();
    assert_eq!(
        (&found["device"], &found["failed"]),
        (&"remap-ssd-x".into(), &0.into())
    );

    let ran = out_of_order(directory.path(), "", &[&device[..], &["--dedup"]].concat());
    let ran = ran.expect("the first one was not skipped");
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = ran.json();
    assert_eq!(found["failure"]["why"], "the check ended with exit code 1");
    let code = found["failure"]["code"].as_str().unwrap();
    assert!(code.ends_with("@remap-ssd+dedup"), "{code}");
    let again = run_in(directory.path(), &["torture", "--replay", code]);
    assert_eq!(again.code, 1, "{}", again.err);
    assert!(again.out.contains("remap-ssd+dedup"), "{}", again.out);
}

#[test]
fn a_scheme_that_keeps_nothing_is_no_device_to_cut() {
    let directory = tempfile::tempdir().unwrap();
    let more = ["--size", "16MiB", "--scheme", "opt"];
    if let Some(ran) = out_of_order(directory.path(), ",fsync", &more) {
        ran.fails_in_one_line(2, &["opt keeps nothing over a power cut"]);
    }
}

// A program that fails on a full disk is not at fault; data that it acknowledged before survive.
#[test]
fn a_disk_that_is_full_or_read_only_ends_the_workload_and_loses_nothing() {
    for fault in ["full:8192", "read-only:8192"] {
        let directory = tempfile::tempdir().unwrap();
        let put = "for n in 0 1 2 3 4 5; do printf $n | dd of=$FILE bs=4096 seek=$n conv=notrunc,fsync,sync status=none \
                   || exit 1; echo $n > $MARKS; done";
        let check = "for n in $(cat $MARKS); do dd if=$FILE bs=4096 skip=$n count=1 status=none | grep -aq ^$n \
                     || { echo $n is lost; exit 1; }; done";
        let args = "torture --file --size 1MiB --json --rounds 20";
        let commands = ["--workload", put, "--check", check, "--fault", fault];
        let ran = run_in(directory.path(), &args.and(&commands));
        if ran.code == 2 && (ran.err.contains("fuse") || ran.err.contains("mounting was refused")) {
            println!("skipped: {}", ran.err);
            return;
        }
        let found = ran.ok().json();
        assert_eq!(found["recording"]["marks"], 2, "{fault}");
        assert_eq!(found["faults"], serde_json::json!([fault]));
    }
    run("torture --file --fault slow").fails(2, &["read-error:P"]);
}

/// Overwrites pages of `kib` KiB in place, each filled with one letter, and syncs each; a torn page
/// has two.
fn pages_in_place(directory: &Path, kib: u32, more: &[&str]) -> Option<Ran> {
    let workload = format!(
        "for n in a b c d; do for at in 1 2 3; do head -c {kib}k /dev/zero | tr '\\0' $n |
         dd of=$FILE bs={kib}k seek=$at conv=notrunc,fsync iflag=fullblock status=none || exit 1; done; done"
    );
    let check = format!(
        "for at in 1 2 3; do [ $(dd if=$FILE bs={kib}k skip=$at count=1 iflag=fullblock status=none | fold -w 1 | sort -u | wc -l) \
         -le 1 ] || {{ echo torn; exit 1; }}; done"
    );
    let args = "torture --file --size 1MiB --rounds 60 --json".and(more);
    let commands = ["--workload", &workload, "--check", &check];
    let ran = run_in(directory, &args.and(&commands));
    if ran.code == 2 && (ran.err.contains("fuse") || ran.err.contains("mounting was refused")) {
        println!("skipped: {}", ran.err);
        return None;
    }
    Some(ran)
}

// The same program, with and without the property that it relies on.
#[test]
fn writes_within_the_atomic_unit_are_whole_and_longer_ones_tear() {
    let directory = tempfile::tempdir().unwrap();
    let pages = |kib, more: &[&str]| pages_in_place(directory.path(), kib, more);
    let Some(ran) = pages(16, &["--atomic-writes", "16KiB"]) else {
        return;
    };
    let found = ran.ok().json();
    assert_eq!((&found["failed"], &found["cuts"]), (&0.into(), &60.into()));
    assert_eq!(found["atomic_write_bytes"], 16384);
    assert!(found["cuts_losing"].as_u64() > Some(10), "{found}");

    // One logical block is whole in any case.
    let found = pages(16, &["--block", "16384"]).unwrap().ok().json();
    assert_eq!(found["atomic_write_bytes"], 16384);

    let found = pages(16, &[]).unwrap().json();
    assert_eq!(found["atomic_write_bytes"], 4096);
    assert_eq!(
        found["failure"]["smallest"]["lost_writes"],
        serde_json::Value::Null
    );

    let ran = pages(32, &["--atomic-writes", "16KiB"]).unwrap();
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = ran.json();
    assert_eq!(found["failure"]["smallest"]["lost_writes"], 1);
    for code in [
        &found["failure"]["code"],
        &found["failure"]["smallest"]["code"],
    ] {
        let code = code.as_str().unwrap();
        assert!(code.ends_with("-16384"), "{code}");
        let again = run_in(directory.path(), &["torture", "--replay", code]);
        let again = again.fails(1, &[]);
        for words in [
            "at most 16 KiB is old or new as a whole; 12 longer",
            "| torn",
        ] {
            assert!(again.out.contains(words), "{}", again.out);
        }
    }
}

#[test]
fn an_atomic_unit_is_of_blocks_and_of_a_disk_that_is_only_a_cache() {
    let both = ["--workload", "true", "--check", "true", "--file"];
    let torture = |more: &[&str]| run(&"torture".and(&[&both[..], more].concat()));
    let with_device = ["--atomic-writes", "16KiB", "--dedup"];
    torture(&with_device).fails(2, &["--atomic-writes", "--dedup"]);
    let recordings = [
        "--nvme-tcp",
        "--block",
        "16384",
        "--workload",
        "true",
        "--check",
        "true",
    ];
    run(&"torture".and(&recordings)).fails_in_one_line(2, &["over NVMe/TCP", "512 or 4096"]);
    torture(&["--atomic-writes", "5000"])
        .fails_in_one_line(2, &["--atomic-writes 5000", "4096 bytes"]);
}

#[test]
fn the_device_below_has_what_is_set_and_its_replay_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let set = ["--size", "16MiB", "--set", "firmware.wear_gap=1"];
    let Some(ran) = out_of_order(directory.path(), "", &set) else {
        return;
    };
    let ran = ran.fails(1, &[]);
    let replay = ran
        .out
        .lines()
        .find(|line| line.contains("torture --replay"));
    let replay = replay.unwrap_or_else(|| panic!("{}", ran.out)).trim();
    assert!(replay.ends_with(" --set firmware.wear_gap=1"), "{replay}");

    let words = replay.split_once("remap-ssd ").unwrap().1;
    run_in(directory.path(), &words.split(' ').collect::<Vec<_>>()).fails(1, &[]);

    for (setting, word) in [
        ("firmware.scheme=opt", "use --scheme instead"),
        ("flash.read_ns=1", "knows no time"),
        ("geometry.dies=3", "is too much for 3552 flash pages"),
    ] {
        let args =
            format!("torture --file --size 16MiB --workload true --check true --set {setting}");
        run_in(directory.path(), &args).fails(2, &[word]);
    }
}
