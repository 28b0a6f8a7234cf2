//! Devices of real bytes in memory: garbage collection moves contents, not only mappings.

use crate::kit::page;
use remap_ssd_device::{Device, DeviceConfig, Lpn};
use remap_ssd_ftl::{EntrySize, Remap, SchemeKind};
use remap_ssd_media::{PageView, Payload};

/// Overwrites and remaps at random until everything has been collected several times; every page
/// must keep its contents.
fn churn(mut device: Device, what: &str) {
    let lpns = device.config().firmware.lpns;
    let mut model = vec![0u64; lpns as usize];
    let mut state = 7u64;
    let mut below = |end: u32| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(end)) as u32
    };

    let mut now = 0;
    for step in 1..=u64::from(lpns) * 6 {
        let lpn = below(lpns);
        let done = if step % 5 == 0 {
            let source = below(lpns);
            model[lpn as usize] = model[source as usize];
            device
                .remap(
                    now,
                    &Remap {
                        target: Lpn(lpn),
                        source: Lpn(source),
                        len: 1,
                        relocate: false,
                        atomic: false,
                    },
                )
                .into()
        } else {
            model[lpn as usize] = step;
            device.write(now, Lpn(lpn), &Payload::Bytes(&page(step)))
        };
        assert_eq!(done.result, Ok(()), "{what}");
        now = now.max(done.done_at);
    }

    assert!(
        device.ftl().stats().gc_programs > 100,
        "{what}: nothing was moved"
    );

    for (lpn, content) in model.iter().enumerate() {
        let (_, seen) = device.view(now, Lpn(lpn as u32), |view| match view {
            PageView::Zeroes => 0,
            PageView::Bytes(bytes)
                if *bytes == page(u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))) =>
            {
                u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))
            }
            other => panic!("{what}: page {lpn} is {other:?}"),
        });
        assert_eq!(seen, Ok(*content), "{what}: page {lpn}");
    }
    device.ftl().check().expect(what);
}

#[test]
fn collected_pages_keep_their_contents() {
    for entry in [EntrySize::Bytes16, EntrySize::Bytes24] {
        for timed in [false, true] {
            let mut config =
                DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
            config.firmware.entry = entry;
            for (mut device, how) in [
                (
                    Device::in_memory(config.clone()).expect("possible"),
                    "mapped",
                ),
                (Device::format(config.clone()).expect("possible"), "shared"),
            ] {
                device.keep_time(timed);
                churn(device, &format!("{how}, {entry:?}, time {timed}"));
            }
        }
    }
}

#[test]
fn nothing_is_recorded_where_nobody_keeps_time() {
    let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, true).expect("possible");
    let mut device = Device::in_memory(config).expect("possible");
    device.keep_time(false);
    (0..4000).for_each(|lpn| {
        assert_eq!(
            device
                .write(5, Lpn(lpn), &Payload::Bytes(&page(lpn.into())))
                .result,
            Ok(())
        )
    });

    let remap = Remap {
        target: Lpn(8000),
        source: Lpn(0),
        len: 4000,
        relocate: false,
        atomic: false,
    };

    device.untimed(|ftl| {
        assert_eq!(ftl.remap(&remap), Ok(()));
        assert!(
            ftl.media().ops.is_empty(),
            "a long command holds no record of itself"
        );
    });
}
