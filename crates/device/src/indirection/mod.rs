//! Indirection units larger than a page of the host: the firmware's page is the unit.
//!
//! ```text
//! host pages of 4 KiB   0  1  2  3 | 4  5  6  7 | 8  9 10 11      a unit of 16 KiB has four
//! write 2 to 8                [  2  3 | 4  5  6  7 | 8 ]
//! firmware               read, write 0 | write 1     | read, write 2
//! ```
//!
//! The pages of a request come one by one. Those of one unit are gathered, and executed when the unit is complete, another
//! unit or verb comes, or the request ends. So a request reads and programs each unit once.
//!
//! Invariants: nothing is gathered between requests; a unit is programmed at most once for each command; host addresses are
//! pages of 4 KiB above this layer, and units below it. Absent: units of one page, which do not pass here; the contents of units
//! (`identity`); durations.

mod counts;
mod identity;
mod remap;

pub use counts::IndirectionCounts;

use crate::command::{PageCommand, PageKind};
use crate::step::{DataPath, Step};
use identity::{Parts, ZEROES};
use remap_ssd_ftl::{Ftl, Lpn, Refusal, Remap};
use remap_ssd_media::{Geometry, OpKind, Page, Payload, Purpose};

/// Most pages of a unit: 64 KiB.
const PARTS_MAX: usize = 16;

/// The layer of a device.
pub(crate) struct Indirection {
    /// log2 of the pages of a unit.
    shift: u32,
    gathered: Option<Gathered>,
    counts: IndirectionCounts,
    /// Pages that the host had written when the first block wore out.
    first_retired: Option<u64>,
}

/// Pages of one unit that the current request reads or writes.
#[derive(Clone, Copy)]
struct Gathered {
    unit: Lpn,
    is_write: bool,
    parts: Parts,
    /// One of the pages is written in part, so the unit is read in any case.
    reads: bool,
    /// The home of the unit, if all pages have homes in it, at their places.
    home: Option<Lpn>,
}

/// What a command's operations are charged as: called after each of its steps.
pub(crate) type Charge<'a> = dyn FnMut(&mut Ftl, Step) + 'a;

impl Indirection {
    /// The layer of a geometry; `None` if its units are pages.
    pub(crate) fn new(geometry: &Geometry) -> Option<Box<Self>> {
        let pages = geometry.host_pages();
        assert!(pages.is_power_of_two() && pages as usize <= PARTS_MAX);
        (pages > 1).then(|| {
            Box::new(Self {
                shift: pages.trailing_zeros(),
                gathered: None,
                counts: IndirectionCounts::default(),
                first_retired: None,
            })
        })
    }

    pub(crate) fn counts(&self) -> IndirectionCounts {
        self.counts
    }

    pub(crate) fn first_retired(&self) -> Option<u64> {
        self.first_retired
    }

    /// Counts units that were written to the firmware itself.
    pub(crate) fn count_written(&mut self, units: u64) {
        self.counts.pages_written += units << self.shift;
    }

    /// Pages of a unit.
    #[inline]
    pub(crate) fn pages(&self) -> u32 {
        1 << self.shift
    }

    /// The unit of a page.
    #[inline]
    pub(crate) fn unit(&self, page: Lpn) -> Lpn {
        Lpn(page.0 >> self.shift)
    }

    /// A page's place in its unit.
    fn place(&self, page: Lpn) -> u32 {
        page.0 & (self.pages() - 1)
    }

    /// Executes a page of a request.
    pub(crate) fn submit(
        &mut self,
        ftl: &mut Ftl,
        command: &PageCommand,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let done = self.submit_page(ftl, command, goes_on, charge);
        if self.first_retired.is_none() && ftl.first_retired().is_some() {
            self.first_retired = Some(self.counts.pages_written);
        }
        done
    }

    fn submit_page(
        &mut self,
        ftl: &mut Ftl,
        command: &PageCommand,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let PageCommand { lpn, kind, .. } = *command;
        match kind {
            PageKind::Read
            | PageKind::Write
            | PageKind::WriteFor { .. }
            | PageKind::ReadModifyWrite => {
                let earlier = self.gather(ftl, command, charge);
                let is_complete = self.place(lpn) + 1 == self.pages();
                let done = if is_complete || !goes_on {
                    self.execute(ftl, goes_on, charge)
                } else {
                    Ok(())
                };
                earlier.and(done)
            }
            PageKind::Trim => self.deallocate(ftl, lpn, 1, charge),
            PageKind::Remap {
                source,
                len,
                relocate,
                atomic,
            } => {
                let remap = Remap {
                    target: lpn,
                    source,
                    len: len.into(),
                    relocate,
                    atomic,
                };
                self.remap(ftl, &remap, charge)
            }
            PageKind::Flush => {
                let earlier = self.execute(ftl, true, charge);
                let flushed = ftl.flush();
                charge(ftl, Step::new(DataPath::Flush, goes_on));
                earlier.and(flushed)
            }
        }
    }

    /// Adds a page to those of its unit, after the pages of another unit have been executed.
    fn gather(
        &mut self,
        ftl: &mut Ftl,
        command: &PageCommand,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let PageCommand { lpn, content, kind } = *command;
        let (unit, place, is_write) = (self.unit(lpn), self.place(lpn), kind.writes());

        let mut earlier = Ok(());
        let fits = |gathered: &Gathered| gathered.unit == unit && gathered.is_write == is_write;
        if !self.gathered.as_ref().is_some_and(fits) {
            earlier = self.execute(ftl, true, charge);
        }

        let home = match kind {
            PageKind::WriteFor { home } if self.place(home) == place => Some(self.unit(home)),
            _ => None,
        };
        let gathered = self.gathered.get_or_insert(Gathered {
            unit,
            is_write,
            parts: Parts::default(),
            reads: false,
            home,
        });
        gathered.parts.set(place, content);
        gathered.reads |= kind == PageKind::ReadModifyWrite;
        if gathered.home != home {
            gathered.home = None;
        }

        self.counts.pages_read += u64::from(!is_write || kind == PageKind::ReadModifyWrite);
        self.counts.pages_written += u64::from(is_write);
        earlier
    }

    /// Executes what was gathered. `goes_on`: the request has further pages.
    fn execute(
        &mut self,
        ftl: &mut Ftl,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        match self.gathered.take() {
            None => Ok(()),
            Some(gathered) if gathered.is_write => self.write(ftl, &gathered, goes_on, charge),
            Some(gathered) => {
                let count = gathered.parts.count();
                let read = self.read(ftl, gathered.unit, count).map(drop);
                charge(ftl, Step::of_pages(DataPath::ToHost, count, goes_on));
                read
            }
        }
    }

    /// Reads a page at once, whose unit is then charged as one page.
    pub(crate) fn read_page(&mut self, ftl: &mut Ftl, page: Lpn) -> Result<Page, Refusal> {
        self.counts.pages_read += 1;
        self.read(ftl, self.unit(page), 1)
    }

    /// Forgets the pages of a request that cannot go on.
    pub(crate) fn forget_request(&mut self) {
        self.gathered = None;
    }

    /// Reads a unit for the host, which needs `count` of its pages: the others do not leave the die.
    fn read(&mut self, ftl: &mut Ftl, unit: Lpn, count: u32) -> Result<Page, Refusal> {
        let read = ftl.read(unit);
        if count < self.pages() {
            let ops = ftl.media_mut().ops.iter_mut();
            for op in ops.filter(|op| op.kind == OpKind::Read && op.purpose == Purpose::Host) {
                op.amount = count;
                self.counts.unmoved_pages += u64::from(self.pages() - count);
            }
        }
        read
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        gathered: &Gathered,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let Gathered {
            unit,
            parts,
            reads,
            home,
            ..
        } = *gathered;
        let count = parts.count();

        if count == self.pages() && !reads {
            self.counts.whole_writes += 1;
            let payload = Payload::Identity(parts.over(ZEROES, self.pages()));
            let written = match home {
                Some(home) => ftl.write_for(unit, &payload, home),
                None if goes_on => ftl.write_more(unit, &payload),
                None => ftl.write(unit, &payload),
            };
            charge(ftl, Step::of_pages(DataPath::FromHost, count, goes_on));
            return written;
        }

        self.counts.read_modify_writes += 1;
        let before = ftl.read(unit);
        let continues = goes_on || before.is_ok();
        charge(ftl, Step::of_pages(DataPath::ToMerge, count, continues));
        let identity = parts.over(identity_of(&before?), self.pages());
        self.write_merged(ftl, unit, identity, goes_on, charge)
    }

    /// Writes a unit whose pages were merged in the previous step.
    fn write_merged(
        &mut self,
        ftl: &mut Ftl,
        unit: Lpn,
        identity: u64,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let payload = Payload::Identity(identity);
        let written = if goes_on {
            ftl.write_more(unit, &payload)
        } else {
            ftl.write(unit, &payload)
        };
        charge(ftl, Step::new(DataPath::Merged, goes_on));
        written
    }

    /// Deallocates the units that are within `len` pages from `page` on, and keeps the other pages.
    pub(crate) fn deallocate(
        &mut self,
        ftl: &mut Ftl,
        page: Lpn,
        len: u32,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let earlier = self.execute(ftl, true, charge);
        let done = self.deallocate_units(ftl, page, len);
        charge(ftl, Step::new(DataPath::Absent, false));
        earlier.and(done)
    }

    fn deallocate_units(&mut self, ftl: &mut Ftl, page: Lpn, len: u32) -> Result<(), Refusal> {
        self.check_range(ftl, page, len)?;
        let end = (u64::from(page) + u64::from(len)) >> self.shift;
        let first = u64::from(page).div_ceil(self.pages().into());
        let units = end.saturating_sub(first) as u32;
        self.counts.kept_pages += u64::from(len) - (u64::from(units) << self.shift);

        if units == 0 {
            ftl.end_write();
            return Ok(());
        }
        ftl.deallocate(Lpn(first as u32), units)
    }

    /// Refuses pages after the last unit.
    fn check_range(&self, ftl: &Ftl, page: Lpn, len: u32) -> Result<(), Refusal> {
        // LPNs have 32 bits, also those of larger devices.
        let pages = (u64::from(ftl.config().lpns) << self.shift).min(u32::MAX.into());
        if u64::from(page) + u64::from(len) > pages {
            return Err(Refusal::OutOfRange);
        }
        Ok(())
    }
}

/// The identity of a unit.
fn identity_of(unit: &Page) -> u64 {
    match unit {
        Page::Identity(identity) => *identity,
        Page::Zeroes => ZEROES,
        // Contents are not stored: all but zeroes are alike.
        Page::Unknown => 1,
        Page::Bytes(_) => unreachable!("a device with bytes has units of one page"),
    }
}
