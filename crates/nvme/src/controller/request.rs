//! Parsing of I/O commands: each is decoded once into a request within bounds, or a status to
//! answer.
//!
//! Invariant: blocks and pages of a parsed request are within its namespace, and so are those of
//! the list in the data of a Dataset Management (`dsm_ranges`). Absent: the ranges of a Copy (`copy`),
//! execution (`execute`).

use super::blocks::{Blocks, Namespace, PAGE_SHIFT};
use super::{COPY_FORMAT_NAMESPACES, TRANSFER_BYTES_MAX, VERIFY_BYTES_MAX};
use crate::spec::command::{
    CopyCdw12, CopyRange, DsmCdw10, DsmCdw11, DsmRange, RemapCdw12, RwCdw12, Sqe,
};
use crate::spec::opcode::io;
use crate::spec::status::Status;
use crate::spec::{NSID_ALL, join};
use remap_ssd_ftl::{FilePage, Remap};
use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::FromBytes;

/// Data transfer of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No data.
    None,
    /// This many bytes from the host.
    FromHost(u32),
    /// This many bytes to the host.
    ToHost(u32),
}

/// An I/O command whose fields have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are the commands' own")]
pub enum IoRequest {
    Flush,
    Read {
        blocks: Blocks,
        fua: bool,
    },
    Write {
        blocks: Blocks,
        fua: bool,
    },
    /// The first parts of a write with FUA, whose last part syncs: they must not stay in the
    /// volatile cache.
    WriteThrough {
        blocks: Blocks,
    },
    Compare {
        blocks: Blocks,
        fua: bool,
    },
    Verify {
        blocks: Blocks,
        fua: bool,
    },
    WriteZeroes {
        blocks: Blocks,
        fua: bool,
    },
    DatasetManagement {
        ranges: u32,
        deallocate: bool,
    },
    Copy {
        target: u64,
        ranges: u32,
        with_namespaces: bool,
        fua: bool,
    },
    /// Its ranges are pages of the device, not of the namespace.
    Remap {
        pages: Remap,
        fua: bool,
    },
    /// The blocks are one whole page.
    FsWrite {
        blocks: Blocks,
        page: FilePage,
        fua: bool,
    },
    FsMap {
        bytes: u32,
        inode: Option<u32>,
        first: u32,
    },
    FsReset,
}

/// A request, with its namespace as it was when the request was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoCommand {
    /// The request.
    pub request: IoRequest,
    /// Number of its namespace; `NSID_ALL` for a flush of all.
    pub nsid: u32,
    /// Version of the namespace: if it has changed since, the command is refused.
    pub version: u32,
    /// log2 of the block size in which the request counts.
    pub lba_shift: u8,
}

/// A remap in terms of blocks.
#[derive(Clone, Copy, Debug)]
pub struct RemapBlocks {
    /// The blocks that get the content of others.
    pub target: Blocks,
    /// First source block; there are as many sources as targets.
    pub source: u64,
    /// True if the sources lose their mappings.
    pub relocate: bool,
    /// True if it must be all or nothing after a power cut.
    pub atomic: bool,
}

/// The first LBA that a command names.
fn first_block(sqe: &Sqe) -> u64 {
    join(sqe.cdw10, sqe.cdw11)
}

impl IoRequest {
    /// Checks a command against its namespace, and against the Copy descriptor formats that the
    /// host has enabled, one bit each.
    ///
    /// # Errors
    /// The status to answer.
    #[inline(always)]
    pub fn parse(sqe: &Sqe, namespace: &Namespace, copy_formats: u16) -> Result<Self, Status> {
        let head = sqe.head();
        // Fused operations are not supported.
        if head.fuse() != 0 {
            return Err(Status::INVALID_FIELD);
        }

        let rw = RwCdw12::from_bits(sqe.cdw12);
        // No protection information: neither checks nor actions.
        let has_prinfo = matches!(
            head.opcode(),
            io::READ | io::WRITE | io::COMPARE | io::VERIFY | io::WRITE_ZEROES
        );
        if has_prinfo && rw.prinfo() != 0 {
            return Err(Status::INVALID_FIELD);
        }

        // Every range is checked against the namespace here, so no later code can leave it.
        let blocks = || namespace.blocks(first_block(sqe), u32::from(rw.nlb_z()) + 1);
        let at_most = |bytes_max: u64| match blocks()? {
            blocks if u64::from(blocks.count) << namespace.lba_shift > bytes_max => {
                Err(Status::INVALID_FIELD)
            }
            blocks => Ok(blocks),
        };
        let transferred = || at_most(TRANSFER_BYTES_MAX.into());

        Ok(match head.opcode() {
            io::FLUSH => Self::Flush,
            io::READ => Self::Read {
                blocks: transferred()?,
                fua: rw.fua(),
            },
            io::WRITE => Self::Write {
                blocks: transferred()?,
                fua: rw.fua(),
            },
            io::COMPARE => Self::Compare {
                blocks: transferred()?,
                fua: rw.fua(),
            },
            io::VERIFY => Self::Verify {
                blocks: at_most(VERIFY_BYTES_MAX)?,
                fua: rw.fua(),
            },
            io::WRITE_ZEROES => Self::WriteZeroes {
                blocks: blocks()?,
                fua: rw.fua(),
            },
            io::DATASET_MANAGEMENT => Self::DatasetManagement {
                ranges: u32::from(DsmCdw10::from_bits(sqe.cdw10).nr_z()) + 1,
                deallocate: DsmCdw11::from_bits(sqe.cdw11).ad(),
            },
            io::COPY => Self::copy(sqe, namespace, copy_formats)?,
            io::REMAP => Self::parse_remap(sqe, namespace)?,
            io::FS_WRITE => Self::fs_write(sqe, namespace, transferred()?)?,
            io::FS_MAP => Self::fs_map(sqe)?,
            io::FS_RESET => Self::FsReset,
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    /// Checks only the command: its source ranges are in its data, and are checked when the data
    /// arrive.
    fn copy(sqe: &Sqe, namespace: &Namespace, formats: u16) -> Result<Self, Status> {
        let copy = CopyCdw12::from_bits(sqe.cdw12);
        let format = copy.format();
        let is_enabled = matches!(format, 0 | COPY_FORMAT_NAMESPACES) && formats >> format & 1 == 1;
        if !is_enabled || copy.prinfor() != 0 || copy.prinfow() != 0 {
            return Err(Status::INVALID_FIELD);
        }

        let target = first_block(sqe);
        // The length of the target depends on the ranges. Its first block can be checked before
        // they arrive.
        namespace.blocks(target, 1)?;
        let (ranges, with_namespaces) =
            (u32::from(copy.nr_z()) + 1, format == COPY_FORMAT_NAMESPACES);
        Ok(Self::Copy {
            target,
            ranges,
            with_namespaces,
            fua: copy.fua(),
        })
    }

    fn parse_remap(sqe: &Sqe, namespace: &Namespace) -> Result<Self, Status> {
        let remap = RemapCdw12::from_bits(sqe.cdw12);
        let blocks = RemapBlocks {
            target: namespace.blocks(first_block(sqe), remap.nlb_z() + 1)?,
            source: join(sqe.cdw14, sqe.cdw15),
            relocate: remap.relocate(),
            atomic: remap.atomic(),
        };
        Self::remap(namespace, &blocks, remap.fua())
    }

    /// A remap of blocks, which must be whole pages at both ends.
    ///
    /// # Errors
    /// LBA Out of Range, or Invalid Field if a page is remapped in part.
    pub fn remap(namespace: &Namespace, blocks: &RemapBlocks, fua: bool) -> Result<Self, Status> {
        let RemapBlocks {
            target,
            source,
            relocate,
            atomic,
        } = *blocks;

        // Blocks first, then pages: a range outside the namespace is out of range even if it is
        // also unaligned.
        namespace.blocks(source, target.count)?;

        let bytes = |blocks: u64| blocks << namespace.lba_shift;
        let pages = |blocks: u64| bytes(blocks).is_multiple_of(PAGE_BYTES as u64);
        if !pages(target.slba) || !pages(source) || !pages(u64::from(target.count)) {
            return Err(Status::INVALID_FIELD);
        }

        let pages = Remap {
            target: namespace.page_of(target.slba),
            source: namespace.page_of(source),
            len: (bytes(target.count.into()) >> PAGE_SHIFT) as u32,
            relocate,
            atomic,
        };
        Ok(Self::Remap { pages, fua })
    }

    /// A file's page is a whole page of the device.
    fn fs_write(sqe: &Sqe, namespace: &Namespace, blocks: Blocks) -> Result<Self, Status> {
        let at = blocks.slba << namespace.lba_shift;
        let bytes = u64::from(blocks.count) << namespace.lba_shift;
        if bytes != PAGE_BYTES as u64 || !at.is_multiple_of(bytes) {
            return Err(Status::INVALID_FIELD);
        }

        Ok(Self::FsWrite {
            blocks,
            page: FilePage {
                inode: sqe.cdw13,
                offset: sqe.cdw14,
            },
            fua: RwCdw12::from_bits(sqe.cdw12).fua(),
        })
    }

    fn fs_map(sqe: &Sqe) -> Result<Self, Status> {
        // Number of dwords, 0's based: the number of bytes may not fit into 32 bits.
        let bytes = (u64::from(sqe.cdw10) + 1) * 4;
        let bytes = u32::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= TRANSFER_BYTES_MAX);
        // Bit 0 selects the list of files instead of one file's pages.
        let inode = (sqe.cdw12 & 1 == 0).then_some(sqe.cdw13);
        Ok(Self::FsMap {
            bytes: bytes.ok_or(Status::INVALID_FIELD)?,
            inode,
            first: sqe.cdw14,
        })
    }

    /// Returns true if everything executed so far must be durable before the acknowledgement. With
    /// `write_through` (the host has switched the volatile cache off) that holds for every change.
    pub(super) fn must_sync(&self, write_through: bool) -> bool {
        match self {
            Self::Flush => true,
            Self::Read { fua, .. } | Self::Compare { fua, .. } | Self::Verify { fua, .. } => *fua,
            Self::Write { fua, .. }
            | Self::WriteZeroes { fua, .. }
            | Self::Copy { fua, .. }
            | Self::Remap { fua, .. }
            | Self::FsWrite { fua, .. } => *fua || write_through,
            Self::DatasetManagement { .. } | Self::FsReset => write_through,
            // The last part of the write syncs.
            Self::WriteThrough { .. } => false,
            Self::FsMap { .. } => false,
        }
    }

    /// Returns true if its changes must be durable when it completes (FUA), and so must not stay in
    /// the volatile cache.
    pub(super) fn is_forced(&self) -> bool {
        match self {
            Self::Write { fua, .. }
            | Self::WriteZeroes { fua, .. }
            | Self::Copy { fua, .. }
            | Self::Remap { fua, .. }
            | Self::FsWrite { fua, .. } => *fua,
            Self::WriteThrough { .. } => true,
            _ => false,
        }
    }

    /// Returns true if the data that it reads must be durable when it completes (FUA).
    pub(super) fn reads_from_medium(&self) -> bool {
        match self {
            Self::Read { fua, .. } | Self::Compare { fua, .. } | Self::Verify { fua, .. } => *fua,
            _ => false,
        }
    }

    /// The direction and amount of data.
    #[inline(always)]
    pub fn transfer(&self, lba_shift: u8) -> Transfer {
        let bytes = |blocks: &Blocks| blocks.count << lba_shift;
        match self {
            Self::Read { blocks, .. } => Transfer::ToHost(bytes(blocks)),
            Self::Write { blocks, .. }
            | Self::WriteThrough { blocks }
            | Self::Compare { blocks, .. }
            | Self::FsWrite { blocks, .. } => Transfer::FromHost(bytes(blocks)),
            Self::FsMap { bytes, .. } => Transfer::ToHost(*bytes),
            Self::DatasetManagement { ranges, .. } => {
                Transfer::FromHost(ranges * size_of::<DsmRange>() as u32)
            }
            Self::Copy { ranges, .. } => Transfer::FromHost(ranges * size_of::<CopyRange>() as u32),
            Self::Flush
            | Self::Verify { .. }
            | Self::WriteZeroes { .. }
            | Self::Remap { .. }
            | Self::FsReset => Transfer::None,
        }
    }
}

impl IoCommand {
    /// A request that was checked against this namespace.
    #[inline(always)]
    pub fn new(request: IoRequest, namespace: &Namespace) -> Self {
        Self {
            request,
            nsid: namespace.nsid,
            version: namespace.version,
            lba_shift: namespace.lba_shift,
        }
    }

    /// A flush of all namespaces. It names no blocks, and needs no existing namespace.
    pub(crate) const FLUSH_ALL: Self = Self {
        request: IoRequest::Flush,
        nsid: NSID_ALL,
        version: 0,
        lba_shift: PAGE_SHIFT,
    };

    /// The direction and amount of its data.
    #[inline(always)]
    pub fn transfer(&self) -> Transfer {
        self.request.transfer(self.lba_shift)
    }

    /// The number of blocks that a write has, and the base-2 logarithm of their size.
    pub(crate) fn written(&self) -> Option<(u32, u8)> {
        match self.request {
            IoRequest::Write { blocks, .. } => Some((blocks.count, self.lba_shift)),
            _ => None,
        }
    }

    /// The part of a write that consists of `len` bytes of its data from `at` on: whole pages,
    /// unless they are its `last` bytes. Parts of a write that is not atomic may be executed as their data arrive.
    pub(crate) fn part(&self, at: u32, len: u32, last: bool) -> Option<Self> {
        let IoRequest::Write { blocks, fua } = self.request else {
            return None;
        };
        let lba_shift = self.lba_shift;

        let first_byte = (blocks.slba << lba_shift) + u64::from(at);
        let last_byte = first_byte + u64::from(len);

        // A part that begins or ends within a block cannot be executed alone: the caller waits for
        // more data.
        let in_blocks = |bytes: u32| {
            bytes
                .is_multiple_of(1 << lba_shift)
                .then_some(bytes >> lba_shift)
        };
        let whole = |byte: u64| byte.is_multiple_of(PAGE_BYTES as u64);

        let (skipped, count) = (in_blocks(at)?, in_blocks(len)?);
        let blocks = Blocks {
            slba: blocks.slba + u64::from(skipped),
            count,
        };

        let part = if fua && !last {
            IoRequest::WriteThrough { blocks }
        } else {
            IoRequest::Write { blocks, fua }
        };

        // A page that came in two parts would be read and written twice, and be neither old nor new
        // in between.
        (whole(first_byte) && (last || whole(last_byte))).then_some(Self {
            request: part,
            ..*self
        })
    }
}

/// The ranges of a Dataset Management, all checked before the first is deallocated.
///
/// # Errors
/// The status to answer.
pub(super) fn dsm_ranges(namespace: &Namespace, data: &[u8]) -> Result<Vec<Blocks>, Status> {
    data.chunks_exact(size_of::<DsmRange>())
        .filter_map(|bytes| DsmRange::read_from_bytes(bytes).ok())
        // A range of no blocks deallocates nothing.
        .filter(|range| range.blocks > 0)
        .map(|range| namespace.blocks(range.slba, range.blocks))
        .collect()
}
