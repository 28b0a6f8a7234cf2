//! Contents of flash pages in a mapped file, or in memory: page `p` is bytes `4096 p` to `4096 p + 4095`.
//!
//! Pages are read where they are mapped, and written by `pwrite`: it meets no page that must first be made writable,
//! which stores to the mapping would after every time the system has written the page out. Both are one page cache. In
//! memory, and on a file system that is in memory, pages are stored where they are mapped.
//! Invariants: between an erase and the next one of its block a page is written once; what was there before may be
//! overwritten at any time after the erase, so the journal is durable up to the erase before it happens. A write that
//! failed is remembered, and nothing is acknowledged after it.
//! Absent: which pages hold anything (the array's rows say that).

use crate::content::PageBytes;
use crate::geometry::PAGE_BYTES;
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Is a file on a file system that writes nothing out, so that stores to a mapping meet no obstacle?
fn is_memory(file: &File) -> bool {
    /// Of tmpfs, in Linux' `statfs`.
    const TMPFS: i128 = 0x0102_1994;
    #[cfg(target_os = "linux")]
    return rustix::fs::fstatfs(file).is_ok_and(|about| i128::from(about.f_type) == TMPFS);
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// The mapped file.
pub(crate) struct MappedPages {
    map: MmapMut,
    /// What is written goes there; without it, into the mapping.
    file: Option<File>,
    failure: Option<String>,
}

impl MappedPages {
    pub(super) fn map(file: &File, pages: u32) -> io::Result<Self> {
        // SAFETY: the file is the folder's own, locked against other processes of this program, and has been given its
        // full length; bytes that another program changes under us are data, never addresses or lengths. We change them
        // by `pwrite`, through `&mut self` only, so that no page that is being looked at changes.
        let map = unsafe { memmap2::MmapOptions::new().len(pages as usize * PAGE_BYTES).map_mut(file)? };
        // Flash pages are read one by one; reading ahead would fetch neighbours nobody asked for.
        let _ = map.advise(memmap2::Advice::Random);
        let file = if is_memory(file) { None } else { Some(file.try_clone()?) };
        Ok(Self { map, file, failure: None })
    }

    /// What is written stays in memory.
    pub(super) fn map_private(file: &File, pages: u32) -> io::Result<Self> {
        // SAFETY: as in `map`.
        let map = unsafe { memmap2::MmapOptions::new().len(pages as usize * PAGE_BYTES).map_copy(file)? };
        Ok(Self { map, file: None, failure: None })
    }

    /// Memory that no file is behind.
    pub(crate) fn in_memory(pages: u32) -> io::Result<Self> {
        let map = memmap2::MmapOptions::new().len(pages as usize * PAGE_BYTES).no_reserve_swap().map_anon()?;
        // Best effort: without huge pages it works, with more page faults.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, file: None, failure: None })
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
        assert!(bytes.len() <= PAGE_BYTES && start < self.map.len());
        match &self.file {
            None => self.map[start..start + bytes.len()].copy_from_slice(bytes),
            Some(file) => {
                if let Err(error) = file.write_all_at(bytes, start as u64) {
                    self.failure.get_or_insert(error.to_string());
                }
            }
        }
    }

    /// Copies a page to another one.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        let start = from * PAGE_BYTES;
        match &self.file {
            None => self.map.copy_within(start..start + PAGE_BYTES, to * PAGE_BYTES),
            // By way of the stack: the system need not look for a page of this file while it holds another one.
            Some(_) => self.put(to, &{ *self.page(from) }),
        }
    }

    /// Why a write could not be done, if one could not.
    #[inline]
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }
}
