//! Bit errors, and the time that it takes to correct them.
//!
//! The raw bit error rate of a page follows from its block's wear, its age and the block's reads:
//!
//! ```text
//! rate = (base · (1 + wear · (cycles / endurance) ^ power) · (1 + retention · days) + disturb · reads) · spread of the page
//! ```
//!
//! Such terms were measured on chips: power laws of cycles and age (Cai et al., DATE 2012; Luo et al., SIGMETRICS
//! 2018), and a growth with reads (Cai et al., DSN 2015). Pages differ: the spread is about log-normal. A hash of the page, its
//! block's erase count and a seed picks the page's place in it, so runs repeat.
//!
//! A codeword that has too many errors is read again with other voltages. Each retry corrects a higher rate, up to
//! the last; then soft decoding may follow. What nothing corrects is counted, and delivered.
//!
//! Invariants: the same sequence of operations gives the same retries; only products and sums of floating-point numbers
//! are used, which are the same everywhere. Absent: effects on data, and errors that move between pages.

use crate::config::Errors;
use remap_ssd_media::{Geometry, Ppn};

const DAY_NS: f64 = 86_400e9;

/// Reads of pages of 4 KiB from flash by what they needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadErrors {
    /// Reads that ended after 0, 1, 2, .. retries.
    pub by_retries: Vec<u64>,
    /// Reads that all retries did not correct, but soft decoding did.
    pub soft: u64,
    /// Reads that nothing corrected.
    pub uncorrectable: u64,
}

impl ReadErrors {
    /// The same from `earlier` on.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.by_retries.iter().zip(&earlier.by_retries);
        Self {
            by_retries: counts.map(|(now, before)| now - before).collect(),
            soft: self.soft - earlier.soft,
            uncorrectable: self.uncorrectable - earlier.uncorrectable,
        }
    }

    /// Retries of a read, in the mean.
    pub fn retries_per_read(&self) -> f64 {
        let most = self.by_retries.len().saturating_sub(1) as u64;
        let failed = self.soft + self.uncorrectable;
        let (mut reads, mut retries) = (failed, failed * most);
        for (count, of_count) in (0..).zip(&self.by_retries) {
            reads += of_count;
            retries += count * of_count;
        }
        if reads == 0 {
            0.0
        } else {
            retries as f64 / reads as f64
        }
    }
}

/// What decides the error rate of a block's pages.
#[derive(Clone, Copy, Default)]
struct Block {
    erases: u32,
    /// Since the latest erase.
    reads: u32,
    /// When its first page since then was programmed; `None` before the run.
    programmed: Option<u64>,
}

/// The error rates of all blocks.
pub(super) struct ErrorModel {
    errors: Errors,
    geometry: Geometry,
    endurance: f64,
    blocks: Vec<Block>,
    pub found: ReadErrors,
}

impl ErrorModel {
    /// `None` if flash has no errors.
    pub(super) fn new(geometry: Geometry, errors: &Errors, endurance: u64) -> Option<Self> {
        let blocks = geometry.superblocks() as usize * geometry.dies() as usize;
        (errors.rate > 0.0).then(|| Self {
            errors: errors.clone(),
            geometry,
            endurance: endurance as f64,
            blocks: vec![Block::default(); blocks],
            found: ReadErrors {
                by_retries: vec![0; errors.retry_rates.len() + 1],
                ..ReadErrors::default()
            },
        })
    }

    /// Decoding a page.
    pub(super) fn decode_ns(&self) -> u64 {
        self.errors.decode_ns
    }

    fn block(&mut self, page: Ppn) -> &mut Block {
        &mut self.blocks[self.geometry.slot(page).block.0 as usize]
    }

    pub(super) fn erased(&mut self, page: Ppn) {
        let block = self.block(page);
        *block = Block {
            erases: block.erases.saturating_add(1),
            ..Block::default()
        };
    }

    pub(super) fn programmed(&mut self, page: Ppn, now: u64) {
        self.block(page).programmed.get_or_insert(now);
    }

    /// A page is read, which disturbs its block.
    fn disturb(&mut self, page: Ppn) {
        let block = self.block(page);
        block.reads = block.reads.saturating_add(1);
    }

    /// A page is read: returns the time of its retries.
    pub(super) fn read(&mut self, page: Ppn, now: u64) -> u64 {
        self.disturb(page);
        let block = *self.block(page);
        let rate = self.rate(block, now) * self.spread(page, block.erases);

        let Errors {
            retry_ns,
            soft_rate,
            soft_ns,
            ref retry_rates,
            ..
        } = self.errors;
        let retries = match rate <= self.errors.correctable_rate() {
            true => Some(0),
            false => retry_rates
                .iter()
                .position(|most| rate <= *most)
                .map(|at| at + 1),
        };
        if let Some(retries) = retries {
            self.found.by_retries[retries] += 1;
            return retries as u64 * retry_ns;
        }
        match rate <= soft_rate {
            true => self.found.soft += 1,
            false => self.found.uncorrectable += 1,
        }
        retry_rates.len() as u64 * retry_ns + soft_ns
    }

    /// The rate of a page in the middle of the distribution.
    fn rate(&self, block: Block, now: u64) -> f64 {
        let Errors {
            rate,
            wear,
            wear_power,
            retention,
            age_days,
            disturb,
            erase_cycles,
            ..
        } = self.errors;
        let share = (erase_cycles as f64 + f64::from(block.erases)) / self.endurance;
        let worn = (0..wear_power).fold(1.0, |product, _| product * share);
        let days = match block.programmed {
            Some(time) => now.saturating_sub(time) as f64 / DAY_NS,
            None => age_days + now as f64 / DAY_NS,
        };
        rate * (1.0 + wear * worn) * (1.0 + retention * days) + disturb * f64::from(block.reads)
    }

    /// How much more or less than that a page has.
    fn spread(&self, page: Ppn, erases: u32) -> f64 {
        if self.errors.spread == 0.0 {
            return 1.0;
        }
        let mut hash = self.errors.seed ^ u64::from(page.0) << 32 ^ u64::from(erases);
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            hash = (hash ^ hash >> 30)
                .wrapping_add(0x9e37_79b9_7f4a_7c15)
                .wrapping_mul(factor);
        }
        hash ^= hash >> 31;
        // The sum of four even distributions, with mean 0 and deviation 1.
        let sum: u64 = (0..4).map(|at| hash >> (16 * at) & 0xffff).sum();
        let normal = ((sum as f64 + 2.0) / 65_536.0 - 2.0) * 1.732_050_807_568_877_2;
        exp(self.errors.spread * normal)
    }
}

/// e^x, from products alone.
fn exp(x: f64) -> f64 {
    const SQUARINGS: u32 = 24;
    (0..SQUARINGS).fold(1.0 + x / f64::from(1 << SQUARINGS), |power, _| {
        power * power
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_e() {
        for x in [-8.0, -1.0, 0.0, 0.5, 8.0_f64] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-5, "{x}");
        }
    }
}
