//! Counters of a deduplicating disk.

/// Counters since open, in pages unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages written by the host.
    pub host_pages: u64,
    /// Pages written below as data.
    pub data_pages: u64,
    /// Pages written below as metadata.
    pub metadata_pages: u64,
    /// Writes that became copies or references.
    pub duplicates: u64,
    /// Pages read to compare contents.
    pub compared: u64,
    /// Of these, pages that were unreadable or differed despite equal signatures.
    pub mismatches: u64,
    /// Copies refused by the disk below; the pages were written instead.
    pub copies_refused: u64,
    /// Flushes of the disk below.
    pub flushes: u64,
    /// Segments of the table marked invalid (count of segments).
    pub segments_invalidated: u64,
    /// Segments of the table written and marked valid (count of segments).
    pub segments_committed: u64,
    /// Entries evicted from the full table (count of entries).
    pub entries_discarded: u64,
}
