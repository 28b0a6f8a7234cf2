//! Power cuts on failing media: damaged data may be lost, but is never older.

use remap_ssd_crash::{CampaignOptions, Marks, run};
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
