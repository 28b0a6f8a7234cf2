//! What a device is asked, for whoever writes it down.
//!
//! Commands are recorded as what they do with pages, in the order in which the device does it: a
//! block of 512 bytes that is written is a page read and a page written. Absent: commands that were
//! refused, registers, and lists of files.

use remap_ssd_ftl::{Lpn, Remap};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Tells contents apart: equal only where they are.
pub type Fingerprint = [u8; 16];

/// One thing done with the device; pages are the device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOp {
    /// A page was read, whatever it holds.
    Read(Lpn),
    /// A page was written whole, with contents of this fingerprint.
    Write(Lpn, Fingerprint),
    /// Pages were deallocated: the first, and how many.
    Deallocate(Lpn, u32),
    /// Pages were remapped by a Copy command.
    Remap(Remap),
    /// All that was written before was made durable.
    Flush,
}

/// Writes down what is done. Called with the device locked, so that the order is the device's.
pub trait Recorder: Send + Sync {
    /// Distinguishes a page's content from others.
    fn fingerprint(&self, page: &[u8; PAGE_BYTES]) -> Fingerprint;
    /// One command has done this, at a time in the clock of its service.
    fn command(&self, now: u64, ops: &[RecordedOp]);
}

/// What the command under way has done so far.
pub(super) struct CommandRecord<'a> {
    pub recorder: &'a dyn Recorder,
    pub ops: Vec<RecordedOp>,
}
