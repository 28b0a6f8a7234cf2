//! `sweep`: a grid in a file, each point once.

use crate::kit::run_in;
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
    std::fs::read_dir(directory.join("grid.sweep/points"))
        .unwrap()
        .count()
}

#[test]
fn a_sweep_makes_every_point_once_and_goes_on_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let write = |text: &str| std::fs::write(dir.join("grid.toml"), text).unwrap();
    write(GRID);

    let listed = run_in(dir, &["sweep", "grid.toml", "--dry-run"]).ok();
    assert!(listed.out.contains("0 of 8 points done"), "{}", listed.out);
    let first = run_in(dir, &["sweep", "grid.toml", "--json"]).ok().json();
    let all = first["points"].as_array().unwrap();
    assert_eq!((all.len(), points(dir)), (8, 8));
    // In the file's order, the last name changing fastest.
    assert_eq!(all[1]["point"]["scheme"], "remap-ssd");
    assert_eq!(all[2]["point"]["firmware.gc_free"], "0.2");
    assert_eq!(all[4]["point"]["seed"], "2");
    assert!(all.iter().all(|point| point["run"]["host_pages"] == 2000));

    // One is lost, and the grid grows: only what is missing is made.
    let key = all[3]["key"].as_str().unwrap();
    std::fs::remove_file(dir.join(format!("grid.sweep/points/{key}.json"))).unwrap();
    write(&GRID.replace("[1, 2]", "[1, 2, 3]"));
    let second = run_in(dir, &["sweep", "grid.toml"]).ok();
    assert!(
        second.err.contains("7 of 12 points are there already"),
        "{}",
        second.err
    );
    assert!(
        second.out.contains("12 of 12 points done"),
        "{}",
        second.out
    );
    let lines = std::fs::read_to_string(dir.join("grid.sweep/results.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 12);
    let figure = std::fs::read_to_string(dir.join("grid.sweep/figure.svg")).unwrap();
    assert!(figure.contains("seed=3"), "{figure}");

    // A point is what `compare` makes of the same options.
    let args = [
        "compare", "--json", "--scale", "1/256", "--writes", "2000", "--scheme", "none",
    ];
    let same = ["--set", "firmware.gc_free=0.1"];
    let alone = run_in(dir, &[&args[..], &same].concat()).ok().json();
    assert_eq!(alone["runs"][0], all[0]["run"]);
}

#[test]
fn all_that_is_wrong_with_a_grid_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let text =
        "[options]\nsed = 1\nthreads = 2\n[grid]\n\"firmware.gc_fre\" = [0.1]\nscheme = []\n";
    std::fs::write(dir.join("grid.toml"), text).unwrap();
    run_in(dir, &["sweep", "grid.toml"]).fails(
        2,
        &[
            "4 things are wrong",
            "`sed` is no option of `compare`: did you mean `seed`?",
            "`threads` is no part of a point",
            "did you mean `firmware.gc_free`?",
            "`scheme` has no values",
        ],
    );
    std::fs::write(dir.join("grid.toml"), "[grid]\nscheme = [\"raid\"]\n").unwrap();
    run_in(dir, &["sweep", "grid.toml"]).fails(2, &["no scheme is named 'raid'"]);
}
