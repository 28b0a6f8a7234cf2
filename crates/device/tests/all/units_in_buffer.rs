//! Indirection units in the write buffer: numbers of operations, what a cut leaves of each page of 4 KiB, and what is refused.

use super::kit::{page, tiny};
use remap_ssd_device::{Device, DeviceConfig, Lpn, PageView, Payload, Remap, SchemeKind};
use remap_ssd_media::WordLine;

/// A tiny device with units of `unit` pages, 120 of them, and a buffer of `slots` units.
pub(super) fn config(unit: u32, scheme: SchemeKind, slots: u32, protected: bool) -> DeviceConfig {
    let mut config = tiny(scheme, true, 120, 24);
    let word_line = WordLine {
        page_bytes: unit * 4096,
        indirection_bytes: unit * 4096,
        ..WordLine::SINGLE
    };
    config.geometry = config.geometry.with_word_line(word_line).expect("valid");
    config.firmware.write_buffer_bytes = u64::from(slots * unit * 4096);
    config.firmware.power_loss_protection = protected;
    config
}

fn device(unit: u32, protected: bool) -> Device {
    Device::in_memory(config(unit, SchemeKind::RemapSsd, 8, protected)).expect("a valid device")
}

/// Writes a page as a command of its own.
fn write(device: &mut Device, lpn: u32, content: u64) {
    let written = device.write(0, Lpn(lpn), &Payload::Bytes(&page(content)));
    written.result.expect("there is room");
}

fn holds(device: &mut Device, lpn: u32, content: u64) -> bool {
    let shown = device.view(0, Lpn(lpn), |view| match view {
        PageView::Bytes(bytes) if content > 0 => *bytes == page(content),
        PageView::Bytes(bytes) => bytes.iter().all(|byte| *byte == 0),
        _ => content == 0,
    });
    shown.1.expect("it can be read")
}

fn remap(target: u32, source: u32, len: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: false,
        atomic: false,
    }
}

/// The flash reads and programs so far.
fn operations(device: &Device) -> (u64, u64) {
    let counts = device.ftl().media().counts;
    (counts.reads, counts.programs)
}

#[test]
fn sixteen_writes_of_a_unit_are_one_program() {
    for protected in [true, false] {
        let mut device = device(16, protected);
        let before = operations(&device);
        for lpn in 0..16 {
            write(&mut device, lpn, u64::from(lpn) + 1);
        }
        assert_eq!(operations(&device), before, "nothing has left");
        let counts = device.indirection_counts();
        assert_eq!(
            (counts.read_modify_writes, counts.merged_in_buffer),
            (1, 15)
        );
        assert_eq!(device.stats().buffer_overwritten, 15 * 16);

        // A remap of the unit writes it back, and names the page.
        let remapped = device.remap(0, &remap(64, 0, 16));
        remapped.result.expect("there is room");
        let stats = device.ftl().stats();
        assert_eq!((stats.host_programs, stats.remaps), (1, 1));
        assert_eq!(device.stats().buffer_written_back, 16);
        assert_eq!(device.ftl().buffered_pages(), 0);
        for lpn in 0..16 {
            let content = u64::from(lpn) + 1;
            assert!(holds(&mut device, lpn, content) && holds(&mut device, 64 + lpn, content));
        }
    }
}

#[test]
fn a_unit_is_read_once_and_stays_whole_in_the_buffer() {
    for protected in [true, false] {
        let mut device = device(4, protected);
        for lpn in 0..4 {
            write(&mut device, lpn, 10 + u64::from(lpn));
        }
        device.remap(0, &remap(40, 0, 4)).result.expect("room");
        assert_eq!(device.ftl().buffered_pages(), 0);

        let before = operations(&device);
        for (lpn, content) in [(1, 21), (2, 22), (1, 31)] {
            write(&mut device, lpn, content);
        }
        let after = operations(&device);
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 0));
        let hits = device.stats().buffer_hits;
        for (lpn, content) in [(0, 10), (1, 31), (2, 22), (3, 13)] {
            assert!(holds(&mut device, lpn, content));
        }
        assert_eq!(operations(&device), after, "all is in the buffer");
        assert_eq!(device.stats().buffer_hits, hits + 4);

        // The whole unit is deallocated: it never reaches flash.
        device.deallocate(0, Lpn(0), 4).result.expect("room");
        assert_eq!(device.stats().buffer_deallocated, 4);
        device.flush(0).result.expect("room");
        assert_eq!(device.ftl().stats().host_programs, 1);
        assert!(holds(&mut device, 41, 11) && holds(&mut device, 1, 0));
        assert_eq!(device.ftl().check(), Ok(()));
    }
}

/// Parts of units that a cut finds in a buffer that a capacitor saves are back, and go on being merged.
#[test]
fn a_saved_buffer_brings_back_units_that_were_merged_in_it() {
    for unit in [2, 4, 8, 16] {
        let mut device = device(unit, true);
        for lpn in 0..3 * unit {
            write(&mut device, lpn, u64::from(lpn) + 1);
        }
        // Copies, and zeroes, are merged there as well.
        let copied = device.remap(0, &remap(3 * unit + 1, unit, 1));
        copied.result.expect("there is room");
        device.zero(0, Lpn(unit - 1), 2).result.expect("room");
        assert_eq!(device.ftl().stats().host_programs, 0);

        let mut device = device.power_cycle().expect("it recovers").0;
        assert_eq!(device.ftl().buffered_pages(), 4);
        write(&mut device, 2 * unit, 99);
        for lpn in 0..4 * unit {
            let content = match lpn {
                _ if lpn == unit - 1 || lpn == unit => 0,
                _ if lpn == 2 * unit => 99,
                _ if lpn < 3 * unit => u64::from(lpn) + 1,
                _ if lpn == 3 * unit + 1 => u64::from(unit) + 1,
                _ => 0,
            };
            assert!(holds(&mut device, lpn, content), "{unit}: {lpn}");
        }
        assert_eq!(device.ftl().check(), Ok(()));
    }
}

/// A cut leaves of each page the version that was last made durable, whatever its unit has been through.
#[test]
fn a_volatile_buffer_loses_pages_of_a_unit_that_were_not_flushed() {
    let mut device = device(4, false);
    for lpn in 0..12 {
        write(&mut device, lpn, 1);
    }
    device.flush(0).result.expect("room");
    write(&mut device, 0, 2);
    write(&mut device, 5, 2);
    write(&mut device, 9, 2);
    // A part of the second unit, as a write with FUA: the whole unit becomes durable.
    device.make_durable(0, Lpn(6), 1).result.expect("room");
    let mut device = device.power_cycle().expect("it recovers").0;
    for (lpn, content) in [(0, 1), (1, 1), (5, 2), (6, 1), (9, 1)] {
        assert!(holds(&mut device, lpn, content), "{lpn}");
    }

    // In pages, a unit at least.
    for lpn in [0, 4, 8] {
        write(&mut device, lpn, 3);
    }
    let mut listed = device.volatile_pages();
    assert_eq!(device.write_back_listed(0, &mut listed, 1).1, 4);
    assert_eq!(device.write_back_listed(0, &mut listed, 64).1, 8);
    device.flush_written(0).result.expect("room");
    let mut device = device.power_cycle().expect("it recovers").0;
    assert!((0..12).all(|lpn| holds(
        &mut device,
        lpn,
        if lpn % 4 == 0 {
            3
        } else {
            [1, 2][usize::from(lpn == 5)]
        }
    )));
}

/// Zeroes, copies and remaps without effect are durable when they are acknowledged, with what their units had in a volatile buffer.
#[test]
fn what_is_no_write_goes_past_a_volatile_buffer() {
    let mut device = device(4, false);
    for lpn in 0..16 {
        write(&mut device, lpn, u64::from(lpn) + 1);
    }
    // Parts of three units, and one that nothing concerns.
    device.zero(0, Lpn(1), 2).result.expect("room");
    device.remap(0, &remap(5, 14, 1)).result.expect("room");
    device.remap(0, &remap(9, 9, 1)).result.expect("room");
    assert_eq!(device.ftl().buffered_pages(), 1);
    let mut device = device.power_cycle().expect("it recovers").0;
    let expected = [1, 0, 0, 4, 5, 15, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0];
    for (lpn, content) in (0..).zip(expected) {
        assert!(holds(&mut device, lpn, content), "{lpn}");
    }
    assert_eq!(device.ftl().check(), Ok(()));
}

#[test]
fn a_buffer_of_less_than_two_units_is_refused() {
    for (slots, wanted) in [
        (0, None),
        (1, Some("two indirection units or more")),
        (2, None),
    ] {
        let mut config = config(4, SchemeKind::None, slots, true);
        config.firmware.write_buffer_bytes += u64::from(slots);
        let refused = Device::in_memory(config)
            .err()
            .map(|error| error.to_string());
        match wanted {
            None => assert_eq!(refused, None),
            Some(wanted) => assert!(refused.is_some_and(|text| text.contains(wanted))),
        }
    }
}
