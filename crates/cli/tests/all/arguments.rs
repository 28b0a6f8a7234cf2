//! Arguments: the examples in the help run, and mistakes give one sentence and the right exit code.

use crate::kit::{TINY, Words, compare, run, run_in};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const COMMANDS: [&str; 6] = ["compare", "crash", "bench", "inspect", "presets", "trace"];

/// A sample of a job file.
const OLTP_JOB: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../sim/tests/traces/samples/oltp.fio"
);

/// Extracts the examples from a help text.
fn examples(help: &str) -> Vec<Vec<String>> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  remap-ssd"));
    lines
        .map(|line| {
            let words = line.split_whitespace().skip(1);
            words
                .map(|word| word.trim_matches('\'').to_owned())
                .collect()
        })
        .collect()
}

/// Options that make an example small; a later option replaces an earlier one.
fn smaller(example: &[String]) -> Vec<String> {
    let has = |option: &str| example.iter().any(|word| word == option);
    let more: Vec<&str> = match example[0].as_str() {
        "compare" if has("--help") || has("diff") => vec![],
        // Its length is the device's lifetime.
        "compare" if has("--until-death") => {
            vec!["--scale", "1/64", "--set", "flash.endurance=20"]
        }
        "compare" if has("--age") => vec!["--writes", "1000"],
        "compare" if has("--trace") => vec!["--scale", "1/64"],
        "compare" => TINY.to_vec(),
        "crash" if has("--replay") => vec![],
        // It ends at the first loss.
        "crash" if has("--mutant") => vec!["--cuts", "2000"],
        "crash" => vec!["--cuts", "40", "--seconds", "20"],
        // By default it serves gigabytes from memory, for minutes.
        "bench" if !has("--quick") => vec!["--quick"],
        _ => vec![],
    };
    example
        .iter()
        .cloned()
        .chain(more.into_iter().map(str::to_owned))
        .collect()
}

/// Benches as JSON are run by `measuring.rs`, and one that sets a key is an example too.
fn is_run_elsewhere(example: &[String]) -> bool {
    example[0] == "bench"
        && (example.iter().any(|word| word == "--json") || example == ["bench", "--quick"])
}

/// The files named in the examples.
fn prepare(directory: &Path) {
    let fiu = |at: u64| format!("{} 1 p {} 8 W 6 0 {:032x}\n", at * 1000, at * 8, at % 5);
    std::fs::write(
        directory.join("mail.fiu"),
        (0..50).map(fiu).collect::<String>(),
    )
    .unwrap();
    let msr = |at: u64| {
        format!(
            "{},host,0,Write,{},4096,100\n",
            128_166_372_000_000_000 + at * 10,
            at * 4096
        )
    };
    std::fs::write(
        directory.join("disk.csv"),
        (0..50).map(msr).collect::<String>(),
    )
    .unwrap();
    std::fs::write(directory.join("mine.csv"), "1000,sda,W,4096,8192\n").unwrap();
    std::fs::copy(OLTP_JOB, directory.join("oltp.fio")).unwrap();
    let toml = run("presets --toml fast21-32g").ok().out;
    std::fs::write(directory.join("device.toml"), toml).unwrap();
}

#[test]
fn the_examples_in_the_help_run() {
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path());
    let mut ran = 0;
    for command in COMMANDS {
        let help = run(&[command, "--help"]).ok().out;
        let examples = examples(&help);
        assert!(!examples.is_empty(), "{command} has no examples:\n{help}");
        for example in examples.iter().filter(|example| !is_run_elsewhere(example)) {
            let args = smaller(example);
            let result = run_in(directory.path(), &args);
            // With a guard off, data are lost, and the exit code is 1.
            let expected = i32::from(args.iter().any(|word| word == "--mutant"));
            assert_eq!(
                result.code, expected,
                "{args:?}: {}{}",
                result.out, result.err
            );
            ran += 1;
        }
    }
    assert!(ran >= 15, "{ran} examples");
    assert!(directory.path().join("report.html").exists());
}

/// Names of the options in a help text, except `--help`.
fn options(help: &str) -> Vec<&str> {
    let lines = help.lines().map(str::trim_start);
    let names = lines.filter_map(|line| line.strip_prefix("--")?.split([' ', '.']).next());
    names
        .filter(|name| !["help", "help shows"].contains(name))
        .collect()
}

// A screen is 100 columns wide and has 50 lines.
#[test]
fn short_help_fits_a_screen_and_has_the_daily_options_under_headings() {
    for (command, daily) in [
        ("compare", ["scheme", "workload", "set", "report"]),
        ("crash", ["scheme", "cuts", "set", "replay"]),
        ("experiment", ["quick", "out", "set", "json"]),
        ("serve", ["image", "listen", "set", "keys"]),
        ("bench", ["quick", "service", "set", "json"]),
        ("torture", ["workload", "check", "scheme", "replay"]),
    ] {
        let (short, long) = (
            run(&[command, "-h"]).ok().out,
            run(&[command, "--help"]).ok().out,
        );
        let (few, all) = (options(&short), options(&long));

        assert!(few.len() <= 15, "{command} has {}: {few:?}", few.len());
        assert!(daily.iter().all(|name| few.contains(name)), "{few:?}");
        assert!(few.iter().all(|name| all.contains(name)), "{few:?} {all:?}");
        assert!(
            short.contains("\nOutput:\n") || short.contains("\nNew device:\n"),
            "{short}"
        );

        let (widest, lines) = (short.lines().map(str::len).max(), short.lines().count());
        assert!(
            widest <= Some(100),
            "{command} is {widest:?} wide:\n{short}"
        );
        assert!(lines <= 50, "{command} has {lines} lines:\n{short}");

        if few.len() < all.len() {
            assert!(short.contains("\n--help shows all options"), "{short}");
        }
    }
}

#[test]
fn what_is_set_changes_the_device() {
    let results = |args: &[&str]| {
        let mut results = compare(&"--scheme remap-ssd".and(args));
        results.as_object_mut().unwrap().remove("command");
        results
    };

    let plain = results(&[]);
    for setting in [
        "geometry.superblock_dies=1",
        "firmware.gc_free=0.2",
        "flash.endurance=900",
    ] {
        assert!(results(&["--set", setting]) != plain, "{setting}");
    }

    // Of hybrid mapping.
    let hybrid = |args: &[&str]| {
        let mut results = compare(&"--scheme shadow-oob --mapping hybrid".and(args));
        results.as_object_mut().unwrap().remove("command");
        results
    };
    let both = hybrid(&["--set", "firmware.block_pages=8,firmware.extension=0.02"]);
    assert!(both != hybrid(&["--set", "firmware.block_pages=8"]));
}

#[test]
fn a_job_file_is_measured_as_the_options_that_it_stands_for() {
    let results = |args: &[&str]| {
        let common = "compare --json --scale 1/64 --scheme none,remap-ssd";
        let mut results = run(&common.and(args)).ok().json();
        results.as_object_mut().unwrap().remove("command");
        let left_out = results["config"]["feed"]
            .as_object_mut()
            .unwrap()
            .remove("job_left_out");
        (results, left_out)
    };
    let options = "--workload zipfrw:0.99:70,pages=2 --content repeat:0.3";
    let amounts = ["--queue-depth", "32", "--writes", "32768"];

    let (of_job, left_out) = results(&["--job", OLTP_JOB]);
    let (of_options, none) = results(&options.and(&amounts));
    // Not `assert_eq`, which would print megabytes.
    assert!(of_job == of_options);
    // Options left out are listed in the results and on the screen.
    assert_eq!(left_out, Some(serde_json::json!(["direct", "filename"])));
    assert_eq!(none, None);
    let short = ["--scale", "1/64", "--scheme", "none", "--writes", "2000"];
    let screen = run(&[&["compare", "--no-aging", "--job", OLTP_JOB], &short[..]].concat());
    let screen = screen.ok().out;
    assert!(screen.contains("direct, filename"), "{screen}");

    let (shorter, _) = results(&["--job", OLTP_JOB, "--writes", "2000"]);
    assert!(
        of_job != shorter,
        "an option comes before what the file says"
    );

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.fio"), "[a]\nrw=randtrim\n").unwrap();
    run_in(directory.path(), "compare --job bad.fio").fails(2, &["bad.fio", "line 2: rw=randtrim"]);
    run(&["compare", "--job", OLTP_JOB, "--trace", "x"]).fails(2, &["--trace"]);
}

// A pipe has its text once.
#[test]
fn a_job_file_may_be_a_pipe() {
    let args = ["--scheme", "none", "--no-aging", "--json", "--job"];
    let args = [&["compare"], TINY, &args[..]].concat();
    let mut program = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
        .args(&args)
        .arg("/dev/stdin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");

    let text = std::fs::read(OLTP_JOB).expect("a job file");
    let mut pipe = program.stdin.take().expect("piped");
    pipe.write_all(&text).expect("the program reads");
    drop(pipe);
    let output = program.wait_with_output().expect("the program ends");

    assert!(output.status.success(), "{}", output.status);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let of_file = run(&[&args[..], &[OLTP_JOB]].concat()).ok().json();
    assert!(said["runs"] == of_file["runs"]);
}

// In a closed loop the requests in flight are their rate times their mean latency (Little's law).
#[test]
fn requests_in_flight_are_those_of_the_option_else_of_the_job_file_else_of_the_device() {
    let directory = tempfile::tempdir().unwrap();
    let job = "[a]\nioengine=libaio\nrw=randwrite\niodepth=2\nnumjobs=2\n";
    std::fs::write(directory.path().join("four.fio"), job).unwrap();

    let in_flight = |args: &[&str]| {
        let common = ["compare", "--json", "--scheme", "none", "--no-aging"];
        let results = run_in(directory.path(), &[&common, TINY, args].concat());
        let results = results.ok().json();
        let number = |name: &str| results["runs"][0].pointer(name).unwrap().as_f64().unwrap();
        let measured = number("/requests_per_s") * number("/latency_us/mean") / 1e6;
        (results["config"]["queue_depth"].as_u64().unwrap(), measured)
    };

    let with_job = ["--job", "four.fio"];
    let with_both = ["--job", "four.fio", "--queue-depth", "8"];
    let with_one = ["--job", "four.fio", "--queue-depth", "1"];
    for (args, expected) in [
        (&["--workload", "randwrite"][..], 32),
        (&["--queue-depth", "8"], 8),
        (&with_job, 4),
        (&with_both, 8),
        (&with_one, 1),
    ] {
        let (said, measured) = in_flight(args);
        assert_eq!(said, expected, "{args:?}");
        // The first and the last requests of the run are alone.
        let near = 0.9 * expected as f64..1.01 * expected as f64;
        assert!(near.contains(&measured), "{args:?}: {measured} in flight");
    }
}

#[test]
fn the_examples_of_the_program_itself_parse() {
    let help = run("--help").ok().out;
    let examples = examples(&help);
    assert!(examples.len() >= 3, "{help}");
    assert!(
        examples
            .iter()
            .all(|example| COMMANDS.contains(&example[0].as_str())),
        "{examples:?}"
    );
    assert!(help.contains("Exit codes"));
}

#[test]
fn mistakes_in_the_arguments_exit_with_2() {
    let mistakes = [
        ("", "Usage"),
        ("no-such-command", "no-such-command"),
        ("compare --no-such-option", "--no-such-option"),
        ("compare --scheme raid", "no scheme is named 'raid'"),
        (
            "compare --preset raid",
            "no preset is named `raid`; there are fast21-32g",
        ),
        ("compare --scale 2", "at most 1"),
        ("compare --scale 0", "above 0"),
        ("compare --workload walk", "unknown workload `walk`"),
        (
            "compare --workload randwrite,pages=99999999",
            "does not fit",
        ),
        ("compare --content papers", "unknown content model"),
        ("compare --content papers:3", "0 to 1"),
        ("compare --duplicates 1.5", "share"),
        (
            "compare --duplicates 0.3 --content unique",
            "cannot be used with",
        ),
        ("compare --log-size large", "size such as"),
        ("compare --writes 0", "count such as"),
        ("compare --queue-depth 0", "queue-depth"),
        ("compare --threads 0", "threads"),
        (
            "compare --memory 20MiB",
            "a smaller --scale or fewer --threads",
        ),
        (
            "compare --memory 20MiB --threads 1",
            "and 20.0 MiB are available",
        ),
        ("compare --dedup perhaps", "on, off"),
        ("compare --fold modulo", "--trace"),
        ("compare --aging fill=full", "none of fill=random"),
        ("compare --aging nvram_used=7", "from 0 to 1"),
        (
            "compare --aging fill=whole --no-aging",
            "cannot be used with",
        ),
        ("compare --arrivals trace", "no times of its own"),
        (
            "compare --arrivals rate:fast",
            "none of trace, trace:SPEED, rate:R and burst:N:S",
        ),
        ("compare --arrivals rate:5,bound=0", "from 1 to 65535"),
        (
            "compare --arrivals rate:5 --queue-depth 4",
            "cannot be used with",
        ),
        ("compare --trace x --writes 10", "cannot be used with"),
        ("compare --trace x --format pcap", "unknown trace format"),
        ("compare --trace x --fold twice", "unknown fold"),
        ("compare --age x --preset fast21-32g", "cannot be used with"),
        (
            "crash --mutant luck",
            "no guard is named 'luck'; there are erase-waits",
        ),
        ("crash --replay xyz", "not a replay code"),
        (
            "crash --replay pebble+hybrid:1:ab",
            "works with --mapping page only",
        ),
        (
            "crash --replay shadow-oob+hybrid/cagc:1:ab",
            "sorts pages into zones",
        ),
        (
            "crash --mutant unshared-renewed --scheme wal-ssd",
            "works with --mapping page only",
        ),
        (
            "crash --mutant homes-renewed --mapping hybrid",
            "works with --mapping page only",
        ),
        (
            "crash --trace-steps /dev/null --scheme nlog --set firmware.untorn_bytes=65536",
            "does not judge untorn writes (firmware.untorn_bytes=0 is without them) yet",
        ),
        ("crash --seconds 0", "seconds"),
        ("crash --cuts none", "count"),
        ("presets --toml raid", "no preset is named"),
        ("inspect", "IMAGE"),
        ("compare --workload ycsb,size=99", "ycsb needs"),
        ("compare --workload oltp,files=3", "none of size=FACTOR"),
        ("trace stat", "<FILE>"),
        ("trace stat --workload walk", "or a model: fileserver, oltp"),
        ("trace make oltp --out x", "--requests"),
        ("trace make oltp --requests 10", "--out"),
        (
            "trace make oltp --requests 10 --out x --format pcap",
            "unknown trace format",
        ),
        (
            "trace make ycsb --requests 10 --out x --device 1MiB",
            "ycsb needs",
        ),
        (
            "trace make oltp --requests 10 --out x --device 199TiB",
            "4KiB to 128TiB",
        ),
        ("bench --preset raid", "no preset is named"),
    ];
    for (args, word) in mistakes {
        run(args).fails(2, &[word]);
    }
}

#[test]
fn an_impossible_log_is_said_in_one_sentence() {
    run("compare --scheme remap-ssd --log-size 1KiB").fails_in_one_line(
        2,
        &["scheme remap-ssd", "log_bytes", "given: --log-size 1KiB"],
    );
}

#[test]
fn a_bad_device_file_is_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let whole = run("presets --toml fast21-32g").ok().out;
    let cases = [
        (
            "preset = \"fast21-32g\"\n[flash]\nread_nanoseconds = 5\n".to_owned(),
            "read_nanoseconds",
        ),
        (
            "preset = \"fast21-32g\"\ncolour = \"red\"\n".to_owned(),
            "colour",
        ),
        ("preset = \"raid\"\n".to_owned(), "no preset is named"),
        ("preset = \"fast21-32g\"\nscale = 3\n".to_owned(), "scale"),
        (
            "preset = \"fast21-32g\"\n[geometry]\ndies = 0\n".to_owned(),
            "dies",
        ),
        (
            "preset = \"fast21-32g\"\n[firmware]\nlpns = 9437184\n".to_owned(),
            "over-provisioning",
        ),
        (
            "preset = \"fast21-32g\"\n[firmware]\ncount_max = 1\n".to_owned(),
            "count_max",
        ),
        ("this is not TOML".to_owned(), "line 1"),
        (whole.replace("queue_depth", "queue_length"), "queue_length"),
        (
            whole.replace("superblocks = 576", "superblocks = -1"),
            "geometry.superblocks = -1 must be 1 to 2097151",
        ),
    ];
    for (text, word) in cases {
        std::fs::write(directory.path().join("bad.toml"), text).unwrap();
        run_in(directory.path(), "compare --config bad.toml")
            .fails_in_one_line(2, &["bad.toml", word]);
    }
    run_in(directory.path(), "compare --config none.toml")
        .fails_in_one_line(1, &["none.toml", "No such file"]);

    // Each value is possible, but not the device that file and options describe together.
    let text = "preset = \"fast21-32g\"\nscale = \"1/256\"\n";
    std::fs::write(directory.path().join("good.toml"), text).unwrap();
    for option in ["--set=firmware.lpns=99_000_000", "--log-size=64"] {
        let args = format!("compare --config good.toml --scheme remap-ssd {option}");
        run_in(directory.path(), &args).fails(2, &["good.toml: scheme remap-ssd: "]);
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    for args in [
        &["presets"][..],
        &["presets", "--json"],
        &["compare", "--help"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        assert!(child.wait().unwrap().success(), "{args:?}: {err}");
        assert_eq!(err, "");
    }
}

#[test]
fn every_preset_is_listed_with_its_assumptions_and_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    let text = run("presets").ok().out;
    let list = run("presets --json").ok().json();
    let presets = list.as_array().unwrap();
    assert!(presets.len() >= 4);
    for preset in presets {
        let name = preset["name"].as_str().unwrap();
        assert!(text.contains(name));
        for assumption in preset["assumed"].as_array().unwrap() {
            assert!(text.contains(assumption.as_str().unwrap()), "{assumption}");
        }
        let toml = run(&["presets", "--toml", name]).ok().out;
        std::fs::write(directory.path().join("device.toml"), toml).unwrap();
        let args = "compare --config device.toml --scheme none --scale 1/256 \
                    --writes 100 --no-aging --json";
        let ran = run_in(directory.path(), args).ok().json();
        assert_eq!(ran["config"]["device"]["name"], *name);
    }
}
