//! One device, used step by step in virtual time, and its state after power cuts.
//!
//! A command takes effect when it is submitted and is acknowledged at the time that the device
//! returns. Operations that the acknowledgement waits for are durable from then on; everything else
//! may be lost when power fails (`remap_ssd_media::rail`).
//!
//! Invariants: `now` never decreases; acknowledged commands are those with an end not after `now`.
//! Absent: the interface of Python's class (`remap_ssd/_device.py`).

use crate::errors::{Failed, OutOfMemory, Refused, failed_at, mistake};
use crate::replay::{FRESH, Replayed, replay};
use crate::stop::StopSign;
use crate::trace::Columns;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use remap_ssd_crash::cut::Cutter;
use remap_ssd_device as device;
use remap_ssd_device::{DeviceConfig, HostLpn, inspect};
use remap_ssd_ftl::{Ftl, Lpn, Refusal, Remap, SchemeKind};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{AckSet, ContentMode, Media, Page, Payload};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum operations that a cut may undo; scanning them is the cost per command.
const PENDING_MAX: usize = 2048;

/// A simulated device in memory, as Python uses it.
#[pyclass(module = "remap_ssd._native")]
pub struct Device(Mutex<PoweredDevice>);

/// A device with its host's clock.
pub(crate) struct PoweredDevice {
    pub(crate) device: device::Device,
    pub(crate) now: u64,
    /// Submitted but not acknowledged, by end time and order of submission.
    in_flight: BTreeMap<(u64, u64), AckSet>,
    submitted: u64,
    /// The last content that a replay has given to a page alone.
    pub(crate) fresh: u64,
}

/// Content of a page, for Python: `None`, an identity, bytes, or a word.
#[derive(IntoPyObject)]
enum PageContent<'py> {
    Identity(u64),
    Bytes(Bound<'py, PyBytes>),
    Nothing(Option<u64>),
    Unknown(&'static str),
}

/// Start and end of a command, in ns.
pub(crate) type CommandTimes = (u64, u64);

/// Starts and ends of a replay's rows in ns, as 64-bit words, and the rows refused, with the reasons.
type PythonReplay<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Vec<(usize, String)>,
);

#[pymethods]
impl Device {
    #[new]
    fn new(py: Python<'_>, toml: &str, power_cuts: bool) -> PyResult<Self> {
        let config = DeviceConfig::from_toml(toml).map_err(mistake)?;
        check_usable(&config)?;
        check_memory(&config)?;
        py.detach(|| device::Device::format(config).map(|device| Self::powered(device, power_cuts)))
            .map_err(mistake)
    }

    /// Loads the device of an image; also returns the recovery report.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, power_cuts: bool) -> PyResult<(Self, String)> {
        let loaded = py.detach(|| device::Device::load(&path));
        let (device, report) = loaded.map_err(|error| failed_at(&path, error))?;
        check_usable(device.config())?;
        Ok((Self::powered(device, power_cuts), json!(report).to_string()))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.lock().device.save(&path))
            .map_err(|error| failed_at(&path, error))
    }

    /// Cuts and restores power; returns the recovered device and the recovery report.
    fn cut(&self, py: Python<'_>, seed: u64) -> PyResult<(Self, String)> {
        let recovered = py.detach(|| {
            let (image, config) = {
                let powered = self.lock();
                let media = powered.device.ftl().media();
                if !media.has_rail() {
                    return Err("this device was made with power_cuts=False".to_owned());
                }
                let mut cutter = Cutter::new(seed, media.pending());
                (
                    media.cut_by(|kind| cutter.outcome(kind)),
                    powered.device.config().clone(),
                )
            };

            let recovered = device::Device::recover(Media::from_image(&image), config);

            let (mut device, report) = recovered.map_err(|error| error.to_string())?;
            device.untimed(Ftl::relearn_bytes);
            Ok((Self::powered(device, true), json!(report).to_string()))
        });
        recovered.map_err(Failed::new_err)
    }

    /// Writes pages whose contents are represented by numbers, in one request.
    fn write_numbers(
        &self,
        py: Python<'_>,
        lpn: u32,
        numbers: Vec<u64>,
        home: Option<u32>,
        wait: bool,
    ) -> PyResult<CommandTimes> {
        let payloads: Vec<Payload<'_>> = numbers.into_iter().map(Payload::Identity).collect();
        self.submit(py, wait, |device, now| {
            write_pages(device, now, lpn, &payloads, home)
        })
        .map(|(times, ())| times)
    }

    /// Writes whole pages of bytes in one request.
    fn write_bytes(
        &self,
        py: Python<'_>,
        lpn: u32,
        bytes: &[u8],
        home: Option<u32>,
        wait: bool,
    ) -> PyResult<CommandTimes> {
        let payloads: Vec<Payload<'_>> = bytes
            .as_chunks::<PAGE_BYTES>()
            .0
            .iter()
            .map(|page| Payload::Bytes(page))
            .collect();
        self.submit(py, wait, |device, now| {
            write_pages(device, now, lpn, &payloads, home)
        })
        .map(|(times, ())| times)
    }

    /// Reads the pages of one request.
    fn read<'py>(
        &self,
        py: Python<'py>,
        lpn: u32,
        pages: u32,
        wait: bool,
    ) -> PyResult<(CommandTimes, Vec<Bound<'py, PyAny>>)> {
        let (times, found) = self.submit(py, wait, |device, now| {
            let (mut end, mut found) = (now, Ok(Vec::new()));
            // The first page beyond the device returns the error for the rest.
            let within = device.config().firmware.lpns.saturating_sub(lpn);
            for at in 0..pages.min(within.saturating_add(1)) {
                let (done, page) = device.read(now, Lpn(lpn.saturating_add(at)));
                end = end.max(done);
                found = found.and_then(|mut pages: Vec<Page>| {
                    pages.push(page?);
                    Ok(pages)
                });
            }
            (end, found)
        })?;

        let held = found
            .iter()
            .map(|page| Ok(held(py, page).into_pyobject(py)?.into_any()));
        Ok((times, held.collect::<PyResult<_>>()?))
    }

    fn trim(&self, py: Python<'_>, lpn: u32, pages: u32, wait: bool) -> PyResult<CommandTimes> {
        self.submit(py, wait, |device, now| {
            ended(device.deallocate(now, Lpn(lpn), pages))
        })
        .map(|(times, ())| times)
    }

    #[allow(clippy::too_many_arguments)]
    fn remap(
        &self,
        py: Python<'_>,
        target: u32,
        source: u32,
        pages: u32,
        relocate: bool,
        atomic: bool,
        wait: bool,
    ) -> PyResult<CommandTimes> {
        let remap = Remap {
            target: Lpn(target),
            source: Lpn(source),
            len: pages,
            relocate,
            atomic,
        };
        self.submit(py, wait, |device, now| {
            ended(device.remap(now, &remap).into())
        })
        .map(|(times, ())| times)
    }

    fn flush(&self, py: Python<'_>, wait: bool) -> PyResult<CommandTimes> {
        self.submit(py, wait, |device, now| ended(device.flush(now)))
            .map(|(times, ())| times)
    }

    /// Executes the rows of a trace; `queue_depth` is the most in flight, and without times the
    /// device's own if it is `None`.
    #[allow(clippy::too_many_arguments)]
    fn replay<'py>(
        &self,
        py: Python<'py>,
        verbs: &[u8],
        pages: &[u8],
        counts: &[u8],
        sources: Option<&[u8]>,
        times: Option<&[u8]>,
        fingerprints: Option<&[u8]>,
        queue_depth: Option<u32>,
    ) -> PyResult<PythonReplay<'py>> {
        let columns = Columns::new(verbs, pages, counts, sources, times, fingerprints);
        columns.check().map_err(mistake)?;
        let sign = StopSign::new();
        let Replayed {
            starts,
            ends,
            refused,
        } = self.with(py, |powered| replay(powered, &columns, queue_depth, sign))?;
        let bytes = |times: Vec<u64>| {
            let native: Vec<u8> = times.into_iter().flat_map(u64::to_ne_bytes).collect();
            PyBytes::new(py, &native)
        };
        Ok((bytes(starts), bytes(ends), refused))
    }

    /// Advances virtual time, during which the firmware may do background work; at most to 2^62 ns.
    fn idle(&self, py: Python<'_>, ns: u64) {
        self.with(py, |powered| {
            powered.idle_until(powered.now.saturating_add(ns));
        });
    }

    /// The same up to a time; a time in the past has no effect. Returns the time then.
    fn advance_to(&self, py: Python<'_>, ns: u64) -> u64 {
        self.with(py, |powered| {
            powered.idle_until(ns);
            powered.now
        })
    }

    /// Waits for all commands in flight.
    fn wait(&self, py: Python<'_>) {
        self.with(py, |powered| {
            let last = powered.in_flight.last_key_value();
            let last = last.map_or(0, |((end, _), _)| *end);
            powered.advance(last);
        });
    }

    #[getter]
    fn now_ns(&self, py: Python<'_>) -> u64 {
        self.with(py, |powered| powered.now)
    }

    /// Number of commands in flight, and of operations that a cut may undo.
    fn pending(&self, py: Python<'_>) -> (usize, usize) {
        self.with(py, |powered| {
            let media = powered.device.ftl().media();
            (powered.in_flight.len(), media.pending())
        })
    }

    /// The device file that it was made from.
    fn config(&self, py: Python<'_>) -> String {
        self.with(py, |powered| powered.device.config().to_toml())
    }

    /// True if pages are bytes, and false if numbers represent them.
    fn stores_bytes(&self, py: Python<'_>) -> bool {
        self.with(py, |powered| {
            powered.device.config().content == ContentMode::Bytes
        })
    }

    /// Counters and fill levels, as JSON.
    fn state(&self, py: Python<'_>) -> String {
        self.with(py, |powered| state(powered))
    }

    /// Superblocks with their segment groups, as JSON.
    fn superblocks(&self, py: Python<'_>) -> String {
        py.detach(|| {
            let powered = self.lock();
            let ftl = powered.device.ftl();
            let mut rows = json!(inspect::superblocks(&powered.device));
            if let Value::Array(rows) = &mut rows {
                for (row, (id, _)) in rows.iter_mut().zip(ftl.superblocks()) {
                    row["segment_numbers"] = json!(ftl.group(id).unwrap_or_default().segments);
                }
            }
            rows.to_string()
        })
    }

    /// Superblock, offset in it and flash page of a logical page, if it is mapped.
    fn place(&self, py: Python<'_>, lpn: u32) -> Option<(u32, u32, u32)> {
        self.with(py, |powered| {
            let geometry = powered.device.config().geometry;
            let ppn = powered.device.ftl().place(Lpn(lpn))?;
            Some((geometry.superblock(ppn).0, geometry.offset(ppn), ppn.0))
        })
    }

    /// Erase counts of all blocks.
    fn erase_counts(&self, py: Python<'_>) -> Vec<u32> {
        self.with(py, |powered| {
            powered.device.ftl().media().erase_counts().to_vec()
        })
    }

    /// Checks all tables for consistency.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.lock().device.ftl().check())
            .map_err(|found| Failed::new_err(found.to_string()))
    }
}

impl Device {
    fn powered(device: device::Device, power_cuts: bool) -> Self {
        Self::at(device, power_cuts, 0)
    }

    /// The device of a run that has ended, at the time of its end.
    ///
    /// # Errors
    /// It cannot be used step by step.
    pub(crate) fn after_run(device: device::Device) -> PyResult<Self> {
        check_usable(device.config())?;
        let end = device.busy_until();
        Ok(Self::at(device, true, end))
    }

    fn at(mut device: device::Device, power_cuts: bool, now: u64) -> Self {
        if power_cuts {
            device.untimed(|ftl| ftl.media_mut().attach_rail());
        }
        Self(Mutex::new(PoweredDevice {
            device,
            now,
            in_flight: BTreeMap::new(),
            submitted: 0,
            fresh: FRESH,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, PoweredDevice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` without the interpreter's lock: another thread's command may take long.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut PoweredDevice) -> T + Send,
    ) -> T {
        py.detach(|| work(&mut self.lock()))
    }

    /// Submits one command; returns its times and result.
    fn submit<T: Send>(
        &self,
        py: Python<'_>,
        wait: bool,
        work: impl FnOnce(&mut device::Device, u64) -> (u64, Result<T, Refusal>) + Send,
    ) -> PyResult<(CommandTimes, T)> {
        let (times, result) = self.with(py, |powered| powered.submit(wait, work));
        result
            .map(|value| (times, value))
            .map_err(|refusal| Refused::new_err(refusal.to_string()))
    }
}

impl PoweredDevice {
    /// Submits one command now; returns its times and result.
    pub(crate) fn submit<T>(
        &mut self,
        wait: bool,
        work: impl FnOnce(&mut device::Device, u64) -> (u64, Result<T, Refusal>),
    ) -> (CommandTimes, Result<T, Refusal>) {
        let start = self.now;
        self.device.untimed(|ftl| ftl.media_mut().begin_command());
        let (end, result) = work(&mut self.device, start);
        let ack = self.device.untimed(|ftl| ftl.media_mut().take_ack());

        let order = self.submitted;
        self.submitted += 1;
        self.in_flight.insert((end, order), ack);
        self.advance(if wait { end } else { start });
        ((start, end), result)
    }

    /// Advances to the end of a command in flight if there are this many or more.
    pub(crate) fn make_room(&mut self, queue_depth: usize) {
        while self.in_flight.len() >= queue_depth
            && let Some((&(end, _), _)) = self.in_flight.first_key_value()
        {
            self.advance(end);
        }
    }

    /// Advances virtual time, at most to 2^62 ns; the firmware may do background work meanwhile.
    pub(crate) fn idle_until(&mut self, until: u64) {
        let (now, until) = (self.now, until.min(1 << 62));
        if until > now {
            self.device.idle(now, until);
            self.advance(until);
        }
    }

    /// Advances virtual time to `until`: commands that ended are acknowledged, and so durable.
    fn advance(&mut self, until: u64) {
        self.now = self.now.max(until);
        while let Some(entry) = self
            .in_flight
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let ack = entry.remove();
            self.device.untimed(|ftl| ftl.media_mut().settle(&ack));
        }

        // An idle device has nothing left to lose.
        let is_idle = self.in_flight.is_empty() && self.device.busy_until() <= self.now;
        if is_idle || self.device.ftl().media().pending() > PENDING_MAX {
            self.device.untimed(|ftl| ftl.media_mut().settle_all());
        }
    }
}

/// Counters and fill levels, as JSON.
fn state(powered: &PoweredDevice) -> String {
    let (ftl, config) = (powered.device.ftl(), powered.device.config());
    let counts = ftl.media().counts;

    // The counters of every scheme are present, not only those of the device's own.
    let mut firmware = json!(ftl.stats());
    for name in SchemeKind::ALL
        .iter()
        .flat_map(|scheme| scheme.facts().counters)
    {
        firmware[*name] = json!(ftl.scheme_counter(name));
    }

    json!({
        "firmware": firmware,
        "media": {
            "reads": counts.reads,
            "programs": counts.programs,
            "erases": counts.erases,
            "nvram_bytes_written": counts.nv_bytes_written,
        },
        "usage": ftl.usage(),
        "free_superblocks": ftl.free_superblocks(),
        "usable_pages": ftl.usable_pages(),
        "read_only": ftl.is_read_only(),
        "logical_pages": config.firmware.lpns,
        "page_bytes": PAGE_BYTES,
    })
    .to_string()
}

/// Checks that a device can be used step by step.
fn check_usable(config: &DeviceConfig) -> PyResult<()> {
    config.check_known_ends().map_err(mistake)?;
    config.check_unit_is_page().map_err(mistake)
}

/// Checks that the tables of a device fit into memory: an allocation that fails ends the process.
fn check_memory(config: &DeviceConfig) -> PyResult<()> {
    // Contents take memory as they are written.
    let needs = config.table_bytes();
    match remap_ssd_study::available() {
        // A tenth of tolerance, because it is an estimate.
        Some(available) if needs - needs / 10 > available => Err(OutOfMemory::new_err(format!(
            "this device takes about {} MiB of memory, and {} MiB are available: a smaller `scale` takes less",
            needs >> 20,
            available >> 20
        ))),
        _ => Ok(()),
    }
}

/// Writes consecutive pages: as a whole or not at all, where the device can.
pub(crate) fn write_pages(
    device: &mut device::Device,
    now: u64,
    lpn: u32,
    payloads: &[Payload<'_>],
    home: Option<u32>,
) -> (u64, Result<(), Refusal>) {
    if payloads.len() > 1
        && let Err(refusal) = device.begin_write(HostLpn::from(Lpn(lpn)), payloads.len() as u32)
    {
        return (now, Err(refusal));
    }
    let (mut end, mut result) = (now, Ok(()));
    for (index, payload) in payloads.iter().enumerate() {
        let at = Lpn(lpn.saturating_add(index as u32));
        let one = match home {
            Some(home) => device.write_for(now, at, payload, Lpn(home)),
            None if index + 1 < payloads.len() => device.write_more(now, at, payload),
            None => device.write(now, at, payload),
        };
        end = end.max(one.done_at);
        result = result.and(one.result);
    }
    (end, result)
}

pub(crate) fn ended(completion: device::Completion) -> (u64, Result<(), Refusal>) {
    (completion.done_at, completion.result)
}

fn held<'py>(py: Python<'py>, page: &Page) -> PageContent<'py> {
    match page {
        Page::Zeroes => PageContent::Nothing(None),
        Page::Unknown => PageContent::Unknown("unknown"),
        Page::Identity(identity) => PageContent::Identity(*identity),
        Page::Bytes(bytes) => PageContent::Bytes(PyBytes::new(py, &bytes[..])),
    }
}
