//! The disks without power cuts: on the real firmware, stacked, on devices that demote copies,
//! after a restart, with damage.

mod compared;
mod costs;
mod opened;

use crate::kit::{PAGE, Setup, content, contents, number};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_dedup::{
    Ccaw, CcawOptions, DedupError, Hash, NewDedup, OrderMerge, OrderMergeOptions, Scheme,
    Statistics, scheme_on,
};
use remap_ssd_device::{Device, DeviceConfig, Disk, DiskRemap, LocalDisk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::MemDisk;

fn device() -> LocalDisk {
    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    LocalDisk::new(Device::in_memory(config).expect("possible"))
}

fn programs(disk: &LocalDisk) -> u64 {
    disk.device().ftl().stats().programs()
}

fn new(hash: Hash) -> NewDedup {
    NewDedup {
        hash,
        spare: 64,
        ..NewDedup::default()
    }
}

fn ccaw<D: Disk>(disk: D, hash: Hash) -> Ccaw<D> {
    Ccaw::create(disk, &new(hash), CcawOptions::default(), &mut |_, _| {}).expect("it fits")
}

fn order_merge<D: Disk>(disk: D, hash: Hash) -> OrderMerge<D> {
    OrderMerge::create(
        disk,
        &new(hash),
        OrderMergeOptions::default(),
        &mut |_, _| {},
    )
    .expect("it fits")
}

fn setup(scheme: Scheme) -> Setup {
    Setup {
        scheme,
        hash: Hash::Blake3,
        pages: 600,
        window: 10,
        commit_after: u32::MAX,
        entries_max: u32::MAX,
        without: None,
    }
}

/// Writes, trims, copies and moves at random, and compares with an array.
fn is_a_disk(disk: &mut impl Disk, seed: u64) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let pages = disk.pages().min(300);
    disk.trim(0, pages).expect("it works");
    let mut model = vec![0u64; pages as usize];
    for step in 0..600 {
        let count = random.random_range(1..20);
        let at = random.random_range(0..=pages - count);
        let range = at as usize..(at + count) as usize;
        match random.random_range(0..10) {
            0 => {
                disk.trim(at, count).expect("it works");
                model[range].fill(0);
            }
            1 | 2 => {
                let source = random.random_range(0..=pages - count);
                let relocate = random.random_bool(0.5);
                let remap = DiskRemap {
                    target: at,
                    source,
                    pages: count as u32,
                    relocate,
                    atomic: false,
                };
                disk.remap(&remap).expect("it works");
                let moved = model[source as usize..(source + count) as usize].to_vec();
                if relocate {
                    model[source as usize..(source + count) as usize].fill(0);
                }
                model[range].copy_from_slice(&moved);
            }
            3 => disk.flush().expect("it works"),
            _ => {
                let draw = |_| {
                    if random.random_bool(0.6) {
                        random.random_range(1..30)
                    } else {
                        1000 + step * 20
                    }
                };
                let numbers: Vec<u64> = (0..count).map(draw).collect();
                disk.write(at, &contents(&numbers)).expect("it works");
                model[range].copy_from_slice(&numbers);
            }
        }
        let mut found = vec![0; pages as usize * PAGE];
        if step % 10 == 0 {
            disk.read(0, &mut found).expect("it works");
            let numbers: Vec<u64> = found.as_chunks::<PAGE>().0.iter().map(number).collect();
            assert!(numbers == model, "step {step}");
        }
    }
    assert!(
        disk.read(disk.pages(), &mut [0; PAGE]).is_err()
            && disk.write(disk.pages() - 1, &[0; 2 * PAGE]).is_err()
    );
    assert!(disk.write(0, &[0; 100]).is_err() && disk.trim(u64::MAX, 2).is_err());
}

#[test]
fn both_are_disks_on_the_real_firmware_and_on_each_other() {
    for hash in [Hash::Md5, Hash::Blake3] {
        is_a_disk(&mut ccaw(device(), hash), 1);
        is_a_disk(&mut order_merge(device(), hash), 2);
        is_a_disk(&mut order_merge(ccaw(device(), hash), hash), 3);
        is_a_disk(&mut ccaw(order_merge(device(), hash), hash), 4);
    }
}

#[test]
fn a_volume_of_files_lies_on_a_disk_that_deduplicates() {
    let disk = ccaw(device(), Hash::Md5);
    let volume = Volume::create(disk, &Processes::One, &NewVolume::default(), &mut |_, _| {})
        .expect("it fits");
    let make = OpenOptions::from(Create::New);
    let data = contents(&(100..200).collect::<Vec<u64>>());
    for name in ["one", "two"] {
        let file = volume.open(name, make).expect("a new file");
        volume.write(file, 0, &data).expect("there is room");
        volume.sync(file).expect("it works");
    }
    let disk = volume.into_disk();
    assert!(
        disk.statistics().duplicates >= 100,
        "{:?}",
        disk.statistics()
    );
    let programs = programs(disk.disk());
    assert!(programs < 160, "{programs} programs for 200 pages");
    let volume = Volume::open(
        Ccaw::open(disk.into_disk(), CcawOptions::default()).expect("it is there"),
        &Processes::One,
    );
    let volume = volume.expect("it is there");
    let file = volume
        .open("two", OpenOptions::default())
        .expect("it is there");
    let mut found = vec![0; data.len()];
    volume.read(file, 0, &mut found).expect("it works");
    assert!(found == data);
}

#[test]
fn an_atomic_remap_is_one_page_of_mappings_or_refused() {
    let mut disk = order_merge(MemDisk::new(5000), Hash::Blake3);
    disk.write(0, &contents(&[1, 2, 3, 4])).expect("it works");
    let remap = DiskRemap {
        target: 1000,
        source: 0,
        pages: 4,
        relocate: true,
        atomic: true,
    };
    disk.remap(&remap).expect("all of it is in one page");
    let error = disk
        .remap(&DiskRemap {
            target: 1018,
            source: 1000,
            ..remap
        })
        .expect_err("it is in two");
    assert!(matches!(error, DedupError::NotAtomic));
    let mut found = [[0; PAGE]; 4];
    disk.read(1000, found.as_flattened_mut()).expect("it works");
    assert_eq!(
        found.map(|page| number(&page)),
        [1, 2, 3, 4],
        "nothing has changed"
    );
}
