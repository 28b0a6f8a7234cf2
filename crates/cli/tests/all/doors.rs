//! Every option of the library's trace readers is available on the command line, in sweeps and in
//! Python.

use crate::kit::{Ran, Words, run, run_in};
use remap_ssd_sim::trace::TraceOptions;
use std::fs;
use std::path::Path;

/// Source of a field of `TraceOptions`.
enum Door {
    /// An option of `compare`, and so of sweeps and of Python; of `trace stat` too if `of_stat`.
    Option { name: &'static str, of_stat: bool },
    /// Derived from other values; the reason.
    Derived(&'static str),
}

const DOORS: [(&str, Door); 6] = [
    ("addressable", Door::Derived("the device is the pages")),
    (
        "fold",
        Door::Option {
            name: "fold",
            of_stat: true,
        },
    ),
    (
        "skip_bad",
        Door::Option {
            name: "skip-bad",
            of_stat: true,
        },
    ),
    (
        "action",
        Door::Option {
            name: "blkparse-action",
            of_stat: true,
        },
    ),
    (
        "content_base",
        Door::Derived("contents of aging and of the trace must not meet"),
    ),
    (
        "flushes",
        Door::Option {
            name: "flushes",
            // It replays nothing.
            of_stat: false,
        },
    ),
];

/// The names of the fields of the compiled struct.
fn fields() -> Vec<String> {
    let shown = format!("{:#?}", TraceOptions::new(1));
    let field = |line: &str| {
        let own = line.strip_prefix("    ")?;
        let (name, _) = own.split_once(": ")?;
        (!name.starts_with(' ')).then(|| name.to_owned())
    };
    shown.lines().filter_map(field).collect()
}

#[test]
fn every_option_of_the_trace_readers_has_a_front_door() {
    let fields = fields();
    assert!(fields.len() >= DOORS.len(), "{fields:?}");
    let compare = run("compare --help").ok().out;
    let stat = run("trace stat --help").ok().out;
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/remap_ssd/_compare.py");
    let python = fs::read_to_string(python).unwrap();

    for field in fields {
        let door = DOORS.iter().find(|(name, _)| *name == field);
        let Some((_, door)) = door else {
            panic!("`{field}` of TraceOptions has no option: give it one, and a line in DOORS");
        };
        match door {
            Door::Derived(why) => assert!(!why.is_empty()),
            Door::Option { name, of_stat } => {
                let option = format!("--{name}");
                assert!(compare.contains(&option), "compare has no {option}");
                assert_eq!(stat.contains(&option), *of_stat, "trace stat, {option}");
                let keyword = format!("    {}: ", name.replace('-', "_"));
                assert!(python.contains(&keyword), "Python has no {keyword}");
            }
        }
    }
}

/// Three issued requests; the middle one was also queued before.
const TEXT: &str = "\
8,16 0 1 0.000000001 1 D WS 8 + 8 [x]
8,16 0 2 0.000000002 1 Q WS 16 + 8 [x]
8,16 0 3 0.000000003 1 D WS 16 + 8 [x]
8,16 0 4 0.000000004 1 D WS 24 + 8 [x]
";

#[test]
fn the_action_that_is_named_is_replayed_through_every_door() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    fs::write(dir.join("both.txt"), TEXT).unwrap();
    let issued: String = TEXT
        .lines()
        .filter(|line| line.contains(" D "))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(dir.join("issued.txt"), issued).unwrap();

    let small = "--scheme none --scale 1/512 --no-aging --json";
    let compare = |file: &str, more: &[&str]| {
        run_in(dir, &["compare", "--trace", file].and(small).and(more)).ok()
    };
    let stat = |file: &str, more: &[&str]| {
        run_in(dir, &[&["trace", "stat", file, "--json"], more].concat()).ok()
    };
    let note = "note: issued.txt: requests are the events with action D";
    let has_note = |ran: &Ran| ran.err.contains(note);

    for (file, action, requests, noted) in [
        ("both.txt", None, 1, false),
        ("both.txt", Some("Q"), 1, false),
        ("both.txt", Some("D"), 3, false),
        ("issued.txt", None, 3, true),
        ("issued.txt", Some("D"), 3, false),
    ] {
        let more: Vec<&str> = action
            .map(|action| ["--blkparse-action", action])
            .into_iter()
            .flatten()
            .collect();
        let (counted, replayed) = (stat(file, &more), compare(file, &more));
        assert_eq!(
            (has_note(&counted), has_note(&replayed)),
            (noted, noted),
            "{file} {action:?}"
        );
        assert_eq!(counted.json()[0]["profile"]["requests"]["all"], requests);
        assert_eq!(
            replayed.json()["runs"][0]["requests"]["submitted"],
            requests
        );
    }
    for action in ["A", "q", ""] {
        run_in(
            dir,
            &["trace", "stat", "both.txt", "--blkparse-action", action],
        )
        .fails(2, &["unknown block-layer action", "one of Q, D, C"]);
    }

    let grid = "[options]\nscale = \"1/512\"\nno_aging = true\ntrace = \"both.txt\"\n\
        [grid]\nblkparse_action = [\"Q\", \"D\"]\nscheme = [\"none\"]\n";
    fs::write(dir.join("grid.toml"), grid).unwrap();
    let swept = run_in(dir, "sweep grid.toml --json").ok().json();
    let submitted = |at: usize| swept["points"][at]["run"]["requests"]["submitted"].clone();
    assert_eq!((submitted(0), submitted(1)), (1.into(), 3.into()));
}

#[test]
fn flushes_that_a_trace_has_are_replayed_if_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let text = "write,0,4096\nflush,0,0\nwrite,4096,4096\nflush,0,0\n";
    fs::write(dir.join("t.csv"), text).unwrap();
    let args = "compare --trace t.csv --format csv:op,offset_bytes,size_bytes --scheme none \
                --scale 1/512 --no-aging --json";
    for (more, flushes) in [(&[][..], 0), (&["--flushes"][..], 2)] {
        let run = run_in(dir, &args.and(more)).ok().json();
        assert_eq!(run["runs"][0]["requests"]["flushes"], flushes);
    }
}

#[test]
fn columns_that_are_unknown_or_a_trace_that_would_last_too_long_are_mistakes_in_the_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    fs::write(dir.join("t"), "0 R 5 1\n300000000000000000 R 6 1\n").unwrap();
    let columns = ["trace", "stat", "t", "--format", "csv:op,where"];
    run_in(dir, &columns).fails(2, &["unknown column `where`: one of time_ns"]);
    let repeated = "compare --trace t --scheme none --scale 1/512 --repeat 100";
    run_in(dir, repeated).fails(2, &["--repeat 100: the trace lasts 300000000 s"]);
}
