//! Devices with many superblocks, most of which the search for the best one skips.

use crate::kit::{Random, content, device, small_config};
use remap_ssd_ftl::{Config, Lpn, SchemeKind};
use remap_ssd_media::Geometry;
use remap_ssd_media::geometry::Shape;

/// Pages that are written at random.
const LPNS: u32 = 3_000;

/// A device of about 4,200 pages. The last of its regions has few superblocks, so a single one of
/// them determines the region's maximum.
fn geometry(dies: u32, superblocks: u32, groups: u32) -> Geometry {
    let shape = Shape {
        channels: 2,
        dies,
        superblocks,
        pages_per_block: 16,
    };
    Geometry::grouped(shape, groups).expect("valid")
}

/// Writes at random until NVRAM has been reclaimed many times. After each command the cached maxima
/// of superblocks taken for unchanged must still hold (`Ftl::check`).
#[test]
fn what_is_passed_over_has_not_become_better() {
    for scheme in [SchemeKind::RemapSsd, SchemeKind::RemapSsdX] {
        // Pages are moved one by one if a superblock has one die, and in rows if it has more.
        for geometry in [geometry(1, 260, 4), geometry(4, 66, 1)] {
            let config = Config {
                lpns: LPNS,
                log_bytes: 24 << 10,
                ..small_config(scheme)
            };
            let mut ftl = device(geometry, &config);

            let mut random = Random(11);
            for step in 0..26_000 {
                let lpn = Lpn(random.below(LPNS.into()) as u32);
                ftl.write(lpn, &content(1 + random.below(u64::from(LPNS) / 2)))
                    .expect("there is room");
                ftl.media_mut().ops.clear();
                if step >= 20_000 {
                    ftl.check()
                        .unwrap_or_else(|wrong| panic!("{scheme:?}, step {step}: {wrong}"));
                }
            }

            let reclaimed = ftl.stats().metadata_gc_runs;
            assert!(reclaimed > 100, "{scheme:?}: {reclaimed} groups reclaimed");
        }
    }
}
