//! The media of the firmware: live cells, planted faults, the operation record and the power rail.
//!
//! Invariants: an operation takes effect in the live view when it is called; every one of them is
//! pushed to `ops`; with a rail attached, all of them are also pending there until settled. A
//! failed program or read of a page returns an error at once. `program`, `read`, `nvram` and
//! `power` are the verbs; `apply` executes their changes. Absent: durations, retries, and failure
//! handling.

mod apply;
mod durable;
mod folder;
mod nvram;
mod power;
mod program;
mod read;
mod rest;

use crate::array::{NandArray, PageContents};
use crate::bit_errors::BitErrors;
use crate::content::ContentMode;
use crate::fault::Faults;
use crate::folder::Folder;
use crate::geometry::{BlockId, Geometry};
use crate::image::Image;
use crate::oob::Oob;
use crate::op::{After, ClearId, Op, OpKind, Purpose};
use crate::pages::MappedPages;
use crate::rail::Rail;
use crate::slab::Slab;
use crate::slc::{SlcArea, SlcModes};
pub use power::WriteBackMark;
use std::sync::Arc;

/// Counters of operations since power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCounts {
    /// Flash pages read one by one.
    pub reads: u64,
    /// Number of flash pages programmed.
    pub programs: u64,
    /// Erase blocks erased.
    pub erases: u64,
    /// Bytes stored to NVRAM, clearings included.
    pub nv_bytes_written: u64,
    /// NVRAM words read with one flipped bit, which was corrected.
    pub nv_corrected: u64,
}

/// A metadata page: its OOB and its bytes.
pub(crate) type MetaPage = (Oob, Arc<[u8]>);

/// Flash and NVRAM, with an optional power rail, faults and folder.
pub struct Media {
    nand: NandArray,
    nvram: Slab<u64>,
    faults: Faults,
    /// Bit errors of flash, if it has any.
    bit_errors: Option<Box<dyn BitErrors>>,
    /// Something is planted, or flash has bit errors.
    faulty: bool,
    /// Operations since the list was last cleared, in order.
    pub ops: Vec<Op>,
    /// Counters since power-on.
    pub counts: MediaCounts,
    /// Without a timing model, `ops` stays empty.
    untimed: bool,
    rail: Option<Box<Rail>>,
    /// Unless the controller's buffer survives a cut: whether waits for a page are waits for its word
    /// line.
    unprotected: Option<bool>,
    /// Superblocks in SLC mode.
    slc: SlcModes,
    /// Journal of all changes, for a device in a folder.
    folder: Option<Box<Folder>>,
    next_clear: u64,
}

impl Media {
    /// A new device: all erased, all zero.
    pub fn blank(geometry: Geometry, mode: ContentMode, nvram_words: usize) -> Self {
        Self::assemble(NandArray::new(geometry, mode), Slab::zeroed(nvram_words))
    }

    /// A new device of real bytes, in memory that is allocated on first write.
    ///
    /// # Errors
    /// The memory cannot be reserved.
    pub fn in_memory(geometry: Geometry, nvram_words: usize) -> std::io::Result<Self> {
        let mut nand = NandArray::new(geometry, ContentMode::None);
        nand.contents = PageContents::Mapped(MappedPages::in_memory(&geometry)?);
        Ok(Self::assemble(nand, Slab::zeroed(nvram_words)))
    }

    /// Powers on a device from an image.
    pub fn from_image(image: &Image) -> Self {
        let (nand, words) = image.flatten();
        let mut nvram = Slab::zeroed(words.len());
        nvram.copy_from_slice(&words);
        Self::assemble(nand, nvram)
    }

    fn assemble(nand: NandArray, nvram: Slab<u64>) -> Self {
        let geometry = nand.geometry;
        Self {
            nand,
            nvram,
            faults: Faults::default(),
            bit_errors: None,
            faulty: false,
            ops: Vec::new(),
            counts: MediaCounts::default(),
            untimed: false,
            rail: None,
            unprotected: None,
            slc: SlcModes::new(SlcArea::NONE, geometry),
            folder: None,
            // 0 is no ID.
            next_clear: 1,
        }
    }

    /// The live view as an image. With a rail attached this is the state after all pending
    /// operations have landed.
    pub fn to_image(&self) -> Image {
        Image::from_flat(&self.nand, &self.nvram)
    }

    /// Sets whether to record operations in `ops` for the timing model; the default.
    pub fn keep_time(&mut self, keep: bool) {
        self.untimed = !keep;
    }

    #[inline(always)]
    fn record(&mut self, op: Op) {
        if !self.untimed {
            self.ops.push(op);
        }
    }

    /// Shape of the flash array.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.nand.geometry
    }
    /// Content mode of data pages.
    #[inline]
    pub fn mode(&self) -> ContentMode {
        self.nand.mode()
    }
    /// Number of NVRAM words, 64 bits each.
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

    /// Plants faults, or removes planted ones.
    pub fn plant(&mut self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults);
        self.note_faulty();
    }

    // One flag, so that sound media need no table lookup per operation.
    fn note_faulty(&mut self) {
        self.faulty = !self.faults.is_empty() || self.bit_errors.is_some();
    }

    /// From now on flash has bit errors. They end with this `Media`: an image has none.
    ///
    /// A data page that is not corrected cannot be read. Metadata can: the firmware stores it with a stronger code, so
    /// that soft decoding always corrects it.
    pub fn begin_bit_errors(&mut self, model: Box<dyn BitErrors>) {
        self.bit_errors = Some(model);
        self.note_faulty();
    }

    /// Returns true if flash has bit errors.
    pub fn has_bit_errors(&self) -> bool {
        self.bit_errors.is_some()
    }

    /// The planted faults; they belong to the device and survive a power cut.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns true if there is no fault and no damage: reads return the data programmed, and
    /// nothing fails.
    #[inline(always)]
    pub fn is_sound(&self) -> bool {
        !self.faulty && self.nand.is_pristine()
    }

    /// Returns true if the media are sound, without rail and folder: operations only change cells.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        !self.is_tracked() && self.nand.is_pristine()
    }

    /// Returns true if every operation has to be recorded.
    #[inline(always)]
    fn is_tracked(&self) -> bool {
        self.faulty || self.rail.is_some() || self.folder.is_some()
    }

    /// Returns a new ID for a clearing or for the erases of a superblock.
    pub fn name_next(&mut self) -> ClearId {
        let id = ClearId(self.next_clear);
        self.next_clear += 1;
        id
    }

    /// Records an operation without moving its bytes.
    pub fn charge(&mut self, kind: OpKind, amount: u32, purpose: Purpose, after: After) {
        let mut op = Op::new(kind, purpose, after);
        op.amount = amount;
        self.record(op);
    }

    /// Charges reading this many words of NVRAM in one go. A `load` charges nothing: the code may
    /// load a word twice, or use its tables to find data that firmware would have to read.
    pub fn charge_loads(&mut self, words: usize, purpose: Purpose) {
        self.charge_words(OpKind::NvRead, words, purpose, After::NOTHING);
    }

    /// Charges storing this many words of NVRAM in one go; `store_records` and `move_records` leave
    /// that to the caller.
    pub fn charge_stores(&mut self, words: usize, purpose: Purpose, after: After) {
        self.charge_words(OpKind::NvWrite, words, purpose, after);
    }

    fn charge_words(&mut self, kind: OpKind, words: usize, purpose: Purpose, after: After) {
        // An operation counts its bytes with 32 bits, and NVRAM may be larger. All parts but the
        // last are whole units of 64 bytes, the unit of timing: only the end is rounded up.
        const MOST: u64 = 1 << 31;
        let mut bytes = 8 * words as u64;
        while bytes > MOST {
            self.charge(kind, MOST as u32, purpose, after);
            bytes -= MOST;
        }
        self.charge(kind, bytes as u32, purpose, after);
    }

    /// Charges reading this many pages of a log on flash, from all dies in parallel.
    pub fn charge_flash_scan(&mut self, pages: usize, purpose: Purpose) {
        self.charge(OpKind::ScanFlash, pages as u32, purpose, After::NOTHING);
        self.counts.reads += pages as u64;
    }

    /// Begins the lookup of the owners of a victim's pages: charges until `end_lookup` are part of
    /// it.
    pub fn begin_lookup(&mut self) {
        self.charge(OpKind::LookupBegin, 0, Purpose::Gc, After::NOTHING);
    }

    /// GC continues when the scans since `begin_lookup` have completed.
    pub fn end_lookup(&mut self) {
        self.charge(OpKind::LookupEnd, 0, Purpose::Gc, After::NOTHING);
    }
}
