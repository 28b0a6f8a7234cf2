//! Reads a database in a store as an ordinary file of stock SQLite.
//!
//! Invariants: no stamps; the size is SQLite's, even if a crash of the machine left data after it.
//! A file that is no database is read unchanged.
//!
//! Absent: applying the log, and rolling back a journal: SQLite does both when it opens the
//! database. `unfinished` reports if either is necessary.

use crate::journal::is_journal;
use crate::mark::Mark;
use remap_ssd_store::{FileId, OpenOptions, Store, StoreError};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;

/// Returns the log or the journal without which the database's file is inconsistent: the file has a
/// partial transaction, or lacks committed ones.
///
/// # Errors
/// The store; also if it cannot tell that there is no such file.
pub fn unfinished(store: &dyn Store, database: &str) -> Result<Option<String>, StoreError> {
    let journal = format!("{database}-journal");
    if let Some(file) = there(store, &journal)?
        && is_journal(store, file)?
    {
        return Ok(Some(journal));
    }
    let log = format!("{database}-wal");
    if let Some(file) = there(store, &log)?
        && has_header(store, file)?
    {
        return Ok(Some(log));
    }
    Ok(None)
}

/// Returns true if a log has a header. A log is created with pages of zeroes, which may be all that a
/// process or a machine has left of it.
fn has_header(store: &dyn Store, log: FileId) -> Result<bool, StoreError> {
    let mut header = [0; 32];
    let read = store.read(log, 0, &mut header)?;
    Ok(header[..read].iter().any(|byte| *byte != 0))
}

fn there(store: &dyn Store, name: &str) -> Result<Option<FileId>, StoreError> {
    match store.open(name, OpenOptions::default()) {
        Ok(file) => Ok(Some(file)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file of a store in stock SQLite's format.
pub struct StockFile<'a> {
    store: &'a dyn Store,
    file: FileId,
    size: u64,
    /// The mark of its stamps, and the size of pages that may have them.
    stamps: Option<(Mark, u64)>,
}

impl<'a> StockFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn open(store: &'a dyn Store, file: FileId) -> Result<Self, StoreError> {
        let size = store.size(file)?;
        let plain = Self {
            store,
            file,
            size,
            stamps: None,
        };
        let mut header = [0; HEADER_BYTES];
        if store.read(file, 0, &mut header)? < HEADER_BYTES || !header.starts_with(MAGIC) {
            return Ok(plain);
        }

        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        // SQLite's file format, §1.3.2: 1 stands for 65,536.
        let page = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65_536,
            bytes => u64::from(bytes),
        };
        // §1.3.7: the page count is valid if the two change counters are equal.
        let pages = (word(24) == word(92))
            .then(|| u64::from(word(28)))
            .filter(|pages| *pages > 0);
        let size = pages.map_or(size, |pages| size.min(pages * page));
        let stamps = store
            .identity()
            .filter(|_| page >= 4096)
            .map(|identity| (Mark::of(&identity), page));
        Ok(Self {
            size,
            stamps,
            ..plain
        })
    }

    /// Size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads up to the end, and returns the number of bytes read. `offset` and the buffer's length
    /// are multiples of 64 KiB, so that pages are whole.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let bytes = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let read = self.store.read(self.file, offset, &mut into[..bytes])?;
        if let Some((mark, page)) = self.stamps {
            for page in into[..read].chunks_exact_mut(page as usize) {
                mark.strip(page);
            }
        }
        Ok(read)
    }
}
