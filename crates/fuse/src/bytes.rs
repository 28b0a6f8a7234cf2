//! Interface of a file: an array of bytes of fixed size.
//!
//! Invariant: an answer includes its completion time, in the common clock of the device's services,
//! if there is one. Absent: the kernel, and the implementations: a namespace (`disk`), or a disk of
//! host software (`pages`).

use crate::disk::{Disk, DiskError};

/// An array of bytes that is presented as a file.
pub trait Bytes: Send + Sync + 'static {
    /// Name of the file in the folder; unique there.
    fn name(&self) -> String;

    /// Size of the file in bytes.
    fn bytes(&self) -> u64;

    /// Reads the part of the range that exists; also returns the completion time.
    ///
    /// # Errors
    /// The read failed.
    fn read(&self, offset: u64, len: u32) -> Result<(Vec<u8>, u64), DiskError>;

    /// Writes the part of the range that exists; returns the number of bytes and the completion
    /// time. `through`: durably.
    ///
    /// # Errors
    /// No part of the range exists, or the write failed.
    fn write(&self, offset: u64, data: &[u8], through: bool) -> Result<(u32, u64), DiskError>;

    /// Zeroes the part of the range that exists; returns the completion time.
    ///
    /// # Errors
    /// It failed.
    fn zero(&self, offset: u64, len: u64) -> Result<u64, DiskError>;

    /// Makes everything durable; returns the completion time.
    ///
    /// # Errors
    /// It failed.
    fn flush(&self) -> Result<u64, DiskError>;

    /// Copies whole blocks by remapping; returns the number of bytes, which may be fewer than
    /// requested, and the completion time.
    ///
    /// # Errors
    /// The range is invalid, or the copy failed.
    fn copy(
        &self,
        offset: u64,
        from: &Self,
        from_offset: u64,
        len: u64,
    ) -> Result<(u64, u64), DiskError>;
}

impl Bytes for Disk {
    fn name(&self) -> String {
        crate::file_name(self.nsid())
    }
    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }
    fn read(&self, offset: u64, len: u32) -> Result<(Vec<u8>, u64), DiskError> {
        Self::read(self, offset, len)
    }
    fn write(&self, offset: u64, data: &[u8], through: bool) -> Result<(u32, u64), DiskError> {
        Self::write(self, offset, data, through)
    }
    fn zero(&self, offset: u64, len: u64) -> Result<u64, DiskError> {
        Self::zero(self, offset, len)
    }
    fn flush(&self) -> Result<u64, DiskError> {
        Self::flush(self)
    }
    fn copy(
        &self,
        offset: u64,
        from: &Self,
        from_offset: u64,
        len: u64,
    ) -> Result<(u64, u64), DiskError> {
        Self::copy(self, offset, from, from_offset, len)
    }
}
