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
    /// A branch's pages, and its parent's mark, are durable before its record.
    FlushBranched,
    /// The first records of a list of branches are durable before the last one.
    FlushBranchesBeforeLast,
    /// A parent's new version is durable before its bytes change.
    FlushVersion,
    /// A parent has its branch's pages durably before the branch's record is gone.
    FlushMerged,
}

impl Guard {
    /// All guards, for campaigns that leave out one at a time.
    pub const ALL: [Self; 10] = [
        Self::TrimClaimed,
        Self::FlushTrimmed,
        Self::FlushClaimed,
        Self::FlushReleased,
        Self::FlushCreated,
        Self::FlushDefragmented,
        Self::FlushBranched,
        Self::FlushBranchesBeforeLast,
        Self::FlushVersion,
        Self::FlushMerged,
    ];

    /// Returns true for the steps of branches and their merges.
    pub fn is_of_branches(self) -> bool {
        matches!(
            self,
            Self::FlushBranched
                | Self::FlushBranchesBeforeLast
                | Self::FlushVersion
                | Self::FlushMerged
        )
    }
}
