//! Which LPNs share flash pages: answered from the tables, without reading a page.
//!
//! Invariant: nothing is changed, and no time passes. Absent: the contents of pages. Two flash pages
//! may hold the same bytes.

use crate::error::Refusal;
use crate::ftl::Ftl;
use remap_ssd_media::Lpn;
use std::ops::Range;

impl Ftl {
    /// Runs of the offsets, in order, at which two ranges of `len` LPNs do not share a flash page. LPNs
    /// without a page are equal. A page in the write buffer is on no flash page yet, and differs
    /// from all others.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn differing(&self, a: Lpn, b: Lpn, len: u32) -> Result<Vec<Range<u32>>, Refusal> {
        self.range(a, len)?;
        self.range(b, len)?;

        let mut runs: Vec<Range<u32>> = Vec::new();
        for at in (0..len).filter(|at| !self.shares_page(a.offset(*at), b.offset(*at))) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        Ok(runs)
    }

    /// Number of LPNs of a range whose page no other LPN shares: what deleting the range would free.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn pages_alone(&self, first: Lpn, len: u32) -> Result<u32, Refusal> {
        let lpns = self.range(first, len)?;
        let counts = &self.core.tables.counts;
        let is_alone = |lpn: &Lpn| {
            let mapping = self.core.tables.map.get(*lpn);
            self.is_buffered(*lpn) || mapping.is_some_and(|mapping| counts.get(mapping.ppn) == 1)
        };
        let lpns = (lpns.start.0..lpns.end.0).map(Lpn);
        Ok(lpns.filter(is_alone).count() as u32)
    }

    fn shares_page(&self, a: Lpn, b: Lpn) -> bool {
        a == b || !self.is_buffered(a) && !self.is_buffered(b) && self.place(a) == self.place(b)
    }
}
