//! Long commands of one host, and their effect on others.

mod kit;

use kit::{Rig, Setup};
use remap_ssd_nvme::controller::{VERIFY_BYTES_MAX, copy_blocks_max};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, FeatureCdw10, RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::tcp::client::{Call, Client, Options, entry};
use remap_ssd_nvme::tcp::server::Limits;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const PAGE: usize = 4096;
/// Pages of the device, and of the source and target of a copy.
const PAGES: u32 = 32 << 10;
const HALF: u32 = PAGES / 2;
/// Minimum reads by another host in one of several attacks. On a busy machine it may not even be
/// scheduled for most of an attack; a host that is shut out makes one or two between the attacker's
/// batches, in every attack.
const READS_MIN: u32 = 20;
const ATTACKS_MAX: u32 = 10;

fn rig(limits: Limits) -> Rig {
    let device = kit::device(u64::from(PAGES) * PAGE as u64, false);
    Setup::of(kit::subsystem(device, &[]))
        .limits(limits)
        .start()
}

fn host(rig: &Rig, name: &str) -> Client {
    let options = Options {
        hostnqn: format!("nqn.2026-11.test:{name}"),
        subnqn: Some(kit::NQN.into()),
        ..Options::default()
    };
    Client::connect(rig.address, options).expect("it listens")
}

/// The longest Copy, from the lower half of the device to the upper one.
fn copy() -> (Sqe, CopyRange) {
    let mut sqe = entry(io::COPY, 1);
    sqe.cdw10 = HALF;
    sqe.cdw12 = CopyCdw12::new().with_nr_z(0).into_bits();
    (sqe, CopyRange::new(0, (copy_blocks_max(12) - 1) as u16))
}

/// Repeatedly sends as many commands as a queue takes; returns the number of concurrent reads by
/// another host, in the best of a few attacks. Others may go first after each of at least
/// `slices_used_up` slices.
fn reads_during(slices_used_up: u64, attack: impl Fn(&mut Client) + Sync) -> u32 {
    // One attack at a time: the test measures how the device shares its time, not how this machine
    // shares its processors among the tests.
    static ONE_ATTACK: Mutex<()> = Mutex::new(());
    let _one = ONE_ATTACK.lock().unwrap_or_else(PoisonError::into_inner);

    let rig = rig(Limits::default());
    let (mut attacker, mut reader) = (host(&rig, "attacker"), host(&rig, "reader"));
    // Data to read, and to copy.
    for first in (0..u64::from(HALF)).step_by(256) {
        attacker.write(first, &[7; 256 * PAGE]).expect("served");
    }

    let (over, reads, most) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let slices = rig.subsystem.slices();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ATTACKS_MAX {
                reads.store(0, Ordering::Relaxed);
                attack(&mut attacker);
                let now = reads.load(Ordering::Relaxed);
                if most.fetch_max(now, Ordering::Relaxed).max(now) > READS_MIN {
                    break;
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) {
            assert_eq!(reader.read(9, 1).expect("it is not dropped"), vec![7; PAGE]);
            reads.fetch_add(1, Ordering::Relaxed);
        }
    });
    let slices = rig.subsystem.slices() - slices;
    assert!(
        slices >= slices_used_up,
        "{slices} slices: long commands are done in several"
    );
    drop((attacker, reader));
    rig.stop();
    most.into_inner()
}

fn together(client: &mut Client, call: Call<'_>, count: usize) {
    let answers = client
        .queue(|queue| queue.calls(&vec![call; count]))
        .expect("served");
    assert!(answers.iter().all(|answer| answer.status.is_success()));
}

#[test]
fn others_read_while_one_host_copies() {
    let (sqe, range) = copy();
    let reads = reads_during(400 * 12, |client| {
        for _ in 0..4 {
            together(client, Call::sending(sqe, range.as_bytes()), 100);
        }
    });
    assert!(
        reads > READS_MIN,
        "{reads} reads while 400 copies of 16 MiB were made"
    );
}

#[test]
fn others_read_while_one_host_verifies() {
    let mut sqe = entry(io::VERIFY, 1);
    sqe.cdw12 = RwCdw12::new()
        .with_nlb_z((VERIFY_BYTES_MAX / PAGE as u64 - 1) as u16)
        .into_bits();
    let reads = reads_during(8000 * 2, |client| {
        for _ in 0..80 {
            together(client, Call::new(sqe), 100);
        }
    });
    assert!(
        reads > READS_MIN,
        "{reads} reads while 8,000 times 16 MiB were verified"
    );
}

#[test]
fn others_read_while_one_host_deallocates() {
    let mut sqe = entry(io::WRITE_ZEROES, 1);
    sqe.cdw10 = HALF;
    sqe.cdw12 = RwCdw12::new().with_nlb_z((HALF - 1) as u16).into_bits();
    let reads = reads_during(1000, |client| {
        for _ in 0..20 {
            together(client, Call::new(sqe), 100);
        }
    });
    assert!(
        reads > READS_MIN,
        "{reads} reads while 2,000 times 64 MiB were deallocated"
    );
}

#[test]
fn a_host_whose_keep_alives_arrive_in_time_lives_however_late_they_are_read() {
    let rig = rig(Limits::default());
    let mut client = host(&rig, "patient");
    let mut sqe = entry(admin::SET_FEATURES, 0);
    sqe.cdw10 = FeatureCdw10::new().with_fid(0x0f).into_bits();
    sqe.cdw11 = 250;
    client
        .admin(|queue| queue.call("keep alive of 250 ms", &Call::new(sqe)))
        .expect("served");

    // Both queues' threads wait for the device, while the host sends a keep-alive every 100 ms.
    let smart = Sqe {
        cdw10: 0x02 | 127 << 16,
        ..entry(admin::GET_LOG_PAGE, u32::MAX)
    };
    let held = rig.subsystem.device();
    client
        .admin(|queue| queue.send_only(&Call::receiving(smart, 512)))
        .expect("sent");
    let read = client.rw(io::READ, 0, 0);
    client
        .queue(|queue| queue.send_only(&Call::receiving(read, PAGE)))
        .expect("sent");
    let alive = Call::new(entry(admin::KEEP_ALIVE, 0));
    for _ in 0..20 {
        client.admin(|queue| queue.send_only(&alive)).expect("sent");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(held);

    std::thread::sleep(Duration::from_millis(100));
    client.admin(|queue| queue.send_only(&alive)).expect("sent");
    std::thread::sleep(Duration::from_millis(400));
    let lines = rig.lines.0.lock().expect("nothing fails here").clone();
    assert!(
        !lines.iter().any(|line| line.contains("nothing was heard")),
        "{lines:?}"
    );
}

#[test]
fn a_silent_host_is_given_up() {
    let rig = rig(Limits::default());
    let mut client = host(&rig, "silent");
    let mut sqe = entry(admin::SET_FEATURES, 0);
    sqe.cdw10 = FeatureCdw10::new().with_fid(0x0f).into_bits();
    sqe.cdw11 = 100;
    client
        .admin(|queue| queue.call("keep alive of 100 ms", &Call::new(sqe)))
        .expect("served");
    let began = Instant::now();
    let lines = || rig.lines.0.lock().expect("nothing fails here").clone();
    while lines().iter().filter(|line| line.contains("ended")).count() < 2 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "both of its queues end: {:?}",
            lines()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_host_connects_while_the_device_is_busy() {
    let rig = rig(Limits {
        connect_within: Duration::from_millis(300),
        ..Limits::default()
    });
    let held = rig.subsystem.device();
    // All of them have waited for a second when the device is free again.
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let options = Options {
                hostnqn: format!("nqn.2026-11.test:new-{index}"),
                subnqn: Some(kit::NQN.into()),
                ..Options::default()
            };
            let address = rig.address;
            std::thread::spawn(move || {
                Client::connect(address, options).map(|mut client| client.read(0, 1).is_ok())
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    drop(held);
    for thread in threads {
        assert!(thread.join().expect("no panic").expect("it is let in"));
    }
}
