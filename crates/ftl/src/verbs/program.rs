//! Programs for commands: page allocation, ordering constraints and the bitmaps of deallocations.
//!
//! Invariant: room is made before a page is allocated, never between a page's program and its
//! mapping. Absent: the commands (`command`), relocated pages (`gc`), and blocks in order
//! (`hybrid`).

use crate::core::Core;
use crate::dedup::{Fingerprint, PageLookup};
use crate::error::{LOST, Refusal};
use crate::ftl::Ftl;
use crate::records::open_writes::PageOrder;
use crate::superblock::{AllocatedPage, Stream};
use remap_ssd_media::{
    After, Lpn, MediaError, Oob, PageSlot, Payload, Ppn, Purpose, SecondOwner, StoredPage,
};

/// Source of a page to be written.
pub(crate) enum PageOrigin<'a> {
    Payload(&'a Payload<'a>),
    /// With the home LPN that it may later be remapped to.
    For(&'a Payload<'a>, Lpn),
    /// A copy of this LPN's page, wherever that is when the new page is programmed.
    Copy(Lpn),
    /// The LPN's own page with some of its bytes replaced. It waits for `After`.
    Merged(&'a Payload<'a>, After),
}

impl PageOrigin<'_> {
    /// The LPN whose page is read for the new page of `lpn`.
    #[inline]
    fn source(&self, lpn: Lpn) -> Option<Lpn> {
        match self {
            Self::Copy(source) => Some(*source),
            Self::Merged(..) => Some(lpn),
            Self::Payload(_) | Self::For(..) => None,
        }
    }
}

impl Ftl {
    /// Programs a page for the host.
    #[inline]
    pub(crate) fn program(
        &mut self,
        lpn: Lpn,
        origin: PageOrigin<'_>,
        fingerprint: Option<&Fingerprint>,
        order: PageOrder,
    ) -> Result<Ppn, Refusal> {
        loop {
            // Repeated after each failure: the next page may be in another superblock, and
            // allocating it may collect garbage, which may move the source of a copy.
            let taken = if self.hybrid {
                self.take_in_order(lpn)?
            } else {
                self.take_host_page(lpn, origin.source(lpn))?
            };

            let ppn = taken.ppn();
            // Pages of an atomic command must not land before it is marked as in progress.
            let after = taken.after.and(order.after);
            let wsn = order.wsn.unwrap_or_else(|| self.core.clock.tick());

            let oob = taken.oob(lpn, wsn);
            self.core.stats.host_programs += 1;
            let media = &mut self.core.media;
            let mut copied = None;
            let programmed = match &origin {
                PageOrigin::Payload(payload) => {
                    media.program_payload(taken.slot, oob, payload, Purpose::Host, after)
                }
                PageOrigin::For(payload, home) => {
                    let oob = oob.with_second(SecondOwner::of(*home, false));
                    media.program_payload(taken.slot, oob, payload, Purpose::Host, after)
                }
                PageOrigin::Merged(payload, waits) => {
                    self.program_merged(taken.slot, oob, payload, after.and(*waits))
                }
                PageOrigin::Copy(source) => {
                    let (from, programmed) = self.program_copy(*source, taken.slot, oob, after);
                    copied = Some(from);
                    programmed
                }
            };

            if programmed.is_err() {
                self.core.fail_block_of(ppn);
                continue;
            }

            // Tables change only now: a failed program must leave the LPN where it was.
            self.core.programmed(ppn, Purpose::Host);
            self.core.relink(lpn, ppn, false);
            self.core.blocks.slc.note_program(taken.sb);
            if self.hybrid {
                self.written_in_order(lpn, ppn);
            }

            if let Some(write) = &mut self.open_write {
                write.open.programmed(ppn);
            }

            // A copy is not hashed: it has the content of its source, whose fingerprint the store
            // may know. Only an exact store remembers both pages.
            if let Some(dedup) = &mut self.dedup {
                let pages = PageLookup {
                    media: &self.core.media,
                    counts: &self.core.tables.counts,
                };
                match (fingerprint, copied) {
                    (Some(fingerprint), _) => dedup.insert(fingerprint, ppn, pages),
                    (None, Some(from)) => dedup.copied(from, ppn, pages),
                    (None, None) => {}
                }
            }

            return Ok(ppn);
        }
    }

    /// Programs the page that an LPN has now, with some of its bytes replaced.
    // As `program_copy`.
    #[inline(never)]
    fn program_merged(
        &mut self,
        to: PageSlot,
        oob: Oob,
        payload: &Payload<'_>,
        after: After,
    ) -> Result<(), MediaError> {
        let from = self.core.tables.map.get(oob.lpn());
        let from = from.map(|mapping| mapping.ppn);
        let media = &mut self.core.media;
        media.program_merged(from, to, oob, payload, Purpose::Host, after)
    }

    /// Copies the page that an LPN has now. Also returns that page.
    // Not inlined: most programs write host data.
    #[inline(never)]
    fn program_copy(
        &mut self,
        source: Lpn,
        to: PageSlot,
        oob: Oob,
        after: After,
    ) -> (Ppn, Result<(), MediaError>) {
        let from = self
            .core
            .tables
            .map
            .get(source)
            .expect("the source of a copy is mapped")
            .ppn;
        self.count_read(from);
        let media = &mut self.core.media;
        let programmed = media.copy(from, to, oob, LOST, Purpose::Host, after);
        (from, programmed)
    }

    /// Allocates the next page of the host's superblock for an LPN, collecting garbage if it is time. `source`: the LPN whose
    /// page is copied to it.
    #[inline(always)]
    pub(crate) fn take_host_page(
        &mut self,
        lpn: Lpn,
        source: Option<Lpn>,
    ) -> Result<AllocatedPage, Refusal> {
        // Recovery and atomic commands must not reclaim; they have reserved their pages.
        if !self.paused {
            self.pace()?;
        }
        if self.core.blocks.has_slc() {
            self.fill_before_copy(Stream::Slc, source);
            if let Some(taken) = self.take_slc_page(lpn) {
                return Ok(taken);
            }
        }
        loop {
            // Each time: the source may have been moved by what was collected.
            self.fill_before_copy(Stream::Host, source);
            if let Some(taken) = self.core.blocks.take_for(Stream::Host, lpn) {
                return Ok(taken);
            }

            self.close(Stream::Host);
            if !self.paused {
                self.collect_now()?;
                self.core.blocks.turn_for(Stream::Host, lpn);
            }

            // Collection may already have opened the next one, if it moves pages to the host's
            // superblock.
            let blocks = &mut self.core.blocks;
            if blocks.open(Stream::Host).is_none()
                && !blocks.open_next(&mut self.core.media, Stream::Host, &mut self.core.clock)
            {
                return Err(self.end_of_life());
            }
        }
    }

    /// Fills up a stream's word line if its next page may not be in it, since the page of `source` is copied there.
    #[inline(always)]
    fn fill_before_copy(&mut self, stream: Stream, source: Option<Lpn>) {
        if let Some(lpn) = source
            && self.core.blocks.fills_lines()
            && let Some(mapping) = self.core.tables.map.get(lpn)
        {
            let Core { blocks, media, .. } = &mut self.core;
            blocks.fill_before_copy(media, stream, mapping.ppn);
        }
    }

    /// Allocates the next page in SLC mode, if a superblock is open or free there. Nothing waits for room: without
    /// it, the page goes where all bits are used.
    #[inline(never)]
    fn take_slc_page(&mut self, lpn: Lpn) -> Option<AllocatedPage> {
        self.core.blocks.turn_for(Stream::Slc, lpn);
        loop {
            if let Some(taken) = self.core.blocks.take_slc() {
                return Some(taken);
            }
            self.close(Stream::Slc);
            let Core {
                blocks,
                media,
                clock,
                ..
            } = &mut self.core;
            let is_open = blocks.open_next(media, Stream::Slc, clock)
                || (!blocks.is_by_lpn() && blocks.turn_to_open_slc());
            if !is_open {
                return None;
            }
        }
    }

    /// Restores the reserve of free superblocks, from which a piece of a remap or an atomic command
    /// takes pages without reclaiming.
    pub(crate) fn make_page_room(&mut self) -> Result<(), Refusal> {
        if self.core.blocks.free() <= self.reserve {
            self.collect_now()?;
        }
        Ok(())
    }

    /// Makes room for `records` records in the deallocation log.
    pub(crate) fn make_dealloc_room(&mut self, records: usize) -> Result<(), Refusal> {
        if self.dealloc.room() < records {
            self.flush_deallocations()
        } else {
            Ok(())
        }
    }

    /// Programs the bitmaps that replace the full half of the log, then resets that half.
    pub(crate) fn flush_deallocations(&mut self) -> Result<(), Refusal> {
        let half = self.program_bitmaps()?;
        self.dealloc.reset(&mut self.core.media, half);
        Ok(())
    }

    /// Programs the bitmaps that replace the full half of the log; returns the index of that half.
    pub(crate) fn program_bitmaps(&mut self) -> Result<usize, Refusal> {
        self.core.stats.dealloc_flushes += 1;
        let (half, chunks) = self.dealloc.turn();
        for chunk in chunks {
            self.program_bitmap(chunk)?;
        }
        Ok(half)
    }

    fn program_bitmap(&mut self, chunk: u32) -> Result<(), Refusal> {
        let lpn = self.core.config.bitmap_lpn(chunk);
        loop {
            // The bitmap waits for everything before its word line.
            self.core.fill_lines();
            let taken = self.take_host_page(lpn, None)?;
            let ppn = taken.ppn();
            // The bitmap is built after the page is allocated, since allocation may collect. The
            // number is taken last, so it is newer than everything in the bitmap.
            let buffer = self.buffer.as_deref();
            let bitmap = crate::records::dealloc::DeallocLog::bitmap(
                &self.core.config,
                &self.core.tables,
                buffer,
                chunk,
            );
            let wsn = self.core.clock.tick();
            let oob = taken.oob(lpn, wsn);
            self.core.stats.meta_programs += 1;

            let stored = StoredPage::Meta(bitmap.into());
            // A bitmap that landed before the writes it reflects would supersede the deallocations
            // before them.
            if self
                .core
                .media
                .program(ppn, oob, stored, Purpose::Meta, taken.after.and(After::ALL))
                .is_err()
            {
                self.core.fail_block_of(ppn);
                continue;
            }

            self.core.programmed(ppn, Purpose::Meta);
            self.core.relink(lpn, ppn, false);
            self.core.blocks.slc.note_bitmap(taken.sb);
            return Ok(());
        }
    }
}
