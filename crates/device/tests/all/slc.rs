//! A dynamic SLC cache with the engine `nand`, which learns the modes of superblocks from operations, and from the firmware
//! where operations take no time.

use remap_ssd_device::{Device, DeviceConfig, Lpn, Payload};

/// 48 superblocks of two dies, at most half of them in SLC mode.
fn device() -> Device {
    let config = DeviceConfig::from_toml(
        "preset = \"tlc-2t\"\n[geometry]\nchannels = 1\ndies = 2\nsuperblocks = 48\npages_per_block = 48\n\
         planes = 2\npage_bytes = 4096\ncell_bits = 3\none_shot = true\n[firmware]\nlpns = 2000\n\
         log_bytes = 65536\ndealloc_slots = 16\nslc_dynamic = 0.5",
    );
    Device::format(config.expect("valid")).expect("possible")
}

/// The time of a read while the device is idle.
fn read_ns(device: &mut Device, lpn: u32) -> u64 {
    let begin = device.busy_until();
    let (end, page) = device.read(begin, Lpn(lpn));
    page.expect("readable");
    end - begin
}

#[test]
fn modes_that_change_without_time_are_known() {
    let mut device = device();
    for lpn in 0..300 {
        let payload = Payload::Identity(1 + u64::from(lpn));
        device
            .untimed(|ftl| ftl.write(Lpn(lpn), &payload))
            .expect("there is room");
    }
    assert!(device.ftl().slc_modes().count() > 1);
    let in_slc = read_ns(&mut device, 7);
    device.untimed(|ftl| while ftl.background() {});
    let place = device.ftl().place(Lpn(7)).expect("mapped");
    assert!(!device.ftl().slc_modes().has_page(place));
    let flash = &device.config().flash;
    let slower = flash.read_ns.times()[0] - flash.slc_read_ns;
    assert_eq!(read_ns(&mut device, 7) - in_slc, slower);
}

/// With and without time in turn, all requests end.
#[test]
fn requests_end_whatever_was_done_without_time() {
    let mut device = device();
    for round in 0..30_000u64 {
        let payload = Payload::Identity(1 + round);
        let lpn = Lpn((round * 7919 % 1900) as u32);
        if round / 500 % 2 == 0 {
            let now = device.busy_until();
            let done = device.write(now, lpn, &payload);
            done.result.expect("there is room");
        } else {
            device
                .untimed(|ftl| ftl.write(lpn, &payload))
                .expect("there is room");
        }
        if round % 3000 == 0 {
            device.untimed(|ftl| while ftl.background() {});
        }
    }
    let stats = device.ftl().stats();
    assert!(stats.slc_folded > 1000 && stats.host_programs > stats.slc_programs);
    device.ftl().check().expect("consistent");
}
