//! A device: firmware, timing, and the host's verbs with a submission time.
//!
//! A command takes effect when it is submitted; its media operations are then charged, and the
//! completion has its end time. Pages of one request are submitted one by one with the same `now`.
//!
//! Invariants: `now` never decreases; after each command the media's list of operations is empty; a
//! refused command also has a completion time. Absent: the host's queue, and the wall clock.

use crate::bit_errors::ErrorModel;
use crate::command::{PageCommand, PageKind};
use crate::completion::{Completion, FileCompletion};
use crate::config::{DeviceConfig, DeviceConfigError};
use crate::fingerprint_outcome::Fingerprints;
use crate::halves::{FirmwareHalf, OpCharger, TimingHalf, look_ahead, perform};
use crate::host_lpn::HostLpn;
use crate::indirection::{Extent, Indirection, IndirectionCounts};
use crate::nand::Nand;
use crate::open_error::OpenError;
use crate::step::{DataPath, Step};
use crate::timing::Timing;
use remap_ssd_ftl::{
    BufferedPages, FileBlock, FilePage, Ftl, Glimpse, Lpn, RecoveryReport, Refusal, Stats,
    UsablePages,
};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Media, Payload};
use std::path::PathBuf;

/// A simulated SSD: firmware, media and a timing model.
///
/// Commands take a submission time and return a completion time. Contents are identities or bytes,
/// depending on the configuration.
///
/// ```
/// use remap_ssd_device::{Device, DeviceConfig, HostLpn, Lpn, Page, PageCommand, PageKind, Payload};
/// let config = DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?;
/// let mut device = Device::format(config)?;
///
/// let written = device.write(0, Lpn(7), &Payload::Identity(42));
/// let (done_at, page) = device.read(written.done_at, Lpn(7));
/// assert_eq!(page?, Page::Identity(42));
///
/// let flushed = device.flush(done_at);
/// let gone = device.deallocate(flushed.done_at, Lpn(7), 1);
/// let (_, page) = device.read(gone.done_at, Lpn(7));
/// assert_eq!(page?, Page::Zeroes);
/// assert_eq!(device.ftl().stats().host_programs, 1);
///
/// // Before a measurement, the firmware works in no time.
/// let write = PageCommand { lpn: HostLpn::new(8), content: 1, kind: PageKind::Write };
/// device.execute(&write, false)?;
///
/// // While nothing is submitted, the firmware may work for itself.
/// device.idle(gone.done_at, gone.done_at + 1_000_000_000);
/// assert!(device.timing().busy_until() >= written.done_at);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Flushed data survives a power cut. A device in memory stores bytes, which can be viewed in
/// place:
///
/// ```
/// use remap_ssd_device::{Device, DeviceConfig, Lpn, PageView, Payload, SchemeKind};
/// let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, true)?;
/// let mut device = Device::in_memory(config.clone())?;
/// device.keep_time(false);
/// device.keep_apart(Lpn(100)..Lpn(200)); // these share no flash page with others
///
/// let page = [7; 4096];
/// device.write_more(0, Lpn(0), &Payload::Bytes(&page)).result?;
/// device.write(0, Lpn(1), &Payload::Bytes(&page)).result?;
/// device.flush(0).result?;
/// let (mut device, report) = device.power_cycle()?;
/// assert_eq!(report.mapped, 2);
///
/// let (_, first) = device.view(0, Lpn(1), |page| match page {
///     PageView::Bytes(bytes) => bytes[0],
///     _ => 0,
/// });
/// assert_eq!(first?, 7);
///
/// // Equal pages are programmed once, unless deduplication is paused.
/// assert_eq!(device.untimed(|ftl| ftl.stats().host_programs), 0);
/// device.pause_dedup(true);
/// device.write(0, Lpn(2), &Payload::Bytes(&page)).result?;
/// assert_eq!(device.ftl().stats().host_programs, 1);
///
/// let media = device.into_media();
/// let (device, _) = Device::recover(media, config)?;
/// assert!(device.config().firmware.dedup && device.config().memory_bytes() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Requests of several pages are submitted page by page, or as a whole. Their pages have numbers of more than 32 bits
/// ([`HostLpn`]), since a device with larger indirection units may have more than 16 TiB. The verbs with bytes address the first 16 TiB:
///
/// ```
/// use remap_ssd_device::{Device, DeviceConfig, HostLpn, PageCommand, PageKind};
/// let mut device = Device::format(DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?)?;
/// let write = |lpn| PageCommand { content: 1, lpn, kind: PageKind::Write };
///
/// let first = device.submit_more(0, &write(HostLpn::ZERO));
/// let whole = device.submit(0, &write(HostLpn::new(1)));
/// assert!(first.result.and(whole.result).is_ok());
///
/// let pages: Vec<_> = HostLpn::range(HostLpn::new(2), 8).map(write).collect();
/// let done = device.submit_request(whole.done_at, &pages);
/// assert!(done.result.is_ok() && done.done_at > whole.done_at);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Device {
    pub(crate) ftl: Ftl,
    pub(crate) charging: OpCharger,
    /// The layer of indirection units, if they are larger than a page.
    pub(crate) indirection: Option<Box<Indirection>>,
    config: DeviceConfig,
    /// The folder of the device, if it is in one.
    pub(crate) dir: Option<PathBuf>,
    /// Text of its configuration file when it was opened there.
    pub(crate) config_text: Option<String>,
    pub(crate) fingerprints: Fingerprints,
}

impl Device {
    /// A new, empty device, formatted, at time 0.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn format(config: DeviceConfig) -> Result<Self, DeviceConfigError> {
        config.check()?;
        let words = config.firmware.nvram_words(&config.geometry);
        let media = Media::blank(config.geometry, config.content, words);
        match Ftl::format(media, config.firmware_of_chips()) {
            Ok(ftl) => Ok(Self::assemble(ftl, config)),
            Err(error) => Err(DeviceConfigError(error.to_string())),
        }
    }

    /// A new, empty device for use: real bytes, in memory that is allocated when it is written.
    ///
    /// # Errors
    /// The configuration cannot work, or the memory cannot be allocated.
    pub fn in_memory(config: DeviceConfig) -> Result<Self, DeviceConfigError> {
        config.check()?;
        let words = config.firmware.nvram_words(&config.geometry);

        // The media's or the firmware's reason becomes an error of the configuration: a smaller
        // device may work.
        let error = |error: &dyn std::fmt::Display| DeviceConfigError(error.to_string());
        let media = Media::in_memory(config.geometry, words).map_err(|reason| error(&reason))?;
        let ftl =
            Ftl::format(media, config.firmware_of_chips()).map_err(|reason| error(&reason))?;
        Ok(Self::assemble(ftl, config))
    }

    /// Powers on a device from its media.
    ///
    /// # Errors
    /// The configuration cannot work, or the media do not belong to it or cannot be recovered.
    pub fn recover(
        media: Media,
        config: DeviceConfig,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        config.check()?;

        // With another geometry every address would refer to another page.
        if media.geometry() != config.geometry {
            let text = "the media have another geometry than the configuration";
            return Err(DeviceConfigError(text.into()).into());
        }
        let (ftl, report) = Ftl::recover(media, config.firmware_of_chips())?;
        Ok((Self::assemble(ftl, config), report))
    }

    pub(crate) fn assemble(mut ftl: Ftl, config: DeviceConfig) -> Self {
        // Formatting and recovery happened before the device's time starts.
        ftl.media_mut().ops.clear();

        let timing = Timing::new(config.geometry, config.latencies());
        let nand = config
            .nand()
            .map(|spec| Nand::new(config.geometry, spec, config.latencies()))
            .map(|nand| nand.with_errors(&config.errors));
        let nand = nand.map(|mut nand| {
            nand.know_modes(ftl.media().slc());
            Box::new(nand)
        });

        let hashes = ftl.deduplicates();
        let indirection = Indirection::new(&config.geometry, ftl.media().mode());

        Self {
            ftl,
            indirection,
            charging: OpCharger::new(timing, nand, hashes),
            config,
            dir: None,
            config_text: None,
            fingerprints: Fingerprints::NotSaved,
        }
    }

    /// Turns the timing model on or off. It is on by default; when off, completion times are
    /// meaningless.
    pub fn keep_time(&mut self, keep: bool) {
        self.charging.timed = keep;
        self.ftl.media_mut().keep_time(keep);
        self.know_modes();
    }

    /// From now on flash has the bit errors of `[errors]`, if there are any: the data that it holds is
    /// `errors.age_days` old, and reads of it may fail. Called before a run is measured; a further call has no effect.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, Lpn, Payload, Refusal};
    ///
    /// let config = DeviceConfig::from_toml(
    ///     "preset = \"fast21-32g\"\nscale = \"1/256\"\n[timing]\nengine = \"nand\"\n\
    ///      [background]\nlookup_stalls_dies = false\n[errors]\nrate = 0.004\nretention = 1.0\nage_days = 9.0",
    /// )?;
    /// let mut device = Device::format(config)?;
    /// let written = device.write(0, Lpn(1), &Payload::Identity(7));
    /// device.begin_bit_errors();
    /// let (_, page) = device.read(device.busy_until(), Lpn(1));
    /// assert_eq!(page, Err(Refusal::MediaError));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin_bit_errors(&mut self) {
        let (errors, newest) = (&self.config.errors, self.ftl.wsn());
        if errors.rate == 0.0 || self.ftl.media().has_bit_errors() {
            return;
        }
        let endurance = self.config.flash.endurance;
        let model = ErrorModel::new(self.config.geometry, errors, endurance, newest);
        self.ftl.media_mut().begin_bit_errors(Box::new(model));
    }

    /// From now on these logical pages share no flash page with others: see `Ftl::keep_apart`. With a larger indirection unit, nor do
    /// the other pages of their units.
    pub fn keep_apart(&mut self, lpns: std::ops::Range<Lpn>) {
        let unit = self.config.geometry.host_pages();
        let units = lpns.start.0 / unit..lpns.end.0.div_ceil(unit);
        self.ftl.keep_apart(Lpn(units.start)..Lpn(units.end));
    }

    /// The device's configuration.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }
    /// The firmware, for inspection.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }
    /// Outcome of restoring the fingerprints saved at the last shutdown, for a device in a folder.
    pub fn fingerprints(&self) -> &Fingerprints {
        &self.fingerprints
    }
    /// The timing model, for inspection.
    pub fn timing(&self) -> &Timing {
        &self.charging.timing
    }
    /// End of everything submitted so far, as far as it is known: with the engine `nand`, of everything that has
    /// ended.
    pub fn busy_until(&self) -> u64 {
        match &self.charging.nand {
            Some(nand) => nand.now(),
            None => self.charging.timing.busy_until(),
        }
    }
    /// Total time spent on lookups of owners.
    pub fn lookup_total_ns(&self) -> u64 {
        match &self.charging.nand {
            Some(nand) => nand.lookup_total_ns(),
            None => self.charging.timing.lookup_total_ns(),
        }
    }
    /// Splits firmware from timing: a pipeline executes commands now and computes their times later
    /// (`halves`). `None` if the timing model is off.
    pub fn halves(&mut self) -> Option<(FirmwareHalf<'_>, TimingHalf<'_>)> {
        let timed = self.charging.timed;
        let firmware = FirmwareHalf {
            ftl: &mut self.ftl,
            indirection: self.indirection.as_deref_mut(),
            usable: UsablePages::default(),
        };

        // Without time the other half has nothing to compute.
        timed.then_some((firmware, TimingHalf(&mut self.charging)))
    }
    /// Takes the media out, as after a clean or unclean power-off.
    pub fn into_media(self) -> Media {
        self.ftl.into_media()
    }

    /// Cuts the power and restores it: DRAM is lost, and is rebuilt from flash and NVRAM.
    /// Fingerprints are not read again. Settings are kept: pages kept apart, the timing model, a
    /// pause of deduplication.
    ///
    /// # Errors
    /// The media cannot be recovered.
    pub fn power_cycle(self) -> Result<(Self, RecoveryReport), OpenError> {
        let Self {
            ftl,
            config,
            charging,
            dir,
            ..
        } = self;

        // Settings of the caller, which are not persisted.
        let (apart, paused) = (ftl.apart().to_vec(), ftl.is_dedup_paused());

        let (mut device, report) = Self::recover(ftl.into_media(), config)?;
        device.dir = dir;
        device.keep_time(charging.timed);
        let ftl = &mut device.ftl;
        apart.into_iter().for_each(|lpns| ftl.keep_apart(lpns));
        device.pause_dedup(paused);
        Ok((device, report))
    }

    /// Pauses or resumes deduplication of writes.
    pub fn pause_dedup(&mut self, pause: bool) {
        self.ftl.pause_dedup(pause);

        // Writes pass the hash unit only if their fingerprints are looked up.
        self.charging.hashes = self.ftl.deduplicates() && !pause;
    }

    /// Uses the firmware without charging time.
    #[inline]
    pub fn untimed<R>(&mut self, work: impl FnOnce(&mut Ftl) -> R) -> R {
        let result = work(&mut self.ftl);
        self.ftl.media_mut().ops.clear();
        self.know_modes();
        result
    }

    /// Shows the timing model modes of superblocks that have changed by operations that took no time.
    #[inline]
    fn know_modes(&mut self) {
        let modes = self.ftl.media().slc();
        if modes.area().is_dynamic()
            && let Some(nand) = &mut self.charging.nand
        {
            nand.know_modes(modes);
        }
    }

    /// The firmware's counters in pages of 4 KiB. `Ftl::stats` counts indirection units.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, HostLpn, PageCommand, PageKind};
    /// let config = DeviceConfig::from_toml(
    ///     "preset = \"fast21-32g\"\nscale = \"1/64\"\n[geometry]\npage_bytes = 16384\nindirection_bytes = 16384",
    /// )?;
    /// assert!(config.addressable_units() < config.geometry.pages());
    /// assert!(config.logical_pages() < config.flash_pages());
    /// assert_eq!(config.logical_pages(), u64::from(config.host_lpns()));
    /// let mut device = Device::format(config)?;
    ///
    /// // Four pages are a unit: the first write has them all, the second one changes one of them.
    /// let write = |lpn| PageCommand { content: 7, lpn, kind: PageKind::Write };
    /// let whole: Vec<_> = HostLpn::range(HostLpn::new(8), 4).map(write).collect();
    /// let done = device.submit_request(0, &whole);
    /// device.submit(done.done_at, &write(HostLpn::new(9)));
    ///
    /// let counts = device.indirection_counts();
    /// assert_eq!((counts.whole_writes, counts.read_modify_writes), (1, 1));
    /// let stats = device.stats();
    /// assert_eq!((stats.host_writes, stats.host_programs), (5, 8));
    /// assert_eq!(device.ftl().stats().host_programs, 2);
    /// device.execute_deallocation(HostLpn::new(8), 4)?;
    /// assert_eq!(device.glimpse().host_writes, 5);
    ///
    /// device.count_written_units(2);
    /// assert_eq!(device.stats().host_writes, 5 + 2 * 4);
    /// assert_eq!(device.first_retired(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let stats = self.ftl.stats();
        match &self.indirection {
            None => stats,
            Some(units) => units.counts().in_pages(stats, units.pages().into()),
        }
    }

    /// The counters of a time series in pages of 4 KiB.
    pub fn glimpse(&self) -> Glimpse {
        let glimpse = self.ftl.glimpse(&mut UsablePages::default());
        match &self.indirection {
            None => glimpse,
            Some(units) => units.counts().glimpse_in_pages(glimpse, units.pages()),
        }
    }

    /// Counts of the layer of indirection units; all 0 if units are pages.
    pub fn indirection_counts(&self) -> IndirectionCounts {
        let units = self.indirection.as_ref();
        units.map_or_else(IndirectionCounts::default, |units| units.counts())
    }

    /// Pages of 4 KiB that the host had written when the first block wore out.
    pub fn first_retired(&self) -> Option<u64> {
        match &self.indirection {
            None => self.ftl.first_retired(),
            Some(units) => units.first_retired(),
        }
    }

    /// Counts indirection units that the caller wrote to the firmware itself (`untimed`) as written by the host. Without effect
    /// if units are pages, which the firmware counts.
    pub fn count_written_units(&mut self, units: u64) {
        if let Some(indirection) = &mut self.indirection {
            indirection.count_written(units);
        }
    }

    /// Deallocates pages without charging time.
    ///
    /// # Errors
    /// The firmware refuses it.
    pub fn execute_deallocation(&mut self, lpn: HostLpn, len: u32) -> Result<(), Refusal> {
        if let Some(indirection) = &mut self.indirection {
            let mut forget = |ftl: &mut Ftl, _| ftl.media_mut().ops.clear();
            let done = indirection.deallocate(&mut self.ftl, lpn, len, Extent::Units, &mut forget);
            self.know_modes();
            return done;
        }
        self.untimed(|ftl| ftl.deallocate(lpn.unit(0), len))
    }

    /// Executes one page of a request without charging time. `goes_on`: the next call continues it.
    ///
    /// # Errors
    /// The firmware refuses it.
    #[inline]
    pub fn execute(&mut self, command: &PageCommand, goes_on: bool) -> Result<(), Refusal> {
        if let Some(indirection) = &mut self.indirection {
            let mut forget = |ftl: &mut Ftl, _| ftl.media_mut().ops.clear();
            let done = indirection.submit(&mut self.ftl, command, goes_on, &mut forget);
            self.know_modes();
            return done;
        }
        let done = perform(&mut self.ftl, command, goes_on, |ftl, _| {
            ftl.media_mut().ops.clear();
        });
        self.know_modes();
        done
    }

    /// Call it before each command of a list is submitted, with its `index`: prefetches the data of
    /// later commands. Handles two commands at a time, so that their waits for the page table
    /// overlap.
    #[inline(always)]
    pub fn look_ahead<T>(&self, list: &[T], index: usize, command: impl Fn(&T) -> PageCommand) {
        look_ahead(&self.ftl, self.indirection.as_deref(), list, index, command);
    }

    /// Submits one page of a request.
    #[inline]
    pub fn submit(&mut self, now: u64, command: &PageCommand) -> Completion {
        self.submit_page(now, command, false)
    }

    /// Submits one page of a request that continues with the next call.
    #[inline]
    pub fn submit_more(&mut self, now: u64, command: &PageCommand) -> Completion {
        self.submit_page(now, command, true)
    }

    #[inline(always)]
    fn submit_page(&mut self, now: u64, command: &PageCommand, goes_on: bool) -> Completion {
        if self.indirection.is_some() {
            return self.through_units(now, |indirection, ftl, charge| {
                indirection.submit(ftl, command, goes_on, charge)
            });
        }
        let (charging, mut done_at) = (&mut self.charging, now);
        let result = perform(&mut self.ftl, command, goes_on, |ftl, step| {
            let ops = &mut ftl.media_mut().ops;
            done_at = charging.charge(now, step, ops);
            ops.clear();
        });
        Completion { done_at, result }
    }

    /// Submits all pages of a request; it completes with the last of them and reports the first
    /// refusal.
    pub fn submit_request(&mut self, now: u64, pages: &[PageCommand]) -> Completion {
        let mut whole = Completion {
            done_at: now,
            result: Ok(()),
        };

        let is_untorn = match self.begin_request(pages) {
            Ok(is_untorn) => is_untorn,
            Err(refusal) => {
                whole.result = Err(refusal);
                return whole;
            }
        };

        for (index, page) in pages.iter().enumerate() {
            self.look_ahead(pages, index, |page| *page);
            let one = if index + 1 < pages.len() {
                self.submit_more(now, page)
            } else {
                self.submit(now, page)
            };
            whole = Completion {
                done_at: whole.done_at.max(one.done_at),
                result: whole.result.and(one.result),
            };

            // The pages before are undone.
            if is_untorn && whole.result.is_err() {
                self.ftl.end_write();
                self.charge(now, DataPath::Own);
                break;
            }
        }
        whole
    }

    /// Announces a request that writes consecutive pages; returns true if it is one.
    fn begin_request(&mut self, pages: &[PageCommand]) -> Result<bool, Refusal> {
        let is_next = |pair: &[PageCommand]| pair[1].lpn == pair[0].lpn.offset(1);
        let writes = pages.iter().all(|page| page.kind == PageKind::Write);
        match pages {
            [first, _, ..] if writes && pages.windows(2).all(is_next) => {
                let bytes = (pages.len() * PAGE_BYTES) as u64;
                self.begin_write(first.lpn, pages.len() as u32)?;
                Ok(bytes <= self.untorn_bytes_max(PAGE_BYTES as u64))
            }
            _ => Ok(false),
        }
    }

    /// Makes everything acknowledged durable.
    pub fn flush(&mut self, now: u64) -> Completion {
        let result = self.ftl.flush();
        self.complete(now, DataPath::Flush, result)
    }

    /// The end of a flush whose pages have been written back step by step (`write_back_listed`). Without a volatile write
    /// buffer it is a flush.
    pub fn flush_written(&mut self, now: u64) -> Completion {
        self.ftl.flush_written();
        self.complete(now, DataPath::Flush, Ok(()))
    }

    /// The pages that a volatile write buffer holds now, for `write_back_listed`.
    pub fn volatile_pages(&mut self) -> BufferedPages {
        self.ftl.volatile_pages()
    }

    /// Writes back at most `pages` of these pages, in their newest versions, and takes them from the list; the second value is
    /// their number. Indirection units are written whole, at least one.
    ///
    /// ```
    /// use remap_ssd_device::{Device, DeviceConfig, Lpn, Payload, SchemeKind};
    /// let mut config = DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false)?;
    /// config.firmware.write_buffer_bytes = 64 << 10;
    /// config.firmware.power_loss_protection = false;
    /// let mut device = Device::in_memory(config)?;
    /// for lpn in Lpn::range(Lpn(0), 4) {
    ///     device.write(0, lpn, &Payload::Bytes(&[1; 4096])).result?;
    /// }
    ///
    /// // One page as a write with FUA, then the rest as a flush in steps, for which later pages are no concern.
    /// device.make_durable(0, Lpn(3), 1).result?;
    /// let mut listed = device.volatile_pages();
    /// device.write(0, Lpn(9), &Payload::Bytes(&[1; 4096])).result?;
    /// assert_eq!(device.write_back_listed(0, &mut listed, 2).1, 2);
    /// assert_eq!(device.write_back_listed(0, &mut listed, 2).1, 1);
    /// device.flush_written(0).result?;
    ///
    /// let (_, report) = device.power_cycle()?;
    /// assert_eq!(report.mapped, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_back_listed(
        &mut self,
        now: u64,
        listed: &mut BufferedPages,
        pages: u32,
    ) -> (Completion, u32) {
        let unit = self.config.geometry.host_pages();
        let written = self.ftl.write_back_listed(listed, pages.div_ceil(unit));
        let completion = self.complete(now, DataPath::Own, written.map(drop));
        (completion, written.unwrap_or(0) * unit)
    }

    /// Makes the newest pages of a range durable, as a write with FUA does. Without a volatile write buffer all pages are
    /// durable when they are acknowledged.
    pub fn make_durable(&mut self, now: u64, lpn: Lpn, len: u32) -> Completion {
        let result = match &self.indirection {
            None => self.ftl.make_durable(lpn, len),
            Some(units) => units.make_durable(&mut self.ftl, lpn.into(), len),
        };
        self.complete(now, DataPath::Own, result)
    }

    /// Nothing is submitted from `now` to `until`: after the configured idle time, the firmware
    /// does background work, one step after the other; the last one may end after `until`.
    pub fn idle(&mut self, now: u64, until: u64) {
        if self.charging.nand.is_some() {
            return self.idle_events(now, until);
        }
        // Idle time starts when the device has no work left, not at the last command's arrival.
        let mut at = now.max(self.timing().busy_until()) + self.config.background.idle_after_ns;
        let mut instant_steps = 0;
        while at < until && instant_steps < self.ftl.collection_steps() && self.ftl.background() {
            self.charge(at, DataPath::Own);
            let next = self.timing().busy_until();
            instant_steps = if next > at { 0 } else { instant_steps + 1 };
            at = at.max(next);
        }
    }

    /// Writes a page of a file, and records its position in the file map.
    pub fn fs_write(
        &mut self,
        now: u64,
        lpn: Lpn,
        payload: &Payload<'_>,
        page: FilePage,
    ) -> FileCompletion {
        let result = self.ftl.fs_write(lpn, payload, page);
        FileCompletion {
            done_at: self.charge(now, DataPath::FromHost),
            result,
        }
    }

    /// Pages of a file recorded since the last reset, in order, and when they have reached the
    /// host.
    pub fn fs_map(&mut self, now: u64, inode: u32) -> (u64, Result<Vec<FileBlock>, Refusal>) {
        let result = self.ftl.fs_map(inode);
        let blocks = result.as_ref().map_or(0, Vec::len);
        (self.send(now, blocks * size_of::<FileBlock>()), result)
    }

    /// Files recorded since the last reset, by inode number, and when they have reached the host.
    pub fn fs_files(&mut self, now: u64) -> (u64, Result<Vec<u32>, Refusal>) {
        let result = self.ftl.fs_files();
        let files = result.as_ref().map_or(0, Vec::len);
        (self.send(now, files * size_of::<u32>()), result)
    }

    /// Empties the file map, as after a checkpoint of the host.
    pub fn fs_reset(&mut self, now: u64) -> Completion {
        let result = self.ftl.fs_reset();
        self.complete(now, DataPath::Absent, result)
    }

    /// Charges the last firmware operations, and the transfer of the answer in whole pages.
    fn send(&mut self, now: u64, bytes: usize) -> u64 {
        let done = self.charge(now, DataPath::Absent);
        let timing = &mut self.charging.timing;
        (0..bytes.div_ceil(PAGE_BYTES))
            .fold(done, |end, _| end.max(timing.front.send(now, 1, done)))
    }

    #[inline]
    pub(crate) fn complete(
        &mut self,
        now: u64,
        data: DataPath,
        result: Result<(), Refusal>,
    ) -> Completion {
        Completion {
            done_at: self.charge(now, data),
            result,
        }
    }

    /// Charges the last firmware operations, which end a command.
    #[inline]
    pub(crate) fn charge(&mut self, now: u64, data: DataPath) -> u64 {
        self.charge_step(now, Step::new(data, false))
    }

    #[inline]
    pub(crate) fn charge_step(&mut self, now: u64, step: Step) -> u64 {
        let ops = &mut self.ftl.media_mut().ops;
        let done = self.charging.charge(now, step, ops);
        ops.clear();
        done
    }
}
