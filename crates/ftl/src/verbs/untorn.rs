//! Writes of several pages that a power cut leaves whole or absent.
//!
//! The caller announces a write (`begin_write`), writes its pages in any order, and ends it (`end_write`). All of its witnesses carry
//! one number, which a word of NVRAM holds until they are durable (`records::open_writes` has the order). Recovery ignores them
//! as long as it does, like those of an atomic remap.
//!
//! In a write buffer that a capacitor saves, the slots are the witnesses. A write that does not fit there goes past it.
//!
//! Invariants: nothing is reclaimed while a write is open, so all room is made before; a write that fails leaves every mapping as it
//! was. Absent: writes to a volatile write buffer, which are nothing durable before they leave it (`buffer`).

use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::records::buffer::Superseded;
use crate::records::open_writes::{PageOrder, UntornWrite};
use remap_ssd_media::{After, Lpn};
use std::ops::Range;

impl Ftl {
    /// The order of a page that the host writes.
    #[inline(always)]
    pub(crate) fn written_order(&self) -> PageOrder {
        match &self.open_write {
            None => PageOrder::OWN,
            Some(write) => PageOrder {
                wsn: Some(write.open.wsn),
                after: After::clear(write.open.opened),
            },
        }
    }

    /// Pages of the largest write that a power cut leaves whole or absent; 1 if only pages are.
    pub fn untorn_pages_max(&self) -> u32 {
        let (bytes, geometry) = (self.core.config.untorn_bytes, &self.core.geometry);
        // A write may begin and end within a page.
        let pages = match bytes.div_ceil(geometry.page_bytes() as u64) {
            0 => 1,
            pages => pages as u32 + 1,
        };
        pages.min(self.pages_without_reclaiming()).max(1)
    }

    /// Begins a write of these pages: after a power cut all of them are written, or none. `end_write` or the next verb but reads
    /// ends it. Larger writes than `untorn_pages_max` are written page by page.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`; `AtomicUnavailable`: interrupted writes have used up all words, and there is no
    /// flash to remove their traces.
    pub fn begin_write(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.end_write();
        self.writable(lpn, len)?;
        if len < 2 || len > self.untorn_pages_max() {
            return Ok(());
        }
        if !self.can_be_atomic() {
            return Err(Refusal::AtomicUnavailable);
        }
        let is_buffered = self.make_room_in_buffer(lpn, len)?;
        if let Some(buffer) = &mut self.buffer
            && is_buffered
            && self.core.config.has_volatile_buffer()
        {
            buffer.sets.join(lpn..lpn.offset(len));
            self.is_set = true;
            return Ok(());
        }
        if !is_buffered {
            self.make_room_for_write(len)?;
        }

        self.paused = true;
        let wsn = self.core.clock.tick();
        self.open_write(wsn, len, is_buffered);
        if !is_buffered {
            // Pages wait for the word from their word line's first page on.
            self.fill_host_line();
        }
        Ok(())
    }

    /// Returns true if the words of this device name its atomic commands, not the slot.
    pub(crate) fn has_open_words(&self) -> bool {
        self.core.config.untorn_bytes > 0
    }

    /// Returns true if another atomic command can be recorded, as aborted too should power fail during it.
    pub(crate) fn can_be_atomic(&self) -> bool {
        match self.has_open_words() {
            true => self.open_writes.has_room(),
            false => self.atomic_slot.is_free(&self.core.tables.aborted),
        }
    }

    /// Pages of the largest remap that is atomic without being asked to.
    pub(crate) fn untorn_remap_max(&self) -> u32 {
        match self.can_be_atomic() {
            true => self.untorn_pages_max().min(self.atomic_pages_max()),
            false => 1,
        }
    }

    /// Stores the word of an atomic command, whose witnesses carry this number.
    pub(crate) fn open_write(&mut self, wsn: u64, len: u32, is_buffered: bool) {
        let media = &mut self.core.media;
        self.open_write = Some(Box::new(UntornWrite {
            open: self.open_writes.begin(media, wsn, is_buffered),
            len,
            leaves: false,
            before: Vec::with_capacity(len as usize),
        }));
    }

    fn may_remap_writes(&self) -> bool {
        self.dedup.is_some() && !self.dedup_paused
    }

    /// Makes all room that a write may need: nothing is reclaimed within it.
    fn make_room_for_write(&mut self, pages: u32) -> Result<(), Refusal> {
        if self.hybrid {
            self.make_extension_room(pages)?;
        }
        self.make_cache_room()?;
        self.make_page_room()?;
        if self.may_remap_writes() {
            self.scheme.prepare(&mut self.core, pages);
        }
        Ok(())
    }

    /// Makes room in the write buffer; returns false if there is none, or the write is too large for it.
    fn make_room_in_buffer(&mut self, lpn: Lpn, pages: u32) -> Result<bool, Refusal> {
        let Some(buffer) = &self.buffer else {
            return Ok(false);
        };
        // Pages that are about to be written again do not leave: each takes a slot beside its present one.
        let held = buffer.within(lpn..lpn.offset(pages)).len() as u32;
        if held + pages > self.core.config.buffer_slots(&self.core.geometry) {
            self.part_sets(lpn..lpn.offset(pages))?;
            return Ok(false);
        }
        // A set is written back as one write, so it has no more pages than that may have.
        let beside = buffer.sets.beside(&(lpn..lpn.offset(pages)));
        if beside.len() as u32 + pages > self.untorn_pages_max() {
            self.write_back_pages(&beside)?;
        }
        self.make_slots(pages, lpn..lpn.offset(pages))?;
        self.make_cache_room()?;
        Ok(true)
    }

    /// Writes a page of the open write.
    #[inline(never)]
    pub(crate) fn write_untorn(
        &mut self,
        lpn: Lpn,
        write: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let before = self.core.tables.map.get(lpn);
        let open = self.open_write.as_mut().expect("a write is open");
        open.before.push((lpn, before));
        self.core.stats.host_writes += 1;
        let written = write(self);
        if written.is_err() {
            self.abort_write();
        }
        written
    }

    /// Something durable is about to supersede these pages in a volatile write buffer: writes back those that are in a set with
    /// others. The others could land before it, and would then be a part of a write.
    pub(crate) fn part_sets(&mut self, lpns: Range<Lpn>) -> Result<(), Refusal> {
        let sets = self.buffer.as_ref().map(|buffer| &buffer.sets);
        match sets.map(|sets| sets.beside(&lpns)) {
            Some(beside) if !beside.is_empty() => self.write_back_pages(&beside),
            _ => Ok(()),
        }
    }

    /// Writes pages of a volatile write buffer to flash as one write.
    pub(crate) fn write_back_set(&mut self, lpns: &[Lpn]) -> Result<(), Refusal> {
        self.may_change()?;
        self.end_write();
        if !self.can_be_atomic() {
            return Err(Refusal::AtomicUnavailable);
        }
        self.make_room_for_write(lpns.len() as u32)?;
        self.paused = true;
        let wsn = self.core.clock.tick();
        self.open_write(wsn, lpns.len() as u32, false);
        self.fill_host_line();
        for lpn in lpns {
            let before = self.core.tables.map.get(*lpn);
            if let Some(write) = &mut self.open_write {
                write.leaves = true;
                write.before.push((*lpn, before));
            }
            let written = self.write_back_page(*lpn);
            if written.is_err() {
                self.abort_write();
                return written;
            }
        }
        self.end_untorn();
        Ok(())
    }

    /// Checks that a page can be read that a write is about to keep in part. Takes no time: the write reads it later.
    ///
    /// # Errors
    /// `MediaError`.
    pub fn check_readable(&self, lpn: Lpn) -> Result<(), Refusal> {
        let (core, is_marked) = (&self.core, self.unreadable.contains(&lpn));
        let is_lost = |ppn| core.media.is_meta(ppn) || !core.media.is_readable(ppn);
        match core.tables.map.get(lpn) {
            _ if self.is_buffered(lpn) => Ok(()),
            Some(at) if is_marked || is_lost(at.ppn) => Err(Refusal::MediaError),
            None if is_marked => Err(Refusal::MediaError),
            _ => Ok(()),
        }
    }

    /// Undoes the open write: the earlier pages still exist.
    #[cold]
    fn abort_write(&mut self) {
        let Some(write) = self.open_write.take() else {
            return;
        };
        self.write_goes_on = false;
        self.scheme.issue(&mut self.core);
        self.restore(write.before);
        let (media, aborted) = (&mut self.core.media, &mut self.core.tables.aborted);
        self.atomic_slot.abort(media, aborted, write.open.wsn);
        let is_listed = self.atomic_slot.is_free(aborted);
        self.open_writes.abort(media, &write.open, is_listed);
        self.paused = false;
    }

    /// Ends the open write. One that has ended before its last page has no effect.
    #[inline(never)]
    pub(crate) fn end_untorn(&mut self) {
        let is_short = |write: &UntornWrite| {
            !write.leaves && write.open.slots.is_none() && write.before.len() < write.len as usize
        };
        if self.open_write.as_deref().is_some_and(is_short) {
            return self.abort_write();
        }
        let Some(write) = self.open_write.take() else {
            return;
        };
        if std::mem::take(&mut self.write_goes_on) {
            self.scheme.issue(&mut self.core);
            // An entry may wait for a page that collection has moved.
            self.core.fill_lines();
        } else {
            self.fill_host_line();
        }
        let UntornWrite {
            open,
            before,
            leaves,
            ..
        } = *write;
        let has_entries = open.has_entries();
        let is_buffered = open.slots.is_some();
        let committed = self.open_writes.commit(&mut self.core.media, open);
        if has_entries {
            self.core.media.fence();
        }
        self.paused = false;

        let lpns = before.iter().map(|(lpn, _)| *lpn);
        if let Some(buffer) = &mut self.buffer
            && !leaves
        {
            for lpn in lpns {
                match committed {
                    Some(committed) => buffer.wait_for(lpn, committed),
                    // The pages are on flash, and the last store was the one after which they count.
                    None if !is_buffered => buffer.remove(lpn, Superseded::ByStore),
                    None => {}
                }
            }
        }
        // As many numbers as pages, as without the word: numbers are the device's time.
        self.core
            .clock
            .skip(before.len() as u64 - u64::from(!before.is_empty()));
        if !is_buffered {
            // The pages' share of collection. A refusal concerns the next change, which meets it again.
            let programs = before.len();
            let _ = (0..programs).try_for_each(|_| self.pace());
        }
    }
}
