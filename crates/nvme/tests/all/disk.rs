//! All disks behave alike: the same steps on a disk in this process, on one in a folder, and on two
//! remote ones leave the same bytes, and each refuses invalid operations.

use crate::kit::{self, Rig, Setup, device};
use proptest::prelude::*;
use remap_ssd_device::{
    Device, DeviceConfig, Disk, DiskFileBlock, DiskRemap, DiskWrite, FileMapError, FilePage,
    FileStatus, LocalDisk,
};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::NamespaceSpec;
use remap_ssd_nvme::tcp::client::{Client, Options};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: usize = 4096;
const BYTES: u64 = 16 << 20;
/// Pages used by the steps.
const SPAN: u64 = 96;

#[derive(Clone, Debug)]
enum Step {
    Write { page: u64, pages: u64, seed: u8 },
    WriteAll(Vec<(u64, u64, u8)>),
    Trim { page: u64, pages: u64 },
    Remap(DiskRemap),
    RemapAll(Vec<DiskRemap>),
    Flush,
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..SPAN, 1..24u64).prop_map(|(page, pages)| (page, pages.min(SPAN - page)))
}

fn remap() -> impl Strategy<Value = DiskRemap> {
    (range(), 0..SPAN, any::<bool>(), any::<bool>()).prop_map(
        |((target, pages), source, relocate, atomic)| {
            let pages = pages.min(SPAN - source) as u32;
            DiskRemap {
                target,
                source,
                pages,
                relocate,
                atomic,
            }
        },
    )
}

/// As in a checkpoint: short, mostly copies, often adjacent.
fn short_remap() -> impl Strategy<Value = DiskRemap> {
    (0..SPAN - 3, 0..SPAN - 3, 0..4u32, 0..8u8).prop_map(|(target, source, pages, kind)| {
        let (relocate, atomic) = (kind == 0, kind == 1);
        DiskRemap {
            target,
            source,
            pages,
            relocate,
            atomic,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (range(), any::<u8>()).prop_map(|((page, pages), seed)| Step::Write { page, pages, seed }),
        4 => proptest::collection::vec((range(), any::<u8>()), 0..12).prop_map(|writes| {
            Step::WriteAll(writes.into_iter().map(|((page, pages), seed)| (page, pages, seed)).collect())
        }),
        1 => range().prop_map(|(page, pages)| Step::Trim { page, pages }),
        4 => remap().prop_map(Step::Remap),
        4 => proptest::collection::vec(prop_oneof![3 => short_remap(), 1 => remap()], 0..24).prop_map(Step::RemapAll),
        1 => Just(Step::Flush),
    ]
}

fn content(page: u64, pages: u64, seed: u8) -> Vec<u8> {
    (0..pages as usize * PAGE)
        .map(|at| seed ^ (page as usize + at / PAGE) as u8 ^ (at % 251) as u8)
        .collect()
}

fn at(page: u64) -> usize {
    page as usize * PAGE
}

fn remapped(bytes: &mut [u8], remap: &DiskRemap) {
    let DiskRemap {
        target,
        source,
        pages,
        relocate,
        ..
    } = *remap;
    let end = source + u64::from(pages);
    let taken = bytes[at(source)..at(end)].to_vec();
    if relocate && target != source {
        bytes[at(source)..at(end)].fill(0);
    }
    bytes[at(target)..at(target) + taken.len()].copy_from_slice(&taken);
}

/// Reference model of a disk.
fn model(steps: &[Step]) -> Vec<u8> {
    let mut bytes = vec![0; at(SPAN)];
    for step in steps {
        match step {
            Step::Write { page, pages, seed } => {
                bytes[at(*page)..at(page + pages)].copy_from_slice(&content(*page, *pages, *seed));
            }
            Step::WriteAll(writes) => {
                for &(page, pages, seed) in writes {
                    bytes[at(page)..at(page + pages)].copy_from_slice(&content(page, pages, seed));
                }
            }
            Step::Trim { page, pages } => bytes[at(*page)..at(page + pages)].fill(0),
            Step::Remap(remap) => remapped(&mut bytes, remap),
            Step::RemapAll(remaps) => remaps.iter().for_each(|remap| remapped(&mut bytes, remap)),
            Step::Flush => {}
        }
    }
    bytes
}

fn write_list<D: Disk>(disk: &mut D, writes: &[(u64, u64, u8)]) -> Result<(), D::Error> {
    let data: Vec<Vec<u8>> = writes
        .iter()
        .map(|&(page, pages, seed)| content(page, pages, seed))
        .collect();
    let list: Vec<DiskWrite<'_>> = writes
        .iter()
        .zip(&data)
        .map(|(&(page, ..), data)| DiskWrite { page, data })
        .collect();
    disk.write_all(&list)
}

fn contents_after<D: Disk>(disk: &mut D, steps: &[Step]) -> Vec<u8> {
    for step in steps {
        match step {
            Step::Write { page, pages, seed } => disk.write(*page, &content(*page, *pages, *seed)),
            Step::WriteAll(writes) => write_list(disk, writes),
            Step::Trim { page, pages } => disk.trim(*page, *pages),
            Step::Remap(remap) => disk.remap(remap),
            Step::RemapAll(remaps) => disk.remap_all(remaps).map_err(|error| error.error),
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
    let remap = |target, source| DiskRemap {
        target,
        source,
        pages: 2,
        relocate: false,
        atomic: false,
    };
    assert!(disk.remap(&remap(end - 1, 0)).is_err());
    assert!(disk.remap(&remap(0, end - 1)).is_err());
    let failed = disk
        .remap_all(&[remap(0, 8), remap(4, 8), remap(end - 1, 0)])
        .expect_err("beyond the end");
    assert_eq!(failed.index, 2);
    let far = DiskRemap {
        target: u64::MAX - 1,
        source: 0,
        pages: 2,
        relocate: false,
        atomic: false,
    };
    assert_eq!(
        disk.remap_all(&[far]).expect_err("beyond everything").index,
        0
    );
    assert!(
        disk.write_all(&[DiskWrite {
            page: end - 1,
            data: &[7; 2 * PAGE]
        }])
        .is_err()
    );
    assert!(
        disk.write_all(&[DiskWrite {
            page: u64::MAX,
            data: &[7; PAGE]
        }])
        .is_err()
    );
    assert!(disk.write(0, &[7; 100]).is_err());
    assert!(disk.read(0, &mut page[..100]).is_err());
    disk.read(end - 1, &mut page)
        .expect("the last page is there");
    assert!(page == [0; PAGE], "a refused write has written nothing");
}

#[test]
fn every_disk_is_the_same_disk() {
    let config =
        || DeviceConfig::for_service(BYTES, SchemeKind::RemapSsd, false).expect("possible");
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("disk");
    let local = RefCell::new(LocalDisk::new(
        Device::in_memory(config()).expect("possible"),
    ));
    let kept = RefCell::new(LocalDisk::new(
        Device::create_in_folder(&folder, config(), None).expect("possible"),
    ));
    let small_blocks = NamespaceSpec {
        pages: (BYTES / PAGE as u64) as u32,
        lba_shift: 9,
    };
    let rigs = [
        Rig::with(device(BYTES, true), &[]),
        Rig::with(device(BYTES, false), &[small_blocks]),
    ];
    let remote = RefCell::new(rigs.each_ref().map(Rig::client));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 48,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec(step(), 1..24), |steps| {
            let expected = model(&steps);
            prop_assert!(
                contents_after(&mut *local.borrow_mut(), &steps) == expected,
                "in memory"
            );
            prop_assert!(
                contents_after(&mut *kept.borrow_mut(), &steps) == expected,
                "in a folder"
            );
            for client in remote.borrow_mut().iter_mut() {
                prop_assert!(
                    contents_after(client, &steps) == expected,
                    "behind the network"
                );
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let mut kept = kept.into_inner();
    refuses_what_cannot_be(&mut local.into_inner());
    refuses_what_cannot_be(&mut kept);
    remote
        .into_inner()
        .iter_mut()
        .for_each(refuses_what_cannot_be);

    kept.write(5, &content(5, 1, 9)).expect("possible");
    kept.flush().expect("possible");
    drop(kept); // Not closed: as if the process had been killed.
    let (device, _) = Device::open_in_folder(&folder).expect("recoverable");
    let mut page = [0; PAGE];
    LocalDisk::new(device).read(5, &mut page).expect("readable");
    assert!(page[..] == content(5, 1, 9)[..]);
    rigs.into_iter().for_each(Rig::stop);
}

fn lists_files_by_page<D: Disk>(disk: &mut D) {
    let mut write = |inode, offset, page: u64| {
        let data = [page as u8; PAGE];
        disk.fs_write(page, &data, FilePage { inode, offset })
            .expect("possible")
    };
    for (inode, offset, page) in [(7, 0, 100), (9, 3, 101), (7, 1, 102)] {
        assert_eq!(write(inode, offset, page), FileStatus::Recorded);
    }
    assert_eq!(write(11, 0, 104), FileStatus::FilesFull);
    for offset in 0..500 {
        assert_eq!(
            write(9, offset, 200 + u64::from(offset)),
            FileStatus::Recorded
        );
    }
    assert_eq!(write(9, 0, 105), FileStatus::BlocksFull);

    let mut page = [0; PAGE];
    disk.read(105, &mut page).expect("readable");
    assert!(page == [105; PAGE], "what is not listed is still written");
    let block = |offset, page| DiskFileBlock { offset, page };
    assert_eq!(
        disk.fs_list(7).expect("possible"),
        [block(0, 100), block(1, 102)]
    );
    assert_eq!(disk.fs_list(9).expect("possible").len(), 501);
    assert_eq!(disk.fs_files().expect("possible"), [7, 9]);
    disk.fs_reset().expect("possible");
    assert!(disk.fs_list(9).expect("possible").is_empty());
}

#[test]
fn every_disk_has_the_same_file_map_or_none() {
    let mut config =
        DeviceConfig::for_service(BYTES, SchemeKind::RemapSsd, false).expect("possible");
    let mut without = LocalDisk::new(Device::in_memory(config.clone()).expect("possible"));
    assert!(matches!(without.fs_reset(), Err(FileMapError::Unsupported)));
    let rig = Rig::new();
    assert!(matches!(
        rig.client().fs_list(1),
        Err(FileMapError::Unsupported)
    ));
    rig.stop();

    (config.firmware.fs_files, config.firmware.fs_blocks) = (2, 503);
    lists_files_by_page(&mut LocalDisk::new(
        Device::in_memory(config.clone()).expect("possible"),
    ));
    for lba_shift in [9, 12] {
        let namespace = NamespaceSpec {
            pages: (BYTES / PAGE as u64) as u32,
            lba_shift,
        };
        let device = Device::format(config.clone()).expect("possible");
        let rig = Rig::with(device, &[namespace]);
        lists_files_by_page(&mut rig.client());
    }
}

/// Forwards bytes between a host and the server, and counts round trips: how often the host waits
/// for an answer before it sends more.
fn counting_proxy(server: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // Twice the number of round trips, plus 1 while the host waits.
    let turns = Arc::new(AtomicU64::new(0));
    let counted = turns.clone();
    std::thread::spawn(move || {
        for host in listener.incoming().map_while(Result::ok) {
            let target = TcpStream::connect(server).expect("it listens");
            for (mut from, mut to, parity) in [
                (
                    host.try_clone().expect("possible"),
                    target.try_clone().expect("possible"),
                    0,
                ),
                (target, host, 1),
            ] {
                let turns = counted.clone();
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 20];
                    while let Ok(len) = from.read(&mut buffer)
                        && len > 0
                        && to.write_all(&buffer[..len]).is_ok()
                    {
                        let turn = |turn: u64| (turn % 2 == parity).then_some(turn + 1);
                        let _ = turns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, turn);
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, turns)
}

/// Forwards bytes between a host and the server. Once armed, the next answer is dropped, and with it
/// its connection: the host cannot know whether its commands were executed.
fn dropping_proxy(server: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let armed = Arc::new(AtomicBool::new(false));
    let drops = armed.clone();
    std::thread::spawn(move || {
        for host in listener.incoming().map_while(Result::ok) {
            let target = TcpStream::connect(server).expect("it listens");
            let copy = |stream: &TcpStream| stream.try_clone().expect("possible");
            let ways = [(copy(&host), copy(&target), false), (target, host, true)];
            for (mut from, mut to, is_answer) in ways {
                let drops = drops.clone();
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 20];
                    while let Ok(len) = from.read(&mut buffer)
                        && len > 0
                        && !(is_answer && drops.swap(false, Ordering::SeqCst))
                        && to.write_all(&buffer[..len]).is_ok()
                    {}
                    let _ = to.shutdown(Shutdown::Both);
                    let _ = from.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, armed)
}

// If the answer to a remap is lost, the remap may have been executed. One whose source and target
// overlap, or that takes the source away, must not be executed again.
#[test]
fn a_remap_that_cannot_be_repeated_is_not_sent_again_when_its_answer_is_lost() {
    const PAGES: u64 = 6;
    for (target, source, relocate) in [(1, 0, false), (0, 1, false), (20, 0, true), (20, 0, false)]
    {
        for in_list in [false, true] {
            let rig = Rig::with(device(BYTES, false), &[]);
            let (address, armed) = dropping_proxy(rig.address);
            let mut client = Client::connect(address, Options::default()).expect("it listens");
            let mut expected = vec![0; at(SPAN)];
            let bytes = content(0, PAGES + 1, 7);
            Disk::write(&mut client, 0, &bytes).expect("possible");
            expected[..bytes.len()].copy_from_slice(&bytes);

            let remap = DiskRemap {
                target,
                source,
                pages: PAGES as u32,
                relocate,
                atomic: false,
            };
            armed.store(true, Ordering::SeqCst);
            let result = if in_list {
                client.remap_all(&[remap]).map_err(|failure| failure.error)
            } else {
                Disk::remap(&mut client, &remap)
            };
            let is_repeatable = !relocate && target == 20;
            assert_eq!(result.is_ok(), is_repeatable, "{remap:?}: {result:?}");

            // It was executed once.
            remapped(&mut expected, &remap);
            let mut found = vec![0; at(SPAN)];
            Disk::read(&mut client, 0, &mut found).expect("readable");
            assert!(found == expected, "{remap:?}, in a list: {in_list}");
        }
    }
}

#[test]
fn a_checkpoint_does_not_pay_a_round_trip_a_page() {
    const PAGES: u64 = 1000;
    let rig = Rig::with(device(BYTES, false), &[]);
    let (address, turns) = counting_proxy(rig.address);
    let mut client = Client::connect(address, Options::default()).expect("it listens");
    Disk::write(&mut client, 1000, &content(1000, PAGES, 3)).expect("possible");

    // A database's pages in order, from all over the log: 389 and 1,000 have no common factor.
    let one = |page: u64, step: u64| DiskRemap {
        target: page * step,
        source: 1000 + page * 389 % PAGES,
        pages: 1,
        relocate: false,
        atomic: false,
    };
    for (targets, step, limit) in [("in a row", 1, 4), ("all apart", 2, 64)] {
        Disk::trim(&mut client, 0, 1000).expect("possible");
        let list: Vec<DiskRemap> = (0..PAGES / step).map(|page| one(page, step)).collect();
        let before = turns.load(Ordering::Relaxed);
        client.remap_all(&list).expect("possible");
        let trips = (turns.load(Ordering::Relaxed) - before) / 2;
        assert!(
            trips <= limit,
            "{trips} round trips for {} pages {targets}",
            list.len()
        );

        let mut page = [0; PAGE];
        for remap in list.iter().step_by(37) {
            Disk::read(&mut client, remap.target, &mut page).expect("readable");
            assert!(
                page[..] == content(1000, PAGES, 3)[at(remap.source - 1000)..][..PAGE],
                "{remap:?}"
            );
        }
    }
}

#[test]
fn a_transaction_does_not_pay_a_round_trip_a_page() {
    let rig = Rig::with(device(BYTES, false), &[]);
    let (address, turns) = counting_proxy(rig.address);
    let mut client = Client::connect(address, Options::default()).expect("it listens");
    let trips = |writes: &[(u64, u64, u8)], client: &mut Client| {
        let before = turns.load(Ordering::Relaxed);
        write_list(client, writes).expect("possible");
        (turns.load(Ordering::Relaxed) - before) / 2
    };

    let apart: Vec<(u64, u64, u8)> = (0..120).map(|place| (place * 7, 1, place as u8)).collect();
    let found = trips(&apart, &mut client);
    assert!(
        found <= 4,
        "{found} round trips for {} pages all apart",
        apart.len()
    );

    // More than may be outstanding at once, one of them larger than a command; and a page written
    // twice.
    let mut many: Vec<(u64, u64, u8)> = (0..300).map(|place| (place * 5, 1, place as u8)).collect();
    many.extend([(1600, 400, 9), (1602, 1, 10)]);
    let found = trips(&many, &mut client);
    assert!(found <= 24, "{found} round trips for {} writes", many.len());
    let mut page = [0; PAGE];
    for &(at, _, seed) in many.iter().step_by(41).chain(&many[301..]) {
        Disk::read(&mut client, at, &mut page).expect("readable");
        assert!(page[..] == content(at, 1, seed)[..], "page {at}");
    }
}

#[test]
fn a_client_writes_nothing_to_another_device_at_its_address() {
    let serves = |address: SocketAddr, bytes, incarnation| {
        let subsystem = kit::subsystem(device(bytes, false), &[]);
        let setup = Setup::of(subsystem.of_incarnation(incarnation));
        setup.at(vec![address]).start()
    };
    let rig = serves((Ipv4Addr::LOCALHOST, 0).into(), BYTES, 1);
    let address = rig.address;
    let mut client = rig.client();
    Disk::write(&mut client, 0, &content(0, 1, 3)).expect("possible");
    rig.stop();

    // Another size, or the same size in another incarnation: the host's data are not there.
    for (bytes, incarnation) in [(2 * BYTES, 1), (BYTES, 2)] {
        let other = serves(address, bytes, incarnation);
        for _ in 0..2 {
            let error = Disk::write(&mut client, 1, &content(1, 1, 3)).expect_err("another device");
            assert!(
                error.to_string().contains("serves another device now"),
                "{error}"
            );
        }
        let mut page = [1; PAGE];
        assert!(Disk::read(&mut client, 1, &mut page).is_err());

        Disk::read(&mut other.client(), 1, &mut page).expect("readable");
        assert!(page == [0; PAGE], "the other device has been written");
        other.stop();
    }

    // The original device is accepted again.
    let _back = serves(address, BYTES, 1);
    Disk::write(&mut client, 1, &content(1, 1, 3)).expect("the device is back");
}
