//! `torture --nvme-tcp` as users see it: a workload that is an NVMe host itself, with a flush, with
//! FUA, and with neither. Needs neither root nor FUSE.

use crate::kit::{Ran, Words, run, run_in};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A host's command, in a shell.
fn io(words: &str) -> String {
    format!(
        "'{}' io --connect $ADDRESS --nqn $NQN {words}",
        env!("CARGO_BIN_EXE_remap-ssd")
    )
}

/// Two writes; the second must not survive without the first, which is acknowledged.
fn out_of_order(directory: &Path, fua: &str, between: &str, more: &[&str]) -> Ran {
    let put = |lba: u32, text: &str, fua: &str| {
        let write = io(&format!("write --lba {lba} --file - {fua}"));
        format!("printf {text} | {write} || exit 1; ")
    };
    let has =
        |lba: u32, text: &str| format!("{} | grep -aq {text}", io(&format!("read --lba {lba}")));
    let workload = [
        put(3, "first", fua),
        format!("{between}; echo acknowledged >> $MARKS; "),
        put(9, "second", ""),
    ]
    .concat();
    let check = format!(
        "{} || {{ ! {} && ! grep -q acknowledged $MARKS; }}; status=$?; echo status $status; exit $status",
        has(3, "first"),
        has(9, "second"),
    );
    let args = "torture --nvme-tcp --size 1MiB --rounds 20".and(more);
    let commands = ["--workload", &workload, "--check", &check];
    run_in(directory, &args.and(&commands))
}

#[test]
fn a_host_that_flushes_or_forces_its_writes_passes_every_check() {
    for (fua, between) in [("", io("flush")), ("--fua", "true".into())] {
        let directory = tempfile::tempdir().unwrap();
        let found = out_of_order(directory.path(), fua, &between, &["--json"])
            .ok()
            .json();
        assert_eq!(
            (&found["result"], &found["cuts"], &found["failed"]),
            (&"passed".into(), &20.into(), &0.into())
        );
        assert_eq!(found["nvme_tcp"], true);
        assert_eq!(found["recording"]["writes"], 2);
        assert_eq!(found["recording"]["marks"], 1);
        let flushes = u64::from(fua.is_empty());
        assert_eq!(found["recording"]["flushes"], flushes);
        assert!(found["cuts_losing"].as_u64() > Some(0), "{found}");
    }
}

#[test]
fn a_host_that_does_not_flush_fails_with_a_code_that_replays_it() {
    let directory = tempfile::tempdir().unwrap();
    let ran = out_of_order(directory.path(), "", "true", &["--json", "--seed", "5"]);
    let why = &ran.json()["failure"]["why"];
    assert_eq!(*why, "the check ended with exit code 1");

    // The recording includes the transport of the disk.
    ran.replays_of_a_lost_block(directory.path());
}

// The firmware loses power as well, and the host sees its recovered state.
#[test]
fn a_device_below_the_cache_is_what_the_host_meets_after_the_cut() {
    let directory = tempfile::tempdir().unwrap();
    let device = ["--size", "16MiB", "--json", "--dedup"];
    let found = out_of_order(directory.path(), "", &io("flush"), &device)
        .ok()
        .json();
    assert_eq!(found["device"], "remap-ssd+dedup");

    let ran = out_of_order(directory.path(), "", "true", &device);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = ran.json();
    let code = found["failure"]["code"].as_str().unwrap();
    run_in(directory.path(), &["torture", "--replay", code]).fails(1, &[]);
}

#[test]
fn a_workload_that_fails_or_has_no_host_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let torture = |workload: &str, check: &str| {
        let args = ["torture", "--nvme-tcp", "--size", "1MiB", "--rounds", "3"];
        let commands = ["--workload", workload, "--check", check];
        run_in(directory.path(), &[&args[..], &commands].concat())
    };
    torture("echo words; exit 3", "true").fails(2, &["exit code 3", "words"]);
    let ran = torture("true", "echo $ADDRESS $TRADDR:$TRSVCID; false");
    assert_eq!(ran.code, 1, "{}", ran.err);
    let words = ["without any power cut", "| 127.0.0.1:"];
    assert!(
        words.iter().all(|word| ran.out.contains(word)),
        "{}",
        ran.out
    );
    // More marks than a pipe holds, and no command between them.
    let many = "seq 20000 | while read n; do echo $n > $MARKS; done";
    torture(many, "! [ -s $MARKS ] || head -n 1 $MARKS | grep -qx 1").ok();
}

#[test]
fn a_file_that_cannot_be_written_is_a_failure_and_no_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent/a.recording");
    let absent = absent.to_str().unwrap();
    let args = ["torture", "--nvme-tcp", "--size", "1MiB", "--rounds", "3"];
    let commands = ["--workload", "true", "--check", "true"];

    let ran = run(&[&args[..], &commands, &["--record", absent]].concat()).fails(1, &[absent]);
    assert_eq!(ran.out, "", "no check has failed");

    // A recording that does not exist is a mistake.
    run(&["torture", "--from", absent]).fails(2, &[absent]);
    run(&["torture", "--from", directory.path().to_str().unwrap()]).fails(2, &["not a recording"]);
}

#[test]
fn what_does_not_go_with_a_host_of_ones_own_is_refused() {
    let both = "torture --nvme-tcp --workload true --check true";
    for more in [
        &["--fs", "ext4"][..],
        &["--file"],
        &["--from", "some.recording"],
        &["--replay", "00000000-1-1"],
    ] {
        run(&both.and(more)).fails(2, &["--nvme-tcp", more[0]]);
    }
}

/// Runs a workload and its check, on a disk with a fault.
fn faulty(directory: &Path, fault: &str, workload: &str, check: &str, more: &[&str]) -> Ran {
    let args = "torture --nvme-tcp --size 1MiB --json --rounds 10".and(more);
    let commands = ["--workload", workload, "--check", check, "--fault", fault];
    run_in(directory, &args.and(&commands))
}

// Data that a host has acknowledged before survive every cut.
#[test]
fn a_disk_that_is_full_or_read_only_ends_a_host_with_its_status_and_loses_nothing() {
    for (fault, status) in [("full:8192", "0x081"), ("read-only:8192", "0x020")] {
        let directory = tempfile::tempdir().unwrap();
        let write = io("write --lba $n --file - --fua");
        let workload = format!(
            "for n in 0 1 2 3; do printf is$n | {write} 2> words || exit 1; echo $n > $MARKS; done"
        );
        let read = io("read --lba $n");
        let check = format!("for n in $(cat $MARKS); do {read} | grep -aq is$n || exit 1; done");
        let found = faulty(directory.path(), fault, &workload, &check, &[]);
        let found = found.ok().json();
        assert_eq!(found["recording"]["marks"], 2, "{fault}");
        assert_eq!(found["recording"]["writes"], 2, "{fault}");
        assert_eq!(found["faults"], serde_json::json!([fault]));

        let words = std::fs::read_to_string(directory.path().join("words")).unwrap();
        assert!(words.contains(status), "{words}");
    }
}

#[test]
fn blocks_that_cannot_be_read_are_media_errors_until_they_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let (read, write) = (io("read --lba 7"), io("write --lba 7 --file - --fua"));
    let workload = format!(
        "{read} 2> words && exit 1; printf it | {write} || exit 1; {read} | grep -aq it || exit 1; \
         echo written > $MARKS"
    );
    // The check also reads unwritten blocks: faults have ended by then.
    let check = format!(
        "{} > all || exit 1; ! grep -q written $MARKS || grep -aq it all",
        io("read --lba 0 --blocks 256")
    );
    let found = faulty(directory.path(), "read-error:1", &workload, &check, &[]);
    assert_eq!(found.ok().json()["recording"]["marks"], 1);
    let words = std::fs::read_to_string(directory.path().join("words")).unwrap();
    assert!(words.contains("0x281"), "{words}");
}

#[test]
fn commands_that_are_late_end_well_and_take_their_time() {
    let directory = tempfile::tempdir().unwrap();
    // Duration of a read in milliseconds.
    let workload = format!(
        "from=$(date +%s%3N); {} > read || exit 1; echo $(($(date +%s%3N) - from)) > took",
        io("read --lba 7")
    );
    faulty(directory.path(), "latency:700@1", &workload, "true", &[]).ok();
    let took = std::fs::read_to_string(directory.path().join("took")).unwrap();
    assert!(took.trim().parse::<u64>().unwrap() >= 700, "{took}");
}

// Faults do not affect the losses of a cut; a replay needs only the recording, and lists them.
#[test]
fn a_page_is_torn_at_the_cut_though_the_disk_is_slow_and_the_code_replays_it() {
    let directory = tempfile::tempdir().unwrap();
    let page = "head -c 4096 /dev/zero | tr '\\0' x";
    let workload = format!("{page} | {}", io("write --lba 8 --file -"));
    let check = format!(
        "{} > page; case $(tr -d '\\0' < page | wc -c) in 0|4096) ;; *) echo torn; exit 1;; esac",
        io("read --lba 8 --blocks 8")
    );
    let more = ["--block", "512", "--rounds", "50"];
    let ran = faulty(directory.path(), "latency:20@1", &workload, &check, &more);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = ran.json();
    let code = found["failure"]["code"].as_str().unwrap();

    let again = run_in(directory.path(), &["torture", "--replay", code, "--json"]);
    assert_eq!(again.code, 1, "{}", again.err);
    let again = again.json();
    assert_eq!(again["failure"]["code"], code);
    assert!(
        again["failure"]["output"]
            .as_str()
            .unwrap()
            .contains("torn")
    );
    assert_eq!(again["faults"], serde_json::json!(["latency:20@1"]));
}

#[test]
fn the_example_in_the_help_runs() {
    let help = run("torture --help").ok().out;
    let example = help
        .lines()
        .find(|line| line.contains("torture --nvme-tcp"));
    let example = example.unwrap_or_else(|| panic!("{help}")).trim();

    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_remap-ssd");
    let io = format!("'{program}' io --connect $1 --nqn $2");
    for (name, text) in [
        (
            "load.sh",
            format!("printf it | {io} write --lba 7 --file - --fua; echo it > $MARKS"),
        ),
        (
            "check.sh",
            format!("! grep -q it $MARKS || {io} read --lba 7 | grep -aq it"),
        ),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    let command = example.replace("remap-ssd", &format!("'{program}'")) + " --rounds 5 --size 1MiB";
    let mut shell = std::process::Command::new("sh");
    let ended = shell.args(["-c", &command]).current_dir(directory.path());
    assert!(ended.status().unwrap().success(), "{command}");
}
