//! Deallocations: what makes a trimmed page stay trimmed.
//!
//! An older witness of a deallocated LPN may lie on flash for years, so the deallocation itself is persisted: as
//! an extent in a small NVRAM log and, when a half of that log is full, in bitmaps of unmapped LPNs that are
//! ordinary flash pages under internal LPNs behind the host's. GC moves them, recovery finds them, like data.
//!
//! Invariants: an LPN without mapping has a record or bitmap newer than all its other witnesses; a deallocation is
//! never refused. Absent: which pages become garbage (the core's tables say).

use crate::config::CHUNK_LPNS;
use crate::core::Core;
use crate::guard::Guard;
use crate::layout::DEALLOC_WORDS;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Purpose};
use std::collections::BTreeSet;

/// First word of a record.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct DeallocWhen {
    /// Torn bit.
    pub torn: bool,
    #[bits(21)]
    __: u32,
    /// Sequence number.
    #[bits(42)]
    pub wsn: u64,
}

/// Second word of a record.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct DeallocWhat {
    /// Torn bit.
    pub torn: bool,
    /// First LPN.
    #[bits(31)]
    pub lpn: u32,
    /// Pages.
    #[bits(32)]
    pub len: u32,
}

/// The NVRAM log.
#[derive(Default)]
pub struct DeallocLog {
    half: usize,
    used: usize,
    clears: [ClearId; 2],
    /// Bitmaps that the records of the active half concern.
    touched: BTreeSet<u32>,
    interrupted: bool,
}

impl DeallocLog {
    fn word(core: &Core, half: usize, slot: usize) -> usize {
        core.layout.dealloc + (half * core.layout.dealloc_slots + slot) * DEALLOC_WORDS
    }

    /// Appends an extent. `after` is what must be durable before.
    pub fn append(&mut self, core: &mut Core, lpn: u32, len: u32, wsn: u64, purpose: Purpose, after: After) {
        if !core.config.guards.has(Guard::Deallocations) || len == 0 {
            return;
        }
        assert!(self.room(core) > 0, "a slot was secured");
        let at = Self::word(core, self.half, self.used);
        let after = after.and(After::clear(self.clears[self.half]));
        let when = DeallocWhen::new().with_torn(true).with_wsn(wsn);
        let what = DeallocWhat::new().with_torn(true).with_lpn(lpn).with_len(len);
        core.media.store_record(at, &[when.into(), what.into()], purpose, after);
        self.used += 1;
        self.touched.extend(lpn / CHUNK_LPNS..=(lpn + len - 1) / CHUNK_LPNS);
    }

    /// Takes the full half's bitmaps to write, and makes the other half the active one.
    pub fn turn(&mut self) -> (usize, BTreeSet<u32>) {
        let full = self.half;
        self.half ^= 1;
        self.used = 0;
        self.interrupted = false;
        (full, std::mem::take(&mut self.touched))
    }

    /// Resets a half whose bitmaps have been written.
    pub fn reset(&mut self, core: &mut Core, half: usize) {
        // 1. everything before, the bitmaps among it  2. zeroes. Cut between: both say the same.
        let waits = core.config.guards.has(Guard::DeallocFlush);
        let after = if waits { After::ALL } else { After::NOTHING };
        let at = Self::word(core, half, 0);
        self.clears[half] = core.media.clear(at, core.layout.dealloc_slots * DEALLOC_WORDS, after);
    }

    /// Resets both halves, after a flush that a cut had interrupted was done again.
    pub fn reset_both(&mut self, core: &mut Core) {
        (0..2).for_each(|half| self.reset(core, half));
    }

    /// The bitmap of one chunk: a set bit for each LPN without mapping.
    pub fn bitmap(core: &Core, chunk: u32) -> Vec<u8> {
        let first = chunk * CHUNK_LPNS;
        let last = (first + CHUNK_LPNS).min(core.config.lpns);
        let mut bits = vec![0u8; (last - first).div_ceil(8) as usize];
        for lpn in first..last {
            if core.map.get(lpn).is_none() {
                bits[((lpn - first) / 8) as usize] |= 1 << (lpn % 8);
            }
        }
        bits
    }

    /// Reads the log back: every intact record with its number and its first word, and where to go on. Words that cannot
    /// be read are reported by their address.
    pub fn read_back(&mut self, core: &mut Core) -> Result<Vec<(u32, u32, u64, usize)>, usize> {
        let mut found = Vec::new();
        let mut used = [0; 2];
        for (half, used) in used.iter_mut().enumerate() {
            for slot in 0..core.layout.dealloc_slots {
                let at = Self::word(core, half, slot);
                let first = core.media.load(at).map_err(|_| at)?;
                let second = core.media.load(at + 1).map_err(|_| at + 1)?;
                if first == 0 && second == 0 {
                    continue;
                }
                *used = slot + 1;
                let (when, what) = (DeallocWhen::from_bits(first), DeallocWhat::from_bits(second));
                let intact = when.torn() && what.torn() || !core.config.guards.has(Guard::TornBits);
                if intact && u64::from(what.lpn()) + u64::from(what.len()) <= u64::from(core.config.lpns) {
                    found.push((what.lpn(), what.len(), when.wsn(), at));
                }
            }
        }
        // Both halves hold records if a cut came during a flush: then the flush is done again.
        self.half = usize::from(used[1] > used[0]);
        self.used = used[self.half];
        self.interrupted = used[self.half ^ 1] > 0;
        for &(lpn, len, ..) in found.iter().filter(|(_, len, ..)| *len > 0) {
            self.touched.extend(lpn / CHUNK_LPNS..=(lpn + len - 1) / CHUNK_LPNS);
        }
        Ok(found)
    }

    /// Did a cut interrupt a flush?
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The bitmap of an LPN must be part of the next flush.
    pub fn touch(&mut self, lpn: u32) {
        self.touched.insert(lpn / CHUNK_LPNS);
    }

    /// Free slots of the active half.
    pub fn room(&self, core: &Core) -> usize {
        core.layout.dealloc_slots - self.used
    }
}
