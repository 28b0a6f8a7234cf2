//! Bit errors of flash: the error rate of each page, and what a read of it needs.
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
//! the last; then soft decoding may follow. What nothing corrects is an uncorrectable read: the host gets a media error,
//! and collection programs a page that stands for lost data.
//!
//! The firmware's half has no clock, so it cannot know ages in time. Data has an age when the run begins
//! (`errors.age_days`), and from there on ages by the number of writes and remaps, as for refresh:
//! `errors.writes_per_day` of them are a day.
//!
//! Invariants: the same sequence of operations has the same outcomes; only products and sums of floating-point numbers
//! are used, which are the same everywhere. Absent: times (`nand/errors.rs`), errors that move between pages, and
//! persistence: an image has no counts of reads and no ages. They survive `Device::power_cycle`.

use crate::config::Errors;
use remap_ssd_media::{BitErrors, BlockId, Geometry, Ppn, ReadOutcome};

/// What decides the error rate of a block's pages.
#[derive(Clone, Copy, Default)]
struct Block {
    erases: u32,
    /// Since the latest erase.
    reads: u32,
    /// The number of writes when its first page since then was programmed; `None` before the run.
    programmed: Option<u64>,
}

/// The error rates of all blocks.
pub(crate) struct ErrorModel {
    errors: Errors,
    geometry: Geometry,
    endurance: f64,
    blocks: Vec<Block>,
    /// The newest number of a write, now and when the run began.
    newest: u64,
    began: u64,
}

impl ErrorModel {
    /// Flash that was programmed before the run. `newest`: the number of its latest write.
    pub(crate) fn new(geometry: Geometry, errors: &Errors, endurance: u64, newest: u64) -> Self {
        Self {
            errors: errors.clone(),
            geometry,
            endurance: endurance as f64,
            blocks: vec![Block::default(); geometry.blocks() as usize],
            newest,
            began: newest,
        }
    }

    fn days_since(&self, write: u64) -> f64 {
        match self.errors.writes_per_day {
            0 => 0.0,
            writes => self.newest.saturating_sub(write) as f64 / writes as f64,
        }
    }

    /// The rate of a page in the middle of the distribution.
    fn rate(&self, block: Block) -> f64 {
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

        // Products alone: a power function need not give the same on every machine.
        let share = (erase_cycles as f64 + f64::from(block.erases)) / self.endurance;
        let worn = (0..wear_power).fold(1.0, |product, _| product * share);
        let days = match block.programmed {
            Some(write) => self.days_since(write),
            None => age_days + self.days_since(self.began),
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

impl BitErrors for ErrorModel {
    fn read(&mut self, page: Ppn) -> ReadOutcome {
        let block = &mut self.blocks[self.geometry.slot(page).block.0 as usize];
        // It disturbs the other pages.
        block.reads = block.reads.saturating_add(1);
        let block = *block;

        let rate = self.rate(block) * self.spread(page, block.erases);
        if rate <= self.errors.correctable_rate() {
            return ReadOutcome::Retries(0);
        }
        let retries = &self.errors.retry_rates;
        match retries.iter().position(|most| rate <= *most) {
            Some(at) => ReadOutcome::Retries(at as u8 + 1),
            None if rate <= self.errors.soft_rate => ReadOutcome::Soft,
            None => ReadOutcome::Failed,
        }
    }

    fn programmed(&mut self, page: Ppn, wsn: u64) {
        self.newest = self.newest.max(wsn);
        let slot = self.geometry.slot(page);
        if slot.row == 0 {
            self.blocks[slot.block.0 as usize].programmed = Some(self.newest);
        }
    }

    fn erased(&mut self, block: BlockId) {
        let block = &mut self.blocks[block.0 as usize];
        *block = Block {
            erases: block.erases.saturating_add(1),
            ..Block::default()
        };
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
    use ReadOutcome::{Failed, Retries, Soft};
    use remap_ssd_media::geometry::Shape;

    fn one_die(pages_per_block: u32) -> Geometry {
        Geometry::new(Shape {
            channels: 1,
            dies: 1,
            superblocks: 16,
            pages_per_block,
        })
        .expect("a valid shape")
    }

    /// Flash whose pages need no retry up to 1e-3, one up to 2e-3, two up to 4e-3, and soft decoding up to 8e-3.
    fn flash(errors: Errors) -> ErrorModel {
        let errors = Errors {
            codeword_bits: 8000,
            correctable_bits: 8,
            retry_rates: vec![2e-3, 4e-3],
            soft_rate: 8e-3,
            ..errors
        };
        ErrorModel::new(one_die(8), &errors, 1000, 100)
    }

    fn of_rate(rate: f64) -> Errors {
        Errors {
            rate,
            ..Errors::default()
        }
    }

    #[test]
    fn a_read_needs_what_its_rate_needs() {
        for (rate, outcome) in [
            (1e-3, Retries(0)),
            (1.1e-3, Retries(1)),
            (2e-3, Retries(1)),
            (3e-3, Retries(2)),
            (5e-3, Soft),
            (9e-3, Failed),
        ] {
            assert_eq!(flash(of_rate(rate)).read(Ppn(7)), outcome, "{rate}");
        }
    }

    // 1e-3 at half of the endurance, and an erase more raises it.
    #[test]
    fn wear_raises_the_rate() {
        let mut worn = flash(Errors {
            wear: 4.0,
            erase_cycles: 500,
            ..of_rate(0.5e-3)
        });
        assert_eq!(worn.read(Ppn(7)), Retries(0));
        worn.erased(BlockId(0));
        assert_eq!(worn.read(Ppn(7)), Retries(1));
        assert_eq!(worn.read(Ppn(8)), Retries(0), "another block");
    }

    // Twice the rate after ten days of 50 writes. What is written in the run is young, and ages with its block's first
    // page.
    #[test]
    fn age_raises_the_rate() {
        let mut aged = flash(Errors {
            retention: 0.1,
            age_days: 9.0,
            writes_per_day: 50,
            ..of_rate(0.51e-3)
        });
        assert_eq!(aged.read(Ppn(7)), Retries(0));
        aged.programmed(Ppn(9), 150);
        assert_eq!(aged.read(Ppn(7)), Retries(1), "a day later");
        assert_eq!(
            aged.read(Ppn(9)),
            Retries(1),
            "its block was programmed before"
        );

        aged.erased(BlockId(1));
        aged.programmed(Ppn(8), 160);
        assert_eq!(aged.read(Ppn(8)), Retries(0));
        aged.programmed(Ppn(9), 630);
        assert_eq!(aged.read(Ppn(9)), Retries(0));
        aged.programmed(Ppn(10), 0);
        aged.programmed(Ppn(11), 660);
        assert_eq!(aged.read(Ppn(8)), Retries(1), "ten days later");

        let mut ageless = flash(Errors {
            retention: 0.1,
            age_days: 9.0,
            ..of_rate(0.51e-3)
        });
        ageless.programmed(Ppn(9), 1 << 41);
        assert_eq!(ageless.read(Ppn(9)), Retries(0));
    }

    // The hundredth read of a block is above the limit.
    #[test]
    fn reads_raise_the_rate_until_the_erase() {
        let mut read = flash(Errors {
            disturb: 1e-6,
            ..of_rate(0.9005e-3)
        });
        for page in 0..99 {
            assert_eq!(read.read(Ppn(page % 8)), Retries(0));
        }
        assert_eq!(read.read(Ppn(7)), Retries(1));
        read.erased(BlockId(0));
        assert_eq!(read.read(Ppn(7)), Retries(0));
    }

    // Log-normal: of the pages 15.9 % are above one deviation, and 50 % above the middle.
    #[test]
    fn pages_differ_and_each_stays_as_it_is() {
        let shares = |rate, seed| {
            let errors = Errors {
                spread: 0.5,
                seed,
                ..of_rate(rate)
            };
            let mut flash = flash(errors);
            flash.geometry = one_die(500);
            let mut read = || {
                (0..8000)
                    .map(|page| flash.read(Ppn(page)))
                    .collect::<Vec<_>>()
            };
            let (once, again) = (read(), read());
            assert!(once == again);
            let high = once.iter().filter(|outcome| **outcome != Retries(0));
            (high.count() as f64 / 8000.0, once)
        };

        // Log-normal: half the pages are above the median, and 15.9 % more than one standard deviation above it.
        let (half, pages) = shares(1e-3, 1);
        assert!((half - 0.5).abs() < 0.02, "{half}");
        let (sixth, _) = shares(1e-3 * (-0.5_f64).exp(), 1);
        assert!((sixth - 0.159).abs() < 0.015, "{sixth}");
        assert!(pages != shares(1e-3, 2).1);
    }

    #[test]
    fn powers_of_e() {
        for x in [-8.0, -1.0, 0.0, 0.5, 8.0_f64] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-5, "{x}");
        }
    }
}
