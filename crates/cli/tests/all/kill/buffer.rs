//! A server with a volatile write buffer is killed, stopped or cut while hosts write: what was flushed or forced is there,
//! each other page is one of its versions since then, and an orderly end loses nothing.
//!
//! Each host has its own part of the device, and at most one command in progress. Copies, remaps and trims are durable when
//! they are acknowledged, as are all commands of a host that has switched the write cache off.

use super::host::{Numbers, PAGE_BYTES, fill, holds};
use super::server::{self, Server};
use super::{HOSTS, PAGES, number, rounds};
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::tcp::client::{Call, Client, ClientError, Options, entry};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The feature Volatile Write Cache.
const WRITE_CACHE: u32 = 6;
/// Most pages of a command: several slices of the device.
const LEN_MAX: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Write,
    ForcedWrite,
    Copy,
    Relocate,
    Trim,
    Flush,
}

/// A command on pages of a host's part.
#[derive(Clone, Copy, Debug)]
struct Command {
    kind: Kind,
    at: usize,
    len: usize,
    /// The first source, or the first content.
    from: u64,
}

struct Host {
    first: u64,
    /// What each page may hold after a cut; the last is what it holds now.
    pages: Vec<Vec<u64>>,
    doubt: Option<Command>,
    has_cache: bool,
    numbers: Numbers,
    next_content: u64,
    /// Pages that were older than their newest version after a cut.
    older: u64,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Kill,
    /// SIGUSR2: the power is cut.
    Cut,
    /// SIGTERM.
    Stop,
}

impl Host {
    fn new(first: u64, pages: u64, has_cache: bool, seed: u64) -> Self {
        Self {
            first,
            pages: vec![vec![0]; pages as usize],
            doubt: None,
            has_cache,
            numbers: Numbers(seed),
            next_content: (first + 1) << 32,
            older: 0,
        }
    }

    fn now(&self, page: usize) -> u64 {
        *self.pages[page].last().expect("a page holds something")
    }

    fn choose(&mut self) -> Command {
        let all = self.pages.len() as u64;
        let numbers = &mut self.numbers;
        let kind = match numbers.below(40) {
            0..=23 => Kind::Write,
            24..=27 => Kind::ForcedWrite,
            28..=31 => Kind::Copy,
            32..=34 => Kind::Relocate,
            35..=37 => Kind::Trim,
            _ => Kind::Flush,
        };
        let longest = [4, 30, LEN_MAX][numbers.below(3) as usize];
        let len = 1 + numbers.below(longest);
        // Sources and targets are apart: a cut between steps leaves each page old or new.
        let half = all / 2;
        let at = numbers.below(half - len + 1);
        let from = half + numbers.below(half - len + 1);
        let (at, from) = if numbers.below(2) == 0 {
            (at, from)
        } else {
            (from, at)
        };
        let from = match kind {
            Kind::Write | Kind::ForcedWrite => {
                self.next_content += len;
                self.next_content
            }
            _ => from,
        };
        Command {
            kind,
            at: at as usize,
            len: len.min(if kind == Kind::Relocate { 60 } else { len }) as usize,
            from,
        }
    }

    fn send(&self, client: &mut Client, command: Command) -> Result<(), ClientError> {
        let Command {
            kind,
            at,
            len,
            from,
        } = command;
        let lba = self.first + at as u64;
        match kind {
            Kind::Write | Kind::ForcedWrite => {
                let mut data = vec![0; len * PAGE_BYTES];
                let pages = data.chunks_exact_mut(PAGE_BYTES);
                pages
                    .zip(from..)
                    .for_each(|(page, number)| fill(number, page));
                if kind == Kind::Write {
                    return client.write(lba, &data);
                }
                let mut sqe = client.rw(io::WRITE, lba, (len - 1) as u16);
                sqe.cdw12 |= RwCdw12::new().with_fua(true).into_bits();
                let call = Call {
                    sqe,
                    send: &data,
                    receive: 0,
                };
                client.queue(|queue| queue.call("write", &call)).map(drop)
            }
            Kind::Copy => client.copy(self.first + from, lba, len as u64),
            Kind::Relocate => client
                .remap(self.first + from, lba, len as u32, true, false)
                .map(drop),
            Kind::Trim => client.trim(lba, len as u64),
            Kind::Flush => client.flush(),
        }
    }

    /// The pages that a command changes, and what they hold then.
    fn changes(&self, command: Command) -> Vec<(usize, u64)> {
        let Command {
            kind,
            at,
            len,
            from,
        } = command;
        let pages = at..at + len;
        match kind {
            Kind::Write | Kind::ForcedWrite => pages.zip(from..).collect(),
            Kind::Trim => pages.map(|page| (page, 0)).collect(),
            Kind::Flush => Vec::new(),
            Kind::Copy | Kind::Relocate => {
                let from = from as usize;
                let mut all: Vec<_> = (0..len)
                    .map(|page| (at + page, self.now(from + page)))
                    .collect();
                if kind == Kind::Relocate {
                    all.extend((from..from + len).map(|page| (page, 0)));
                }
                all
            }
        }
    }

    fn apply(&mut self, command: Command) {
        let durable = command.kind != Kind::Write || !self.has_cache;
        for (page, content) in self.changes(command) {
            let versions = &mut self.pages[page];
            if durable {
                versions.clear();
            }
            versions.push(content);
        }
        if command.kind == Kind::Flush {
            self.settle();
        }
    }

    /// Everything is durable.
    fn settle(&mut self) {
        for versions in &mut self.pages {
            versions.drain(..versions.len() - 1);
        }
    }

    /// Works until the connection breaks; returns the number of commands acknowledged.
    fn work(&mut self, address: SocketAddr) -> u64 {
        let Ok(mut client) = Client::connect(address, Options::default()) else {
            return 0;
        };
        if !self.has_cache {
            let sqe = Sqe {
                cdw10: WRITE_CACHE,
                ..entry(admin::SET_FEATURES, 0)
            };
            let call = Call {
                sqe,
                send: &[],
                receive: 0,
            };
            if client.admin(|queue| queue.call("feature", &call)).is_err() {
                return 0;
            }
        }
        let mut acknowledged = 0;
        loop {
            let command = self.choose();
            self.doubt = Some(command);
            match self.send(&mut client, command) {
                Ok(()) => {
                    self.apply(command);
                    self.doubt = None;
                    acknowledged += 1;
                }
                Err(ClientError::Io(_)) => return acknowledged,
                Err(error) => panic!("{command:?}: {error}"),
            }
        }
    }

    /// Reads all pages and takes their contents as the new state; returns the violations in words.
    fn compare(&mut self, client: &mut Client, end: End) -> Vec<String> {
        if end == End::Stop {
            self.settle();
        }
        let doubt = self.doubt.take();
        let changes = doubt.map_or_else(Vec::new, |command| self.changes(command));
        for (page, content) in &changes {
            self.pages[*page].push(*content);
        }
        let all = self.pages.len() as u64;
        let data = client.read(self.first, all).expect("it serves");

        let mut wrong = Vec::new();
        for (page, bytes) in data.chunks_exact(PAGE_BYTES).enumerate() {
            let versions = &mut self.pages[page];
            match versions.iter().rposition(|number| holds(*number, bytes)) {
                Some(at) => {
                    self.older += u64::from(at + 1 < versions.len());
                    *versions = vec![versions[at]];
                }
                None => wrong.push(format!(
                    "page {}: none of {versions:x?} after {end:?}; {doubt:x?}",
                    self.first + page as u64
                )),
            }
        }
        wrong
    }
}

/// The device of a rig, and its hosts: the last one has no use for the cache.
struct Rig {
    image: String,
    hosts: Vec<Host>,
    numbers: Numbers,
}

impl Rig {
    fn new(image: &Path, seed: u64) -> Self {
        let size = format!("{}KiB", PAGES * 4);
        let set = "firmware.write_buffer_bytes=4MiB,firmware.power_loss_protection=false";
        server::create(image, &["--size", &size, "--set", set]);
        let mut numbers = Numbers(seed);
        let part = PAGES / HOSTS;
        let hosts = (0..HOSTS).map(|at| Host::new(at * part, part, at + 1 < HOSTS, numbers.next()));
        Self {
            image: image.to_str().expect("text").to_owned(),
            hosts: hosts.collect(),
            numbers,
        }
    }

    /// A load and its end; returns the commands acknowledged, and the violations.
    fn round(&mut self, end: End) -> (u64, Vec<String>) {
        let server = Server::start(&self.image);
        let wait = Duration::from_micros(20_000 + self.numbers.below(300_000));
        let address = server.address;
        let acknowledged = std::thread::scope(|scope| {
            let hosts: Vec<_> = self
                .hosts
                .iter_mut()
                .map(|host| scope.spawn(move || host.work(address)))
                .collect();
            std::thread::sleep(wait);
            match end {
                End::Kill => server.kill(),
                End::Cut => server.cut(),
                End::Stop => server.stop(),
            }
            let ended = hosts
                .into_iter()
                .map(|host| host.join().expect("no host has failed"));
            ended.sum()
        });
        let server = Server::start(&self.image);
        let mut client = Client::connect(server.address, Options::default()).expect("it serves");
        let hosts = self.hosts.iter_mut();
        let wrong = hosts
            .flat_map(|host| host.compare(&mut client, end))
            .collect();
        drop(client);
        server.kill();
        (acknowledged, wrong)
    }
}

#[test]
fn a_killed_server_has_kept_what_was_flushed_from_its_volatile_write_buffer() {
    let dir = tempfile::tempdir().expect("a folder");
    let seed = number("KILL_SEED").unwrap_or(20_261_130);
    let mut rig = Rig::new(&dir.path().join("disk"), seed);
    let (mut acknowledged, mut ends) = (0, 0);
    for round in 0..rounds() {
        for end in match round % 4 {
            0 => &[End::Kill, End::Stop][..],
            2 => &[End::Kill, End::Cut][..],
            _ => &[End::Kill][..],
        } {
            let (commands, wrong) = rig.round(*end);
            assert!(
                wrong.is_empty(),
                "seed {seed}, round {round}: {} pages:\n{}",
                wrong.len(),
                wrong.join("\n")
            );
            acknowledged += commands;
            ends += 1;
        }
    }
    let older: u64 = rig.hosts.iter().map(|host| host.older).sum();
    println!(
        "{ends} ends, {acknowledged} commands acknowledged, {older} pages older than their newest version"
    );
    assert!(
        older > 0 && acknowledged > ends,
        "the buffer was never lost"
    );
    assert_eq!(rig.hosts.last().map(|host| host.has_cache), Some(false));
}
