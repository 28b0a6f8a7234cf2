//! The medium the firmware runs on: live cells, planted faults, the operation record and the power rail.
//!
//! Invariants: an operation takes effect in the live view when it is called; every one of them is pushed to
//! `ops`; with a rail attached, all of them are also pending there until settled. A page's program or read
//! that fails says so at once. Absent: durations, retries, and what to do about a failure.

use crate::array::{Contents, NandArray, PAGES_AHEAD, Stored};
use crate::content::{ContentMode, Page, PageView, Payload};
use crate::fault::{Faults, MediaError};
use crate::folder::{Folder, MappedPages};
use crate::geometry::{BlockId, Geometry, Ppn, Slot};
use crate::image::Image;
use crate::oob::{OOB_BYTES, Oob, SECOND_BYTES, Second};
use crate::op::{After, ClearId, Op, OpKind, Purpose};
use crate::rail::{AckSet, Outcome, Rail, What};
use crate::slab::{LINE_BYTES, Slab, prefetch};
use std::ops::Range;
use std::sync::Arc;

/// Counters of what was done, since the medium was powered on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCounts {
    /// Flash pages read one by one.
    pub reads: u64,
    /// Flash pages programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Bytes stored to NVRAM, clearings included.
    pub nv_bytes_written: u64,
    /// Words of NVRAM read with one flipped bit, corrected.
    pub nv_corrected: u64,
}

/// A metadata page: its OOB and its bytes.
pub type MetaPage = (Oob, Arc<[u8]>);

/// NAND and NVRAM.
pub struct Media {
    pub(crate) nand: NandArray,
    pub(crate) nvram: Slab<u64>,
    /// Planted faults.
    faults: Faults,
    faulty: bool,
    /// What was done since the list was last cleared, in order.
    pub ops: Vec<Op>,
    /// Counters.
    pub counts: MediaCounts,
    /// Nobody keeps time: `ops` stays empty.
    untimed: bool,
    rail: Option<Box<Rail>>,
    /// Where all this is written down, for a device in a folder.
    pub(crate) folder: Option<Box<Folder>>,
    next_clear: u64,
}

impl Media {
    /// A new device: all erased, all zero.
    pub fn blank(geometry: Geometry, mode: ContentMode, nvram_words: usize) -> Self {
        Self::assemble(NandArray::new(geometry, mode), Slab::zeroed(nvram_words))
    }

    /// A new device of real bytes for use, in memory that is taken when it is written to.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn in_memory(geometry: Geometry, nvram_words: usize) -> std::io::Result<Self> {
        let mut nand = NandArray::new(geometry, ContentMode::None);
        nand.contents = Contents::Mapped(MappedPages::in_memory(geometry.pages())?);
        Ok(Self::assemble(nand, Slab::zeroed(nvram_words)))
    }

    /// Powers on what an image holds.
    pub fn from_image(image: &Image) -> Self {
        let (nand, words) = image.flatten();
        let mut nvram = Slab::zeroed(words.len());
        nvram.copy_from_slice(&words);
        Self::assemble(nand, nvram)
    }

    pub(crate) fn assemble(nand: NandArray, nvram: Slab<u64>) -> Self {
        Self {
            nand,
            nvram,
            faults: Faults::default(),
            faulty: false,
            ops: Vec::new(),
            counts: MediaCounts::default(),
            untimed: false,
            rail: None,
            folder: None,
            next_clear: 1,
        }
    }

    /// The live view as an image. With a rail attached this is what would remain if all pending landed.
    pub fn to_image(&self) -> Image {
        Image::from_flat(&self.nand, &self.nvram)
    }

    /// Whether to record in `ops` what is done, for whoever keeps time; the default.
    pub fn keep_time(&mut self, keep: bool) {
        self.untimed = !keep;
    }

    #[inline(always)]
    fn record(&mut self, op: Op) {
        if !self.untimed {
            self.ops.push(op);
        }
    }

    /// Shape of the array.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.nand.geometry
    }
    /// How data pages are stored.
    #[inline]
    pub fn mode(&self) -> ContentMode {
        self.nand.mode()
    }
    /// Words of NVRAM.
    pub fn nvram_words(&self) -> usize {
        self.nvram.len()
    }
    /// Erase count of a block.
    pub fn erase_count(&self, block: BlockId) -> u32 {
        self.nand.erase_counts[block.0 as usize]
    }
    /// Erase counts of all blocks.
    pub fn erase_counts(&self) -> &[u32] {
        &self.nand.erase_counts
    }
    /// Rows programmed in a block.
    pub fn next_row(&self, block: BlockId) -> u32 {
        self.nand.next_row[block.0 as usize]
    }

    /// Plants or removes faults.
    pub fn plant(&mut self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults);
        self.faulty = !self.faults.is_empty();
    }
    /// The planted faults; they belong to the device and follow it through a power cut.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    // ---- power ----

    /// Attaches a power rail: from now on operations are pending until settled.
    pub fn attach_rail(&mut self) {
        self.rail = Some(Box::new(Rail::new(self.to_image())));
    }
    /// True if a rail is attached.
    pub fn has_rail(&self) -> bool {
        self.rail.is_some()
    }
    /// Starts gathering what the next command's acknowledgement waits for.
    #[inline]
    pub fn begin_command(&mut self) {
        if let Some(rail) = &mut self.rail {
            rail.begin_command();
        }
    }
    /// What the command's acknowledgement waits for. Empty without a rail.
    pub fn take_ack(&mut self) -> AckSet {
        self.rail.as_mut().map(|rail| rail.take_ack()).unwrap_or_default()
    }
    /// Makes operations durable, with all they come after.
    pub fn settle(&mut self, ack: &AckSet) {
        if let Some(rail) = &mut self.rail {
            rail.settle(ack);
        }
    }
    /// Makes everything durable.
    pub fn settle_all(&mut self) {
        if let Some(rail) = &mut self.rail {
            rail.settle_all();
        }
    }
    /// Number of operations that are not durable yet.
    pub fn pending(&self) -> usize {
        self.rail.as_ref().map_or(0, |rail| rail.pending_len())
    }
    /// The image a power cut leaves; without a rail everything has landed.
    pub fn cut(&self, mut choose: impl FnMut() -> Outcome) -> Image {
        self.cut_by(|_| choose())
    }
    /// `cut`, with the kind of each operation told: `Program`, `Erase`, `NvWrite` or `NvClear`.
    pub fn cut_by(&self, choose: impl FnMut(OpKind) -> Outcome) -> Image {
        match &self.rail {
            Some(rail) => rail.cut(choose),
            None => self.to_image(),
        }
    }

    /// The command under way completes only after what `after` names.
    #[inline]
    pub fn ack_after(&mut self, after: After) {
        self.record(Op::new(OpKind::Wait, Purpose::Host, after));
        if let Some(rail) = &mut self.rail {
            rail.ack_after(after);
        }
    }

    // ---- flash ----

    /// Programs a page.
    ///
    /// # Errors
    /// `ProgramFailed`: the page is consumed and unreadable, and its block must not be programmed again.
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
        let Slot { block, row, die, .. } = self.nand.geometry.slot(ppn);
        let failed = self.faulty && self.faults.program.get(&block).is_some_and(|from| row >= *from);
        self.push_program(ppn, die, purpose, after);
        if let Some(rail) = &mut self.rail {
            let what = What::Program { ppn, oob, stored: stored.clone(), failed };
            rail.push_copy(what, block, from, after, purpose == Purpose::Host && !failed);
        }
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
        to: Slot,
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
        let is_mapped = matches!(self.nand.contents, Contents::Mapped(_));
        if is_mapped && self.rail.is_none() && !self.faulty && !self.nand.is_meta(from) && self.is_readable(from) {
            self.push_program(to.ppn, to.die, purpose, after);
            self.folder_room();
            self.nand.put_copy(from, to, oob);
            self.folder_copied(to.ppn, oob);
            return Ok(());
        }
        let stored = match self.check_readable(from) {
            Ok(()) => self.nand.stored(from),
            Err(_) => Stored::Meta(lost.into()),
        };
        self.program_from(to.ppn, Some(from), oob, stored, purpose, after)
    }

    /// Copies data pages of one superblock to consecutive pages of one row, from `to` on, each with its new OOB; what
    /// `copy` does one by one for GC, without a rail, faults and metadata pages. Pages are in ascending order, and fewer than
    /// 64 from the first to the last.
    #[inline(always)]
    pub fn copy_row(&mut self, to: Slot, pages: impl ExactSizeIterator<Item = (Ppn, Oob)>, after: After) {
        assert!(self.is_plain());
        let len = pages.len();
        self.counts.reads += len as u64;
        self.counts.programs += len as u64;
        self.nand.advance_row(to, len);
        let geometry = self.nand.geometry;
        let (mut first, mut sources) = (0, 0);
        let at = to.ppn.0 as usize;
        for (index, ((from, oob), written)) in pages.zip(&mut self.nand.oob[at..at + len]).enumerate() {
            if index == 0 {
                first = from.0;
            }
            *written = oob.to_bytes();
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

    /// Programs a page of tail metadata: the OOB records of `len` pages from `first` on, extended ones if asked. Without
    /// a rail they are durable already, so that the page can be a view of them; with one, it keeps what was written.
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

    /// No fault, no damage, no rail, no folder: nothing comes between an operation and its effect.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        !self.is_tracked() && self.nand.is_pristine()
    }

    /// Does anybody want to know of every operation?
    #[inline(always)]
    fn is_tracked(&self) -> bool {
        self.faulty || self.rail.is_some() || self.folder.is_some()
    }

    #[inline(always)]
    fn program_plain(&mut self, slot: Slot, oob: Oob, identity: u64, purpose: Purpose, after: After) {
        self.push_program(slot.ppn, slot.die, purpose, after);
        self.nand.put_identity(slot, oob, identity);
    }

    #[inline(always)]
    fn push_program(&mut self, ppn: Ppn, die: u32, purpose: Purpose, after: After) {
        self.counts.programs += 1;
        let mut op = Op::new(OpKind::Program, purpose, after);
        op.die = self.nand.geometry.die_of(self.nand.geometry.superblock(ppn), die) as u16;
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
        slot: Slot,
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
            // With a rail the bytes must outlive the command; with faults there is more to look after.
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
            (_, ContentMode::None) => Stored::Nothing,
            (Payload::Identity(identity), _) => Stored::Identity(*identity),
            (Payload::Bytes(bytes), _) => Stored::Bytes(Arc::new(**bytes)),
        }
    }

    /// Reads a data page.
    ///
    /// # Errors
    /// `Uncorrectable`.
    #[inline]
    pub fn read(&mut self, ppn: Ppn, purpose: Purpose) -> Result<Page, MediaError> {
        self.begin_read(ppn, purpose)?;
        Ok(self.page(ppn))
    }

    /// Reads a data page that `view` will show.
    ///
    /// # Errors
    /// `Uncorrectable`.
    #[inline]
    pub fn begin_read(&mut self, ppn: Ppn, purpose: Purpose) -> Result<(), MediaError> {
        self.charge_read(ppn, purpose);
        self.check_readable(ppn)
    }

    /// A data page that has been read.
    #[inline]
    pub fn page(&self, ppn: Ppn) -> Page {
        self.nand.page(ppn)
    }

    /// A data page that has been read, in its place.
    #[inline]
    pub fn view(&self, ppn: Ppn) -> PageView<'_> {
        self.nand.view(ppn)
    }

    /// Reads a metadata page; `None` if the page is erased or holds none.
    ///
    /// # Errors
    /// `Uncorrectable`.
    pub fn read_meta(&mut self, ppn: Ppn, purpose: Purpose) -> Result<Option<MetaPage>, MediaError> {
        self.charge_read(ppn, purpose);
        if !self.nand.is_programmed(ppn) {
            return Ok(None);
        }
        self.check_readable(ppn)?;
        Ok(self.nand.meta.get(&ppn.0).map(|bytes| (self.nand.oob(ppn), bytes.clone())))
    }

    /// The bytes of a metadata page among many that are charged together (`charge`).
    ///
    /// # Errors
    /// `Uncorrectable`, also if the page holds no metadata.
    pub fn meta_uncharged(&self, ppn: Ppn) -> Result<&[u8], MediaError> {
        let bytes = self.nand.meta.get(&ppn.0).filter(|_| self.is_readable(ppn));
        bytes.map(|bytes| &bytes[..]).ok_or(MediaError::Uncorrectable)
    }

    /// The bytes of a metadata page to be programmed: `fill` gets `len` bytes with anything in them.
    pub fn meta_bytes(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Arc<[u8]> {
        self.nand.meta_bytes(len, fill)
    }

    /// Reads the OOB area of a page; `None` if the page is erased. A whole page read is charged.
    ///
    /// # Errors
    /// `Uncorrectable`.
    pub fn read_oob(&mut self, ppn: Ppn, purpose: Purpose) -> Result<Option<Oob>, MediaError> {
        self.charge_read(ppn, purpose);
        if !self.nand.is_programmed(ppn) {
            return Ok(None);
        }
        self.check_readable(ppn)?;
        Ok(Some(self.nand.oob(ppn)))
    }

    /// Reads a page of tail metadata at `ppn`: the records of `len` pages from `first` on.
    ///
    /// # Errors
    /// `Uncorrectable`, also if the page is not a tail page.
    pub fn read_tail(&mut self, ppn: Ppn, first: Ppn, len: u32) -> Result<Vec<Oob>, MediaError> {
        self.charge_read(ppn, Purpose::Meta);
        if !self.nand.is_programmed(ppn) || self.nand.oob(ppn).lpn() != Oob::TAIL {
            return Err(MediaError::Uncorrectable);
        }
        self.check_readable(ppn)?;
        const EXTENDED: usize = OOB_BYTES + SECOND_BYTES;
        match self.nand.meta.get(&ppn.0) {
            None => Ok((first.0..first.0 + len).map(|page| self.nand.oob(Ppn(page))).collect()),
            Some(bytes) if bytes.len() == len as usize * OOB_BYTES => {
                Ok(bytes.as_chunks::<OOB_BYTES>().0.iter().map(|bytes| Oob::from_bytes(*bytes)).collect())
            }
            Some(bytes) if bytes.len() == len as usize * EXTENDED => {
                let decode = |record: &[u8; EXTENDED]| {
                    let (oob, second) = record.split_first_chunk::<OOB_BYTES>().expect("14 bytes begin with 10");
                    let second = u32::from_le_bytes(second.try_into().expect("4 bytes are left of 14"));
                    Oob::from_bytes(*oob).with_second(Second::from_bits(second))
                };
                Ok(bytes.as_chunks::<EXTENDED>().0.iter().map(decode).collect())
            }
            Some(_) => Err(MediaError::Uncorrectable),
        }
    }

    /// The OOB record of a page that the firmware has in its buffers (it wrote or just read it); not charged.
    #[inline]
    pub fn oob(&self, ppn: Ppn) -> Oob {
        self.nand.oob(ppn)
    }

    /// The identity stored in a page, not charged: in identity mode it is also the page's fingerprint,
    /// which the dedup engine keeps in DRAM. `None` in other modes.
    #[inline]
    pub fn identity(&self, ppn: Ppn) -> Option<u64> {
        match &self.nand.contents {
            Contents::Identity(cells) => Some(cells.get(ppn.0 as usize)),
            _ => None,
        }
    }

    /// Asks for the cache lines of a page's identity.
    #[inline]
    pub fn prefetch_identity(&self, ppn: Ppn) {
        if let Contents::Identity(cells) = &self.nand.contents {
            cells.prefetch(ppn.0 as usize);
        }
    }

    /// Asks for the cache lines of the OOBs and identities of `len` pages from `first` on.
    #[inline]
    pub fn prefetch_run(&self, first: Ppn, len: u32) {
        let (first, len) = (first.0 as usize, len as usize);
        (first..first + len).step_by(LINE_BYTES / OOB_BYTES).for_each(|page| prefetch(&self.nand.oob, page));
        if let Contents::Identity(cells) = &self.nand.contents {
            (first..first + len).step_by(cells.cells_per_line()).for_each(|page| cells.prefetch(page));
        }
    }

    /// Does a page hold metadata bytes?
    #[inline]
    pub fn is_meta(&self, ppn: Ppn) -> bool {
        self.nand.is_meta(ppn)
    }

    /// True if a page can be read: programmed, and neither torn nor damaged.
    #[inline]
    pub fn is_readable(&self, ppn: Ppn) -> bool {
        self.nand.is_programmed(ppn) && !self.nand.is_damaged(ppn) && !(self.faulty && self.faults.read.contains(&ppn))
    }

    /// True if a page has been programmed since its block was erased, readable or not.
    #[inline]
    pub fn is_programmed(&self, ppn: Ppn) -> bool {
        self.nand.is_programmed(ppn)
    }

    #[inline]
    fn check_readable(&self, ppn: Ppn) -> Result<(), MediaError> {
        if !self.faulty && self.nand.is_pristine() {
            debug_assert!(self.nand.is_programmed(ppn));
            return Ok(());
        }
        if self.is_readable(ppn) { Ok(()) } else { Err(MediaError::Uncorrectable) }
    }

    #[inline(always)]
    fn charge_read(&mut self, ppn: Ppn, purpose: Purpose) {
        self.counts.reads += 1;
        let mut op = Op::new(OpKind::Read, purpose, After::NOTHING);
        let geometry = &self.nand.geometry;
        op.die = geometry.die_of(geometry.superblock(ppn), geometry.die_of_offset(geometry.offset(ppn))) as u16;
        op.page = ppn;
        self.record(op);
    }

    /// A new name for a clearing or for the erases of a superblock.
    pub fn name_next(&mut self) -> ClearId {
        let id = ClearId(self.next_clear);
        self.next_clear += 1;
        id
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
            rail.push(What::Erase { block, failed }, Some(block), after, false, id.0);
        }
        self.folder_before_erase();
        if failed {
            self.nand.spoil(block);
            self.folder_erase(block, true);
            return Err(MediaError::EraseFailed);
        }
        self.nand.erase(block);
        self.folder_erase(block, false);
        if self.faulty {
            let geometry = self.nand.geometry;
            let of_block = |ppn: &Ppn| {
                geometry.block(geometry.superblock(*ppn), geometry.die_of_offset(geometry.offset(*ppn))) == block
            };
            self.plant(|faults| faults.read.retain(|ppn| !of_block(ppn)));
        }
        Ok(())
    }

    /// Records flash or NVRAM reads of a scheme's whole log without moving their bytes.
    pub fn charge(&mut self, kind: OpKind, amount: u32, purpose: Purpose, after: After) {
        let mut op = Op::new(kind, purpose, after);
        op.amount = amount;
        self.record(op);
        if kind == OpKind::ScanFlash {
            self.counts.reads += u64::from(amount);
        }
    }

    // ---- NVRAM ----

    /// Reads a word. Loads are charged by whoever scans (`charge`), since one scan is many loads.
    ///
    /// # Errors
    /// `Uncorrectable` if more than one bit of the word is flipped; a single one is corrected.
    #[inline]
    pub fn load(&mut self, word: usize) -> Result<u64, MediaError> {
        if self.faulty
            && let Some(flipped) = self.faults.flips.get(&word)
        {
            if flipped.count_ones() > 1 {
                return Err(MediaError::Uncorrectable);
            }
            self.counts.nv_corrected += 1;
        }
        Ok(self.nvram[word])
    }

    /// A word as it was stored, whatever has been planted since: for checks of tables, not for firmware.
    pub fn stored_word(&self, word: usize) -> u64 {
        self.nvram[word]
    }

    /// All words as they are, for a scan of a range in which no planted flip can hide an error: `None` if one could.
    #[inline]
    pub fn words(&self) -> Option<&[u64]> {
        (!self.faulty).then_some(&self.nvram)
    }

    /// A word as it was stored, damaged or not: for checks, not for firmware.
    pub fn peek(&self, word: usize) -> u64 {
        self.nvram[word]
    }

    /// Stores many words as part of a bulk rewrite that is charged as a whole; only while the media is plain, so that
    /// the order of the stores cannot matter.
    pub fn copy_words_plain(&mut self, to: usize, values: &[u64]) {
        assert!(self.is_plain());
        self.nvram[to..to + values.len()].copy_from_slice(values);
        self.counts.nv_bytes_written += 8 * values.len() as u64;
    }

    /// The same with what stands elsewhere in NVRAM.
    #[inline]
    pub fn move_words_plain(&mut self, from: Range<usize>, to: usize) {
        debug_assert!(self.is_plain());
        self.counts.nv_bytes_written += 8 * from.len() as u64;
        self.nvram.copy_within(from, to);
    }

    /// Stores one word, atomically; adjacent stores of one command count as one access of their bytes.
    #[inline]
    pub fn store(&mut self, word: usize, value: u64, purpose: Purpose, after: After) {
        self.nvram[word] = value;
        self.counts.nv_bytes_written += 8;
        match self.ops.last_mut() {
            Some(last)
                if last.kind == OpKind::NvWrite
                    && last.purpose == purpose
                    && last.amount + 8 <= 64
                    && after == After::NOTHING =>
            {
                last.amount += 8;
            }
            _ => {
                let mut op = Op::new(OpKind::NvWrite, purpose, after);
                op.amount = 8;
                self.record(op);
            }
        }
        if self.is_tracked() {
            self.track_store(word, value, purpose, after);
            self.folder_store(word, &[value]);
        }
    }

    /// Stores the words of one record; each is atomic by itself, and they are one access of their bytes.
    #[inline]
    pub fn store_record(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        let mut op = Op::new(OpKind::NvWrite, purpose, after);
        op.amount = 8 * values.len() as u32;
        self.record(op);
        self.store_uncharged(word, values, purpose, after);
    }

    /// Changes one word of a record that has been stored before: atomically, and after all stores to the record so far.
    ///
    /// For the timing, `after` must name whatever those stores wait for.
    #[inline]
    pub fn change_record(&mut self, record: Range<usize>, word: usize, value: u64, purpose: Purpose, after: After) {
        assert!(record.contains(&word));
        let mut op = Op::new(OpKind::NvWrite, purpose, after);
        op.amount = 8;
        self.record(op);
        self.nvram[word] = value;
        self.counts.nv_bytes_written += 8;
        if self.is_tracked() {
            self.folder_store(word, &[value]);
        }
        if self.faulty {
            self.heal(word);
        }
        if let Some(rail) = &mut self.rail {
            rail.push_change(What::Store { word, value }, record, after, purpose == Purpose::Host);
        }
    }

    /// Stores the words of one record among many that are charged together (`charge`).
    #[inline]
    pub fn store_uncharged(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        self.nvram[word..word + values.len()].copy_from_slice(values);
        self.counts.nv_bytes_written += 8 * values.len() as u64;
        if self.is_tracked() {
            self.folder_store(word, values);
            for (index, value) in values.iter().enumerate() {
                self.track_store(word + index, *value, purpose, after);
            }
        }
    }

    #[cold]
    fn track_store(&mut self, word: usize, value: u64, purpose: Purpose, after: After) {
        if self.faulty {
            self.heal(word);
        }
        if let Some(rail) = &mut self.rail {
            rail.push(What::Store { word, value }, None, after, purpose == Purpose::Host, 0);
        }
    }

    #[cold]
    fn heal(&mut self, word: usize) {
        self.plant(|faults| {
            faults.flips.remove(&word);
        });
    }

    /// Stores words of DRAM that a capacitor saves when power fails: durable like NVRAM, each atomic by itself, at no cost.
    #[inline]
    pub fn store_capacitor(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        self.nvram[word..word + values.len()].copy_from_slice(values);
        if purpose == Purpose::Host && after != After::NOTHING {
            self.record(Op::new(OpKind::Wait, purpose, after));
        }
        if self.is_tracked() {
            self.track_capacitor(word, values, purpose, after);
        }
    }

    #[cold]
    fn track_capacitor(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        self.folder_store(word, values);
        let Some(rail) = &mut self.rail else { return };
        for (index, value) in values.iter().enumerate() {
            let what = What::Store { word: word + index, value: *value };
            rail.push(what, None, after, purpose == Purpose::Host, 0);
        }
    }

    /// Stores issued from now on become durable after all those issued before.
    #[inline]
    pub fn fence(&mut self) {
        if let Some(rail) = &mut self.rail {
            rail.fence();
        }
    }

    /// Zeroes a range in the background. A cut may leave any subset of its words zeroed.
    pub fn clear(&mut self, start: usize, len: usize, after: After) -> ClearId {
        self.folder_room();
        self.nvram[start..start + len].fill(0);
        self.folder_clear(start, len);
        self.counts.nv_bytes_written += 8 * len as u64;
        let id = self.name_next();
        let mut op = Op::new(OpKind::NvClear, Purpose::Gc, after);
        op.amount = (len * 8) as u32;
        op.clear_id = id;
        self.record(op);
        if self.faulty {
            self.plant(|faults| faults.flips.retain(|word, _| !(start..start + len).contains(word)));
        }
        if let Some(rail) = &mut self.rail {
            rail.push(What::Clear { start, len }, None, after, false, id.0);
        }
        id
    }

    /// Zeroes a range of DRAM that a capacitor saves, at no cost.
    #[inline]
    pub fn clear_capacitor(&mut self, start: usize, len: usize, after: After) -> ClearId {
        if self.is_tracked() {
            self.folder_room();
            self.folder_clear(start, len);
        }
        self.nvram[start..start + len].fill(0);
        let id = self.name_next();
        if let Some(rail) = &mut self.rail {
            rail.push(What::Clear { start, len }, None, after, false, id.0);
        }
        id
    }

    /// Asks for the cache lines of some words.
    #[inline]
    pub fn prefetch_words(&self, words: Range<usize>) {
        words.step_by(LINE_BYTES / size_of::<u64>()).for_each(|word| prefetch(&self.nvram, word));
    }

    /// Asks for the cache line of a word.
    #[inline]
    pub fn prefetch_word(&self, word: usize) {
        prefetch(&self.nvram, word);
    }
}
