//! Draws ranks with probability proportional to `rank^-exponent`, exactly, and mostly without
//! computing powers.
//!
//! The ranks are divided into *steps*: each small rank alone, then each octave of ranks in 32 equal
//! parts. A step is drawn with the weight it would have if all of its ranks were as likely as its
//! first (one lookup in an alias table); a rank is drawn uniformly within the step; and it is
//! accepted with the probability `(rank / first)^-exponent`, else everything is drawn again. The
//! result has exactly the wanted distribution, up to the rounding of 53-bit weights. The smallest
//! of those probabilities is known for each step and near 1, so that the power itself is computed
//! only in a few draws of a hundred.
//!
//! Invariants: steps adjoin and cover `1..=count`; `sure` is not above any rank's probability. The
//! same random bits give the same rank on any machine: powers come from a software library and
//! everything else is IEEE basic operations and integers. Absent: limits on the exponent near 1,
//! which inversion of an integral would need.

use rand::Rng;

use super::WorkloadError;
use remap_ssd_device::HostLpn;

/// Ranks up to this are steps of one rank.
const SINGLE_RANKS: u64 = 64;
/// As many as the largest device has pages.
const RANKS_MAX: u64 = HostLpn::PAGES_MAX;
const STEPS_PER_OCTAVE: u64 = 32;
const EXPONENT_MAX: f64 = 16.0;

/// A sampler of ranks `1..=count`.
///
/// ```
/// use rand::SeedableRng;
/// use remap_ssd_sim::workload::Zipf;
/// let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
/// let ranks = Zipf::new(1000, 0.99).unwrap();
/// assert!((1..=1000).contains(&ranks.draw(&mut rng)));
/// ```
#[derive(Clone, Debug)]
pub struct Zipf {
    exponent: f64,
    /// Random bits that select a cell: the table has 2^`cell_bits` of them.
    cell_bits: u32,
    cells: Vec<AliasCell>,
    steps: Vec<WeightStep>,
}

/// A cell of the alias table: its own step, or another one.
#[derive(Clone, Copy, Debug)]
struct AliasCell {
    /// Own step if the random fraction is below this.
    own: u64,
    other: u32,
}

/// Adjacent ranks that share a weight until the final acceptance.
#[derive(Clone, Copy, Debug)]
struct WeightStep {
    /// The first rank above the low bits, which are the number of ranks less one. Draws miss the cache less often with 16 bytes
    /// a step than with 24.
    ranks: u64,
    /// Any rank of this step is accepted if the random fraction is below this.
    sure: u64,
}

/// Low bits of `WeightStep::ranks`: an octave of the largest ranks in 32 parts.
const COUNT_BITS: u32 = 29;

const _: () = assert!(size_of::<WeightStep>() == 16);
const _: () = assert!(RANKS_MAX >> (STEPS_PER_OCTAVE.ilog2() + 1) == 1 << COUNT_BITS);

impl WeightStep {
    fn new(first: u64, count: u64, sure: u64) -> Self {
        assert!((1..=1 << COUNT_BITS).contains(&count) && first < RANKS_MAX);
        Self {
            ranks: first << COUNT_BITS | (count - 1),
            sure,
        }
    }

    #[inline(always)]
    fn first(self) -> u64 {
        self.ranks >> COUNT_BITS
    }

    #[inline(always)]
    fn count(self) -> u64 {
        (self.ranks & ((1 << COUNT_BITS) - 1)) + 1
    }
}

const FRACTIONS: f64 = 18_446_744_073_709_551_616.0; // 2^64

impl Zipf {
    /// A sampler of `1..=count` with the given exponent, 0 (uniform) to 16.
    ///
    /// # Errors
    /// There is no rank, there are too many, or the exponent is out of range.
    pub fn new(count: u64, exponent: f64) -> Result<Self, WorkloadError> {
        // There would be nothing to draw.
        if count == 0 {
            return Err(WorkloadError::new(
                "a zipf distribution needs at least one rank",
            ));
        }

        if count > RANKS_MAX {
            let reason = format!("a zipf distribution of {count} ranks: at most {RANKS_MAX}");
            return Err(WorkloadError::new(reason));
        }

        if !(0.0..=EXPONENT_MAX).contains(&exponent) {
            let reason = format!("a zipf exponent of {exponent}: 0 to {EXPONENT_MAX} are possible");
            return Err(WorkloadError::new(reason));
        }

        let steps = steps(count, exponent);
        let weight =
            |step: &WeightStep| step.count() as f64 * libm::pow(step.first() as f64, -exponent);
        let weights: Vec<f64> = steps.iter().map(weight).collect();

        // At least two cells, so that a shift by `64 - cell_bits` is less than 64.
        let cell_bits = steps.len().next_power_of_two().ilog2().max(1);

        Ok(Self {
            exponent,
            cell_bits,
            cells: alias_table(&weights, 1 << cell_bits),
            steps,
        })
    }

    /// Draws the next rank, from 1.
    // Not inlined, the call would spend a third of its time on the state of the generator.
    #[inline(always)]
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        loop {
            // The top bits select the cell; those below are the fraction that decides within it.
            let bits = rng.next_u64();
            let place = (bits >> (64 - self.cell_bits)) as usize;
            let cell = self.cells[place];

            // The rest of the bits is a uniform fraction: this cell's own step, or its donor's.
            let own = bits << self.cell_bits < cell.own;
            let step = self.steps[if own { place } else { cell.other as usize }];

            // A single rank is always accepted.
            if step.count() == 1 {
                return step.first();
            }

            // The high word is uniform over the step's ranks, the low one an independent fraction.
            let wide = u128::from(rng.next_u64()) * u128::from(step.count());
            let rank = step.first() + (wide >> 64) as u64;
            let fraction = wide as u64;

            // Below the bound of the step no power is needed.
            if fraction < step.sure || self.keeps(step, rank, fraction) {
                return rank;
            }
        }
    }

    #[cold]
    fn keeps(&self, step: WeightStep, rank: u64, fraction: u64) -> bool {
        fraction < as_fraction(kept(self.exponent, step.first(), rank))
    }
}

/// The probability to accept `rank` in a step that begins with `first`.
fn kept(exponent: f64, first: u64, rank: u64) -> f64 {
    libm::pow(rank as f64 / first as f64, -exponent)
}

fn as_fraction(probability: f64) -> u64 {
    (probability * FRACTIONS) as u64
}

fn steps(count: u64, exponent: f64) -> Vec<WeightStep> {
    // Below the exact value by far more than the rounding of a power, and by far less than
    // measurable.
    const SAFETY: f64 = 1.0 - 1e-12;

    let mut steps = Vec::new();
    let mut first = 1;
    while first <= count {
        // Small ranks differ most from each other: each is a separate step.
        let width = if first <= SINGLE_RANKS {
            1
        } else {
            first.next_power_of_two() / (2 * STEPS_PER_OCTAVE)
        };

        // Neither empty nor past the end.
        let width = width.clamp(1, count - first + 1);

        let last = first + (width - 1);
        let sure = as_fraction(kept(exponent, first, last) * SAFETY);

        steps.push(WeightStep::new(first, width, sure));

        first = last + 1;
    }

    steps
}

/// A table of `len` cells from which step `i` is drawn with probability `weights[i]` / their sum.
///
/// Each cell holds an equal share of the whole. Steps with less than a share are filled up by those
/// with more, one donor per cell; cells after the steps belong to donors alone.
fn alias_table(weights: &[f64], len: usize) -> Vec<AliasCell> {
    let share = weights.iter().sum::<f64>() / len as f64;
    let mut left: Vec<f64> = weights.iter().map(|weight| weight / share).collect();

    // Cells after the steps own nothing and are filled up entirely.
    left.resize(len, 0.0);

    let mut cells: Vec<AliasCell> = (0..len)
        .map(|place| AliasCell {
            own: u64::MAX,
            other: place as u32,
        })
        .collect();

    // Cells with less than a share take from those with more, until all are equal.
    let (mut poor, mut rich): (Vec<usize>, Vec<usize>) =
        (0..len).partition(|&place| left[place] < 1.0);
    while let (Some(&place), Some(&donor)) = (poor.last(), rich.last()) {
        poor.pop();
        cells[place] = AliasCell {
            own: as_fraction(left[place]),
            other: donor as u32,
        };

        // The donor gave the missing part, and may now have less than a share.
        left[donor] -= 1.0 - left[place];
        if left[donor] < 1.0 {
            rich.pop();
            poor.push(donor);
        }
    }

    // The rest hold one share up to rounding. A cell after the steps has no share of its own, so if
    // rounding left one over it is given to the likeliest step.
    let likeliest = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]));

    for place in poor.into_iter().filter(|&place| place >= weights.len()) {
        cells[place] = AliasCell {
            own: 0,
            other: likeliest.unwrap_or(0) as u32,
        };
    }

    cells
}
