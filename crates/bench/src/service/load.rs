//! Loads on queues: a fixed queue depth, one thread per queue.
//!
//! Invariants: a page is written in full, with a number in its first and last word; in every page
//! read both must be equal and not 0. Time begins with the first command and ends with the last
//! completion. Absent: medians.

use crate::BenchError;
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Arrivals, Call, Client, Queue};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Kind of a load's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadKind {
    /// Reads at random addresses.
    RandomRead,
    /// Writes at random addresses.
    RandomWrite,
    /// Reads the region in order, repeatedly.
    SequentialRead,
    /// Writes the region in order, repeatedly.
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

/// A load: commands of one kind at a fixed queue depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Kind of its commands.
    pub kind: LoadKind,
    /// Pages per command.
    pub pages: u32,
    /// Outstanding commands per queue.
    pub depth: u16,
    /// Size of the region in pages, from page 0.
    pub region: u32,
    /// Share of the writes that repeat earlier content.
    pub duplicates: f64,
    /// End condition.
    pub until: Until,
}

/// End condition of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// When every page was accessed once.
    Once,
}

/// Result of a load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadResult {
    /// Commands completed.
    pub commands: u64,
    /// Seconds from the first command to the last completion.
    pub seconds: f64,
    /// Processor time of this process during the load, for both ends, in seconds.
    pub processor_seconds: f64,
}

/// Processor time of this process so far, in seconds, to a hundredth; 0 without `/proc`.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in parentheses, may contain spaces. User and system time are fields 14
    // and 15 (proc(5)).
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// A generator good enough to spread addresses (SplitMix64).
#[derive(Debug)]
pub(crate) struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    /// A random number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // Multiply and shift: a division per command would be measurable.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
    fn chance(&mut self, share: f64) -> bool {
        // An f64 holds 53 bits exactly.
        ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}

/// One queue and its outstanding commands.
pub(crate) struct Lane {
    queue: Queue,
    numbers: Numbers,
    /// Content numbers: distinct within this lane and from other lanes'.
    next_content: u64,
    first_content: u64,
    buffers: Vec<u8>,
    under_way: UnderWay,
}

/// Receives completions.
struct UnderWay {
    free: Vec<u16>,
    done: u64,
    /// First error: later ones may follow from it.
    wrong: Option<String>,
}

impl Arrivals for UnderWay {
    fn data(&mut self, _: u16, _: usize, bytes: &[u8]) -> bool {
        // A page never written is all zeroes, and a torn one has different ends.
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
    /// The server refuses them.
    pub(crate) fn connect(client: &Client, count: u16) -> Result<Vec<Self>, BenchError> {
        let connected = (0..count).map(|index| {
            let queue = client
                .another_queue(index + 2)
                .map_err(BenchError::failed)?;

            // Each lane has its own contents, so that lanes do not create duplicates of each
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

    /// Content for a page: an earlier one, or a new one.
    fn content(&mut self, duplicates: f64) -> u64 {
        let known = self.next_content - self.first_content;
        if known > 0 && duplicates > 0.0 && self.numbers.chance(duplicates) {
            // One of the most recent contents, since the fingerprint store is bounded.
            return self.next_content - 1 - self.numbers.below(known.min(1 << 16));
        }
        self.next_content += 1;
        self.next_content - 1
    }

    fn put(&mut self, client: &Client, load: &Load, first: u32) {
        let Some(cid) = self.under_way.free.pop() else {
            return;
        };

        // A command needs a free identifier; callers submit no more commands than there are.
        let bytes = load.pages as usize * PAGE;
        let opcode = if load.kind.writes() {
            io::WRITE
        } else {
            io::READ
        };

        let sqe = client.rw(opcode, first.into(), (load.pages - 1) as u16);
        let mut call = Call::receiving(sqe, bytes);

        // Only the two ends of a page change: filling it would add to the measured time.
        if load.kind.writes() {
            let start = usize::from(cid) * bytes;
            for page in 0..load.pages as usize {
                let content = self.content(load.duplicates).to_le_bytes();
                let page = &mut self.buffers[start + page * PAGE..][..PAGE];
                page[..8].copy_from_slice(&content);
                page[PAGE - 8..].copy_from_slice(&content);
            }
            call = Call::sending(sqe, &self.buffers[start..start + bytes]);
        }

        self.queue.put(cid, &call);
    }

    /// Runs a load on its share of the region; random addresses use the whole region.
    fn run(&mut self, client: &Client, load: &Load, share: (u32, u32)) -> Result<u64, BenchError> {
        let commands_in_share = (share.1 - share.0) / load.pages;
        let all = load.region / load.pages;

        // Allocated before the clock starts.
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

            // Every command has completed.
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

            // All completed commands are replaced at once: one write to the socket for many
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

            self.queue.send().map_err(BenchError::failed)?;
            self.queue
                .receive(&mut self.under_way)
                .map_err(BenchError::failed)?;

            if let Some(wrong) = &self.under_way.wrong {
                return Err(BenchError::failed(wrong));
            }
        }
    }

    /// Reads one page at a time; returns the latency of each read.
    ///
    /// # Errors
    /// A connection error, or invalid data.
    pub(crate) fn read_singly(
        &mut self,
        client: &Client,
        region: u32,
        count: usize,
    ) -> Result<Vec<Duration>, BenchError> {
        // One command at a time, so that the device is otherwise idle.
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
            // From before the command is built until its completion is received.
            let began = Instant::now();
            self.put(client, &load, first);
            self.queue.send().map_err(BenchError::failed)?;

            while self.under_way.free.is_empty() {
                self.queue
                    .receive(&mut self.under_way)
                    .map_err(BenchError::failed)?;
            }

            took.push(began.elapsed());
        }

        // The latency of a failed read is meaningless.
        match self.under_way.wrong.take() {
            Some(wrong) => Err(BenchError::failed(wrong)),
            None => Ok(took),
        }
    }
}

impl Load {
    /// Runs it on all lanes concurrently.
    ///
    /// # Errors
    /// The error of any lane.
    pub(crate) fn run(
        &self,
        client: &Client,
        lanes: &mut [Lane],
    ) -> Result<LoadResult, BenchError> {
        let began = Instant::now();
        let used = processor_seconds();

        // Sequential loads split the region between lanes; random loads use all of it on each.
        let count = lanes.len() as u32;

        let commands = std::thread::scope(|scope| {
            let share = |index: u32| {
                let unit = self.region / count / self.pages * self.pages;
                (
                    unit * index,
                    // The last one also takes the remainder.
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
                .sum::<Result<u64, BenchError>>()
        })?;

        Ok(LoadResult {
            commands,
            seconds: began.elapsed().as_secs_f64(),
            processor_seconds: processor_seconds() - used,
        })
    }
}
