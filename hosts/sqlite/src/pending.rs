//! Pages of a database that SQLite has written and that are not yet in the store.
//!
//! Handed over together they cost a few round trips to the device, one by one they cost one each: a
//! transaction's pages come in the order of their numbers, which is not the order of places in a
//! volume.
//!
//! Invariants: pages do not overlap; a rewritten page replaces the older version.
//! Absent: when they are handed over (`database`).

use remap_ssd_store::{FileId, FileWrite, Store, StoreError};
use std::collections::BTreeMap;

/// Maximum bytes kept.
const BYTES_MAX: usize = 1 << 20;

/// Pages by their places in the file.
#[derive(Default)]
pub(crate) struct Pending {
    pages: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns true if the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX
    }

    /// Returns true if a range overlaps one of the pages.
    pub(crate) fn meets(&self, offset: u64, bytes: u64) -> bool {
        let before = self.pages.range(..offset.saturating_add(bytes)).next_back();
        before.is_some_and(|(at, page)| at + page.len() as u64 > offset)
    }

    /// Returns true if a page can be kept: it replaces exactly one, or overlaps none.
    pub(crate) fn has_room_for(&self, offset: u64, page: &[u8]) -> bool {
        let is_same = self
            .pages
            .get(&offset)
            .is_some_and(|old| old.len() == page.len());
        is_same || !self.meets(offset, page.len() as u64)
    }

    /// Keeps a page until it is written.
    pub(crate) fn put(&mut self, offset: u64, page: &[u8]) {
        debug_assert!(self.has_room_for(offset, page), "pages do not overlap");
        if self.pages.insert(offset, page.to_vec()).is_none() {
            self.bytes += page.len();
        }
    }

    /// Writes all of them to a file, adjacent pages as one range. None is kept, even if that fails.
    pub(crate) fn hand_over(&mut self, store: &dyn Store, file: FileId) -> Result<(), StoreError> {
        self.bytes = 0;
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (offset, page) in std::mem::take(&mut self.pages) {
            match runs.last_mut() {
                Some((first, run)) if *first + run.len() as u64 == offset => {
                    run.extend_from_slice(&page)
                }
                _ => runs.push((offset, page)),
            }
        }

        let writes: Vec<FileWrite<'_>> = runs
            .iter()
            .map(|(offset, data)| FileWrite {
                offset: *offset,
                data,
            })
            .collect();
        store.write_all(file, &writes)
    }
}
