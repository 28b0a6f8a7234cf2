//! A write buffer that a cut empties: the time of a flush, and devices in use, which refuse it.

use remap_ssd_device::{Device, DeviceConfig, Lpn, OpenError, Payload, SchemeKind};

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

#[test]
fn a_folder_refuses_a_buffer_that_a_cut_empties() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    config.firmware.write_buffer_bytes = 64 << 10;
    config.firmware.power_loss_protection = false;
    let made = Device::create_in_folder(&dir.path().join("new"), config.clone(), None);
    assert!(matches!(made, Err(OpenError::Unprotected)));
    assert!(!dir.path().join("new").exists());

    config.firmware.power_loss_protection = true;
    let made = Device::create_in_folder(&dir.path().join("new"), config, None);
    assert!(made.is_ok());
}
