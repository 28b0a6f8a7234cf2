//! The meaning of NVRAM words, as FORMAT.md has it.
//!
//! Written again here, without the firmware's records: a check that shared them would share their faults. Absent: what a store means for the
//! model (the trace's).

use remap_ssd_ftl::{Config, NvramLayout, SchemeKind};
use remap_ssd_media::{Geometry, Ppn, SbId};
use std::collections::BTreeMap;

/// Words of a superblock's life.
const LIFE_WORDS: usize = 3;

/// A place for an entry or for a record of a deallocation.
#[derive(Clone, Copy)]
pub(super) enum Slot {
    Entry(usize),
    Deallocation(usize),
}

impl Slot {
    pub(super) fn kind(self) -> char {
        match self {
            Self::Entry(_) => 'e',
            Self::Deallocation(_) => 'd',
        }
    }

    pub(super) fn number(self) -> usize {
        match self {
            Self::Entry(number) | Self::Deallocation(number) => number,
        }
    }
}

/// What a word is for.
#[derive(Clone, Copy)]
pub(super) enum Meaning {
    /// The word of a superblock's life with its incarnation.
    Life(usize),
    /// The number of a command in progress.
    Open(usize),
    /// The number of an aborted command.
    Aborted(usize),
    First(Slot),
    Second(Slot),
    Other,
}

/// What two words say.
pub(super) enum Record {
    Entry { lpn: u32, ppn: Ppn, number: u64 },
    Deallocation { first: u32, len: u32, number: u64 },
}

/// The words of a device as the firmware sees them.
#[derive(Clone)]
pub(super) struct Words {
    values: Vec<u64>,
    layout: NvramLayout,
    geometry: Geometry,
    scheme: SchemeKind,
    /// Words of a segment or unit, with its head.
    group: usize,
    /// The word that the operation at a position zeroes, if it is part of a clearing.
    cleared: BTreeMap<u32, usize>,
}

/// The incarnation in the first word of a superblock's life.
pub(super) fn incarnation(life: u64) -> u64 {
    life >> 43
}

impl Words {
    pub(super) fn new(config: &Config, geometry: &Geometry, values: Vec<u64>) -> Self {
        let slots = config.log_bytes as usize / 16;
        let group = match config.scheme {
            SchemeKind::RemapSsd => config.segment_bytes as usize / 8,
            SchemeKind::NLog => ((slots / 8 - 1).min(256) + 1) * 2,
            _ => 0,
        };
        Self {
            values,
            layout: NvramLayout::new(config, geometry),
            geometry: *geometry,
            scheme: config.scheme,
            group,
            cleared: BTreeMap::new(),
        }
    }

    /// Slots of either kind.
    pub(super) fn slots(&self) -> usize {
        let entries = match self.group {
            0 => 0,
            _ => (self.values.len() - self.layout.scheme) / 2,
        };
        entries.max(2 * self.layout.dealloc_slots)
    }

    /// Words for numbers of commands.
    pub(super) fn open_words(&self) -> usize {
        match self.layout.open_words {
            0 => 0,
            words => words.max(self.layout.aborted_slots),
        }
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.values[word]
    }

    pub(super) fn set(&mut self, word: usize, value: u64) {
        self.values[word] = value;
    }

    /// The operation at this position zeroes a word.
    pub(super) fn clear(&mut self, word: usize, position: u32) {
        self.values[word] = 0;
        self.cleared.insert(position, word);
    }

    pub(super) fn cleared(&self, position: u32) -> Option<usize> {
        self.cleared.get(&position).copied()
    }

    pub(super) fn rest(&mut self) {
        self.cleared.clear();
    }

    pub(super) fn power_on(&mut self, values: Vec<u64>) {
        self.values = values;
        self.cleared.clear();
    }

    pub(super) fn meaning(&self, word: usize) -> Meaning {
        let layout = &self.layout;
        let half = |at: usize, slot: Slot| match at % 2 {
            0 => Meaning::First(slot),
            _ => Meaning::Second(slot),
        };
        if word < layout.atomic {
            return match word % LIFE_WORDS {
                0 => Meaning::Life(word / LIFE_WORDS),
                _ => Meaning::Other,
            };
        }
        if (layout.open..layout.open + layout.open_words).contains(&word) {
            return Meaning::Open(word - layout.open);
        }
        if layout.open_words > 0 && (layout.aborted..layout.open).contains(&word) {
            return Meaning::Aborted(word - layout.aborted);
        }
        if (layout.dealloc..layout.files).contains(&word) {
            let at = word - layout.dealloc;
            return half(at, Slot::Deallocation(at / 2));
        }
        if word >= layout.scheme && self.group > 0 {
            let at = word - layout.scheme;
            // The first slot of a segment or unit is its head, and what is left at a segment's end is unused.
            if at % self.group >= 2 && at % self.group < self.group / 2 * 2 {
                return half(at % self.group, Slot::Entry(at / 2));
            }
        }
        Meaning::Other
    }

    /// What the two words of a slot say.
    pub(super) fn record(&self, slot: Slot, (first, second): (u64, u64)) -> Record {
        let bits = |word: u64, from: u32, len: u32| (word >> from & ((1 << len) - 1)) as u32;
        let number = first >> 22;
        match (slot, self.scheme) {
            (Slot::Deallocation(_), _) => Record::Deallocation {
                first: bits(second, 1, 31),
                len: bits(second, 32, 31),
                number,
            },
            (Slot::Entry(slot), SchemeKind::RemapSsd) => {
                let at = slot * 2;
                let head = self.values[self.layout.scheme + at - at % self.group];
                let sb = SbId(bits(head, 1, 21));
                Record::Entry {
                    lpn: bits(second, 1, 31),
                    ppn: self.geometry.page(sb, bits(first, 1, 21)),
                    number,
                }
            }
            (Slot::Entry(_), _) => Record::Entry {
                lpn: bits(second, 1, 31),
                ppn: Ppn(bits(second, 33, 31)),
                number,
            },
        }
    }
}
