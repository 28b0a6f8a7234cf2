//! The contents of a device image, and whether they are consistent.
//!
//! The image is powered on in memory, as in a device, and everything is read back. Invariant: the
//! image is opened read-only. Absent: repair (`Device::repair_folder`), and presentation.

use crate::device::Device;
use crate::open_error::OpenError;
use remap_ssd_ftl::{Ftl, RecoveryReport, Stream, Superblock, SuperblockState, Usage};
use remap_ssd_media::{SbId, image_file};
use serde::Serialize;
use std::path::Path;

/// One superblock.
#[derive(Debug, Serialize)]
pub struct SuperblockRow {
    /// Its number.
    pub id: u32,
    /// `free`, `open`, `closed` or `retired`.
    pub state: &'static str,
    /// The stream that it was opened for; `-` if it is not in use.
    pub stream: &'static str,
    /// Flash pages with an owner.
    pub live: u32,
    /// LPNs whose mapping into it was made by a remap.
    pub remapped: u32,
    /// Flash pages of data that it can hold in its present mode.
    pub capacity: u32,
    /// Erase count of its most erased block.
    pub erases: u32,
    /// Number of its bad blocks.
    pub bad_blocks: u32,
    /// Segments of remapping metadata that it has.
    pub segments: usize,
    /// Entries in the segments.
    pub entries: u32,
    /// Remapped pages covered by the entries.
    pub entry_pages: u64,
    /// Flash pages that the entries refer to.
    pub flash_pages: u32,
}

/// Erase counts of all blocks of the device, including bad ones.
#[derive(Debug, Serialize)]
pub struct Wear {
    /// Erases of a block, on average.
    pub mean: f64,
    /// Of the least erased block.
    pub min: u32,
    /// Of the most erased block.
    pub max: u32,
}

/// All findings about an image.
pub struct Inspection {
    /// The device, powered on in memory.
    pub device: Device,
    /// All superblocks, by number.
    pub superblocks: Vec<SuperblockRow>,
    /// Erase counts.
    pub wear: Wear,
    /// Usage of remapping metadata.
    pub usage: Usage,
    /// What recovery read and found.
    pub recovery: RecoveryReport,
    /// An inconsistency between the firmware's tables; `None` if they agree.
    pub contradiction: Option<String>,
    /// Mapped pages that cannot be read.
    pub unreadable: u64,
}

impl Inspection {
    /// Inspects an image, in a folder or in a file.
    ///
    /// # Errors
    /// It is no image, or is in use, or cannot be powered on.
    pub fn of(image: &Path) -> Result<Self, OpenError> {
        let (mut device, recovery) = if image.is_dir() {
            Device::look_into_folder(image)?
        } else {
            // An image in use changes while it is read.
            let _lock = image_file::lock(image)?;
            Device::load(image)?
        };

        // The tables, then every page: two kinds of damage.
        device.untimed(Ftl::stop_refreshes);
        let contradiction = device.ftl().check().err();
        let contradiction = contradiction.map(|found| found.to_string());
        let unreadable = device.untimed(|ftl| ftl.scrub());

        Ok(Self {
            superblocks: superblocks(&device),
            wear: wear(device.ftl().media().erase_counts()),
            usage: device.ftl().usage(),
            recovery,
            contradiction,
            unreadable,
            device,
        })
    }

    /// Returns true if nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.contradiction.is_none() && self.unreadable == 0
    }
}

/// The superblocks of a device, by number.
pub fn superblocks(device: &Device) -> Vec<SuperblockRow> {
    device
        .ftl()
        .superblocks()
        .map(|(id, sb)| row(device, id, sb))
        .collect()
}

fn row(device: &Device, id: SbId, sb: &Superblock) -> SuperblockRow {
    let media = device.ftl().media();
    let geometry = media.geometry();
    let group = device.ftl().group(id).unwrap_or_default();

    // A free superblock belongs to no stream.
    let in_use = matches!(sb.state, SuperblockState::Open | SuperblockState::Closed);
    let owners = device.ftl().owners(id);

    SuperblockRow {
        id: id.0,
        state: match sb.state {
            SuperblockState::Free => "free",
            SuperblockState::Open => "open",
            SuperblockState::Closed => "closed",
            SuperblockState::Retired => "retired",
        },
        stream: match sb.stream {
            _ if !in_use => "-",
            Stream::Host => "host",
            Stream::Gc => "gc",
            Stream::Log => "log",
            Stream::Table => "table",
            Stream::Slc => "slc",
            Stream::GcShared => "gc-shared",
            Stream::GcMany => "gc-many",
        },
        live: owners.live,
        remapped: owners.remapped,
        capacity: device.ftl().filled_capacity(id),
        erases: (0..geometry.dies())
            .map(|die| media.erase_count(geometry.block(id, die)))
            .max()
            .unwrap_or(0),
        bad_blocks: sb.bad.count_ones(),
        segments: group.segments.len(),
        entries: group.entries,
        entry_pages: group.pages,
        flash_pages: group.flash_pages,
    }
}

fn wear(erases: &[u32]) -> Wear {
    let sum: u64 = erases.iter().map(|count| u64::from(*count)).sum();
    Wear {
        mean: sum as f64 / erases.len().max(1) as f64,
        min: erases.iter().copied().min().unwrap_or(0),
        max: erases.iter().copied().max().unwrap_or(0),
    }
}
