//! I/O commands, parsed once: what they ask for, in bounds, or the status that says why not.

use super::subsystem::Namespace;
use super::{
    COPY_FORMAT_NAMESPACES, COPY_RANGES_MAX, TRANSFER_BYTES_MAX, VERIFY_BYTES_MAX, copy_blocks_max,
    copy_range_blocks_max,
};
use crate::spec::command::{
    CopyCdw12, CopyRange, DsmCdw10, DsmCdw11, DsmRange, RemapCdw12, RwCdw12, Sqe,
};
use crate::spec::join;
use crate::spec::opcode::io;
use crate::spec::status::Status;
use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::FromBytes;

/// Logical blocks of one namespace, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First.
    pub slba: u64,
    /// How many, at least one.
    pub count: u32,
}

/// What data a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// So many bytes from the host.
    FromHost(u32),
    /// So many bytes to the host.
    ToHost(u32),
}

/// A checked I/O command.
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
    /// The first parts of a write with FUA, whose last part syncs: they must not stay in the volatile cache.
    WriteThrough {
        blocks: Blocks,
    },
    Compare {
        blocks: Blocks,
    },
    Verify {
        blocks: Blocks,
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
    Remap {
        target: Blocks,
        source: u64,
        relocate: bool,
        atomic: bool,
        fua: bool,
    },
    FsWrite {
        blocks: Blocks,
        inode: u32,
        page: u32,
        fua: bool,
    },
    FsMap {
        bytes: u32,
        inode: Option<u32>,
        first: u32,
    },
    FsReset,
}

/// The first LBA that a command names.
fn first_block(sqe: &Sqe) -> u64 {
    join(sqe.cdw10, sqe.cdw11)
}

impl IoRequest {
    /// Checks a command against its namespace, and against the Copy descriptor formats that the host has enabled, one
    /// bit each.
    ///
    /// # Errors
    /// The status to answer.
    pub fn parse(sqe: &Sqe, namespace: &Namespace, copy_formats: u16) -> Result<Self, Status> {
        let head = sqe.head();
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
            },
            io::VERIFY => Self::Verify {
                blocks: at_most(VERIFY_BYTES_MAX)?,
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
            io::REMAP => Self::remap(sqe, namespace)?,
            io::FS_WRITE => Self::fs_write(sqe, namespace, transferred()?)?,
            io::FS_MAP => Self::fs_map(sqe)?,
            io::FS_RESET => Self::FsReset,
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    /// Checks the command only: its source ranges are in its data, and are checked when the data have come.
    fn copy(sqe: &Sqe, namespace: &Namespace, formats: u16) -> Result<Self, Status> {
        let copy = CopyCdw12::from_bits(sqe.cdw12);
        let format = copy.format();
        let is_enabled = matches!(format, 0 | COPY_FORMAT_NAMESPACES) && formats >> format & 1 == 1;
        if !is_enabled || copy.prinfor() != 0 || copy.prinfow() != 0 {
            return Err(Status::INVALID_FIELD);
        }

        let target = first_block(sqe);
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

    fn remap(sqe: &Sqe, namespace: &Namespace) -> Result<Self, Status> {
        let remap = RemapCdw12::from_bits(sqe.cdw12);
        let target = namespace.blocks(first_block(sqe), remap.nlb_z() + 1)?;
        let source = join(sqe.cdw14, sqe.cdw15);
        namespace.blocks(source, target.count)?;

        let (relocate, atomic) = (remap.relocate(), remap.atomic());
        Ok(Self::Remap {
            target,
            source,
            relocate,
            atomic,
            fua: remap.fua(),
        })
    }

    /// A file's page is a whole page of the device.
    fn fs_write(sqe: &Sqe, namespace: &Namespace, blocks: Blocks) -> Result<Self, Status> {
        let (at, bytes) = (
            blocks.slba << namespace.lba_shift,
            u64::from(blocks.count) << namespace.lba_shift,
        );
        if bytes != PAGE_BYTES as u64 || !at.is_multiple_of(bytes) {
            return Err(Status::INVALID_FIELD);
        }
        let fua = RwCdw12::from_bits(sqe.cdw12).fua();
        Ok(Self::FsWrite {
            blocks,
            inode: sqe.cdw13,
            page: sqe.cdw14,
            fua,
        })
    }

    fn fs_map(sqe: &Sqe) -> Result<Self, Status> {
        let bytes = (u64::from(sqe.cdw10) + 1) * 4;
        let bytes = u32::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= TRANSFER_BYTES_MAX);
        let inode = (sqe.cdw12 & 1 == 0).then_some(sqe.cdw13);
        Ok(Self::FsMap {
            bytes: bytes.ok_or(Status::INVALID_FIELD)?,
            inode,
            first: sqe.cdw14,
        })
    }

    /// The part of a write that `len` bytes of its data from `at` on are: whole pages, unless they are its `last` bytes.
    /// Parts may be executed as their data arrive, since no write is atomic beyond a page.
    pub fn part(&self, at: u32, len: u32, last: bool, lba_shift: u8) -> Option<Self> {
        let Self::Write { blocks, fua } = *self else {
            return None;
        };

        let first_byte = (blocks.slba << lba_shift) + u64::from(at);
        let last_byte = first_byte + u64::from(len);

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
            Self::WriteThrough { blocks }
        } else {
            Self::Write { blocks, fua }
        };

        (whole(first_byte) && (last || whole(last_byte))).then_some(part)
    }

    /// Must what it changes be durable when it completes (FUA)?
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

    /// The data it moves.
    pub fn transfer(&self, lba_shift: u8) -> Transfer {
        let bytes = |blocks: &Blocks| blocks.count << lba_shift;
        match self {
            Self::Read { blocks, .. } => Transfer::ToHost(bytes(blocks)),
            Self::Write { blocks, .. }
            | Self::WriteThrough { blocks }
            | Self::Compare { blocks }
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

/// Ranges of Dataset Management.
pub fn dsm_ranges(data: &[u8]) -> impl Iterator<Item = DsmRange> + '_ {
    data.chunks_exact(size_of::<DsmRange>())
        .filter_map(|bytes| DsmRange::read_from_bytes(bytes).ok())
}

/// Source ranges of Copy, within the limits that Identify states.
///
/// # Errors
/// The status to answer.
pub fn copy_ranges(data: &[u8], lba_shift: u8) -> Result<Vec<CopyRange>, Status> {
    let ranges: Vec<CopyRange> = data
        .chunks_exact(size_of::<CopyRange>())
        .filter_map(|bytes| CopyRange::read_from_bytes(bytes).ok())
        .collect();
    let total: u64 = ranges.iter().map(|range| u64::from(range.nlb_z) + 1).sum();
    let longest = u32::from(copy_range_blocks_max(lba_shift));
    let too_long = ranges
        .iter()
        .any(|range| u32::from(range.nlb_z) + 1 > longest);
    if ranges.len() as u32 > COPY_RANGES_MAX
        || total > u64::from(copy_blocks_max(lba_shift))
        || too_long
    {
        return Err(Status::SIZE_LIMIT);
    }
    Ok(ranges)
}
