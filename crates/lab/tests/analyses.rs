//! Analyses of known results: runs have given figures instead of being executed, and the expected
//! measures are computed by hand from the papers' definitions.

use remap_ssd_lab::folder::built_in;
use remap_ssd_lab::grid::RunSpec;
use remap_ssd_lab::store::Store;
use remap_ssd_lab::{Form, Study};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the measures of an experiment whose runs have these results.
fn measures(experiment: &str, result: impl Fn(&RunSpec) -> Value) -> BTreeMap<String, f64> {
    let study = Study::plan(&built_in(), &[experiment.to_owned()], Form::Smoke).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), "test").unwrap();
    for run in &study.planned[0].runs {
        store.save(run, &result(run)).unwrap();
    }
    study.conclude(&store).unwrap().remove(0).measures
}

fn assert_near(found: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        let ours = found[*name];
        assert!((ours - value).abs() < 1e-9, "{name}: {ours}, not {value}");
    }
}

// 5,000 inserts: with SQLite's own journal in 50 s and 10 pages each, copied by the device in 20 s
// and 4 pages, and without a journal in 10 s and 3 pages.
#[test]
fn sqlite_on_copies_is_compared_with_stock_and_with_no_journal_by_insert() {
    let found = measures("copyless-sqlite", |run| {
        let (seconds, pages, reads) = if run.workload.ends_with("-copyless") {
            (20.0, 20_000, 10_000)
        } else if run.workload.ends_with("-nojournal") {
            (10.0, 15_000, 5_000)
        } else {
            (50.0, 50_000, 0)
        };
        json!({
            "seconds_simulated": seconds, "host_programs": pages,
            "requests": { "reads": reads, "writes": pages, "flushes": 5_000 },
        })
    });

    assert_near(
        &found,
        &[
            ("off_gain_100", 2.5),
            ("full_page_gain_1000", 2.5),
            ("full_over_none_10000", 2.0),
            ("full_gap_ms_100", 2.0),
            ("off_gap_pages_1000", 1.0),
            ("off_gap_reads_1000", 1.0),
            ("off_ms_100 copyless", 4.0),
            ("full_gain", 2.5),
            ("off_gap_change", 1.0),
        ],
    );
}
