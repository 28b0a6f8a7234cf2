//! Entries of aborted commands never replace older equal ones.

use crate::kit::{Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::{Media, OpKind, Outcome, Page};

const SCHEMES: [SchemeKind; 8] = [
    SchemeKind::RemapSsd,
    SchemeKind::FLog,
    SchemeKind::NLog,
    SchemeKind::RemapSsdX,
    SchemeKind::RemapSsdLh,
    SchemeKind::LocalFlash,
    SchemeKind::Pebble,
    SchemeKind::ShadowOob,
];

fn copy(target: u32, source: u32, atomic: bool) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len: 1,
        relocate: false,
        atomic,
    }
}

/// LPNs 0 and 1 share a page; an entry of an aborted command repeats this for LPN 1. In between LPN
/// 1 had a page that the cut undid.
fn with_an_aborted_entry(scheme: SchemeKind) -> Ftl {
    let firmware = small_config(scheme);
    let config = Config {
        entry: EntrySize::Bytes24,
        dedup: false,
        log_bytes: firmware.log_bytes + (4 << 10),
        ..firmware
    };

    let mut ftl = device(small_geometry(), &config);
    (0..config.lpns).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    ftl.remap(&copy(1, 0, false)).unwrap();
    ftl.media_mut().ops.clear();
    ftl.media_mut().attach_rail();
    ftl.write(Lpn(1), &content(7777)).unwrap();
    ftl.remap(&copy(1, 0, true)).unwrap();

    // The page has not landed, and so neither has the commit, which waits for everything.
    let image = ftl.media().cut_by(|kind| {
        if kind == OpKind::Program {
            Outcome::Absent
        } else {
            Outcome::Whole
        }
    });
    let (mut ftl, _) = Ftl::recover(Media::from_image(&image), config).expect("recovers");

    assert_eq!(
        ftl.read(Lpn(1)),
        Ok(Page::Identity(1)),
        "{scheme:?}: as before the write"
    );
    assert_eq!(ftl.aborted().len(), 1, "{scheme:?}: the entry is there");
    ftl
}

#[test]
fn reclaiming_keeps_the_entry_that_counts() {
    for scheme in SCHEMES {
        let mut ftl = with_an_aborted_entry(scheme);
        let mut random = Random(1);
        let lpns = u64::from(ftl.config().lpns);

        // Everything is collected several times, on flash and in NVRAM, with occasional power
        // cycles.
        for round in 0..60 {
            for step in 0..150 {
                let (lpn, source) = (
                    2 + random.below(lpns - 2) as u32,
                    2 + random.below(lpns - 2) as u32,
                );
                match step % 3 {
                    0 => ftl
                        .write(Lpn(lpn), &content(100_000 + round * 1000 + step))
                        .unwrap(),
                    _ => ftl.remap(&copy(lpn, source, false)).unwrap(),
                }
                ftl.media_mut().ops.clear();
            }
            if round % 7 == 6 {
                ftl = recovered(ftl).0;
            }
            assert_eq!(
                ftl.read(Lpn(1)),
                Ok(Page::Identity(1)),
                "{scheme:?}, round {round}"
            );
        }

        let stats = ftl.stats();
        assert!(stats.gc_runs > 0, "{scheme:?}: {stats:?}");
        assert_eq!(
            ftl.aborted(),
            [0; 0],
            "{scheme:?}: the entry is gone, and so is its number"
        );
    }
}
