//! Namespaces on a device whose indirection unit is larger than a page: what they announce, where they are, and blocks that are
//! written, zeroed and copied in part of a unit.

use crate::kit::NQN;
use crate::namespaces::host::{FORMATS, Host, PAGE, Store, blocks_of, subsystem};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::operate::Damage;
use remap_ssd_nvme::controller::{NamespaceSpec, Subsystem};
use remap_ssd_nvme::spec::opcode::io;
use std::sync::Arc;

/// A device of 32 MiB with units of `pages` pages.
fn device(pages: u32) -> Device {
    let bytes = pages * 4096;
    let settings = [
        format!("geometry.page_bytes={bytes}"),
        format!("geometry.indirection_bytes={bytes}"),
        // Blocks of a device of this size have few pages.
        "geometry.pages_per_block=256".to_owned(),
    ];
    let settings: Vec<_> = settings.iter().map(|one| one.parse().unwrap()).collect();
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, true);
    let config = config.expect("possible").with(&settings).expect("possible");
    Device::in_memory(config).expect("there is room")
}

#[test]
fn a_namespace_announces_its_unit() {
    for (pages, format) in [(1, 0), (1, 1), (4, 0), (4, 1), (16, 0), (16, 1)] {
        let subsystem = Arc::new(subsystem(device(pages), &Store::default()));
        let host = Host::of(&subsystem, "a");
        let nsid = host.create(160, format).expect("there is room");
        host.attach(nsid, &[&host], true).expect("it exists");
        let id = host.identify(0, nsid).expect("it is attached");

        // OPTPERF; NPWG, NPWA, NPDG, NPDA and NOWS, 0's based.
        assert_eq!(id[24] & 1 << 4, 1 << 4);
        let blocks = pages as usize * PAGE / FORMATS[format];
        for at in [64, 66, 68, 70, 72] {
            let value = u16::from_le_bytes([id[at], id[at + 1]]);
            assert_eq!(
                usize::from(value) + 1,
                blocks,
                "byte {at}, units of {pages}"
            );
        }
    }
}

#[test]
fn no_two_namespaces_have_pages_of_one_unit() {
    let subsystem = Arc::new(subsystem(device(4), &Store::default()));
    let host = Host::of(&subsystem, "a");
    let free = host.free_bytes();
    for nsid in 1..=3 {
        assert_eq!(host.create(5, 0), Ok(nsid));
        host.attach(nsid, &[&host], true).expect("it exists");
        let fill = [nsid as u8; 5 * PAGE];
        host.write(nsid, 0, 5, &fill).expect("writable");
    }
    let places: Vec<u32> = subsystem
        .namespaces()
        .iter()
        .map(|one| one.first_lpn.0)
        .collect();
    assert_eq!(places, [0, 8, 16]);
    // The rest of the last unit is in no namespace, and belongs to none.
    assert_eq!(host.free_bytes(), free - 24 * PAGE as u64);

    host.delete(2).expect("it is there");
    assert_eq!(host.read(1, 0, 5), Ok(vec![1; 5 * PAGE]));
    assert_eq!(host.read(3, 0, 5), Ok(vec![3; 5 * PAGE]));
    assert_eq!(host.create(7, 0), Ok(2));
    host.attach(2, &[&host], true).expect("it exists");
    assert_eq!(host.read(2, 0, 7), Ok(vec![0; 7 * PAGE]));

    // A list that says otherwise does not belong to this device.
    let specs = [5, 8].map(|pages| NamespaceSpec {
        pages,
        lba_shift: 12,
    });
    let made = Subsystem::new(device(4), NQN, &specs);
    let error = made.err().expect("impossible").to_string();
    assert!(error.contains("a multiple of 4 pages"), "{error}");
}

#[test]
fn blocks_of_a_unit_are_written_zeroed_and_copied_alone() {
    let subsystem = Arc::new(subsystem(device(4), &Store::default()));
    let host = Host::of(&subsystem, "a");
    assert_eq!(host.create(64, 1), Ok(1));
    host.attach(1, &[&host], true).expect("it exists");

    // Blocks of 512 bytes, eight in a page and 32 in a unit.
    let mut wanted: Vec<u8> = (0..256u32).flat_map(|block| [block as u8; 512]).collect();
    host.write(1, 0, 256, &wanted).expect("writable");
    host.write(1, 37, 3, &[0xee; 3 * 512]).expect("writable");
    wanted[37 * 512..40 * 512].fill(0xee);
    host.write(1, 60, 40, &[0xdd; 40 * 512]).expect("writable");
    wanted[60 * 512..100 * 512].fill(0xdd);
    let zeroes = blocks_of(io::WRITE_ZEROES, 1, 106, 90);
    host.io(&zeroes, &[]).expect("writable");
    wanted[106 * 512..196 * 512].fill(0);
    assert_eq!(host.read(1, 0, 256), Ok(wanted.clone()));

    let counts = subsystem.device().indirection_counts();
    assert!(counts.read_modify_writes >= 4, "{counts:?}");
    subsystem
        .device()
        .untimed(|ftl| assert_eq!(ftl.check(), Ok(())));
}

// The namespace ends inside a unit. A part of a unit that cannot be read cannot be written, but the rest belongs to no namespace.
#[test]
fn a_namespace_whose_last_unit_is_unreadable_is_formatted_and_deleted() {
    for cache_bytes in [0, 1 << 20] {
        let subsystem = subsystem(device(4), &Store::default()).with_cache(cache_bytes);
        let subsystem = Arc::new(subsystem);
        let host = Host::of(&subsystem, "a");
        let free = host.free_bytes();
        assert_eq!(host.create(5, 0), Ok(1));
        host.attach(1, &[&host], true).expect("it exists");

        let damage = || {
            host.write(1, 0, 5, &[3; 5 * PAGE]).expect("writable");
            host.flush(1).expect("possible");
            let (nsid, slba, count) = (1, 4, 1);
            let damage = Damage::Unreadable { nsid, slba, count };
            assert_eq!(subsystem.damage(damage), Ok(1));
        };
        damage();
        assert!(cache_bytes > 0 || host.read(1, 4, 1).is_err());
        host.format(1, 0).expect("its last unit is deallocated");
        assert_eq!(host.read(1, 0, 5), Ok(vec![0; 5 * PAGE]));
        damage();
        host.format(1, 1).expect("its last unit is deallocated");
        assert_eq!(host.read(1, 0, 40), Ok(vec![0; 5 * PAGE]));
        host.format(1, 0).expect("it is empty");
        damage();
        host.delete(1).expect("its last unit is deallocated");
        assert_eq!(host.free_bytes(), free);
    }
}
