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
//! pages of 4 KiB (`HostLpn`) above this layer, and units (`Lpn`) below it; a page that a command does not name keeps its content, and no cut
//! changes that (`Ftl::write_merged`). Absent: units of one page, which do not pass here; the contents of units (`assembly`,
//! `identity`); durations.

mod assembly;
mod bare;
mod counts;
mod deallocate;
mod identity;
mod remap;

pub use bare::IndirectionUnits;
pub use counts::IndirectionCounts;
pub(crate) use deallocate::Extent;

use crate::command::{PageCommand, PageKind};
use crate::host_lpn::HostLpn;
use crate::step::{DataPath, Step};
use assembly::{UnitAssembly, bytes_of};
use remap_ssd_ftl::{Ftl, Lpn, Refusal};
use remap_ssd_media::{ContentMode, Geometry, OpKind, Page, PageView, Payload, Ppn, Purpose};

/// Most pages of a unit: 64 KiB.
const PARTS_MAX: usize = 16;

/// The layer of a device.
pub(crate) struct Indirection {
    /// log2 of the pages of a unit.
    shift: u32,
    gathered: Option<Gathered>,
    /// The pages gathered, or those of a unit that a remap or a deallocation changes.
    pages: UnitAssembly,
    counts: IndirectionCounts,
    /// Pages that the host had written when the first block wore out.
    first_retired: Option<u64>,
}

/// Pages of one unit that the current request reads or writes.
#[derive(Clone, Copy)]
struct Gathered {
    unit: Lpn,
    is_write: bool,
    /// One of the pages is written in part, so the unit is read in any case.
    reads: bool,
    /// The home of the unit, if all pages have homes in it, at their places.
    home: Option<Lpn>,
}

/// What a command's operations are charged as: called after each of its steps.
pub(crate) type Charge<'a> = dyn FnMut(&mut Ftl, Step) + 'a;

impl Indirection {
    /// The layer of a geometry; `None` if its units are pages.
    pub(crate) fn new(geometry: &Geometry, mode: ContentMode) -> Option<Box<Self>> {
        let pages = geometry.host_pages();
        assert!(pages.is_power_of_two() && pages as usize <= PARTS_MAX);
        (pages > 1).then(|| {
            Box::new(Self {
                shift: pages.trailing_zeros(),
                gathered: None,
                pages: UnitAssembly::new(pages, mode),
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
    pub(crate) fn unit(&self, page: HostLpn) -> Lpn {
        page.unit(self.shift)
    }

    /// A page's place in its unit.
    fn place(&self, page: HostLpn) -> u32 {
        page.place(self.shift)
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
        self.note_retired(ftl);
        done
    }

    fn note_retired(&mut self, ftl: &Ftl) {
        if self.first_retired.is_none() && ftl.first_retired().is_some() {
            self.first_retired = Some(self.counts.pages_written);
        }
    }

    fn submit_page(
        &mut self,
        ftl: &mut Ftl,
        command: &PageCommand,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let PageCommand { lpn, content, kind } = *command;
        match kind {
            PageKind::Read
            | PageKind::Write
            | PageKind::WriteFor { .. }
            | PageKind::ReadModifyWrite => {
                let content = Payload::Identity(content);
                self.transfer(ftl, lpn, kind, &content, goes_on, charge)
            }
            PageKind::Trim => self.deallocate(ftl, lpn, 1, Extent::Units, charge),
            PageKind::Remap { .. } => {
                let remap = command.as_remap().expect("it is a remap");
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

    /// Writes a page of a request with this content.
    pub(crate) fn write_page(
        &mut self,
        ftl: &mut Ftl,
        (page, kind): (HostLpn, PageKind),
        content: &Payload<'_>,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let done = self.transfer(ftl, page, kind, content, goes_on, charge);
        self.note_retired(ftl);
        done
    }

    /// Reads or writes a page of a request, together with the others of its unit.
    fn transfer(
        &mut self,
        ftl: &mut Ftl,
        page: HostLpn,
        kind: PageKind,
        content: &Payload<'_>,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let earlier = self.gather(ftl, page, kind, content, charge);
        let is_complete = self.place(page) + 1 == self.pages();
        let done = if is_complete || !goes_on {
            self.execute(ftl, goes_on, charge)
        } else {
            Ok(())
        };
        earlier.and(done)
    }

    /// Adds a page to those of its unit, after the pages of another unit have been executed.
    fn gather(
        &mut self,
        ftl: &mut Ftl,
        page: HostLpn,
        kind: PageKind,
        content: &Payload<'_>,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let (unit, place, is_write) = (self.unit(page), self.place(page), kind.writes());

        let mut earlier = Ok(());
        let fits = |gathered: &Gathered| gathered.unit == unit && gathered.is_write == is_write;
        if !self.gathered.as_ref().is_some_and(fits) {
            earlier = self.execute(ftl, true, charge);
            self.pages.clear();
        }

        // The unit has a home only if all of its pages have the same one, each at its place.
        let home = match kind {
            PageKind::WriteFor { home } if self.place(home) == place => Some(self.unit(home)),
            _ => None,
        };
        let gathered = self.gathered.get_or_insert(Gathered {
            unit,
            is_write,
            reads: false,
            home,
        });

        gathered.reads |= kind == PageKind::ReadModifyWrite;
        if gathered.home != home {
            gathered.home = None;
        }

        if is_write {
            self.pages.write(place, content);
        } else {
            self.pages.mark(place);
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
                let count = self.pages.count();
                let read = self.find(ftl, gathered.unit, count).map(drop);
                charge(ftl, Step::of_pages(DataPath::ToHost, count, goes_on));
                read
            }
        }
    }

    /// Announces a write of several pages: a power cut leaves all of its units as they were, or as it makes them.
    pub(crate) fn begin_write(
        &mut self,
        ftl: &mut Ftl,
        page: HostLpn,
        len: u32,
    ) -> Result<(), Refusal> {
        self.check_range(ftl, page, len)?;
        let first = self.unit(page);
        let end = self.unit(page.offset(len + self.pages() - 1));
        // Units of which a part is kept: what may fail comes before the first page.
        if self.place(page) > 0 {
            ftl.check_readable(first)?;
        }
        if self.place(page.offset(len)) > 0 {
            ftl.check_readable(end.back(1))?;
        }
        ftl.begin_write(first, end.offset_from(first))
    }

    /// Ends a request whose last page was not known to be the last.
    pub(crate) fn end_write(
        &mut self,
        ftl: &mut Ftl,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let done = self.execute(ftl, true, charge);
        ftl.end_write();
        charge(ftl, Step::new(DataPath::Own, false));
        self.note_retired(ftl);
        done
    }

    /// Makes the newest contents of pages durable, and with them those of their units.
    pub(crate) fn make_durable(
        &self,
        ftl: &mut Ftl,
        page: HostLpn,
        len: u32,
    ) -> Result<(), Refusal> {
        self.check_range(ftl, page, len)?;
        let first = self.unit(page);
        let end = self.unit(page.offset(len + self.pages() - 1));
        ftl.make_durable(first, end.offset_from(first))
    }

    /// Reads a page at once, whose unit is then charged as one page. `view_found` shows it.
    pub(crate) fn find_page(
        &mut self,
        ftl: &mut Ftl,
        page: HostLpn,
        charge: &mut Charge<'_>,
    ) -> Result<Option<Ppn>, Refusal> {
        // A read of a request's own page finds what the request has written.
        self.execute(ftl, true, charge)?;
        self.check_range(ftl, page, 1)?;
        self.counts.pages_read += 1;
        self.find(ftl, self.unit(page), 1)
    }

    /// The content of a page whose unit was found. Of contents that are identities, that of the unit.
    pub(crate) fn view_found<'a>(
        &self,
        ftl: &'a Ftl,
        found: Option<Ppn>,
        page: HostLpn,
    ) -> PageView<'a> {
        match ftl.view(found) {
            PageView::Bytes(unit) => PageView::Bytes(&unit[bytes_of(self.place(page))]),
            other => other,
        }
    }

    /// The same, owned.
    pub(crate) fn read_found(&self, ftl: &Ftl, found: Option<Ppn>, page: HostLpn) -> Page {
        match self.view_found(ftl, found, page) {
            PageView::Zeroes => Page::Zeroes,
            PageView::Unknown => Page::Unknown,
            PageView::Identity(identity) => Page::Identity(identity),
            PageView::Bytes(bytes) => Page::Bytes(bytes.into()),
        }
    }

    /// Reads a unit for the host, which needs `count` of its pages: the others do not leave the die.
    fn find(&mut self, ftl: &mut Ftl, unit: Lpn, count: u32) -> Result<Option<Ppn>, Refusal> {
        let found = ftl.find(unit);
        if is_buffered(ftl, &found) {
            self.counts.buffer_hits += u64::from(count);
        }
        if count < self.pages() {
            // The list has the operations of this step alone.
            let ops = ftl.media_mut().ops.iter_mut();
            for op in ops.filter(|op| op.kind == OpKind::Read && op.purpose == Purpose::Host) {
                op.amount = count;
                self.counts.unmoved_pages += u64::from(self.pages() - count);
            }
        }
        found
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        gathered: &Gathered,
        goes_on: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let Gathered {
            unit, reads, home, ..
        } = *gathered;
        let count = self.pages.count();

        // A unit that is replaced as a whole needs no earlier contents, unless the host reads them.
        if count == self.pages() && !reads {
            self.counts.whole_writes += 1;
            let (payload, _) = self.pages.over(PageView::Zeroes);
            let written = match home {
                Some(home) => ftl.write_for(unit, &payload, home),
                None if goes_on => ftl.write_more(unit, &payload),
                None => ftl.write(unit, &payload),
            };
            charge(ftl, Step::of_pages(DataPath::FromHost, count, goes_on));
            return written;
        }

        let before = ftl.find(unit);
        self.count_merge(ftl, &before);

        // A unit that cannot be read is not written: the command ends with this step.
        let continues = goes_on || before.is_ok();
        charge(ftl, Step::of_pages(DataPath::ToMerge, count, continues));
        let (payload, _) = self.pages.over(ftl.view(before?));
        let written = ftl.write_merged(unit, &payload);
        end_merged(ftl, goes_on, charge);
        written
    }

    /// Counts a unit of which a part is written over what was found.
    fn count_merge(&mut self, ftl: &Ftl, before: &Result<Option<Ppn>, Refusal>) {
        if is_buffered(ftl, before) {
            self.counts.merged_in_buffer += 1;
        } else {
            self.counts.read_modify_writes += 1;
        }
    }

    /// Refuses pages after the last unit.
    fn check_range(&self, ftl: &Ftl, page: HostLpn, len: u32) -> Result<(), Refusal> {
        let pages = u64::from(ftl.config().lpns) << self.shift;
        if page.get() + u64::from(len) > pages {
            return Err(Refusal::OutOfRange);
        }
        Ok(())
    }
}

/// Returns true if a unit was found in the write buffer.
fn is_buffered(ftl: &Ftl, found: &Result<Option<Ppn>, Refusal>) -> bool {
    matches!(found, Ok(Some(ppn)) if !ftl.is_on_flash(*ppn))
}

/// A unit has been written whose pages were merged in the previous step.
fn end_merged(ftl: &mut Ftl, goes_on: bool, charge: &mut Charge<'_>) {
    if !goes_on {
        ftl.end_write();
    }
    charge(ftl, Step::new(DataPath::Merged, goes_on));
}
