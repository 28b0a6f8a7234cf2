//! Deduplicating disks on a server that is killed, with their own process ending at random moments
//! as well.
//!
//! Invariant: after each kill a page holds its content at the last flush or anything written to it
//! since; data that CCAW acknowledged survive, flushed or not.

use super::host::{Numbers, PAGE_BYTES, fill, holds};
use super::{number, rounds};
use crate::kit::{path, run};
use crate::served::serve;
use remap_ssd_dedup::{Ccaw, CcawOptions, Hash, NewDedup, OrderMerge, OrderMergeOptions, Scheme};
use remap_ssd_device::Disk;
use remap_ssd_nvme::tcp::client::{Client, Options};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

/// Pages in use, on a device of 8,192.
const PAGES: u64 = 1500;

type Work = Box<
    dyn Disk<Error = remap_ssd_dedup::DedupError<remap_ssd_nvme::tcp::client::ClientError>> + Send,
>;

struct Host {
    scheme: Scheme,
    window: u32,
    /// Possible contents of each page; the last one is the last one acknowledged.
    possible: Vec<Vec<u64>>,
    numbers: Numbers,
    fresh: u64,
    made: bool,
    /// The command that was not acknowledged.
    doubt: std::ops::Range<u64>,
}

impl Host {
    fn new(scheme: Scheme, window: u32, seed: u64) -> Self {
        let possible = vec![vec![0]; PAGES as usize];
        Self {
            scheme,
            window,
            possible,
            numbers: Numbers(seed),
            fresh: 1 << 20,
            made: false,
            doubt: 0..0,
        }
    }

    fn open(&mut self, address: SocketAddr) -> Result<Work, Box<dyn Error>> {
        let client = Client::connect(address, Options::default())?;
        // So short that segments are constantly written and invalidated.
        let segments = NewDedup {
            hash: Hash::Blake3,
            segment_pages: 3,
            force: true,
            ..NewDedup::default()
        };
        let (window, made) = (self.window, std::mem::replace(&mut self.made, true));
        let ccaw = CcawOptions {
            window,
            commit_after: Some(200),
            ..CcawOptions::default()
        };
        let order_merge = OrderMergeOptions {
            window,
            ..OrderMergeOptions::default()
        };
        Ok(match (self.scheme, made) {
            (Scheme::Ccaw, true) => Box::new(Ccaw::open(client, ccaw)?),
            (Scheme::Ccaw, false) => {
                Box::new(Ccaw::create(client, &segments, ccaw, &mut |_, _| {})?)
            }
            (Scheme::OrderMerge, true) => Box::new(OrderMerge::open(client, order_merge)?),
            (Scheme::OrderMerge, false) => Box::new(OrderMerge::create(
                client,
                &segments,
                order_merge,
                &mut |_, _| {},
            )?),
        })
    }

    /// Works until the connection breaks, or for `most` commands; returns their number.
    fn work(&mut self, disk: &mut Work, most: u64) -> u64 {
        for done in 0..most {
            let len = 1 + self.numbers.below(24);
            let at = self.numbers.below(PAGES - len + 1);
            self.doubt = at..at + len;
            let result = match self.numbers.below(20) {
                0 => {
                    self.pages(at, len).for_each(|possible| possible.push(0));
                    disk.trim(at, len)
                }
                1 | 2 => disk.flush().map(|()| {
                    self.possible
                        .iter_mut()
                        .for_each(|possible| _ = possible.drain(..possible.len() - 1));
                }),
                kind => {
                    let mut data = vec![0; len as usize * PAGE_BYTES];
                    let numbers: Vec<u64> =
                        (0..len).map(|index| self.content(kind, index)).collect();
                    data.chunks_exact_mut(PAGE_BYTES)
                        .zip(&numbers)
                        .for_each(|(page, number)| fill(*number, page));
                    self.pages(at, len)
                        .zip(&numbers)
                        .for_each(|(possible, number)| possible.push(*number));
                    disk.write(at, &data)
                }
            };
            if result.is_err() {
                return done;
            }
            self.doubt = 0..0;
        }
        most
    }

    fn pages(&mut self, at: u64, len: u64) -> impl Iterator<Item = &mut Vec<u64>> {
        self.possible[at as usize..(at + len) as usize].iter_mut()
    }

    /// A new content, or one of a few, alone or as a recurring run.
    fn content(&mut self, kind: u64, index: u64) -> u64 {
        match kind {
            3..8 => {
                self.fresh += 1;
                self.fresh
            }
            8..14 => 1 + self.numbers.below(200),
            _ => 1 + kind * 30 + index,
        }
    }

    /// Checks the contents of all pages, and takes them as the new state; returns the violations.
    /// `all`: all acknowledged data must be present, flushed or not, except for the last command.
    fn compare(&mut self, disk: &mut Work, all: bool) -> Vec<String> {
        let mut data = vec![0; PAGES as usize * PAGE_BYTES];
        disk.read(0, &mut data).expect("it serves");
        let mut wrong = Vec::new();
        for (page, bytes) in data.chunks_exact(PAGE_BYTES).enumerate() {
            let possible = &self.possible[page];
            let in_doubt = usize::from(self.doubt.contains(&(page as u64)));
            let from = if all {
                possible.len().saturating_sub(1 + in_doubt)
            } else {
                0
            };
            match possible[from..]
                .iter()
                .find(|number| holds(**number, bytes))
            {
                Some(number) => self.possible[page] = vec![*number],
                None => wrong.push(format!("page {page} holds none of {:?}", &possible[from..])),
            }
        }
        wrong
    }

    /// A load, and the end of the server or of this host; returns the violations.
    fn round(&mut self, image: &str, round: u64) -> (u64, Vec<String>) {
        let server = serve(&["--image", image]);
        let mut disk = self.open(server.address()).expect("it serves");
        let done;
        let server = if round % 3 == 2 {
            // The host ends without a shutdown. Its last command was acknowledged or not started.
            let most = self.numbers.below(300);
            done = self.work(&mut disk, most);
            server
        } else {
            let wait = Duration::from_micros(20_000 + self.numbers.below(200_000));
            done = std::thread::scope(|scope| {
                let work = scope.spawn(|| self.work(&mut disk, u64::MAX));
                std::thread::sleep(wait);
                server.kill();
                work.join().expect("the host has not failed")
            });
            serve(&["--image", image])
        };
        drop(disk);

        let mut disk = self.open(server.address()).expect("it serves");
        let wrong = self.compare(&mut disk, self.scheme == Scheme::Ccaw);
        drop(disk);
        server.stop();
        (done, wrong)
    }
}

#[test]
fn disks_that_deduplicate_keep_what_was_flushed_when_servers_and_hosts_are_killed() {
    let rounds = rounds().div_ceil(6);
    let seed = number("KILL_SEED").unwrap_or(20_261_123);
    for scheme in [Scheme::Ccaw, Scheme::OrderMerge] {
        for window in [1, 10, 100, 1000] {
            let dir = tempfile::tempdir().expect("a folder");
            let image = path(dir.path(), "disk");
            run(&format!("image create {image} --size 32MiB --dedup off")).ok();
            let mut host = Host::new(scheme, window, seed + u64::from(window));
            let mut commands = 0;
            for round in 0..rounds {
                let (done, wrong) = host.round(&image, round);
                commands += done;
                let about = format!("seed {seed}, {scheme:?}, window {window}, round {round}");
                assert!(
                    wrong.is_empty(),
                    "{about}: {} pages:\n{}",
                    wrong.len(),
                    wrong.join("\n")
                );
            }
            println!("{scheme:?}, window {window}: {rounds} kills, {commands} commands");
            assert!(rounds < 4 || commands > rounds, "kills met commands");
        }
    }
}
