//! Deallocations: keep a trimmed page trimmed across power cuts.
//!
//! An older witness of a deallocated LPN may stay on flash for years, so the deallocation is
//! persisted: as an extent in a small NVRAM log and, when a half of that log is full, in bitmaps of
//! unmapped LPNs. These are ordinary flash pages under internal LPNs after the host's: GC moves
//! them and recovery finds them like data.
//!
//! Invariants: an LPN without mapping has a record or bitmap newer than all its other witnesses; a
//! deallocation is never refused. While recovery waits for flash space to mark LPNs in doubt, the
//! log records them (`record_doubts`). Absent: which pages become garbage (the core's tables).

use crate::clock::WsnClock;
use crate::config::guard::{Guard, Guards};
use crate::config::layout::{DEALLOC_WORDS, NvramLayout};
use crate::config::{Config, chunk_of};
use crate::mapping::tables::Tables;
use crate::records::buffer::WriteBuffer;
use crate::records::newest::{NumberedRange, newest_of};
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Lpn, Media, Purpose};
use std::collections::BTreeSet;

/// First word of a record.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(crate) struct DeallocWhen {
    pub torn: bool,
    /// The LPNs were in doubt, not deallocated.
    pub doubt: bool,
    #[bits(20)]
    __: u32,
    #[bits(42)]
    pub wsn: u64,
}

/// Second word of a record.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(crate) struct DeallocWhat {
    pub torn: bool,
    /// First LPN of the extent.
    #[bits(31)]
    pub lpn: Lpn,
    /// Number of pages.
    #[bits(31)]
    pub len: u32,
    /// As in the first word: two halves of different kinds do not make a record.
    pub doubt: bool,
}

/// The log of deallocations in NVRAM.
pub(crate) struct DeallocLog {
    guards: Guards,
    lpns: u32,
    /// First word of the log, and slots of each half.
    base: usize,
    slots: usize,
    half: usize,
    used: usize,
    clears: [ClearId; 2],
    /// Bitmaps affected by the records of the active half.
    touched: BTreeSet<u32>,
    interrupted: bool,
    /// First empty slot of the other half, at recovery.
    spare: usize,
    /// Records that recovery zeroes at its end: unreadable ones, and those of doubts.
    damaged: Vec<usize>,
}

/// An intact record.
#[derive(Clone, Copy)]
pub(crate) struct DeallocRecord {
    /// First LPN of the extent.
    pub lpn: Lpn,
    /// Number of pages.
    pub len: u32,
    pub wsn: u64,
    /// Address of its first word.
    pub at: usize,
}

/// Deallocation records read by recovery.
#[derive(Default)]
pub(crate) struct DeallocRecords {
    /// Records that can be read.
    pub intact: Vec<DeallocRecord>,
    /// Records whose number cannot be read: first LPN, pages, and the numbers of the records before
    /// and after.
    pub between: Vec<(Lpn, u32, u64, u64)>,
    /// Records whose LPNs cannot be read: address of the word, and the number.
    pub unknown: Vec<(usize, u64)>,
    /// LPNs that an earlier recovery found in doubt but did not mark before power failed: first
    /// LPN, pages, number.
    pub doubts: Vec<(Lpn, u32, u64)>,
}

impl DeallocRecords {
    /// The LPNs and numbers of the records that can be read.
    pub(crate) fn intact_ranges(&self) -> Vec<NumberedRange> {
        let range = |record: &DeallocRecord| {
            let DeallocRecord { lpn, len, wsn, .. } = *record;
            NumberedRange::new(lpn, len, wsn)
        };
        self.intact.iter().map(range).collect()
    }
}

/// Slots of a half that recovery found in use, counted from its first.
#[derive(Default)]
struct SlotsFound {
    /// Up to the last deallocation.
    used: usize,
    /// Up to the last record of any kind.
    taken: usize,
}

impl DeallocLog {
    /// A log without records; `read_back` finds those on the media.
    pub(crate) fn new(config: &Config, layout: &NvramLayout) -> Self {
        Self {
            guards: config.guards,
            lpns: config.lpns,
            base: layout.dealloc,
            slots: layout.dealloc_slots,
            half: 0,
            used: 0,
            clears: [ClearId::default(); 2],
            touched: BTreeSet::new(),
            interrupted: false,
            spare: 0,
            damaged: Vec::new(),
        }
    }

    fn word(&self, half: usize, slot: usize) -> usize {
        self.base + (half * self.slots + slot) * DEALLOC_WORDS
    }

    /// Appends an extent. `after`: what must be durable first.
    pub(crate) fn append(
        &mut self,
        media: &mut Media,
        lpn: Lpn,
        len: u32,
        wsn: u64,
        purpose: Purpose,
        after: After,
    ) {
        if !self.guards.has(Guard::Deallocations) || len == 0 {
            return;
        }

        assert!(self.room() > 0, "a slot was secured");

        // The slot may just have been zeroed. A record that landed before those zeroes would be
        // erased by them.
        let at = self.word(self.half, self.used);
        let after = after.and(After::clear(self.clears[self.half]));
        let when = DeallocWhen::new().with_torn(true).with_wsn(wsn);
        let what = DeallocWhat::new()
            .with_torn(true)
            .with_lpn(lpn)
            .with_len(len);
        media.store_record(at, &[when.into(), what.into()], purpose, after);
        // The chunks that a flush of this half must write. A range may span several.
        self.used += 1;
        self.touched
            .extend(chunk_of(lpn)..=chunk_of(lpn.offset(len - 1)));
    }

    /// Switches to the other half; returns the full half and the bitmaps to write for it.
    pub(crate) fn turn(&mut self) -> (usize, BTreeSet<u32>) {
        let full = self.half;
        self.half ^= 1;
        self.used = 0;
        (full, std::mem::take(&mut self.touched))
    }

    /// Zeroes a half whose bitmaps have been written.
    pub(crate) fn reset(&mut self, media: &mut Media, half: usize) {
        // 1. everything before, including the bitmaps  2. zeroes. Cut between: both record the
        // same.
        let after = self.guards.waits(Guard::DeallocFlush, After::ALL);
        let at = self.word(half, 0);
        self.clears[half] = media.clear(at, self.slots * DEALLOC_WORDS, after);
    }

    /// The bitmap of one chunk: a set bit for each LPN without mapping, unless it is in doubt or in a
    /// write buffer that a cut leaves.
    pub(crate) fn bitmap(
        config: &Config,
        tables: &Tables,
        buffer: Option<&WriteBuffer>,
        chunk: u32,
    ) -> Vec<u8> {
        let lpns = config.chunk(chunk);
        let mut bits = vec![0u8; lpns.len().div_ceil(8)];

        // An LPN in doubt has no mapping, but was not deallocated. Its bit would be newer than the
        // cause of the doubt, and would turn a media error into zeroes.
        for (at, lpn) in lpns.enumerate() {
            // Nor was one that has only been written to a buffer that a cut leaves, whose number is older too.
            let is_buffered = || {
                buffer.is_some_and(|buffer| buffer.supersedes_flash(lpn))
                    && config.guards.has(Guard::BufferedExist)
            };
            if tables.map.get(lpn).is_none()
                && tables.doubtful.binary_search(&lpn).is_err()
                && !is_buffered()
            {
                bits[at / 8] |= 1 << (at % 8);
            }
        }
        bits
    }

    /// Reads the log at recovery, and finds the slot to append to.
    pub(crate) fn read_back(&mut self, media: &mut Media) -> DeallocRecords {
        let mut found = DeallocRecords::default();
        let halves = [0, 1].map(|half| self.read_half(media, half, &mut found));

        // If both halves hold deallocations, a cut interrupted a flush, which is then repeated.
        self.half = usize::from(halves[1].used > halves[0].used);
        self.used = halves[self.half].taken;
        self.spare = halves[self.half ^ 1].taken;
        self.interrupted = halves[self.half ^ 1].used > 0;

        // Bitmaps that the next flush must write. Unreadable records are not included; they stay
        // until they are healed.
        for NumberedRange { lpns, .. } in newest_of(found.intact_ranges()) {
            self.touched
                .extend(chunk_of(lpns.start)..=chunk_of(lpns.end.back(1)));
        }
        found
    }

    fn read_half(
        &mut self,
        media: &mut Media,
        half: usize,
        found: &mut DeallocRecords,
    ) -> SlotsFound {
        let mut slots = SlotsFound::default();
        // Numbers ascend within a half.
        let mut newest = 0;
        let first_of_half = found.between.len();

        for slot in 0..self.slots {
            let at = self.word(half, slot);
            let words = [media.load(at), media.load(at + 1)];
            if words == [Ok(0), Ok(0)] {
                continue;
            }
            let when = words[0].map(DeallocWhen::from_bits);
            let what = words[1].map(DeallocWhat::from_bits);
            let kinds = [when.map(|when| when.doubt()), what.map(|what| what.doubt())];
            let is_doubt = kinds.contains(&Ok(true));

            slots.taken = slot + 1;
            // Doubts do not count as use: they are in the inactive half, and would make recovery
            // repeat a flush that was not interrupted.
            if !is_doubt {
                slots.used = slot + 1;
            }
            if is_doubt || words.iter().any(Result::is_err) {
                self.damaged.push(at);
            }

            let is_torn =
                when.is_ok_and(|when| !when.torn()) || what.is_ok_and(|what| !what.torn());
            let is_mixed = is_doubt && kinds.contains(&Ok(false));
            let torn_bits = self.guards.has(Guard::TornBits);
            if (is_torn || is_mixed) && torn_bits || what.is_ok_and(|what| !self.fits(&what)) {
                continue;
            }

            let (lpn_and_len, wsn) = (
                what.map(|what| (what.lpn(), what.len())),
                when.map(|when| when.wsn()),
            );
            match (wsn, lpn_and_len) {
                (wsn, Ok((lpn, len))) if is_doubt => {
                    found.doubts.push((lpn, len, wsn.unwrap_or(u64::MAX)));
                    continue;
                }
                (Ok(wsn), Ok((lpn, len))) => {
                    newest = wsn;
                    found.intact.push(DeallocRecord { lpn, len, wsn, at });
                }
                (Err(_), Ok((lpn, len))) => found.between.push((lpn, len, newest, u64::MAX)),
                (wsn, Err(_)) => found.unknown.push((at + 1, wsn.unwrap_or(u64::MAX))),
            }

            // The first readable record after a run of unreadable ones bounds their numbers.
            if let Ok(wsn) = wsn {
                let open = |(_, _, _, to): &&mut (Lpn, u32, u64, u64)| *to == u64::MAX;
                found.between[first_of_half..]
                    .iter_mut()
                    .filter(open)
                    .for_each(|record| record.3 = wsn);
            }
        }
        slots
    }

    /// A range outside this device is a remnant of a larger device or of a damaged word.
    fn fits(&self, what: &DeallocWhat) -> bool {
        u64::from(what.lpn()) + u64::from(what.len()) <= u64::from(self.lpns)
    }

    /// Records LPNs in doubt while recovery has no flash space to mark them as lost, in the half
    /// that takes no deallocations during recovery. Returns the number of LPNs recorded, counted
    /// from the first.
    pub(crate) fn record_doubts(
        &mut self,
        media: &mut Media,
        clock: &mut WsnClock,
        lpns: &[Lpn],
    ) -> usize {
        if lpns.is_empty() {
            return 0;
        }

        // One number for all: only the page that marks an LPN is a newer witness.
        let wsn = clock.tick();
        let when = DeallocWhen::new()
            .with_torn(true)
            .with_doubt(true)
            .with_wsn(wsn);
        let free = self.slots - self.spare;
        let mut recorded = 0;
        for run in lpns.chunk_by(|a, b| a.offset(1) == *b).take(free) {
            let at = self.word(self.half ^ 1, self.spare);
            let what = DeallocWhat::new()
                .with_torn(true)
                .with_doubt(true)
                .with_lpn(run[0])
                .with_len(run.len() as u32);
            media.store_record(
                at,
                &[when.into(), what.into()],
                Purpose::Meta,
                After::NOTHING,
            );

            self.spare += 1;
            recorded += run.len();
            self.damaged.push(at);
        }

        // 1. these records  2. the replacement of the records that caused the doubts.
        media.fence();
        recorded
    }

    /// Zeroes the records that recovery could not read, and those of doubts.
    pub(crate) fn heal(&mut self, media: &mut Media) {
        // After the pages of the doubts: until these are durable, the damaged record is the only
        // sign of the doubt.
        for at in std::mem::take(&mut self.damaged) {
            media.store_record(
                at,
                &[0; DEALLOC_WORDS],
                Purpose::Meta,
                self.guards.after_doubts(),
            );
        }
    }

    /// Returns true if a cut interrupted a flush before this power-on.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Adds the bitmap of an LPN to the next flush.
    pub(crate) fn touch(&mut self, lpn: Lpn) {
        self.touched.insert(chunk_of(lpn));
    }

    /// Free slots of the active half.
    pub(crate) fn room(&self) -> usize {
        self.slots - self.used
    }
}
