//! Contents of flash pages in a mapped file, or in memory, one after the other. A page has 4096 bytes, or those of
//! a larger indirection unit.
//!
//! Pages are read where they are mapped, and written by `pwrite`: unlike a store to the mapping, it
//! needs no page fault to make a page writable after each write-back. Both use the same page cache.
//! In memory, and on a file system in memory, pages are stored where they are mapped. Invariants:
//! between an erase and the next one of its block a page is written once; its old contents may be
//! overwritten at any time after the erase, so the journal is durable up to the erase before it
//! happens. After a failed write nothing is written or acknowledged any more. The checksum of each
//! page is that of the content meant for it, even if that could not be stored; reads compare.
//! Absent: which pages hold data (the array's rows say that).

use crate::content::PageBytes;
use crate::geometry::Geometry;
use crate::slab::Slab;
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Name of the mapped file in a folder.
pub(crate) const CONTENTS: &str = "contents";

/// Returns true if a file is on a file system without write-back (such as tmpfs), where stores to a
/// mapping never wait.
fn is_memory(file: &File) -> bool {
    /// Type of tmpfs in Linux' `statfs`.
    const TMPFS: i128 = 0x0102_1994;
    #[cfg(target_os = "linux")]
    return rustix::fs::fstatfs(file).is_ok_and(|about| i128::from(about.f_type) == TMPFS);
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// A file of pages mapped into memory, with their checksums.
pub(crate) struct MappedPages {
    map: MmapMut,
    page_bytes: usize,
    /// Writes go to this file; without it, into the mapping.
    file: Option<File>,
    /// CRC-32C of each page's content, or `UNKNOWN`; empty for pages without a file.
    sums: Slab<u32>,
    failure: Option<String>,
    /// A page that is being copied.
    buffer: Vec<u8>,
}

/// Bytes of all pages.
fn map_bytes(geometry: &Geometry) -> usize {
    geometry.pages() as usize * geometry.page_bytes()
}

/// The page has no checksum: it stores nothing, or was written by version 1.
pub(crate) const UNKNOWN: u32 = 0;

/// The stored form of a CRC: 0 becomes 1.
#[inline]
fn kept(crc: u32) -> u32 {
    // 0 stands for "unknown". Two CRCs of 2^32 become one.
    crc.max(1)
}

impl MappedPages {
    pub(crate) fn map(file: &File, geometry: &Geometry) -> io::Result<Self> {
        // SAFETY: the file is the folder's own, locked against other processes of this program, and
        // has been given its full length; bytes that another program changes are data, never
        // addresses or lengths. This process changes them by `pwrite`, through `&mut self` only, so
        // that no borrowed page changes.
        let map = unsafe {
            memmap2::MmapOptions::new()
                .len(map_bytes(geometry))
                .map_mut(file)?
        };

        // Flash pages are read one by one; read-ahead would fetch unneeded neighbours.
        let _ = map.advise(memmap2::Advice::Random);
        let file = if is_memory(file) {
            None
        } else {
            Some(file.try_clone()?)
        };

        Ok(Self {
            map,
            page_bytes: geometry.page_bytes(),
            file,
            sums: Slab::zeroed(geometry.pages() as usize),
            failure: None,
            buffer: Vec::new(),
        })
    }

    /// Maps pages privately: writes stay in memory.
    pub(crate) fn map_private(file: &File, geometry: &Geometry) -> io::Result<Self> {
        // SAFETY: as in `map`.
        let map = unsafe {
            memmap2::MmapOptions::new()
                .len(map_bytes(geometry))
                .map_copy(file)?
        };
        Ok(Self {
            map,
            page_bytes: geometry.page_bytes(),
            file: None,
            sums: Slab::zeroed(geometry.pages() as usize),
            failure: None,
            buffer: Vec::new(),
        })
    }

    /// Anonymous memory, without a file.
    pub(crate) fn in_memory(geometry: &Geometry) -> io::Result<Self> {
        let map = memmap2::MmapOptions::new()
            .len(map_bytes(geometry))
            .no_reserve_swap()
            .map_anon()?;
        // Best effort: without huge pages it works, with more page faults.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self {
            map,
            page_bytes: geometry.page_bytes(),
            file: None,
            sums: Slab::zeroed(0),
            failure: None,
            buffer: Vec::new(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len() / self.page_bytes
    }

    #[inline]
    pub(crate) fn page(&self, at: usize) -> &[u8] {
        &self.map[at * self.page_bytes..][..self.page_bytes]
    }

    /// A copy of a page.
    pub(crate) fn bytes(&self, at: usize) -> PageBytes {
        Arc::from(self.page(at))
    }

    /// Writes the beginning of a page, or all of it. Its checksum is then unknown.
    #[inline]
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let start = at * self.page_bytes;
        assert!(bytes.len() <= self.page_bytes && start < self.map.len());
        self.blank(at);
        // Nothing after the first failure, as on a lost disk: later writes without earlier ones
        // would be a state that no power cut leaves.
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

    /// Copies a page to another one, whose checksum is then unknown.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        if self.file.is_some() {
            // Through this buffer, so that the system never faults in one page of the file while it
            // holds another.
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            buffer.extend_from_slice(self.page(from));
            self.put(to, &buffer);
            self.buffer = buffer;
            return;
        }

        self.blank(to);
        if self.failure.is_some() {
            return;
        }
        let from = from * self.page_bytes;
        self.map
            .copy_within(from..from + self.page_bytes, to * self.page_bytes);
    }

    /// Marks a page as storing nothing.
    #[inline]
    pub(crate) fn blank(&mut self, at: usize) {
        if let Some(sum) = self.sums.get_mut(at) {
            *sum = UNKNOWN;
        }
    }

    /// Sets the checksum of a page.
    #[inline]
    pub(crate) fn set_sum(&mut self, at: usize, crc: u32) {
        self.sums[at] = kept(crc);
    }

    /// All checksums, for the state.
    pub(crate) fn sums(&self) -> &Slab<u32> {
        &self.sums
    }
    pub(crate) fn set_sums(&mut self, sums: Slab<u32>) {
        self.sums = sums;
    }

    /// Takes the checksums of pages about to be unmapped.
    pub(crate) fn into_sums(self) -> Slab<u32> {
        self.sums
    }

    /// Returns true if a page, or the beginning of one, matches its checksum or has none.
    pub(crate) fn is_intact(&self, at: usize, bytes: usize) -> bool {
        let sum = self.sums.get(at).copied().unwrap_or(UNKNOWN);
        sum == UNKNOWN || kept(crc32c::crc32c(&self.page(at)[..bytes])) == sum
    }

    /// `is_intact` for a page of data.
    #[inline]
    pub(crate) fn is_whole(&self, at: usize) -> bool {
        self.sums.is_empty() || self.is_intact(at, self.page_bytes)
    }

    /// Returns true if the checksum of a page is unknown.
    pub(crate) fn has_no_sum(&self, at: usize) -> bool {
        self.sums.get(at).is_none_or(|sum| *sum == UNKNOWN)
    }

    /// The CRC of a data page, if the page matches it; 0 without checksums.
    #[inline]
    pub(crate) fn crc_if_whole(&self, at: usize) -> Option<u32> {
        let Some(sum) = self.sums.get(at) else {
            return Some(0);
        };
        // Computed, not taken from the table: a copy of decayed bytes must not get a matching
        // checksum.
        let crc = crc32c::crc32c(self.page(at));
        (*sum == UNKNOWN || kept(crc) == *sum).then_some(crc)
    }

    /// Stops all writes.
    pub(crate) fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.to_owned());
    }

    /// The error of the first failed write.
    #[inline]
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }
}
