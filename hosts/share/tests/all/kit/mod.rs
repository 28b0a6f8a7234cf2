//! Namespaces on a disk that loses any subset of unflushed writes, and power cuts.

use remap_ssd_device::{Disk, DiskRemap};
use remap_ssd_share::{Counts, NamespacePage, Namespaces, ShareError};
use remap_ssd_testkit::{MemDisk, PAGE};

/// Consecutive namespaces on one disk.
pub struct MemNamespaces {
    pub disk: MemDisk,
    ranges: Vec<(u64, u64)>,
    counts: Counts,
    /// Another host writes this page after this number of calls of `share`.
    pub disturbance: Option<(u32, u64)>,
    /// The connection breaks after this number of calls of `share`.
    pub breaks_after: Option<u32>,
}

impl MemNamespaces {
    pub fn new(sizes: &[u64]) -> Self {
        Self::over(MemDisk::new(sizes.iter().sum()), sizes)
    }

    pub fn over(disk: MemDisk, sizes: &[u64]) -> Self {
        let starts = sizes.iter().scan(0, |at, size| {
            *at += size;
            Some((*at - size, *size))
        });
        let ranges = starts.collect();
        Self {
            disk,
            ranges,
            counts: Counts::default(),
            disturbance: None,
            breaks_after: None,
        }
    }

    fn place(&self, at: NamespacePage, pages: u64) -> Result<u64, ShareError> {
        self.check(at, pages)?;
        Ok(self.ranges[at.nsid as usize - 1].0 + at.page)
    }

    /// Contents of pages as numbers.
    pub fn numbers(&mut self, nsid: u32, pages: std::ops::Range<u64>) -> Vec<u64> {
        pages
            .map(|page| {
                let mut bytes = [1; PAGE];
                self.read(NamespacePage { nsid, page }, &mut bytes)
                    .expect("it can be read");
                u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
            })
            .collect()
    }

    pub fn put(&mut self, nsid: u32, page: u64, number: u64) {
        self.write(NamespacePage { nsid, page }, &content(number))
            .expect("it works");
    }
}

/// Page filled with a number.
pub fn content(number: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    bytes.as_chunks_mut::<8>().0.fill(number.to_le_bytes());
    bytes
}

impl Namespaces for MemNamespaces {
    fn count(&self) -> u32 {
        self.ranges.len() as u32
    }

    fn pages(&self, nsid: u32) -> u64 {
        self.ranges
            .get((nsid as usize).wrapping_sub(1))
            .map_or(0, |range| range.1)
    }

    fn read(&mut self, at: NamespacePage, into: &mut [u8]) -> Result<(), ShareError> {
        let page = self.place(at, (into.len() / PAGE) as u64)?;
        self.disk.read(page, into).map_err(ShareError::device)
    }

    fn write(&mut self, at: NamespacePage, bytes: &[u8; PAGE]) -> Result<(), ShareError> {
        let page = self.place(at, 1)?;
        self.counts.host_pages += 1;
        self.disk.write(page, bytes).map_err(ShareError::device)
    }

    fn trim(&mut self, at: NamespacePage, pages: u64) -> Result<(), ShareError> {
        let page = self.place(at, pages)?;
        self.counts.host_deallocations += pages;
        self.disk.trim(page, pages).map_err(ShareError::device)
    }

    fn flush(&mut self) -> Result<(), ShareError> {
        self.disk.flush().map_err(ShareError::device)
    }

    fn share(
        &mut self,
        from: NamespacePage,
        to: NamespacePage,
        pages: u64,
    ) -> Result<(), ShareError> {
        if let Some(calls) = &mut self.breaks_after {
            if *calls == 0 {
                return Err(ShareError::device("the connection is cut"));
            }
            *calls -= 1;
        }
        let (source, target) = (self.place(from, pages)?, self.place(to, pages)?);
        self.counts.host_pages += pages;
        self.counts.remaps += pages;
        let remap = DiskRemap {
            target,
            source,
            pages: pages as u32,
            relocate: false,
            atomic: false,
        };
        self.disk.remap(&remap).map_err(ShareError::device)?;
        if let Some((0, page)) = self.disturbance {
            self.disturbance = None;
            self.put(1, page, 999);
        } else if let Some((calls, _)) = &mut self.disturbance {
            *calls -= 1;
        }
        Ok(())
    }

    fn counts(&mut self) -> Result<Counts, ShareError> {
        Ok(self.counts)
    }
}
