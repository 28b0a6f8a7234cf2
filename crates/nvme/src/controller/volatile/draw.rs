//! The losses of a power cut, drawn from a seed: how many of its newest versions each block loses.
//!
//! No single distribution finds all faults. A file system is damaged by one stale block among many, a program by a missing
//! write before a later one that survived. So a third of the cuts loses whole commands, one in six everything, one in six
//! something of a few places, and the rest a share of the blocks.
//!
//! Two caches draw from it: the one in this controller, and that of recorded runs (`remap-ssd-torture`), whose replay codes are
//! seeds: a change here changes which disk a code means. Invariant: the seed, and the versions in the order in which they are
//! given, determine everything. Absent: the versions, and what becomes of them.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;

/// Most places of a cut that loses something of a few of them.
const PLACES_MAX: i32 = 3;

enum Shape<K> {
    /// Every version: blocks are as they are durable.
    All,
    /// Some versions in these places, none in others.
    Few(BTreeSet<K>),
    /// The versions of these commands, unless a later command's version is kept.
    Commands(BTreeSet<u64>),
    /// Some versions, in this share of the blocks.
    Share(f64),
}

/// The losses of one power cut; `K` is a place: a block, or a page with several blocks.
///
/// ```
/// use remap_ssd_nvme::controller::LossDraw;
///
/// // Commands 7 and 9 have written block 3, command 8 block 5; none of it is durable.
/// let versions: [(u32, &[u64]); 2] = [(3, &[7, 9]), (5, &[8])];
/// let of = |seed| {
///     let mut draw = LossDraw::new(seed, &[3, 5], &[7, 8, 9].into());
///     versions.map(|(block, commands)| draw.lost(block, commands))
/// };
/// let all: std::collections::BTreeSet<[usize; 2]> = (0..100).map(of).collect();
/// assert_eq!(all.len(), 6, "0 to 2 of one, and 0 or 1 of the other");
/// assert_eq!(of(1), of(1));
/// ```
pub struct LossDraw<K> {
    shape: Shape<K>,
    random: Xoshiro256PlusPlus,
}

impl<K: Copy + Ord> LossDraw<K> {
    /// A cut with this seed. `places` have versions that are not durable, and `commands` have made them.
    pub fn new(seed: u64, places: &[K], commands: &BTreeSet<u64>) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let shape = random.random_range(0..6u32);
        let share = random.random::<f64>();

        let shape = match shape {
            0 => Shape::All,
            1 if places.is_empty() => Shape::Few(BTreeSet::new()),
            1 => {
                let count = random.random_range(1..=PLACES_MAX);
                let chosen = (0..count).map(|_| places[random.random_range(0..places.len())]);
                Shape::Few(chosen.collect())
            }
            2 | 3 => {
                let gone = commands.iter().filter(|_| random.random_bool(share));
                Shape::Commands(gone.copied().collect())
            }
            _ => Shape::Share(share),
        };
        Self { shape, random }
    }

    /// Number of the newest versions that a block at this place loses. `commands` have made its versions, oldest first; there is at
    /// least one.
    pub fn lost(&mut self, place: K, commands: &[u64]) -> usize {
        let (all, random) = (commands.len(), &mut self.random);
        match &self.shape {
            Shape::All => all,
            Shape::Few(places) if places.contains(&place) => {
                random.random_range(1..=all as u32) as usize
            }
            Shape::Few(_) => 0,
            // An unbroken run of the newest ones: a version missing under a newer one is not visible.
            Shape::Commands(gone) => {
                let newest = commands.iter().rev();
                newest.take_while(|command| gone.contains(command)).count()
            }
            Shape::Share(share) if random.random_bool(*share) => random.random_range(1..=all),
            Shape::Share(_) => 0,
        }
    }
}
