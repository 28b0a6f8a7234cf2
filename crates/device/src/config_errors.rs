//! Bit errors of flash and their correction: the table `[errors]`.
//!
//! Absent: the model itself (`bit_errors`).

use serde::{Deserialize, Serialize};

/// Bit errors of flash and their correction, for the engine `nand`. Flash has none by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Errors {
    /// Raw bit error rate of a page of a new block that has just been programmed; 0 if there are no errors.
    pub rate: f64,
    /// Increase at the end of the endurance, as a multiple of `rate`.
    pub wear: f64,
    /// The increase grows with this power of the erase count.
    pub wear_power: u32,
    /// Erases of each block before the run.
    pub erase_cycles: u64,
    /// Increase for each day since the block was programmed, as a share.
    pub retention: f64,
    /// Days since then, of data programmed before the run.
    pub age_days: f64,
    /// Writes and remaps of pages in a day, with which data of the run ages; 0: it stays new.
    pub writes_per_day: u64,
    /// Increase for each read of the block since its erase, as a rate.
    pub disturb: f64,
    /// How pages differ: deviation of the logarithm of their rates.
    pub spread: f64,
    /// Seed of the places of pages in this distribution.
    pub seed: u64,
    /// Bits of a codeword.
    pub codeword_bits: u64,
    /// Bits of a codeword that can be corrected.
    pub correctable_bits: u64,
    /// Decoding a page, after its transfer.
    pub decode_ns: u64,
    /// The largest rate that each read retry corrects.
    pub retry_rates: Vec<f64>,
    /// One retry, during which the die is busy.
    pub retry_ns: u64,
    /// The largest rate that soft decoding corrects after the last retry; 0 if there is none.
    pub soft_rate: f64,
    /// Time of the die for soft decoding.
    pub soft_ns: u64,
}

impl Default for Errors {
    /// No errors; codewords of 1 KiB with 72 correctable bits.
    fn default() -> Self {
        Self {
            rate: 0.0,
            wear: 0.0,
            wear_power: 2,
            erase_cycles: 0,
            retention: 0.0,
            age_days: 0.0,
            writes_per_day: 0,
            disturb: 0.0,
            spread: 0.0,
            seed: 1,
            codeword_bits: 8192,
            correctable_bits: 72,
            decode_ns: 0,
            retry_rates: Vec::new(),
            retry_ns: 0,
            soft_rate: 0.0,
            soft_ns: 0,
        }
    }
}

impl Errors {
    /// Most read retries.
    pub(crate) const RETRIES_MAX: usize = 16;

    /// The largest rate that needs no retry.
    pub(crate) fn correctable_rate(&self) -> f64 {
        self.correctable_bits as f64 / self.codeword_bits as f64
    }

    /// Why these values contradict each other, and the key to which that applies.
    pub(crate) fn contradiction(&self) -> Option<(&'static str, String)> {
        let first = self.correctable_rate();
        if self.correctable_bits > self.codeword_bits {
            let text = "errors.correctable_bits must be at most errors.codeword_bits";
            return Some(("errors.correctable_bits", text.into()));
        }

        if let Some(retry) = self.retry_rates.first()
            && *retry <= first
        {
            let text = format!(
                "errors.retry_rates must begin above {first}, the rate that needs no retry (correctable_bits / codeword_bits)"
            );
            return Some(("errors.retry_rates", text));
        }

        if self.retry_ns > 0 && self.retry_rates.is_empty() {
            let text = "errors.retry_ns is the time of a retry, and errors.retry_rates has none";
            return Some(("errors.retry_ns", text.into()));
        }
        if self.retry_ns == 0 && !self.retry_rates.is_empty() {
            let text = format!(
                "errors.retry_ns = 0, but errors.retry_rates has {} retries, and each of them takes the die some time: about that of a read",
                self.retry_rates.len()
            );
            return Some(("errors.retry_ns", text));
        }

        if self.soft_ns > 0 && self.soft_rate == 0.0 {
            let text = "errors.soft_ns is the time of soft decoding, of which errors.soft_rate says that there is none";
            return Some(("errors.soft_ns", text.into()));
        }
        if self.soft_ns == 0 && self.soft_rate > 0.0 {
            let text = format!(
                "errors.soft_ns = 0, but errors.soft_rate = {} has soft decoding, for which the die reads the page several times",
                self.soft_rate
            );
            return Some(("errors.soft_ns", text));
        }

        let last = self.retry_rates.last().copied().unwrap_or(first);
        if self.soft_rate > 0.0 && self.soft_rate <= last {
            let text = format!(
                "errors.soft_rate must be 0, or above {last}, which needs no soft decoding"
            );
            return Some(("errors.soft_rate", text));
        }

        // Last: it holds for any other key that is set, and says less than a contradiction among them.
        if self.rate == 0.0 && *self != Self::default() {
            let text = "errors.rate is 0, so flash has no errors, and the other keys of [errors] have no effect";
            return Some(("errors.rate", text.into()));
        }
        None
    }
}
