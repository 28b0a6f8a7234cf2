//! The present contents of pages, one of which is drawn to be repeated.
//!
//! Invariants: eight bytes per addressable page, and four more per written one if only written
//! pages are drawn. Absent: the decision to repeat (the models').

use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::Lpn;

use super::draw::below;

/// Content of a page that has not been written yet.
pub(super) const NOTHING: u64 = 0;

/// The pages of which one is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// All addressable ones: a workload writes each of them sooner or later.
    Addressable,
    /// Those written so far: a trace may never write most of a device.
    Written,
}

pub(super) struct Present {
    contents: Vec<u64>,
    /// The pages written so far, if only those are drawn.
    written: Option<Vec<Lpn>>,
}

impl Present {
    pub(super) fn new(drawn: Drawn, addressable: u32) -> Self {
        Self {
            contents: vec![NOTHING; addressable as usize],
            written: (drawn == Drawn::Written).then(Vec::new),
        }
    }

    /// Draws the first page of a run of `pages`, aligned to as many.
    #[inline]
    pub(super) fn draw(&self, pages: u32, rng: &mut Xoshiro256PlusPlus) -> u32 {
        match self.written.as_deref() {
            // The last run may be a short one.
            None => below((self.contents.len() as u32).div_ceil(pages), rng) * pages,
            Some([]) => 0,
            Some(written) => {
                let page = written[below(written.len() as u32, rng) as usize];
                page.0 / pages * pages
            }
        }
    }

    /// Returns the present content of a page; `None` if it is not written, or after the last one.
    #[inline]
    pub(super) fn of(&self, page: u32) -> Option<u64> {
        let content = self.contents.get(page as usize).copied();
        content.filter(|content| *content != NOTHING)
    }

    /// Replaces the content of a page.
    #[inline]
    pub(super) fn set(&mut self, lpn: Lpn, content: u64) {
        let old = std::mem::replace(&mut self.contents[lpn.index()], content);
        if let Some(written) = &mut self.written
            && old == NOTHING
        {
            written.push(lpn);
        }
    }
}
