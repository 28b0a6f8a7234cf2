//! Filebench's `fileserver`: files created, appended to, read and deleted.
//!
//! Source: `fileserver.f` of filebench with its parameters, as used by FAST'21 (section 5.2) and
//! PebbleSSD: 10,000 files of a gamma distribution (shape 1.5, mean 128 KiB), 80 % of them present
//! at the beginning; each of 50 threads repeatedly creates a file and writes it whole, opens one
//! and appends to it (uniformly below 16 KiB: the script calls that the mean, and `appendfilerand`
//! uses it as the maximum), reads one whole, deletes one. FAST'21 does not mention changes to
//! these.
//!
//! At the block layer: the page cache is written back file after file, so the threads do not
//! interleave in the stream and their number (and the width of the directories, 20) does not show;
//! an append writes the file's last, partial page again; reads are served by the page cache, with
//! `direct` by the device (and the partial page is then a partial write). A deleted file is
//! deallocated. Files are in a space of 1.25 times their mean sum at the start of the device. A
//! file's size is drawn once and is its size each time it is created, as in filebench. Invariants:
//! a page belongs to one file; pages read have been written or existed at the beginning.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkloadError;
use super::draw::{below, unit};
use super::script::{Scale, Script, Steps};
use super::space::{PageExtent, Space};

pub(super) const ABOUT: &str = "filebench fileserver: 10,000 files, gamma mean 128 KiB, 80 % preallocated, appends \
     up to 16 KiB; create, append, read, delete (FAST'21 figure 5)";

const FILES: f64 = 10_000.0;
const PREALLOCATED: f64 = 0.8;
const FILE_BYTES_MEAN: f64 = 131_072.0;
const APPEND_BYTES_MAX: u32 = 16_384;
const PAGE_BYTES: u32 = 4096;
/// Space for files, in multiples of the mean total of all; 80 % exist.
const ROOM: f64 = 1.25;
/// Minimum number of files, or the largest would not fit.
const FILES_MIN: u32 = 20;
/// No file is created larger (one in 30,000 would be) nor grows to more than twice that, so that
/// one always fits.
const CREATED_PAGES_MAX: u32 = 256;
const FILE_PAGES_MAX: u32 = 2 * CREATED_PAGES_MAX;

/// A file that exists or may be created.
struct File {
    /// Size at creation.
    created_bytes: u32,
    bytes: u32,
    extents: Vec<PageExtent>,
}

pub(super) struct Fileserver {
    direct: bool,
    space: Space,
    files: Vec<File>,
    /// Existing files first, then the others.
    order: Vec<u32>,
    existing: usize,
    /// The next of a thread's operations.
    next: u8,
    rng: Xoshiro256PlusPlus,
}

impl Fileserver {
    pub(super) fn new(scale: &Scale) -> Result<Self, WorkloadError> {
        let count = scale.of(FILES, FILES_MIN);
        let mean_pages = FILE_BYTES_MEAN / f64::from(PAGE_BYTES);

        // One of the largest files fits in addition to the mean's share.
        let room = (f64::from(count) * mean_pages * ROOM) as u64 + u64::from(FILE_PAGES_MAX);
        scale.needs(room)?;

        // A copy of the generator: the sizes do not depend on later draws.
        let mut rng = scale.rng.clone();
        let file = |rng: &mut _| File {
            created_bytes: file_bytes(rng),
            bytes: 0,
            extents: Vec::new(),
        };

        let mut server = Self {
            direct: scale.direct,
            space: Space::new(PageExtent {
                first: 0,
                len: room as u32,
            }),
            files: (0..count).map(|_| file(&mut rng)).collect(),
            order: (0..count).collect(),
            existing: 0,
            next: 0,
            rng,
        };

        // A space too small for the script's share holds as many files as fit.
        while (server.existing as f64) < f64::from(count) * PREALLOCATED {
            if server.create().is_none() {
                break;
            }
        }

        Ok(server)
    }

    fn some(&mut self) -> usize {
        below(self.existing as u32, &mut self.rng) as usize
    }

    /// Creates a file with space for all of it; returns its place in the order. `None` if
    /// impossible.
    fn create(&mut self) -> Option<usize> {
        let absent = (self.order.len() - self.existing) as u32;
        if absent == 0 {
            return None;
        }

        // Existing files come first in the order: a place after them is an absent file.
        let place = self.existing + below(absent, &mut self.rng) as usize;
        let file = &mut self.files[self.order[place] as usize];
        if !self
            .space
            .allocate(file.created_bytes.div_ceil(PAGE_BYTES), &mut file.extents)
        {
            return None;
        }
        file.bytes = file.created_bytes;

        // A swap keeps the existing ones in front.
        self.order.swap(place, self.existing);
        self.existing += 1;
        Some(self.existing - 1)
    }

    fn write_whole(&mut self, steps: &mut Steps) {
        match self.create() {
            Some(place) => {
                let file = &self.files[self.order[place] as usize];
                file.extents.iter().for_each(|extent| steps.write(*extent));
            }
            // Full of files that have grown: deletes one first.
            None => self.delete(steps),
        }
    }

    fn append(&mut self, steps: &mut Steps) {
        let place = self.some();
        let more = below(APPEND_BYTES_MAX, &mut self.rng);
        if more == 0 {
            return;
        }

        let file = &mut self.files[self.order[place] as usize];
        let pages = file.bytes.div_ceil(PAGE_BYTES);

        // Only whole new pages take space; the rest fits into the last one.
        let new_pages = (file.bytes + more).div_ceil(PAGE_BYTES) - pages;
        if new_pages > self.space.free_pages() || pages + new_pages > FILE_PAGES_MAX {
            return;
        }

        // A file is created with its pages.
        let last = file.extents.last_mut().expect("a file has a page");
        let end = last.first + last.len;
        let partial = !file.bytes.is_multiple_of(PAGE_BYTES);

        // The last extent grows if possible; the rest is allocated elsewhere.
        file.bytes += more;
        let follows = self.space.extend(end, new_pages);
        last.len += follows;

        let behind = file.extents.len();
        self.space.allocate(new_pages - follows, &mut file.extents);

        // The partial page is written again: with direct I/O, after reading it.
        match (partial, self.direct) {
            (true, false) => steps.write(PageExtent {
                first: end - 1,
                len: 1 + follows,
            }),
            (true, true) => {
                steps.modify(PageExtent {
                    first: end - 1,
                    len: 1,
                });
                steps.write(PageExtent {
                    first: end,
                    len: follows,
                });
            }
            (false, _) => steps.write(PageExtent {
                first: end,
                len: follows,
            }),
        }

        // The rest is elsewhere, one request per extent.
        file.extents[behind..]
            .iter()
            .for_each(|extent| steps.write(*extent));
    }

    fn read_whole(&mut self, steps: &mut Steps) {
        let place = self.some();
        if self.direct {
            let file = &self.files[self.order[place] as usize];
            file.extents.iter().for_each(|extent| steps.read(*extent));
        }
    }

    fn delete(&mut self, steps: &mut Steps) {
        let place = self.some();
        let file = &mut self.files[self.order[place] as usize];
        for extent in file.extents.drain(..) {
            steps.trim(extent);
            self.space.release(extent);
        }
        self.existing -= 1;
        self.order.swap(place, self.existing);
    }
}

impl Script for Fileserver {
    fn step(&mut self, steps: &mut Steps) {
        match self.next {
            0 => self.write_whole(steps),
            1 => self.append(steps),
            2 => self.read_whole(steps),
            _ if self.existing > 1 => self.delete(steps),
            _ => {}
        }
        self.next = (self.next + 1) % 4;
    }
}

/// Draws from a gamma distribution of shape 3/2: the sum of an exponential (shape 1) and half a
/// squared normal (shape 1/2).
fn file_bytes(rng: &mut impl Rng) -> u32 {
    let turn = libm::cos(std::f64::consts::TAU * unit(rng));
    let shape_1 = -libm::log(unit(rng));
    let shape_half = -libm::log(unit(rng)) * turn * turn;
    let bytes = FILE_BYTES_MEAN / 1.5 * (shape_1 + shape_half);
    (bytes as u32).clamp(1, CREATED_PAGES_MAX * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn sizes_have_the_mean_and_the_spread_of_the_gamma_distribution() {
        const FILES: u32 = 400_000;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let sizes: Vec<f64> = (0..FILES)
            .map(|_| f64::from(file_bytes(&mut rng)))
            .collect();
        let mean = sizes.iter().sum::<f64>() / f64::from(FILES);
        let variance =
            sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / f64::from(FILES);
        assert!((mean / FILE_BYTES_MEAN - 1.0).abs() < 0.01, "{mean}");
        // Shape 1.5: the variance is the squared mean divided by it.
        assert!(
            (variance / (FILE_BYTES_MEAN * FILE_BYTES_MEAN / 1.5) - 1.0).abs() < 0.03,
            "{variance}"
        );
    }
}
