//! Indirection units of several pages, which commands write, deallocate, copy and move in part: no scheme loses a page of a unit
//! that another page's write has changed, whatever lands.

use remap_ssd_crash::setup::Setup;
use remap_ssd_crash::{Adjust, CampaignOptions, replay, run};
use remap_ssd_ftl::SchemeKind;

/// Distinct cuts of each scheme on each device; `UNIT_CUTS` sets another number.
const CUTS: u64 = 250;
/// The same in a write buffer: a slot of many words takes long to cut.
const BUFFERED_CUTS: u64 = 80;

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
    assert_eq!(
        setups.iter().map(pages).collect::<Vec<_>>(),
        [4, 8, 2, 2, 4]
    );
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

/// Units in a write buffer on all devices, whatever is scarce there: one that a capacitor saves, where remaps wait or name pages, and one
/// that a cut empties.
#[test]
fn units_in_a_write_buffer_survive_every_cut() {
    let cuts = std::env::var("UNIT_CUTS").ok();
    let cuts = cuts
        .and_then(|cuts| cuts.parse().ok())
        .unwrap_or(BUFFERED_CUTS);
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        for (protected, remaps) in [(true, "wait"), (true, "name"), (false, "wait")] {
            let settings = [
                "geometry.page_bytes=8KiB".into(),
                "geometry.indirection_bytes=8KiB".into(),
                "firmware.write_buffer_bytes=48KiB".into(),
                format!("firmware.power_loss_protection={protected}"),
                format!("firmware.buffered_remaps={remaps}"),
            ];
            let settings = settings.map(|setting: String| setting.parse().expect("a setting"));
            let options = CampaignOptions {
                cuts: Some(cuts),
                adjust: Adjust::of_settings(settings.into()),
                ..CampaignOptions::new(scheme, 5)
            };
            let report = run(&options, &mut |_| ());
            let failures: Vec<String> = report
                .failures
                .iter()
                .map(|failed| format!("{}\n{}", failed.code, failed.text))
                .collect();
            assert!(failures.is_empty(), "{scheme}: {}", failures.join("\n"));
            let marks = report.marks.by_name();
            for name in ["buffer_overwritten", "buffer_written_back", "buffer_hits"] {
                assert!(marks[name] > 0, "{scheme}: no {name}");
            }
        }
    }
}

/// A unit that a write merges waits for the stores that what it was merged from waits for.
#[test]
fn a_merged_unit_lands_after_what_it_was_merged_from() {
    let report = replay(&"local-flash:84:cab79996".parse().expect("a code"));
    let texts = report.failures.iter().map(|failed| &failed.text[..]);
    assert_eq!(texts.collect::<String>(), "");
}
