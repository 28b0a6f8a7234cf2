//! `kill -9` of a server under load: acknowledged data survive, all else is old or new page by
//! page.
//!
//! Devices whose write buffer is volatile have an oracle of their own (`buffer.rs`). Deduplicating disks are tested on a server that is killed, and are also dropped at random
//! moments themselves (`dedup.rs`).
//!
//! The real program serves a device in a folder. Several hosts, each with its own part of the
//! device, write, copy, relocate, trim and flush, and remember acknowledged data. At a random
//! moment the server gets SIGKILL, sometimes again during recovery; then every page is read and
//! compared with its possible contents.
//!
//! `KILL_ROUNDS` is the number of kills of each of the two main tests (20 if not set); `KILL_SEED`
//! determines the commands and the moments, as precisely as the machine's clock allows.

mod buffer;
mod dedup;
pub mod host;
mod server;

use host::{Host, Numbers};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::tcp::client::{Client, Options};
use server::Server;
use std::path::Path;
use std::time::Duration;

/// Pages of the device: few, so that all are written and garbage collection runs all the time.
const PAGES: u64 = 8192;
const HOSTS: u64 = 4;

/// An image and the hosts that use it.
struct Rig {
    _dir: tempfile::TempDir,
    image: String,
    hosts: Vec<Host>,
    numbers: Numbers,
    seed: u64,
}

/// Totals of commands and kills.
#[derive(Default)]
struct Tally {
    commands: u64,
    under_way: u64,
    copies_under_way: u64,
    recoveries_killed: u64,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

fn rounds() -> u64 {
    number("KILL_ROUNDS").unwrap_or(20)
}

impl Rig {
    fn new(options: &[&str], few_contents: bool) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let image = dir.path().join("disk").to_str().expect("text").to_owned();
        server::create(
            Path::new(&image),
            &[&["--size", &format!("{}KiB", PAGES * 4)], options].concat(),
        );
        let seed = number("KILL_SEED").unwrap_or(20_261_122);
        let mut numbers = Numbers(seed);
        let part = PAGES / HOSTS;
        let host = |index| Host::new(index * part, part, few_contents, numbers.next());
        let hosts = (0..HOSTS).map(host).collect();
        Self {
            _dir: dir,
            image,
            hosts,
            numbers,
            seed,
        }
    }

    /// One round: a load, a kill, perhaps another one; returns the violations.
    fn round(&mut self, round: u64, tally: &mut Tally) -> Vec<String> {
        let server = Server::start(&self.image);
        let wait = Duration::from_micros(20_000 + self.numbers.below(400_000));
        let address = server.address;
        std::thread::scope(|scope| {
            let hosts: Vec<_> = self
                .hosts
                .iter_mut()
                .map(|host| scope.spawn(move || host.work(address)))
                .collect();
            std::thread::sleep(wait);
            server.kill();
            for host in hosts {
                tally.commands += host.join().expect("no host has failed");
            }
        });
        tally.under_way += self.hosts.iter().filter(|host| host.is_in_doubt()).count() as u64;
        tally.copies_under_way +=
            self.hosts.iter().filter(|host| host.was_copying()).count() as u64;
        if round % 4 == 1 {
            Server::start_and_kill(
                &self.image,
                Duration::from_micros(self.numbers.below(60_000)),
            );
            tally.recoveries_killed += 1;
        }
        let server = Server::start(&self.image);
        let mut client = Client::connect(server.address, Options::default()).expect("it serves");
        let wrong = self
            .hosts
            .iter_mut()
            .flat_map(|host| host.compare(&mut client))
            .collect();
        drop(client);
        server.stop();
        wrong
    }

    fn rounds(&mut self, rounds: u64) -> Tally {
        let mut tally = Tally::default();
        for round in 0..rounds {
            let wrong = self.round(round, &mut tally);
            let seed = self.seed;
            assert!(
                wrong.is_empty(),
                "seed {seed}, round {round}: {} pages:\n{}",
                wrong.len(),
                wrong.join("\n")
            );
        }
        println!(
            "{rounds} kills, {} commands acknowledged; under way at a kill: {} commands, {} of them copies; {} recoveries \
             were killed too",
            tally.commands, tally.under_way, tally.copies_under_way, tally.recoveries_killed
        );
        tally
    }
}

#[test]
fn a_killed_server_has_kept_all_that_it_acknowledged() {
    let rounds = rounds();
    let tally = Rig::new(&["--dedup", "off"], false).rounds(rounds);
    assert!(
        rounds < 20 || (tally.under_way > rounds && tally.copies_under_way > 0),
        "kills met commands under way"
    );
}

#[test]
fn a_killed_server_has_kept_all_that_it_acknowledged_with_deduplication_on() {
    let rounds = rounds();
    let tally = Rig::new(&["--dedup", "on"], true).rounds(rounds);
    assert!(
        rounds < 20 || (tally.under_way > rounds && tally.copies_under_way > 0),
        "kills met commands under way"
    );
}

#[test]
fn other_schemes_keep_what_they_acknowledged() {
    let others = |scheme: &SchemeKind| {
        scheme.is_durable() && !scheme.uses_hints() && *scheme != SchemeKind::RemapSsd
    };
    for scheme in SchemeKind::ALL.into_iter().filter(others) {
        println!("{scheme}:");
        Rig::new(&["--scheme", scheme.name(), "--dedup", "on"], true).rounds(rounds().div_ceil(10));
    }
}

/// The comparison detects a device that has returned to its state before the last round.
#[test]
fn a_device_that_forgets_is_caught() {
    let mut rig = Rig::new(&["--dedup", "on"], true);
    let image = Path::new(&rig.image).to_owned();
    let earlier = image.with_file_name("earlier");
    server::copy(&image, &earlier);
    let server = Server::start(&rig.image);
    let address = server.address;
    std::thread::scope(|scope| {
        let hosts: Vec<_> = rig
            .hosts
            .iter_mut()
            .map(|host| scope.spawn(move || host.work(address)))
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        server.kill();
        assert!(
            hosts
                .into_iter()
                .map(|host| host.join().expect("no host has failed"))
                .sum::<u64>()
                > 0
        );
    });
    let server = Server::start(earlier.to_str().expect("text"));
    let mut client = Client::connect(server.address, Options::default()).expect("it serves");
    let missed: Vec<_> = rig
        .hosts
        .iter_mut()
        .flat_map(|host| host.compare(&mut client))
        .collect();
    assert!(!missed.is_empty(), "nothing was missed");
    server.kill();
}
