//! The time of entries of the mapping table that are not in DRAM: a command waits for its translation pages.

use remap_ssd_device::{Device, DeviceConfig, Lpn, PageCommand, PageKind, Payload, Remap};

/// A device with few entries in DRAM, filled with contents of their own.
fn filled(engine: &str) -> Device {
    let text = format!(
        "preset = \"fast21-32g\"\nscale = \"1/256\"\n[background]\nlookup_stalls_dies = false\n\
         [timing]\nengine = \"{engine}\"\n[firmware]\nmapping_cache_bytes = 1048576\n"
    );
    let mut device = Device::format(DeviceConfig::from_toml(&text).unwrap()).unwrap();
    for lpn in Lpn::range(Lpn::ZERO, device.config().firmware.lpns / 2) {
        let content = 1 + u64::from(lpn.0);
        let kind = PageKind::Write;
        let command = PageCommand {
            lpn: lpn.into(),
            content,
            kind,
        };
        device.execute(&command, false).unwrap();
    }
    // Reads in order, so that the entries of the first LPNs leave, and no translation page of theirs is at hand.
    for lpn in 2000..6000 {
        read(&mut device, lpn);
    }
    device
}

/// The duration of a read without flash operations.
fn read_unmapped(device: &mut Device) -> u64 {
    let last = device.config().firmware.lpns - 1;
    read(device, last)
}

/// The duration of a read on an idle device.
fn read(device: &mut Device, lpn: u32) -> u64 {
    let now = device.busy_until() + 10_000_000;
    device.read(now, Lpn(lpn)).0 - now
}

#[test]
fn a_miss_is_a_read_of_flash_before_the_commands_own() {
    for engine in ["published", "nand"] {
        let mut device = filled(engine);
        let unmapped = read_unmapped(&mut device);
        let (missed, cached) = (read(&mut device, 1), read(&mut device, 1));
        let flash = cached - unmapped;
        assert!(flash >= 25_000, "{engine}: {flash}");
        assert_eq!(missed, cached + flash, "{engine}");

        // The translation page is at hand for its next entry.
        assert_eq!(read(&mut device, 2), cached, "{engine}");
    }
}

/// The remap's two entries are read one after the other; the write's page is programmed after its entry is known.
#[test]
fn remaps_and_writes_wait_for_their_entries() {
    for engine in ["published", "nand"] {
        let mut device = filled(engine);
        let unmapped = read_unmapped(&mut device);
        let flash = read(&mut device, 5999) - unmapped;
        let remap = |device: &mut Device, target, source| {
            let now = device.busy_until() + 10_000_000;
            let remap = Remap {
                target: Lpn(target),
                source: Lpn(source),
                len: 1,
                relocate: false,
                atomic: false,
            };
            let done = device.remap(now, &remap);
            assert_eq!((done.result, done.remapped), (Ok(()), 1));
            done.done_at - now
        };
        // The first remap of a superblock's pages takes a segment.
        remap(&mut device, 13, 1502);
        read(&mut device, 5999);
        let missed = remap(&mut device, 10, 1500);
        let again = remap(&mut device, 11, 1500);
        // The source's entry is cached, and the second target's is in the page at hand.
        assert_eq!(missed, again + 2 * flash, "{engine}");

        let mut write = |lpn, content| {
            let now = device.busy_until() + 10_000_000;
            let done = device.write(now, Lpn(lpn), &Payload::Identity(content));
            done.result.unwrap();
            done.done_at - now
        };
        // In another translation page than those before.
        let (missed, cached) = (write(1030, 1 << 40), write(1030, 2 << 40));
        assert!(missed > cached, "{engine}: {missed} {cached}");
    }
}
