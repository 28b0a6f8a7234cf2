//! Programming, copying and erasing flash.
//!
//! Invariant: a page is programmed in order within its block, and once. Absent: which page is next
//! (the firmware).

use super::Media;
use crate::array::{Contents, PAGES_AHEAD, Stored};
use crate::content::{ContentMode, Payload};
use crate::fault::MediaError;
use crate::geometry::{BlockId, PageSlot, Ppn};
use crate::oob::{OOB_BYTES, Oob, SECOND_BYTES};
use crate::op::{After, ClearId, Op, OpKind, Purpose};
use crate::rail::{MediaEffect, Order};
use std::sync::Arc;

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
        stored: Stored,
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        self.program_from(ppn, None, oob, stored, purpose, after)
    }

    fn program_from(
        &mut self,
        ppn: Ppn,
        from: Option<Ppn>,
        oob: Oob,
        stored: Stored,
        purpose: Purpose,
        after: After,
    ) -> Result<(), MediaError> {
        let PageSlot {
            block, row, die, ..
        } = self.nand.geometry.slot(ppn);

        let failed = self.faulty
            && self
                .faults
                .program
                .get(&block)
                .is_some_and(|from| row >= *from);

        // Charged even if it fails: the time has passed.
        self.push_program(ppn, die, purpose, after);

        if let Some(rail) = &mut self.rail {
            let effect = MediaEffect::Program {
                ppn,
                oob,
                stored: stored.clone(),
                failed,
            };
            let order = Order {
                after,
                block: Some(block),
                copied: from,
                // A program that failed is done again elsewhere; the acknowledgement waits for that
                // one.
                critical: purpose == Purpose::Host && !failed,
                ..Order::default()
            };
            rail.push(effect, order);
        }

        // Before the page is programmed: making room writes a state, and from one that has the page
        // already replay would program it twice.
        self.folder_room();

        if failed {
            self.nand.tear(ppn);
            self.folder_tear(ppn);
            return Err(MediaError::ProgramFailed);
        }

        match self.folder {
            None => self.nand.put(ppn, oob, stored),
            Some(_) => self.folder_program(ppn, oob, stored),
        }

        Ok(())
    }

    /// Copies a page: reads it and programs the copy. What cannot be read is replaced by `lost`.
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
        self.charge_read(from, purpose);

        if self.is_plain() && !self.nand.is_meta(from) {
            let identity = match &self.nand.contents {
                Contents::Identity(cells) => Some(cells.get(from.0 as usize)),
                Contents::None => Some(0),
                Contents::Bytes(_) | Contents::Mapped(_) => None,
            };
            if let Some(identity) = identity {
                self.program_plain(to, oob, identity, purpose, after);
                return Ok(());
            }
        }

        // Within the mapped file the bytes need not pass through memory of ours. Not with a rail,
        // whose image must keep them.
        let is_usual = self.rail.is_none()
            && !self.faulty
            && !self.nand.is_meta(from)
            && self.is_readable(from);
        if let (true, Contents::Mapped(pages)) = (is_usual, &self.nand.contents)
            && let Some(crc) = pages.crc_if_whole(from.0 as usize)
        {
            self.push_program(to.ppn, to.die, purpose, after);
            self.folder_room();
            self.nand.put_copy(from, to, oob);
            self.folder_copied(to.ppn, oob, crc);
            return Ok(());
        }

        let stored = match self.check_readable(from) {
            Ok(()) if self.nand.is_whole(from) => self.nand.stored(from),
            _ => Stored::Meta(lost.into()),
        };
        self.program_from(to.ppn, Some(from), oob, stored, purpose, after)
    }

    /// Copies data pages of one superblock to consecutive pages of one row, from `to` on, each with
    /// its new OOB; what `copy` does one by one for GC, on sound media and without metadata pages.
    /// Pages are in ascending order, and fewer than 64 from the first to the last.
    #[inline(always)]
    pub fn copy_row(
        &mut self,
        to: PageSlot,
        pages: impl ExactSizeIterator<Item = (Ppn, Oob)>,
        after: After,
    ) {
        assert!(self.is_sound());
        if self.is_tracked() {
            return self.copy_tracked_row(to, pages, after);
        }

        let len = pages.len();
        self.counts.reads += len as u64;
        self.counts.programs += len as u64;
        self.nand.advance_row(to, len);

        let geometry = self.nand.geometry;
        let (mut first, mut sources) = (0, 0);
        let at = to.ppn.0 as usize;
        for (index, ((from, oob), written)) in
            pages.zip(&mut self.nand.oob[at..at + len]).enumerate()
        {
            if index == 0 {
                first = from.0;
            }

            *written = oob.to_bytes();
            // Most sources are neighbours, so a mask from the first one on is all that the timing
            // needs of them.
            sources |= 1 << (from.0 - first);
            match &mut self.nand.contents {
                Contents::Identity(cells) => cells.set(at + index, cells.get(from.0 as usize)),
                Contents::Bytes(cells) => cells[at + index] = cells[from.0 as usize].clone(),
                Contents::Mapped(pages) => pages.copy(from.0 as usize, at + index),
                Contents::None => {}
            }
        }

        self.prefetch_run(Ppn((at + PAGES_AHEAD) as u32), len as u32);

        let mut op = Op::new(OpKind::CopyRow, Purpose::Gc, after);
        op.die = geometry.die_of(geometry.superblock(to.ppn), to.die) as u16;
        (op.page, op.amount, op.sources) = (to.ppn, first, sources);

        self.record(op);
    }

    /// The same where each page is pending by itself, or written down.
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
    /// ones if asked. Without a rail they are durable already, so that the page can be a view of
    /// them; with one, it keeps what was written.
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
            None => Stored::Nothing,
            Some(_) => Stored::Meta(self.tail_bytes(first, len, extended).into()),
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

    #[inline(always)]
    fn program_plain(
        &mut self,
        slot: PageSlot,
        oob: Oob,
        identity: u64,
        purpose: Purpose,
        after: After,
    ) {
        self.push_program(slot.ppn, slot.die, purpose, after);
        self.nand.put_identity(slot, oob, identity);
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
        self.record(op);
    }

    /// Programs a data page with what the host wrote.
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
        match payload {
            Payload::Identity(identity) if self.is_plain() => {
                self.program_plain(slot, oob, *identity, purpose, after);
                return Ok(());
            }
            // With a rail the bytes must outlive the command; with faults there is more to look
            // after.
            Payload::Bytes(bytes) if self.rail.is_none() && !self.faulty => {
                self.push_program(slot.ppn, slot.die, purpose, after);
                self.folder_room();
                // 1. contents  2. the record. Killed in between, the page is as it was: erased.
                self.nand.put_bytes(slot, oob, bytes);
                self.folder_programmed(slot.ppn, oob, bytes);
                return Ok(());
            }
            _ => {}
        }

        let stored = self.stored_of(payload);
        self.program(slot.ppn, oob, stored, purpose, after)
    }

    /// What a write of `payload` stores in this device's content mode.
    fn stored_of(&self, payload: &Payload<'_>) -> Stored {
        match (payload, self.mode()) {
            // A device without contents takes either payload: a trace of bytes can run on it.
            (_, ContentMode::None) => Stored::Nothing,
            (Payload::Identity(identity), _) => Stored::Identity(*identity),
            (Payload::Bytes(bytes), _) => Stored::Bytes(Arc::new(**bytes)),
        }
    }

    /// Erases a block, as one of the erases named `id`.
    ///
    /// # Errors
    /// `EraseFailed`: the block is unreadable and must be retired.
    pub fn erase(&mut self, block: BlockId, id: ClearId, after: After) -> Result<(), MediaError> {
        let failed = self.faulty && self.faults.erase.contains(&block);
        self.counts.erases += 1;

        let mut op = Op::new(OpKind::Erase, Purpose::Gc, after);
        let (sb, die) = self.nand.geometry.place_of_block(block);
        op.die = self.nand.geometry.die_of(sb, die) as u16;
        op.clear_id = id;
        self.record(op);

        if let Some(rail) = &mut self.rail {
            let order = Order {
                after,
                block: Some(block),
                clear_id: id,
                ..Order::default()
            };
            rail.push(MediaEffect::Erase { block, failed }, order);
        }

        // Before the contents go: what takes their place must have survived.
        self.folder_before_erase();

        if failed {
            self.nand.spoil(block);
            self.folder_erase(block, true);
            return Err(MediaError::EraseFailed);
        }

        self.nand.erase(block);
        self.folder_erase(block, false);

        // A planted read error is of what the page holds now: erased cells hold what is programmed
        // next.
        if self.faulty {
            let geometry = self.nand.geometry;
            let of_block = |ppn: &Ppn| {
                geometry.block(
                    geometry.superblock(*ppn),
                    geometry.die_of_offset(geometry.offset(*ppn)),
                ) == block
            };
            self.plant(|faults| faults.read.retain(|ppn| !of_block(ppn)));
        }
        Ok(())
    }
}
