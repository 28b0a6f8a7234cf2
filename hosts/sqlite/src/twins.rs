//! Where pages that were read are: a backup writes what it has read from another database.
//!
//! A copy of a database (`sqlite3_backup`, `VACUUM INTO`, rows that go to an attached one) is made
//! of pages that this process has just read, but SQLite does not say from where. So the place of
//! each page that is read is kept by its hash, and a page that is to be written is looked up.
//!
//! Invariants: a hit is a guess: the other file may have changed since, and nobody holds its locks
//! for us. Whoever uses one shares first and compares afterwards. The table is as large as it is; a
//! page that is forgotten is written.
//!
//! Absent: pages of one file that repeat (SQLite has none), and pages below 4 KiB.

use remap_ssd_store::FileId;
use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_64;

/// Pages that are known at most: 256 MiB of pages of 4 KiB.
const PLACES: usize = 1 << 16;
/// Places that are made together, when the first of them is needed: a program that opens a database
/// for one request reads a few pages.
const CHUNK: usize = 1 << 8;

/// A page in a file of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceOf {
    pub file: FileId,
    pub offset: u64,
}

/// The pages that a process has read from one store.
pub(crate) struct Twins {
    /// By the lower bits of the hash: all of it, and the place.
    chunks: Mutex<Vec<Option<Chunk>>>,
}

type Chunk = Box<[Option<(u64, PlaceOf)>; CHUNK]>;

impl Default for Twins {
    fn default() -> Self {
        Self {
            chunks: Mutex::new(Vec::new()),
        }
    }
}

impl Twins {
    /// A page with these bytes has been read there.
    pub fn note(&self, page: &[u8], place: PlaceOf) {
        let hash = xxh3_64(page);
        let (chunk, at) = chunk_of(hash);
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.resize_with(PLACES / CHUNK, || None);
        let places = chunks[chunk].get_or_insert_with(|| Box::new([None; CHUNK]));
        // The newest page of an entry stays: what was just read is what is copied next.
        places[at] = Some((hash, place));
    }

    /// Where such a page was read, if not in this very place.
    pub fn find(&self, page: &[u8], not_here: PlaceOf) -> Option<PlaceOf> {
        let hash = xxh3_64(page);
        let (chunk, at) = chunk_of(hash);
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, place) = chunks.get(chunk)?.as_ref()?[at]?;
        (known == hash && place != not_here).then_some(place)
    }
}

/// Which chunk a hash is in, and where there.
fn chunk_of(hash: u64) -> (usize, usize) {
    let place = hash as usize % PLACES;
    (place / CHUNK, place % CHUNK)
}
