//! The verbs of a host with bytes or identities, page by page. A device with larger indirection units executes them on its layer.
//!
//! Invariant: without that layer a verb is one branch, the firmware's verb and its time. Absent: requests that are lists of page
//! commands (`device`), and those of the engine `nand` (`queued`).

use crate::command::{HostRemap, PageKind};
use crate::completion::{Completion, CopiedPages, RemapCompletion};
use crate::device::Device;
use crate::host_lpn::HostLpn;
use crate::indirection::{Charge, Extent, Indirection};
use crate::step::{DataPath, Step};
use remap_ssd_ftl::{Ftl, Lpn, Refusal, Remap};
use remap_ssd_media::{Page, PageView, Payload, Ppn};

impl Device {
    /// Reads a page. Returns when it has reached the host, and its content. With a larger indirection unit, an identity is that of
    /// the unit.
    #[inline]
    pub fn read(&mut self, now: u64, lpn: Lpn) -> (u64, Result<Page, Refusal>) {
        if self.indirection.is_some() {
            let (done_at, found) = self.find_in_unit(now, lpn);
            let indirection = self.indirection.as_ref().expect("the device has the layer");
            let read = found.map(|found| indirection.read_found(&self.ftl, found, lpn.into()));
            return (done_at, read);
        }
        let result = self.ftl.read(lpn);
        (self.charge(now, DataPath::ToHost), result)
    }

    /// Reads a page and passes a view of it to `show`. Returns when it has reached the host, and
    /// the result of `show`.
    #[inline]
    pub fn view<R>(
        &mut self,
        now: u64,
        lpn: Lpn,
        show: impl FnOnce(PageView<'_>) -> R,
    ) -> (u64, Result<R, Refusal>) {
        if self.indirection.is_some() {
            let (done_at, found) = self.find_in_unit(now, lpn);
            let indirection = self.indirection.as_ref().expect("the device has the layer");
            let shown =
                found.map(|found| show(indirection.view_found(&self.ftl, found, lpn.into())));
            return (done_at, shown);
        }
        // Looked up first and shown last: its time is charged in between, and nothing is copied.
        let found = self.ftl.find(lpn);
        let done = self.charge(now, DataPath::ToHost);
        (done, found.map(|found| show(self.ftl.view(found))))
    }

    /// Writes a page, the last of its request.
    #[inline]
    pub fn write(&mut self, now: u64, lpn: Lpn, payload: &Payload<'_>) -> Completion {
        if self.indirection.is_some() {
            return self.write_part(now, lpn, payload, PageKind::Write, false);
        }
        let result = self.ftl.write(lpn, payload);
        self.complete(now, DataPath::FromHost, result)
    }

    /// Bytes of the largest write that a power cut leaves whole or absent, if it begins at a multiple of `block` bytes: one block, unless
    /// `firmware.untorn_bytes` says more.
    pub fn untorn_bytes_max(&self, block: u64) -> u64 {
        let unit = self.config().geometry.page_bytes() as u64;
        match u64::from(self.ftl.untorn_pages_max()) {
            0 | 1 => block,
            // A write that begins within a unit takes a part of another one.
            units => {
                let least = (units - 1) * unit + block.min(unit);
                least.min(self.config().firmware.untorn_bytes)
            }
        }
    }

    /// Announces a write of `len` pages, which `write_more` and `write` then make, in any order: after a power cut all of them are
    /// written, or none. Reads may come in between. Writes of more than `untorn_bytes_max` are made page by page.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, HostLpn, Lpn, Payload, SchemeKind};
    /// let mut config = DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false)?;
    /// config.firmware.untorn_bytes = 64 << 10;
    /// let mut device = Device::in_memory(config)?;
    /// assert_eq!(device.untorn_bytes_max(4096), 64 << 10);
    ///
    /// device.begin_write(HostLpn::ZERO, 2)?;
    /// device.write_more(0, Lpn(0), &Payload::Bytes(&[1; 4096])).result?;
    /// device.write(0, Lpn(1), &Payload::Bytes(&[2; 4096])).result?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a write; `AtomicUnavailable` if many interrupted writes have left traces that cannot be removed.
    pub fn begin_write(&mut self, lpn: HostLpn, len: u32) -> Result<(), Refusal> {
        match &mut self.indirection {
            None => self.ftl.begin_write(lpn.unit(0), len),
            Some(units) => units.begin_write(&mut self.ftl, lpn, len),
        }
    }

    /// Writes a page of a request that continues with the next call, and is not acknowledged before
    /// it ends.
    #[inline]
    pub fn write_more(&mut self, now: u64, lpn: Lpn, payload: &Payload<'_>) -> Completion {
        if self.indirection.is_some() {
            return self.write_part(now, lpn, payload, PageKind::Write, true);
        }
        let result = self.ftl.write_more(lpn, payload);
        Completion {
            done_at: self.charge_step(now, Step::new(DataPath::FromHost, true)),
            result,
        }
    }

    /// A write on the layer of indirection units.
    fn write_part(
        &mut self,
        now: u64,
        lpn: Lpn,
        payload: &Payload<'_>,
        kind: PageKind,
        goes_on: bool,
    ) -> Completion {
        self.through_units(now, |indirection, ftl, charge| {
            indirection.write_page(ftl, (lpn.into(), kind), payload, goes_on, charge)
        })
    }

    /// Ends a request that was to continue. With a larger indirection unit, its last pages are written now.
    pub fn end_write(&mut self, now: u64) -> Completion {
        if self.indirection.is_some() {
            return self.through_units(now, |indirection, ftl, charge| {
                indirection.end_write(ftl, charge)
            });
        }
        self.ftl.end_write();
        self.complete(now, DataPath::Own, Ok(()))
    }

    /// Writes a page that will later be remapped to `home`.
    pub fn write_for(
        &mut self,
        now: u64,
        lpn: Lpn,
        payload: &Payload<'_>,
        home: Lpn,
    ) -> Completion {
        if self.indirection.is_some() {
            let home = home.into();
            return self.write_part(now, lpn, payload, PageKind::WriteFor { home }, false);
        }
        let result = self.ftl.write_for(lpn, payload, home);
        self.complete(now, DataPath::FromHost, result)
    }

    /// Deallocates `len` pages from `lpn` on, which the host does not need. With a larger indirection unit, pages of units that are not
    /// within the range as a whole keep their contents.
    #[inline]
    pub fn deallocate(&mut self, now: u64, lpn: Lpn, len: u32) -> Completion {
        self.submit_deallocation(now, lpn.into(), len)
    }

    /// The same for any page of the host.
    #[inline]
    pub fn submit_deallocation(&mut self, now: u64, lpn: HostLpn, len: u32) -> Completion {
        if self.indirection.is_some() {
            return self.through_units(now, |indirection, ftl, charge| {
                indirection.deallocate(ftl, lpn, len, Extent::Units, charge)
            });
        }
        let result = self.ftl.deallocate(lpn.unit(0), len);
        self.complete(now, DataPath::Absent, result)
    }

    /// Deallocates `len` pages from `lpn` on, which read as zeroes afterwards. With a larger indirection unit, that is a read and a program
    /// of each unit of which the range has a part.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, Lpn, Page, Payload};
    /// let config = DeviceConfig::from_toml(
    ///     "preset = \"fast21-32g\"\nscale = \"1/64\"\ncontent = \"bytes\"\n\
    ///      [geometry]\npage_bytes = 16384\nindirection_bytes = 16384",
    /// )?;
    /// let mut device = Device::in_memory(config)?;
    /// for lpn in Lpn::range(Lpn(0), 8) {
    ///     device.write_more(0, lpn, &Payload::Bytes(&[7; 4096])).result?;
    /// }
    /// device.end_write(0).result?;
    ///
    /// // Pages 2 and 3 share a unit with pages 0 and 1, which stay.
    /// device.deallocate(0, Lpn(2), 6).result?;
    /// assert_ne!(device.read(0, Lpn(3)).1?, Page::Zeroes);
    /// device.zero(0, Lpn(2), 6).result?;
    /// assert_eq!(device.read(0, Lpn(3)).1?, Page::Bytes([0; 4096].into()));
    /// assert_eq!(device.read(0, Lpn(1)).1?, Page::Bytes([7; 4096].into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn zero(&mut self, now: u64, lpn: Lpn, len: u32) -> Completion {
        if self.indirection.is_some() {
            return self.through_units(now, |indirection, ftl, charge| {
                indirection.deallocate(ftl, lpn.into(), len, Extent::Pages, charge)
            });
        }
        let result = self.ftl.deallocate(lpn, len);
        self.complete(now, DataPath::Absent, result)
    }

    /// Shows a page as it is, without charging a read: a drive would not make one.
    ///
    /// # Errors
    /// `OutOfRange`, `MediaError`.
    pub fn peek<R>(
        &mut self,
        lpn: Lpn,
        show: impl FnOnce(PageView<'_>) -> R,
    ) -> Result<R, Refusal> {
        let unit = self.unit(lpn);
        let found = self.untimed(|ftl| ftl.peek(unit))?;
        Ok(show(match &self.indirection {
            None => self.ftl.view(found),
            Some(units) => units.view_found(&self.ftl, found, lpn.into()),
        }))
    }

    /// The flash page that holds a page, if it is mapped.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        self.ftl().place(self.unit(lpn))
    }

    /// The firmware's page that has a page.
    fn unit(&self, lpn: Lpn) -> Lpn {
        let units = self.indirection.as_ref();
        units.map_or(lpn, |units| units.unit(lpn.into()))
    }

    /// Remaps pages: the targets read the sources' contents.
    pub fn remap(&mut self, now: u64, remap: &Remap) -> RemapCompletion {
        // The firmware's counters are cumulative; the difference is this command's.
        let before = self.ftl.remap_counts();
        let demoted_before = self.indirection_counts().demoted();
        let Completion { done_at, result } = if self.indirection.is_some() {
            self.through_units(now, |indirection, ftl, charge| {
                indirection.remap(ftl, &HostRemap::from(remap), charge)
            })
        } else {
            let result = self.ftl.remap(remap);
            Completion {
                done_at: self.charge_step(now, Step::of_remap(remap.len)),
                result,
            }
        };
        let after = self.ftl.remap_counts();
        let demoted = self.indirection_counts().demoted() - demoted_before;

        let unit = u64::from(self.config().geometry.host_pages());
        RemapCompletion {
            done_at,
            result,
            remapped: (after.remapped - before.remapped) * unit,
            copied: CopiedPages {
                counter_full: (after.counter_full - before.counter_full) * unit,
                metadata_full: (after.metadata_full - before.metadata_full) * unit,
                otherwise: (after.otherwise - before.otherwise) * unit + demoted,
            },
        }
    }

    /// Reads the unit of a page, to be shown by `view_found`.
    fn find_in_unit(&mut self, now: u64, lpn: Lpn) -> (u64, Result<Option<Ppn>, Refusal>) {
        let mut found = Ok(None);
        let earlier = self.through_units(now, |indirection, ftl, charge| {
            found = indirection.find_page(ftl, lpn.into(), charge);
            Ok(())
        });
        let read = self.charge(now, DataPath::ToHost);
        (earlier.done_at.max(read), found)
    }

    /// Executes a command on the layer of indirection units; it completes with the last of its steps.
    pub(crate) fn through_units(
        &mut self,
        now: u64,
        execute: impl FnOnce(&mut Indirection, &mut Ftl, &mut Charge<'_>) -> Result<(), Refusal>,
    ) -> Completion {
        let indirection = self.indirection.as_mut().expect("the device has the layer");
        let (charging, mut done_at) = (&mut self.charging, now);
        let result = execute(indirection, &mut self.ftl, &mut |ftl, step| {
            let ops = &mut ftl.media_mut().ops;
            done_at = done_at.max(charging.charge(now, step, ops));
            ops.clear();
        });
        Completion { done_at, result }
    }
}
