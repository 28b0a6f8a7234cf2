//! Ages a device to the state in which the published evaluations measure.
//!
//! ```text
//! 1 fill        every page once, in a scattered order           all pages valid, no garbage
//!   or random   writes until garbage collection has run         (FAST'21 section 5.2)
//! 2 overwrite   random pages, a multiple of all of them         garbage as in steady state, free pool at
//!                                                               its watermark
//! 3 remap       pages change places: a hole wanders             metadata 90 % used, 70 % of it valid; flash
//!                 [A][B][ ] -> [A][ ][B] -> [ ][A][B] -> ..     as after step 2
//! ```
//!
//! All schemes get the same writes, and step 3 neither frees nor programs a page: each of its remaps
//! moves a page to the logical page that the previous one left. So with contents that have no
//! duplicates, all schemes begin with the same valid pages, garbage and free superblocks in the same
//! places; their maps differ by a permutation of random pages, which a scheme that cannot remap does
//! not have. Exceptions: entries that are logged on flash are programmed, and on a device without an
//! unwritten page one page is written again. Moving a page again makes its earlier entry stale. Step 3 is skipped by a device without
//! remapping, by one whose tables have an entry for every page (there is nothing to fill), and by one
//! that remaps to homes only.
//!
//! Other fills have one step: all logical pages in order, each with a unique content (Coldmap, section
//! V), or the addressable ones in order, with the source's contents.
//!
//! Pages here are those of the firmware: indirection units, all of which are written whole.
//!
//! No virtual time passes. Invariants: every loop is bounded, and a loop without progress is an
//! error that says why; the same seed and source give the same device. Absent: the contents written
//! (the source's).

mod spec;

pub use spec::{AgingSpec, FillSpec};

use crate::run::Feed;
use crate::source::{Source, SourceError};
use crate::workload::stride;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::Device;
use remap_ssd_ftl::{Ftl, Lpn, Refusal, Remap};
use remap_ssd_media::Payload;
use serde::{Deserialize, Serialize};

/// How a device is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Random writes until garbage collection has run; then steps 2 and 3.
    #[default]
    Random,
    /// The given number of pages, from page 0, once in a scattered order; then as `Random`.
    Whole(u32),
    /// All logical pages once, in order, without duplicates; nothing else.
    Sequential,
    /// The given number of pages from the source, which writes them in order; nothing else.
    Ordered(u32),
}

/// How to age a device.
#[derive(Clone, Debug)]
pub struct AgingOptions {
    /// How the device is filled.
    pub fill: Fill,
    /// Seed of the choice of pages to move.
    pub seed: u64,
    /// Fraction of the remapping metadata's space to use; 0 skips the step.
    pub nvram_used: f64,
    /// Fraction of that which stays valid.
    pub nvram_valid: f64,
    /// Writes after the fill, in multiples of the addressable pages.
    pub overwrite: f64,
}

impl Default for AgingOptions {
    fn default() -> Self {
        Self {
            fill: Fill::Random,
            seed: 1,
            nvram_used: 0.9,
            nvram_valid: 0.7,
            overwrite: 0.0,
        }
    }
}

/// Result of aging, in pages and fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgingReport {
    /// Pages written by the fill.
    pub filled: u64,
    /// Pages remapped to fill the metadata.
    pub remapped: u64,
    /// Pages overwritten after the fill.
    pub overwritten: u64,
    /// Fraction of the remapping metadata's space in use, if it is limited.
    pub nvram_used: f64,
    /// Fraction of that which is valid.
    pub nvram_valid: f64,
}

impl AgingReport {
    /// Units of `unit` pages each become pages.
    pub(crate) fn in_pages(self, unit: u32) -> Self {
        let unit = u64::from(unit);
        Self {
            filled: self.filled * unit,
            remapped: self.remapped * unit,
            overwritten: self.overwritten * unit,
            ..self
        }
    }
}

/// Why a device could not be aged.
#[derive(Debug, thiserror::Error)]
pub enum AgingError {
    /// The source of writes failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The source ended after this number of pages.
    #[error("aging needs an endless source of writes: this one ended after {0} pages")]
    Ended(u64),
    /// The source does not write.
    #[error("aging needs a source of writes: {0} pages went by without one")]
    NoWrites(u64),
    /// Garbage collection does not start.
    #[error(
        "garbage collection did not start: {writes} random writes programmed {programs} of {pages} pages; \
         write contents with fewer duplicates or address more pages"
    )]
    NeverFull {
        /// Pages written without a run of garbage collection.
        writes: u64,
        /// Flash pages programmed for them.
        programs: u64,
        /// Flash pages of the device.
        pages: u64,
    },
    /// The device refuses a write or a remap.
    #[error("the device refused a page while aging: {0}")]
    Refused(Refusal),
}

/// Writes during which fewer than one in 64 may be programmed, in multiples of the logical pages.
const FRUITLESS_ROUNDS: u64 = 8;

/// Pages submitted between two checks of the firmware's counters.
const STRIDE: u64 = 1024;

/// Ages a device. `writes` is a random workload over the addressable pages with the contents of the
/// run to come; its reads and deallocations are skipped.
///
/// # Errors
/// The source fails, or the device does not reach the wanted state.
pub fn age(
    device: &mut Device,
    writes: &mut dyn Source,
    options: &AgingOptions,
) -> Result<AgingReport, AgingError> {
    let before = device.ftl().stats().host_writes;
    let aged = age_units(device, writes, options)?;
    device.count_written_units(device.ftl().stats().host_writes - before);
    Ok(aged)
}

fn age_units(
    device: &mut Device,
    writes: &mut dyn Source,
    options: &AgingOptions,
) -> Result<AgingReport, AgingError> {
    // Coldmap's setup: written once and in order, without garbage collection.
    if options.fill == Fill::Sequential {
        let filled = fill_in_order(device)?;
        return Ok(AgingReport {
            filled,
            ..AgingReport::default()
        });
    }

    let mut aging = Aging {
        written: LpnSet::new(device.config().firmware.lpns),
        lpns: Vec::new(),
        feed: Feed::default(),
        place: None,
        device,
        source: writes,
    };

    if let Fill::Ordered(pages) = options.fill {
        aging.write(pages.into())?;
        return Ok(AgingReport {
            filled: pages.into(),
            ..AgingReport::default()
        });
    }

    // Before the random writes: pages never written would stay unmapped, and reading them costs no
    // flash read.
    let mut filled = 0;
    if let Fill::Whole(pages) = options.fill {
        filled += u64::from(pages);
        aging.write_each(pages)?;
    }

    filled += aging.fill()?;
    let addressable = f64::from(aging.device.config().addressable_units());
    let overwritten = (addressable * options.overwrite) as u64;
    aging.write(overwritten)?;

    // Last, so that the metadata is as asked at the start of the run.
    let remapped = aging.remap(options)?;

    let usage = aging.device.ftl().usage();
    let share = |part: u64, whole: u64| {
        if whole > 0 {
            part as f64 / whole as f64
        } else {
            0.0
        }
    };

    Ok(AgingReport {
        filled,
        remapped,
        overwritten,
        nvram_used: share(usage.used_bytes, usage.capacity_bytes),
        nvram_valid: share(usage.valid_bytes, usage.used_bytes),
    })
}

/// First content identity of contents that no workload or trace writes.
pub(crate) const FILL_CONTENTS: u64 = 1 << 44;

/// Writes every logical page once; returns their number.
fn fill_in_order(device: &mut Device) -> Result<u64, AgingError> {
    let lpns = device.config().firmware.lpns;
    for lpn in Lpn::range(Lpn::ZERO, lpns) {
        let content = Payload::Identity(FILL_CONTENTS + u64::from(lpn));
        device
            .untimed(|ftl| ftl.write(lpn, &content))
            .map_err(AgingError::Refused)?;
    }
    Ok(lpns.into())
}

struct Aging<'a> {
    device: &'a mut Device,
    source: &'a mut dyn Source,
    feed: Feed,
    /// Overrides the source's LPNs: the next LPN, the step to the one after it, and the number of
    /// pages.
    place: Option<(u64, u64, u64)>,
    written: LpnSet,
    /// The members of `written`, for draws.
    lpns: Vec<Lpn>,
}

impl Aging<'_> {
    /// Writes at random until garbage collection has run.
    fn fill(&mut self) -> Result<u64, AgingError> {
        let begin = self.device.ftl().stats();
        let pages = u64::from(self.device.config().geometry.pages());
        // Longer than any stretch of duplicates on a device that is still filling.
        let patience = FRUITLESS_ROUNDS * u64::from(self.device.config().firmware.lpns);

        let (mut writes, mut checked_writes, mut checked_programs) = (0, 0, 0);
        while self.device.ftl().stats().gc_runs == begin.gc_runs {
            self.write(STRIDE)?;
            writes += STRIDE;

            // With many duplicates most writes program nothing. Measured over a long stretch, since
            // a short one may be all hits on a device that is still filling.
            if writes - checked_writes >= patience {
                let programs = self.device.ftl().stats().host_programs - begin.host_programs;
                if programs - checked_programs < (writes - checked_writes) / 64 {
                    return Err(AgingError::NeverFull {
                        writes,
                        programs,
                        pages,
                    });
                }
                (checked_writes, checked_programs) = (writes, programs);
            }
        }

        Ok(writes)
    }

    /// Writes each page once, with the source's contents.
    fn write_each(&mut self, pages: u32) -> Result<(), AgingError> {
        // Scattered: in order, superblocks would hold neighbours, and be invalidated as wholes.
        let step = stride(pages.into());
        self.place = Some((0, step, u64::from(pages)));
        let written = self.write(pages.into());
        self.place = None;
        written
    }

    /// Writes `count` pages from the source.
    fn write(&mut self, count: u64) -> Result<(), AgingError> {
        let (mut done, mut seen) = (0, 0);
        while done < count {
            // Look-ahead needs the following pages, so they are drawn in batches.
            let Some(page) = self.feed.next(self.device) else {
                if !self.feed.refill(self.source)? {
                    return Err(AgingError::Ended(seen));
                }
                continue;
            };

            seen += 1;
            if !page.kind.writes() {
                // A trace of reads alone would be read forever.
                if seen > 1_000_000 && done == 0 {
                    return Err(AgingError::NoWrites(seen));
                }
                continue;
            }

            // The source addresses units.
            let mut lpn = page.lpn.unit(0);
            // The override wins over the workload's LPN: each page is written once, in a scattered
            // order.
            if let Some((at, step, pages)) = &mut self.place {
                lpn = Lpn(*at as u32);
                *at = (*at + *step) % *pages;
            }

            let payload = Payload::Identity(page.content);
            let result = self.device.untimed(|ftl| ftl.write(lpn, &payload));
            result.map_err(AgingError::Refused)?;

            // Each written page once: remaps draw their sources from these.
            if self.written.insert(lpn) {
                self.lpns.push(lpn);
            }
            done += 1;
        }

        Ok(())
    }

    /// Moves random written pages until the metadata is as full as wanted. Returns the number of
    /// moves.
    fn remap(&mut self, options: &AgingOptions) -> Result<u64, AgingError> {
        let config = &self.device.config().firmware;
        let has_tables = self.device.ftl().usage().p2l_bytes > 0;
        let remaps = self.device.ftl().remaps() && !config.scheme.uses_hints();
        // Nothing to fill: no entries, a table for all of them, or remaps to homes only.
        if !remaps || has_tables || options.nvram_used <= 0.0 || self.lpns.len() < 2 {
            return Ok(0);
        }

        let entry_bytes = 8 * config.entry.words() as u64;
        let room = config.log_bytes / entry_bytes;
        let lpns = config.lpns;

        let mut draws = Draws {
            rng: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            lpns: &self.lpns,
            remapped: LpnSet::new(lpns),
            again: Vec::new(),
        };

        // A page that was never written, or that is written again afterwards.
        let unwritten = self.written.first_absent(lpns);
        let home = unwritten.unwrap_or(self.lpns[0]);

        let mut hole = Hole(home);
        let mut done = 0;
        // With space for `room` entries, using 0.9 of it takes about 0.9 x room remaps, and a few
        // times that where the scheme reclaims space in between, or entries are larger.
        while done < 4 * room {
            let (used, valid) = fullness(self.device.ftl(), room);
            if used >= options.nvram_used {
                break;
            }

            // The deficit decides: a page that was not moved yet adds a valid entry, one that was
            // makes an entry stale.
            let renew = valid >= options.nvram_valid * used.max(f64::MIN_POSITIVE)
                && !draws.again.is_empty();

            // A whole stride would overshoot a small NVRAM.
            let stride = STRIDE.min((room / 256).max(1));

            for _ in 0..stride {
                let source = if renew {
                    draws.moved_page()
                } else {
                    draws.unmoved_page()
                };
                hole.take(self.device, source)?;
            }

            done += stride;
        }

        // The hole returns: the same pages are mapped as before.
        let returned = if unwritten.is_some() {
            hole.take(self.device, home)?;
            self.device.untimed(|ftl| ftl.deallocate(home, 1))
        } else {
            let payload = Payload::Identity(FILL_CONTENTS - 1);
            self.device.untimed(|ftl| ftl.write(hole.0, &payload))
        };
        returned.map_err(AgingError::Refused)?;

        Ok(done)
    }
}

/// The logical page to which the next page is moved.
struct Hole(Lpn);

impl Hole {
    /// Moves a page here, and is where it was. The page has two owners until the next one is moved to
    /// its place: to take it away first would be noted on flash.
    fn take(&mut self, device: &mut Device, source: Lpn) -> Result<(), AgingError> {
        if source == self.0 {
            return Ok(());
        }
        let remap = Remap {
            target: std::mem::replace(&mut self.0, source),
            source,
            len: 1,
            relocate: false,
            atomic: false,
        };
        let moved = device.untimed(|ftl| ftl.remap(&remap));
        moved.map_err(AgingError::Refused)
    }
}

/// Fractions of the space that are used and valid. A scheme without limit counts all remaps so far
/// against the same space, so that every scheme starts a run from the same mappings.
fn fullness(ftl: &Ftl, room: u64) -> (f64, f64) {
    let usage = ftl.usage();
    let (used, valid, whole) = match usage.capacity_bytes {
        // Without a limit there is no size: remaps so far count as used, and valid bytes as entries
        // of 16 bytes.
        0 => (ftl.stats().remaps, usage.valid_bytes / 16, room),
        capacity => (usage.used_bytes, usage.valid_bytes, capacity),
    };
    (
        used as f64 / whole.max(1) as f64,
        valid as f64 / whole.max(1) as f64,
    )
}

struct Draws<'a> {
    rng: Xoshiro256PlusPlus,
    lpns: &'a [Lpn],
    remapped: LpnSet,
    /// The members of `remapped`, for draws.
    again: Vec<Lpn>,
}

/// Draws before a less suitable page is accepted.
const TRIES: usize = 16;

impl Draws<'_> {
    fn draw(&mut self, from: usize) -> usize {
        // The high half of the product: uniform, but for a bias of `from` in 2^64.
        ((u128::from(self.rng.next_u64()) * from as u128) >> 64) as usize
    }

    /// Draws a page that was not moved yet, if one is found within `TRIES`.
    fn unmoved_page(&mut self) -> Lpn {
        let mut page = Lpn::ZERO;
        for _ in 0..TRIES {
            page = self.lpns[self.draw(self.lpns.len())];
            if self.remapped.insert(page) {
                self.again.push(page);
                break;
            }
        }
        page
    }

    /// Draws a page that was moved already.
    fn moved_page(&mut self) -> Lpn {
        let at = self.draw(self.again.len());
        self.again[at]
    }
}

/// A set of logical pages, one bit each.
struct LpnSet {
    words: Vec<u64>,
}

impl LpnSet {
    fn new(lpns: u32) -> Self {
        Self {
            words: vec![0; (lpns as usize).div_ceil(64)],
        }
    }

    /// Adds a page; `false` if it was already present.
    #[inline]
    fn insert(&mut self, lpn: Lpn) -> bool {
        let (word, bit) = (&mut self.words[lpn.index() / 64], 1 << (lpn.0 % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// The first of `lpns` pages that is absent.
    fn first_absent(&self, lpns: u32) -> Option<Lpn> {
        let word = self.words.iter().position(|word| *word != u64::MAX)?;
        let lpn = word as u32 * 64 + self.words[word].trailing_ones();
        (lpn < lpns).then_some(Lpn(lpn))
    }
}
