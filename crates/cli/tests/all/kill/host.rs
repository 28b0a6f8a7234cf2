//! A host with its own part of the device, which knows the possible contents of each page.
//!
//! Invariant: at most one command is in progress, so the acknowledged state is known exactly. A
//! command without acknowledgement may have taken effect on some of its pages and not on others.

use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use std::net::SocketAddr;

pub const PAGE_BYTES: usize = 4096;
/// Content of a trimmed page.
const ZEROES: u64 = 0;

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
    /// Content numbers at the last acknowledgement.
    pages: Vec<u64>,
    doubt: Option<Command>,
    few_contents: bool,
    /// True if this scheme's entries can record commands.
    atomic: bool,
    numbers: Numbers,
    next_content: u64,
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
    pub fn new(first: u64, pages: u64, few_contents: bool, seed: u64) -> Self {
        let numbers = Numbers(seed);
        let (pages, next_content) = (vec![ZEROES; pages as usize], first << 40);
        Self {
            first,
            pages,
            doubt: None,
            few_contents,
            atomic: true,
            numbers,
            next_content,
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
                let first = if self.few_contents {
                    1 + numbers.below(2000)
                } else {
                    self.next_content + 1
                };
                self.next_content += len;
                Command::Write {
                    at,
                    len: len as usize,
                    first,
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
            Command::Write { at, len, first } => {
                let mut data = vec![0; len * PAGE_BYTES];
                data.chunks_exact_mut(PAGE_BYTES)
                    .zip(first..)
                    .for_each(|(page, number)| fill(number, page));
                client.write(lba(at), &data)
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

    /// Contents of the pages after a command.
    fn after(&self, command: Command) -> Vec<u64> {
        let mut pages = self.pages.clone();
        match command {
            Command::Write { at, len, first } => {
                pages[at..at + len]
                    .iter_mut()
                    .zip(first..)
                    .for_each(|(page, number)| *page = number);
            }
            Command::Copy { from, to, len } => pages.copy_within(from..from + len, to),
            Command::Relocate { from, to, len, .. } => {
                pages.copy_within(from..from + len, to);
                pages[from..from + len].fill(ZEROES);
            }
            Command::Trim { at, len } => pages[at..at + len].fill(ZEROES),
            Command::Flush => {}
        }
        pages
    }

    fn apply(&mut self, command: Command) {
        self.pages = self.after(command);
    }

    /// Reads all pages and takes their contents as the new state; returns the violations in words.
    pub fn compare(&mut self, client: &mut Client) -> Vec<String> {
        let doubt = self.doubt.take();
        let new = doubt.map_or_else(|| self.pages.clone(), |command| self.after(command));
        let data = client
            .read(self.first, self.pages.len() as u64)
            .expect("it serves");
        let mut wrong = Vec::new();
        let mut done = vec![false; new.len()];
        for (page, bytes) in data.chunks_exact(PAGE_BYTES).enumerate() {
            let (old, new) = (self.pages[page], new[page]);
            if holds(new, bytes) {
                done[page] = true;
            } else if !holds(old, bytes) {
                let page = self.first + page as u64;
                let held = (0..3000).find(|number| holds(*number, bytes));
                let held = held.map_or("something else".into(), |number| format!("{number:#x}"));
                wrong.push(format!(
                    "page {page}: {held}, neither {old:#x} nor {new:#x}; {doubt:x?}"
                ));
            }
        }
        if let Some(Command::Relocate {
            from,
            to,
            len,
            atomic,
        }) = doubt
        {
            let lost = (0..len).filter(|page| {
                done[from + page] && self.pages[from + page] != ZEROES && !done[to + page]
            });
            wrong.extend(
                lost.map(|page| format!("page {} was moved to nowhere; {doubt:x?}", from + page)),
            );
            let changed = |page: &usize| self.pages[to + page] != new[to + page];
            let moved = (0..len)
                .filter(changed)
                .filter(|page| done[to + page])
                .count();
            let all = (0..len).filter(changed).count();
            if atomic && moved != 0 && moved != all {
                wrong.push(format!(
                    "{moved} of {all} pages of an atomic command; {doubt:x?}"
                ));
            }
        }
        self.pages
            .iter_mut()
            .zip(new)
            .zip(done)
            .filter(|(_, done)| *done)
            .for_each(|((page, new), _)| *page = new);
        wrong
    }
}
