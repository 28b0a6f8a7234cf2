//! What a file must be able to do: an array of bytes whose size does not change.
//!
//! Invariant: an answer says when it is done, in the clock of all services of the device, if there
//! is one. Absent: the kernel, and what is behind it: a namespace (`disk`), or a disk of host
//! software (`pages`).

use crate::disk::{Disk, DiskError};

/// An array of bytes that is shown as a file.
pub trait Bytes: Send + Sync + 'static {
    /// Name of the file in the folder, which other arrays there must not have.
    fn name(&self) -> String;

    /// Size of the file in bytes.
    fn bytes(&self) -> u64;

    /// Reads what of the range is there; and when it is done.
    ///
    /// # Errors
    /// It could not be read.
    fn read(&self, offset: u64, len: u32) -> Result<(Vec<u8>, u64), DiskError>;

    /// Writes what of the range is there: how many bytes; and when it is done. `through`: durably.
    ///
    /// # Errors
    /// Nothing of it is there, or it could not be written.
    fn write(&self, offset: u64, data: &[u8], through: bool) -> Result<(u32, u64), DiskError>;

    /// Makes what of a range is there read as zeroes; when it is done.
    ///
    /// # Errors
    /// It could not.
    fn zero(&self, offset: u64, len: u64) -> Result<u64, DiskError>;

    /// Makes everything durable; when it is done.
    ///
    /// # Errors
    /// It could not.
    fn flush(&self) -> Result<u64, DiskError>;

    /// Copies whole blocks by remapping: how many bytes, which may be fewer than asked for; and
    /// when it is done.
    ///
    /// # Errors
    /// The range, or it could not.
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
