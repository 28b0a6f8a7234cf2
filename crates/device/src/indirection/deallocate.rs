//! Deallocation of pages, on a device that maps units.
//!
//! ```text
//! deallocate 2 to 8     2  3 | 4  5  6  7 | 8        a unit of 16 KiB has four pages
//! as a hint             kept | deallocated | kept
//! exactly               read, write | deallocated | read, write
//! ```
//!
//! Absent: the choice between the two (the caller's). Drives with such units announce the granularity of deallocations, which are hints; a
//! host that is promised zeroes needs the exact one.

use super::{Charge, Indirection};
use crate::host_lpn::HostLpn;
use crate::step::{DataPath, Step};
use remap_ssd_ftl::{Ftl, Lpn, Refusal};
use std::ops::Range;

/// Which pages of a range are deallocated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those of whole units; the others are kept.
    Units,
    /// All of them, which read as zeroes then.
    Pages,
}

/// Why pages are deallocated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The host does not need them.
    Discarded,
    /// The same command has moved them: no cut may lose both.
    Moved,
}

impl Indirection {
    /// Deallocates `len` pages from `page` on, as far as `extent` says.
    pub(crate) fn deallocate(
        &mut self,
        ftl: &mut Ftl,
        page: HostLpn,
        len: u32,
        extent: Extent,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let earlier = self.execute(ftl, true, charge);

        let done = self
            .check_range(ftl, page, len)
            .and_then(|()| match extent {
                Extent::Units => {
                    let units = self.whole_units(page, len);
                    self.counts.kept_pages += u64::from(len) - ((units.len() as u64) << self.shift);
                    deallocate_units(ftl, units, Leaving::Discarded)
                }
                Extent::Pages => self.leave(ftl, page, len, Leaving::Discarded, charge),
            });

        if extent == Extent::Pages {
            ftl.end_write();
        }
        charge(ftl, Step::new(DataPath::Absent, false));
        earlier.and(done)
    }

    /// Deallocates pages, of which those that share a unit with others are written as zeroes.
    pub(super) fn leave(
        &mut self,
        ftl: &mut Ftl,
        page: HostLpn,
        len: u32,
        leaving: Leaving,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let units = self.whole_units(page, len);

        // Without a whole unit there are one or two parts, of the units of the first and of the last page.
        let to_next = self.pages() - self.place(page);
        let head = if units.is_empty() {
            to_next.min(len)
        } else {
            to_next % self.pages()
        };
        let whole = (units.len() as u32) << self.shift;
        self.zero_part(ftl, page, head, leaving, charge)?;
        if !units.is_empty() {
            deallocate_units(ftl, units, leaving)?;
            charge(ftl, Step::new(DataPath::Absent, true));
        }
        let tail = page.offset(head + whole);
        self.zero_part(ftl, tail, len - head - whole, leaving, charge)
    }

    /// Writes pages of one unit as zeroes.
    fn zero_part(
        &mut self,
        ftl: &mut Ftl,
        first: HostLpn,
        len: u32,
        leaving: Leaving,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        if len == 0 {
            return Ok(());
        }
        let unit = self.unit(first);
        self.pages.clear();
        for page in HostLpn::range(first, len) {
            let place = self.place(page);
            self.pages.zero(place);
        }

        let before = ftl.find(unit);
        charge(ftl, Step::new(DataPath::ToCopy, true));
        let before = before?;
        if before.is_none() {
            // Perhaps by a command that is not durable yet.
            ftl.wait_for_earlier();
            return Ok(());
        }
        self.count_merge(ftl, &Ok(before));
        let (payload, _) = self.pages.over(ftl.view(before));
        let written = match leaving {
            Leaving::Discarded => ftl.write_copied(unit, &payload),
            Leaving::Moved => ftl.write_moved(unit, &payload),
        };
        charge(ftl, Step::new(DataPath::Merged, true));
        written
    }

    /// The units within a range of pages.
    pub(super) fn whole_units(&self, page: HostLpn, len: u32) -> Range<u32> {
        let first = self.unit(page.offset(self.pages() - 1)).0;
        let end = self.unit(page.offset(len)).0;
        first..end.max(first)
    }
}

fn deallocate_units(ftl: &mut Ftl, units: Range<u32>, leaving: Leaving) -> Result<(), Refusal> {
    if units.is_empty() {
        ftl.end_write();
        return Ok(());
    }
    let (first, len) = (Lpn(units.start), units.len() as u32);
    match leaving {
        Leaving::Discarded => ftl.deallocate(first, len),
        Leaving::Moved => ftl.deallocate_moved(first, len),
    }
}
