//! Reads that nothing corrects: what the host sees, what collection does, and what refresh prevents.

use remap_ssd_device::{Device, DeviceConfig, Lpn, Page, Payload, Refusal};
use remap_ssd_ftl::SchemeKind;

/// Flash of which a page cannot be read when its data is 1.2 days old, or its block has been read so often as `errors`
/// says.
fn config(scheme: SchemeKind, errors: &str) -> DeviceConfig {
    let text = format!(
        "preset = \"fast21-32g\"\nscale = \"1/256\"\n[background]\nlookup_stalls_dies = false\n\
         [timing]\nengine = \"nand\"\n[firmware]\nscheme = \"{scheme}\"\n\
         [errors]\nrate = 0.004\nretention = 1.0\n{errors}"
    );
    DeviceConfig::from_toml(&text).unwrap()
}

fn write(device: &mut Device, lpn: u32, content: u64) {
    let now = device.busy_until();
    let written = device.write(now, Lpn(lpn), &Payload::Identity(content));
    written.result.unwrap();
}

fn read(device: &mut Device, lpn: u32) -> Result<Page, Refusal> {
    device.read(device.busy_until(), Lpn(lpn)).1
}

#[test]
fn the_host_sees_a_media_error_until_it_writes_again() {
    let mut device = Device::format(config(SchemeKind::RemapSsd, "age_days = 9.0")).unwrap();
    for lpn in 0..100 {
        write(&mut device, lpn, 1000 + u64::from(lpn));
    }
    assert_eq!(read(&mut device, 5), Ok(Page::Identity(1005)), "not yet");
    device.begin_bit_errors();
    for lpn in 0..100 {
        assert_eq!(read(&mut device, lpn), Err(Refusal::MediaError));
    }
    let found = device.nand().unwrap().read_errors().unwrap().clone();
    assert_eq!((found.uncorrectable, found.soft), (100, 0));

    // A duplicate of what cannot be read is programmed. Its block was programmed before as well, so fill that.
    for lpn in 0..2000 {
        write(&mut device, 200 + lpn, 5000 + u64::from(lpn));
    }
    write(&mut device, 100, 1005);
    write(&mut device, 6, 2006);
    assert_eq!(read(&mut device, 100), Ok(Page::Identity(1005)));
    assert_eq!(read(&mut device, 6), Ok(Page::Identity(2006)));
    assert_eq!(read(&mut device, 5), Err(Refusal::MediaError));
    device.ftl().check().unwrap();
}

// Whatever collection moves and recovery finds, a page has its newest content, or an error.
#[test]
fn lost_data_stays_lost_and_is_never_old() {
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd, SchemeKind::NLog] {
        let mut device = Device::format(config(scheme, "age_days = 9.0")).unwrap();
        let lpns = device.config().firmware.lpns;
        let mut content: Vec<u64> = (0..lpns).map(|lpn| u64::from(lpn) % 20_000).collect();
        for lpn in 0..lpns {
            write(&mut device, lpn, content[lpn as usize]);
        }
        device.begin_bit_errors();
        let mut at = 1;
        for step in 0..2 * lpns {
            at = (at * 7919 + step) % lpns;
            // A quarter is never written again.
            if !at.is_multiple_of(4) {
                content[at as usize] = 1_000_000 + u64::from(step % 30_000);
                write(&mut device, at, content[at as usize]);
            }
        }
        assert!(device.ftl().stats().gc_programs > 0);

        for cut in [false, true] {
            if cut {
                device = device.power_cycle().unwrap().0;
            }
            device.ftl().check().unwrap();
            let (mut lost, mut kept) = (0, 0);
            for lpn in 0..lpns {
                match read(&mut device, lpn) {
                    Ok(page) => {
                        assert_eq!(
                            page,
                            Page::Identity(content[lpn as usize]),
                            "{scheme} {lpn}"
                        );
                        kept += 1;
                    }
                    Err(error) => {
                        assert_eq!(error, Refusal::MediaError);
                        lost += 1;
                    }
                }
            }
            assert!(
                lost > lpns / 8 && kept > lpns / 3,
                "{scheme}: {lost} {kept}"
            );
        }
    }
}

#[test]
fn refresh_moves_data_before_it_is_lost() {
    let lost = |refresh_writes: u64| {
        let mut config = config(SchemeKind::RemapSsd, "");
        let pages = u64::from(config.geometry.pages());
        config.errors.writes_per_day = 4 * pages;
        config.firmware.refresh_writes = refresh_writes * pages;
        let mut device = Device::format(config).unwrap();
        device.begin_bit_errors();
        let cold = device.config().firmware.lpns / 2;
        for lpn in 0..cold {
            write(&mut device, lpn, lpn.into());
        }
        for step in 0..8 * pages {
            let lpn = cold + (step * 7919 % u64::from(cold)) as u32;
            write(&mut device, lpn, cold as u64 + step);
        }
        let lost = (0..cold).filter(|lpn| read(&mut device, *lpn).is_err());
        lost.count() as u32 * 100 / cold
    };
    assert!(lost(0) > 50);
    assert_eq!(lost(1), 0);
}

// While data is collected: otherwise what a refresh moves stays in an open superblock, which is not refreshed.
#[test]
fn refresh_moves_what_is_read_often() {
    let errors = |refresh_reads: u32| {
        let mut config = config(SchemeKind::RemapSsd, "disturb = 1e-5");
        config.firmware.refresh_reads = refresh_reads;
        let mut device = Device::format(config).unwrap();
        device.begin_bit_errors();
        let lpns = device.config().firmware.lpns;
        for lpn in 0..lpns {
            write(&mut device, lpn, lpn.into());
        }
        let mut at: u32 = 1;
        let read = |step: u32| {
            for written in 2 * step..2 * (step + 1) {
                at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let lpn = 8 + (at >> 8) % (lpns - 8);
                write(&mut device, lpn, 1 << 40 | u64::from(written));
            }
            read(&mut device, 7).is_err()
        };
        (0..4_000).map(read).filter(|is_error| *is_error).count()
    };
    let without = errors(0);
    assert!(without > 500, "{without}");
    assert_eq!(errors(100), 0);
}
