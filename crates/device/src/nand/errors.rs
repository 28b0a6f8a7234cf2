//! The time that the correction of bit errors takes, and what reads needed.
//!
//! The firmware's half decides what each read needs (`bit_errors`), since a page that nothing corrects changes what it
//! does. Its operations say so, and here they take their time: each retry and soft decoding keep the die busy,
//! decoding comes after the transfer.
//!
//! Absent: error rates.

use crate::config::Errors;
use remap_ssd_media::{Purpose, ReadOutcome};

/// Reads of pages of 4 KiB from flash by what they needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadErrors {
    /// Reads that ended after 0, 1, 2, .. retries.
    pub by_retries: Vec<u64>,
    /// Reads that all retries did not correct, but soft decoding did.
    pub soft: u64,
    /// Reads that nothing corrected.
    pub uncorrectable: u64,
    /// Of those, reads by garbage collection: the data is lost for all owners of the page.
    pub lost: u64,
}

impl ReadErrors {
    /// The same from `earlier` on.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.by_retries.iter().zip(&earlier.by_retries);
        Self {
            by_retries: counts.map(|(now, before)| now - before).collect(),
            soft: self.soft - earlier.soft,
            uncorrectable: self.uncorrectable - earlier.uncorrectable,
            lost: self.lost - earlier.lost,
        }
    }

    /// Retries of a read, in the mean.
    pub fn retries_per_read(&self) -> f64 {
        // A read that no retry has corrected has had all of them.
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

/// Times of the correction of bit errors.
pub(super) struct Correction {
    errors: Errors,
    pub found: ReadErrors,
}

impl Correction {
    /// `None` if flash has no errors.
    pub(super) fn new(errors: &Errors) -> Option<Self> {
        (errors.rate > 0.0).then(|| Self {
            errors: errors.clone(),
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

    /// A page is read from flash: returns the time of its retries.
    pub(super) fn read(&mut self, outcome: ReadOutcome, purpose: Purpose) -> u64 {
        let retry_ns = self.errors.retry_ns;
        match outcome {
            ReadOutcome::Retries(retries) => {
                self.found.by_retries[usize::from(retries)] += 1;
                return u64::from(retries) * retry_ns;
            }
            ReadOutcome::Soft => self.found.soft += 1,
            ReadOutcome::Failed => {
                self.found.uncorrectable += 1;
                self.found.lost += u64::from(purpose == Purpose::Gc);
            }
        }
        self.errors.retry_rates.len() as u64 * retry_ns + self.errors.soft_ns
    }
}
