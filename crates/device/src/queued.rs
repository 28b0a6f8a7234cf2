//! Requests of a device with the engine `nand`, which end when their time has come.
//!
//! Absent: the engine itself (`nand`), and commands that are submitted one by one (`device`).

use crate::command::PageCommand;
use crate::device::Device;
use crate::halves::perform;
use crate::host_lpn::HostLpn;
use crate::indirection::Extent;
use crate::nand::Nand;
use crate::step::{DataPath, Step};
use remap_ssd_ftl::Refusal;

impl Device {
    /// The model whose dies choose, if the device has the engine `nand`. Its requests have
    /// [`submit_part`](Self::submit_part) for their pages; all other verbs submit a command when nothing else is
    /// outstanding, and complete it.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, HostLpn, PageCommand, PageKind};
    /// let config = DeviceConfig::from_toml(
    ///     "preset = \"fast21-32g\"\nscale = \"1/256\"\n[background]\nlookup_stalls_dies = false\n[timing]\nengine = \"nand\"",
    /// )?;
    /// let mut device = Device::format(config)?;
    ///
    /// // Two requests at once; each ends in its own time.
    /// for (request, lpn) in (0..).zip(HostLpn::range(HostLpn::ZERO, 2)) {
    ///     device.nand().ok_or("the engine is nand")?.open(request);
    ///     let write = PageCommand { content: lpn.into(), lpn, kind: PageKind::Write };
    ///     device.submit_part(request, 0, &write, false)?;
    ///     device.nand().ok_or("the engine is nand")?.close(request);
    /// }
    /// let nand = device.nand().ok_or("the engine is nand")?;
    /// assert_eq!(nand.outstanding(), 2);
    /// let ends = [nand.next_end(), nand.next_end()].map(|end| end.map(|end| end.request));
    /// assert_eq!(ends, [Some(0), Some(1)]);
    ///
    /// nand.open(0);
    /// device.deallocate_part(0, device.busy_until(), HostLpn::ZERO, 2)?;
    /// device.nand().ok_or("the engine is nand")?.close(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn nand(&mut self) -> Option<&mut Nand> {
        self.charging.nand.as_deref_mut()
    }

    /// Submits one page of a request of the engine `nand`. `goes_on`: the next call continues the command.
    ///
    /// # Errors
    /// The reason for the refusal.
    ///
    /// # Panics
    /// The device has the other engine.
    #[inline]
    pub fn submit_part(
        &mut self,
        request: u32,
        now: u64,
        command: &PageCommand,
        goes_on: bool,
    ) -> Result<(), Refusal> {
        let charging = &mut self.charging;

        if let Some(indirection) = &mut self.indirection {
            return indirection.submit(&mut self.ftl, command, goes_on, &mut |ftl, step| {
                let ops = &mut ftl.media_mut().ops;
                charging.submit(request, now, step, ops);
                ops.clear();
            });
        }

        perform(&mut self.ftl, command, goes_on, |ftl, step| {
            let ops = &mut ftl.media_mut().ops;
            charging.submit(request, now, step, ops);
            ops.clear();
        })
    }

    /// Deallocates `len` pages from `lpn` on, as a part of a request of the engine `nand`.
    ///
    /// # Errors
    /// The reason for the refusal.
    ///
    /// # Panics
    /// The device has the other engine.
    pub fn deallocate_part(
        &mut self,
        request: u32,
        now: u64,
        lpn: HostLpn,
        len: u32,
    ) -> Result<(), Refusal> {
        let charging = &mut self.charging;

        if let Some(indirection) = &mut self.indirection {
            return indirection.deallocate(
                &mut self.ftl,
                lpn,
                len,
                Extent::Units,
                &mut |ftl, step| {
                    let ops = &mut ftl.media_mut().ops;
                    charging.submit(request, now, step, ops);
                    ops.clear();
                },
            );
        }

        let result = self.ftl.deallocate(lpn.unit(0), len);
        let ops = &mut self.ftl.media_mut().ops;
        self.charging
            .submit(request, now, Step::new(DataPath::Absent, false), ops);
        ops.clear();
        result
    }

    /// The same for the engine `nand`, in which the device's work may last beyond `until`.
    pub(crate) fn idle_events(&mut self, now: u64, until: u64) {
        let mut instant_steps = 0;
        while instant_steps < self.ftl.collection_steps() {
            let quiet = self.nand().and_then(|nand| nand.quiet_since(until));
            let Some(at) = quiet.map(|at| at.max(now) + self.config().background.idle_after_ns)
            else {
                return;
            };
            if at >= until || !self.ftl.background() {
                return;
            }
            self.charge(at, DataPath::Own);

            // Steps over stretches without valid pages take no time; more of them in a row than a victim has get nowhere.
            let is_instant = self.nand().and_then(|nand| nand.quiet_since(at)).is_some();
            instant_steps = if is_instant { instant_steps + 1 } else { 0 };
        }
    }
}
