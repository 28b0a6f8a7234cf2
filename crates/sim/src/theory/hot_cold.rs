//! Write amplification of hot and cold data that share blocks.
//!
//! A share of the data is hot and receives its own share of the writes. Of a block's valid pages, `i` are
//! hot and `j` cold; it is collected when `i + j` is the least of `d` random blocks. Let x(i, j) be the
//! share of blocks in a state, q(k) the rate at which a block with k valid pages is collected, and h and l
//! the rates at which a hot and a cold page are overwritten. With S(k) as in the parent module and one collection for
//! each block in a unit of time:
//!
//! ```text
//! x(i, j) * (i*h + j*l + q(i + j)) = (i + 1)*h * x(i + 1, j) + (j + 1)*l * x(i, j + 1)     below i + j = b
//! sum of x(i, j) * (i*h + j*l) over i + j = k  =  1 - S(k)^d
//! ```
//!
//! A new block holds the victim's pages and as many host writes as fit; or it holds host writes alone, or pages
//! of successive victims alone. Its contents depend on the victims and the victims on its contents, so the
//! equations are solved again until neither changes (Van Houdt, "Performance of garbage collection algorithms for
//! flash-based solid state drives with hot/cold data", Performance Evaluation 2013, for the first kind of blocks).
//! Pages of one victim resemble each other, so the hot pages of a block of moved pages vary more than if each were
//! drawn by itself. Their number is approximated by the beta-binomial distribution whose mean and variance follow from
//! the victims, which makes amplification up to half a percent too high.
//!
//! Invariant: without skew it agrees with the parent module. Absent: a stream for each temperature.

/// Solutions of the equations before they count as unsolvable.
const ROUNDS: u32 = 20_000;
/// Relative change of a round at which the solution stands.
const CLOSE: f64 = 1e-7;
/// Halvings of an interval.
const STEPS: u32 = 45;
/// Victims rarer than this do not change the contents of new blocks.
const RARE: f64 = 1e-13;

/// How uneven the writes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// Share of the data that is hot.
    pub hot_data: f64,
    /// Share of the writes that go to it.
    pub hot_writes: f64,
}

/// Where the pages of a victim go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Into the block that the host writes.
    WithHost,
    /// Into blocks of their own.
    Apart,
}

/// Write amplification of blocks of `block_pages` data pages, of which the share `valid` holds data
/// and each victim is the emptiest of `draws` blocks.
///
/// # Panics
/// A share is not between 0 and 1, or no solution is found: with hardly any spare space each step changes too
/// little.
///
/// ```
/// use remap_ssd_sim::theory::GREEDY;
/// use remap_ssd_sim::theory::hot_cold::{Moved, Skew, write_amplification};
///
/// // A fifth of the data receives four fifths of the writes: collected at random, skew costs nothing.
/// let skew = Skew { hot_data: 0.2, hot_writes: 0.8 };
/// let of = |draws| write_amplification(64, 1.0 / 1.2, draws, skew, Moved::WithHost);
/// assert!((of(1.0) - 6.0).abs() < 0.001);
/// assert!(of(GREEDY) > 3.3);
/// ```
pub fn write_amplification(
    block_pages: u32,
    valid: f64,
    draws: f64,
    skew: Skew,
    moved: Moved,
) -> f64 {
    for share in [valid, skew.hot_data, skew.hot_writes] {
        assert!(share > 0.0 && share < 1.0, "a share of {share}");
    }
    let pages = f64::from(block_pages);
    let mut written = pages * (1.0 - valid);
    let mut new = binomial(block_pages as usize, skew.hot_writes);

    for _ in 0..ROUNDS {
        let rates = Rates::new(written, pages * valid, skew);
        let solved = Solved::new(&new, rates, draws);
        // The more the host writes between two collections, the fewer pages are valid.
        let off = solved.valid_pages / (pages * valid);
        let contents = solved.new_blocks(skew, moved);
        let change = contents
            .iter()
            .zip(&new)
            .map(|(one, other)| (one - other).abs());
        let is_solved = (off - 1.0).abs() < CLOSE && change.sum::<f64>() < CLOSE;
        // Half a step: whole ones may lead back and forth between two states.
        written *= off.sqrt();
        new = contents
            .iter()
            .zip(&new)
            .map(|(one, other)| f64::midpoint(*one, *other))
            .collect();
        if is_solved {
            return pages / (pages - solved.victim_pages);
        }
    }
    panic!("no solution for {block_pages} pages a block, {valid} valid, {draws} draws, {skew:?}");
}

/// Rates at which a page is overwritten.
#[derive(Clone, Copy, Debug)]
struct Rates {
    hot: f64,
    cold: f64,
}

impl Rates {
    fn new(written: f64, data: f64, skew: Skew) -> Self {
        Self {
            hot: written * skew.hot_writes / (data * skew.hot_data),
            cold: written * (1.0 - skew.hot_writes) / (data * (1.0 - skew.hot_data)),
        }
    }

    /// The rate at which a block with that many pages loses one.
    fn of(self, hot: usize, cold: usize) -> f64 {
        hot as f64 * self.hot + cold as f64 * self.cold
    }
}

/// A solution for given contents of new blocks and given rates.
struct Solved {
    /// Mean number of a block's valid pages.
    valid_pages: f64,
    /// Mean number of a victim's valid pages, and the hot ones among them.
    victim_pages: f64,
    victim_hot: f64,
    /// Share of victims by valid pages, and by the hot ones among them.
    victims: Vec<Vec<f64>>,
}

impl Solved {
    /// Goes down from the new blocks: those with k valid pages follow from those with k + 1.
    fn new(new: &[f64], rates: Rates, draws: f64) -> Self {
        let pages = new.len() - 1;
        let mut solved = Self {
            valid_pages: 0.0,
            victim_pages: 0.0,
            victim_hot: 0.0,
            victims: vec![Vec::new(); pages + 1],
        };
        // By hot pages: the rate at which blocks come to have k valid ones. S(k + 1).
        let mut arriving = new.to_vec();
        let mut above = 0.0_f64;

        for valid in (1..=pages).rev() {
            let lost: Vec<f64> = (0..=valid).map(|hot| rates.of(hot, valid - hot)).collect();
            let collected = collection_rate(&arriving, &lost, above, draws);

            let mut next = vec![0.0; valid];
            for (hot, (rate, lost)) in arriving.iter().zip(&lost).enumerate() {
                let share = rate / (lost + collected);
                let victims = share * collected;
                above = (above + share).min(1.0);
                solved.valid_pages += share * valid as f64;
                solved.victim_pages += victims * valid as f64;
                solved.victim_hot += victims * hot as f64;
                solved.victims[valid].push(victims);

                if hot > 0 {
                    next[hot - 1] += share * hot as f64 * rates.hot;
                }
                if hot < valid {
                    next[hot] += share * (valid - hot) as f64 * rates.cold;
                }
            }
            arriving = next;
        }
        // An empty block is always the emptiest.
        solved.victims[0] = arriving;
        solved
    }

    /// Share of new blocks by hot pages.
    fn new_blocks(&self, skew: Skew, moved: Moved) -> Vec<f64> {
        let pages = self.victims.len() - 1;
        let mut new = vec![0.0; pages + 1];

        match moved {
            Moved::WithHost => {
                for (valid, victims) in self.victims.iter().enumerate() {
                    if victims.iter().all(|share| *share < RARE) {
                        continue;
                    }

                    // A victim's pages, and host writes in the rest of the block: the sum of two independent numbers.
                    let written = binomial(pages - valid, skew.hot_writes);
                    for (hot, victims) in victims.iter().enumerate() {
                        for (more, chance) in written.iter().enumerate() {
                            new[hot + more] += victims * chance;
                        }
                    }
                }
            }
            Moved::Apart => {
                let of_victims = self.victim_pages / pages as f64;
                let moved = self.moved_pages();

                // One block is collected in a unit of time, and its valid pages fill this share of a new one.
                let written = binomial(pages, skew.hot_writes);
                for (new, (moved, written)) in new.iter_mut().zip(moved.iter().zip(&written)) {
                    *new = of_victims * moved + (1.0 - of_victims) * written;
                }
            }
        }

        // Without the rare victims the sum is a little below 1.
        let sum: f64 = new.iter().sum();
        new.iter().map(|share| share / sum).collect()
    }
}

impl Solved {
    /// The distribution of the hot pages in a block that successive victims fill.
    fn moved_pages(&self) -> Vec<f64> {
        let pages = self.victims.len() - 1;
        let hot = self.victim_hot / self.victim_pages;
        let independent = pages as f64 * hot * (1.0 - hot);

        let mut variance = independent;
        for (valid, victims) in self.victims.iter().enumerate().skip(2) {
            let (count, all_pairs) = (valid as f64, (valid * (valid - 1)) as f64);
            // Ordered pairs of a victim's pages that lie in the same block.
            let pairs: f64 = (1..valid)
                .map(|lag| 2.0 * (pages - lag) as f64 * (count - lag as f64) / self.victim_pages)
                .sum();
            for (hot_pages, share) in victims.iter().enumerate() {
                let both = (hot_pages * hot_pages.saturating_sub(1)) as f64 / all_pairs;
                let covariance = both - 2.0 * hot * hot_pages as f64 / count + hot * hot;
                variance += share * pairs * covariance;
            }
        }
        let correlation = (variance / independent - 1.0) / (pages - 1) as f64;
        if correlation > CLOSE {
            beta_binomial(pages, hot, correlation)
        } else {
            binomial(pages, hot)
        }
    }
}

/// The rate q(k) that balances the flows of a class of blocks: from state to state they arrive at the rate
/// `arriving` and lose pages at the rate `lost`.
fn collection_rate(arriving: &[f64], lost: &[f64], above: f64, draws: f64) -> f64 {
    let is_too_slow = |rate: f64| {
        let (mut flow, mut share) = (0.0, above);
        for (arriving, lost) in arriving.iter().zip(lost) {
            let blocks = arriving / (lost + rate);
            share += blocks;
            flow += blocks * lost;
        }
        flow > 1.0 - share.min(1.0).powf(draws)
    };

    // With a higher rate there are fewer blocks: the left side of the balance falls and the right one rises, so bisection
    // finds the rate.
    let (mut low, mut high) = (0.0, 1.0);
    while is_too_slow(high) && high < f64::MAX / 4.0 {
        high *= 4.0;
    }

    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if is_too_slow(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The distribution of the hot pages among `pages`, each hot with probability `chance`.
fn binomial(pages: usize, chance: f64) -> Vec<f64> {
    let (odds, none) = ((chance / (1.0 - chance)).ln(), (1.0 - chance).ln());
    let mut logarithm = pages as f64 * none;
    (0..=pages)
        .map(|hot| {
            let probability = logarithm.exp();
            logarithm += ((pages - hot) as f64 / (hot + 1) as f64).ln() + odds;
            probability
        })
        .collect()
}

/// The distribution of the hot pages among `pages`, each hot with probability `chance`, any two of which have this
/// correlation.
fn beta_binomial(pages: usize, chance: f64, correlation: f64) -> Vec<f64> {
    let total = 1.0 / correlation - 1.0;
    let (hot, cold) = (chance * total, (1.0 - chance) * total);
    let none = |page| ((cold + page as f64) / (total + page as f64)).ln();
    let mut logarithm: f64 = (0..pages).map(none).sum();
    (0..=pages)
        .map(|count| {
            let probability = logarithm.exp();
            let (rest, next) = ((pages - count) as f64, (count + 1) as f64);
            logarithm += (rest / next).ln() + ((hot + count as f64) / (cold + rest - 1.0)).ln();
            probability
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::{self, GREEDY};

    #[test]
    fn without_skew_it_is_the_model_of_one_temperature() {
        let even = Skew {
            hot_data: 0.3,
            hot_writes: 0.3,
        };
        for (spare, draws) in [(0.05, GREEDY), (0.2, 10.0), (0.5, 1.0)] {
            let valid = 1.0 / (1.0 + spare);
            let one = theory::write_amplification(62, valid, draws);
            for moved in [Moved::WithHost, Moved::Apart] {
                let both = write_amplification(62, valid, draws, even, moved);
                assert!((both / one - 1.0).abs() < 1e-4, "{moved:?} {both} {one}");
            }
        }
    }

    /// Whole steps never come to an end here.
    #[test]
    fn strong_skew_with_much_spare_space_has_a_solution() {
        let skew = Skew {
            hot_data: 0.1,
            hot_writes: 0.9,
        };
        let found = write_amplification(62, 0.5, GREEDY, skew, Moved::Apart);
        assert!((found - 1.487).abs() < 0.001, "{found}");
    }

    /// A victim drawn at random holds as many valid pages as the mean block, regardless of the writes.
    #[test]
    fn with_random_victims_skew_changes_nothing() {
        let skew = Skew {
            hot_data: 0.1,
            hot_writes: 0.9,
        };
        for moved in [Moved::WithHost, Moved::Apart] {
            let found = write_amplification(32, 0.8, 1.0, skew, moved);
            assert!((found - 5.0).abs() < 1e-3, "{moved:?} {found}");
        }
    }
}
