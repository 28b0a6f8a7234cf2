//! Writes of several pages that a power cut leaves whole or absent: what they cost in time, and in parts of indirection units.

use remap_ssd_device::{
    Completion, Device, DeviceConfig, HostLpn, Lpn, Page, PageCommand, PageKind, Payload,
    SchemeKind,
};
use remap_ssd_media::{Media, Outcome};

/// Requests in flight.
const DEPTH: usize = 2;

/// Mean time of writes of `len` pages at random places of a new device, where nothing is collected, in nanoseconds of its clock.
fn mean_ns(set: &str, untorn_bytes: u64, len: u32) -> f64 {
    let text = format!("preset = \"fast21-32g\"\nscale = \"1/256\"\n{set}");
    let mut config = DeviceConfig::from_toml(&text).unwrap();
    config.firmware.untorn_bytes = untorn_bytes;
    let mut device = Device::format(config).unwrap();
    let pages = device.config().host_lpns();
    let mut random = 7u64;
    let mut below = |n: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % n
    };
    let mut request = |device: &mut Device, now: u64, first: u64| -> Completion {
        let pages: Vec<_> = HostLpn::range(HostLpn::new(first), len)
            .map(|lpn| PageCommand {
                lpn,
                content: below(1 << 40) + 1,
                kind: PageKind::Write,
            })
            .collect();
        device.submit_request(now, &pages)
    };
    let mut random_place = 11u64;
    let mut place = || {
        random_place = random_place
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random_place >> 33) % u64::from(pages - len)
    };

    let start = device.busy_until();
    let (mut ends, mut sum, count) = (vec![start; DEPTH], 0, 500);
    for nth in 0..count {
        let now = ends.iter().copied().min().unwrap();
        let at = ends.iter().position(|end| *end == now).unwrap();
        let done = request(&mut device, now, place());
        done.result
            .unwrap_or_else(|refusal| panic!("{nth}: {refusal}"));
        sum += done.done_at - now;
        ends[at] = done.done_at;
    }
    sum as f64 / f64::from(count)
}

#[test]
fn a_write_takes_a_thousandth_longer_and_where_the_buffer_is_full_three_percent() {
    let buffer = "[firmware]\nwrite_buffer_bytes = 1048576\n";
    for (set, len, most) in [
        ("", 2, 1.001),
        ("", 4, 1.001),
        ("", 16, 1.001),
        ("[firmware]\ndedup = false\n", 4, 1.001),
        ("[firmware]\nscheme = \"none\"\n", 4, 1.001),
        // It makes room for all of its pages before the first.
        (buffer, 4, 1.04),
    ] {
        let (before, after) = (mean_ns(set, 0, len), mean_ns(set, 1 << 20, len));
        println!("{set:?}, {len} pages: {before:.0} ns, and {after:.0} ns");
        assert!(
            after < before * most,
            "{set}, {len} pages: {before} {after}"
        );
    }
}

/// Contents of pages after a cut within the last write.
fn after_cut(device: &Device, without: usize) -> Device {
    let mut ops = 0..;
    let image = device
        .ftl()
        .media()
        .cut(|| match ops.next() == Some(without) {
            true => Outcome::Absent,
            false => Outcome::Whole,
        });
    let config = device.config().clone();
    Device::recover(Media::from_image(&image), config)
        .unwrap()
        .0
}

#[test]
fn a_write_that_begins_and_ends_within_units_is_whole_or_absent() {
    for unit in [8 << 10, 16 << 10] {
        let mut config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false).unwrap();
        let geometry = config.geometry;
        let line = remap_ssd_media::WordLine {
            page_bytes: unit,
            indirection_bytes: unit,
            ..geometry.word_line()
        };
        config.geometry = geometry.with_word_line(line).unwrap();
        config.firmware.lpns = config.firmware.lpns / (unit / 4096) / 2;
        let mut device = Device::in_memory(config).unwrap();
        let most = device.untorn_bytes_max(4096);
        assert!(most > 64 << 10, "{most}");
        for lpn in Lpn::range(Lpn(0), 64) {
            device
                .write(0, lpn, &Payload::Bytes(&[1; 4096]))
                .result
                .unwrap();
        }
        device.untimed(|ftl| {
            ftl.media_mut().attach_rail();
        });
        let pages = 5..24u32;
        device.begin_write(HostLpn::new(5), 19).unwrap();
        for lpn in pages.clone() {
            device
                .write_more(0, Lpn(lpn), &Payload::Bytes(&[2; 4096]))
                .result
                .unwrap();
        }
        device.end_write(0).result.unwrap();
        for without in 0..device.ftl().media().pending() {
            let mut device = after_cut(&device, without);
            let mut read = |lpn: u32| match device.read(0, Lpn(lpn)).1.unwrap() {
                Page::Bytes(bytes) => bytes[0],
                other => panic!("{other:?}"),
            };
            let first = read(5);
            assert!(
                pages.clone().all(|lpn| read(lpn) == first),
                "{unit}, {without}"
            );
            assert_eq!((read(4), read(24)), (1, 1));
        }
    }
}
