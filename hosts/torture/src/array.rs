//! A disk of blocks, addressed by bytes: the backend of the served file.
//!
//! Invariant: a range that is not aligned to blocks is read, modified and written as whole blocks,
//! atomically with respect to other requests. Absent: the file (`served`), and recording of
//! requests.

use crate::error::TortureError;
use std::borrow::Cow;
use std::io;
use std::ops::Range;

/// Size of a disk and of its blocks. After a power cut each block is old or new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DiskGeometry {
    /// Bytes of a block: 512, or a power of two from 4,096 to 65,536.
    pub block_bytes: u32,
    /// Number of blocks of the disk.
    pub blocks: u64,
}

impl DiskGeometry {
    /// A disk of whole pages of a device; without a size, one that the file system has room on.
    ///
    /// # Errors
    /// The size or the block is out of its range.
    pub fn of(size: Option<u64>, block_bytes: u32, fs: Option<&str>) -> Result<Self, TortureError> {
        const SIZE_MAX: u64 = 64 << 30;
        const SIZE_MIN: u64 = 1 << 20;

        if !Self::is_block(block_bytes) {
            return Err(TortureError::Block(block_bytes));
        }

        // XFS has a larger minimum size.
        let default = if fs == Some("xfs") {
            512 << 20
        } else {
            256 << 20
        };
        let size = size.unwrap_or(default);
        // Whole pages of a device, and whole blocks.
        let unit = u64::from(block_bytes.max(4096));
        let bytes = size / unit * unit;
        if !(SIZE_MIN..=SIZE_MAX).contains(&bytes) {
            return Err(TortureError::Size(size));
        }
        Ok(Self {
            block_bytes,
            blocks: bytes / u64::from(block_bytes),
        })
    }

    /// Returns true for a block size that Linux has.
    pub(crate) fn is_block(bytes: u32) -> bool {
        bytes == 512 || (bytes.is_power_of_two() && (4096..=65536).contains(&bytes))
    }

    /// The number of blocks of an atomic write unit.
    ///
    /// # Errors
    /// It is not a number of whole blocks.
    pub fn atomic_blocks(&self, bytes: u64) -> Result<u64, TortureError> {
        let block = self.block_bytes;
        match bytes / u64::from(block) {
            blocks if blocks > 0 && blocks * u64::from(block) == bytes => Ok(blocks),
            _ => Err(TortureError::AtomicWrites { bytes, block }),
        }
    }

    /// Requires blocks that a device of pages of 4 KiB has.
    ///
    /// # Errors
    /// They are larger.
    pub(crate) fn require_device_blocks(&self, what: &str) -> Result<(), TortureError> {
        if self.block_bytes > 4096 {
            return Err(TortureError::missing(format!(
                "{what} has blocks of 512 or 4096 bytes: choose one with --block, or --atomic-writes"
            )));
        }
        Ok(())
    }

    /// Size of the disk, and of the served file, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }

    /// The blocks that a range of bytes touches: index of the first one, their number, and the
    /// number of bytes that precede the range in them.
    pub(crate) fn cover(&self, offset: u64, len: u64) -> (u64, u64, usize) {
        let block = u64::from(self.block_bytes);
        let first = offset / block;
        (
            first,
            (offset + len).div_ceil(block) - first,
            (offset % block) as usize,
        )
    }

    /// Splits a range into the partial blocks at its ends, in bytes, and the whole blocks between
    /// them.
    pub(crate) fn split(&self, offset: u64, len: u64) -> (Vec<Range<u64>>, Range<u64>) {
        let block = u64::from(self.block_bytes);
        let (start, end) = (
            offset.next_multiple_of(block),
            (offset + len) / block * block,
        );

        // A range within one block has only a part.
        let (parts, blocks) = if start < end {
            (
                [offset..start, end..offset + len],
                start / block..end / block,
            )
        } else {
            ([offset..offset + len, 0..0], 0..0)
        };
        (
            parts.into_iter().filter(|part| !part.is_empty()).collect(),
            blocks,
        )
    }

    /// Returns the blocks to write for `data` at `offset`: the data itself, or the surrounding
    /// blocks with the data merged in.
    pub(crate) fn whole<'a>(
        &self,
        offset: u64,
        data: &'a [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<(u64, Cow<'a, [u8]>)> {
        let (first, count, before) = self.cover(offset, data.len() as u64);
        let block = self.block_bytes as usize;
        let bytes = count as usize * block;

        // Aligned data need no copy.
        if before == 0 && bytes == data.len() {
            return Ok((first, Cow::Borrowed(data)));
        }

        let mut whole = vec![0; bytes];
        // Only the blocks at the ends have bytes to preserve.
        read(first, &mut whole[..block])?;
        if count > 1 {
            read(first + count - 1, &mut whole[bytes - block..])?;
        }
        whole[before..before + data.len()].copy_from_slice(data);
        Ok((first, Cow::Owned(whole)))
    }
}

/// A disk of blocks. Ranges must lie within it.
pub(crate) trait Array: Send + Sync {
    /// Block size and number of blocks.
    fn shape(&self) -> DiskGeometry;

    /// Reads the newest data.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes; `through`: durably (FUA).
    ///
    /// # Errors
    /// The system's.
    fn write(&self, offset: u64, data: &[u8], through: bool) -> io::Result<()>;

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// The system's.
    fn zero(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes all completed requests durable.
    ///
    /// # Errors
    /// The system's.
    fn flush(&self) -> io::Result<()>;
}
