//! The write buffer: a write is acknowledged when it is in DRAM, and goes to flash later. With power-loss protection a
//! capacitor saves that DRAM when power fails; without it the buffer is volatile, and a write is durable after a flush.
//!
//! Pages leave by count, never by time: when an eighth of the slots is free, or as many as a word line has, those that have been in
//! the buffer for longest are written, a word line at a time. What the host overwrites or deallocates before that never reaches flash. A
//! page that leaves takes the path of a write without a buffer: its content is looked up, and it is remapped or
//! programmed with a new number.
//!
//! A slot is filled again only once the page that left it is durable on flash (`records::buffer`). This is the only time
//! that a host waits for flash: the buffer fills faster than flash takes its pages.
//!
//! Invariants: an LPN in a saved buffer has no mapping, so that nothing on flash can be newer (some schemes give pages and
//! entries that collection moves new numbers); a page in a volatile buffer is no witness, and its LPN keeps its mapping
//! until the page leaves with a number newer than all others; every verb but reads, writes, deallocations and some remaps
//! (`buffered_remaps`) first writes back the pages that it concerns. Absent: the slots.

use crate::config::guard::Guard;
use crate::error::{RecoveryError, Refusal};
use crate::ftl::Ftl;
use crate::records::buffer::{BufferedPage, FoundSlot, PutOrder, Superseded};
use crate::recovery::witnesses::Witnesses;
use remap_ssd_media::{After, ClearId, Lpn, PageView, Payload, Ppn};
use std::ops::Range;

/// Logical pages that a volatile write buffer held at an instant: those that have been there for longest last.
///
/// By their LPNs, not by their versions: a page that is written again in the buffer takes the place of a version that a flush
/// must not lose, and leaves for it.
#[derive(Debug)]
pub struct BufferedPages(Vec<Lpn>);

/// The share of the slots that is kept free.
const FREE_ONE_IN: u32 = 8;

impl Ftl {
    /// Pages that the write buffer holds now.
    pub fn buffered_pages(&self) -> u32 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }

    pub(crate) fn is_buffered(&self, lpn: Lpn) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| buffer.has(lpn))
    }

    /// Returns true if a page that `find` returned is on flash, not in the write buffer.
    #[inline]
    pub fn is_on_flash(&self, ppn: Ppn) -> bool {
        ppn.0 < self.core.geometry.pages()
    }

    /// The number of a page in the buffer: past the last page of flash.
    #[inline]
    pub(crate) fn find_buffered(&self, lpn: Lpn) -> Option<Ppn> {
        let slot = self.buffer.as_ref()?.slot(lpn)?;
        Some(Ppn(self.core.geometry.pages() + slot))
    }

    /// The content of a page in the buffer; `None` if the page is on flash.
    #[inline]
    pub(crate) fn buffered_view(&self, ppn: Ppn) -> Option<PageView<'_>> {
        let buffer = self.buffer.as_ref()?;
        let slot = ppn.0.checked_sub(self.core.geometry.pages())?;
        Some(buffer.view(slot, self.core.media.mode()))
    }

    /// Writes a page to the buffer. `is_merged`: it keeps a part of what it had.
    #[cold]
    pub(crate) fn write_buffered(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        is_merged: bool,
    ) -> Result<(), Refusal> {
        // Room first: if flash takes no more pages, nothing has changed.
        self.make_buffer_room(lpn)?;
        self.enter_buffer(lpn, payload, is_merged)?;
        self.core.stats.host_writes += 1;
        Ok(())
    }

    /// Puts a page into a buffer that has room.
    pub(crate) fn enter_buffer(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        is_merged: bool,
    ) -> Result<(), Refusal> {
        let is_volatile = self.core.config.has_volatile_buffer();
        if !is_volatile && self.core.config.caches_mapping() {
            self.cache_entry(lpn)?;
        }
        // Where the page is now that was read.
        let merged_after = is_merged.then(|| match self.core.tables.map.get(lpn) {
            Some(mapping) => After::page(mapping.ppn).and(After::FENCE),
            None => After::FENCE,
        });
        if let Some(buffer) = &mut self.buffer {
            let open = self.open_write.as_ref().map(|write| &write.open);
            // A page that a cut loses is no witness: it takes a number of the clock when it leaves.
            let number = match open {
                _ if is_volatile => buffer.next_number(),
                Some(open) => open.wsn,
                None => self.core.clock.tick(),
            };
            let waits = PutOrder {
                merged: merged_after,
                opened: open.map_or(ClearId::default(), |open| open.opened),
                slots: open.and_then(|open| open.slots).unwrap_or_default(),
            };
            let replaced = buffer.put(&mut self.core.media, lpn, number, payload, waits);
            self.core.stats.buffer_overwritten += u64::from(replaced);
        }
        // 1. the slot  2. the tables. What is reclaimed because of 2 waits for 1. A volatile slot survives no cut, so
        // the page on flash stays the newest witness.
        if !is_volatile {
            self.core.unlink(lpn);
        }
        Ok(())
    }

    /// Writes the oldest pages back until enough slots are free for a write of `lpn`. A slot that has been free for a while
    /// is filled without a wait.
    pub(crate) fn make_buffer_room(&mut self, lpn: Lpn) -> Result<(), Refusal> {
        self.make_slots(1, lpn..lpn.offset(1))
    }

    /// The same for a write of several pages.
    pub(crate) fn make_slots(&mut self, pages: u32, written: Range<Lpn>) -> Result<(), Refusal> {
        // A word line at a time, unless that is more than half of the buffer.
        let slots = self.core.config.buffer_slots(&self.core.geometry);
        let count = self.core.geometry.stripe().clamp(1, slots / 2);
        let least = count.max(slots / FREE_ONE_IN);
        while let Some(buffer) = &mut self.buffer
            && buffer.free_slots() < least.max(pages)
        {
            let oldest = buffer.oldest(count, written.clone());
            if oldest.is_empty() {
                break;
            }
            self.write_back_pages(&oldest)?;
        }
        Ok(())
    }

    /// Writes the pages of a range that are in the buffer to flash, for a command that is durable when it is acknowledged.
    ///
    /// # Errors
    /// Those of `write`. The pages that were not written stay in the buffer.
    #[inline]
    pub(crate) fn write_back(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        match &self.buffer {
            Some(buffer) => {
                let pages = buffer.within(lpn..lpn.offset(len));
                self.write_back_pages(&pages)?;
                self.wait_for_volatile(pages);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The acknowledgement waits for pages that have left a volatile buffer: 1. the page, and its entry if it was
    /// remapped  2. the acknowledgement.
    fn wait_for_volatile(&mut self, lpns: impl IntoIterator<Item = Lpn>) {
        let config = &self.core.config;
        if !config.has_volatile_buffer() || !config.guards.has(Guard::FlushWaits) {
            return;
        }
        for lpn in lpns {
            if let Some(place) = self.core.tables.map.get(lpn) {
                let after = After::page(place.ppn).and(After::FENCE);
                self.core.media.ack_after(after);
            }
        }
    }

    /// Completes when the newest pages of a range are durable, as a write with FUA does. Only a volatile write buffer makes a
    /// difference between this and the acknowledgement of the writes.
    ///
    /// # Errors
    /// Those of `write`. The pages that were not written stay in the buffer.
    pub fn make_durable(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        let range = self.range(lpn, len)?;
        self.end_write();
        if self.core.config.has_volatile_buffer() {
            self.write_back(lpn, len)?;
            self.core.fill_lines();
            // Also for those that made room for later pages of the same command.
            self.wait_for_volatile(Lpn::between(range));
        }
        Ok(())
    }

    /// The pages that a volatile write buffer holds now, for `write_back_listed`. A buffer that a capacitor saves has none to write.
    pub fn volatile_pages(&mut self) -> BufferedPages {
        let mut lpns = match &mut self.buffer {
            Some(buffer) if self.core.config.has_volatile_buffer() => {
                buffer.oldest(u32::MAX, Lpn::ZERO..Lpn::ZERO)
            }
            _ => Vec::new(),
        };
        lpns.reverse();
        BufferedPages(lpns)
    }

    /// Writes back at most `pages` of these pages, and takes them from the list; returns how many. Pages that have left the buffer
    /// since are passed over, so fewer than `pages` are the last ones.
    ///
    /// # Errors
    /// Those of `write`. The pages that were not written stay in the buffer.
    pub fn write_back_listed(
        &mut self,
        listed: &mut BufferedPages,
        pages: u32,
    ) -> Result<u32, Refusal> {
        let Some(buffer) = &self.buffer else {
            return Ok(0);
        };
        let next = std::iter::from_fn(|| listed.0.pop());
        let held = next.filter(|lpn| buffer.slot(*lpn).is_some());
        let held: Vec<Lpn> = held.take(pages as usize).collect();
        self.write_back_pages(&held)?;
        Ok(held.len() as u32)
    }

    #[cold]
    pub(super) fn write_back_pages(&mut self, lpns: &[Lpn]) -> Result<(), Refusal> {
        if lpns.is_empty() {
            return Ok(());
        }
        self.end_write();
        let mark = self.core.media.begin_write_back();
        let earlier = self.core.stats.remap_counts();
        let buffer = self.buffer.as_ref().expect("it has pages");
        let leaving = match self.core.config.has_volatile_buffer() {
            true => buffer.with_sets(lpns).into(),
            false => buffer.with_twins(lpns),
        };
        let sets: Vec<Option<u64>> = leaving.iter().map(|lpn| buffer.sets.of(*lpn)).collect();
        let mut written = 0;
        let result = sets
            .chunk_by(|one, other| one.is_some() && one == other)
            .try_for_each(|set| {
                match &leaving[written..written + set.len()] {
                    [lpn] => self.write_back_page(*lpn)?,
                    lpns => self.write_back_set(lpns)?,
                }
                written += set.len();
                Ok(())
            });
        // 1. the entries of the pages that were remapped  2. their slots are filled again.
        self.end_write();
        for lpn in &leaving[..written] {
            self.leave_buffer(*lpn);
        }
        self.core.media.end_write_back(&mark);
        if let Some(buffer) = &mut self.buffer {
            buffer.remapped += self.core.stats.remap_counts() - earlier;
        }
        result
    }

    pub(super) fn write_back_page(&mut self, lpn: Lpn) -> Result<(), Refusal> {
        self.may_change()?;
        if self.core.config.caches_mapping() {
            self.cache_entry(lpn)?;
        }
        let buffer = self.buffer.as_ref().expect("it has pages");
        let page = buffer.page(lpn).expect("the page is in the buffer").clone();
        if page.committed != ClearId::default() && self.remaps() {
            // An entry names other waits already.
            self.core.media.fence();
        }
        // A page in a saved buffer has a mapping only if it has been written just now.
        let has_left = |twin: &Lpn| self.core.tables.map.get(*twin).is_some();
        match buffer.twin(lpn).filter(has_left) {
            Some(twin) => self.write_twin(lpn, twin, &page),
            None if page.is_merged => self.write_back_merged(lpn, &page.payload()),
            None if self.open_write.is_some() => {
                self.write_page(lpn, &page.payload(), self.written_order())
            }
            None => self.write_page(lpn, &page.payload(), page.order()),
        }
    }

    /// A page is on flash. Its slot is filled again once that is durable.
    fn leave_buffer(&mut self, lpn: Lpn) {
        self.core.stats.buffer_written_back += 1;
        let place = self.core.tables.map.get(lpn).expect("it was written");
        let superseded = if place.remapped {
            Superseded::ByEntry(place.ppn)
        } else {
            Superseded::ByProgram(place.ppn)
        };
        if let Some(buffer) = &mut self.buffer {
            buffer.remove(lpn, superseded);
        }
    }

    /// The host has deallocated LPNs, and their record is stored: their pages leave the buffer for nothing.
    #[inline]
    pub(crate) fn forget_buffered(&mut self, lpns: Range<Lpn>) {
        if let Some(buffer) = &mut self.buffer {
            for lpn in buffer.within(lpns) {
                buffer.remove(lpn, Superseded::ByStore);
                self.core.stats.buffer_deallocated += 1;
            }
        }
    }

    /// Reads the buffer at recovery.
    ///
    /// # Errors
    /// `NvramDamaged`: a page cannot be read, nor the LPN that it belongs to.
    pub(crate) fn read_buffer(
        &mut self,
        witnesses: &mut Witnesses,
    ) -> Result<Vec<(u32, BufferedPage)>, RecoveryError> {
        let Some(buffer) = &mut self.buffer else {
            return Ok(Vec::new());
        };
        if self.core.config.has_volatile_buffer() {
            return Ok(Vec::new());
        }
        witnesses.charge_scan(&mut self.core.media, buffer.scanned_words());
        let mut pages = Vec::new();
        for found in buffer.read_back(&mut self.core.media) {
            match found {
                // Its write has not ended; the word that says so stays until the slot is empty.
                FoundSlot::Page { slot, page } if witnesses.is_aborted(page.wsn) => {
                    witnesses.zero(buffer.first_words(slot));
                }
                FoundSlot::Page { slot, page } => {
                    witnesses.buffered(&mut self.core.tables.map, page.lpn, page.wsn);
                    pages.push((slot, page));
                }
                FoundSlot::Unreadable { slot, wsn, .. } if witnesses.is_aborted(wsn) => {
                    buffer.note_damage(slot);
                }
                FoundSlot::Unreadable { slot, lpn, wsn } => {
                    witnesses.doubt(lpn, wsn);
                    // Later numbers are newer, those of the marks of doubts too.
                    witnesses.saw(if wsn == u64::MAX { 0 } else { wsn });
                    buffer.note_damage(slot);
                }
                FoundSlot::Unknown { word } => return Err(RecoveryError::NvramDamaged { word }),
            }
        }
        Ok(pages)
    }

    /// Continues with the pages that are the newest versions of their LPNs.
    pub(crate) fn resume_buffer(&mut self, pages: Vec<(u32, BufferedPage)>, witnesses: &Witnesses) {
        if let Some(buffer) = &mut self.buffer {
            let newest = pages
                .into_iter()
                .filter(|(_, page)| witnesses.is_buffered(page.lpn, page.wsn));
            buffer.resume(newest.collect());
        }
    }
}
