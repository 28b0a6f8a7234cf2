//! Steps that protect data, each with a switch. Tests disable one at a time and require that power
//! cuts, or transient disk failures, reveal it.
//!
//! Absent: any other use.

/// A step that protects the data (`ccaw/mod.rs` and `ordermerge/commit.rs` have the reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Old contents are durably trimmed before a superblock is written.
    FlushTrimmed,
    /// Data that an ended process left unflushed are made durable at open, before they are relied
    /// on.
    FlushOpened,
    /// A segment of the table is marked invalid before a page that it covers changes.
    Invalidate,
    /// That mark is durable before the page changes.
    FlushInvalid,
    /// The pages of an invalid segment are trimmed before it can be valid again.
    TrimInvalid,
    /// A target leaves the table before its page changes.
    TargetLeaves,
    /// Pages and their signatures are durable before a segment is valid.
    FlushTable,
    /// Counts are written before mappings.
    CountsFirst,
    /// Data and counts are durable before a mapping names them.
    FlushData,
    /// A mapping is durable before the block that it replaced is free.
    FlushMappings,
}

impl Guard {
    /// All guards of `Ccaw`, for campaigns that leave out one.
    pub const CCAW: [Self; 7] = [
        Self::FlushTrimmed,
        Self::FlushOpened,
        Self::Invalidate,
        Self::FlushInvalid,
        Self::TrimInvalid,
        Self::TargetLeaves,
        Self::FlushTable,
    ];
    /// All guards of `OrderMerge`, for campaigns that leave out one.
    pub const ORDER_MERGE: [Self; 5] = [
        Self::FlushTrimmed,
        Self::FlushOpened,
        Self::CountsFirst,
        Self::FlushData,
        Self::FlushMappings,
    ];
}
