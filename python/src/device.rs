//! One device, used step by step in virtual time, and its state after power cuts.
//!
//! A command takes effect when it is submitted and is acknowledged at the time that the device
//! returns. Operations that the acknowledgement waits for are durable from then on; everything else
//! may be lost when power fails (`remap_ssd_media::rail`).
//!
//! Invariants: `now` never decreases; acknowledged commands are those with an end not after `now`.
//! Absent: the interface of Python's class (`remap_ssd/_device.py`).

use crate::errors::{Failed, Refused, mistake};
use pyo3::exceptions::PyValueError;
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
struct PoweredDevice {
    device: device::Device,
    now: u64,
    /// Submitted but not acknowledged, by end time and order of submission.
    in_flight: BTreeMap<(u64, u64), AckSet>,
    submitted: u64,
}

/// Content of a page, for Python: `None`, an identity, bytes, or a word.
#[derive(IntoPyObject)]
enum PageContent<'py> {
    Identity(u64),
    Bytes(Bound<'py, PyBytes>),
    Nothing(Option<u64>),
    Unknown(&'static str),
}

/// The content of a page that Python writes.
#[derive(FromPyObject)]
pub(crate) enum WriteContent {
    /// A number that represents the content, so that no bytes are stored.
    Identity(u64),
    /// All 4 KiB of the page.
    Bytes(Vec<u8>),
}

/// Start and end of a command, in ns.
type CommandTimes = (u64, u64);

#[pymethods]
impl Device {
    #[new]
    fn new(py: Python<'_>, toml: &str, power_cuts: bool) -> PyResult<Self> {
        let config = DeviceConfig::from_toml(toml).map_err(mistake)?;
        config.check_known_ends().map_err(mistake)?;
        config.check_unit_is_page().map_err(mistake)?;
        py.detach(|| device::Device::format(config).map(|device| Self::powered(device, power_cuts)))
            .map_err(mistake)
    }

    /// Loads the device of an image; also returns the recovery report.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, power_cuts: bool) -> PyResult<(Self, String)> {
        let loaded = py.detach(|| device::Device::load(&path));
        let (device, report) =
            loaded.map_err(|error| Failed::new_err(format!("{}: {error}", path.display())))?;
        device.config().check_known_ends().map_err(mistake)?;
        device.config().check_unit_is_page().map_err(mistake)?;
        Ok((Self::powered(device, power_cuts), json!(report).to_string()))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.lock().device.save(&path))
            .map_err(|error| Failed::new_err(format!("{}: {error}", path.display())))
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

    /// Writes the pages of one request.
    fn write(
        &self,
        lpn: u32,
        contents: Vec<WriteContent>,
        home: Option<u32>,
        wait: bool,
    ) -> PyResult<CommandTimes> {
        let mode = self.lock().device.config().content;
        let payloads = contents
            .iter()
            .map(|content| payload(mode, content))
            .collect::<PyResult<Vec<_>>>()?;

        if payloads.is_empty() {
            return Err(PyValueError::new_err("a write of 0 pages is none"));
        }
        if home.is_some() && payloads.len() > 1 {
            return Err(PyValueError::new_err(
                "pages that name their home are written one by one",
            ));
        }

        let write = |device: &mut device::Device, now: u64| {
            // As a whole or not at all, where the device can.
            if payloads.len() > 1
                && let Err(refusal) =
                    device.begin_write(HostLpn::from(Lpn(lpn)), payloads.len() as u32)
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
        };

        self.submit(wait, write).map(|(times, ())| times)
    }

    /// Reads the pages of one request.
    fn read<'py>(
        &self,
        py: Python<'py>,
        lpn: u32,
        pages: u32,
        wait: bool,
    ) -> PyResult<(CommandTimes, Vec<Bound<'py, PyAny>>)> {
        let (times, found) = self.submit(wait, |device, now| {
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

    fn trim(&self, lpn: u32, pages: u32, wait: bool) -> PyResult<CommandTimes> {
        self.submit(wait, |device, now| {
            ended(device.deallocate(now, Lpn(lpn), pages))
        })
        .map(|(times, ())| times)
    }

    fn remap(
        &self,
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
        self.submit(wait, |device, now| ended(device.remap(now, &remap).into()))
            .map(|(times, ())| times)
    }

    fn flush(&self, wait: bool) -> PyResult<CommandTimes> {
        self.submit(wait, |device, now| ended(device.flush(now)))
            .map(|(times, ())| times)
    }

    /// Advances virtual time, during which the firmware may do background work; at most to 2^62 ns.
    fn idle(&self, py: Python<'_>, ns: u64) {
        py.detach(|| {
            let mut powered = self.lock();
            let (now, until) = (powered.now, powered.now.saturating_add(ns).min(1 << 62));
            powered.device.idle(now, until);
            powered.advance(until);
        });
    }

    /// Waits for all commands in flight.
    fn wait(&self) {
        let mut powered = self.lock();
        let last = powered
            .in_flight
            .last_key_value()
            .map_or(0, |((end, _), _)| *end);
        powered.advance(last);
    }

    #[getter]
    fn now_ns(&self) -> u64 {
        self.lock().now
    }

    /// Number of commands in flight, and of operations that a cut may undo.
    fn pending(&self) -> (usize, usize) {
        let powered = self.lock();
        (
            powered.in_flight.len(),
            powered.device.ftl().media().pending(),
        )
    }

    /// The device file that it was made from.
    fn config(&self) -> String {
        self.lock().device.config().to_toml()
    }

    /// Counters and fill levels, as JSON.
    fn state(&self) -> String {
        let powered = self.lock();
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
    fn place(&self, lpn: u32) -> Option<(u32, u32, u32)> {
        let powered = self.lock();
        let (geometry, ppn) = (
            powered.device.config().geometry,
            powered.device.ftl().place(Lpn(lpn))?,
        );
        Some((geometry.superblock(ppn).0, geometry.offset(ppn), ppn.0))
    }

    /// Erase counts of all blocks.
    fn erase_counts(&self) -> Vec<u32> {
        self.lock().device.ftl().media().erase_counts().to_vec()
    }

    /// Checks all tables for consistency.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.lock().device.ftl().check())
            .map_err(|found| Failed::new_err(found.to_string()))
    }
}

impl Device {
    fn powered(mut device: device::Device, power_cuts: bool) -> Self {
        if power_cuts {
            device.untimed(|ftl| ftl.media_mut().attach_rail());
        }
        Self(Mutex::new(PoweredDevice {
            device,
            now: 0,
            in_flight: BTreeMap::new(),
            submitted: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, PoweredDevice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits one command; returns its times and result.
    fn submit<T>(
        &self,
        wait: bool,
        work: impl FnOnce(&mut device::Device, u64) -> (u64, Result<T, Refusal>),
    ) -> PyResult<(CommandTimes, T)> {
        let mut powered = self.lock();
        let start = powered.now;
        powered
            .device
            .untimed(|ftl| ftl.media_mut().begin_command());
        let (end, result) = work(&mut powered.device, start);
        let ack = powered.device.untimed(|ftl| ftl.media_mut().take_ack());

        let order = powered.submitted;
        powered.submitted += 1;
        powered.in_flight.insert((end, order), ack);
        powered.advance(if wait { end } else { start });
        result
            .map(|value| ((start, end), value))
            .map_err(|refusal| Refused::new_err(refusal.to_string()))
    }
}

impl PoweredDevice {
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

fn ended(completion: device::Completion) -> (u64, Result<(), Refusal>) {
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

fn payload(mode: ContentMode, content: &WriteContent) -> PyResult<Payload<'_>> {
    match (mode, content) {
        (ContentMode::Identity | ContentMode::None, WriteContent::Identity(0)) => Err(
            PyValueError::new_err("the identity of a content is 1 or more"),
        ),
        (ContentMode::Identity | ContentMode::None, WriteContent::Identity(identity)) => {
            Ok(Payload::Identity(*identity))
        }
        (ContentMode::Bytes, WriteContent::Bytes(bytes)) if bytes.len() == PAGE_BYTES => {
            Ok(Payload::Bytes(bytes))
        }
        (ContentMode::Bytes, WriteContent::Bytes(bytes)) => Err(PyValueError::new_err(format!(
            "a page has {PAGE_BYTES} bytes, and not {}",
            bytes.len()
        ))),
        (ContentMode::Bytes, WriteContent::Identity(_)) => Err(PyValueError::new_err(
            "this device stores bytes (content = \"bytes\"): write 4096 bytes a page",
        )),
        (_, WriteContent::Bytes(_)) => Err(PyValueError::new_err(
            "this device stores numbers that stand for contents: write integers, or use content=\"bytes\"",
        )),
    }
}
