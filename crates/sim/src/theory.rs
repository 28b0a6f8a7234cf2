//! Write amplification as theory predicts it, for random writes.
//!
//! A block of `b` pages is collected when it is the emptiest of `d` random ones; with `d` large that
//! is greedy collection. In the limit of many blocks, the share S(k) of blocks with at least k valid
//! pages follows from a balance of flows: for k = b to 1, with S(b + 1) = 0,
//!
//! ```text
//! c * k * (S(k) - S(k + 1)) = 1 - S(k)^d,    S(1) + .. + S(b) = b * rho,    WA = 1 / (c * rho)
//! ```
//!
//! where rho is the share of physical pages that is valid (Van Houdt, "A mean field model for a class
//! of garbage collection algorithms in flash-based solid state drives", SIGMETRICS 2013).
//!
//! The form above also draws blocks without garbage, whose collection gains nothing. Where they are never drawn, a block
//! leaves S(b) at its first overwrite alone, so that c * b * S(b) = 1, and the balance holds for the others, with
//! (S(k) - S(b)) / (1 - S(b)) in the power. It matters with few draws and little spare space.
//!
//! Invariant: pages kept free for collection are no spare space, so the caller subtracts them.
//! Data of two temperatures: `hot_cold`.

pub mod hot_cold;

/// Draws from which the emptiest block is as good as the emptiest of all.
pub const GREEDY: f64 = 10_000.0;
/// Halvings of an interval.
const STEPS: u32 = 45;

/// Write amplification of blocks of `block_pages` data pages, of which the share `valid` holds data
/// and each victim is the emptiest of `draws` blocks.
///
/// # Panics
/// `valid` is not between 0 and 1.
///
/// ```
/// use remap_ssd_sim::theory::{GREEDY, write_amplification};
///
/// // A fifth more flash than data, in blocks of 64 pages; then the victim is chosen at random.
/// assert!((write_amplification(64, 1.0 / 1.2, GREEDY) - 3.053).abs() < 0.001);
/// assert!((write_amplification(64, 1.0 / 1.2, 1.0) - 6.0).abs() < 0.001);
/// ```
pub fn write_amplification(block_pages: u32, valid: f64, draws: f64) -> f64 {
    solved(block_pages, valid, |rate| {
        valid_pages(block_pages, rate, draws)
    })
}

/// The same if blocks without garbage are never drawn.
///
/// # Panics
/// `valid` is not between 0 and 1.
pub fn write_amplification_skipping_full(block_pages: u32, valid: f64, draws: f64) -> f64 {
    solved(block_pages, valid, |rate| {
        valid_pages_skipping_full(block_pages, rate, draws)
    })
}

/// Write amplification at the rate of overwriting at which blocks have this share of valid pages.
fn solved(block_pages: u32, valid: f64, valid_pages: impl Fn(f64) -> f64) -> f64 {
    assert!(valid > 0.0 && valid < 1.0, "{valid} of the pages are valid");
    let wanted = f64::from(block_pages) * valid;
    // The faster blocks are collected, the fewer pages of them are valid. Their rate spans orders of
    // magnitude, so the interval is halved in its logarithm.
    let rate = 10f64.powf(root(-4.0, 4.0, |exponent| {
        wanted - valid_pages(10f64.powf(exponent))
    }));
    1.0 / (rate * valid)
}

/// Mean number of valid pages of a block at this rate of overwriting.
fn valid_pages(block_pages: u32, rate: f64, draws: f64) -> f64 {
    let (mut above, mut sum) = (0.0, 0.0);
    for pages in (1..=block_pages).rev() {
        let flow = rate * f64::from(pages);
        above = share(flow, above, draws);
        sum += above;
    }
    sum
}

/// The same if blocks without garbage are never drawn.
fn valid_pages_skipping_full(block_pages: u32, rate: f64, draws: f64) -> f64 {
    let full = (1.0 / (rate * f64::from(block_pages))).min(1.0);
    // The share of the other blocks that has at least `pages` valid pages.
    let (mut above, mut sum) = (0.0, full);
    for pages in (1..block_pages).rev() {
        let flow = rate * f64::from(pages) * (1.0 - full);
        above = share(flow, above, draws);
        sum += full + (1.0 - full) * above;
    }
    sum
}

/// The solution S of flow * (S - above) = 1 - S^draws. The difference of the two sides rises and is convex,
/// so that Newton's steps from 1 descend to it.
fn share(flow: f64, above: f64, draws: f64) -> f64 {
    let mut share = 1.0_f64;
    loop {
        let power = share.powf(draws - 1.0);
        let slope = flow + draws * power;
        let step = (flow * (share - above) - 1.0 + share * power) / slope;
        share -= step;
        if step < 1e-14 {
            return share;
        }
    }
}

/// The root of a rising function in an interval.
fn root(mut low: f64, mut high: f64, of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if of(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures computed by others' programs, for spare space as a share of the data.
    #[test]
    fn predictions_agree_with_published_tables() {
        for (spare, pages, draws, published) in [
            (0.05, 32, GREEDY, 8.090),
            (0.05, 64, GREEDY, 9.197),
            (0.10, 128, GREEDY, 5.453),
            (0.28, 64, GREEDY, 2.403),
            (0.50, 256, GREEDY, 1.707),
            (0.05, 64, 10.0, 9.688),
            (0.28, 64, 2.0, 3.245),
            (0.50, 64, 1.0, 3.000),
        ] {
            let predicted = write_amplification(pages, 1.0 / (1.0 + spare), draws);
            // Greedy collection is a limit; the tables have three decimals.
            let off = (predicted / published - 1.0).abs();
            assert!(
                off < 1e-3,
                "{spare} {pages} {draws}: {predicted} for {published}"
            );
        }
    }

    // With much garbage or many draws no block without garbage would be collected anyway.
    #[test]
    fn blocks_without_garbage_matter_with_few_draws_and_little_spare_space() {
        for (spare, draws, least, most) in [
            (0.05, 2.0, 0.10, 0.15),
            (0.05, 10.0, 0.005, 0.02),
            (0.50, 2.0, 0.0, 0.02),
            (0.05, GREEDY, 0.0, 1e-4),
        ] {
            let valid = 1.0 / (1.0 + spare);
            let all = write_amplification(64, valid, draws);
            let less = 1.0 - write_amplification_skipping_full(64, valid, draws) / all;
            assert!(
                (least - 1e-9..most).contains(&less),
                "{spare} {draws}: {less}"
            );
        }
    }
}
