//! Descriptions from named values, their mistakes, and the keys of points.

use remap_ssd_study::{
    Comparison, ComparisonSpec, Error, Kind, OPTIONS, OptionDef, SOURCES, Watch, of_file, of_json,
    unfollowed,
};
use serde_json::{Value, json};

fn described(values: &Value) -> Result<ComparisonSpec, Error> {
    let values = values.as_object().expect("a table").clone();
    ComparisonSpec::try_from(values)
}

fn mistake(values: &Value) -> String {
    match described(values) {
        Err(Error::Usage(text)) => text,
        other => panic!("{values}: {other:?}"),
    }
}

#[test]
fn named_values_describe_the_same_comparison_as_fields() {
    let values = json!({
        "scheme": ["none", "remap-ssd"],
        "scale": "1/8",
        "gc": "greedy,coldmap",
        "log-size": "40MiB",
        "dedup": false,
        "writes": 2e6,
        "no_aging": true,
        "survival": false,
        "threads": null,
        "firmware.gc_free": 0.2,
        "firmware.watermark": null,
    });
    let spec = described(&values).unwrap();

    let fields = ComparisonSpec {
        scheme: vec!["none".parse().unwrap(), "remap-ssd".parse().unwrap()],
        scale: Some(0.125),
        gc: vec!["greedy".parse().unwrap(), "coldmap".parse().unwrap()],
        log_size: Some(40 << 20),
        dedup: Some(false),
        writes: Some(2_000_000),
        no_aging: true,
        set: vec!["firmware.gc_free=0.2".into()],
        ..ComparisonSpec::default()
    };
    assert_eq!(format!("{spec:?}"), format!("{fields:?}"));
}

#[test]
fn a_job_that_has_a_length_excludes_a_precision() {
    let folder = tempfile::tempdir().unwrap();
    let mistake = |job: &str| {
        let path = folder.path().join("job.fio");
        std::fs::write(&path, format!("[a]\nrw=randwrite\nbs=4k\n{job}")).unwrap();
        let spec = described(&json!({ "job": path, "precision": "wa=1%" }));
        spec.err().map(|error| error.to_string())
    };
    assert_eq!(mistake(""), None);
    let said = mistake("number_ios=1000\n").unwrap();
    assert!(said.contains("the job file already says"), "{said}");
}

#[test]
fn a_mistake_names_the_option_and_what_would_be_right() {
    for (values, said) in [
        (
            json!({ "sed": 1 }),
            "`sed` is no option of `compare`: did you mean `seed`?",
        ),
        (
            json!({ "queue_depth": 0 }),
            "invalid value '0' for '--queue-depth <N>': 0 is not a whole number from 1 to 65535",
        ),
        (
            json!({ "writes": 0 }),
            "invalid value '0' for '--writes <N>': `0` is not a count such as 500000, 500k or 2M",
        ),
        (
            json!({ "dedup": "maybe" }),
            "invalid value 'maybe' for '--dedup <on|off>': one of on, off",
        ),
        (
            json!({ "seed": { "a": 1 } }),
            "`seed` must be text, a number, or a list of them",
        ),
        (
            json!({ "aging": false }),
            "`aging` must be text, a number, or a list of them",
        ),
        (
            json!({ "trace": true }),
            "`trace` must be text, a number, or a list of them",
        ),
        (
            json!({ "no_aging": {} }),
            "`no_aging` must be text, a number, true or false, or a list of them",
        ),
        (
            json!({ "firmware.gc_free": [0.1, 0.2] }),
            "`firmware.gc_free` must be text, a number, true or false",
        ),
        (
            json!({ "queue-depth": 1, "queue_depth": 2 }),
            "`queue_depth` is given twice",
        ),
    ] {
        assert_eq!(mistake(&values), said);
    }
}

#[test]
fn options_that_exclude_or_need_each_other_are_refused_in_a_table_and_in_a_struct() {
    let values = json!({ "no_aging": true, "aging": "fill=sequential" });
    let said = "the argument '--no-aging' cannot be used with '--aging <LIST>'";
    assert_eq!(mistake(&values), said);

    let fields = ComparisonSpec {
        no_aging: true,
        aging: Some("fill=sequential".parse().unwrap()),
        ..ComparisonSpec::default()
    };
    assert_eq!(fields.check_together(), Err(Error::Usage(said.into())));

    let several = mistake(&json!({ "trace": "x", "writes": 3, "workload": "oltp" }));
    assert_eq!(
        several,
        "the argument '--workload <SPEC>' cannot be used with '--trace <FILE>'"
    );
    let alone = mistake(&json!({ "fold": "compact" }));
    assert!(
        alone.ends_with("were not provided:\n  --trace <FILE>"),
        "{alone}"
    );

    // The names in the list of options are options.
    for option in OPTIONS {
        for name in option.excludes.iter().chain(option.needs.iter()) {
            assert!(OptionDef::find(name).is_ok(), "{}: {name}", option.name);
        }
    }
}

#[test]
fn a_number_out_of_its_range_is_refused_in_a_struct_as_in_a_table() {
    type Set = fn(&mut ComparisonSpec);
    let given: [(&str, &str, Set); 7] = [
        ("threads", "0", |spec| spec.threads = Some(0)),
        ("repeat", "0", |spec| spec.repeat = Some(0)),
        ("queue_depth", "0", |spec| spec.queue_depth = Some(0)),
        ("queue_depth", "65536", |spec| {
            spec.queue_depth = Some(65_536)
        }),
        ("writes", "0", |spec| spec.writes = Some(0)),
        ("duplicates", "2", |spec| spec.duplicates = Some(2.0)),
        ("scale", "NaN", |spec| spec.scale = Some(f64::NAN)),
    ];
    for (name, number, set) in given {
        let mut fields = ComparisonSpec::default();
        set(&mut fields);

        // The same message as in a table.
        let said = mistake(&json!({ name: number }));
        let option = OptionDef::find(name).unwrap();
        let start = format!("invalid value '{number}' for '{option}': ");
        assert!(said.starts_with(&start), "{said}");
        assert_eq!(fields.check_together(), Err(Error::Usage(said.clone())));
        assert_eq!(
            Comparison::new(fields, unfollowed()).unwrap_err(),
            Error::Usage(said)
        );
    }

    let limits = ComparisonSpec {
        threads: Some(1),
        queue_depth: Some(65_535),
        writes: Some(u64::MAX),
        duplicates: Some(1.0),
        scale: Some(1.0 / 3.0),
        ..ComparisonSpec::default()
    };
    assert_eq!(limits.check_together(), Ok(()));
}

// A TLC device with word lines of 48 pages, eight in a block.
fn of_word_lines(values: &Value) -> ComparisonSpec {
    let mut all = json!({
        "preset": "tlc-2t", "scheme": ["none"], "workload": "randwrite", "writes": 2000, "steady": 0, "scale": "1/64",
        "geometry.channels": 2, "geometry.dies": 4, "geometry.superblocks": 64, "geometry.pages_per_block": 384,
        "firmware.lpns": 60_000, "firmware.log_bytes": 1 << 20, "firmware.dedup": false,
    });
    let values = values.as_object().expect("a table").clone();
    all.as_object_mut().expect("a table").extend(values);
    described(&all).unwrap()
}

#[test]
fn a_device_that_is_too_small_after_scaling_says_so() {
    let refused = |values: &Value| match Comparison::new(of_word_lines(values), unfollowed()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{values} runs"),
    };
    let one_line = json!({ "geometry.superblock_dies": 2, "geometry.pages_per_block": 48 });
    let said = refused(&one_line);
    assert!(
        said.contains("2 word lines") && !said.contains("--scale"),
        "{said}"
    );

    // The scale alone is to blame, so it is raised.
    let small = json!({ "geometry.superblock_dies": 2 });
    let runs = Comparison::new(of_word_lines(&small), unfollowed()).expect("it runs");
    let notes = runs.notes().concat();
    assert!(notes.contains("scale"), "{notes}");

    // Not a matter of spare space.
    let few = json!({ "preset": "fast21-32g", "scale": "1", "geometry.pages_per_block": 1 });
    let few = described(&few).unwrap();
    let Err(error) = Comparison::new(few, unfollowed()) else {
        panic!("it runs");
    };
    assert!(error.to_string().contains("9216 flash pages"), "{error}");
}

#[test]
fn a_heading_has_the_scale_that_word_lines_permit() {
    let comparison = Comparison::new(of_word_lines(&json!({})), unfollowed()).unwrap();
    let measured = comparison.measure().unwrap();
    let heading = comparison.heading(&measured);
    assert!(heading[0].1.contains("tlc-2t at 1/8:"), "{heading:?}");
}

#[test]
fn a_scale_below_the_least_is_raised_with_a_note() {
    let of =
        |values: &Value| described(values).and_then(|spec| Comparison::new(spec, unfollowed()));
    let notes = |scale: &str| {
        let values = json!({ "preset": "fast21-32g", "scheme": ["none"], "scale": scale });
        of(&values).unwrap().notes().join("\n")
    };
    assert_eq!(notes("1/256"), "");
    let noted = notes("1/100000");
    assert!(
        noted.contains("scale 1/100000 is below the least") && noted.contains("1/1024 is used"),
        "{noted}"
    );
}

#[test]
fn settings_without_effect_are_noted_and_run() {
    let notes = |values: &Value| {
        let mut values = values.clone();
        values["scale"] = "1/8".into();
        let comparison = Comparison::new(of_word_lines(&values), unfollowed()).unwrap();
        comparison.notes().join("\n")
    };
    assert_eq!(notes(&json!({})), "");
    let idle = json!({ "timing.suspensions": 0, "timing.suspend_ns": 20_000, "firmware.die_by_lpn": true });
    let noted = notes(&idle);
    assert!(
        noted.contains("`timing.suspend_ns` has no effect without"),
        "{noted}"
    );
    assert!(
        noted.contains("`firmware.die_by_lpn` has no effect"),
        "{noted}"
    );
    let used = json!({ "timing.cache_read": true, "timing.cache_busy_ns": 3000 });
    assert_eq!(notes(&used), "");
}

#[test]
fn what_a_device_may_not_mean_is_noted() {
    let notes = |values: &Value| {
        let comparison = Comparison::new(described(values).unwrap(), unfollowed()).unwrap();
        comparison.notes().join("\n")
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.toml");
    let text = "preset = \"fast21-32g\"\nscale = \"1/64\"\n[geometry]\nsuperblocks = 1152\n";
    std::fs::write(&file, text).unwrap();

    let noted = notes(&json!({ "config": file, "scheme": ["none"] }));
    assert!(
        noted.starts_with("note: firmware.lpns = 8388608 is that of fast21-32g"),
        "{noted}"
    );
    let larger = json!({ "scheme": ["none"], "geometry.superblocks": 1152 });
    assert!(notes(&larger).starts_with("note: firmware.lpns = 8388608"));
    let both =
        json!({ "scheme": ["none"], "geometry.superblocks": 1152, "firmware.lpns": 8_388_608 });
    assert_eq!(notes(&both), "");

    let slow = json!({ "scheme": ["none"], "flash.read_ns": 600_000 });
    let noted = notes(&slow);
    assert!(
        noted.starts_with("note: flash.read_ns = 600000 is above"),
        "{noted}"
    );
}

#[test]
fn a_timeline_is_svg_and_its_window_is_in_the_run() {
    let said = mistake(&json!({ "timeline": "dies.png" }));
    assert!(said.contains("ends in .svg"), "{said}");

    let folder = tempfile::tempdir().unwrap();
    let late = json!({ "timeline": folder.path().join("dies.svg"), "timeline_window": "900s+1s" });
    let comparison = Comparison::new(of_word_lines(&late), unfollowed()).unwrap();
    let Err(error) = comparison.measure() else {
        panic!("it has a picture");
    };
    assert!(
        error.to_string().contains("begins after the run"),
        "{error}"
    );

    // In the page of a report alone.
    let alone = mistake(&json!({ "timeline_window": "1ms+1ms" }));
    assert!(
        alone.ends_with("were not provided:\n  --timeline <SVG> or --report <HTML>"),
        "{alone}"
    );
    let report = folder.path().join("report.html");
    let page = json!({ "report": report, "timeline_window": "1ms+1ms" });
    let paged = Comparison::new(of_word_lines(&page), unfollowed()).unwrap();
    assert!(paged.measure().unwrap().complete().is_ok());
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("What each die did") && page.contains("1,000 µs from 1.00 ms"));
    let measured = comparison.run_possible(&[()]).unwrap();
    assert_eq!(measured.runs().len(), 1);
    assert!(measured.complete().is_err());
}

#[test]
fn an_empty_path_is_refused_before_the_run() {
    for option in OPTIONS.iter().filter(|option| option.kind == Kind::Path) {
        let said = mistake(&json!({ option.name: "" }));
        let start = format!("invalid value '' for '{option}': a path has");
        assert!(said.starts_with(&start), "{said}");
    }
    assert!(OPTIONS.iter().any(|option| option.kind == Kind::Path));
}

/// Results in users' folders are found by this key: it is written out here.
#[test]
fn a_points_key_is_the_hash_of_its_options_its_files_and_the_sources() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.session");
    std::fs::write(&trace, "a trace").unwrap();
    let digest = blake3::hash(b"a trace").to_hex().to_string();

    let key = |decides: Value| {
        let version = env!("CARGO_PKG_VERSION");
        let text = json!([3, version, SOURCES, decides]).to_string();
        blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
    };
    let point = |options: Value| {
        let grid = json!({ "options": options, "grid": [["seed", [7]]] });
        let mut points = of_json(&grid.to_string(), None).unwrap();
        points.remove(0)
    };

    let plain = point(json!([
        ["scale", "1/256"],
        ["no-aging", true],
        ["firmware.gc_free", 0.20]
    ]));
    assert_eq!(
        plain.name.key,
        key(json!({
            "firmware.gc_free": "0.2",
            "no_aging": "true",
            "scale": "1/256",
            "scheme": "remap-ssd",
            "seed": "7",
        }))
    );
    let turned = json!([
        ["firmware.gc_free", 0.2],
        ["scheme", "remap-ssd"],
        ["no_aging", true],
        ["scale", "1/256"],
    ]);
    assert_eq!(point(turned).name.key, plain.name.key);
    assert_eq!(
        plain.spec.command,
        [
            "remap-ssd",
            "compare",
            "--scale=1/256",
            "--no-aging",
            "--set=firmware.gc_free=0.2",
            "--seed=7",
            "--scheme=remap-ssd",
        ]
    );

    let traced = point(json!([["trace", trace], ["flushes", false]]));
    assert_eq!(
        traced.name.key,
        key(json!({ "flushes": "false", "scheme": "remap-ssd", "seed": "7", "trace": digest }))
    );
    assert_eq!(traced.given["trace"], json!(trace));
}

#[test]
fn a_job_file_is_beside_the_grid_and_its_content_is_in_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let (grid, job) = (folder.path().join("grid.toml"), folder.path().join("a.fio"));
    let text = "[options]\njob = \"a.fio\"\nscale = \"1/256\"\n[grid]\nseed = [1]\n";
    std::fs::write(&grid, text).unwrap();

    let point = |content: &str| {
        std::fs::write(&job, content).unwrap();
        of_file(&grid, None).unwrap().remove(0)
    };
    let first = point("[a]\nrw=randwrite\n");
    let edited = point("[a]\nrw=randread\n");
    let again = point("[a]\nrw=randwrite\n");

    assert_ne!(first.name.key, edited.name.key);
    assert_eq!(first.name.key, again.name.key);

    // Another process, with another working folder, finds the file.
    assert_eq!(first.given["job"], json!(job));
    assert_eq!(edited.spec.workload().to_string(), "randread");
}

#[test]
fn a_grid_reports_an_option_in_two_spellings_and_suggests_only_options_of_points() {
    let said = |grid: Value| match of_json(&grid.to_string(), None) {
        Err(Error::Usage(text)) => text,
        other => panic!("{grid}: {other:?}"),
    };

    let twice = json!([["queue-depth", [1]], ["queue_depth", [2]]]);
    assert_eq!(
        said(json!({ "grid": twice })),
        "`queue_depth` is given twice"
    );

    // `compare` suggests `save_aged`, which no point can have.
    assert!(mistake(&json!({ "save_age": "x" })).ends_with("did you mean `save_aged`?"));
    let grid = json!({ "grid": [["save_age", ["x"]]] });
    assert!(!said(grid.clone()).contains("save_aged"), "{}", said(grid));
}

/// Fails an assertion in a run, if it is the one to do so.
struct Asserting(bool);

impl Watch for Asserting {
    fn set_message(&self, message: &'static str) {
        assert!(!self.0, "{message} is wrong");
    }
}

#[test]
fn a_run_that_panics_is_a_failed_one_and_the_others_have_results() {
    let described =
        json!({ "scheme": "none,remap-ssd", "scale": "1/256", "writes": 500, "no_aging": true });
    let comparison = Comparison::new(self::described(&described).unwrap(), unfollowed()).unwrap();

    let measured = comparison
        .run_possible(&[Asserting(true), Asserting(false)])
        .unwrap();
    assert_eq!(measured.runs().len(), 1);
    assert_eq!(
        measured.complete().unwrap_err().to_string(),
        "1 of 2 schemes without a result: none (a bug of the simulator: measuring is wrong)"
    );

    let stopped = comparison.run(&[Asserting(true), Asserting(false)]);
    assert_eq!(
        stopped.unwrap_err().to_string(),
        "a bug of the simulator: measuring is wrong"
    );
}
