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
    /// Records that recovery could not read.
    damaged: Vec<usize>,
}

/// An intact record.
#[derive(Clone, Copy)]
pub struct Record {
    /// First LPN.
    pub lpn: u32,
    /// Pages.
    pub len: u32,
    /// Sequence number.
    pub wsn: u64,
    /// Its first word in NVRAM.
    pub at: usize,
}

/// What recovery reads.
#[derive(Default)]
pub struct Records {
    /// Records that can be read.
    pub intact: Vec<Record>,
    /// Records whose number cannot be read: first LPN, pages, and the numbers of the records before and after.
    pub between: Vec<(u32, u32, u64, u64)>,
    /// Records whose LPNs cannot be read: the word, and the number.
    pub unknown: Vec<(usize, u64)>,
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

    /// Reads the log at recovery, and finds where to append.
    pub fn read_back(&mut self, core: &mut Core) -> Records {
        let mut found = Records::default();
        let mut used = [0; 2];

        for (half, used) in used.iter_mut().enumerate() {
            // Numbers ascend within a half.
            let mut newest = 0;
            let first_of_half = found.between.len();
            for slot in 0..core.layout.dealloc_slots {
                let at = Self::word(core, half, slot);
                let words = [core.media.load(at), core.media.load(at + 1)];
                if words == [Ok(0), Ok(0)] {
                    continue;
                }
                *used = slot + 1;
                let when = words[0].map(DeallocWhen::from_bits);
                let what = words[1].map(DeallocWhat::from_bits);
                if words.iter().any(Result::is_err) {
                    self.damaged.push(at);
                }

                let torn_bits = core.config.guards.has(Guard::TornBits);
                let is_torn = when.is_ok_and(|when| !when.torn()) || what.is_ok_and(|what| !what.torn());
                let fits =
                    |what: &DeallocWhat| u64::from(what.lpn()) + u64::from(what.len()) <= u64::from(core.config.lpns);
                if is_torn && torn_bits || what.is_ok_and(|what| !fits(&what)) {
                    continue;
                }

                match (when, what) {
                    (Ok(when), Ok(what)) => {
                        newest = when.wsn();
                        found.intact.push(Record { lpn: what.lpn(), len: what.len(), wsn: newest, at });
                    }
                    (Err(_), Ok(what)) => found.between.push((what.lpn(), what.len(), newest, u64::MAX)),
                    (when, Err(_)) => found.unknown.push((at + 1, when.map_or(u64::MAX, |when| when.wsn()))),
                }
                if let Ok(when) = when {
                    let open = |(_, _, _, to): &&mut (u32, u32, u64, u64)| *to == u64::MAX;
                    found.between[first_of_half..].iter_mut().filter(open).for_each(|record| record.3 = when.wsn());
                }
            }
        }

        // Both halves hold records if a cut came during a flush: then the flush is done again.
        self.half = usize::from(used[1] > used[0]);
        self.used = used[self.half];
        self.interrupted = used[self.half ^ 1] > 0;
        for &Record { lpn, len, .. } in found.intact.iter().filter(|record| record.len > 0) {
            self.touched.extend(lpn / CHUNK_LPNS..=(lpn + len - 1) / CHUNK_LPNS);
        }
        found
    }

    /// Zeroes the records that recovery could not read.
    pub fn heal(&mut self, core: &mut Core) {
        for at in std::mem::take(&mut self.damaged) {
            core.media.store_record(at, &[0; DEALLOC_WORDS], Purpose::Meta, core.after_doubts());
        }
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
