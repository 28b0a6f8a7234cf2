//! Places of pages read earlier: a backup writes pages it has read from another database.
//!
//! A copy of a database (`sqlite3_backup`, `VACUUM INTO`, rows inserted into an attached one)
//! consists of pages that this process has just read, but SQLite does not say from where. So the
//! place of each page read is kept by its hash, and a page to be written is looked up.
//!
//! Invariants: a hit is a guess: the other file may have changed since, and its locks are not held.
//! The caller shares first and compares afterwards. The table has a fixed size; a page that was
//! evicted is written.
//!
//! Absent: repeated pages in one file (SQLite has none), and pages below 4 KiB.

use remap_ssd_store::FileId;
use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of pages: 256 MiB of 4 KiB pages.
const PLACES: usize = 1 << 16;
/// Places allocated together, when the first of them is needed: a program that opens a database per
/// request reads a few pages.
const CHUNK: usize = 1 << 8;

/// A page in a file of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePlace {
    pub file: FileId,
    pub offset: u64,
}

/// The pages that a process has read from one store.
pub(crate) struct PagePlaces {
    /// By the lower bits of the hash: the whole hash, and the place.
    chunks: Mutex<Vec<Option<Chunk>>>,
}

type Chunk = Box<[Option<(u64, PagePlace)>; CHUNK]>;

impl Default for PagePlaces {
    fn default() -> Self {
        Self {
            chunks: Mutex::new(Vec::new()),
        }
    }
}

impl PagePlaces {
    /// Records the place of a page that was read.
    pub(crate) fn note(&self, page: &[u8], place: PagePlace) {
        let hash = xxh3_64(page);
        let (chunk, at) = chunk_of(hash);
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.resize_with(PLACES / CHUNK, || None);
        let places = chunks[chunk].get_or_insert_with(|| Box::new([None; CHUNK]));
        // A newer page replaces the old one: it is the one likely to be copied next.
        places[at] = Some((hash, place));
    }

    /// Finds a place where such a page was read, other than `not_here`.
    pub(crate) fn find(&self, page: &[u8], not_here: PagePlace) -> Option<PagePlace> {
        let hash = xxh3_64(page);
        let (chunk, at) = chunk_of(hash);
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, place) = chunks.get(chunk)?.as_ref()?[at]?;
        (known == hash && place != not_here).then_some(place)
    }
}

/// The chunk of a hash, and the index in it.
fn chunk_of(hash: u64) -> (usize, usize) {
    let place = hash as usize % PLACES;
    (place / CHUNK, place % CHUNK)
}
