//! The guest's memory, as mapped for the device by the virtual machine monitor.
//!
//! Invariants: regions do not overlap; an access lies within one region, or within several
//! adjoining ones, or is refused as a whole; memory mapped read-only is not written. All accesses
//! are volatile (`vm-memory`), since the guest runs concurrently. Absent: protection against files
//! that shrink while mapped, which the monitor must not do.

use rustix::mm::{MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// The memory is not accessible to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfReach;

struct Region {
    len: u64,
    map: MmapRegion,
    writable: bool,
}

/// Mapped memory of the guest.
#[derive(Default)]
pub(crate) struct Memory {
    regions: BTreeMap<u64, Region>,
}

/// Permitted use of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Memory {
    /// Maps a part of a file at a guest address.
    ///
    /// # Errors
    /// It overlaps another mapping, or is not within the file, or the system's reason.
    pub(crate) fn map(
        &mut self,
        address: u64,
        len: u64,
        file: File,
        offset: u64,
        writable: bool,
    ) -> io::Result<()> {
        let end = address
            .checked_add(len)
            .filter(|_| len > 0)
            .ok_or_else(|| invalid("an impossible range"))?;

        // Regions do not overlap: only the last one below `end` can reach into the range.
        let before = self.regions.range(..end).next_back();
        if before.is_some_and(|(start, region)| start + region.len > address) {
            return Err(invalid("the range overlaps one that is mapped"));
        }

        // Accessing a mapped page past the end of its file would kill this process (SIGBUS).
        let there = file.metadata()?.len();
        if offset.checked_add(len).is_none_or(|end| end > there) {
            return Err(invalid("the range is not in its file"));
        }

        // Read-only memory is mapped read-only here: not even a bug can write to it.
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };

        let map = MmapRegionBuilder::new(usize::try_from(len).map_err(|_| invalid("too much"))?)
            .with_file_offset(FileOffset::new(file, offset))
            .with_mmap_prot(protection.bits() as i32)
            .with_mmap_flags((MapFlags::SHARED | MapFlags::NORESERVE).bits() as i32)
            .build()
            .map_err(io::Error::other)?;

        self.regions.insert(address, Region { len, map, writable });
        Ok(())
    }

    /// Unmaps the mappings within a range; they are unused when this returns.
    pub(crate) fn unmap(&mut self, address: u64, len: u64) {
        let end = address.saturating_add(len);

        // vfio-user unmaps whole mappings; one only partly in the range stays.
        self.regions
            .retain(|start, region| *start < address || start.saturating_add(region.len) > end);
    }

    /// Removes all mappings, as when the monitor has gone.
    pub(crate) fn clear(&mut self) {
        self.regions.clear();
    }

    /// The region of an address, the offset in it, and the length that follows.
    fn find(&self, address: u64, access: Access) -> Result<(&Region, usize, usize), OutOfReach> {
        let (start, region) = self
            .regions
            .range(..=address)
            .next_back()
            .ok_or(OutOfReach)?;
        let at = address - start;
        if at >= region.len || (access == Access::Write && !region.writable) {
            return Err(OutOfReach);
        }
        Ok((region, at as usize, (region.len - at) as usize))
    }

    /// Checks that the whole range can be accessed.
    pub(crate) fn check(&self, address: u64, len: usize, access: Access) -> Result<(), OutOfReach> {
        self.pieces(address, len, access, |_, _, _| Ok(()))
    }

    /// Calls `work` for a range by region: region, offset in it, and part of the range.
    fn pieces(
        &self,
        address: u64,
        len: usize,
        access: Access,
        mut work: impl FnMut(&Region, usize, std::ops::Range<usize>) -> Result<(), OutOfReach>,
    ) -> Result<(), OutOfReach> {
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done as u64).ok_or(OutOfReach)?;
            let (region, offset, room) = self.find(at, access)?;
            let next = done + room.min(len - done);
            work(region, offset, done..next)?;
            done = next;
        }
        Ok(())
    }

    /// Copies bytes from the guest.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), OutOfReach> {
        self.pieces(address, to.len(), Access::Read, |region, at, range| {
            let slice = region
                .map
                .get_slice(at, range.len())
                .map_err(|_| OutOfReach)?;
            slice.copy_to(&mut to[range]);
            Ok(())
        })
    }

    /// Copies bytes to the guest.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), OutOfReach> {
        self.pieces(address, from.len(), Access::Write, |region, at, range| {
            let slice = region
                .map
                .get_slice(at, range.len())
                .map_err(|_| OutOfReach)?;
            slice.copy_from(&from[range]);
            Ok(())
        })
    }

    /// Stores four bytes atomically, after all earlier writes.
    pub(crate) fn store(&self, address: u64, value: u32) -> Result<(), OutOfReach> {
        // One store, which the guest sees whole or not at all: it does not span two regions.
        let (region, at, _) = self.find(address, Access::Write)?;
        let slice = region.map.get_slice(at, 4).map_err(|_| OutOfReach)?;
        slice
            .store(value, 0, Ordering::Release)
            .map_err(|_| OutOfReach)
    }
}
