//! Contents that repeat in runs: copied files, restored parts of a volume.
//!
//! Invariants: a run ends after its pages, and where the addresses are not consecutive; a repeated
//! page has the content of its source at the time of the write. Absent: addresses (the pattern's):
//! runs show with sequential ones, or with requests of as many pages.

use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::Lpn;

use super::draw::{Chance, below};

/// In a table of present contents: the page has not been written yet.
pub(super) const NOTHING: u64 = 0;

pub(super) struct Runs {
    chance: Chance,
    pages: u32,
    present: Vec<u64>,
    /// Remaining pages of the current run.
    left: u32,
    /// Source page of the next one; `None` if they are new.
    source: Option<u32>,
    next_lpn: Lpn,
}

impl Runs {
    pub(super) fn new(chance: Chance, pages: u32, addressable: u32) -> Self {
        let present = vec![NOTHING; addressable as usize];
        Self {
            chance,
            pages,
            present,
            left: 0,
            source: None,
            next_lpn: Lpn::ZERO,
        }
    }

    /// Returns the content that a write of `lpn` repeats, if it does.
    pub(super) fn repeated(&mut self, lpn: Lpn, rng: &mut Xoshiro256PlusPlus) -> Option<u64> {
        // A gap in the addresses is another file: a run ends there.
        if self.left == 0 || lpn != self.next_lpn {
            // The last of them may be a short one.
            let runs = (self.present.len() as u32).div_ceil(self.pages);
            self.left = self.pages;
            self.source = self
                .chance
                .happens(rng)
                .then(|| below(runs, rng) * self.pages);
        }
        (self.left, self.next_lpn) = (self.left - 1, lpn.offset(1));
        let source = self.source?;

        // The source advances with the run, page by page.
        self.source = Some(source + 1);
        // Past the last page, and in unwritten pages, there is nothing to repeat.
        self.present
            .get(source as usize)
            .copied()
            .filter(|content| *content != NOTHING)
    }

    /// Records the present content of a page.
    pub(super) fn note(&mut self, lpn: Lpn, content: u64) {
        self.present[lpn.index()] = content;
    }
}
