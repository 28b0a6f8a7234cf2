//! The medium the firmware runs on: live cells, planted faults, the operation record and the power
//! rail.
//!
//! Invariants: an operation takes effect in the live view when it is called; every one of them is
//! pushed to `ops`; with a rail attached, all of them are also pending there until settled. A
//! page's program or read that fails says so at once. `program`, `read`, `nvram` and `power` are
//! the verbs; `apply` does what they change. Absent: durations, retries, and what to do about a
//! failure.

mod apply;
mod nvram;
mod power;
mod program;
mod read;

use crate::array::{NandArray, PageContents};
use crate::content::ContentMode;
use crate::fault::Faults;
use crate::folder::{Folder, MappedPages};
use crate::geometry::{BlockId, Geometry};
use crate::image::Image;
use crate::oob::Oob;
use crate::op::{After, ClearId, Op, OpKind, Purpose};
use crate::rail::Rail;
use crate::slab::Slab;
use std::sync::Arc;

/// Counters of what was done, since the medium was powered on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCounts {
    /// Flash pages read one by one.
    pub reads: u64,
    /// Number of flash pages programmed.
    pub programs: u64,
    /// Erase blocks that were erased.
    pub erases: u64,
    /// Bytes stored to NVRAM, clearings included.
    pub nv_bytes_written: u64,
    /// Words of NVRAM read with one flipped bit, corrected.
    pub nv_corrected: u64,
}

/// A metadata page: its OOB and its bytes.
pub type MetaPage = (Oob, Arc<[u8]>);

/// Flash and NVRAM, with an optional power rail, faults and folder.
pub struct Media {
    pub(crate) nand: NandArray,
    pub(crate) nvram: Slab<u64>,
    faults: Faults,
    faulty: bool,
    /// What was done since the list was last cleared, in order.
    pub ops: Vec<Op>,
    /// What was counted since power-on.
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
        nand.contents = PageContents::Mapped(MappedPages::in_memory(geometry.pages())?);
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
            // 0 is no name.
            next_clear: 1,
        }
    }

    /// The live view as an image. With a rail attached this is what would remain if all pending
    /// landed.
    pub fn to_image(&self) -> Image {
        Image::from_flat(&self.nand, &self.nvram)
    }

    /// Whether to record operations in `ops` for the timing model; the default.
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
    /// How data pages are stored.
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
        // One flag, so that sound media ask no table at any operation.
        self.faulty = !self.faults.is_empty();
    }
    /// The planted faults; they belong to the device and follow it through a power cut.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// No fault and no damage: what can be read is what was programmed, and nothing fails.
    #[inline(always)]
    pub fn is_sound(&self) -> bool {
        !self.faulty && self.nand.is_pristine()
    }

    /// Sound, without rail and folder: nothing comes between an operation and its effect.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        !self.is_tracked() && self.nand.is_pristine()
    }

    /// Whether every operation has to be recorded.
    #[inline(always)]
    fn is_tracked(&self) -> bool {
        self.faulty || self.rail.is_some() || self.folder.is_some()
    }

    /// A new name for a clearing or for the erases of a superblock.
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

    /// Charges that so many words of NVRAM are read in one go. A `load` charges nothing: the code
    /// may ask for a word twice, or find out from its tables what firmware would have to read.
    pub fn charge_loads(&mut self, words: usize, purpose: Purpose) {
        self.charge_words(OpKind::NvRead, words, purpose, After::NOTHING);
    }

    /// Charges that so many words of NVRAM are stored in one go, which `store_records` and
    /// `move_records` leave to the caller.
    pub fn charge_stores(&mut self, words: usize, purpose: Purpose, after: After) {
        self.charge_words(OpKind::NvWrite, words, purpose, after);
    }

    fn charge_words(&mut self, kind: OpKind, words: usize, purpose: Purpose, after: After) {
        // An operation counts its bytes with 32 bits, and NVRAM may be larger. All parts but the last
        // are whole units of 64 bytes, by which time is charged: only the end is rounded up.
        const MOST: u64 = 1 << 31;
        let mut bytes = 8 * words as u64;
        while bytes > MOST {
            self.charge(kind, MOST as u32, purpose, after);
            bytes -= MOST;
        }
        self.charge(kind, bytes as u32, purpose, after);
    }

    /// Charges the reads of so many pages of a log on flash, from all dies at once.
    pub fn charge_flash_scan(&mut self, pages: usize, purpose: Purpose) {
        self.charge(OpKind::ScanFlash, pages as u32, purpose, After::NOTHING);
        self.counts.reads += pages as u64;
    }

    /// What is charged until `end_lookup` finds the owners of a victim's pages.
    pub fn begin_lookup(&mut self) {
        self.charge(OpKind::LookupBegin, 0, Purpose::Gc, After::NOTHING);
    }

    /// GC goes on when the scans since `begin_lookup` have ended.
    pub fn end_lookup(&mut self) {
        self.charge(OpKind::LookupEnd, 0, Purpose::Gc, After::NOTHING);
    }
}
