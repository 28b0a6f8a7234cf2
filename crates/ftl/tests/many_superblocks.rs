//! Devices of many superblocks, of one die each, where a search for the best one passes over most.

mod kit;

use kit::{Random, content, device, small_config};
use remap_ssd_ftl::{Config, Lpn, SchemeKind};
use remap_ssd_media::Geometry;
use remap_ssd_media::geometry::Shape;

/// Remaps and writes at random until NVRAM has been reclaimed many times. After each command what is
/// remembered of superblocks that are taken for unchanged must still hold (`Ftl::check`).
#[test]
fn what_is_passed_over_has_not_become_better() {
    for scheme in [SchemeKind::RemapSsd, SchemeKind::RemapSsdX] {
        let shape = Shape {
            channels: 2,
            dies: 1,
            superblocks: 320,
            pages_per_block: 16,
        };
        let geometry = Geometry::grouped(shape, 4).expect("valid");
        let config = Config {
            lpns: 3_800,
            log_bytes: 24 << 10,
            ..small_config(scheme)
        };
        let mut ftl = device(geometry, &config);

        let mut random = Random(11);
        for step in 0..30_000 {
            let lpn = Lpn(random.below(3_800) as u32);
            ftl.write(lpn, &content(1 + random.below(1_900)))
                .expect("there is room");
            ftl.media_mut().ops.clear();
            if step >= 20_000 {
                ftl.check()
                    .unwrap_or_else(|wrong| panic!("{scheme:?}, step {step}: {wrong}"));
            }
        }
        assert!(
            ftl.stats().metadata_gc_runs > 200,
            "{scheme:?}: {} groups reclaimed",
            ftl.stats().metadata_gc_runs
        );
    }
}
