//! Ages a device to the state in which the published evaluations measure.
//!
//! 1. Random writes until garbage collection has run (FAST'21 section 5.2); optionally each of the
//!    pages once before, so that none is unmapped. Or all logical pages once, in order, each with a
//!    unique content, and nothing else (Coldmap, section V); or the addressable pages once, in order,
//!    with the source's contents, and nothing else.
//! 2. Remaps of random pages until the remapping metadata is 90 % used, 70 % of that valid.
//!    Remapping a page again makes its earlier entry stale. This step is skipped by a device
//!    without remapping, by one whose tables have an entry for every page (there is nothing to
//!    fill), and by one that remaps to homes only.
//! 3. Optionally, writes of a multiple of the addressable pages, until a steady state is reached.
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
    /// Seed of the choice of pages to remap.
    pub seed: u64,
    /// Fraction of the remapping metadata's space to use; 0 skips the step.
    pub nvram_used: f64,
    /// Fraction of that which stays valid.
    pub nvram_valid: f64,
    /// Writes afterwards, in multiples of the addressable pages.
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgingReport {
    /// Pages written by the fill.
    pub filled: u64,
    /// Pages remapped to fill the metadata.
    pub remapped: u64,
    /// Pages overwritten afterwards.
    pub overwritten: u64,
    /// Fraction of the remapping metadata's space in use, if it is limited.
    pub nvram_used: f64,
    /// Fraction of that which is valid.
    pub nvram_valid: f64,
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
    let remapped = aging.remap(options)?;

    // Last: filling the metadata leaves an uneven distribution of valid pages, which garbage
    // collection must level.
    let addressable = f64::from(aging.device.config().addressable_lpns());
    let overwritten = (addressable * options.overwrite) as u64;
    aging.write(overwritten)?;

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

/// First content identity of a sequential fill; no workload or trace uses these.
const FILL_CONTENTS: u64 = 1 << 44;

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
        let step = u64::from(stride(pages));
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

            let mut lpn = page.lpn;
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

    /// Remaps random written pages until the metadata is as full as wanted. Returns their number.
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

        let mut draws = Draws {
            rng: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            lpns: &self.lpns,
            remapped: LpnSet::new(config.lpns),
            again: Vec::new(),
        };

        let mut done = 0;
        // With space for `room` entries, using 0.9 of it takes about 0.9 x room remaps, and a few
        // times that where the scheme reclaims space in between, or entries are larger.
        while done < 4 * room {
            let (used, valid) = fullness(self.device.ftl(), room);
            if used >= options.nvram_used {
                break;
            }

            // The deficit decides: a new target adds a valid entry, a second remap of an old one
            // makes an entry stale.
            let renew = valid >= options.nvram_valid * used.max(f64::MIN_POSITIVE)
                && !draws.again.is_empty();

            // A whole stride would overshoot a small NVRAM.
            let stride = STRIDE.min((room / 256).max(1));

            for _ in 0..stride {
                let target = if renew {
                    draws.old_target()
                } else {
                    draws.new_target()
                };

                let source = draws.source(target);
                let remap = Remap {
                    target,
                    source,
                    len: 1,
                    relocate: false,
                    atomic: false,
                };

                self.device
                    .untimed(|ftl| ftl.remap(&remap))
                    .map_err(AgingError::Refused)?;
            }

            done += stride;
        }

        Ok(done)
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

    /// Draws a page not remapped here yet, if one is found within `TRIES`.
    fn new_target(&mut self) -> Lpn {
        let mut target = Lpn::ZERO;
        for _ in 0..TRIES {
            target = self.lpns[self.draw(self.lpns.len())];
            if self.remapped.insert(target) {
                self.again.push(target);
                break;
            }
        }
        target
    }

    /// Draws a page already remapped here.
    fn old_target(&mut self) -> Lpn {
        let at = self.draw(self.again.len());
        self.again[at]
    }

    fn source(&mut self, target: Lpn) -> Lpn {
        let at = self.draw(self.lpns.len());

        // Never the target itself: such a remap would change nothing.
        match self.lpns[at] {
            same if same == target => self.lpns[(at + 1) % self.lpns.len()],
            other => other,
        }
    }
}

/// A set of logical pages, one bit each.
struct LpnSet {
    words: Vec<u64>,
    len: u64,
}

impl LpnSet {
    fn new(lpns: u32) -> Self {
        Self {
            words: vec![0; (lpns as usize).div_ceil(64)],
            len: 0,
        }
    }

    /// Adds a page; `false` if it was already present.
    #[inline]
    fn insert(&mut self, lpn: Lpn) -> bool {
        let (word, bit) = (&mut self.words[lpn.index() / 64], 1 << (lpn.0 % 64));
        let new = *word & bit == 0;
        *word |= bit;
        self.len += u64::from(new);
        new
    }
}
