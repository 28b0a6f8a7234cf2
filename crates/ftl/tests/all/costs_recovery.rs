//! The work of recovery, counted: it grows with the number of records and of pages, not with their
//! product.

use crate::kit::{Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, RecoveryReport, SchemeKind};
use remap_ssd_media::Page;

const LPNS: u32 = 200;

fn trimmed(trims: u32, range: impl Fn(&mut Random) -> (u32, u32)) -> (Ftl, Vec<u64>) {
    let config = Config {
        lpns: LPNS,
        dedup: false,
        dealloc_slots: 2048,
        ..small_config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    let (mut random, mut model) = (Random(77), vec![0; LPNS as usize]);

    for step in 0..trims {
        let lpn = random.below(LPNS.into()) as u32;
        let identity = u64::from(step) + 1;
        ftl.write(Lpn(lpn), &content(identity)).unwrap();
        model[lpn as usize] = identity;

        let (first, len) = range(&mut random);
        ftl.deallocate(Lpn(first), len).unwrap();
        model[first as usize..(first + len) as usize].fill(0);
        ftl.media_mut().ops.clear();
    }
    (ftl, model)
}

fn read_back(ftl: Ftl, model: &[u64]) -> RecoveryReport {
    let (mut ftl, report) = recovered(ftl);
    for (lpn, content) in (0..).zip(model) {
        let wanted = if *content == 0 {
            Page::Zeroes
        } else {
            Page::Identity(*content)
        };
        assert_eq!(ftl.read(Lpn(lpn)), Ok(wanted), "LPN {lpn}");
    }
    report
}

// Each page of flash and each LPN once: the log has 1,500 records of 200 LPNs each.
#[test]
fn replaying_deallocations_of_the_whole_device_looks_at_each_lpn_once() {
    let most = u64::from(small_geometry().pages() + LPNS);
    for trims in [1, 1_500] {
        let (ftl, model) = trimmed(trims, |_| (0, LPNS));
        let report = read_back(ftl, &model);
        assert_eq!(report.mapped, 0);
        assert!(
            report.records <= most,
            "{trims} trims: {} records were considered, at most {most} are there",
            report.records
        );
    }
}

#[test]
fn of_deallocations_that_overlap_the_newest_counts() {
    for trims in [3, 40, 400, 1_500] {
        let (ftl, model) = trimmed(trims, |random| {
            let first = random.below(LPNS.into()) as u32;
            let len = 1 + random.below((LPNS - first).min(40).into()) as u32;
            (first, len)
        });
        read_back(ftl, &model);
    }
}
