//! A log on flash with reserved room, in which no page can be programmed any more: the device ends
//! read-only and keeps all acknowledged data.

use crate::kit::{self, Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, Refusal, Remap, SchemeKind, SchemeValues};
use remap_ssd_media::{BlockId, Page};

const LPNS: u32 = 200;

/// Little NVRAM and small pages of entries: a few dozen remaps fill both.
fn config(scheme: SchemeKind) -> Config {
    Config {
        lpns: LPNS,
        log_bytes: 3 << 10,
        segment_bytes: 64,
        scheme_values: SchemeValues::everywhere(&[("cache_pages", 1)]),
        ..small_config(scheme)
    }
}

fn remap(ftl: &mut Ftl, random: &mut Random, model: &mut [u64]) -> Result<(), Refusal> {
    let [target, source] = [(); 2].map(|()| random.below(LPNS.into()) as u32);
    let result = ftl.remap(&Remap {
        target: Lpn(target),
        source: Lpn(source),
        len: 1,
        relocate: false,
        atomic: false,
    });
    ftl.media_mut().ops.clear();
    if result.is_ok() {
        model[target as usize] = model[source as usize];
    }
    result
}

fn holds(ftl: &mut Ftl, model: &[u64], when: &str) {
    ftl.check().expect(when);
    for (lpn, identity) in (0..).zip(model) {
        assert_eq!(
            ftl.read(Lpn(lpn)),
            Ok(Page::Identity(*identity)),
            "{when}: LPN {lpn}"
        );
    }
}

// From some remap on every program fails: superblocks that counted as free have no page left.
#[test]
fn a_log_without_a_page_left_makes_the_device_read_only_and_nothing_is_lost() {
    for scheme in [
        SchemeKind::RemapSsdLh,
        SchemeKind::LocalFlash,
        SchemeKind::FLog,
    ] {
        for remaps in [0, 40, 150, 400] {
            let name = format!("{scheme} after {remaps} remaps");
            let mut ftl = device(small_geometry(), &config(scheme));
            let mut model: Vec<u64> = (0..LPNS).map(|lpn| 1000 + u64::from(lpn)).collect();
            for (lpn, identity) in (0..).zip(&model) {
                kit::put(&mut ftl, lpn, *identity);
            }
            let mut random = Random(5);
            for _ in 0..remaps {
                remap(&mut ftl, &mut random, &mut model).expect("there is room");
            }

            let blocks = (0..small_geometry().blocks()).map(BlockId);
            ftl.media_mut()
                .plant(|faults| faults.program.extend(blocks.map(|block| (block, 0))));
            let refusal = (0..10_000)
                .find_map(|_| remap(&mut ftl, &mut random, &mut model).err())
                .expect("remaps need pages in the end");
            assert_eq!(refusal, Refusal::ReadOnly, "{name}");
            holds(&mut ftl, &model, &name);
            assert_eq!(
                ftl.write(Lpn(0), &content(1)),
                Err(Refusal::ReadOnly),
                "{name}"
            );

            for _ in 0..2 {
                (ftl, _) = recovered(ftl);
                holds(&mut ftl, &model, &name);
            }
        }
    }
}
