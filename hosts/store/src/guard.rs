//! The flushes and trims that protect a volume, each with a switch: a test turns them off one at a
//! time and requires that power cuts expose it.
//!
//! Absent: any other use.

/// A step of a layout change (`volume/change.rs` has the reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Pages are trimmed before a file claims them.
    TrimClaimed,
    /// The trims are durable before the claim.
    FlushTrimmed,
    /// A claim is durable before its pages are written.
    FlushClaimed,
    /// A release of pages is durable before they are trimmed or claimed again.
    FlushReleased,
    /// A name is durable before its file is used.
    FlushCreated,
    /// Copies of a file's pages are durable before its record names them.
    FlushDefragmented,
}

impl Guard {
    /// All guards, for campaigns that leave out one at a time.
    pub const ALL: [Self; 6] = [
        Self::TrimClaimed,
        Self::FlushTrimmed,
        Self::FlushClaimed,
        Self::FlushReleased,
        Self::FlushCreated,
        Self::FlushDefragmented,
    ];
}
