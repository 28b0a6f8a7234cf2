//! Contents that repeat in runs: copied files, restored parts of a volume.
//!
//! Invariants: a run ends after its pages, and where the addresses are not consecutive; a repeated
//! page has the content of its source at the time of the write. Absent: addresses (the pattern's):
//! runs show with sequential ones, or with requests of as many pages.

use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::HostLpn;

use super::draw::Chance;
use super::present::Present;

pub(super) struct Runs {
    chance: Chance,
    pages: u32,
    present: Present,
    /// Remaining pages of the current run.
    left: u32,
    /// Source page of the next one; `None` if they are new.
    source: Option<u64>,
    next_lpn: HostLpn,
}

impl Runs {
    pub(super) fn new(chance: Chance, pages: u32, present: Present) -> Self {
        Self {
            chance,
            pages,
            present,
            left: 0,
            source: None,
            next_lpn: HostLpn::ZERO,
        }
    }

    /// Returns the content that a write of `lpn` repeats, if it does.
    pub(super) fn repeated(&mut self, lpn: HostLpn, rng: &mut Xoshiro256PlusPlus) -> Option<u64> {
        // A gap in the addresses is another file: a run ends there.
        if self.left == 0 || lpn != self.next_lpn {
            self.left = self.pages;
            let repeats = self.chance.happens(rng);
            self.source = repeats.then(|| self.present.draw(self.pages, rng));
        }
        (self.left, self.next_lpn) = (self.left - 1, lpn.offset(1));
        let source = self.source?;

        // The source advances with the run, page by page.
        self.source = Some(source + 1);
        // Past the last page, and in unwritten pages, there is nothing to repeat.
        self.present.of(source)
    }

    /// Records the present content of a page.
    pub(super) fn note(&mut self, lpn: HostLpn, content: u64) {
        self.present.set(lpn, content);
    }
}
