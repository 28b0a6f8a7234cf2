//! One operation on a volume, with its cost in the volume and in the device.
//!
//! Invariant: the counters are read before and after the operation, on one connection. Absent: the
//! operations (`files`, `remap_ssd_store`), and how a disk is opened and closed.

use crate::files::FilesError;
use crate::{Counts, Progress};
use remap_ssd_device::Disk;
use remap_ssd_nvme::tcp::client::Client;
use remap_ssd_store::{
    DefragPlan, FileId, FileSpace, ImageDisk, PageRun, Processes, Statistics, Store, StoreError,
    Volume,
};

/// A volume on any kind of disk.
pub trait Files: Store {
    /// The volume as a store.
    fn as_store(&self) -> &dyn Store;
    /// Messages about repairs made at opening.
    fn notes(&self) -> &[String];
    /// The plan of defragmenting a file, which changes nothing.
    ///
    /// # Errors
    /// A device error.
    fn defrag_plan(&self, file: FileId) -> Result<DefragPlan, StoreError>;
    /// Makes a file contiguous, if that is a gain.
    ///
    /// # Errors
    /// A device error.
    fn defrag(&self, file: FileId, progress: Progress<'_>) -> Result<DefragPlan, StoreError>;
    /// Merges a branch into its parent, and returns the parent's name.
    ///
    /// # Errors
    /// As `Volume::merge`.
    fn merge(&self, name: &str, force: bool) -> Result<String, StoreError>;
    /// Runs of the pages at which two files do not share a page of the device.
    ///
    /// # Errors
    /// As `Volume::differing`.
    fn differing(&self, a: FileId, b: FileId) -> Result<Vec<PageRun>, StoreError>;
    /// The pages of a file, and how many of them no other file shares.
    ///
    /// # Errors
    /// As `Volume::space`.
    fn space(&self, file: FileId) -> Result<FileSpace, StoreError>;
}

impl<D: Disk + Send> Files for Volume<D> {
    fn as_store(&self) -> &dyn Store {
        self
    }
    fn notes(&self) -> &[String] {
        Volume::notes(self)
    }
    fn defrag_plan(&self, file: FileId) -> Result<DefragPlan, StoreError> {
        Volume::defrag_plan(self, file)
    }
    fn defrag(&self, file: FileId, progress: Progress<'_>) -> Result<DefragPlan, StoreError> {
        Volume::defrag(self, file, progress)
    }
    fn merge(&self, name: &str, force: bool) -> Result<String, StoreError> {
        Volume::merge(self, name, force)
    }
    fn differing(&self, a: FileId, b: FileId) -> Result<Vec<PageRun>, StoreError> {
        Volume::differing(self, a, b)
    }
    fn space(&self, file: FileId) -> Result<FileSpace, StoreError> {
        Volume::space(self, file)
    }
}

/// A disk that may have the counters of its device.
pub trait Counting: Disk {
    /// The counters; `None` if it has none.
    fn counts(&mut self) -> Option<Counts>;
}

impl Counting for ImageDisk {
    fn counts(&mut self) -> Option<Counts> {
        Some(Counts::of_device(self.device()))
    }
}

impl Counting for Client {
    fn counts(&mut self) -> Option<Counts> {
        // A device of another vendor has no such log page.
        Some(Counts::of_statistics(&self.statistics().ok()?))
    }
}

/// Costs of an operation on a volume: in this process, and in the device.
#[derive(Debug)]
pub struct VolumeCounts {
    /// Counters of the volume.
    pub volume: Statistics,
    /// Counters of the device, if it has any.
    pub device: Option<Counts>,
}

/// Access of other processes to the volume during the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Allowed: nothing is changed.
    Allowed,
    /// Refused: the operation needs a single point in time.
    Refused,
}

/// Opens the volume of a disk, and calls `work`; returns its result, its cost, and the disk.
///
/// # Errors
/// There is no usable volume, another process has it open, or `work` failed.
pub fn with_volume<D: Counting + Send, R>(
    mut disk: D,
    processes: &Processes,
    others: Others,
    work: impl FnOnce(&dyn Files) -> Result<R, FilesError>,
) -> Result<((R, VolumeCounts), D), FilesError> {
    // Counted before and after, on one connection: the difference is the cost of this operation.
    let before = disk.counts();
    let volume = match others {
        Others::Allowed => Volume::open(disk, processes),
        Others::Refused => Volume::open_alone(disk, processes),
    }?;

    let result = work(&volume)?;

    let statistics = volume.statistics();
    let mut disk = volume.into_disk();
    let device = disk
        .counts()
        .zip(before)
        .map(|(after, before)| after - before);

    let counts = VolumeCounts {
        volume: statistics,
        device,
    };
    Ok(((result, counts), disk))
}
