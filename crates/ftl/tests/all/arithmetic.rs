//! The arithmetic of FAST'21 §3.3, §4.3 and §4.6, with the sizes used by this code.

use remap_ssd_ftl::scheme::RmmEntry;
use remap_ssd_ftl::{Config, SchemeKind};
use remap_ssd_media::geometry::PAGE_BYTES;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn pages(bytes: u64) -> u64 {
    bytes / PAGE_BYTES as u64
}

//= paper: remap-ssd#4.6 writes of every 1 GB duplicate data produce 4 MB of remapping metadata
#[test]
fn a_gigabyte_of_duplicates_is_four_megabytes_of_entries() {
    assert_eq!(pages(GIB) * size_of::<RmmEntry>() as u64, 4 * MIB);
}

//= paper: remap-ssd#4.6 segment metadata is 1.6 % of NVRAM at 1 KB segments
#[test]
fn segment_heads_take_one_slot_in_sixty_four() {
    let config = Config {
        lpns: 1,
        scheme: SchemeKind::RemapSsd,
        ..Config::default()
    };
    let share = size_of::<RmmEntry>() as f64 / f64::from(config.segment_bytes);
    assert_eq!(format!("{:.1}", share * 100.0), "1.6");
}

//= paper: remap-ssd#4.6 4-bit RC-table of 640 MB for 5 TB, LR-bitmap of 128 MB for 4 TB
#[test]
fn tables_of_a_four_terabyte_device() {
    assert_eq!(pages(5 * TIB) / 2, 640 * MIB);
    assert_eq!(pages(4 * TIB) / 8, 128 * MIB);
}

//= paper: remap-ssd#3.3 a 12 B log is 600 MB / 2.4 GB when 5 % / 20 % of 4 TB is remapped
#[test]
fn a_global_log_grows_with_what_is_remapped() {
    let log = |percent: u64| pages(4 * TIB) * percent / 100 * 12;
    assert_eq!(format!("{:.1}", log(5) as f64 / GIB as f64), "0.6");
    assert_eq!(format!("{:.1}", log(20) as f64 / GIB as f64), "2.4");
}

//= paper: remap-ssd#4.6 1 GB of NVRAM takes the entries of 256 GB, at 2 % of the cost of the flash
#[test]
fn nvram_at_five_times_the_price_costs_two_percent() {
    let entry = size_of::<RmmEntry>() as f64;
    assert_eq!(
        GIB / size_of::<RmmEntry>() as u64 * PAGE_BYTES as u64,
        256 * GIB
    );
    assert_eq!(
        format!("{:.0}", 5.0 * entry / PAGE_BYTES as f64 * 100.0),
        "2"
    );
}
