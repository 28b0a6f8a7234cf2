//! `kill -9` of programs that use SQLite with the extension, and of the server of their device.
//!
//! Programs and server are processes: this binary, run again. A program loads the extension into
//! the system's SQLite, writes transactions to one database, together with other programs, and
//! reports the transactions acknowledged by SQLite on a pipe. At random moments one of them gets
//! SIGKILL, or all, or the server, which restarts at the same port. The database must always be
//! whole, with all that was acknowledged, and no partial transaction.
//!
//! `KILL_ROUNDS` is the number of kills in each test (a few if not set), `KILL_SEED` chooses the
//! moments, which are only as reproducible as the machine's timing.

mod processes;
mod programs;

use crate::kit::engine::{Db, start_with_vfs};
use processes::{Server, Writer};
use programs::{Job, check};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::Disk;
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_store::{NewVolume, Processes, Volume, uuid_text};
use std::time::{Duration, Instant};

type Random = Xoshiro256PlusPlus;

/// Timeout for a writer's next transaction.
const WORK_WITHIN: Duration = Duration::from_secs(600);

const MODES: [&str; 4] = ["WAL", "DELETE", "TRUNCATE", "PERSIST"];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

fn seed() -> u64 {
    number("KILL_SEED").unwrap_or(20_261_123)
}

/// A served device with a database written by several programs.
struct Rig {
    _dir: tempfile::TempDir,
    server: Option<Server>,
    disk: String,
    job: Job,
    writers: Vec<Option<Writer>>,
    acknowledged: Vec<u64>,
    random: Random,
}

/// Totals of all rounds.
#[derive(Default)]
struct Tally {
    kills: u64,
    acknowledged: u64,
    connected_again: u64,
}

impl Rig {
    fn new(mode: &str, synchronous: &str, writers: usize, seed: u64) -> Self {
        start_with_vfs();
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("disk");
        Server::create(&folder);
        let server = Server::start(&folder, None);
        let disk = Client::connect(server.address, Options::default()).expect("it serves");
        let identity = uuid_text(&disk.identity().expect("served namespaces have one"));
        let volume = Volume::create(
            disk,
            &Processes::local(),
            &NewVolume::default(),
            &mut |_, _| {},
        );
        drop(volume.expect("it is blank"));

        let job = Job {
            address: server.address,
            mode: mode.into(),
            synchronous: synchronous.into(),
            writer: 0,
        };
        let mut rig = Self {
            _dir: dir,
            server: Some(server),
            disk: identity,
            job,
            writers: Vec::new(),
            acknowledged: vec![0; writers],
            random: Random::seed_from_u64(seed),
        };
        rig.job.make(writers);
        rig.writers = (0..writers).map(|writer| Some(rig.start(writer))).collect();
        rig
    }

    fn start(&self, writer: usize) -> Writer {
        Writer::start(&Job {
            writer,
            ..self.job.clone()
        })
    }

    fn wait(&mut self, milliseconds: std::ops::Range<u64>) {
        std::thread::sleep(Duration::from_millis(
            self.random.random_range(milliseconds),
        ));
    }

    /// Waits for work, except one time in four: then a new writer is killed at its start.
    fn perhaps_wait_for_work(&mut self) {
        if !self.random.random_ratio(1, 4) {
            self.wait_for_work();
        }
    }

    /// Waits until a writer has done a transaction since the last check, however slow the machine
    /// is.
    fn wait_for_work(&self) {
        let until = Instant::now() + WORK_WITHIN;
        let both = || self.writers.iter().flatten().zip(&self.acknowledged);
        while !both().any(|(writer, known)| writer.acknowledged() > *known) {
            assert!(Instant::now() < until, "no writer works");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills a writer. Its acknowledged transactions are known only then: its last line may be in
    /// the pipe.
    fn kill(&mut self, writer: usize, tally: &mut Tally) {
        let ended = self.writers[writer].take().expect("it runs").kill();
        self.acknowledged[writer] = self.acknowledged[writer].max(ended.acknowledged);
        tally.kills += 1;
        tally.connected_again += ended.connected_again;
    }

    /// Checks the database during concurrent writes.
    fn check(&mut self, tally: &mut Tally) {
        for (writer, acknowledged) in self.writers.iter().zip(&mut self.acknowledged) {
            *acknowledged = (*acknowledged).max(writer.as_ref().map_or(0, Writer::acknowledged));
        }
        let db = Db::open(&self.job.uri()).expect("the device is served");
        let found = check(&db, &self.acknowledged)
            .unwrap_or_else(|wrong| panic!("{:?}: {wrong}", self.job));
        tally.acknowledged = found;
    }

    /// Kills a writer, or all of them, and checks.
    fn round(&mut self, tally: &mut Tally) {
        self.perhaps_wait_for_work();
        self.wait(5..200);
        let count = self.writers.len();
        let all = self.random.random_ratio(1, 4);
        let one = self.random.random_range(0..count);
        let chosen = if all { 0..count } else { one..one + 1 };
        for writer in chosen.clone() {
            self.kill(writer, tally);
        }
        self.check(tally);
        for writer in chosen {
            self.writers[writer] = Some(self.start(writer));
        }
    }

    /// Kills the server, perhaps once more during its recovery, and checks.
    fn server_round(&mut self, tally: &mut Tally) {
        self.perhaps_wait_for_work();
        self.wait(100..500);
        let folder = self._dir.path().join("disk");
        let address = self.job.address;
        self.server.take().expect("it serves").kill();
        tally.kills += 1;
        if self.random.random_ratio(1, 4) {
            Server::start_and_kill(
                &folder,
                address,
                Duration::from_millis(self.random.random_range(0..60)),
            );
        }
        self.wait(0..50);
        self.server = Some(Server::start(&folder, Some(address)));
        self.check(tally);
    }

    /// Ends after a writer has worked since the last kill.
    fn end(mut self, tally: &mut Tally) {
        self.wait_for_work();
        for writer in 0..self.writers.len() {
            self.kill(writer, tally);
        }
        self.check(tally);
        self.server.take().expect("it serves").kill();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // This disk has no other users: locks and folders left over are those of killed writers.
        let Processes::Several(folder) = Processes::local() else {
            unreachable!("several processes of this user")
        };
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.disk) {
                let _ = std::fs::remove_dir_all(entry.path())
                    .or_else(|_| std::fs::remove_file(entry.path()));
            }
        }
    }
}

#[test]
fn what_sqlite_acknowledged_survives_killed_writers() {
    let mut tally = Tally::default();
    let wanted = number("KILL_ROUNDS").unwrap_or(24);
    let mut turn = 0;
    while tally.kills < wanted {
        let mode = MODES[turn % 4];
        let writers = [4, 1][turn / 4 % 2];
        let synchronous = ["NORMAL", "OFF", "FULL"][turn % 3];
        let mut rig = Rig::new(mode, synchronous, writers, seed() + turn as u64);
        let mut one = Tally::default();
        for _ in 0..(wanted / 8).clamp(1, 25) {
            rig.round(&mut one);
        }
        rig.end(&mut one);
        println!(
            "{mode} at {synchronous}, {writers} writers: {} kills, {} transactions",
            one.kills, one.acknowledged
        );
        assert!(one.acknowledged > 0, "no kill has met a writer at work");
        tally.kills += one.kills;
        tally.acknowledged += one.acknowledged;
        turn += 1;
    }
    println!(
        "{} kills of writers, {} transactions acknowledged",
        tally.kills, tally.acknowledged
    );
}

#[test]
fn what_sqlite_acknowledged_survives_a_killed_server() {
    let mut tally = Tally::default();
    // Each mode with four writers and with one.
    let rigs = 2 * MODES.len() as u64;
    let rounds = number("KILL_ROUNDS").unwrap_or(0).div_ceil(rigs).max(1);
    for turn in 0..rigs as usize {
        let (mode, writers) = (MODES[turn % 4], [4, 1][turn / 4]);
        let synchronous = ["NORMAL", "FULL"][turn / 2 % 2];
        let mut rig = Rig::new(mode, synchronous, writers, seed() + turn as u64);
        let mut one = Tally::default();
        for _ in 0..rounds {
            rig.server_round(&mut one);
        }
        let kills = one.kills;
        rig.end(&mut one);
        let Tally {
            acknowledged,
            connected_again,
            ..
        } = one;
        println!(
            "{mode} at {synchronous}, {writers} writers: {kills} kills of the server, {acknowledged} transactions, \
             {connected_again} connections anew"
        );
        assert!(acknowledged > 0, "no kill has met a writer at work");
        tally.kills += kills;
        tally.connected_again += connected_again;
    }
    println!(
        "{} kills of the server, {} times a writer connected again",
        tally.kills, tally.connected_again
    );
    assert!(
        tally.connected_again > 0,
        "no writer has met a server that was gone"
    );
}

/// Not a test: the entry point of the processes.
#[test]
#[ignore = "a part for the processes that other tests start"]
fn process() {
    processes::play();
}
