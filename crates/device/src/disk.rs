//! A disk with remap, as host software sees it: whole pages, wherever the device is.
//!
//! Host software (a database's file layer, a deduplicating store, a log-structured file system) is
//! written once against [`Disk`] and runs on a device in this process ([`LocalDisk`]), on one in a
//! folder, or on one on the network. Invariant: an operation has taken effect when it returns;
//! written data survives the end of the process at any instant (unless the device has a volatile write buffer), and a crash of
//! the machine once `flush` has returned. Absent: time, queues, other hosts.

use crate::device::Device;
use remap_ssd_ftl::{FilePage, FileStatus, Lpn, Refusal, Remap};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{PageView, Payload};
use std::error::Error;
use std::io;
use std::ops::Range;

/// A remap of whole pages: `target` gets the contents of `source`, as if all sources were read
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRemap {
    /// First page that gets new contents.
    pub target: u64,
    /// First page whose contents the targets get.
    pub source: u64,
    /// Number of pages.
    pub pages: u32,
    /// The sources lose their pages and read as zeroes, except those that are also targets.
    pub relocate: bool,
    /// After a power failure all pages are remapped, or none.
    pub atomic: bool,
}

/// Whole pages to be written at one place of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskWrite<'a> {
    /// First page of the range.
    pub page: u64,
    /// The data, from that page on.
    pub data: &'a [u8],
}

/// A page of a file, as listed in the device's file map.
///
/// ```
/// use remap_ssd_device::{Device, DeviceConfig, Disk, FilePage, FileStatus, LocalDisk, SchemeKind};
/// let mut config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
/// (config.firmware.fs_files, config.firmware.fs_blocks) = (8, 100);
/// let mut disk = LocalDisk::new(Device::in_memory(config)?);
///
/// // Page 5 of the disk is page 0 of the file 12; after a crash, the list says so.
/// let status = disk.fs_write(5, &[1; 4096], FilePage { inode: 12, offset: 0 })?;
/// assert_eq!(status, FileStatus::Recorded);
/// assert_eq!(disk.fs_files()?, [12]);
/// assert_eq!(disk.fs_list(12)?[0].page, 5);
///
/// disk.fs_reset()?; // after a checkpoint of the host
/// assert!(disk.fs_files()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFileBlock {
    /// Page offset within the file.
    pub offset: u32,
    /// Page of the disk that was written for it.
    pub page: u64,
}

/// Error of a list of remaps.
#[derive(Debug, thiserror::Error)]
#[error("remap {index} of the list: {error}")]
pub struct RemapAllError<E> {
    /// Index of the first remap known to have failed. Any of the others may have been executed.
    pub index: usize,
    /// The reason.
    pub error: E,
}

/// Error of a file map operation.
#[derive(Debug, thiserror::Error)]
pub enum FileMapError<E> {
    /// The disk has no file map: it does not support the commands, or was created without room for
    /// a map.
    #[error("this disk has no file map")]
    Unsupported,
    /// An error of the disk.
    #[error(transparent)]
    Disk(E),
}

/// Error of holding a disk.
#[derive(Debug, thiserror::Error)]
pub enum HoldError<E> {
    /// Another holder has the disk, or this one has lost it; the sentence says which.
    #[error("{0}")]
    Held(String),
    /// The disk cannot exclude others; the sentence says why.
    #[error("{0}")]
    Unsupported(String),
    /// An error of the disk.
    #[error(transparent)]
    Disk(E),
}

/// Error of asking which pages share a flash page.
#[derive(Debug, thiserror::Error)]
pub enum SharingError<E> {
    /// The disk cannot say; the sentence says why.
    #[error("{0}")]
    Unsupported(&'static str),
    /// An error of the disk.
    #[error(transparent)]
    Disk(E),
}

/// Identifier of a holder: random, and used once.
pub type HolderId = [u8; 16];

const SHARING_UNKNOWN: &str = "this disk cannot say which of its pages share a flash page: ask where the device is, with --image";

/// Pages of 4,096 bytes that can be read, written, trimmed and remapped.
///
/// ```
/// use remap_ssd_device::{Device, DeviceConfig, Disk, LocalDisk, SchemeKind};
/// let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
/// let mut disk = LocalDisk::new(Device::in_memory(config)?);
///
/// // A disk behind a network keeps all other holders out meanwhile; this one has no others.
/// let holder = disk.take_holder().unwrap_or([7; 16]);
/// assert_eq!(disk.hold(holder, &[])?, None);
/// disk.join_hold(holder)?; // another connection of the same holder
/// disk.still_held()?;
/// disk.write(5, &[1; 4096])?;
/// disk.let_go()?;
///
/// disk.close_inherited(); // in a child of `fork`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Disk {
    /// Error of an operation.
    type Error: Error + Send + Sync + 'static;

    /// Size of the disk in pages.
    fn pages(&self) -> u64;

    /// A globally unique identifier of the disk; a copy of the disk has its own (NGUID, NVMe 2.0
    /// §4.5.1.2). `None` if only this process can use the disk.
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    /// The holder for which the connection to the disk was made, if its identifier is still unused.
    /// Holding the disk as a different holder takes a new connection. Returned once.
    fn take_holder(&mut self) -> Option<HolderId> {
        None
    }

    /// Excludes all other holders from reading and writing the disk, until `let_go`. The disk
    /// enforces it across broken connections and restarts of the server. `ended`: holders with no
    /// living process, as the caller knows. Returns the one of them that had the disk until now, if
    /// any: then no other holder can have changed it. A disk that only this process can use has no
    /// others to exclude.
    ///
    /// # Errors
    /// Another holder has the disk and is connected, or the disk cannot exclude others.
    fn hold(
        &mut self,
        _holder: HolderId,
        ended: &[HolderId],
    ) -> Result<Option<HolderId>, HoldError<Self::Error>> {
        Ok(ended.last().copied())
    }

    /// Uses the disk as one of several connections of its holder. It never acquires the disk: a
    /// holder that has lost it cannot regain it.
    ///
    /// # Errors
    /// This holder does not have the disk.
    fn join_hold(&mut self, _holder: HolderId) -> Result<(), HoldError<Self::Error>> {
        Ok(())
    }

    /// Releases the disk. All connections of the holder lose it.
    ///
    /// # Errors
    /// The connection to the disk; the disk is still held then.
    fn let_go(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Checks that this holder still has the disk: if the connection broke, the disk is queried,
    /// since it may have been lost unnoticed. To be called before relying on data read earlier.
    ///
    /// # Errors
    /// Another holder has the disk now, or it cannot be reached.
    fn still_held(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Called in a child of `fork`, which must not use its parent's disk: closes the child's
    /// descriptors. The parent is not affected.
    fn close_inherited(&mut self) {}

    /// Reads whole pages from `page` on into a buffer. Pages never written, or trimmed, read as
    /// zeroes.
    ///
    /// # Errors
    /// The range, the medium, or the connection.
    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes whole pages from `page` on.
    ///
    /// # Errors
    /// The range, a worn-out device, or the connection.
    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error>;

    /// Writes at many places, with the same result as the writes in order. A remote disk keeps many
    /// in flight at once, so a list costs a few round trips instead of one per write.
    ///
    /// # Errors
    /// As `write`. After a failure any of the writes may have been executed.
    fn write_all(&mut self, writes: &[DiskWrite<'_>]) -> Result<(), Self::Error> {
        writes
            .iter()
            .try_for_each(|write| self.write(write.page, write.data))
    }

    /// Deallocates pages: they read as zeroes from then on.
    ///
    /// # Errors
    /// As `write`.
    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error>;

    /// Makes everything done so far survive a crash of the machine that holds the disk.
    ///
    /// # Errors
    /// The data could not be made durable, or the connection.
    fn flush(&mut self) -> Result<(), Self::Error>;

    /// Maps pages to the contents of other pages, without programming them again.
    ///
    /// # Errors
    /// As `write`; an atomic remap may also be too large, or unsupported on this disk.
    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error>;

    /// Executes many remaps, with the same result as in order. A remote disk keeps many in flight
    /// at once, so a list costs a few round trips instead of one per remap.
    ///
    /// # Errors
    /// As `remap`, with the index. After a failure any of the others may have been executed.
    fn remap_all(&mut self, remaps: &[DiskRemap]) -> Result<(), RemapAllError<Self::Error>> {
        let mut remaps = remaps.iter().enumerate();
        remaps.try_for_each(|(index, remap)| {
            self.remap(remap)
                .map_err(|error| RemapAllError { index, error })
        })
    }

    /// Runs of the offsets, in order, at which two ranges of `pages` pages do not share a flash page.
    /// Nothing is read. Pages of one content on two flash pages differ; so does a page that is in
    /// the device's write buffer.
    ///
    /// # Errors
    /// As `read`, or the disk cannot say.
    fn differing(
        &mut self,
        _a: u64,
        _b: u64,
        _pages: u64,
    ) -> Result<Vec<Range<u64>>, SharingError<Self::Error>> {
        Err(SharingError::Unsupported(SHARING_UNKNOWN))
    }

    /// Number of pages of a range that have a flash page which no other page of the device shares.
    ///
    /// # Errors
    /// As `read`, or the disk cannot say.
    fn pages_alone(&mut self, _page: u64, _pages: u64) -> Result<u64, SharingError<Self::Error>> {
        Err(SharingError::Unsupported(SHARING_UNKNOWN))
    }

    /// Writes one page and lists it as page `offset` of the file `inode` in the device's file map.
    /// The page is written even if the map is full; the status shows whether it is listed.
    ///
    /// # Errors
    /// As `write`, or there is no file map.
    fn fs_write(
        &mut self,
        _page: u64,
        _data: &[u8; PAGE_BYTES],
        _file: FilePage,
    ) -> Result<FileStatus, FileMapError<Self::Error>> {
        Err(FileMapError::Unsupported)
    }

    /// The pages that the file map lists for a file, in the order of their writes.
    ///
    /// # Errors
    /// As `read`, or there is no file map.
    fn fs_list(&mut self, _inode: u32) -> Result<Vec<DiskFileBlock>, FileMapError<Self::Error>> {
        Err(FileMapError::Unsupported)
    }

    /// The files with pages in the file map, by inode number.
    ///
    /// # Errors
    /// As `read`, or there is no file map.
    fn fs_files(&mut self) -> Result<Vec<u32>, FileMapError<Self::Error>> {
        Err(FileMapError::Unsupported)
    }

    /// Empties the file map. The pages keep their contents.
    ///
    /// # Errors
    /// As `write`, or there is no file map.
    fn fs_reset(&mut self) -> Result<(), FileMapError<Self::Error>> {
        Err(FileMapError::Unsupported)
    }
}

/// A device in this process as a disk. No time is modelled.
///
/// ```
/// use remap_ssd_device::{Device, DeviceConfig, Disk, DiskRemap, DiskWrite, LocalDisk, SchemeKind};
/// let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
/// let mut disk = LocalDisk::new(Device::in_memory(config)?);
/// assert_eq!(disk.pages() * 4096, 64 << 20);
/// assert_eq!(disk.identity(), None); // no other process can have it
///
/// let (a, b) = ([1; 4096], [2; 4096]);
/// disk.write(0, &a)?;
/// disk.write_all(&[DiskWrite { page: 1, data: &b }, DiskWrite { page: 2, data: &a }])?;
///
/// // Two pages get what pages 0 and 1 hold; nothing is programmed for that.
/// let copy = DiskRemap { target: 8, source: 0, pages: 2, relocate: false, atomic: true };
/// disk.remap(&copy)?;
/// disk.remap_all(&[DiskRemap { target: 16, ..copy }, DiskRemap { target: 32, ..copy }])?;
/// disk.flush()?;
///
/// let mut page = [0; 4096];
/// disk.read(9, &mut page)?;
/// assert_eq!(page, b);
/// disk.trim(9, 1)?;
/// disk.read(9, &mut page)?;
/// assert_eq!(page, [0; 4096]);
///
/// // Which pages share is known without reading them: 8 shares with 0, and 9 lost what it had of 1.
/// assert_eq!(disk.differing(0, 8, 2)?, [1..2]);
/// assert_eq!(disk.pages_alone(0, 3)?, 1); // page 2
///
/// let stats = disk.device().ftl().stats();
/// assert_eq!((stats.host_programs, stats.remaps), (3, 6));
/// let device = disk.into_device();
/// # assert!(device.ftl().check().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalDisk(Device);

/// Error of a disk in this process.
#[derive(Debug, thiserror::Error)]
pub enum LocalDiskError {
    /// The firmware refused the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The system could not sync the folder.
    #[error("the folder could not be written out: {0}")]
    Sync(#[from] io::Error),
    /// The buffer is not a multiple of the page size.
    #[error("{0} bytes are not whole pages of {PAGE_BYTES}")]
    NotWholePages(usize),
    /// The device stores no bytes: it is for simulation only.
    #[error("this device keeps no contents")]
    NoContents,
}

impl LocalDisk {
    /// Wraps a device that stores real bytes: `Device::in_memory`, or one in a folder.
    pub fn new(mut device: Device) -> Self {
        // Such a disk has no time, so nothing is charged.
        device.keep_time(false);
        Self(device)
    }

    /// The device, for instance for its statistics.
    pub fn device(&self) -> &Device {
        &self.0
    }

    /// Returns the device, for instance to close it.
    pub fn into_device(self) -> Device {
        self.0
    }

    /// A range of pages as LPNs.
    fn range(&self, page: u64, pages: u64) -> Result<(Lpn, u32), Refusal> {
        match page.checked_add(pages) {
            Some(end) if end <= self.pages() => Ok((Lpn(page as u32), pages as u32)),
            _ => Err(Refusal::OutOfRange),
        }
    }

    /// A range of pages that are mapped one by one.
    fn mapped_range(
        &self,
        page: u64,
        pages: u64,
    ) -> Result<(Lpn, u32), SharingError<LocalDiskError>> {
        if self.0.config().geometry.host_pages() > 1 {
            return Err(SharingError::Unsupported(
                "this device maps units larger than a page, so single pages do not share",
            ));
        }
        self.range(page, pages).map_err(sharing)
    }

    fn range_of(&self, page: u64, bytes: usize) -> Result<Lpn, LocalDiskError> {
        if !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(LocalDiskError::NotWholePages(bytes));
        }
        Ok(self.range(page, (bytes / PAGE_BYTES) as u64)?.0)
    }
}

impl Disk for LocalDisk {
    type Error = LocalDiskError;

    fn pages(&self) -> u64 {
        self.0.config().logical_pages()
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), LocalDiskError> {
        let first = self.range_of(page, into.len())?;

        for (at, into) in (0..).zip(into.as_chunks_mut::<PAGE_BYTES>().0) {
            let (_, seen) = self.0.view(0, first.offset(at), |view| match view {
                PageView::Zeroes => {
                    into.fill(0);
                    true
                }
                PageView::Bytes(bytes) => {
                    into.copy_from_slice(bytes);
                    true
                }
                PageView::Unknown | PageView::Identity(_) => false,
            });

            if !seen? {
                return Err(LocalDiskError::NoContents);
            }
        }

        Ok(())
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), LocalDiskError> {
        let first = self.range_of(page, data.len())?;
        let pages = data.as_chunks::<PAGE_BYTES>().0;

        // A power cut leaves as many pages whole or absent as the device can.
        let most = self.0.untorn_bytes_max(PAGE_BYTES as u64) as usize / PAGE_BYTES;
        let is_untorn = (2..=most).contains(&pages.len());
        if is_untorn {
            self.0.begin_write(first.into(), pages.len() as u32)?;
        }

        if self.0.config().geometry.host_pages() == 1 && !is_untorn {
            return (0..).zip(pages).try_for_each(|(at, bytes)| {
                let payload = Payload::Bytes(bytes);
                Ok(self.0.write(0, first.offset(at), &payload).result?)
            });
        }

        // Pages of one indirection unit are programmed together, as are those of an untorn write.
        let written = (0..).zip(pages).try_for_each(|(at, bytes)| {
            let payload = Payload::Bytes(bytes);
            self.0.write_more(0, first.offset(at), &payload).result
        });
        Ok(written.and(self.0.end_write(0).result)?)
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), LocalDiskError> {
        let (first, len) = self.range(page, pages)?;
        Ok(self.0.zero(0, first, len).result?)
    }

    fn flush(&mut self) -> Result<(), LocalDiskError> {
        // First the device's own commands, then the files: an earlier sync would miss the stores of
        // the flush.
        self.0.flush(0).result?;
        Ok(self.0.sync()?)
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), LocalDiskError> {
        let DiskRemap {
            relocate, atomic, ..
        } = *remap;

        let (target, len) = self.range(remap.target, remap.pages.into())?;
        let (source, _) = self.range(remap.source, remap.pages.into())?;

        Ok(self
            .0
            .remap(
                0,
                &Remap {
                    target,
                    source,
                    len,
                    relocate,
                    atomic,
                },
            )
            .result?)
    }

    fn differing(
        &mut self,
        a: u64,
        b: u64,
        pages: u64,
    ) -> Result<Vec<Range<u64>>, SharingError<LocalDiskError>> {
        let (a, len) = self.mapped_range(a, pages)?;
        let (b, _) = self.mapped_range(b, pages)?;
        let runs = self.0.ftl().differing(a, b, len).map_err(sharing)?;
        let wide = |run: &Range<u32>| run.start.into()..run.end.into();
        Ok(runs.iter().map(wide).collect())
    }

    fn pages_alone(&mut self, page: u64, pages: u64) -> Result<u64, SharingError<LocalDiskError>> {
        let (first, len) = self.mapped_range(page, pages)?;
        Ok(self
            .0
            .ftl()
            .pages_alone(first, len)
            .map_err(sharing)?
            .into())
    }

    fn fs_write(
        &mut self,
        page: u64,
        data: &[u8; PAGE_BYTES],
        file: FilePage,
    ) -> Result<FileStatus, FileMapError<LocalDiskError>> {
        let (lpn, _) = self.range(page, 1).map_err(file_map)?;
        self.0
            .fs_write(0, lpn, &Payload::Bytes(data), file)
            .result
            .map_err(file_map)
    }

    fn fs_list(&mut self, inode: u32) -> Result<Vec<DiskFileBlock>, FileMapError<LocalDiskError>> {
        let blocks = self.0.fs_map(0, inode).1.map_err(file_map)?;
        Ok(blocks
            .iter()
            .map(|block| DiskFileBlock {
                offset: block.offset,
                page: block.lpn.into(),
            })
            .collect())
    }

    fn fs_files(&mut self) -> Result<Vec<u32>, FileMapError<LocalDiskError>> {
        self.0.fs_files(0).1.map_err(file_map)
    }

    fn fs_reset(&mut self) -> Result<(), FileMapError<LocalDiskError>> {
        self.0.fs_reset(0).result.map_err(file_map)
    }
}

fn sharing(refusal: Refusal) -> SharingError<LocalDiskError> {
    SharingError::Disk(refusal.into())
}

fn file_map(refusal: Refusal) -> FileMapError<LocalDiskError> {
    match refusal {
        Refusal::NoFileMap => FileMapError::Unsupported,
        other => FileMapError::Disk(other.into()),
    }
}
