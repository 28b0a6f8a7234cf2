//! Power cuts on failing media: damaged data may be lost, but is never older.

use remap_ssd_crash::{CampaignOptions, Marks, replay, run};
use remap_ssd_ftl::SchemeKind;

/// Distinct cuts for each scheme; longer campaigns run from the command line.
const CUTS: u64 = 2_000;

#[test]
fn what_is_damaged_may_be_lost_and_is_never_older() {
    let (mut marks, mut failures) = (Marks::default(), Vec::new());
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        let options = CampaignOptions {
            media_faults: true,
            cuts: Some(CUTS),
            failures: 2,
            ..CampaignOptions::new(scheme, 1)
        };
        let report = run(&options, &mut |_| ());
        failures.extend(
            report
                .failures
                .iter()
                .map(|failed| format!("{}\n{}", failed.code, failed.text)),
        );
        marks.add(&report.marks);
    }

    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let by_name = marks.by_name();
    for name in [
        "pages_damaged",
        "words_damaged",
        "lost_pages_read",
        "refusals",
        "gc_runs",
        "partial_cuts",
    ] {
        assert!(by_name[name] > 0, "never happened: {name} in {by_name:?}");
    }
}

fn loses_nothing(code: &str) {
    let report = replay(&code.parse().expect("a code"));
    let texts = report.failures.iter().map(|failed| &failed.text[..]);
    assert_eq!(texts.collect::<String>(), "");
}

/// Four cuts in a row, three of them in recoveries that have many pages in doubt. Each left fewer free superblocks to the next.
#[test]
fn recoveries_that_are_cut_leave_flash_for_the_next() {
    loses_nothing("wal-ssd:37:18090ef9");
}

/// A cut left parts of records of doubts in all slots for them, and the next recovery could record none.
#[test]
fn parts_of_records_leave_their_slots_to_others() {
    loses_nothing("remap-ssd:78:e1588e8e");
}
