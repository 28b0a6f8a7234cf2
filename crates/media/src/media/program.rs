//! Programming, copying and erasing flash.
//!
//! Invariant: a page is programmed in order within its block, and once. Absent: choice of the next
//! page (the firmware).

use super::Media;
use crate::array::{PAGES_AHEAD, PageContents, StoredPage};
use crate::content::Payload;
use crate::effect::{EffectOrder, MediaEffect, PageSource};
use crate::fault::MediaError;
use crate::geometry::{BlockId, PageSlot, Ppn};
use crate::oob::{OOB_BYTES, Oob, SECOND_BYTES};
use crate::op::{After, ClearId, Op, OpKind, Purpose};

impl Media {
    /// Programs a page.
    ///
    /// # Errors
    /// `ProgramFailed`: the page is consumed and unreadable, and its block must not be programmed
    /// again.
    pub fn program(
        &mut self,
        ppn: Ppn,
        oob: Oob,
        stored: StoredPage,
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        let slot = self.nand.geometry.slot(ppn);
        self.program_from(None, slot, oob, PageSource::Stored(stored), purpose, after)
    }

    /// Programs a page. `copied`: the page read for it.
    fn program_from(
        &mut self,
        copied: Option<Ppn>,
        slot: PageSlot,
        oob: Oob,
        contents: PageSource<'_>,
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        let PageSlot {
            ppn, block, row, ..
        } = slot;
        let failed = self.faulty && self.fails(block, row);

        // Charged even if it fails: the time has passed.
        self.push_program(ppn, slot.die, purpose, after);

        let effect = if failed {
            MediaEffect::TornProgram { ppn }
        } else {
            MediaEffect::Program { ppn, oob, contents }
        };
        let order = EffectOrder {
            after,
            copied,
            // A failed program is repeated elsewhere; the acknowledgement waits for that one.
            critical: purpose == Purpose::Host && !failed,
            ..EffectOrder::default()
        };
        self.apply(effect, order);

        if failed {
            return Err(MediaError::ProgramFailed);
        }
        Ok(())
    }

    /// Returns true if the program of a row fails.
    fn fails(&self, block: BlockId, row: u32) -> bool {
        let Some(from) = self.faults.program.get(&block) else {
            return false;
        };
        let (sb, _) = self.nand.geometry.place_of_block(block);
        let stripe = match self.slc.has(sb) {
            true => self.slc.area().line(),
            false => self.nand.geometry.stripe(),
        };
        if self.unprotected.is_none() || stripe == 1 {
            return row >= *from;
        }
        // A word line fails as a whole, which its first page shows.
        row.is_multiple_of(stripe) && row + stripe > *from
    }

    /// Copies a page: reads it and programs the copy. An unreadable page is replaced by `lost`.
    ///
    /// # Errors
    /// `ProgramFailed`, as `program`.
    #[inline(always)]
    pub fn copy(
        &mut self,
        from: Ppn,
        to: PageSlot,
        oob: Oob,
        lost: &[u8],
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        if self.charge_data_read(from, purpose).is_err() {
            let lost = PageSource::Stored(StoredPage::Meta(lost.into()));
            return self.program_from(Some(from), to, oob, lost, purpose, after);
        }

        // `apply` of the program, where only cells change.
        if self.is_plain() && !self.nand.is_meta(from) {
            let identity = match &self.nand.contents {
                PageContents::Identity(cells) => Some(cells.get(from.0 as usize)),
                PageContents::None => Some(0),
                PageContents::Bytes(_) | PageContents::Mapped(_) => None,
            };
            if let Some(identity) = identity {
                self.program_plain(to, oob, &Payload::Identity(identity), purpose, after);
                return Ok(());
            }
        }

        self.program_copy(from, to, oob, lost, purpose, after)
    }

    /// Programs a copy of a page that has been read.
    #[inline(never)]
    fn program_copy(
        &mut self,
        from: Ppn,
        to: PageSlot,
        oob: Oob,
        lost: &[u8],
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        // `apply` of the program, where only cells change.
        if let PageContents::Mapped(pages) = &self.nand.contents
            && self.is_plain()
            && !self.nand.is_meta(from)
            && pages.is_whole(from.0 as usize)
        {
            self.push_program(to.ppn, to.die, purpose, after);
            self.nand.put_copy(from, to, oob);
            return Ok(());
        }

        let contents = match self.check_readable(from) {
            Ok(()) => self.copy_source(from),
            Err(_) => None,
        };
        let contents =
            contents.unwrap_or_else(|| PageSource::Stored(StoredPage::Meta(lost.into())));
        self.program_from(Some(from), to, oob, contents, purpose, after)
    }

    /// The source for a copy of a readable page; `None` if it does not match its checksum.
    fn copy_source(&self, from: Ppn) -> Option<PageSource<'static>> {
        match &self.nand.contents {
            // Within the mapped file the bytes need not pass through our memory.
            PageContents::Mapped(pages) if !self.nand.is_meta(from) => {
                let crc = pages.crc_if_whole(from.0 as usize)?;
                Some(PageSource::CopyOf { from, crc })
            }
            _ => Some(PageSource::Stored(self.nand.stored(from))),
        }
    }

    /// Copies data pages of one superblock to consecutive pages of one row, or of one word line if pages share them,
    /// from `to` on, each with its new OOB; equivalent to `copy` one by one for GC, on sound media and without metadata
    /// pages. Pages are in ascending order, and fewer than 64 from the first to the last.
    #[inline(always)]
    pub fn copy_row(
        &mut self,
        to: PageSlot,
        pages: impl ExactSizeIterator<Item = (Ppn, Oob)> + Clone,
        after: After,
    ) {
        assert!(self.is_sound());
        if self.is_tracked() {
            return self.copy_tracked_row(to, pages, after);
        }

        // `apply` of all these programs, where only cells change, in one pass.
        let len = pages.len();
        self.counts.reads += len as u64;
        self.counts.programs += len as u64;
        self.nand.advance_row(to, len);

        let geometry = self.nand.geometry;
        let (mut first, mut sources) = (0, 0);
        let at = to.ppn.0 as usize;
        for (index, ((from, oob), written)) in pages
            .clone()
            .zip(&mut self.nand.oob[at..at + len])
            .enumerate()
        {
            if index == 0 {
                first = from.0;
            }

            *written = oob.to_bytes();
            // Most sources are neighbours, so the timing model needs only a bit mask from the first
            // one.
            sources |= 1 << (from.0 - first);
        }

        let copies = pages.map(|(from, _)| from.0 as usize).zip(at..);
        match &mut self.nand.contents {
            PageContents::Identity(cells) => {
                copies.for_each(|(from, to)| cells.set(to, cells.get(from)));
            }
            PageContents::Bytes(cells) => {
                copies.for_each(|(from, to)| cells[to] = cells[from].clone());
            }
            PageContents::Mapped(mapped) => copies.for_each(|(from, to)| mapped.copy(from, to)),
            PageContents::None => {}
        }

        self.prefetch_run(Ppn((at + PAGES_AHEAD) as u32), len as u32);

        let mut op = Op::new(OpKind::CopyRow, Purpose::Gc, after);
        op.die = geometry.die_of(geometry.superblock(to.ppn), to.die) as u16;
        (op.page, op.amount, op.sources) = (to.ppn, first, sources);

        self.record(op);
    }

    /// Like `copy_row`, where each page is pending separately, or journaled.
    fn copy_tracked_row(
        &mut self,
        to: PageSlot,
        pages: impl Iterator<Item = (Ppn, Oob)>,
        after: After,
    ) {
        for (place, (from, oob)) in (to.ppn.0..).zip(pages) {
            let slot = self.nand.geometry.slot(Ppn(place));
            self.copy(from, slot, oob, &[], Purpose::Gc, after)
                .expect("sound media do not fail");
        }
    }

    /// Programs a page of tail metadata: the OOB records of `len` pages from `first` on, extended
    /// ones if requested. Without a rail they are durable already, so the page can be a view of
    /// them; with one, it keeps the bytes written.
    ///
    /// # Errors
    /// `ProgramFailed`, as `program`.
    pub fn program_tail(
        &mut self,
        ppn: Ppn,
        oob: Oob,
        first: Ppn,
        len: u32,
        extended: bool,
        after: After,
    ) -> Result<(), MediaError> {
        let stored = match self.rail {
            None => StoredPage::Nothing,
            Some(_) => StoredPage::Meta(self.tail_bytes(first, len, extended).into()),
        };
        self.program(ppn, oob, stored, Purpose::Meta, after)
    }

    fn tail_bytes(&self, first: Ppn, len: u32, extended: bool) -> Vec<u8> {
        let records = (first.0..first.0 + len).map(|page| self.nand.oob(Ppn(page)));
        let mut bytes = Vec::with_capacity(len as usize * (OOB_BYTES + SECOND_BYTES));
        for oob in records {
            bytes.extend(oob.to_bytes());
            if extended {
                bytes.extend(oob.second().into_bits().to_le_bytes());
            }
        }
        bytes
    }

    /// Programs a data page without rail, faults and folder: `apply`, where only cells change.
    #[inline(always)]
    fn program_plain(
        &mut self,
        slot: PageSlot,
        oob: Oob,
        payload: &Payload<'_>,
        purpose: Purpose,
        after: After,
    ) {
        self.push_program(slot.ppn, slot.die, purpose, after);
        match payload {
            Payload::Identity(identity) => self.nand.put_identity(slot, oob, *identity),
            Payload::Bytes(bytes) => self.nand.put_bytes(slot, oob, bytes),
        }
    }

    #[inline(always)]
    fn push_program(&mut self, ppn: Ppn, die: u32, purpose: Purpose, after: After) {
        self.counts.programs += 1;
        let mut op = Op::new(OpKind::Program, purpose, after);
        op.die = self
            .nand
            .geometry
            .die_of(self.nand.geometry.superblock(ppn), die) as u16;
        op.page = ppn;
        op.amount = self.slc.has_page(ppn).into();
        self.record(op);
    }

    /// Programs a data page with host data.
    ///
    /// # Errors
    /// `ProgramFailed`, as `program`.
    #[inline]
    pub fn program_payload(
        &mut self,
        slot: PageSlot,
        oob: Oob,
        payload: &Payload<'_>,
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        self.program_data(None, slot, oob, payload, purpose, after)
    }

    /// Programs a data page that was merged from host data and the page `from`, and lands after it.
    ///
    /// # Errors
    /// `ProgramFailed`, as `program`.
    pub fn program_merged(
        &mut self,
        from: Option<Ppn>,
        slot: PageSlot,
        oob: Oob,
        payload: &Payload<'_>,
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        self.program_data(from, slot, oob, payload, purpose, after)
    }

    /// Programs a data page. `copied`: the page read for it, if there is one.
    #[inline(always)]
    fn program_data(
        &mut self,
        copied: Option<Ppn>,
        slot: PageSlot,
        oob: Oob,
        payload: &Payload<'_>,
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        if !self.is_tracked() {
            self.program_plain(slot, oob, payload, purpose, after);
            return Ok(());
        }
        let contents = match payload {
            Payload::Identity(identity) => PageSource::Stored(StoredPage::Identity(*identity)),
            Payload::Bytes(bytes) => PageSource::Bytes(bytes),
        };
        self.program_from(copied, slot, oob, contents, purpose, after)
    }

    /// Erases a block; `id` names the group of erases.
    ///
    /// # Errors
    /// `EraseFailed`: the block is unreadable and must be retired.
    pub fn erase(&mut self, block: BlockId, id: ClearId, after: After) -> Result<(), MediaError> {
        let failed = self.faulty && self.faults.erase.contains(&block);
        self.counts.erases += 1;

        let mut op = Op::new(OpKind::Erase, Purpose::Gc, after);
        let (sb, die) = self.nand.geometry.place_of_block(block);
        op.die = self.nand.geometry.die_of(sb, die) as u16;
        op.page = self.nand.geometry.page(sb, die);
        op.clear_id = id;
        self.record(op);

        let effect = if failed {
            MediaEffect::SpoiledErase { block }
        } else {
            MediaEffect::Erase { block }
        };
        let order = EffectOrder {
            after,
            clear_id: id,
            ..EffectOrder::default()
        };
        self.apply(effect, order);

        if failed {
            return Err(MediaError::EraseFailed);
        }
        Ok(())
    }
}
