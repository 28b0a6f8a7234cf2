//! Recording of operations on a device.
//!
//! Commands are recorded as operations on pages, in the order in which the device executes them: a
//! write of a 512-byte block is a page read and a page written. Absent: refused commands,
//! registers, and lists of files.

use remap_ssd_ftl::{Lpn, Remap};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Identifies a content: fingerprints are equal only if contents are.
pub type Fingerprint = [u8; 16];

/// One operation on the device; pages are the device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOp {
    /// A page was read, mapped or not.
    Read(Lpn),
    /// A page was written whole, with content of this fingerprint.
    Write(Lpn, Fingerprint),
    /// Pages were deallocated: the first, and their number.
    Deallocate(Lpn, u32),
    /// Pages were remapped by a Copy command.
    Remap(Remap),
    /// Everything before was made durable.
    Flush,
}

/// Records operations. Called with the device locked, so that the order is the device's.
pub trait Recorder: Send + Sync {
    /// Computes the fingerprint of a page's content.
    fn fingerprint(&self, page: &[u8; PAGE_BYTES]) -> Fingerprint;
    /// Records the operations of one command, at a time in the clock of its service.
    fn command(&self, now: u64, ops: &[RecordedOp]);
}

/// Operations so far of the command in progress.
pub(super) struct CommandRecord<'a> {
    pub recorder: &'a dyn Recorder,
    pub ops: Vec<RecordedOp>,
}
