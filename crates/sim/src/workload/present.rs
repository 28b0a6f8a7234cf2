//! The present contents of pages, one of which is drawn to be repeated.
//!
//! Invariants: eight bytes per addressable page, and five more per written one if only written
//! pages are drawn. Absent: the decision to repeat (the models').

use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::HostLpn;

use super::WorkloadError;
use super::draw::below_any;

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
    written: Option<Vec<HostLpn>>,
}

impl Present {
    /// # Errors
    /// There is not enough memory.
    pub(super) fn new(drawn: Drawn, addressable: u64) -> Result<Self, WorkloadError> {
        let pages = addressable as usize;
        // Asked for first, since `vec!` ends the process; its zeroes take no memory before they are written.
        let room = Vec::<u64>::new().try_reserve_exact(pages);
        room.map_err(|_| {
            WorkloadError::new(format!(
                "contents that repeat those of pages take 8 bytes of memory for each of {addressable} pages, which are not there: use \
                 papers, history or unique contents"
            ))
        })?;
        Ok(Self {
            contents: vec![NOTHING; pages],
            written: (drawn == Drawn::Written).then(Vec::new),
        })
    }

    /// Draws the first page of a run of `pages`, aligned to as many.
    #[inline]
    pub(super) fn draw(&self, pages: u32, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let pages = u64::from(pages);
        match self.written.as_deref() {
            // The last run may be a short one.
            None => below_any((self.contents.len() as u64).div_ceil(pages), rng) * pages,
            Some([]) => 0,
            Some(written) => {
                let page = written[below_any(written.len() as u64, rng) as usize];
                page.get() / pages * pages
            }
        }
    }

    /// Returns the present content of a page; `None` if it is not written, or after the last one.
    #[inline]
    pub(super) fn of(&self, page: u64) -> Option<u64> {
        let content = self.contents.get(page as usize).copied();
        content.filter(|content| *content != NOTHING)
    }

    /// Replaces the content of a page.
    #[inline]
    pub(super) fn set(&mut self, lpn: HostLpn, content: u64) {
        let old = std::mem::replace(&mut self.contents[lpn.index()], content);
        if let Some(written) = &mut self.written
            && old == NOTHING
        {
            written.push(lpn);
        }
    }
}
