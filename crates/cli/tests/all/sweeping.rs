//! `sweep`: a grid in a file, each point once.

use crate::kit::{Words, run_in};
use std::path::Path;

const GRID: &str = "\
[options]
scale = \"1/256\"
writes = 2000
[grid]
seed = [1, 2]
\"firmware.gc_free\" = [0.1, 0.2]
scheme = [\"none\", \"remap-ssd\"]
";

fn points(directory: &Path) -> usize {
    let schemes = ["none", "remap-ssd"].map(|scheme| format!("grid.sweep/scheme={scheme}"));
    let files = |folder: &String| std::fs::read_dir(directory.join(folder)).unwrap().count();
    schemes.iter().map(files).sum()
}

#[test]
fn a_sweep_makes_every_point_once_and_goes_on_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let write = |text: &str| std::fs::write(dir.join("grid.toml"), text).unwrap();
    write(GRID);

    let listed = run_in(dir, "sweep grid.toml --dry-run").ok();
    assert!(listed.out.contains("0 of 8 points done"), "{}", listed.out);
    let first = run_in(dir, "sweep grid.toml --json").ok();
    assert!(!first.err.contains("are there already"), "{}", first.err);
    let first = first.json();
    let all = first["points"].as_array().unwrap();
    assert_eq!((all.len(), points(dir)), (8, 8));
    // In the file's order, the last name changing fastest.
    assert_eq!(all[1]["point"]["scheme"], "remap-ssd");
    assert_eq!(all[2]["point"]["firmware.gc_free"], "0.2");
    assert_eq!(all[4]["point"]["seed"], "2");
    assert!(all.iter().all(|point| point["run"]["host_pages"] == 2000));

    // One is lost, and the grid grows: only the missing ones are made.
    let file = |at: usize| {
        let (key, scheme) = (&all[at]["key"], &all[at]["point"]["scheme"]);
        let (key, scheme) = (key.as_str().unwrap(), scheme.as_str().unwrap());
        dir.join(format!("grid.sweep/scheme={scheme}/{key}.parquet"))
    };
    std::fs::remove_file(file(3)).unwrap();
    // Another is incomplete, as after a partial copy.
    let bytes = std::fs::read(file(4)).unwrap();
    std::fs::write(file(4), &bytes[..bytes.len() / 2]).unwrap();
    write(&GRID.replace("[1, 2]", "[1, 2, 3]"));
    let second = run_in(dir, "sweep grid.toml").ok();
    assert!(
        second.err.contains("6 of 12 points are there already"),
        "{}",
        second.err
    );
    assert!(
        second.out.contains("12 of 12 points done"),
        "{}",
        second.out
    );
    assert_eq!(points(dir), 12);
    assert_eq!(std::fs::read(file(4)).unwrap(), bytes);
    // A point equals the result of `compare` with the same options.
    let args = "compare --json --scale 1/256 --writes 2000 --scheme none";
    let same = ["--set", "firmware.gc_free=0.1"];
    let alone = run_in(dir, &args.and(&same)).ok().json();
    assert_eq!(alone["runs"][0], all[0]["run"]);
}

/// The mean of three values, and half of its interval: Student's t for two degrees of freedom.
fn mean_of_three(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / 3.0;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, 4.3027 * (squares / 2.0 / 3.0).sqrt())
}

#[test]
fn seeds_are_averaged_in_table_and_picture_and_a_single_one_keeps_its_interval() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let write = |seeds: &str| {
        let text = GRID
            .replace("seed = [1, 2]", seeds)
            .replace("2000", "20000");
        std::fs::write(dir.join("grid.toml"), text).unwrap();
    };
    write("seed = [1, 2, 3]");
    let shown = run_in(dir, "sweep grid.toml --show write_amplification")
        .ok()
        .out;
    let all = run_in(dir, "sweep grid.toml --json").ok().json();

    // The first combination is every fourth point.
    let of = |point: &serde_json::Value| point["run"]["write_amplification"].as_f64().unwrap();
    let points = all["points"].as_array().unwrap();
    let values: Vec<f64> = points.iter().step_by(4).map(of).collect();
    let (mean, half) = mean_of_three(&values);
    let row = |text: &str, words: &str| -> String {
        text.lines()
            .find(|line| line.starts_with(words))
            .expect(words)
            .to_owned()
    };
    let expected = remap_ssd_sim::report::format::interval(mean, half);
    assert!(
        row(&shown, "0.1").ends_with(&expected),
        "{shown}, not {expected}"
    );
    assert_eq!(
        shown
            .lines()
            .filter(|line| line.contains("remap-ssd"))
            .count(),
        2
    );
    assert!(shown.contains("Means over 3 seeds") && shown.contains("12 of 12 points done"));
    let figure = std::fs::read_to_string(dir.join("grid.sweep/_figure.svg")).unwrap();
    assert!(
        !figure.contains("seed=") && figure.contains("firmware gc free"),
        "{figure}"
    );
    assert_eq!(figure.matches("class=\"band\"").count(), 2);

    // One seed: the interval of its run.
    write("seed = 1");
    let shown = run_in(dir, "sweep grid.toml --show write_amplification")
        .ok()
        .out;
    let own = points[0]["run"]["ci95"]["write_amplification"]
        .as_f64()
        .unwrap();
    let expected = remap_ssd_sim::report::format::interval(values[0], own);
    assert!(
        row(&shown, "1 ").ends_with(&expected),
        "{shown}, not {expected}"
    );
    assert!(!shown.contains("Means over"));
}

#[test]
fn points_that_miss_the_wanted_precision_are_marked_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let grid = "[options]\nscale = \"1/256\"\nscheme = \"none\"\nno_aging = true\n[grid]\nprecision = [\"wa=20%\", \"wa=0.01%\"]\n";
    std::fs::write(dir.join("grid.toml"), grid).unwrap();
    let shown = run_in(dir, "sweep grid.toml --show wa").ok().out;
    let row = |words: &str| {
        let mut lines = shown.lines();
        lines
            .find(|line| line.starts_with(words))
            .expect(words)
            .to_owned()
    };
    assert!(row("precision").contains("state"), "{shown}");
    assert!(row("wa=20%").contains(" reached "), "{shown}");
    assert!(row("wa=0.01%").contains(" missed "), "{shown}");
    assert!(
        row("Not as precise as wanted").ends_with(": 1 run."),
        "{shown}"
    );

    let json = run_in(dir, "sweep grid.toml --json").ok().json();
    let reached = |at: usize| json["points"][at]["run"]["steady"]["is_precise"].clone();
    assert_eq!([reached(0), reached(1)], [true, false]);
}

#[test]
fn failed_points_are_listed_and_the_others_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let grid = "[options]\nscheme = \"none\"\nscale = \"1/256\"\nno_aging = true\nuntil_death = true\n\
        \"flash.endurance\" = 2\n[grid]\nworkload = [\"randread\", \"seqread\", \"seqwrite\"]\n";
    std::fs::write(dir.join("grid.toml"), grid).unwrap();
    let swept = run_in(dir, "sweep grid.toml");
    swept.fails(
        1,
        &[
            "2 of 3 points without a result:\n",
            "\n  workload=randread: ",
            "\n  workload=seqread: ",
        ],
    );

    let results = dir.join("grid.sweep/scheme=none");
    assert_eq!(std::fs::read_dir(&results).unwrap().count(), 1);

    // Files without a digest of these sources are kept, and said.
    std::fs::write(results.join("0123.parquet"), "PAR1PAR1").unwrap();
    let swept = run_in(dir, "sweep grid.toml");
    let said = "1 result in grid.sweep of other sources or another version: kept, not reused";
    swept.fails(1, &[said, "1 of 3 points are there already"]);
    assert!(results.join("0123.parquet").exists());
}

#[test]
fn a_sweep_writes_a_page_and_the_table_for_a_paper() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(dir.join("grid.toml"), GRID).unwrap();
    let sweep = |more: &[&str]| run_in(dir, &"sweep grid.toml".and(more));
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();

    // Before anything runs.
    sweep(&["--table", "grid.txt"]).fails(2, &["ends in .tex, .md or .csv"]);
    sweep(&["--report", "nowhere/grid.html"]).fails(1, &["there is no folder nowhere"]);
    assert_eq!(std::fs::exists(dir.join("grid.sweep")).ok(), Some(false));

    let files = ["--report", "grid.html", "--table", "grid.tex"];
    sweep(&[&files[..], &["--show", "write_amplification,gc_pages"]].concat()).ok();
    let page = read("grid.html");
    for part in [
        "<h3>write amplification</h3>",
        "<h3>gc pages</h3>",
        "remap-ssd sweep grid.toml",
        "--seed=2",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
    let table = read("grid.tex");
    let head = "firmware gc free & scheme & state & write amplification & gc pages \\\\";
    assert!(
        table.contains(head) && table.contains("\\toprule"),
        "{table}"
    );
    // The device and the options, without which the figures mean nothing.
    for text in [&table, &page] {
        for said in [
            "device: fast21-32g at 1/256",
            "scale 1/256, writes 2000",
            "seed: 1, 2",
        ] {
            assert!(text.contains(said), "{said} is not in {text}");
        }
    }
    // Two combinations a scheme, the seeds being one.
    assert!(table.contains("0.2 & remap-ssd &"), "{table}");
    assert_eq!(table.matches("& remap-ssd &").count(), 2);

    sweep(&["--table", "grid.csv"]).ok();
    let csv = read("grid.csv");
    let head = "firmware.gc_free,scheme,state,write_amplification,ci95.write_amplification,";
    assert!(csv.starts_with(head), "{csv}");
    assert_eq!(csv.lines().count(), 5);

    // Without runs there is nothing to write.
    std::fs::write(dir.join("grid.toml"), GRID.replace("2000", "3000")).unwrap();
    sweep(&["--table", "grid.csv", "--report", "new.html", "--dry-run"]).ok();
    assert_eq!(read("grid.csv"), csv);
    assert_eq!(std::fs::exists(dir.join("new.html")).ok(), Some(false));
}

#[test]
fn a_figure_that_no_run_has_is_refused_with_the_one_that_was_meant() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(dir.join("grid.toml"), GRID).unwrap();
    let show = |figures: &str| run_in(dir, &["sweep", "grid.toml", "--dry-run", "--show", figures]);
    show("gc_pages,write_amplificaton").fails(2, &["did you mean `write_amplification`?"]);
    show("latency_us").fails(2, &["a group of them", "latency_us.p99"]);
    assert!(show("wa").ok().out.contains("write_amplification"));
}

#[test]
fn combinations_that_are_skipped_are_no_points() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let grid =
        "[grid]\nscheme = [\"wal-ssd\", \"none\"]\nworkload = [\"journal\", \"randwrite\"]\n";
    let write = |text: &str| std::fs::write(dir.join("grid.toml"), text).unwrap();

    // A scheme that would be idle under a workload is refused before anything runs.
    write(grid);
    run_in(dir, "sweep grid.toml --dry-run")
        .fails(2, &["this workload names none: use --workload journal"]);
    write(&format!(
        "{grid}[[skip]]\nscheme = \"wal-ssd\"\nworkload = [\"randwrite\"]\n"
    ));
    let listed = run_in(dir, "sweep grid.toml --dry-run --json");
    assert_eq!(listed.ok().json()["points"].as_array().unwrap().len(), 3);
    write(&format!("{grid}[[skip]]\nscheme = \"none\"\nsize = 3\n"));
    run_in(dir, "sweep grid.toml").fails(2, &["`size` is no option of `compare`", "not in [grid]"]);
}

#[test]
fn a_cluster_without_the_python_package_is_a_sentence_with_what_to_install() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(dir.join("grid.toml"), GRID).unwrap();
    let words = ["sweep", "grid.toml", "--scheduler", "tcp://127.0.0.1:1"];
    let said = crate::kit::run_with(dir, &words, &[("PYTHON", "/nowhere/python3")]);
    said.fails(
        2,
        &[
            "--scheduler needs the Python package with Dask",
            "pip install './python[cluster]'",
            "/nowhere/python3: No such file",
        ],
    );
    // A package built from other sources would give its results other names.
    std::fs::write(dir.join("python"), "#!/bin/sh\necho 0123\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("python"), mode).unwrap();
    let said = crate::kit::run_with(dir, &words, &[("PYTHON", "./python")]);
    said.fails(2, &["not of this program's sources"]);
    assert!(!dir.join("grid.sweep").exists());
}

#[test]
fn all_that_is_wrong_with_a_grid_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let text =
        "[options]\nsed = 1\nthreads = 2\n[grid]\n\"firmware.gc_fre\" = [0.1]\nscheme = []\n";
    std::fs::write(dir.join("grid.toml"), text).unwrap();
    run_in(dir, "sweep grid.toml").fails(
        2,
        &[
            "4 things are wrong",
            "`sed` is no option of `compare`: did you mean `seed`?",
            "`threads` is no part of a point",
            "did you mean `firmware.gc_free`?",
            "`scheme` has no values",
        ],
    );
    let address = "[grid]\ntrace = [\"s3://bucket/mail.fiu\"]\n";
    std::fs::write(dir.join("grid.toml"), address).unwrap();
    run_in(dir, "sweep grid.toml").fails(2, &["the Python package reads it"]);
    std::fs::write(dir.join("grid.toml"), "[grid]\nscheme = [\"raid\"]\n").unwrap();
    run_in(dir, "sweep grid.toml").fails(2, &["no scheme is named 'raid'"]);

    // Each value of each list, not only the first combination.
    let text =
        "[options]\nwrites = \"few\"\n[grid]\nscheme = [\"raid\"]\nseed = [\"a\", 1, \"b\"]\n";
    std::fs::write(dir.join("grid.toml"), text).unwrap();
    run_in(dir, "sweep grid.toml").fails(
        2,
        &[
            "4 things are wrong",
            "'few' for '--writes",
            "'raid'",
            "'a' for '--seed",
            "'b' for '--seed",
        ],
    );
    std::fs::write(dir.join("grid.toml"), "[grid]\nseed = [1\n").unwrap();
    run_in(dir, "sweep grid.toml").fails(2, &["grid.toml: line"]);
}
