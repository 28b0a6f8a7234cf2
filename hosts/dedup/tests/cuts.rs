//! Power cuts at every point of random scripts, with every kind of subset of what was not flushed:
//! no page reads as anything but what was written to it, and nothing that was flushed is gone.
//!
//! What a page may hold after a cut: what it held when it was last flushed, or anything that it was
//! given since. The scripts go on after each cut, on what it left, with contents that are on the
//! disk, so that whatever is wrongly remembered of them is copied from. `DEDUP_CUTS` is the number
//! of cuts for each scheme and window (1,000 if not set).

mod kit;

use kit::disk::{Content, MemDisk, Op, kept_on};
use kit::{Setup, Subject, content, contents};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_dedup::guard::Guard;
use remap_ssd_dedup::{Hash, Scheme};
use remap_ssd_device::DiskRemap;
use std::collections::HashMap;

type Random = Xoshiro256PlusPlus;
type Contents = HashMap<u64, Content>;

/// Contents that come back all the time have these numbers; others are written once.
const COMMON: std::ops::Range<u64> = 1..7;

/// What there was after a step.
#[derive(Clone, Debug)]
struct Moment {
    /// Operations of the disk by then.
    operations: usize,
    /// Contents of the pages that the script uses.
    values: Vec<u64>,
    /// A cut after this leaves nothing older.
    durable: bool,
}

/// A script and what it did.
struct Script {
    setup: Setup,
    /// The pages that it uses, in groups of neighbours.
    pages: Vec<u64>,
    base: Contents,
    disk: MemDisk,
    subject: Option<Subject>,
    moments: Vec<Moment>,
    fresh: u64,
}

impl Script {
    /// Begins on what a cut has left.
    fn begin(setup: Setup, pages: Vec<u64>, base: Contents, fresh: u64) -> Result<Self, String> {
        let disk = MemDisk::holding(setup.pages, base.clone());
        let mut subject = setup
            .open(disk.clone())
            .map_err(|error| error.to_string())?;
        let values: Vec<u64> = pages.iter().map(|page| subject.read(*page)).collect();
        let operations = disk.medium().log.len();
        let moments = vec![Moment {
            operations,
            values,
            durable: true,
        }];
        Ok(Self {
            setup,
            pages,
            base,
            disk,
            subject: Some(subject),
            moments,
            fresh,
        })
    }

    fn values(&self) -> Vec<u64> {
        self.moments.last().expect("there is one").values.clone()
    }

    fn after(&mut self, values: Vec<u64>, durable: bool) {
        let operations = self.disk.medium().log.len();
        self.moments.push(Moment {
            operations,
            values,
            durable,
        });
    }

    /// A place for so many pages, as an index.
    fn place(&self, random: &mut Random, count: usize) -> usize {
        loop {
            let at = random.random_range(0..=self.pages.len() - count);
            if self.pages[at] + count as u64 == self.pages[at + count - 1] + 1 {
                return at;
            }
        }
    }

    fn numbers(&mut self, random: &mut Random, count: usize) -> Vec<u64> {
        let known = self.values();
        (0..count)
            .map(|_| match random.random_range(0..10) {
                0..4 => random.random_range(COMMON),
                4..7 => known[random.random_range(0..known.len())],
                _ => {
                    self.fresh += 1;
                    self.fresh
                }
            })
            .collect()
    }

    /// One step; what is not as it must be.
    fn step(&mut self, random: &mut Random) -> Result<(), String> {
        let mut values = self.values();
        let count = random.random_range(1..4);
        let at = self.place(random, count);
        match random.random_range(0..40) {
            0..2 => {
                self.page_range(|disk, page| disk.trim(page, count as u64), at);
                values[at..at + count].fill(0);
                self.after(values, false);
            }
            2..5 => {
                let from = self.place(random, count);
                // The simulated disk does not tell apart sources that are targets too.
                let relocate = random.random_bool(0.3) && at.abs_diff(from) >= count;
                let (target, source) = (self.pages[at], self.pages[from]);
                let remap = DiskRemap {
                    target,
                    source,
                    pages: count as u32,
                    relocate,
                    atomic: false,
                };
                self.page_range(|disk, _| disk.remap(&remap), at);
                let moved = values[from..from + count].to_vec();
                if relocate {
                    values[from..from + count].fill(0);
                }
                values[at..at + count].copy_from_slice(&moved);
                self.after(values, false);
            }
            5..8 => {
                self.page_range(|disk, _| disk.flush(), at);
                self.after(values, true);
            }
            8 => {
                let disk = self
                    .subject
                    .take()
                    .expect("open")
                    .close()
                    .expect("it closes");
                self.reopen(disk)?;
            }
            9 => {
                // The process ends: whatever it had in memory alone is gone.
                self.subject = None;
                self.dying(random);
                self.reopen(self.disk.clone())?;
            }
            10..12 => self.failing_write(random, at, count)?,
            _ => {
                let numbers = self.numbers(random, count);
                let data = contents(&numbers);
                self.page_range(|disk, page| disk.write(page, &data), at);
                values[at..at + count].copy_from_slice(&numbers);
                self.after(values, self.setup.window == 1);
            }
        }
        self.compare()
    }

    fn page_range(
        &mut self,
        work: impl FnOnce(
            &mut dyn remap_ssd_device::Disk<Error = kit::Error>,
            u64,
        ) -> Result<(), kit::Error>,
        at: usize,
    ) {
        let page = self.pages[at];
        work(self.subject.as_mut().expect("open").disk(), page).expect("the disk works");
    }

    /// Opened again: what is there counts, if it may be there.
    fn reopen(&mut self, disk: MemDisk) -> Result<(), String> {
        let subject = self.setup.open(disk).map_err(|error| error.to_string())?;
        self.subject = Some(subject);
        let operations = self.disk.medium().log.len();
        let values = self.judge(operations)?;
        self.after(values, true);
        Ok(())
    }

    /// A process that is killed in the middle of something.
    fn dying(&mut self, random: &mut Random) {
        let changes = random.random_range(0..12);
        let Ok(mut subject) = self.setup.open(self.disk.dying_after(changes)) else {
            return;
        };
        // What it found may be older than what the process before it had in memory.
        let mut values: Vec<u64> = self.pages.iter().map(|page| subject.read(*page)).collect();
        self.after(values.clone(), false);
        for _ in 0..12 {
            let count = random.random_range(1..4);
            let at = self.place(random, count);
            let numbers = self.numbers(random, count);
            values[at..at + count].copy_from_slice(&numbers);
            let done = subject.disk().write(self.pages[at], &contents(&numbers));
            self.after(values.clone(), false);
            if done.is_err() {
                return;
            }
        }
    }

    /// A write during which the way to the disk is down for a moment: each page is old or new.
    fn failing_write(
        &mut self,
        random: &mut Random,
        at: usize,
        count: usize,
    ) -> Result<(), String> {
        let numbers = self.numbers(random, count);
        let (data, old, page) = (contents(&numbers), self.values(), self.pages[at]);
        self.disk.medium().fails_from_remap = Some(random.random_range(1..4));
        let subject = self.subject.as_mut().expect("open");
        let written = subject.disk().write(page, &data);
        self.disk.medium().fails_from_remap = None;
        if subject.disk().flush().is_err() {
            // A flush failed: it says so until it is opened again.
            self.subject = None;
            let mut values = old;
            values[at..at + count].copy_from_slice(&numbers);
            self.after(values, false);
            return self.reopen(self.disk.clone());
        }
        let mut values = old.clone();
        for (index, new) in (at..).zip(&numbers) {
            values[index] = subject.read(self.pages[index]);
            let known = values[index] == *new || values[index] == old[index];
            if !known || written.is_ok() && values[index] != *new {
                return Err(format!(
                    "page {}: {}, neither {} nor {new}",
                    self.pages[index], values[index], old[index]
                ));
            }
        }
        self.after(values, true);
        Ok(())
    }

    /// While it runs, everything is as it was written last.
    fn compare(&mut self) -> Result<(), String> {
        let values = self.values();
        let subject = self.subject.as_mut().expect("open");
        for (page, value) in self.pages.iter().zip(values) {
            let found = subject.read(*page);
            if found != value {
                return Err(format!("page {page} reads as {found}, not as {value}"));
            }
        }
        Ok(())
    }

    /// Judges what the open disk holds, which was cut after so many operations; and what it holds.
    fn judge(&mut self, operations: usize) -> Result<Vec<u64>, String> {
        let over = self
            .moments
            .iter()
            .rposition(|moment| moment.operations <= operations)
            .expect("it was opened");
        let floor = self.moments[..=over]
            .iter()
            .rposition(|moment| moment.durable)
            .expect("the first one is");
        // Steps of one number of operations, and the one that was under way.
        let next = self
            .moments
            .iter()
            .rposition(|moment| moment.operations == operations)
            .unwrap_or(over + 1);
        let possible = &self.moments[floor..=next.max(over + 1).min(self.moments.len() - 1)];
        let subject = self.subject.as_mut().expect("open");
        if subject.counts_too_low() > 0 {
            return Err(format!("{} counts are too low", subject.counts_too_low()));
        }

        let mut values = Vec::new();
        for (index, page) in self.pages.iter().enumerate() {
            let found = subject.read(*page);
            if !possible.iter().any(|moment| moment.values[index] == found) {
                let values: Vec<u64> = possible.iter().map(|moment| moment.values[index]).collect();
                return Err(format!(
                    "page {page} reads as {found}, and was {values:?} since the last flush"
                ));
            }
            values.push(found);
        }
        Ok(values)
    }

    /// What a cut after so many operations leaves, of the unflushed ones those that are kept.
    fn cut(&self, operations: usize, keep: impl FnMut(usize) -> bool) -> Contents {
        kept_on(
            self.base.clone(),
            &self.disk.medium().log[..operations],
            keep,
        )
    }

    fn unflushed(&self, operations: usize) -> usize {
        self.disk.medium().log[..operations]
            .iter()
            .rev()
            .take_while(|op| !matches!(op, Op::Flush))
            .count()
    }

    /// Judges a cut, and what the disk does afterwards.
    fn judge_cut(&mut self, operations: usize, left: &Contents) -> Result<(), String> {
        let disk = MemDisk::holding(self.setup.pages, left.clone());
        let open = |disk: &MemDisk| {
            self.setup
                .open(disk.clone())
                .map_err(|error| format!("it does not open: {error}"))
        };
        let before = self.subject.take();
        self.subject = Some(open(&disk)?);
        let judged = self.judge(operations);
        let subject = std::mem::replace(&mut self.subject, before);
        let mut values = judged?;

        // It goes on: everything that was ever common, and all that is there, written to other
        // places.
        let mut subject = subject.expect("it was opened");
        let numbers: Vec<u64> = COMMON
            .chain(values.clone())
            .filter(|number| *number != 0)
            .collect();
        for (round, number) in numbers.into_iter().enumerate() {
            let at = round % self.pages.len();
            subject
                .disk()
                .write(self.pages[at], &content(number))
                .map_err(|error| error.to_string())?;
            values[at] = number;
            let found = subject.read(self.pages[at]);
            if found != number {
                return Err(format!(
                    "after the cut {number} was written, and {found} was read"
                ));
            }
        }
        subject.close().map_err(|error| error.to_string())?;
        let mut subject = self.setup.open(disk).map_err(|error| error.to_string())?;
        for (page, value) in self.pages.iter().zip(values) {
            let found = subject.read(*page);
            if found != value || subject.counts_too_low() > 0 {
                return Err(format!(
                    "after the cut page {page} was closed as {value}, and opened as {found}"
                ));
            }
        }
        Ok(())
    }
}

/// Pages in two segments of the table, the first of two pages; or in two pages of mappings.
fn pages_of(setup: &Setup, wide: bool) -> Vec<u64> {
    match (setup.scheme, wide) {
        (Scheme::Ccaw, _) => [0..4, 253..257, 508..514].into_iter().flatten().collect(),
        (Scheme::OrderMerge, false) => (0..10).collect(),
        (Scheme::OrderMerge, true) => [0..4, 1016..1024].into_iter().flatten().collect(),
    }
}

/// An empty disk; if it is wide, one that is filled but for a few blocks.
fn empty(setup: &Setup, wide: bool) -> Contents {
    let disk = MemDisk::new(setup.pages);
    let mut subject = Setup {
        without: None,
        ..*setup
    }
    .create(disk.clone(), 7, false)
    .expect("it fits");
    if wide && setup.scheme == Scheme::OrderMerge {
        let numbers: Vec<u64> = (0..subject.disk().pages())
            .map(|page| 1 << 40 | page)
            .collect();
        subject
            .disk()
            .write(0, &contents(&numbers))
            .expect("there is room");
    }
    subject.close().expect("it closes");
    disk.medium().contents()
}

fn setup(scheme: Scheme, window: u32, wide: bool) -> Setup {
    let pages = match (scheme, wide) {
        (Scheme::Ccaw, _) => 2 + 5 + 520,
        (Scheme::OrderMerge, false) => 2 + 2 + 13,
        (Scheme::OrderMerge, true) => 2 + 6 + 2 + 1027,
    };
    let hash = Hash::Blake3;
    Setup {
        scheme,
        hash,
        pages,
        window,
        commit_after: 7,
        entries_max: u32::MAX,
        without: None,
    }
}

/// Several lives of a disk, each cut at many points; each begins on what one of them left. Returns
/// the number of cuts.
fn lives(
    setup: Setup,
    wide: bool,
    seed: u64,
    steps: usize,
    cuts: usize,
    exhaust: bool,
) -> Result<usize, String> {
    let random = &mut Random::seed_from_u64(seed);
    let (mut base, mut fresh, mut done) = (empty(&setup, wide), 1000, 0);
    while done < cuts {
        let mut script = Script::begin(setup, pages_of(&setup, wide), base, fresh)?;
        for _ in 0..steps {
            script
                .step(random)
                .map_err(|error| format!("seed {seed}: {error}"))?;
        }
        let (first, last) = (script.moments[0].operations, script.disk.medium().log.len());
        let mut points: Vec<usize> = (first..=last).collect();
        if !exhaust {
            points = (0..40).map(|_| random.random_range(first..=last)).collect();
        }

        base = script.cut(last, |_| true);
        for operations in points {
            for subset in subsets(random, script.unflushed(operations), exhaust) {
                let left = script.cut(operations, |index| subset[index]);
                let judged = script.judge_cut(operations, &left);
                judged.map_err(|error| {
                    format!("seed {seed}, after {operations} of {last} operations: {error}")
                })?;
                done += 1;
                if random.random_bool(0.01) {
                    base = left;
                }
            }
        }
        fresh = script.fresh;
    }
    Ok(done)
}

/// Which of so many unflushed operations are kept.
fn subsets(random: &mut Random, count: usize, exhaust: bool) -> Vec<Vec<bool>> {
    if exhaust && count <= 5 {
        return (0..1 << count)
            .map(|bits: u32| (0..count).map(|index| bits >> index & 1 == 1).collect())
            .collect();
    }
    let mut subsets = vec![vec![true; count], vec![false; count]];
    if count > 0 {
        let one = random.random_range(0..count);
        subsets.push((0..count).map(|index| index == one).collect());
        subsets.push((0..count).map(|index| index != one).collect());
        let share = [0.1, 0.5, 0.9][random.random_range(0..3)];
        subsets.push((0..count).map(|_| random.random_bool(share)).collect());
    }
    subsets
}

fn cuts() -> usize {
    std::env::var("DEDUP_CUTS").map_or(1000, |text| text.parse().expect("DEDUP_CUTS is a number"))
}

const SCHEMES: [(Scheme, bool); 3] = [
    (Scheme::Ccaw, true),
    (Scheme::OrderMerge, false),
    (Scheme::OrderMerge, true),
];

#[test]
fn a_thousand_cuts_with_each_window_lose_nothing_and_mix_nothing_up() {
    for (scheme, wide) in SCHEMES {
        for window in [0, 1, 10, 100, 1000] {
            // Long enough for windows to end.
            let steps = 40 + window as usize / 2;
            let done = lives(
                setup(scheme, window, wide),
                wide,
                u64::from(window) + 11,
                steps,
                cuts(),
                false,
            );
            let done = done.unwrap_or_else(|error| panic!("{scheme:?}, window {window}: {error}"));
            println!("{scheme:?}, wide {wide}, window {window}: {done} cuts");
        }
    }
}

#[test]
fn every_cut_of_a_short_script_with_every_subset_of_a_short_window() {
    for (scheme, wide) in SCHEMES {
        for (window, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
            let done = lives(setup(scheme, window, wide), wide, seed, 25, 1500, true);
            done.unwrap_or_else(|error| panic!("{scheme:?}, window {window}: {error}"));
        }
    }
}

// MD5's hits are compared, and a small table gives up entries.
#[test]
fn other_hashes_and_small_tables_survive_the_same_cuts() {
    for (scheme, wide) in SCHEMES {
        let setup = Setup {
            hash: Hash::Md5,
            entries_max: 5,
            ..setup(scheme, 10, wide)
        };
        lives(setup, wide, 5, 60, 500, false).unwrap_or_else(|error| panic!("{scheme:?}: {error}"));
    }
}

#[test]
fn each_flush_and_each_order_is_missed_if_it_is_left_out() {
    let noticed = |scheme, guard| {
        let without = |window, wide, seed| {
            let setup = Setup {
                without: Some(guard),
                ..setup(scheme, window, wide)
            };
            let result = lives(setup, wide, seed, 40, 1500, true);
            result.is_err_and(|error| {
                println!("{scheme:?} without {guard:?}: {error}");
                true
            })
        };
        (0..100).any(|seed| {
            without(
                [3, 10, 100][seed % 3],
                scheme == Scheme::Ccaw || seed % 2 == 1,
                seed as u64,
            )
        })
    };
    for (scheme, guards) in [
        (Scheme::Ccaw, &Guard::CCAW[..]),
        (Scheme::OrderMerge, &Guard::ORDER_MERGE[..]),
    ] {
        for guard in guards.iter().filter(|guard| **guard != Guard::FlushTrimmed) {
            assert!(
                noticed(scheme, *guard),
                "{scheme:?}: {guard:?} protects nothing that this test would notice"
            );
        }
    }
}

/// Makes a disk over an older one and cuts its power; how often there was none, a new one, the old
/// one.
fn made_over(scheme: Scheme, without: Option<Guard>) -> Result<[u32; 3], String> {
    let setup = Setup {
        without,
        ..setup(scheme, 10, false)
    };
    let random = &mut Random::seed_from_u64(5);
    let disk = MemDisk::new(setup.pages);
    let mut old = setup.create(disk.clone(), 1, false).expect("it fits");
    old.disk()
        .write(0, &contents(&[1, 2, 3, 4]))
        .expect("there is room");
    old.close().expect("it closes");
    let base = disk.medium().contents();
    let from = disk.medium().log.len();
    setup
        .create(disk.clone(), 2, true)
        .expect("it was asked for");
    let log = disk.medium().log.split_off(from);

    let mut found = [0; 3];
    for operations in 0..=log.len() {
        for _ in 0..20 {
            let left = kept_on(base.clone(), &log[..operations], |_| {
                random.random_bool(0.5)
            });
            let superblock = [0, 1]
                .iter()
                .find_map(|page| left.get(page).cloned().flatten());
            let Ok(mut opened) = setup.open(MemDisk::holding(setup.pages, left)) else {
                found[0] += 1;
                continue;
            };
            // The identity stands behind magic, checksum and version.
            if superblock.is_some_and(|page| page[16] == 1) {
                found[2] += 1;
                continue;
            }
            let mut bytes = contents(&[9; 10]);
            opened
                .disk()
                .read(0, &mut bytes)
                .map_err(|error| error.to_string())?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Err("the new disk shows what the old one held".into());
            }
            found[1] += 1;
        }
    }
    Ok(found)
}

#[test]
fn a_cut_while_a_disk_is_made_leaves_one_or_none() {
    for scheme in [Scheme::Ccaw, Scheme::OrderMerge] {
        let found = made_over(scheme, None).expect("nothing is mixed up");
        assert!(
            found.iter().all(|count| *count > 0),
            "none, new, old: {found:?}"
        );
        assert!(
            made_over(scheme, Some(Guard::FlushTrimmed)).is_err(),
            "{scheme:?}: the flush protects nothing"
        );
    }
}
