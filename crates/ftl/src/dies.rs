//! A set of the dies that a superblock is striped over: its bad, failing or excluded blocks.
//!
//! Invariant: bits above the number of dies name no block, and none is counted; a damaged word of
//! NVRAM may have some. Absent: why a block is excluded (`superblock`).

use std::ops::{BitOr, BitOrAssign};

/// Bit `n` is the block on die `n`, so a superblock spans at most 64 dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieMask(pub u64);

impl DieMask {
    /// The empty set: no block is excluded.
    pub(crate) const NONE: Self = Self(0);

    /// The set with one die, which is below 64.
    #[inline]
    pub(crate) fn of(die: u32) -> Self {
        Self(1 << die)
    }

    /// Returns true if the set has this die.
    #[inline]
    pub fn has(self, die: u32) -> bool {
        self.0 >> die & 1 == 1
    }

    /// Returns true if the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of dies, including bits of a damaged word above the last die.
    #[inline]
    pub fn count_ones(self) -> u32 {
        self.0.count_ones()
    }

    /// The dies below `dies` that are not in the set, in ascending order.
    pub(crate) fn others(self, dies: u32) -> impl Iterator<Item = u32> {
        (0..dies).filter(move |die| !self.has(*die))
    }

    /// Number of dies below `dies` that are not in the set.
    #[inline]
    pub(crate) fn count_others(self, dies: u32) -> u32 {
        let first = u64::MAX.checked_shr(64 - dies).unwrap_or(0);
        dies - (self.0 & first).count_ones()
    }
}

impl BitOr for DieMask {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for DieMask {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl FromIterator<u32> for DieMask {
    fn from_iter<T: IntoIterator<Item = u32>>(dies: T) -> Self {
        dies.into_iter()
            .fold(Self::NONE, |mask, die| mask | Self::of(die))
    }
}
