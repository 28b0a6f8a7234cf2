//! Contents of flash pages in a mapped file, or in memory: page `p` is bytes `4096 p` to `4096 p +
//! 4095`.
//!
//! Pages are read where they are mapped, and written by `pwrite`: it meets no page that must first
//! be made writable, which stores to the mapping would after every time the system has written the
//! page out. Both are one page cache. In memory, and on a file system that is in memory, pages are
//! stored where they are mapped. Invariants: between an erase and the next one of its block a page
//! is written once; what was there before may be overwritten at any time after the erase, so the
//! journal is durable up to the erase before it happens. After a failed write nothing is written
//! any more, and nothing is acknowledged. The checksum of each page is that of the content meant
//! for it, whether it was stored or not; reads compare. Absent: which pages hold anything (the
//! array's rows say that).

use super::files::{CONTENTS, about};
use crate::content::PageBytes;
use crate::geometry::PAGE_BYTES;
use crate::slab::Slab;
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Whether a file is on a file system without write-back (such as tmpfs), where stores to a mapping
/// never wait.
fn is_memory(file: &File) -> bool {
    /// Of tmpfs, in Linux' `statfs`.
    const TMPFS: i128 = 0x0102_1994;
    #[cfg(target_os = "linux")]
    return rustix::fs::fstatfs(file).is_ok_and(|about| i128::from(about.f_type) == TMPFS);
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// A file of pages mapped into memory, with their checksums.
pub(crate) struct MappedPages {
    map: MmapMut,
    /// What is written goes there; without it, into the mapping.
    file: Option<File>,
    /// CRC-32C of each page's content, or `UNKNOWN`; empty where no file backs the pages.
    sums: Slab<u32>,
    failure: Option<String>,
}

/// The page has no checksum: it stores nothing, or was written by version 1.
pub(super) const UNKNOWN: u32 = 0;

/// A CRC as it is stored: 0 becomes 1.
#[inline]
fn kept(crc: u32) -> u32 {
    // 0 stands for "unknown". Two CRCs of 2^32 become one.
    crc.max(1)
}

impl MappedPages {
    pub(super) fn map(file: &File, pages: u32) -> io::Result<Self> {
        // SAFETY: the file is the folder's own, locked against other processes of this program, and
        // has been given its full length; bytes that another program changes under us are data,
        // never addresses or lengths. We change them by `pwrite`, through `&mut self` only, so that
        // no page that is being looked at changes.
        let map = unsafe {
            memmap2::MmapOptions::new()
                .len(pages as usize * PAGE_BYTES)
                .map_mut(file)?
        };

        // Flash pages are read one by one; reading ahead would fetch neighbours nobody asked for.
        let _ = map.advise(memmap2::Advice::Random);
        let file = if is_memory(file) {
            None
        } else {
            Some(file.try_clone()?)
        };

        Ok(Self {
            map,
            file,
            sums: Slab::zeroed(pages as usize),
            failure: None,
        })
    }

    /// What is written stays in memory.
    pub(super) fn map_private(file: &File, pages: u32) -> io::Result<Self> {
        // SAFETY: as in `map`.
        let map = unsafe {
            memmap2::MmapOptions::new()
                .len(pages as usize * PAGE_BYTES)
                .map_copy(file)?
        };
        Ok(Self {
            map,
            file: None,
            sums: Slab::zeroed(pages as usize),
            failure: None,
        })
    }

    /// Memory that no file is behind.
    pub(crate) fn in_memory(pages: u32) -> io::Result<Self> {
        let map = memmap2::MmapOptions::new()
            .len(pages as usize * PAGE_BYTES)
            .no_reserve_swap()
            .map_anon()?;
        // Best effort: without huge pages it works, with more page faults.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self {
            map,
            file: None,
            sums: Slab::zeroed(0),
            failure: None,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len() / PAGE_BYTES
    }

    #[inline]
    pub(crate) fn page(&self, at: usize) -> &[u8; PAGE_BYTES] {
        self.map[at * PAGE_BYTES..]
            .first_chunk()
            .expect("a page number is below the number of pages")
    }

    /// A copy of a page.
    pub(crate) fn bytes(&self, at: usize) -> PageBytes {
        Arc::new(*self.page(at))
    }

    /// Writes the beginning of a page, or all of it. Its checksum is unknown then.
    #[inline]
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let start = at * PAGE_BYTES;
        assert!(bytes.len() <= PAGE_BYTES && start < self.map.len());
        self.blank(at);
        // Nothing after the first failure, as on a disk that has gone: later writes without earlier
        // ones would be a state that no power cut leaves.
        if self.failure.is_some() {
            return;
        }
        match &self.file {
            None => self.map[start..start + bytes.len()].copy_from_slice(bytes),
            Some(file) => {
                if let Err(error) = file.write_all_at(bytes, start as u64) {
                    self.failure = Some(format!("{CONTENTS}, byte {start}: {error}"));
                }
            }
        }
    }

    /// Copies a page to another one, whose checksum is unknown then.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        if self.file.is_some() {
            // Through the stack, so that the system never faults in one page of the file while it
            // holds another.
            return self.put(to, &{ *self.page(from) });
        }

        self.blank(to);
        if self.failure.is_some() {
            return;
        }
        let from = from * PAGE_BYTES;
        self.map
            .copy_within(from..from + PAGE_BYTES, to * PAGE_BYTES);
    }

    /// The page stores nothing from now on.
    #[inline]
    pub(crate) fn blank(&mut self, at: usize) {
        if let Some(sum) = self.sums.get_mut(at) {
            *sum = UNKNOWN;
        }
    }

    /// Sets the checksum of a page.
    #[inline]
    pub(super) fn set_sum(&mut self, at: usize, crc: u32) {
        self.sums[at] = kept(crc);
    }

    /// All checksums, for the state.
    pub(super) fn sums(&self) -> &Slab<u32> {
        &self.sums
    }
    pub(super) fn set_sums(&mut self, sums: Slab<u32>) {
        self.sums = sums;
    }

    /// The checksums of pages that are unmapped next.
    pub(super) fn into_sums(self) -> Slab<u32> {
        self.sums
    }

    /// Does a page, or the beginning of one, match its checksum? True if it has none.
    pub(super) fn is_intact(&self, at: usize, bytes: usize) -> bool {
        let sum = self.sums.get(at).copied().unwrap_or(UNKNOWN);
        sum == UNKNOWN || kept(crc32c::crc32c(&self.page(at)[..bytes])) == sum
    }

    /// The same of a page of data.
    #[inline]
    pub(crate) fn is_whole(&self, at: usize) -> bool {
        self.sums.is_empty() || self.is_intact(at, PAGE_BYTES)
    }

    /// Whether the checksum of a page is unknown.
    pub(super) fn has_no_sum(&self, at: usize) -> bool {
        self.sums.get(at).is_none_or(|sum| *sum == UNKNOWN)
    }

    /// The CRC of a data page, if the page matches it; 0 without checksums.
    #[inline]
    pub(crate) fn crc_if_whole(&self, at: usize) -> Option<u32> {
        let Some(sum) = self.sums.get(at) else {
            return Some(0);
        };
        // Computed, not taken from the table: a copy of decayed bytes must not get a fitting
        // checksum.
        let crc = crc32c::crc32c(self.page(at));
        (*sum == UNKNOWN || kept(crc) == *sum).then_some(crc)
    }

    /// Nothing is written from now on.
    pub(super) fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.to_owned());
    }

    /// Why a write could not be done, if one could not.
    #[inline]
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.sync_data().map_err(|error| about(CONTENTS, error)),
            None => Ok(()),
        }
    }
}
