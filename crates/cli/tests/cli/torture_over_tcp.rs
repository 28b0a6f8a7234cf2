//! `torture --nvme-tcp` as its users see it: a workload that is a host by itself, with a flush,
//! with FUA, and with neither. Needs neither root nor FUSE.

use crate::kit::{Ran, run, run_in};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A host's command, in a shell.
fn io(words: &str) -> String {
    format!(
        "'{}' io --connect $ADDRESS --nqn $NQN {words}",
        env!("CARGO_BIN_EXE_remap-ssd")
    )
}

/// Two writes of which the second must not be there without the first, which is acknowledged.
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
    let args = [
        "torture",
        "--nvme-tcp",
        "--size",
        "1MiB",
        "--workload",
        &workload,
        "--check",
        &check,
        "--rounds",
        "20",
    ];
    run_in(directory, &[&args, more].concat())
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
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = ran.json();
    assert_eq!(found["seed"], 5);
    assert_eq!(found["failure"]["why"], "the check ended with exit code 1");
    let smallest = &found["failure"]["smallest"];
    assert_eq!(
        smallest["lost"],
        serde_json::json!([{ "block": 3, "versions": 1 }])
    );

    // Another process, from the recording that was saved here: it knows how the disk is reached.
    for code in [&found["failure"]["code"], &smallest["code"]] {
        let code = code.as_str().unwrap();
        let again = run_in(directory.path(), &["torture", "--replay", code]);
        assert_eq!(again.code, 1, "{}", again.err);
        assert!(
            again.out.contains("status 1") && again.out.contains(code),
            "{}",
            again.out
        );
    }
}

// The firmware loses its power as well, and the host meets what it has recovered.
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
fn what_does_not_go_with_a_host_of_ones_own_is_refused() {
    let both = [
        "torture",
        "--nvme-tcp",
        "--workload",
        "true",
        "--check",
        "true",
    ];
    for more in [
        &["--fs", "ext4"][..],
        &["--file"],
        &["--fault", "full"],
        &["--from", "some.recording"],
        &["--replay", "00000000-1-1"],
    ] {
        run(&[&both[..], more].concat()).fails(2, &["--nvme-tcp", more[0]]);
    }
}

#[test]
fn the_example_in_the_help_runs() {
    let help = run(&["torture", "--help"]).ok().out;
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
