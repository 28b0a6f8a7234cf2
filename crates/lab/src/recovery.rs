//! Recovery: data read from a device that lost power, and the time this takes; measured, and by a
//! model.
//!
//! The model counts the reads of recovery on an aged device: a head page of every superblock, the
//! tail pages of those in use, the OOB areas of two that are open (half full each), and all of the
//! NVRAM or of a log on flash. Devices that were really recovered show its accuracy; then it
//! extends to sizes at which no device fits into memory. Invariants: pages are read from all dies
//! in parallel, NVRAM by one port; the model and the measurement convert counts to time by the same
//! function. Absent: rebuilding the tables in DRAM, whose processor time no paper gives.

use crate::RunError;
use crate::grid::GridRun;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::Medium;
use serde::Serialize;
use serde_json::{Value, json};

/// Flash and NVRAM reads of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reads {
    /// Flash pages, and OOB areas, which take as long.
    pub flash_pages: f64,
    /// Bytes of NVRAM, read by one port in lines of 64.
    pub nvram_bytes: f64,
}

impl Reads {
    /// Duration of these reads on a device.
    pub(crate) fn seconds(&self, device: &DeviceConfig) -> f64 {
        let flash_ns = self.flash_pages / f64::from(device.geometry.dies_total())
            * device.flash.read_ns.mean() as f64;
        let nvram_ns = self.nvram_bytes / 64.0 * device.nvram.read_ns as f64;
        (flash_ns + nvram_ns) / 1e9
    }

    /// Bytes, with each OOB area counted as a whole page.
    pub(crate) fn bytes(&self) -> f64 {
        self.flash_pages * 4096.0 + self.nvram_bytes
    }
}

/// Predicts the reads of recovery on an aged device.
pub(crate) fn model(device: &DeviceConfig) -> Reads {
    let (firmware, geometry) = (&device.firmware, &device.geometry);

    let superblocks = f64::from(geometry.superblocks());
    let used = superblocks * (1.0 - firmware.gc_free);
    let tails = used * f64::from(firmware.tail_pages(geometry));

    // Two superblocks are open, one for the host and one for collection, each half full on average.
    let open = f64::from(geometry.pages_per_superblock());
    let log = firmware.log_bytes as f64;

    let (log_pages, nvram_bytes) = match firmware.scheme.facts().medium {
        // Pages of entries; the model assumes that they are full.
        Medium::Flash => (log / 4096.0, 0.0),
        Medium::Nowhere => (0.0, 0.0),
        // P2L; L2P is not read.
        Medium::Tables => (0.0, firmware.nvram_words(geometry) as f64 * 8.0),
        Medium::Nvram => (0.0, log),
    };

    Reads {
        flash_pages: superblocks + tails + open + log_pages,
        nvram_bytes,
    }
}

/// Powers an aged device off and recovers it.
///
/// # Errors
/// Recovery fails.
pub(crate) fn recovered(run: &GridRun, device: Device) -> Result<Value, RunError> {
    let usage = device.ftl().usage();
    // A table has one word of 8 bytes per page; a log's entry has as many as its kind.
    let entry = if usage.p2l_bytes > 0 {
        8
    } else {
        8 * run.device.firmware.entry.words() as u64
    };

    let unit = run.device.geometry.page_bytes() as u64;

    let media = device.into_media();
    let (device, report) = Device::recover(media, run.device.clone())?;
    device.ftl().check()?;

    let pages = report.head_pages
        + report.tail_pages
        + report.oob_pages
        + report.bitmap_pages
        + report.translation_pages
        + report.log_pages;

    let reads = Reads {
        flash_pages: pages as f64,
        nvram_bytes: report.nvram_bytes as f64,
    };

    let model = model(&run.device);

    Ok(json!({
        "report": report,
        "flash_pages": reads.flash_pages,
        "seconds": reads.seconds(&run.device),
        "bytes": reads.bytes(),
        "model_seconds": model.seconds(&run.device),
        "model_bytes": model.bytes(),
        "remapped_bytes": usage.valid_bytes / entry * unit,
        "logical_bytes": u64::from(run.device.firmware.lpns) * unit,
    }))
}
