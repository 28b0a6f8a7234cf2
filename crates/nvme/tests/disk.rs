//! Host software is written once: the same steps on a disk in this process, on one in a folder, and on two behind the
//! network leave the same bytes, and what cannot be is refused by each.

mod kit;

use kit::{Rig, device};
use proptest::prelude::*;
use remap_ssd_device::{Device, DeviceConfig, Disk, DiskRemap, LocalDisk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Latency, NamespaceSpec};
use std::cell::RefCell;

const PAGE: usize = 4096;
const BYTES: u64 = 16 << 20;
/// Pages that the steps use.
const SPAN: u64 = 96;

#[derive(Clone, Debug)]
enum Step {
    Write { page: u64, pages: u64, seed: u8 },
    Trim { page: u64, pages: u64 },
    Remap(DiskRemap),
    Flush,
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..SPAN, 1..24u64).prop_map(|(page, pages)| (page, pages.min(SPAN - page)))
}

fn step() -> impl Strategy<Value = Step> {
    let remap =
        (range(), 0..SPAN, any::<bool>(), any::<bool>()).prop_map(|((target, pages), source, relocate, atomic)| {
            let pages = pages.min(SPAN - source) as u32;
            Step::Remap(DiskRemap { target, source, pages, relocate, atomic })
        });
    prop_oneof![
        4 => (range(), any::<u8>()).prop_map(|((page, pages), seed)| Step::Write { page, pages, seed }),
        1 => range().prop_map(|(page, pages)| Step::Trim { page, pages }),
        4 => remap,
        1 => Just(Step::Flush),
    ]
}

fn content(page: u64, pages: u64, seed: u8) -> Vec<u8> {
    (0..pages as usize * PAGE).map(|at| seed ^ (page as usize + at / PAGE) as u8 ^ (at % 251) as u8).collect()
}

fn at(page: u64) -> usize {
    page as usize * PAGE
}

/// What a disk is by definition.
fn model(steps: &[Step]) -> Vec<u8> {
    let mut bytes = vec![0; at(SPAN)];
    for step in steps {
        match *step {
            Step::Write { page, pages, seed } => {
                bytes[at(page)..at(page + pages)].copy_from_slice(&content(page, pages, seed));
            }
            Step::Trim { page, pages } => bytes[at(page)..at(page + pages)].fill(0),
            Step::Remap(DiskRemap { target, source, pages, relocate, .. }) => {
                let end = source + u64::from(pages);
                let taken = bytes[at(source)..at(end)].to_vec();
                if relocate && target != source {
                    bytes[at(source)..at(end)].fill(0);
                }
                bytes[at(target)..at(target) + taken.len()].copy_from_slice(&taken);
            }
            Step::Flush => {}
        }
    }
    bytes
}

fn contents_after<D: Disk>(disk: &mut D, steps: &[Step]) -> Vec<u8> {
    for step in steps {
        match step {
            Step::Write { page, pages, seed } => disk.write(*page, &content(*page, *pages, *seed)),
            Step::Trim { page, pages } => disk.trim(*page, *pages),
            Step::Remap(remap) => disk.remap(remap),
            Step::Flush => disk.flush(),
        }
        .unwrap_or_else(|error| panic!("{step:?}: {error}"));
    }
    let mut bytes = vec![1; at(SPAN)];
    disk.read(0, &mut bytes).expect("readable");
    disk.trim(0, SPAN).expect("possible");
    bytes
}

fn refuses_what_cannot_be<D: Disk>(disk: &mut D) {
    let end = disk.pages();
    let mut page = [0; PAGE];
    assert!(disk.read(end, &mut page).is_err());
    assert!(disk.write(end - 1, &[7; 2 * PAGE]).is_err());
    assert!(disk.trim(end, 1).is_err());
    let remap = |target, source| DiskRemap { target, source, pages: 2, relocate: false, atomic: false };
    assert!(disk.remap(&remap(end - 1, 0)).is_err());
    assert!(disk.remap(&remap(0, end - 1)).is_err());
    assert!(disk.write(0, &[7; 100]).is_err());
    assert!(disk.read(0, &mut page[..100]).is_err());
    disk.read(end - 1, &mut page).expect("the last page is there");
    assert!(page == [0; PAGE], "a refused write has written nothing");
}

#[test]
fn every_disk_is_the_same_disk() {
    let config = || DeviceConfig::for_service(BYTES, SchemeKind::RemapSsd, false).expect("possible");
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("disk");
    let local = RefCell::new(LocalDisk::new(Device::in_memory(config()).expect("possible")));
    let kept = RefCell::new(LocalDisk::new(Device::create_in_folder(&folder, config(), None).expect("possible")));
    let small_blocks = NamespaceSpec { pages: (BYTES / PAGE as u64) as u32, lba_shift: 9 };
    let rigs = [
        Rig::with(device(BYTES, true), &[], Latency::None),
        Rig::with(device(BYTES, false), &[small_blocks], Latency::None),
    ];
    let remote = RefCell::new(rigs.each_ref().map(Rig::client));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 48, ..ProptestConfig::default() });
    runner
        .run(&proptest::collection::vec(step(), 1..24), |steps| {
            let expected = model(&steps);
            prop_assert!(contents_after(&mut *local.borrow_mut(), &steps) == expected, "in memory");
            prop_assert!(contents_after(&mut *kept.borrow_mut(), &steps) == expected, "in a folder");
            for client in remote.borrow_mut().iter_mut() {
                prop_assert!(contents_after(client, &steps) == expected, "behind the network");
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let mut kept = kept.into_inner();
    refuses_what_cannot_be(&mut local.into_inner());
    refuses_what_cannot_be(&mut kept);
    remote.into_inner().iter_mut().for_each(refuses_what_cannot_be);

    kept.write(5, &content(5, 1, 9)).expect("possible");
    kept.flush().expect("possible");
    drop(kept); // Not closed: as if the process had been killed.
    let (device, _) = Device::open_in_folder(&folder).expect("recoverable");
    let mut page = [0; PAGE];
    LocalDisk::new(device).read(5, &mut page).expect("readable");
    assert!(page[..] == content(5, 1, 9)[..]);
    rigs.into_iter().for_each(Rig::stop);
}
