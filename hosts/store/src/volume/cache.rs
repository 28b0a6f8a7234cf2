//! A cache of file pages that this process has read or written: a hit saves a round trip to the
//! device.
//!
//! Other processes may change the files. A word for each file in the coordination file detects
//! that:
//!
//! ```text
//! writer   word odd | changes of the file, all completed by the device | word even, and greater than before
//! reader   word even and the same as when a page was cached: the page is current
//! ```
//!
//! # Why no cached page is older than the device's
//!
//! Writers of one file take turns (see `Store`), so its word only grows.
//! 1. *A change that ended before the read began* has increased the word, and pages cached under
//!    another word are invalid.
//! 2. *A change in progress*: the word is odd, and nothing is read from the cache or added to it.
//!    If it became odd after the reader looked, change and read overlap, and the old page is a
//!    result that the device could have given. Pages that such a reader caches are valid until the
//!    change ends, which changes the word.
//! 3. *A change that failed, or whose process died*, leaves the word odd: all processes read from
//!    the device until another change of the file ends. That change begins by waiting until the
//!    commands of the dead process have completed.
//! 4. *This process's own changes* are applied here page by page, as on the device: written,
//!    remapped, or trimmed.
//! 5. *A page that moves from one file to another* is cached under the file it was read for, and
//!    valid for that one only; that file's word has changed since, because the page was taken from
//!    it.
//! 6. *The device loses power* while processes run: the lost data was not synced, and a failing
//!    command clears the cache.
//!
//! Absent: which pages a file has (`bytes`), where the words are (`coordination`).

use super::format::Page;
use crate::FileId;
use lru::LruCache;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Default capacity in bytes: 64 MiB.
pub const CACHE_BYTES_DEFAULT: u64 = 64 << 20;

/// Version of a file's bytes; a cached page is valid in its own epoch only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    file: FileId,
    /// Number of changes by other processes seen until then.
    number: u64,
}

/// The last known change word of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    word: u64,
    number: u64,
}

struct Kept {
    epoch: Epoch,
    /// Places that share a physical page on the disk share it here.
    bytes: Arc<Page>,
}

/// Cached pages, by their places on the disk.
pub(super) struct Cache {
    pages: LruCache<u64, Kept>,
    pages_max: usize,
    files: HashMap<FileId, Known>,
}

impl Cache {
    /// Creates an empty cache of at most `bytes` bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            pages: LruCache::unbounded(),
            pages_max: (bytes / PAGE_BYTES as u64) as usize,
            files: HashMap::new(),
        }
    }

    /// The epoch of a file with this word; `None` during a change.
    pub(super) fn epoch(&mut self, file: FileId, word: u64) -> Option<Epoch> {
        let known = self.files.entry(file).or_default();
        // Another word invalidates all cached pages of the file.
        if known.word != word {
            *known = Known {
                word,
                number: known.number + 1,
            };
        }
        let epoch = Epoch {
            file,
            number: known.number,
        };
        (word.is_multiple_of(2)).then_some(epoch)
    }

    /// Accepts a new word after this process's own change, which it has applied here: cached pages
    /// stay valid.
    pub(super) fn move_on(&mut self, file: FileId, word: u64) {
        self.files.entry(file).or_default().word = word;
    }

    /// The page at a place, if it is cached and valid.
    pub(super) fn get(&mut self, place: u64, epoch: Epoch) -> Option<&Page> {
        let kept = self.pages.get(&place)?;
        (kept.epoch == epoch).then_some(&*kept.bytes)
    }

    /// Caches contiguous pages.
    pub(super) fn put(&mut self, first: u64, bytes: &[u8], epoch: Epoch) {
        let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
        for (place, page) in (first..).zip(pages) {
            // Rewriting a cached page reuses its memory.
            let old = self.pages.get_mut(&place);
            let own = old.and_then(|kept| {
                kept.epoch = epoch;
                Arc::get_mut(&mut kept.bytes)
            });
            match own {
                Some(old) => *old = *page,
                None => self.put_shared(place, Arc::new(*page), epoch),
            }
        }
    }

    fn put_shared(&mut self, place: u64, bytes: Arc<Page>, epoch: Epoch) {
        self.pages.put(place, Kept { epoch, bytes });
        while self.pages.len() > self.pages_max {
            self.pages.pop_lru();
        }
    }

    /// Target pages share the contents of source pages: `from` and `to` are the epochs of their
    /// files.
    pub(super) fn share(
        &mut self,
        source: u64,
        target: u64,
        pages: u64,
        from: Option<Epoch>,
        to: Option<Epoch>,
    ) {
        // Pages beyond the capacity are forgotten below.
        for at in 0..pages.min(self.pages_max as u64) {
            let kept = from.and_then(|from| self.shared(source + at, from));
            match (kept, to) {
                (Some(page), Some(to)) => self.put_shared(target + at, page, to),
                _ => drop(self.pages.pop(&(target + at))),
            }
        }
        self.forget(target + pages.min(self.pages_max as u64)..target + pages);
    }

    /// The page at a source place, which becomes the first to be evicted: a log frame is not read
    /// again after its checkpoint, and a page whose image was taken is about to be written.
    fn shared(&mut self, source: u64, from: Epoch) -> Option<Arc<Page>> {
        let kept = self.pages.peek(&source)?;
        let page = (kept.epoch == from).then(|| Arc::clone(&kept.bytes));
        self.pages.demote(&source);
        page
    }

    /// Drops these places: their contents are unknown, or not worth caching.
    pub(super) fn forget(&mut self, places: Range<u64>) {
        // Chooses the cheaper way: a trim of a large file must not cost a look-up for each of its
        // pages.
        if places.end - places.start <= self.pages.len() as u64 {
            places.for_each(|place| drop(self.pages.pop(&place)));
            return;
        }
        let inside: Vec<u64> = self
            .pages
            .iter()
            .map(|(place, _)| *place)
            .filter(|at| places.contains(at))
            .collect();
        inside.iter().for_each(|place| drop(self.pages.pop(place)));
    }

    /// Clears the cache.
    pub(super) fn clear(&mut self) {
        // Clears both: epoch numbers restart, and must not match pages cached under earlier ones.
        self.pages.clear();
        self.files.clear();
    }
}
