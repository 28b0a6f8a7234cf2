//! Campaigns on devices whose write buffer a cut empties: what was flushed is never lost.

use remap_ssd_crash::{Adjust, CampaignOptions, run};
use remap_ssd_ftl::SchemeKind;

const CUTS: u64 = 1000;

fn volatile(pages: u64) -> Adjust {
    let settings = [
        format!("firmware.write_buffer_bytes={}", 4096 * pages),
        "firmware.power_loss_protection=false".into(),
    ];
    let settings = settings.map(|setting| setting.parse().expect("a setting"));
    Adjust::of_settings(settings.into())
}

fn keeps_what_was_flushed(media_faults: bool) {
    for scheme in SchemeKind::ALL {
        if !scheme.is_durable() {
            continue;
        }
        for pages in [6, 20] {
            let options = CampaignOptions {
                cuts: Some(CUTS),
                media_faults,
                adjust: volatile(pages),
                ..CampaignOptions::new(scheme, 1)
            };
            let report = run(&options, &mut |_| ());
            let failures = report.failures.iter();
            let failures: Vec<_> = failures
                .map(|failed| format!("{}\n{}", failed.code, failed.text))
                .collect();
            assert!(failures.is_empty(), "{scheme}: {}", failures.join("\n"));
            assert!(report.cuts >= CUTS);
            let marks = report.marks.by_name();
            assert!(marks["buffer_written_back"] > 500, "{scheme}");
            assert!(marks["buffer_overwritten"] > 0, "{scheme}");
        }
    }
}

#[test]
fn a_volatile_write_buffer_keeps_what_was_flushed() {
    keeps_what_was_flushed(false);
}

#[test]
fn so_it_does_on_failing_media() {
    keeps_what_was_flushed(true);
}
