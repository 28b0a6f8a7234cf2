//! Pages of files that this process has read or written, kept in memory: to find one here saves a
//! round trip to the device.
//!
//! Other processes may change the files. A word for each file in the coordination file tells:
//!
//! ```text
//! writer   word odd | changes of the file, all answered by the device | word even, and greater than before
//! reader   word even and what it was when a page was kept: the page is what the device has
//! ```
//!
//! # Why no page from here is older than one from the device
//!
//! Writers of one file take turns (see `Store`), so its word only grows.
//! 1. *A change that ended before the read began* has made the word greater, and pages kept under
//!    another word do not count.
//! 2. *A change that is under way*: the word is odd, and nothing is taken from here and nothing
//!    kept. If it became odd after the reader had looked, change and read overlap, and the old page
//!    is an answer that the device could have given. What such a reader keeps counts until the
//!    change ends, which makes the word another one.
//! 3. *A change that failed, or whose process died*, leaves the word odd: everybody reads from the
//!    device, until another change of the file ends. The one who begins that waits until what the
//!    dead process had sent is done.
//! 4. *This process's own changes* are made here page by page, as on the device: written, given to
//!    another page, or gone.
//! 5. *A page that goes from one file to another* is kept under the file it was read for, and
//!    counts for that one only; whose word has changed since, because the page was taken from it.
//! 6. *The device loses its power* while processes run: what it has lost was not synced, and a
//!    command that fails empties this.
//!
//! Absent: which pages a file has (`bytes`), where the words are (`coordination`).

use super::format::Page;
use crate::FileId;
use lru::LruCache;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of pages that are kept, unless said otherwise.
pub const CACHE_BYTES_DEFAULT: u64 = 64 << 20;

/// What pages of a file have to have been kept under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    file: FileId,
    /// How often another process had changed the file by then.
    number: u64,
}

/// What is known of the changes of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    word: u64,
    number: u64,
}

struct Kept {
    epoch: Epoch,
    /// Places that share a page on the disk share it here.
    bytes: Arc<Page>,
}

/// Pages, by their places on the disk.
pub struct Cache {
    pages: LruCache<u64, Kept>,
    pages_max: usize,
    files: HashMap<FileId, Known>,
}

impl Cache {
    /// None yet; so many bytes at most.
    pub fn new(bytes: u64) -> Self {
        Self {
            pages: LruCache::unbounded(),
            pages_max: (bytes / PAGE_BYTES as u64) as usize,
            files: HashMap::new(),
        }
    }

    /// The epoch of a file whose word is this; `None` while it is being changed.
    pub fn epoch(&mut self, file: FileId, word: u64) -> Option<Epoch> {
        let known = self.files.entry(file).or_default();
        // Another word: whatever was kept of the file counts no more.
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

    /// This process has changed a file, page by page here too: what was kept before still counts.
    pub fn move_on(&mut self, file: FileId, word: u64) {
        self.files.entry(file).or_default().word = word;
    }

    /// The page at a place, if it is kept and counts.
    pub fn get(&mut self, place: u64, epoch: Epoch) -> Option<&Page> {
        let kept = self.pages.get(&place)?;
        (kept.epoch == epoch).then_some(&*kept.bytes)
    }

    /// Keeps pages side by side.
    pub fn put(&mut self, first: u64, bytes: &[u8], epoch: Epoch) {
        let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
        for (place, page) in (first..).zip(pages) {
            // A page that is written again and again stays in the memory that it has.
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

    /// Pages got what others hold: `from` and `to` are the epochs of their files.
    pub fn share(
        &mut self,
        source: u64,
        target: u64,
        pages: u64,
        from: Option<Epoch>,
        to: Option<Epoch>,
    ) {
        // What no cache can hold is forgotten below.
        for at in 0..pages.min(self.pages_max as u64) {
            let kept = from.and_then(|from| self.shared(source + at, from));
            match (kept, to) {
                (Some(page), Some(to)) => self.put_shared(target + at, page, to),
                _ => drop(self.pages.pop(&(target + at))),
            }
        }
        self.forget(target + pages.min(self.pages_max as u64)..target + pages);
    }

    /// The page at a place that gives it to another one. The source is the first to be dropped: a
    /// frame of a log is not read again after its checkpoint, and a page whose image was taken is
    /// about to be written.
    fn shared(&mut self, source: u64, from: Epoch) -> Option<Arc<Page>> {
        let kept = self.pages.peek(&source)?;
        let page = (kept.epoch == from).then(|| Arc::clone(&kept.bytes));
        self.pages.demote(&source);
        page
    }

    /// What these places hold is unknown, or not worth keeping.
    pub fn forget(&mut self, places: Range<u64>) {
        // Whichever is less work: a trim of a large file must not cost a look-up for each of its
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

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        // Both: numbers of epochs start again, and must not meet pages that were kept under earlier
        // ones.
        self.pages.clear();
        self.files.clear();
    }
}
