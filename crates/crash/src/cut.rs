//! The effect of a power cut on the operations in flight, in several characters.
//!
//! Independent coin flips almost never leave "all but one" or "the first k", and those are the cuts
//! that find a missing wait. So each cut first draws a character and then the outcomes. Absent: the
//! order among the operations; the rail preserves it for all draws.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_media::{OpKind, Outcome};

/// Draws the outcomes of one cut.
pub struct Cutter {
    random: Xoshiro256PlusPlus,
    character: CutCharacter,
    /// Number of outcomes drawn so far.
    asked: u32,
}

/// Chances of `Whole` and `Torn` are in 1/16; the rest is `Absent`.
#[derive(Clone, Copy, Debug)]
enum CutCharacter {
    Mixed {
        whole: u32,
        torn: u32,
    },
    /// The first operations whole, then a mixture.
    Prefix {
        len: u32,
        whole: u32,
        torn: u32,
    },
    /// All operations but one, which is missing or torn.
    But {
        at: u32,
        torn: bool,
    },
    /// All NVRAM and no flash, or the reverse: the hardest test of a wait between the two.
    OneMedium {
        flash: bool,
    },
    /// Alternating stretches that land and that do not: one die or queue lagged.
    Stretches {
        landing: bool,
    },
}

impl Cutter {
    /// A cut of at most `pending` operations.
    pub fn new(seed: u64, pending: usize) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let pending = pending as u32;
        // Includes both extremes: nothing lost, and everything that may be.
        let character = match random.random_range(0..22) {
            0 => CutCharacter::Mixed { whole: 16, torn: 0 },
            1 => CutCharacter::Mixed { whole: 0, torn: 0 },
            2..5 => CutCharacter::Mixed { whole: 14, torn: 1 },
            5..7 => CutCharacter::Mixed { whole: 2, torn: 1 },
            7..9 => CutCharacter::Mixed { whole: 8, torn: 2 },
            9..11 => CutCharacter::Mixed { whole: 6, torn: 9 },
            11..14 => CutCharacter::Prefix {
                len: random.random_range(0..=pending),
                whole: random.random_range(0..12),
                torn: 2,
            },
            14..18 => CutCharacter::But {
                // May be past the end: then none is missing.
                at: random.random_range(0..=pending),
                torn: random.random_ratio(1, 3),
            },
            18..20 => CutCharacter::OneMedium {
                flash: random.random_ratio(1, 3),
            },
            _ => CutCharacter::Stretches {
                landing: random.random(),
            },
        };

        Self {
            random,
            character,
            asked: 0,
        }
    }

    /// Draws the outcome of the next operation.
    pub fn outcome(&mut self, kind: OpKind) -> Outcome {
        let at = self.asked;
        self.asked += 1;

        match &mut self.character {
            CutCharacter::Mixed { whole, torn } => draw(&mut self.random, *whole, *torn),
            CutCharacter::Prefix { len, .. } if at < *len => Outcome::Whole,
            CutCharacter::Prefix { whole, torn, .. } => draw(&mut self.random, *whole, *torn),
            CutCharacter::But { at: missing, torn } if at == *missing => {
                if *torn {
                    Outcome::Torn(self.random.random())
                } else {
                    Outcome::Absent
                }
            }
            CutCharacter::But { .. } => Outcome::Whole,
            CutCharacter::OneMedium { flash } => {
                let lands = matches!(kind, OpKind::Program | OpKind::Erase) == *flash;
                if lands {
                    Outcome::Whole
                } else {
                    Outcome::Absent
                }
            }
            CutCharacter::Stretches { landing } => {
                // Six operations long on average.
                *landing ^= self.random.random_ratio(1, 6);
                if *landing {
                    Outcome::Whole
                } else {
                    Outcome::Absent
                }
            }
        }
    }
}

fn draw(random: &mut Xoshiro256PlusPlus, whole: u32, torn: u32) -> Outcome {
    let draw = random.random_range(0..16);
    if draw < whole {
        Outcome::Whole
    } else if draw < whole + torn {
        Outcome::Torn(random.random())
    } else {
        Outcome::Absent
    }
}
