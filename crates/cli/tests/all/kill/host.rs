//! A host with its own part of the device, which knows the possible contents of each page.
//!
//! Invariants: at most one command is in progress, so the acknowledged state is known exactly. A
//! command without acknowledgement may have taken effect on some of its pages and not on others.
//! With a volatile write buffer, a page may return to any of its versions since the last flush;
//! copies, remaps and trims are durable when they are acknowledged, as are all commands of a host
//! that has switched the write cache off.

use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, ClientError, Options, entry};
use std::net::SocketAddr;
use std::ops::Range;

pub const PAGE_BYTES: usize = 4096;
/// Content of a trimmed page.
const ZEROES: u64 = 0;
/// The feature Volatile Write Cache.
const WRITE_CACHE: u32 = 6;

/// The contents that a host writes.
#[derive(Clone, Copy, PartialEq)]
pub enum Contents {
    New,
    /// One of 2,000, so that pages are duplicates of others.
    Few,
}

/// The device's volatile write buffer, as a host uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cache {
    Absent,
    On,
    /// Switched off by this host.
    Off,
}

/// Pseudorandom numbers from one seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A command that changes pages; page numbers are relative to the host's first page.
#[derive(Clone, Copy, Debug)]
enum Command {
    Write {
        at: usize,
        len: usize,
        first: u64,
        forced: bool,
    },
    Copy {
        from: usize,
        to: usize,
        len: usize,
    },
    Relocate {
        from: usize,
        to: usize,
        len: usize,
        atomic: bool,
    },
    Trim {
        at: usize,
        len: usize,
    },
    Flush,
}

/// The host.
pub struct Host {
    first: u64,
    /// Content numbers that each page may have after a power cut; the last is the one acknowledged.
    pages: Vec<Vec<u64>>,
    doubt: Option<Command>,
    contents: Contents,
    cache: Cache,
    /// True if this scheme's entries can record commands.
    atomic: bool,
    numbers: Numbers,
    next_content: u64,
    /// Pages that were older than acknowledged after a power cut.
    pub older: u64,
}

/// Fills a page with the content of a number: all contents differ, and only 0 is zeroes.
pub fn fill(number: u64, page: &mut [u8]) {
    let mut numbers = Numbers(number);
    page.as_chunks_mut::<8>().0.iter_mut().for_each(|word| {
        *word = if number == ZEROES { 0 } else { numbers.next() }.to_le_bytes();
    });
}

pub fn holds(number: u64, page: &[u8]) -> bool {
    let mut expected = [0; PAGE_BYTES];
    fill(number, &mut expected);
    page == expected
}

impl Host {
    pub fn new(part: Range<u64>, contents: Contents, cache: Cache, seed: u64) -> Self {
        Self {
            first: part.start,
            pages: part.clone().map(|_| vec![ZEROES]).collect(),
            doubt: None,
            contents,
            cache,
            atomic: true,
            numbers: Numbers(seed),
            next_content: part.start << 40,
            older: 0,
        }
    }

    /// Returns true if a command was in progress when the connection broke.
    pub fn is_in_doubt(&self) -> bool {
        !matches!(self.doubt, None | Some(Command::Flush))
    }
    /// Returns true if it was a remapping command.
    pub fn was_copying(&self) -> bool {
        matches!(
            self.doubt,
            Some(Command::Copy { .. } | Command::Relocate { .. })
        )
    }

    /// Works until the connection breaks; returns the number of commands acknowledged.
    pub fn work(&mut self, address: SocketAddr) -> u64 {
        self.work_while(address, || true)
    }

    /// The same, while `may_go_on`, which is checked before each command.
    pub fn work_while(&mut self, address: SocketAddr, may_go_on: impl Fn() -> bool) -> u64 {
        let Ok(mut client) = Client::connect(address, Options::default()) else {
            return 0;
        };
        if self.cache == Cache::Off && switch_cache_off(&mut client).is_err() {
            return 0;
        }
        let mut acknowledged = 0;
        while may_go_on() {
            let command = self.choose();
            self.doubt = Some(command);
            match self.send(&mut client, command) {
                Ok(()) => {
                    self.apply(command);
                    self.doubt = None;
                    acknowledged += 1;
                }
                Err(ClientError::Status {
                    status: Status::NOT_ATOMIC,
                    ..
                }) => (self.atomic, self.doubt) = (false, None),
                Err(ClientError::Io(_)) => return acknowledged,
                Err(error) => panic!("{command:?}: {error}"),
            }
        }
        acknowledged
    }

    fn choose(&mut self) -> Command {
        let numbers = &mut self.numbers;
        let all = self.pages.len() as u64;
        // Mostly short, sometimes the maximum length of a command.
        let longest = [4, 30, 256][numbers.below(3) as usize];
        let len = 1 + numbers.below(longest);
        let at = numbers.below(all - len + 1) as usize;
        match numbers.below(20) {
            0..=9 => {
                let first = match self.contents {
                    Contents::Few => 1 + numbers.below(2000),
                    Contents::New => self.next_content + 1,
                };
                self.next_content += len;
                Command::Write {
                    at,
                    len: len as usize,
                    first,
                    forced: self.cache != Cache::Absent && numbers.below(6) == 0,
                }
            }
            kind @ 10..=16 => {
                let len = if kind == 10 { all / 2 } else { len };
                let half = all - len;
                let (from, to) = (
                    numbers.below(half + 1) as usize,
                    numbers.below(half + 1) as usize,
                );
                let apart = from.abs_diff(to) >= len as usize;
                let atomic = numbers.below(2) == 0 && self.atomic;
                match (kind, apart && len <= 64) {
                    (15 | 16, true) => Command::Relocate {
                        from,
                        to,
                        len: len as usize,
                        atomic,
                    },
                    _ => Command::Copy {
                        from,
                        to,
                        len: len as usize,
                    },
                }
            }
            17 | 18 => Command::Trim {
                at,
                len: len as usize,
            },
            _ => Command::Flush,
        }
    }

    fn send(&mut self, client: &mut Client, command: Command) -> Result<(), ClientError> {
        let lba = |page: usize| self.first + page as u64;
        match command {
            Command::Write {
                at,
                len,
                first,
                forced,
            } => {
                let mut data = vec![0; len * PAGE_BYTES];
                data.chunks_exact_mut(PAGE_BYTES)
                    .zip(first..)
                    .for_each(|(page, number)| fill(number, page));
                match forced {
                    true => write_through(client, lba(at), &data),
                    false => client.write(lba(at), &data),
                }
            }
            Command::Copy { from, to, len } => client.copy(lba(from), lba(to), len as u64),
            Command::Relocate {
                from,
                to,
                len,
                atomic,
            } => client
                .remap(lba(from), lba(to), len as u32, true, atomic)
                .map(drop),
            Command::Trim { at, len } => client.trim(lba(at), len as u64),
            Command::Flush => client.flush(),
        }
    }

    fn acknowledged(&self, page: usize) -> u64 {
        *self.pages[page].last().expect("a page holds something")
    }

    /// The pages that a command changes, and their contents after it.
    fn changes(&self, command: Command) -> Vec<(usize, u64)> {
        let zeroes = |pages: Range<usize>| pages.map(|page| (page, ZEROES));
        let copied = |from: Range<usize>, to| {
            let contents = from.map(|page| self.acknowledged(page));
            (to..).zip(contents)
        };
        match command {
            Command::Write { at, len, first, .. } => (at..at + len).zip(first..).collect(),
            Command::Copy { from, to, len } => copied(from..from + len, to).collect(),
            Command::Relocate { from, to, len, .. } => {
                let from = from..from + len;
                copied(from.clone(), to).chain(zeroes(from)).collect()
            }
            Command::Trim { at, len } => zeroes(at..at + len).collect(),
            Command::Flush => Vec::new(),
        }
    }

    fn apply(&mut self, command: Command) {
        let is_buffered =
            self.cache == Cache::On && matches!(command, Command::Write { forced: false, .. });
        for (page, content) in self.changes(command) {
            let versions = &mut self.pages[page];
            if !is_buffered {
                versions.clear();
            }
            versions.push(content);
        }
        if matches!(command, Command::Flush) {
            self.settle();
        }
    }

    /// All acknowledged contents are durable.
    pub fn settle(&mut self) {
        for versions in &mut self.pages {
            versions.drain(..versions.len() - 1);
        }
    }

    /// Reads all pages and takes their contents as the new state; returns the violations in words.
    pub fn compare(&mut self, client: &mut Client) -> Vec<String> {
        let doubt = self.doubt.take();
        let changes = doubt.map_or_else(Vec::new, |command| self.changes(command));
        let before = self.pages.clone();
        for (page, content) in &changes {
            self.pages[*page].push(*content);
        }

        let all = self.pages.len() as u64;
        let data = client.read(self.first, all).expect("it serves");
        let mut wrong = Vec::new();
        for (page, bytes) in data.chunks_exact(PAGE_BYTES).enumerate() {
            let versions = &mut self.pages[page];
            if let Some(at) = versions.iter().rposition(|number| holds(*number, bytes)) {
                self.older += u64::from(at + 1 < before[page].len());
                *versions = vec![versions[at]];
            } else {
                let page = self.first + page as u64;
                let held = (0..3000).find(|number| holds(*number, bytes));
                let held = held.map_or("something else".into(), |number| format!("{number:#x}"));
                wrong.push(format!(
                    "page {page}: {held}, none of {versions:x?}; {doubt:x?}"
                ));
            }
        }

        if let Some(Command::Relocate {
            from, len, atomic, ..
        }) = doubt
        {
            let moved = &changes[..len];
            wrong.extend(self.half_moved(from, moved, atomic, &before));
        }
        wrong
    }

    /// Violations of a relocation in progress: pages that are at neither place, and part of an
    /// atomic command. `moved` are the targets and their contents.
    fn half_moved(
        &self,
        from: usize,
        moved: &[(usize, u64)],
        atomic: bool,
        before: &[Vec<u64>],
    ) -> Vec<String> {
        let has_moved = |(page, content): (usize, u64)| self.acknowledged(page) == content;
        let mut wrong = Vec::new();
        for (source, target) in (from..).zip(moved) {
            let is_trimmed =
                self.acknowledged(source) == ZEROES && !before[source].contains(&ZEROES);
            if is_trimmed && !has_moved(*target) {
                wrong.push(format!(
                    "page {source} was moved to nowhere, not to {target:x?}"
                ));
            }
        }

        let differs = |(page, content): &&(usize, u64)| !before[*page].contains(content);
        let all = moved.iter().filter(differs).count();
        let done = moved
            .iter()
            .filter(differs)
            .filter(|page| has_moved(**page));
        let done = done.count();
        if atomic && done != 0 && done != all {
            wrong.push(format!(
                "{done} of {all} pages of an atomic command from {from}"
            ));
        }
        wrong
    }
}

fn switch_cache_off(client: &mut Client) -> Result<(), ClientError> {
    let sqe = Sqe {
        cdw10: WRITE_CACHE,
        ..entry(admin::SET_FEATURES, 0)
    };
    let (send, receive) = (&[][..], 0);
    let call = Call { sqe, send, receive };
    client.admin(|queue| queue.call("feature", &call)).map(drop)
}

/// A write that is durable when it is acknowledged (FUA).
fn write_through(client: &mut Client, lba: u64, send: &[u8]) -> Result<(), ClientError> {
    let pages = send.len() / PAGE_BYTES;
    let mut sqe = client.rw(io::WRITE, lba, (pages - 1) as u16);
    sqe.cdw12 |= RwCdw12::new().with_fua(true).into_bits();
    let receive = 0;
    let call = Call { sqe, send, receive };
    client.queue(|queue| queue.call("write", &call)).map(drop)
}
