//! Deallocations: keep a trimmed page trimmed across power cuts.
//!
//! An older witness of a deallocated LPN may stay on flash for years, so the deallocation is
//! persisted: as an extent in a small NVRAM log and, when a half of that log is full, in bitmaps of
//! unmapped LPNs. These are ordinary flash pages under internal LPNs after the host's: GC moves
//! them and recovery finds them like data.
//!
//! Invariants: an LPN without mapping has a record or bitmap newer than all its other witnesses; a
//! deallocation is never refused. While LPNs in doubt have no pages that mark them, the log records
//! them (`record_doubt`). Absent: which pages become garbage (the core's tables).

use crate::config::guard::{Guard, Guards};
use crate::config::layout::{DEALLOC_WORDS, NvramLayout};
use crate::config::{Config, chunk_of};
use crate::mapping::tables::Tables;
use crate::records::buffer::WriteBuffer;
use crate::records::doubts::DoubtRun;
use crate::records::newest::{NumberedRange, newest_of};
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Lpn, Media, Ppn, Purpose};
use std::collections::{BTreeSet, VecDeque};

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
    /// First LPN of the extent. In a record of a doubt of no pages: the flash page that lists the LPNs.
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
    /// Slots of the other half that hold no record, at recovery.
    free: VecDeque<FreeSlot>,
    /// Unreadable records, which recovery zeroes at its end.
    damaged: Vec<usize>,
    /// Records of doubts, which recovery zeroes at its end if all LPNs in doubt have pages.
    doubts: Vec<usize>,
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
    /// LPNs that an earlier recovery found in doubt but did not mark: first LPN, pages, and the
    /// number, if it can be read.
    pub doubts: Vec<(Lpn, u32, Option<u64>)>,
    /// Pages that list more of them.
    pub doubt_pages: Vec<Ppn>,
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

    /// Notes a record of a doubt, at this address, or the list that it names.
    fn note_doubt(&mut self, at: usize, lpn_and_len: Option<(Lpn, u32)>, wsn: Option<u64>) {
        match lpn_and_len {
            Some((page, 0)) => self.doubt_pages.push(Ppn(page.0)),
            Some((lpn, len)) => self.doubts.push((lpn, len, wsn)),
            // An LPN in doubt has no page in younger bitmaps either.
            None => self.unknown.push((at + 1, u64::MAX)),
        }
    }

    /// Bounds the numbers of unreadable records, from this one of `between` on, by that of the first readable record after them.
    fn end_between(&mut self, first: usize, wsn: u64) {
        let open = |(_, _, _, to): &&mut (Lpn, u32, u64, u64)| *to == u64::MAX;
        let records = self.between[first..].iter_mut().filter(open);
        records.for_each(|record| record.3 = wsn);
    }
}

/// Slots of a half that recovery found in use, counted from its first.
#[derive(Default)]
struct SlotsFound {
    /// Up to the last deallocation.
    used: usize,
    /// Up to the last record of any kind.
    taken: usize,
    /// Those without a record.
    free: VecDeque<FreeSlot>,
}

/// A slot without a record.
struct FreeSlot {
    /// Address of its first word.
    at: usize,
    /// It has a part of a record.
    is_torn: bool,
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
            free: VecDeque::new(),
            damaged: Vec::new(),
            doubts: Vec::new(),
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
        let mut halves = [0, 1].map(|half| self.read_half(media, half, &mut found));

        // If both halves hold deallocations, a cut interrupted a flush, which is then repeated.
        self.half = usize::from(halves[1].used > halves[0].used);
        self.used = halves[self.half].taken;
        self.free = std::mem::take(&mut halves[self.half ^ 1].free);
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
                let is_torn = false;
                slots.free.push_back(FreeSlot { at, is_torn });
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

            let is_torn =
                when.is_ok_and(|when| !when.torn()) || what.is_ok_and(|what| !what.torn());
            let is_mixed = is_doubt && kinds.contains(&Ok(false));
            let torn_bits = self.guards.has(Guard::TornBits);
            let is_none =
                (is_torn || is_mixed) && torn_bits || what.is_ok_and(|what| !self.fits(&what));

            // A list is needed as long as its record, also if the number of the record cannot be read: the list has it too.
            let names_list = is_doubt && !is_none && what.is_ok_and(|what| what.len() == 0);
            if names_list {
                self.doubts.push(at);
            } else if words.iter().any(Result::is_err) {
                self.damaged.push(at);
            } else if is_none {
                let is_torn = true;
                slots.free.push_back(FreeSlot { at, is_torn });
                self.damaged.extend(is_doubt.then_some(at));
            } else if is_doubt {
                self.doubts.push(at);
            }
            if is_none {
                continue;
            }

            let lpn_and_len = what.map(|what| (what.lpn(), what.len())).ok();
            let wsn = when.map(|when| when.wsn()).ok();
            if is_doubt {
                found.note_doubt(at, lpn_and_len, wsn);
                continue;
            }

            match (wsn, lpn_and_len) {
                (Some(wsn), Some((lpn, len))) => {
                    newest = wsn;
                    found.intact.push(DeallocRecord { lpn, len, wsn, at });
                }
                (None, Some((lpn, len))) => found.between.push((lpn, len, newest, u64::MAX)),
                (wsn, None) => found.unknown.push((at + 1, wsn.unwrap_or(u64::MAX))),
            }

            if let Some(wsn) = wsn {
                found.end_between(first_of_half, wsn);
            }
        }
        slots
    }

    /// A range outside this device is a remnant of a larger device or of a damaged word.
    fn fits(&self, what: &DeallocWhat) -> bool {
        let names_page = what.doubt() && what.len() == 0;
        names_page || u64::from(what.lpn()) + u64::from(what.len()) <= u64::from(self.lpns)
    }

    /// Slots for records of doubts: those that recovery has found free in the half that takes no deallocations until its end.
    pub(crate) fn doubt_room(&self) -> usize {
        self.free.len()
    }

    /// Zeroes the free slots with parts of records.
    pub(crate) fn clean_doubt_room(&mut self, media: &mut Media) {
        let is_clean = !self.free.iter().any(|slot| slot.is_torn);
        if is_clean {
            return;
        }
        for slot in self.free.iter_mut().filter(|slot| slot.is_torn) {
            let words = [0; DEALLOC_WORDS];
            media.store_record(slot.at, &words, Purpose::Meta, After::NOTHING);
            slot.is_torn = false;
        }
        // 1. zeroes  2. new records. A word of an old and one of a new record would make one of doubts that may be over.
        media.fence();
    }

    /// Records LPNs in doubt. There is room for it.
    pub(crate) fn record_doubt(&mut self, media: &mut Media, wsn: u64, run: DoubtRun) {
        let what = DeallocWhat::new().with_lpn(Lpn(run.lpn)).with_len(run.len);
        self.append_doubt(media, wsn, what, After::NOTHING);
    }

    /// Records the LPNs in doubt that are listed in this page, and in those before it. There is room for it.
    pub(crate) fn record_doubts_in(&mut self, media: &mut Media, wsn: u64, page: Ppn) {
        // 1. the pages  2. the record that names them.
        let what = DeallocWhat::new().with_lpn(Lpn(page.0)).with_len(0);
        self.append_doubt(media, wsn, what, After::ALL);
    }

    fn append_doubt(&mut self, media: &mut Media, wsn: u64, what: DeallocWhat, after: After) {
        let slot = self.free.pop_front().expect("the room was checked");
        let FreeSlot { at, is_torn } = slot;
        assert!(!is_torn, "it was cleaned");
        let when = DeallocWhen::new()
            .with_torn(true)
            .with_doubt(true)
            .with_wsn(wsn);
        let what = what.with_torn(true).with_doubt(true);
        media.store_record(at, &[when.into(), what.into()], Purpose::Meta, after);

        self.doubts.push(at);
    }

    /// Ends a recovery after which all LPNs in doubt have pages: zeroes the halves that bitmaps have replaced, the records that
    /// recovery could not read, and those of doubts.
    pub(crate) fn finish(&mut self, media: &mut Media, flushed: Vec<usize>) {
        flushed.into_iter().for_each(|half| self.reset(media, half));

        // After the pages of the doubts: until these are durable, the damaged record is the only
        // sign of the doubt.
        let doubts = std::mem::take(&mut self.doubts);
        let damaged = std::mem::take(&mut self.damaged);
        self.zero(media, doubts.into_iter().chain(damaged));
    }

    /// Ends a recovery after which the records of doubts are still needed.
    pub(crate) fn finish_in_doubt(&mut self, media: &mut Media, flushed: &[usize]) {
        let mut gone = std::mem::take(&mut self.damaged);
        for half in flushed {
            gone.extend((0..self.slots).map(|slot| self.word(*half, slot)));
        }
        gone.retain(|at| !self.doubts.contains(at));
        self.zero(media, gone.into_iter());
    }

    fn zero(&self, media: &mut Media, records: impl Iterator<Item = usize>) {
        for at in records {
            let words = [0; DEALLOC_WORDS];
            media.store_record(at, &words, Purpose::Meta, self.guards.after_doubts());
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
