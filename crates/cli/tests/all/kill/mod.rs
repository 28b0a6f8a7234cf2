//! `kill -9` of a server under load: acknowledged data survive, all else is old or new page by
//! page.
//!
//! The real program serves a device in a folder. Several hosts, each with its own part of the
//! device, write, copy, relocate, trim and flush, and remember acknowledged data. At a random
//! moment the server gets SIGKILL, sometimes again during recovery; then every page is read and
//! compared with its possible contents.
//!
//! A device with a volatile write buffer may lose writes that were not flushed, so long as the server
//! does not shut down cleanly. Deduplicating disks are tested on a server that is killed, and are
//! also dropped at random moments themselves (`dedup.rs`).
//!
//! `KILL_ROUNDS` is the number of kills of each of the two main tests (20 if not set); `KILL_SEED`
//! determines the commands and the moments, as precisely as the machine's clock allows.

mod dedup;
pub mod host;

use crate::kit::{path, run};
use crate::served::{serve, serve_and_kill};
use host::{Cache, Contents, Host, Numbers};
use remap_ssd_ftl::SchemeKind;
use std::path::Path;
use std::time::Duration;

/// Pages of the device: few, so that all are written and garbage collection runs all the time.
const PAGES: u64 = 8192;
const HOSTS: usize = 4;

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Kill,
    /// SIGUSR2: the power is cut.
    Cut,
    /// SIGTERM.
    Stop,
}

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
    fn new(options: &str, contents: Contents, caches: [Cache; HOSTS]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let image = path(dir.path(), "disk");
        let size = PAGES * 4;
        run(&format!("image create {image} --size {size}KiB {options}")).ok();
        let seed = number("KILL_SEED").unwrap_or(20_261_122);
        let mut numbers = Numbers(seed);
        let part = PAGES / HOSTS as u64;
        let host = |(index, cache)| {
            let first = index * part;
            Host::new(first..first + part, contents, cache, numbers.next())
        };
        let hosts = (0..).zip(caches).map(host).collect();
        Self {
            _dir: dir,
            image,
            hosts,
            numbers,
            seed,
        }
    }

    /// Hosts work on a server for a while, and it ends; returns the number of commands acknowledged.
    fn load(&mut self, wait: Duration, end: End) -> u64 {
        let server = serve(&["--image", &self.image]);
        let address = server.address();
        std::thread::scope(|scope| {
            let hosts: Vec<_> = self
                .hosts
                .iter_mut()
                .map(|host| scope.spawn(move || host.work(address)))
                .collect();
            std::thread::sleep(wait);
            match end {
                End::Kill => server.kill(),
                End::Cut => server.stop_with("USR2"),
                End::Stop => server.stop(),
            }
            let ended = hosts
                .into_iter()
                .map(|host| host.join().expect("no host has failed"));
            ended.sum()
        })
    }

    /// Serves an image and compares all pages; returns the violations.
    fn compare(&mut self, image: &str, then: End) -> Vec<String> {
        let server = serve(&["--image", image]);
        let mut client = server.host();
        let hosts = self.hosts.iter_mut();
        let wrong = hosts.flat_map(|host| host.compare(&mut client)).collect();
        drop(client);
        match then {
            End::Stop => server.stop(),
            _ => server.kill(),
        }
        wrong
    }

    /// One round: a load, an end of the server, perhaps a kill during recovery; returns the
    /// violations.
    fn round(&mut self, round: u64, end: End, tally: &mut Tally) -> Vec<String> {
        let wait = Duration::from_micros(20_000 + self.numbers.below(400_000));
        tally.commands += self.load(wait, end);
        tally.under_way += self.hosts.iter().filter(|host| host.is_in_doubt()).count() as u64;
        tally.copies_under_way +=
            self.hosts.iter().filter(|host| host.was_copying()).count() as u64;
        if end == End::Stop {
            self.hosts.iter_mut().for_each(Host::settle);
        }

        if round % 4 == 1 {
            let after = Duration::from_micros(self.numbers.below(60_000));
            serve_and_kill(&["--image", &self.image], after);
            tally.recoveries_killed += 1;
        }
        // What recovery has found must survive another kill.
        let then = if round.is_multiple_of(2) {
            End::Kill
        } else {
            End::Stop
        };
        self.compare(&self.image.clone(), then)
    }

    /// Kills the server this many times; `others` are further ends of it, in every second round.
    fn rounds(&mut self, rounds: u64, others: &[End]) -> Tally {
        let mut tally = Tally::default();
        let mut others = others.iter().cycle();
        for round in 0..rounds {
            let other = if round % 2 == 0 { others.next() } else { None };
            for end in [End::Kill].iter().chain(other) {
                let wrong = self.round(round, *end, &mut tally);
                let seed = self.seed;
                assert!(
                    wrong.is_empty(),
                    "seed {seed}, round {round}, {end:?}: {} pages:\n{}",
                    wrong.len(),
                    wrong.join("\n")
                );
            }
        }
        println!(
            "{rounds} kills, {} commands acknowledged; under way at an end: {} commands, {} of them copies; {} recoveries \
             were killed too",
            tally.commands, tally.under_way, tally.copies_under_way, tally.recoveries_killed
        );
        assert!(
            rounds < 20 || (tally.under_way > rounds && tally.copies_under_way > 0),
            "kills met commands under way"
        );
        tally
    }
}

#[test]
fn a_killed_server_has_kept_all_that_it_acknowledged() {
    Rig::new("--dedup off", Contents::New, [Cache::Absent; HOSTS]).rounds(rounds(), &[]);
}

#[test]
fn a_killed_server_has_kept_all_that_it_acknowledged_with_deduplication_on() {
    Rig::new("--dedup on", Contents::Few, [Cache::Absent; HOSTS]).rounds(rounds(), &[]);
}

#[test]
fn a_killed_server_has_kept_what_was_flushed_from_its_volatile_write_buffer() {
    let buffer = "--set firmware.write_buffer_bytes=4MiB,firmware.power_loss_protection=false";
    let caches = [Cache::On, Cache::On, Cache::On, Cache::Off];
    let mut rig = Rig::new(buffer, Contents::New, caches);
    rig.rounds(rounds(), &[End::Stop, End::Cut]);

    let older: u64 = rig.hosts.iter().map(|host| host.older).sum();
    println!("{older} pages were older than acknowledged");
    assert!(older > 0, "the buffer was never lost");
}

#[test]
fn other_schemes_keep_what_they_acknowledged() {
    let others = |scheme: &SchemeKind| {
        scheme.is_durable() && !scheme.uses_hints() && *scheme != SchemeKind::RemapSsd
    };
    for scheme in SchemeKind::ALL.into_iter().filter(others) {
        println!("{scheme}:");
        let options = format!("--scheme {scheme} --dedup on");
        Rig::new(&options, Contents::Few, [Cache::Absent; HOSTS])
            .rounds(rounds().div_ceil(10), &[]);
    }
}

/// The comparison detects a device that has returned to its state before the last round.
#[test]
fn a_device_that_forgets_is_caught() {
    let mut rig = Rig::new("--dedup on", Contents::Few, [Cache::Absent; HOSTS]);
    let image = Path::new(&rig.image);
    let earlier = image.with_file_name("earlier");
    std::fs::create_dir(&earlier).expect("a new folder");
    for file in std::fs::read_dir(image).expect("a folder") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), earlier.join(file.file_name())).expect("there is room");
    }

    assert!(rig.load(Duration::from_millis(300), End::Kill) > 0);
    let missed = rig.compare(earlier.to_str().expect("text"), End::Kill);
    assert!(!missed.is_empty(), "nothing was missed");
}
