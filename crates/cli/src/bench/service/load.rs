//! Queues under load: a fixed number of commands under way on each, one thread a queue.
//!
//! Invariants: a page is written whole, with a number in its first and last word; every page that
//! is read must have one, the same in both. Time begins with the first command and ends with the
//! last answer. Absent: medians.

use crate::failure::Failure;
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Arrivals, Call, Client, Queue};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// What every command of a load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// Reads at places drawn at random.
    RandomRead,
    /// Writes at places drawn at random.
    RandomWrite,
    /// Reads from the beginning to the end and again.
    SequentialRead,
    /// Writes from the beginning to the end and again.
    SequentialWrite,
}

impl LoadKind {
    fn writes(self) -> bool {
        matches!(self, Self::RandomWrite | Self::SequentialWrite)
    }
    fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }
}

/// A load: commands of one kind, so many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What every one of its commands does.
    pub kind: LoadKind,
    /// How many pages each command has.
    pub pages: u32,
    /// Commands under way on a queue.
    pub depth: u16,
    /// Where: the first so many pages.
    pub region: u32,
    /// Share of the writes that repeat a content written before.
    pub duplicates: f64,
    /// When it ends: after a time, or when all pages were touched.
    pub until: Until,
}

/// When a load ends: after a time, or when all pages were touched.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so much time has passed.
    Elapsed(Duration),
    /// When all pages have been touched once.
    Once,
}

/// What a load did, and in which time.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadResult {
    /// How many commands were completed.
    pub commands: u64,
    /// Seconds from the first command to the last.
    pub seconds: f64,
    /// Seconds of processors that this process has used meanwhile, for both ends.
    pub processor_seconds: f64,
}

/// Seconds of processors that this process has used so far, to a hundredth; 0 where there is no
/// `/proc`.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, may have spaces. User and system time are fields 14 and
    // 15 (proc(5)).
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// A generator good enough to spread addresses (SplitMix64).
#[derive(Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    /// A number below `end`, drawn at random.
    pub fn below(&mut self, end: u64) -> u64 {
        // Multiply and shift: no division, which the loop would pay for each command.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
    fn chance(&mut self, share: f64) -> bool {
        // 53 bits are what an f64 holds exactly.
        ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}

/// One queue, and what is under way on it.
pub struct Lane {
    queue: Queue,
    numbers: Numbers,
    /// Numbers of contents: those of this lane are all different, and different from other lanes'.
    next_content: u64,
    first_content: u64,
    buffers: Vec<u8>,
    under_way: UnderWay,
}

/// What takes the completions as they arrive.
struct UnderWay {
    free: Vec<u16>,
    done: u64,
    /// What went wrong first: the rest may follow from it.
    wrong: Option<String>,
}

impl Arrivals for UnderWay {
    fn data(&mut self, _: u16, _: usize, bytes: &[u8]) -> bool {
        // A page that was never written is zeroes, and one that is torn has different ends.
        for page in bytes.chunks(PAGE) {
            if page.len() != PAGE || page[..8] != page[PAGE - 8..] || page[..8] == [0; 8] {
                self.wrong
                    .get_or_insert("a page that was read is not one that was written".into());
            }
        }
        true
    }
    fn asked(&self, _: u16) -> Option<&[u8]> {
        None
    }
    fn done(&mut self, cid: u16, status: Status, _: u64) -> bool {
        if !status.is_success() {
            self.wrong.get_or_insert(format!(
                "a command failed with status {:#05x}",
                status.number()
            ));
        }
        self.done += 1;
        self.free.push(cid);
        true
    }
}

impl Lane {
    /// Connects queues 2 and up.
    ///
    /// # Errors
    /// The server does not want them.
    pub fn connect(client: &Client, count: u16) -> Result<Vec<Self>, Failure> {
        let connected = (0..count).map(|index| {
            let queue = client.another_queue(index + 2).map_err(Failure::failed)?;

            // Each lane has contents of its own, so that lanes do not make duplicates of each
            // other's.
            let first_content = u64::from(index + 1) << 48;

            Ok(Self {
                queue,
                numbers: Numbers(first_content),
                next_content: first_content,
                first_content,
                buffers: Vec::new(),
                under_way: UnderWay {
                    free: Vec::new(),
                    done: 0,
                    wrong: None,
                },
            })
        });
        connected.collect()
    }

    /// A content for a page: one that was written before, or a new one.
    fn content(&mut self, duplicates: f64) -> u64 {
        let known = self.next_content - self.first_content;
        if known > 0 && duplicates > 0.0 && self.numbers.chance(duplicates) {
            // Of the last contents; the store of fingerprints is bounded.
            return self.next_content - 1 - self.numbers.below(known.min(1 << 16));
        }
        self.next_content += 1;
        self.next_content - 1
    }

    fn put(&mut self, client: &Client, load: &Load, first: u32) {
        let Some(cid) = self.under_way.free.pop() else {
            return;
        };

        // A command needs an identifier that is free; whoever calls puts no more than there are.
        let bytes = load.pages as usize * PAGE;
        let opcode = if load.kind.writes() {
            io::WRITE
        } else {
            io::READ
        };

        let sqe = client.rw(opcode, first.into(), (load.pages - 1) as u16);
        let mut call = Call {
            sqe,
            send: &[],
            receive: bytes,
        };

        // Only the two ends of a page are changed: filling it would be measured with the device.
        if load.kind.writes() {
            let start = usize::from(cid) * bytes;
            for page in 0..load.pages as usize {
                let content = self.content(load.duplicates).to_le_bytes();
                let page = &mut self.buffers[start + page * PAGE..][..PAGE];
                page[..8].copy_from_slice(&content);
                page[PAGE - 8..].copy_from_slice(&content);
            }
            call = Call {
                sqe,
                send: &self.buffers[start..start + bytes],
                receive: 0,
            };
        }

        self.queue.put(cid, &call);
    }

    /// Runs a load on its share of the region, which is the whole of it for random places.
    fn run(&mut self, client: &Client, load: &Load, share: (u32, u32)) -> Result<u64, Failure> {
        let commands_in_share = (share.1 - share.0) / load.pages;
        let all = load.region / load.pages;

        // Made before the clock starts.
        self.buffers
            .resize(usize::from(load.depth) * load.pages as usize * PAGE, 0x5a);
        self.under_way = UnderWay {
            free: (0..load.depth).collect(),
            done: 0,
            wrong: None,
        };

        let began = Instant::now();
        let mut sent = 0u64;

        loop {
            let over = match load.until {
                Until::Elapsed(time) => began.elapsed() >= time,
                Until::Once => sent >= u64::from(commands_in_share),
            };

            // Every command has been answered, so what was sent is what was done.
            if over && self.under_way.done == sent {
                return Ok(sent);
            }

            let fits = match load.until {
                Until::Once => u64::from(commands_in_share) - sent,
                Until::Elapsed(_) => {
                    if over {
                        0
                    } else {
                        u64::MAX
                    }
                }
            };

            // All that have been answered are replaced at once: one write to the socket for many
            // commands.
            for _ in 0..fits.min(self.under_way.free.len() as u64) {
                let first = if load.kind.is_random() {
                    self.numbers.below(all.into()) as u32 * load.pages
                } else {
                    share.0 + (sent % u64::from(commands_in_share)) as u32 * load.pages
                };
                self.put(client, load, first);
                sent += 1;
            }

            self.queue.send().map_err(Failure::failed)?;
            self.queue
                .receive(&mut self.under_way)
                .map_err(Failure::failed)?;

            if let Some(wrong) = &self.under_way.wrong {
                return Err(Failure::failed(wrong));
            }
        }
    }

    /// Reads one page after the other; how long each took.
    ///
    /// # Errors
    /// The connection, or what came back.
    pub fn read_singly(
        &mut self,
        client: &Client,
        region: u32,
        count: usize,
    ) -> Result<Vec<Duration>, Failure> {
        // One command at a time, so that each has the device to itself.
        let load = Load {
            kind: LoadKind::RandomRead,
            pages: 1,
            depth: 1,
            region,
            duplicates: 0.0,
            until: Until::Once,
        };

        self.under_way = UnderWay {
            free: vec![0],
            done: 0,
            wrong: None,
        };

        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let first = self.numbers.below(region.into()) as u32;
            // From before it is put together until its completion is taken.
            let began = Instant::now();
            self.put(client, &load, first);
            self.queue.send().map_err(Failure::failed)?;

            while self.under_way.free.is_empty() {
                self.queue
                    .receive(&mut self.under_way)
                    .map_err(Failure::failed)?;
            }

            took.push(began.elapsed());
        }

        // A read that failed took no time that means anything.
        match self.under_way.wrong.take() {
            Some(wrong) => Err(Failure::failed(wrong)),
            None => Ok(took),
        }
    }
}

impl Load {
    /// Runs it on all lanes at once.
    ///
    /// # Errors
    /// Of any of them.
    pub fn run(&self, client: &Client, lanes: &mut [Lane]) -> Result<LoadResult, Failure> {
        let began = Instant::now();
        let used = processor_seconds();

        // In order, each lane has a part of the region; at random, all of them have all of it.
        let count = lanes.len() as u32;

        let commands = std::thread::scope(|scope| {
            let share = |index: u32| {
                let unit = self.region / count / self.pages * self.pages;
                (
                    unit * index,
                    // The last one takes what the division leaves.
                    if index + 1 == count {
                        self.region
                    } else {
                        unit * (index + 1)
                    },
                )
            };

            let threads: Vec<_> = lanes
                .iter_mut()
                .zip(0..)
                .map(|(lane, index)| scope.spawn(move || lane.run(client, self, share(index))))
                .collect();

            threads
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"))
                .sum::<Result<u64, Failure>>()
        })?;

        Ok(LoadResult {
            commands,
            seconds: began.elapsed().as_secs_f64(),
            processor_seconds: processor_seconds() - used,
        })
    }
}
