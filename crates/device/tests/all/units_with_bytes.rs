//! Devices with bytes and indirection units larger than a page: contents against an array of pages, across power cuts, in memory,
//! in folders and in image files.

use super::kit::numbers::Numbers;
use super::kit::{page, tiny};
use super::units_in_buffer;
use remap_ssd_device::{
    Device, DeviceConfig, Disk, DiskRemap, LocalDisk, Lpn, OpenError, Refusal, Remap, SchemeKind,
};
use remap_ssd_media::{ContentMode, PageView, Payload, WordLine};

/// A tiny device with units of `unit` pages, and 120 units.
fn config(unit: u32, scheme: SchemeKind, dedup: bool) -> DeviceConfig {
    let mut config = tiny(scheme, dedup, 120, 24);
    let word_line = WordLine {
        page_bytes: unit * 4096,
        indirection_bytes: unit * 4096,
        ..WordLine::SINGLE
    };
    config.geometry = config.geometry.with_word_line(word_line).expect("valid");
    config
}

/// What pages hold: a number that is repeated, or 0.
struct Contents(Vec<u64>);

impl Contents {
    fn remap(&mut self, target: usize, source: usize, len: usize, relocate: bool) {
        let moved = self.0[source..source + len].to_vec();
        if relocate {
            self.0[source..source + len].fill(0);
        }
        self.0[target..target + len].copy_from_slice(&moved);
    }

    fn check(&self, device: &mut Device, at: usize) {
        for (lpn, content) in (0..).map(Lpn).zip(&self.0) {
            let (_, seen) = device.view(0, lpn, |view| match view {
                PageView::Zeroes => *content == 0,
                PageView::Bytes(bytes) if *content == 0 => bytes.iter().all(|byte| *byte == 0),
                PageView::Bytes(bytes) => *bytes == page(*content),
                _ => false,
            });
            assert_eq!(seen, Ok(true), "step {at}: page {lpn} is not {content}");
        }
        assert_eq!(device.ftl().check(), Ok(()), "step {at}");
    }
}

/// A random command, which the device and the array execute.
fn step(device: &mut Device, held: &mut Contents, random: &mut Numbers, unit: u64) {
    let all = held.0.len() as u64;
    let len = 1 + random.below(3 * unit);
    let first = random.below(all - len + 1);
    let (lpn, range) = (Lpn(first as u32), first as usize..(first + len) as usize);
    match random.below(8) {
        0..4 => {
            for (at, index) in range.enumerate() {
                held.0[index] = 1 + random.below(40);
                let bytes = page(held.0[index]);
                let payload = Payload::Bytes(&bytes);
                let written = device.write_more(0, lpn.offset(at as u32), &payload);
                assert_eq!(written.result, Ok(()));
            }
            assert_eq!(device.end_write(0).result, Ok(()));
        }
        4 => {
            held.0[range].fill(0);
            assert_eq!(device.zero(0, lpn, len as u32).result, Ok(()));
        }
        5 => {
            // A hint: units that are not within the range as a whole stay.
            let (begin, end) = (first.div_ceil(unit), (first + len) / unit);
            if begin < end {
                held.0[(begin * unit) as usize..(end * unit) as usize].fill(0);
            }
            assert_eq!(device.deallocate(0, lpn, len as u32).result, Ok(()));
        }
        kind => {
            let mut source = random.below(all - len + 1);
            if random.below(2) == 0 {
                source = (source / unit * unit + first % unit).min(all - len);
            }
            let done = device.remap(
                0,
                &Remap {
                    target: lpn,
                    source: Lpn(source as u32),
                    len: len as u32,
                    relocate: kind == 7,
                    atomic: false,
                },
            );
            assert_eq!(done.result, Ok(()));
            if source != first {
                held.remap(first as usize, source as usize, len as usize, kind == 7);
            }
        }
    }
}

#[test]
fn bytes_of_units_are_those_of_an_array_of_pages() {
    for (unit, scheme, dedup) in [
        (2, SchemeKind::RemapSsd, true),
        (4, SchemeKind::RemapSsdX, false),
        (4, SchemeKind::NLog, true),
        (16, SchemeKind::None, false),
    ] {
        let device = Device::in_memory(config(unit, scheme, dedup));
        let mut device = device.expect("a valid device");
        let mut held = Contents(vec![0; device.config().logical_pages() as usize]);
        let mut random = Numbers(u64::from(unit) + 11);
        for at in 0..500 {
            step(&mut device, &mut held, &mut random, unit.into());
            if at % 20 == 0 {
                held.check(&mut device, at);
            }
            if at % 50 == 49 {
                let counts = device.indirection_counts();
                assert!(counts.read_modify_writes > 0, "{counts:?}");
                assert!(counts.demoted_unaligned + counts.demoted_partial > 0);
                device = device.power_cycle().expect("it recovers").0;
                held.check(&mut device, at);
            }
        }
    }
}

/// The same in a write buffer: a cut loses nothing of a saved one, nor of a volatile one after a flush.
#[test]
fn so_they_are_in_a_write_buffer() {
    for (unit, scheme, slots, protected) in [
        (2, SchemeKind::RemapSsd, 12, true),
        (4, SchemeKind::RemapSsdX, 3, false),
        (4, SchemeKind::NLog, 6, true),
        (16, SchemeKind::None, 8, false),
    ] {
        let device = Device::in_memory(units_in_buffer::config(unit, scheme, slots, protected));
        let mut device = device.expect("a valid device");
        let mut held = Contents(vec![0; device.config().logical_pages() as usize]);
        let mut random = Numbers(u64::from(unit) + 21);
        let mut merged = 0;
        for at in 0..500 {
            step(&mut device, &mut held, &mut random, unit.into());
            if at % 20 == 0 {
                held.check(&mut device, at);
            }
            if at % 50 == 49 {
                merged += device.indirection_counts().merged_in_buffer;
                assert!(device.stats().buffer_written_back > 0);
                device.flush(0).result.expect("there is room");
                device = device.power_cycle().expect("it recovers").0;
                held.check(&mut device, at);
            }
        }
        assert!(merged > 0, "{unit}");
    }
}

#[test]
fn a_folder_holds_units_and_keeps_them_without_a_shutdown() {
    for (unit, scheme) in [(4, SchemeKind::RemapSsd), (16, SchemeKind::NLog)] {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("disk");
        let config = config(unit, scheme, true);
        let mut device =
            Device::create_in_folder(&folder, config.clone(), None).expect("a new device");
        let mut held = Contents(vec![0; config.logical_pages() as usize]);
        let mut random = Numbers(u64::from(unit) + 5);
        for round in 0..12 {
            for _ in 0..30 {
                step(&mut device, &mut held, &mut random, unit.into());
            }
            match round % 3 {
                // As if the process was killed.
                0 => drop(device),
                1 => drop(device.close().expect("it is saved")),
                _ => device.rest().expect("it is durable"),
            }
            device = Device::open_in_folder(&folder).expect("it opens").0;
            assert_eq!(device.config(), &config);
            held.check(&mut device, round);
        }

        // The number of pages of 4 KiB, of which each is read.
        drop(device);
        let found = Device::check_folder(&folder).expect("it can be read");
        assert!(found.is_clean());
        let mapped = held.0.chunks(unit as usize).filter(|unit| {
            // A unit of zeroes may be mapped.
            unit.iter().any(|content| *content != 0)
        });
        assert!(found.mapped >= mapped.count() as u64 * u64::from(unit));
        assert!(found.mapped.is_multiple_of(unit.into()));
    }
}

#[test]
fn a_damaged_unit_cannot_be_read_or_written_in_part_until_it_is_replaced() {
    let mut device = Device::in_memory(config(4, SchemeKind::RemapSsd, false)).expect("valid");
    for lpn in Lpn::range(Lpn(0), 8) {
        let written = device.write(0, lpn, &Payload::Bytes(&page(7)));
        assert_eq!(written.result, Ok(()));
    }
    device.untimed(|ftl| {
        let ppn = ftl.place(Lpn(1)).expect("mapped");
        ftl.media_mut().plant(|faults| {
            faults.read.insert(ppn);
        });
    });
    let mut write = |first: u32, len: u32| {
        for lpn in Lpn::range(Lpn(first), len) {
            // Also the error of a page that is only gathered is the command's.
            let _ = device.write_more(0, lpn, &Payload::Bytes(&page(8))).result;
        }
        device.end_write(0).result
    };
    assert_eq!(write(5, 1), Err(Refusal::MediaError));
    assert_eq!(write(2, 1), Ok(()));
    assert_eq!(write(4, 4), Ok(()));
    assert_eq!(write(5, 1), Ok(()));
    assert_eq!(device.read(0, Lpn(6)).1.map(drop), Ok(()));
}

#[test]
fn a_disk_on_units_is_read_written_trimmed_and_remapped_by_pages() {
    let device = Device::in_memory(config(4, SchemeKind::RemapSsd, false)).expect("valid");
    let mut disk = LocalDisk::new(device);
    assert_eq!(disk.pages(), 480);
    let bytes: Vec<u8> = (0..6).flat_map(|at| page(at + 1)).collect();
    disk.write(2, &bytes).expect("written");
    disk.trim(3, 1).expect("trimmed");
    let copy = DiskRemap {
        target: 17,
        source: 2,
        pages: 6,
        relocate: true,
        atomic: false,
    };
    disk.remap(&copy).expect("remapped");

    let mut read = vec![1; 8 * 4096];
    disk.read(16, &mut read).expect("readable");
    let wanted = [0, 1, 0, 3, 4, 5, 6, 0];
    for (page_read, content) in read.as_chunks::<4096>().0.iter().zip(wanted) {
        let wanted = if content == 0 {
            [0; 4096]
        } else {
            page(content)
        };
        assert_eq!(*page_read, wanted);
    }
    disk.read(0, &mut read).expect("readable");
    assert!(read.iter().all(|byte| *byte == 0));
    // Units are counted in pages.
    let error = disk.read(479, &mut read).unwrap_err();
    assert!(error.to_string().contains("range"), "{error}");
}

#[test]
fn an_image_file_keeps_units() -> Result<(), OpenError> {
    let mut device = Device::format(config(4, SchemeKind::RemapSsd, false))?;
    let written = device.write(0, Lpn(9), &Payload::Bytes(&page(3)));
    assert_eq!(written.result, Ok(()));
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("device.img");
    device.save(&file)?;
    let (mut loaded, report) = Device::load(&file)?;
    assert_eq!((report.mapped, loaded.config()), (1, device.config()));
    let (_, seen) = loaded.view(
        0,
        Lpn(9),
        |view| matches!(view, PageView::Bytes(bytes) if *bytes == page(3)),
    );
    assert_eq!(seen, Ok(true));
    Ok(())
}

#[test]
fn a_device_without_contents_takes_bytes_of_parts_of_units() {
    let mut config = config(4, SchemeKind::RemapSsd, false);
    config.content = ContentMode::None;
    let mut device = Device::in_memory(config).expect("a valid device");
    for lpn in [1, 2, 1, 7].map(Lpn) {
        let written = device.write(0, lpn, &Payload::Bytes(&page(9)));
        assert_eq!(written.result, Ok(()));
    }
    assert_eq!(device.ftl().check(), Ok(()));
}
