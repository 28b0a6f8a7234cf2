//! Indirection units of several pages, which commands write, deallocate, copy and move in part: no scheme loses a page of a unit
//! that another page's write has changed, whatever lands.

use remap_ssd_crash::setup::Setup;
use remap_ssd_crash::{CampaignOptions, run};
use remap_ssd_ftl::SchemeKind;

/// Distinct cuts of each scheme on each device; `UNIT_CUTS` sets another number.
const CUTS: u64 = 250;

/// The setups with larger units.
fn setups() -> Vec<u32> {
    let pages = |index: &u32| {
        let setup = Setup::new(SchemeKind::RemapSsd, None, *index, None);
        setup.geometry.host_pages()
    };
    let setups: Vec<u32> = (0..Setup::COMBINED.end)
        .filter(|index| !Setup::FAILING.contains(index))
        .filter(|index| pages(index) > 1)
        .collect();
    assert_eq!(setups.iter().map(pages).collect::<Vec<_>>(), [4, 8, 2]);
    setups
}

#[test]
fn units_survive_every_cut_under_every_scheme() {
    let cuts = std::env::var("UNIT_CUTS").ok();
    let cuts = cuts.and_then(|cuts| cuts.parse().ok()).unwrap_or(CUTS);
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        for setup in setups() {
            let options = CampaignOptions {
                setup: Some(setup),
                cuts: Some(cuts),
                ..CampaignOptions::new(scheme, 3)
            };
            let report = run(&options, &mut |_| ());
            let failures: Vec<String> = report
                .failures
                .iter()
                .map(|failed| format!("{}\n{}", failed.code, failed.text))
                .collect();
            assert!(
                failures.is_empty(),
                "{scheme}, setup {setup}: {}",
                failures.join("\n")
            );
            let marks = report.marks.by_name();
            for name in ["gc_runs", "partial_cuts", "relocations", "trims"] {
                assert!(marks[name] > 0, "{scheme}, setup {setup}: no {name}");
            }
        }
    }
}
