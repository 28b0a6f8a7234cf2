//! Campaigns on dies whose pages share word lines: every durable scheme keeps its promise, whatever the number of
//! pages that one operation programs.

use remap_ssd_crash::setup::GeometryAdjust;
use remap_ssd_crash::{Adjust, CampaignOptions, run};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::WordLine;

const CUTS: u64 = 1_500;

fn word_line(planes: u32, page_bytes: u32, bits: u32, one_shot: bool) -> WordLine {
    WordLine {
        planes,
        page_bytes,
        bits,
        one_shot,
    }
}

fn keeps_its_promise(word_line: WordLine) {
    for scheme in SchemeKind::ALL {
        if !scheme.facts().durable {
            continue;
        }
        let adjust = Adjust {
            geometry: GeometryAdjust {
                word_line,
                ..GeometryAdjust::default()
            },
            ..Adjust::default()
        };
        let options = CampaignOptions {
            cuts: Some(CUTS),
            adjust,
            ..CampaignOptions::new(scheme, 1)
        };
        let report = run(&options, &mut |_| ());
        let failures = report.failures.iter();
        let failures: Vec<_> = failures
            .map(|failed| format!("{}\n{}", failed.code, failed.text))
            .collect();
        assert!(failures.is_empty(), "{scheme}: {}", failures.join("\n"));
        assert!(report.cuts >= CUTS);
    }
}

#[test]
fn planes() {
    keeps_its_promise(word_line(4, 4096, 1, true));
}

#[test]
fn one_shot_word_lines_of_tlc() {
    keeps_its_promise(word_line(2, 8192, 3, true));
}

#[test]
fn one_shot_word_lines_of_48_pages() {
    keeps_its_promise(word_line(4, 16_384, 3, true));
}

#[test]
fn pages_in_turn_of_mlc() {
    keeps_its_promise(word_line(2, 4096, 2, false));
}
