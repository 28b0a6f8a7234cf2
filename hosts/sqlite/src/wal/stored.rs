//! Frames in the store.
//!
//! Invariant: stateless; each result is the store's present state. Absent: the time and content of
//! writes (`gather`).

use super::WalCounters;
use super::layout::{FILE_HEADER_BYTES, GROUP_FRAMES, Header, Layout};
use crate::mark::{HEADER_BYTES, Mark};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_store::{FileId, Store, StoreError};
use std::sync::Arc;

/// The store's file of a log.
pub(super) struct StoredLog {
    pub store: Arc<dyn Store>,
    pub file: FileId,
    pub mark: Mark,
    /// True if pages may carry headers.
    pub stamps: bool,
    pub counters: WalCounters,
}

/// The page of a frame, without its stamp.
pub(super) struct StoredPage {
    pub page: Vec<u8>,
    /// The header that it carried.
    pub stamp: Option<Header>,
    /// True if the file has it. If not, the page is zeroes.
    pub present: bool,
}

impl StoredLog {
    pub(super) fn size(&self) -> Result<u64, StoreError> {
        self.store.size(self.file)
    }

    /// Reads, and zero-fills the rest. Returns the number of bytes read.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let bytes = self.store.read(self.file, offset, into)?;
        into[bytes..].fill(0);
        Ok(bytes)
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.store.write(self.file, offset, data)
    }

    /// The header of the log, and the number of its bytes present.
    pub(super) fn file_header(&self) -> Result<([u8; FILE_HEADER_BYTES], usize), StoreError> {
        let mut header = [0; FILE_HEADER_BYTES];
        let bytes = self.read(0, &mut header)?;
        Ok((header, bytes))
    }

    /// Takes the stamp off the page of a frame, of which `bytes` bytes were read. Returns the header
    /// that it carried, and true if it was present.
    pub(super) fn unstamp(&self, page: &mut [u8], bytes: usize) -> (Option<Header>, bool) {
        let present = bytes == page.len();
        if !present {
            page.fill(0);
        }
        let stamp = if self.stamps {
            self.mark.strip(page)
        } else {
            None
        };
        (stamp, present)
    }

    /// The page of a frame.
    pub(super) fn page(&self, layout: Layout, frame: u64) -> Result<StoredPage, StoreError> {
        let mut page = vec![0; layout.page_bytes];
        let bytes = self.read(layout.page(frame), &mut page)?;
        let (stamp, present) = self.unstamp(&mut page, bytes);
        Ok(StoredPage {
            page,
            stamp,
            present,
        })
    }

    /// The header of a frame in its header page.
    pub(super) fn header(&self, layout: Layout, frame: u64) -> Result<Header, StoreError> {
        let mut header = [0; HEADER_BYTES];
        self.read(layout.header(frame), &mut header)?;
        Ok(header)
    }

    /// Changes a header page; writes it only if its bytes differ.
    pub(super) fn change_header_page(
        &mut self,
        layout: Layout,
        group: u64,
        change: impl FnOnce(&mut [Header]),
    ) -> Result<(), StoreError> {
        let place = layout.header_page(group);
        let mut page = vec![0; PAGE_BYTES];
        self.read(place, &mut page)?;

        let before = page.clone();
        change(&mut page.as_chunks_mut().0[..GROUP_FRAMES as usize]);
        if page != before {
            self.write(place, &page)?;
            self.counters.header_pages += 1;
        }
        Ok(())
    }

    /// Writes contiguous pages. If they follow a header page that the file does not have yet, zeroes
    /// for it go in the same write: the store would zero the gap with a flush of its own.
    pub(super) fn write_run(&mut self, run: &PageRun) -> Result<(), StoreError> {
        let skipped = run.place.saturating_sub(self.size()?);
        if skipped == PAGE_BYTES as u64 {
            let with_headers = [&[0; PAGE_BYTES], run.pages.as_slice()].concat();
            self.write(run.place - skipped, &with_headers)?;
        } else {
            self.write(run.place, &run.pages)?;
        }
        self.counters.runs += 1;
        self.counters.pages += (run.pages.len() / PAGE_BYTES) as u64;
        Ok(())
    }
}

/// Contiguous pages of the file.
pub(super) struct PageRun {
    pub place: u64,
    pub pages: Vec<u8>,
}

impl PageRun {
    pub(super) fn end(&self) -> u64 {
        self.place + self.pages.len() as u64
    }
}
