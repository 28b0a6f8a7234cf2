//! YCSB's zipfian updates of records in a log-structured merge tree.
//!
//! Source: FAST'21 (section 5.2), "updating RocksDB with a zipfian request distribution in YCSB";
//! it does not state the number of records. Here: 8 Mi records of 1 KiB (8 GiB, a quarter of the
//! paper's 32 GiB device), all loaded before the first request; every operation updates a record
//! and writes it whole, drawn by YCSB's `ScrambledZipfianGenerator`: Zipf's law with the constant
//! 0.99 over 10^10 items, hashed to the records. So a third of the updates are uniform over all of
//! them, and the hottest has 3.8 % of all (over 8 Mi items it would be 5.6 %). RocksDB's defaults:
//! memtable and files of 64 MiB, compaction of level 0 at four files, level 1 of 256 MiB, each
//! level ten times the previous one. All of these scale together.
//!
//! At the block layer: updates go to the write-ahead log, 32 KiB per request. When the log holds a
//! memtable's worth, the memtable is written as a file of level 0 and the log is deallocated. A
//! full level 0 is merged with all of level 1; from a level above its limit, the next file in key
//! order is merged with those it overlaps in the level below (or moved, if there are none). A
//! compaction reads its inputs, writes its outputs and deallocates the inputs. Flushes and
//! compactions run uninterrupted between the log's writes, with reads and writes alternating. Reads
//! of records are served by the caches.
//!
//! **The size of a merged file** depends on the number of keys that its inputs share. No keys are
//! stored: a run of `n` updates of that law has `D(n) = sum over keys of 1 - exp(-n p)` distinct
//! keys in the mean, and merging runs of `n` and `m` updates gives a run of `n + m`. So a file is a
//! key range and the number of updates (of the whole key range) it stands for. The loaded records
//! stand for so large a number that `D` is all. Invariants: files of a level do not overlap (except
//! in level 0); outputs exist before inputs are deallocated.

use std::collections::VecDeque;

use super::WorkloadError;
use super::script::{REQUEST_PAGES_MAX, Scale, Script, Steps};
use super::space::{PageExtent, Space};

pub(super) const ABOUT: &str = "YCSB zipfian (0.99) updates on an LSM store: 8 Mi records of 1 KiB, 64 MiB memtables \
     and files, levels of 256 MiB x10, write-ahead log (FAST'21 figure 5)";

const RECORDS: f64 = 8_388_608.0;
const RECORDS_PER_PAGE: f64 = 4.0;
const ZIPFIAN_CONSTANT: f64 = 0.99;
/// Items that YCSB draws from, in multiples of the records: 10^10 for the published ones. They
/// shrink with these, so that a smaller store has the same law.
const ITEMS_PER_RECORD: f64 = 1e10 / RECORDS;
const FILE_PAGES: f64 = 16_384.0;
const LEVEL_0_FILES: usize = 4;
const LEVEL_1_FILES: f64 = 4.0;
const LEVEL_RATIO: f64 = 10.0;
const LOG_REQUEST_PAGES: u32 = 8;
/// The store's space in multiples of the loaded records: levels above the last, inputs and outputs
/// at once.
const ROOM: f64 = 1.75;
const FILE_PAGES_MIN: u32 = 8;

/// A sorted run over a part of the key range.
struct File {
    /// Part of the key range, 0 to 1.
    from: f64,
    to: f64,
    /// Updates of the whole key range that it stands for.
    updates: f64,
    pages: u32,
    extents: Vec<PageExtent>,
}

#[derive(Clone, Copy)]
enum RequestKind {
    Read,
    Write,
    Trim,
}

pub(super) struct Ycsb {
    file_pages: u32,
    records: f64,
    distinct: Distinct,
    space: Space,
    /// Level 0 from old to new, the others in key order; the last one has no limit.
    levels: Vec<Vec<File>>,
    /// Position in the key range of each level's next compaction.
    cursors: Vec<f64>,
    log: Vec<PageExtent>,
    /// Pages of the log written so far.
    logged: u32,
    /// Pending I/O of flushes and compactions.
    work: VecDeque<(RequestKind, PageExtent)>,
}

impl Ycsb {
    pub(super) fn new(scale: &Scale) -> Result<Self, WorkloadError> {
        let file_pages = scale.of(FILE_PAGES, FILE_PAGES_MIN);

        // The store has as many files as published, however small they are.
        let records = f64::from(file_pages) * (RECORDS / FILE_PAGES);
        let loaded = records / RECORDS_PER_PAGE;
        let room = (loaded * ROOM) as u64;
        scale.needs(room)?;

        let distinct = Distinct::new(records);

        let mut store = Self {
            file_pages,
            records,
            space: Space::new(PageExtent {
                first: 0,
                len: room as u32,
            }),
            levels: Vec::new(),
            cursors: Vec::new(),
            log: Vec::new(),
            logged: 0,
            work: VecDeque::new(),
            distinct,
        };

        // As many levels as the data need; the last one holds all of them.
        let mut limit = LEVEL_1_FILES;
        store.levels.push(Vec::new());
        while limit < loaded / f64::from(file_pages) {
            store.levels.push(Vec::new());
            limit *= LEVEL_RATIO;
        }

        // Loaded before the first request: every key once, in the lowest level.
        let everything = KeyRange {
            from: 0.0,
            to: 1.0,
            updates: store.distinct.all(),
        };

        let files = store.files(everything);
        store.levels.push(files);
        store.cursors = vec![0.0; store.levels.len()];
        store.space.allocate(file_pages, &mut store.log);

        Ok(store)
    }

    /// Creates new files, of at most the target size, that hold a run.
    fn files(&mut self, run: KeyRange) -> Vec<File> {
        // Updates of one key within a run are one record: distinct keys take the space.
        let width = run.to - run.from;
        let pages = (width * self.distinct.of(run.updates).min(self.records) / RECORDS_PER_PAGE)
            .ceil()
            .max(1.0) as u32;

        let count = pages.div_ceil(self.file_pages);

        // Bounds and pages in equal parts: the keys are hashed, so they are uniform.
        let bound = |file: u32| run.from + width * f64::from(file) / f64::from(count);
        let share = |file: u32| (u64::from(pages) * u64::from(file) / u64::from(count)) as u32;

        let mut files = Vec::with_capacity(count as usize);
        for file in 0..count {
            let (pages, mut extents) = (share(file + 1) - share(file), Vec::new());
            let fits = self.space.allocate(pages, &mut extents);
            assert!(
                fits,
                "levels within their limits leave room for a compaction"
            );

            // The last bound is the run's, so that rounding leaves no gap.
            let to = if file + 1 == count {
                run.to
            } else {
                bound(file + 1)
            };

            files.push(File {
                from: bound(file),
                to,
                updates: run.updates,
                pages,
                extents,
            });
        }

        files
    }

    /// Writes the memtable as a file of level 0, and begins a new log.
    fn flush(&mut self) {
        let updates = f64::from(self.file_pages) * RECORDS_PER_PAGE;

        // One file, even if the target is smaller than the memtable's distinct keys.
        let files = self.files(KeyRange {
            from: 0.0,
            to: 1.0,
            updates,
        });

        push_all(&mut self.work, RequestKind::Write, &files);
        self.levels[0].extend(files);

        for extent in std::mem::take(&mut self.log) {
            self.work.push_back((RequestKind::Trim, extent));
            self.space.release(extent);
        }

        // The old log was released first: there is always space for one.
        let fits = self.space.allocate(self.file_pages, &mut self.log);
        assert!(fits, "there is room for a log");
        self.logged = 0;

        // A full level 0 is merged whole; levels that are too large then pass files to the next.
        if self.levels[0].len() >= LEVEL_0_FILES {
            let inputs = std::mem::take(&mut self.levels[0]);
            self.compact(0, inputs);
        }

        let mut limit = LEVEL_1_FILES * f64::from(self.file_pages);
        // The last level has no limit: there is none below it.
        for level in 1..self.levels.len() - 1 {
            while f64::from(
                self.levels[level]
                    .iter()
                    .map(|file| file.pages)
                    .sum::<u32>(),
            ) > limit
            {
                let file = self.next_file(level);
                self.compact(level, vec![file]);
            }

            limit *= LEVEL_RATIO;
        }
    }

    /// Removes and returns the next file to compact, in key order.
    fn next_file(&mut self, level: usize) -> File {
        let files = &mut self.levels[level];
        let at = files.partition_point(|file| file.from < self.cursors[level]);
        let file = files.remove(if at < files.len() { at } else { 0 });
        self.cursors[level] = file.to;
        file
    }

    /// Merges files of a level into the next one.
    fn compact(&mut self, level: usize, inputs: Vec<File>) {
        // The range of their keys, from the lowest to the highest.
        let from = inputs.iter().map(|file| file.from).fold(1.0, f64::min);
        let to = inputs.iter().map(|file| file.to).fold(0.0, f64::max);

        let below = &mut self.levels[level + 1];
        // Files of a level are sorted and do not overlap, so two searches find the overlap.
        let first = below.partition_point(|file| file.to <= from);
        let end = below.partition_point(|file| file.from < to);

        // A file that overlaps nothing moves down unchanged.
        if first >= end && inputs.len() == 1 {
            below.splice(first..first, inputs);
            return;
        }

        let mut merged = inputs;
        merged.extend(below.drain(first..end.max(first)));

        // The next level's files may extend the range.
        let from = merged.iter().map(|file| file.from).fold(1.0, f64::min);
        let to = merged.iter().map(|file| file.to).fold(0.0, f64::max);

        // Updates are a density over the keys: the merged files have the mean, weighted by width.
        let updates = merged
            .iter()
            .map(|file| file.updates * (file.to - file.from))
            .sum::<f64>()
            / (to - from);

        let files = self.files(KeyRange {
            from,
            to,
            updates: updates.min(self.distinct.all()),
        });

        // Inputs are deallocated after outputs have been allocated: a merge needs space for both.
        self.interleave(&merged, &files);
        self.levels[level + 1].splice(first..first, files);

        for extent in merged.into_iter().flat_map(|file| file.extents) {
            self.work.push_back((RequestKind::Trim, extent));
            self.space.release(extent);
        }
    }

    /// Queues reads of the inputs and writes of the outputs, in proportion.
    fn interleave(&mut self, inputs: &[File], outputs: &[File]) {
        let mut reads = chunks(inputs);
        let mut writes = chunks(outputs);
        let sum = |files: &[File]| files.iter().map(|file| u64::from(file.pages)).sum::<u64>();

        let (pages_in, pages_out) = (sum(inputs), sum(outputs));
        let (mut read, mut written) = (0, 0);
        loop {
            // In step with each other, as a merge reads the data that it is about to write.
            let reads_first = read * pages_out <= written * pages_in;
            let next = if reads_first {
                reads.next().map(|extent| (RequestKind::Read, extent))
            } else {
                None
            };

            let next = next.or_else(|| writes.next().map(|extent| (RequestKind::Write, extent)));
            let Some((verb, extent)) =
                next.or_else(|| reads.next().map(|extent| (RequestKind::Read, extent)))
            else {
                return;
            };

            match verb {
                RequestKind::Read => read += u64::from(extent.len),
                _ => written += u64::from(extent.len),
            }

            self.work.push_back((verb, extent));
        }
    }
}

/// A sorted run to write.
struct KeyRange {
    from: f64,
    to: f64,
    updates: f64,
}

fn push_all(work: &mut VecDeque<(RequestKind, PageExtent)>, verb: RequestKind, files: &[File]) {
    chunks(files).for_each(|extent| work.push_back((verb, extent)));
}

/// The files' pages, a request at a time.
fn chunks(files: &[File]) -> impl Iterator<Item = PageExtent> {
    files
        .iter()
        .flat_map(|file| &file.extents)
        .flat_map(|extent| {
            (0..extent.len)
                .step_by(REQUEST_PAGES_MAX as usize)
                .map(|offset| PageExtent {
                    first: extent.first + offset,
                    len: REQUEST_PAGES_MAX.min(extent.len - offset),
                })
        })
}

impl Script for Ycsb {
    fn step(&mut self, steps: &mut Steps) {
        // Pending I/O of a flush or a compaction comes before the next update.
        if let Some((verb, extent)) = self.work.pop_front() {
            return match verb {
                RequestKind::Read => steps.read(extent),
                RequestKind::Write => steps.write(extent),
                RequestKind::Trim => steps.trim(extent),
            };
        }

        if self.logged == self.file_pages {
            return self.flush();
        }

        // The log may be fragmented: finds the extent of the next request.
        let mut ahead = self.logged;
        for extent in &self.log {
            if ahead < extent.len {
                let len = LOG_REQUEST_PAGES.min(extent.len - ahead);
                steps.write(PageExtent {
                    first: extent.first + ahead,
                    len,
                });
                self.logged += len;
                return;
            }

            ahead -= extent.len;
        }
    }
}

/// The weight of all items after the first `keys`: a sum of this many terms is approximated by its
/// integral.
fn tail(keys: f64) -> f64 {
    let slope = 1.0 - ZIPFIAN_CONSTANT;
    (libm::pow(keys * ITEMS_PER_RECORD + 0.5, slope) - libm::pow(keys + 0.5, slope)) / slope
}

/// `D(n)`: distinct keys among `n` draws of the scrambled Zipf's law, tabulated.
struct Distinct {
    /// `D` at `2^(i / POINTS_PER_OCTAVE)` draws.
    table: Vec<f64>,
}

const POINTS_PER_OCTAVE: f64 = 4.0;

impl Distinct {
    fn new(keys: f64) -> Self {
        // Ranks in groups that grow with the rank, each represented by its middle.
        let mut groups = Vec::new();
        let mut first = 1.0;
        while first <= keys {
            // Fine where the weights of ranks differ much, coarse where they hardly do.
            let count = (first / 64.0).floor().max(1.0).min(keys - first + 1.0);
            groups.push((
                count,
                libm::pow(first + (count - 1.0) / 2.0, -ZIPFIAN_CONSTANT),
            ));

            first += count;
        }

        // The items after the keys are hashed to them, uniformly.
        let head: f64 = groups.iter().map(|(count, weight)| count * weight).sum();

        let tail = tail(keys);
        groups
            .iter_mut()
            .for_each(|(_, weight)| *weight += tail / keys);

        // Draws that hit a key at least once: one minus the probability that all of them missed.
        let whole = head + tail;
        let at = |draws: f64| -> f64 {
            groups
                .iter()
                .map(|(count, weight)| count * -libm::expm1(-draws * weight / whole))
                .sum()
        };

        // After this many draws the rarest key has been drawn 64 times in the mean.
        let rarest = groups.last().map_or(1.0, |(_, weight)| weight / whole);
        let points = (POINTS_PER_OCTAVE * libm::log2(64.0 / rarest)).ceil() as usize;

        let table = (0..=points)
            .map(|point| at(libm::exp2(point as f64 / POINTS_PER_OCTAVE)))
            .collect();

        Self { table }
    }

    /// A number of draws that yields every key.
    fn all(&self) -> f64 {
        libm::exp2((self.table.len() - 1) as f64 / POINTS_PER_OCTAVE)
    }

    fn of(&self, draws: f64) -> f64 {
        // Less than one draw yields the same number of keys.
        if draws < 1.0 {
            return draws;
        }

        // Linear interpolation in the table.
        let place = libm::log2(draws) * POINTS_PER_OCTAVE;
        let point = (place as usize).min(self.table.len() - 2);
        let part = (place - point as f64).min(1.0);
        self.table[point] + part * (self.table[point + 1] - self.table[point])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Zipf;
    use super::super::draw::{Chance, below};
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::collections::HashSet;

    #[test]
    fn distinct_keys_are_as_many_as_drawing_them_gives() {
        const KEYS: u32 = 50_000;
        let distinct = Distinct::new(f64::from(KEYS));

        let ranks = Zipf::new(KEYS.into(), ZIPFIAN_CONSTANT).unwrap();
        let head: f64 = (1..=KEYS)
            .map(|rank| libm::pow(f64::from(rank), -ZIPFIAN_CONSTANT))
            .sum();
        let even = Chance::of(tail(f64::from(KEYS)) / (head + tail(f64::from(KEYS))));

        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut seen = HashSet::new();

        for draws in 1..=1_000_000u32 {
            let key = if even.happens(&mut rng) {
                1 + below(KEYS, &mut rng)
            } else {
                ranks.draw(&mut rng) as u32
            };

            seen.insert(key);

            if [10, 1_000, 30_000, 200_000, 1_000_000].contains(&draws) {
                let (drawn, stated) = (seen.len() as f64, distinct.of(f64::from(draws)));
                assert!(
                    (drawn - stated).abs() < 5.0 * drawn.sqrt().max(2.0),
                    "{draws}: {drawn} and {stated}"
                );
            }
        }

        assert!((distinct.of(distinct.all()) - f64::from(KEYS)).abs() < 1.0);
    }
}
