//! Identities of all pages' contents, with four bytes each unless one needs more.
//!
//! Synthetic contents are numbered from 1, and half the bytes are half the cache and TLB misses of
//! a comparison. The first identity above 32 bits (traces bring hashes) widens the whole array,
//! once. Invariant: `get` returns the identity stored; 0 if none was. Absent: the contents behind
//! identities.

use crate::slab::{LINE_BYTES, Slab, prefetch};
use std::ops::Range;

/// Identities of all pages, as wide as needed.
#[derive(Clone)]
pub(crate) enum Identities {
    Narrow(Slab<u32>),
    Wide(Slab<u64>),
}

impl Identities {
    /// Creates cells for this many pages without contents.
    pub(crate) fn new(pages: usize) -> Self {
        Self::Narrow(Slab::zeroed(pages))
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> u64 {
        match self {
            Self::Narrow(cells) => cells[at].into(),
            Self::Wide(cells) => cells[at],
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, identity: u64) {
        match self {
            Self::Narrow(cells) => match u32::try_from(identity) {
                Ok(identity) => cells[at] = identity,
                Err(_) => self.widen()[at] = identity,
            },
            Self::Wide(cells) => cells[at] = identity,
        }
    }

    #[cold]
    #[inline(never)]
    fn widen(&mut self) -> &mut Slab<u64> {
        if let Self::Narrow(cells) = self {
            let mut wide = Slab::zeroed(cells.len());
            wide.iter_mut()
                .zip(cells.iter())
                .for_each(|(wide, cell)| *wide = (*cell).into());
            *self = Self::Wide(wide);
        }
        match self {
            Self::Wide(cells) => cells,
            Self::Narrow(_) => unreachable!("widened above"),
        }
    }

    /// Copies a run of another array's cells to `to`.
    pub(crate) fn copy_from(&mut self, to: usize, from: &Self, run: Range<usize>) {
        for (to, at) in (to..).zip(run) {
            self.set(to, from.get(at));
        }
    }

    /// Prefetches the cache line of a cell.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) {
        match self {
            Self::Narrow(cells) => prefetch(cells, at),
            Self::Wide(cells) => prefetch(cells, at),
        }
    }

    /// Number of cells per cache line.
    #[inline(always)]
    pub(crate) fn cells_per_line(&self) -> usize {
        match self {
            Self::Narrow(_) => LINE_BYTES / size_of::<u32>(),
            Self::Wide(_) => LINE_BYTES / size_of::<u64>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_of_any_width_are_read_back() {
        let mut cells = Identities::new(4);
        cells.set(0, 7);
        cells.set(1, u32::MAX.into());
        assert!(matches!(cells, Identities::Narrow(_)));
        cells.set(2, 1 << 32);
        cells.set(3, 9);
        assert!(matches!(cells, Identities::Wide(_)));
        assert_eq!(
            [0, 1, 2, 3].map(|at| cells.get(at)),
            [7, u64::from(u32::MAX), 1 << 32, 9]
        );
        let mut copy = Identities::new(3);
        copy.copy_from(1, &cells, 1..3);
        assert_eq!(
            [0, 1, 2].map(|at| copy.get(at)),
            [0, u64::from(u32::MAX), 1 << 32]
        );
    }
}
