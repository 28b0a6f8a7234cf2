//! Contents that repeat in runs: files that are copied, stretches of a volume that are restored.
//!
//! Invariants: a run ends after its pages, and where the addresses do not go on; a repeated page
//! has the content that its source has when it is written. Absent: addresses (the pattern's): runs
//! show in sequential ones, or in requests of as many pages.

use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::Lpn;

use super::content::NOTHING;
use super::draw::{Chance, below};

pub(super) struct Runs {
    chance: Chance,
    pages: u32,
    present: Vec<u64>,
    /// Pages of the present run still to come.
    left: u32,
    /// Where the next of them is repeated from; `None` if they are new.
    source: Option<u32>,
    next_lpn: Lpn,
}

impl Runs {
    pub fn new(chance: Chance, pages: u32, addressable: u32) -> Self {
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

    /// The content that a write of `lpn` repeats, if it does.
    pub fn repeated(&mut self, lpn: Lpn, rng: &mut Xoshiro256PlusPlus) -> Option<u64> {
        // A gap in the addresses is another file: a run does not go on over it.
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

        // The source moves on with the run, page by page.
        self.source = Some(source + 1);
        // Past the last page, and where nothing was written, there is nothing to repeat.
        self.present
            .get(source as usize)
            .copied()
            .filter(|content| *content != NOTHING)
    }

    /// A page has this content now.
    pub fn note(&mut self, lpn: Lpn, content: u64) {
        self.present[lpn.index()] = content;
    }
}
