//! What a deduplicating disk did.

/// Counters since it was opened, in pages unless their names say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages that the host wrote.
    pub host_pages: u64,
    /// Pages written below as data.
    pub data_pages: u64,
    /// Pages written below as metadata.
    pub metadata_pages: u64,
    /// Writes that became copies or references.
    pub duplicates: u64,
    /// Pages read to compare contents.
    pub compared: u64,
    /// Of these, pages whose contents differed although their signatures agreed, or that could not
    /// be read.
    pub mismatches: u64,
    /// Copies that the disk below refused; the pages were written.
    pub copies_refused: u64,
    /// How often the disk below was flushed.
    pub flushes: u64,
    /// Segments of the table that were marked invalid, a number.
    pub segments_invalidated: u64,
    /// Segments of the table that were written and marked valid, a number.
    pub segments_committed: u64,
    /// Entries that the table gave up for want of room, a number.
    pub entries_discarded: u64,
}
