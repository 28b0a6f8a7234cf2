//! The file map's words in NVRAM.
//!
//! ```text
//! 0              generation
//! 1              table: 2 slots a file; a slot is [generation, inode] [head, tail]
//! then           entries: [generation, LPN] [generation, offset] [generation, inode] [generation, next]
//! ```
//! Invariant: an entry counts only if all of its words have the current generation.

use crate::config::Config;
pub(super) use crate::config::layout::{
    FILE_ENTRY_WORDS as ENTRY_WORDS, FILE_SLOT_WORDS as SLOT_WORDS,
};
use crate::config::layout::{NvramLayout, file_map_words};
use bitfield_struct::bitfield;

pub(super) const NONE: u32 = u32::MAX;

/// A value and its generation.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct TaggedValue {
    #[bits(32)]
    pub generation: u32,
    #[bits(32)]
    pub value: u32,
}

impl TaggedValue {
    pub(super) fn of(generation: u32, value: u32) -> u64 {
        Self::new()
            .with_generation(generation)
            .with_value(value)
            .into_bits()
    }
}

/// First and last entry of a file's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListEnds {
    pub head: u32,
    pub tail: u32,
}

impl From<u64> for ListEnds {
    fn from(word: u64) -> Self {
        Self {
            head: word as u32,
            tail: (word >> 32) as u32,
        }
    }
}

impl From<ListEnds> for u64 {
    fn from(ends: ListEnds) -> Self {
        Self::from(ends.tail) << 32 | Self::from(ends.head)
    }
}

#[derive(Clone, Copy)]
pub(super) struct FileMapRegion {
    pub base: usize,
    /// Slots of the table: two per file, so that probe sequences stay short.
    pub slots: u32,
    pub blocks: u32,
}

impl FileMapRegion {
    pub(super) fn new(base: usize, config: &Config) -> Self {
        Self {
            base,
            slots: 2 * config.fs_files,
            blocks: config.fs_blocks,
        }
    }

    pub(super) fn of(config: &Config, layout: &NvramLayout) -> Self {
        Self::new(layout.files, config)
    }

    /// Maximum number of files.
    pub(super) fn files(&self) -> u32 {
        self.slots / 2
    }

    pub(super) fn words(&self) -> usize {
        file_map_words(self.slots, self.blocks)
    }

    /// First word of a slot.
    pub(super) fn slot(&self, slot: u32) -> usize {
        self.base + 1 + slot as usize * SLOT_WORDS
    }

    /// First word of an entry.
    pub(super) fn entry(&self, index: u32) -> usize {
        self.base + 1 + self.slots as usize * SLOT_WORDS + index as usize * ENTRY_WORDS
    }

    /// Slots in which a file may be, in probe order.
    pub(super) fn probe(&self, inode: u32) -> impl Iterator<Item = u32> + use<> {
        let first = (u64::from(inode.wrapping_mul(0x9e37_79b1)) * u64::from(self.slots)) >> 32;
        let slots = self.slots;
        (0..slots).map(move |step| ((first + u64::from(step)) % u64::from(slots)) as u32)
    }
}
