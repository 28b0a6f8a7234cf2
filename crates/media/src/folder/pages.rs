//! Contents of flash pages in a mapped file, or in memory: page `p` is bytes `4096 p` to `4096 p + 4095`.
//!
//! Invariant: between an erase and the next one of its block a page is written once. What was there before may be
//! overwritten at any time after the erase, so the journal is durable up to the erase before it happens.
//! Absent: which pages hold anything (the array's rows say that).

use crate::content::PageBytes;
use crate::geometry::PAGE_BYTES;
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// The mapped file.
pub(crate) struct MappedPages {
    map: MmapMut,
}

impl MappedPages {
    pub(super) fn map(file: &File, pages: u32) -> io::Result<Self> {
        // SAFETY: the file is the folder's own, locked against other processes of this program, and has been given its
        // full length; bytes that another program changes under us are data, never addresses or lengths.
        let map = unsafe { memmap2::MmapOptions::new().len(pages as usize * PAGE_BYTES).map_mut(file)? };
        // Flash pages are read one by one; reading ahead would fetch neighbours nobody asked for.
        let _ = map.advise(memmap2::Advice::Random);
        Ok(Self { map })
    }

    /// What is written stays in memory.
    pub(super) fn map_private(file: &File, pages: u32) -> io::Result<Self> {
        // SAFETY: as in `map`.
        let map = unsafe { memmap2::MmapOptions::new().len(pages as usize * PAGE_BYTES).map_copy(file)? };
        Ok(Self { map })
    }

    /// Memory that no file is behind.
    pub(crate) fn in_memory(pages: u32) -> io::Result<Self> {
        let map = memmap2::MmapOptions::new().len(pages as usize * PAGE_BYTES).no_reserve_swap().map_anon()?;
        // Best effort: without huge pages it works, with more page faults.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map })
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len() / PAGE_BYTES
    }

    #[inline]
    pub(crate) fn page(&self, at: usize) -> &[u8; PAGE_BYTES] {
        self.map[at * PAGE_BYTES..].first_chunk().expect("a page number is below the number of pages")
    }

    /// A copy of a page.
    pub(crate) fn bytes(&self, at: usize) -> PageBytes {
        Arc::new(*self.page(at))
    }

    /// Writes the beginning of a page, or all of it.
    #[inline]
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let start = at * PAGE_BYTES;
        self.map[start..start + PAGE_BYTES][..bytes.len()].copy_from_slice(bytes);
    }

    /// Copies a page to another one.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        let start = from * PAGE_BYTES;
        self.map.copy_within(start..start + PAGE_BYTES, to * PAGE_BYTES);
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.map.flush()
    }
}
