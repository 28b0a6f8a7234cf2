//! A write buffer that a cut empties: the time of a flush, and devices in folders.

use remap_ssd_device::{Device, DeviceConfig, Lpn, OpenError, PageView, Payload, SchemeKind};

/// Writes take the time of the link, and the flush that of the programs that it waits for.
#[test]
fn a_flush_waits_for_programs_and_writes_do_not() {
    for engine in ["published", "nand"] {
        for protected in [true, false] {
            let text = format!(
                "preset = \"fast21-32g\"\nscale = \"1/256\"\n[background]\nlookup_stalls_dies = false\n\
                 [timing]\nengine = \"{engine}\"\n[firmware]\nscheme = \"none\"\n\
                 write_buffer_bytes = 67108864\npower_loss_protection = {protected}\n"
            );
            let config = DeviceConfig::from_toml(&text).expect("a device");
            let program_ns = config.flash.program_ns.mean();
            let mut device = Device::format(config).expect("a device");

            let mut now = 0;
            for lpn in Lpn::range(Lpn::ZERO, 10) {
                let written = device.write(now, lpn, &Payload::Identity(lpn.0.into()));
                written.result.expect("there is room");
                assert!(written.done_at - now < program_ns / 4, "{engine}");
                now = written.done_at;
            }
            let flushed = device.flush(now);
            flushed.result.expect("there is room");
            let took = flushed.done_at - now;
            let waits = took >= program_ns;
            assert_eq!(waits, !protected, "{engine}: {took} ns");
            assert_eq!(
                device.ftl().buffered_pages(),
                if protected { 10 } else { 0 }
            );
        }
    }
}

/// A device in a folder whose write buffer is volatile.
fn in_folder() -> DeviceConfig {
    let mut config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    config.firmware.write_buffer_bytes = 64 << 10;
    config.firmware.power_loss_protection = false;
    config
}

fn write(device: &mut Device, lpn: u32, value: u8) {
    let written = device.write(0, Lpn(lpn), &Payload::Bytes(&[value; 4096]));
    written.result.expect("there is room");
}

fn holds(device: &mut Device, lpn: u32, value: u8) -> bool {
    let shown = device.view(0, Lpn(lpn), |page| match page {
        PageView::Bytes(bytes) => bytes[..] == [value; 4096],
        _ => value == 0,
    });
    shown.1.expect("it can be read")
}

#[test]
fn the_end_of_a_process_loses_what_was_not_flushed_and_an_orderly_one_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("new");
    let mut device = Device::create_in_folder(&folder, in_folder(), None).expect("possible");
    write(&mut device, 0, 1);
    device.flush(0).result.expect("there is room");
    write(&mut device, 0, 2);
    device.sync().expect("the disk works");
    drop(device);

    let open = || Device::open_in_folder(&folder).expect("it recovers").0;
    let mut device = open();
    assert!(holds(&mut device, 0, 1), "as after a power cut");
    write(&mut device, 0, 3);
    device.close().expect("there is room");

    let mut device = open();
    assert!(holds(&mut device, 0, 3));
    write(&mut device, 0, 4);
    device.rest().expect("there is room");

    let mut device = Device::resume_in_folder(&folder).expect("it recovers").0;
    assert!(holds(&mut device, 0, 4));
    write(&mut device, 0, 5);
    let resting = device.rest_keeping_tables().expect("there is room");
    // Another process opens the folder, and changes nothing.
    assert!(holds(
        &mut Device::look_into_folder(&folder).expect("it recovers").0,
        0,
        5
    ));

    let resting = resting.expect("it does not deduplicate");
    let mut device = resting.resume().expect("not in use").expect("unchanged");
    assert!(holds(&mut device, 0, 5));
    assert_eq!(device.ftl().check(), Ok(()));
    write(&mut device, 0, 6);
    write(&mut device, 1, 6);
    device
        .make_durable(0, Lpn(1), 1)
        .result
        .expect("there is room");
    let mut device = device.power_cycle().expect("it recovers").0;
    assert!(holds(&mut device, 0, 5) && holds(&mut device, 1, 6));
}

/// The end of a process does not leave them as a cut does.
#[test]
fn a_folder_refuses_word_lines_that_a_cut_damages() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "preset = \"fast21-32g\"\nscale = \"1/256\"\ncontent = \"bytes\"\n[background]\nlookup_stalls_dies = false\n\
                [timing]\nengine = \"nand\"\n[geometry]\ncell_bits = 2\n[firmware]\npower_loss_protection = false\n";
    let config = DeviceConfig::from_toml(text).expect("a device");
    let made = Device::create_in_folder(&dir.path().join("new"), config, None);
    assert!(
        matches!(made, Err(OpenError::Unprotected)),
        "{:?}",
        made.err()
    );
    assert!(!dir.path().join("new").exists());
}
