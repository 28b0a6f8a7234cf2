//! Campaigns on dies whose pages share word lines: durable schemes lose nothing with units of any size.

use remap_ssd_crash::{Adjust, CampaignOptions, replay_adjusted, run};
use remap_ssd_ftl::SchemeKind;

const CUTS: u64 = 500;
/// Where each command fills 48 pages.
const FEWER_CUTS: u64 = 100;

fn adjusted(geometry: &str, protected: bool) -> Adjust {
    let protection = format!("firmware.power_loss_protection={protected}");
    let settings = geometry.split(',').chain([&protection[..]]);
    let settings = settings.map(|setting| setting.parse().expect("a setting"));
    Adjust::of_settings(settings.collect())
}

/// The geometry, and whether the controller's buffer survives a cut.
fn keeps_its_promise(geometry: &str, protected: bool, cuts: u64) {
    for scheme in SchemeKind::ALL {
        let needs_protection = scheme.keeps_entries_on_flash();
        if !scheme.is_durable() || (needs_protection && !protected) {
            continue;
        }
        let options = CampaignOptions {
            cuts: Some(cuts),
            adjust: adjusted(geometry, protected),
            ..CampaignOptions::new(scheme, 1)
        };
        let report = run(&options, &mut |_| ());
        let failures = report.failures.iter();
        let failures: Vec<_> = failures
            .map(|failed| format!("{}\n{}", failed.code, failed.text))
            .collect();
        assert!(failures.is_empty(), "{scheme}: {}", failures.join("\n"));
        assert!(report.cuts >= cuts);
    }
}

const PLANES: &str = "geometry.planes=4";
const TLC: &str = "geometry.planes=2,geometry.page_bytes=8192,geometry.cell_bits=3";
const LARGE: &str = "geometry.planes=4,geometry.page_bytes=16384,geometry.cell_bits=3";
const MLC: &str = "geometry.planes=2,geometry.cell_bits=2,geometry.one_shot=false";

#[test]
fn planes() {
    keeps_its_promise(PLANES, true, CUTS);
}

#[test]
fn one_shot_word_lines_of_tlc() {
    keeps_its_promise(TLC, true, CUTS);
}

#[test]
fn one_shot_word_lines_of_48_pages() {
    keeps_its_promise(LARGE, true, CUTS);
}

#[test]
fn pages_in_turn_of_mlc() {
    keeps_its_promise(MLC, true, CUTS);
}

#[test]
fn planes_without_protection() {
    keeps_its_promise(PLANES, false, CUTS);
}

#[test]
fn one_shot_word_lines_of_tlc_without_protection() {
    keeps_its_promise(TLC, false, CUTS);
}

#[test]
fn one_shot_word_lines_of_48_pages_without_protection() {
    keeps_its_promise(LARGE, false, FEWER_CUTS);
}

#[test]
fn pages_in_turn_of_mlc_without_protection() {
    keeps_its_promise(MLC, false, CUTS);
}

/// Superblocks of two of four dies, and such that collection moves in several steps.
#[test]
fn narrow_and_large_superblocks_without_protection() {
    let narrow = format!("{MLC},geometry.dies=4,geometry.superblock_dies=2");
    keeps_its_promise(&narrow, false, CUTS);
    let large = format!("{MLC},geometry.pages_per_block=200");
    keeps_its_promise(&large, false, FEWER_CUTS);
}

/// Where each write takes a word line, the first fill wears the flash out. The write that is refused then is not
/// a lost one.
#[test]
fn flash_that_the_first_fill_wears_out_has_lost_nothing() {
    let code = "remap-ssd:48:931e49d7".parse().expect("a code");
    let report = replay_adjusted(&code, &adjusted(TLC, false)).expect("a device");
    let texts = report.failures.iter().map(|failed| &failed.text[..]);
    assert_eq!(texts.collect::<String>(), "");
    assert_eq!(report.marks.by_name()["worn_out"], 1);
}

/// Runs one script of a protected or unprotected device.
#[track_caller]
fn loses_nothing(code: &str, geometry: &str, protected: bool) {
    let code = code.parse().expect("a code");
    let report = replay_adjusted(&code, &adjusted(geometry, protected)).expect("a device");
    let texts = report.failures.iter().map(|failed| &failed.text[..]);
    assert_eq!(texts.collect::<String>(), "");
}

/// Between the bitmaps of deallocations and the reset of their log, reclaiming moved pages into the bitmaps' word line. They waited for
/// stores that waited for the reset, which waits for the word line.
#[test]
fn bitmaps_do_not_wait_for_pages_that_wait_for_them() {
    loses_nothing("nlog:0:89025cc1", LARGE, false);
}

const BUFFER: &str = "geometry.planes=2,geometry.cell_bits=3,firmware.write_buffer_bytes=24KiB";
const SLC: &str = "geometry.planes=2,geometry.cell_bits=3,firmware.slc_dynamic=0.4";

/// The second head itself was torn, while the first one, in the block that had failed, could be read.
#[test]
fn a_torn_second_head_is_no_saved_page() {
    loses_nothing("shadow-oob:26:6548c724", SLC, true);
}

/// A superblock was reserved whose head had lost its pads in a cut, and the capacitor could program nothing after it.
#[test]
fn a_head_without_its_pads_is_no_reserved_flash() {
    loses_nothing("shadow-oob:43:d7377e1c", BUFFER, true);
}

/// There is no page after the word line of the head.
#[test]
fn blocks_of_one_word_line_that_fail_with_their_head() {
    let geometry =
        "geometry.planes=2,geometry.cell_bits=3,geometry.dies=4,geometry.pages_per_block=6";
    for code in ["shadow-oob:80:7914ffbc", "shadow-oob:57:3346144f"] {
        loses_nothing(code, geometry, true);
    }
}

/// Blocks are worn out, and more pages are in doubt than there is space to mark. The device is read-only.
#[test]
fn without_space_for_its_doubts_a_device_is_read_only() {
    let geometry = "geometry.planes=2,geometry.cell_bits=2,firmware.slc_dynamic=1.0";
    loses_nothing("none:59:3e2fc11b", geometry, true);
}
