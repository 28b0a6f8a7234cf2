//! What a host notices of other hosts' long commands, how long one command takes at most, and how
//! fast forced writes are.
//!
//! ```sh
//! cargo bench -p remap-ssd-nvme --bench under_attack                 # a minute
//! cargo bench -p remap-ssd-nvme --bench under_attack -- forced       # one part: reads, commands, forced
//! ```
//! The device is in a folder in the temporary directory, `TMPDIR`. Figures only: bounds that hold
//! on any machine are in `tests/fairness.rs`, and throughput is `remap-ssd bench --service`.

#[path = "../tests/kit/mod.rs"]
mod kit;

use kit::Rig;
use kit::numbers::Numbers;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{NamespaceSpec, VERIFY_BYTES_MAX, copy_blocks_max};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, DsmCdw11, DsmRange, RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::tcp::client::{Call, Client, Options, Queue, entry};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const PAGE: usize = 4096;
const BYTES: u64 = 1 << 30;
const PAGES: u32 = (BYTES / PAGE as u64) as u32;
/// Blocks of 4 KiB of one Verify, less one.
const VERIFIED: u16 = (VERIFY_BYTES_MAX / PAGE as u64 - 1) as u16;
const LASTS: Duration = Duration::from_secs(6);

/// A device in a folder, so that forced writes reach a disk.
fn rig(dir: &tempfile::TempDir, lba_shift: u8) -> Rig {
    let config = DeviceConfig::for_service(BYTES, SchemeKind::default(), false).expect("possible");
    let device =
        Device::create_in_folder(&dir.path().join("device"), config, None).expect("there is room");
    Rig::with(
        device,
        &[NamespaceSpec {
            pages: PAGES,
            lba_shift,
        }],
    )
}

fn host(rig: &Rig, name: &str) -> Client {
    let options = Options {
        hostnqn: format!("nqn.2026-11.test:{name}"),
        subnqn: Some(kit::NQN.into()),
        ..Options::default()
    };
    Client::connect(rig.address, options).expect("it listens")
}

/// Commands that one queue sends again and again, keeping some outstanding.
struct Attack {
    name: &'static str,
    lba_shift: u8,
    sqe: Sqe,
    data: Vec<u8>,
    depth: usize,
    connections: u16,
}

fn attacks() -> Vec<Attack> {
    let half = PAGES / 2;
    let copy = |target: u32| {
        let mut sqe = entry(io::COPY, 1);
        (sqe.cdw10, sqe.cdw12) = (target, CopyCdw12::new().with_nr_z(0).into_bits());
        sqe
    };
    let whole =
        |first: u64, lba_shift: u8| CopyRange::new(first, (copy_blocks_max(lba_shift) - 1) as u16);
    let (same, crooked) = (whole(0, 12), whole(1, 9));

    let mut verify = entry(io::VERIFY, 1);
    verify.cdw12 = RwCdw12::new().with_nlb_z(VERIFIED).into_bits();
    let mut trim = entry(io::DATASET_MANAGEMENT, 1);
    trim.cdw11 = DsmCdw11::new().with_ad(true).into_bits();
    let upper = DsmRange {
        attributes: 0,
        blocks: half,
        slba: half.into(),
    };

    let copies = |name, connections, depth| Attack {
        name,
        lba_shift: 12,
        sqe: copy(half),
        data: same.as_bytes().to_vec(),
        depth,
        connections,
    };

    vec![
        Attack {
            name: "nothing",
            lba_shift: 12,
            sqe: verify,
            data: Vec::new(),
            depth: 0,
            connections: 0,
        },
        copies("100 Copies of 16 MiB from one page", 1, 100),
        copies("the same on 16 connections", 16, 100),
        Attack {
            name: "100 misaligned Copies of 16 MiB, 512-byte blocks",
            lba_shift: 9,
            sqe: copy(half * 8),
            data: crooked.as_bytes().to_vec(),
            depth: 100,
            connections: 1,
        },
        Attack {
            name: "100 Verifies of 16 MiB",
            lba_shift: 12,
            sqe: verify,
            data: Vec::new(),
            depth: 100,
            connections: 1,
        },
        Attack {
            name: "100 trims of 0.5 GiB",
            lba_shift: 12,
            sqe: trim,
            data: upper.as_bytes().to_vec(),
            depth: 100,
            connections: 1,
        },
    ]
}

/// Gives the lower half of the device to one page, as far as its counter goes, by doubling.
fn prepare(rig: &Rig) {
    let mut client = host(rig, "attacker");
    let blocks = 1u64 << (12 - client.lba_shift());
    client.write(0, &[7; PAGE]).expect("served");
    let mut have = 1;
    while have < u64::from(PAGES / 2) {
        client
            .copy(0, have * blocks, have * blocks)
            .expect("served");
        have *= 2;
    }
}

fn main() {
    // Cargo passes `--bench`.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let parts: [(&str, fn()); 3] = [
        ("reads", reads_beside_long_commands),
        ("commands", one_command_at_its_limits),
        ("forced", forced_writes_a_second),
    ];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}

/// Sends an attack's commands on one queue until it is over; how many.
fn repeat(mut queue: Queue, attack: &Attack, over: &AtomicBool) -> usize {
    let call = Call::sending(attack.sqe, &attack.data);
    let mut commands = 0;
    while !over.load(Ordering::SeqCst) {
        let Ok(answers) = queue.calls(&vec![call; attack.depth]) else {
            break;
        };
        assert!(answers.iter().all(|answer| answer.status.is_success()));
        commands += answers.len();
    }
    commands
}

/// How long one read after the other takes while other queues send long commands.
fn reads_beside_long_commands() {
    for attack in attacks() {
        let dir = tempfile::tempdir().expect("a folder");
        let rig = rig(&dir, attack.lba_shift);
        prepare(&rig);

        let mut reader = host(&rig, "reader");
        let over = AtomicBool::new(false);
        let mut took = Vec::new();
        let commands: usize = std::thread::scope(|scope| {
            let client = host(&rig, "attacker");
            let queues = (0..attack.connections)
                .map(|index| client.another_queue(index + 2).expect("within its share"));
            let (attack, over) = (&attack, &over);
            let threads: Vec<_> = queues
                .map(|queue| scope.spawn(move || repeat(queue, attack, over)))
                .collect();
            std::thread::sleep(Duration::from_millis(200));

            let (began, mut numbers) = (Instant::now(), Numbers(1));
            while began.elapsed() < LASTS {
                let block = numbers.below(u64::from(PAGES)) << (12 - attack.lba_shift);
                let one = Instant::now();
                reader
                    .read(block, 1)
                    .expect("it is neither dropped nor reset");
                took.push(one.elapsed());
            }

            over.store(true, Ordering::SeqCst);
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });

        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!(
            "{:<50} {commands:>6} commands, {:>7} reads, ms: median {:.3}, 99 % {:.3}, 99.9 % {:.3}, longest {:.3}",
            attack.name,
            took.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
        );
        drop(reader);
        rig.stop();
    }
}

/// Sends a command three times and prints how long each took.
fn timed(client: &mut Client, what: &str, call: &Call<'_>) {
    let took = [(); 3].map(|()| {
        let began = Instant::now();
        client
            .queue(|queue| queue.call("timed", call))
            .expect("served");
        format!("{:.1}", began.elapsed().as_secs_f64() * 1e3)
    });
    println!("{what}: {} ms", took.join(", "));
}

/// How long the longest command of each kind takes, alone.
fn one_command_at_its_limits() {
    for (name, shift) in [("from one page", 12), ("misaligned", 9)] {
        let dir = tempfile::tempdir().expect("a folder");
        let rig = rig(&dir, shift);
        prepare(&rig);

        let mut client = host(&rig, "one");
        let attacks = attacks();
        let attack = attacks
            .iter()
            .find(|attack| attack.lba_shift == shift && attack.depth > 3)
            .expect("there is one");
        let copy = Call::sending(attack.sqe, &attack.data);
        timed(&mut client, &format!("Copy {name}"), &copy);

        if shift == 12 {
            // Pages of their own: what a Copy ordinarily is.
            for first in (0..u64::from(PAGES / 2)).step_by(256) {
                let data: Vec<u8> = (0..256 * PAGE)
                    .map(|at| (at / PAGE) as u8 ^ first as u8)
                    .collect();
                client.write(first, &data).expect("served");
            }
            // Other pages each time: to copy the same ones again changes nothing.
            for first in [0, 1, 2].map(|nth| nth * copy_blocks_max(12)) {
                let began = Instant::now();
                client
                    .copy(
                        first.into(),
                        (PAGES / 2 + first).into(),
                        copy_blocks_max(12).into(),
                    )
                    .expect("served");
                println!(
                    "Copy of pages written one by one: {:.1} ms",
                    began.elapsed().as_secs_f64() * 1e3
                );
            }
        }

        let verified = client.rw(io::VERIFY, 0, ((VERIFY_BYTES_MAX >> shift) - 1) as u16);
        timed(&mut client, "Verify", &Call::new(verified));

        let blocks = (1 << (20 - shift)) - 1;
        let data = vec![9; 1 << 20];
        let (written, compared) = (
            client.rw(io::WRITE, 0, blocks),
            client.rw(io::COMPARE, 0, blocks),
        );
        timed(
            &mut client,
            "Write of 1 MiB",
            &Call::sending(written, &data),
        );
        timed(
            &mut client,
            "Compare of 1 MiB",
            &Call::sending(compared, &data),
        );

        let zeroed = client.rw(io::WRITE_ZEROES, u64::from(PAGES / 4) + 1, u16::MAX);
        timed(
            &mut client,
            "Write Zeroes of 65,536 blocks",
            &Call::new(zeroed),
        );

        let range = DsmRange {
            attributes: 0,
            blocks: PAGES << (12 - shift),
            slba: 0,
        };
        let mut sqe = entry(io::DATASET_MANAGEMENT, 1);
        sqe.cdw11 = DsmCdw11::new().with_ad(true).into_bits();
        timed(
            &mut client,
            "trim of 1 GiB",
            &Call::sending(sqe, range.as_bytes()),
        );
        // As much as one command may name, in ranges of 1 GiB: the same ones again, since the
        // device is no larger.
        let ranges = vec![range; 16];
        sqe.cdw10 = 15;
        timed(
            &mut client,
            "trim of 16 GiB",
            &Call::sending(sqe, ranges.as_bytes()),
        );
        drop(client);
        rig.stop();
    }
}

/// Writes random blocks with FUA, `depth` at a time, until the time is over; how many.
fn force_writes(mut client: Client, seed: u16, depth: u32, began: Instant) -> usize {
    let (data, mut numbers, mut writes) = ([seed as u8 | 1; PAGE], Numbers(seed.into()), 0);
    while began.elapsed() < LASTS / 2 {
        let mut forced = || {
            let mut sqe = client.rw(io::WRITE, numbers.below(PAGES.into()), 0);
            sqe.cdw12 = RwCdw12::new().with_fua(true).into_bits();
            Call::sending(sqe, &data[..])
        };
        let calls: Vec<Call<'_>> = (0..depth).map(|_| forced()).collect();
        writes += client
            .queue(|queue| queue.calls(&calls))
            .expect("served")
            .len();
    }
    writes
}

fn forced_writes_a_second() {
    for (connections, depth) in [(1u16, 32u32), (8, 4), (32, 1), (1, 1)] {
        let dir = tempfile::tempdir().expect("a folder");
        let rig = rig(&dir, 12);

        let began = Instant::now();
        let writes: usize = std::thread::scope(|scope| {
            let clients =
                (0..connections).map(|index| (index, host(&rig, &format!("host-{index}"))));
            let threads: Vec<_> = clients
                .map(|(index, client)| {
                    scope.spawn(move || force_writes(client, index, depth, began))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        let rate = writes as f64 / began.elapsed().as_secs_f64();
        println!(
            "{connections} connections, {depth} writes with FUA in flight on each: {rate:.0} a second"
        );
        rig.stop();
    }
}
