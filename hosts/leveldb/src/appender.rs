//! A file that grows at its end, by bytes or by pages of another file.
//!
//! Appended bytes are gathered, as an operating system's page cache would, and written a quarter of a
//! megabyte at a time; all are written at a sync and at the end. A partial last page stays
//! here and is written again from its beginning, so that no page is read.
//!
//! Invariant: bytes and shared pages reach the store in the order in which they were appended.

use crate::Reader;
use remap_ssd_store::{FileId, Share, Store, StoreError};
use std::sync::Arc;

/// Bytes of a page, the unit of sharing.
const PAGE: usize = 4096;
/// Bytes gathered before they are written.
const GATHERED_MAX: usize = 64 * PAGE;

/// A file that grows at its end.
pub struct Appender {
    store: Arc<dyn Store>,
    file: FileId,
    /// Offset of `gathered`, a multiple of the page size.
    at: u64,
    /// Bytes after `at`; those up to `written` are in the store, too.
    gathered: Vec<u8>,
    written: usize,
    /// A range of pages to share, which begins at `at`; then nothing is gathered.
    share: Option<Share>,
}

impl Appender {
    pub(crate) fn new(store: Arc<dyn Store>, file: FileId) -> Result<Self, StoreError> {
        let size = store.size(file)?;
        let at = size - size % PAGE as u64;
        let mut gathered = vec![0; (size - at) as usize];
        let read = store.read(file, at, &mut gathered)?;
        gathered.truncate(read);
        Ok(Self {
            store,
            file,
            at,
            written: gathered.len(),
            gathered,
            share: None,
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// There is no room, or the store.
    pub fn append(&mut self, data: &[u8]) -> Result<(), StoreError> {
        self.share_now()?;
        self.gathered.extend_from_slice(data);
        if self.gathered.len() >= GATHERED_MAX {
            self.write(self.gathered.len() / PAGE * PAGE)?;
        }
        Ok(())
    }

    /// Appends whole pages of another file, without writing them where the disk can share pages.
    /// Returns false, and does nothing, if this file does not end at a page or the range is not of
    /// whole pages.
    ///
    /// # Errors
    /// The range is beyond the end of the other file, or the store.
    pub fn share(&mut self, from: &Reader, offset: u64, bytes: u64) -> Result<bool, StoreError> {
        let page = PAGE as u64;
        let whole = self.gathered.len().is_multiple_of(PAGE)
            && offset.is_multiple_of(page)
            && bytes.is_multiple_of(page)
            && bytes > 0;
        if !whole {
            return Ok(false);
        }

        // Blocks that follow each other are one range.
        if let Some(share) = &mut self.share
            && (share.from, share.from_offset + share.bytes) == (from.file, offset)
        {
            share.bytes += bytes;
            return Ok(true);
        }
        self.share_now()?;
        self.write(self.gathered.len())?;
        self.share = Some(Share {
            from: from.file,
            from_offset: offset,
            to: self.file,
            to_offset: self.at,
            bytes,
        });
        Ok(true)
    }

    /// Makes all that was appended survive a power cut.
    ///
    /// # Errors
    /// There is no room, or the store.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.close()?;
        self.store.sync(self.file)
    }

    /// Passes all on to the store; it survives a power cut only after a sync.
    ///
    /// # Errors
    /// There is no room, or the store.
    pub fn close(&mut self) -> Result<(), StoreError> {
        self.share_now()?;
        self.write(self.gathered.len())
    }

    fn share_now(&mut self) -> Result<(), StoreError> {
        let Some(share) = self.share.take() else {
            return Ok(());
        };
        self.store.share(&share)?;
        self.at += share.bytes;
        Ok(())
    }

    /// Writes the first `bytes` of what is gathered, and forgets their whole pages.
    fn write(&mut self, bytes: usize) -> Result<(), StoreError> {
        if bytes > self.written {
            self.store
                .write(self.file, self.at, &self.gathered[..bytes])?;
            self.written = bytes;
        }
        let whole = bytes / PAGE * PAGE;
        self.gathered.drain(..whole);
        self.at += whole as u64;
        self.written -= whole;
        Ok(())
    }
}
