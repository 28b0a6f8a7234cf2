//! The sink of all changes to the media.
//!
//! A verb (`program`, `nvram`) charges an operation and determines whether it fails. The effect of
//! the operation is a [`MediaEffect`], and `apply` executes it.
//!
//! Invariant: a path that changes cells directly is equivalent to `apply` for media where nothing
//! else is left to do; it says so, and `tests/all/effects.rs` compares the two. Absent: costs. One
//! effect has several: a word is stored alone, as one of many, or in DRAM that a capacitor saves.

use super::Media;
use crate::effect::{EffectOrder, MediaEffect, NewEffect, PageSource};
use crate::geometry::Ppn;
use crate::oob::Oob;
use std::ops::Range;

impl Media {
    /// Executes one effect: makes it pending on the rail, changes the cells, records it in the
    /// folder, and heals the faults that it overwrites.
    #[inline(always)]
    pub(super) fn apply(&mut self, effect: NewEffect<'_>, order: EffectOrder) {
        let effect = if self.rail.is_some() {
            self.push_pending(&effect, order)
        } else {
            effect
        };

        if self.faulty {
            self.heal(&effect);
            self.note_wear(&effect);
        }

        match &mut self.folder {
            None => effect.change(&mut self.nand, &mut self.nvram),
            // Around the change; the order of its steps is a crash argument.
            Some(folder) => folder.apply(effect, &mut self.nand, &mut self.nvram),
        }
    }

    /// Passes an effect to the rail. A pending effect outlives the command, so it owns its
    /// contents; the cells share them.
    #[cold]
    fn push_pending<'a>(&mut self, effect: &NewEffect<'a>, order: EffectOrder) -> NewEffect<'a> {
        let effect = effect.to_owned_page(&self.nand);
        if let Some(rail) = &mut self.rail {
            rail.push(&effect, order);
        }
        effect.map_page(|stored| PageSource::Stored(stored.clone()))
    }

    /// Planted faults belong to the current contents of a location, and are removed with them.
    #[cold]
    fn heal(&mut self, effect: &NewEffect<'_>) {
        match *effect {
            // Erased cells hold new data after the next program.
            MediaEffect::Erase { block } => {
                let geometry = self.nand.geometry;
                let of_block = |ppn: &Ppn| geometry.slot(*ppn).block == block;
                self.plant(|faults| faults.read.retain(|ppn| !of_block(ppn)));
            }
            MediaEffect::Store { word, values } => self.heal_words(word..word + values.len()),
            MediaEffect::Clear { start, len } => self.heal_words(start..start + len),
            MediaEffect::Program { .. }
            | MediaEffect::TornProgram { .. }
            | MediaEffect::SpoiledErase { .. } => {}
        }
    }

    /// Bit errors depend on what happens to blocks.
    #[cold]
    fn note_wear(&mut self, effect: &NewEffect<'_>) {
        let Some(errors) = &mut self.bit_errors else {
            return;
        };
        match *effect {
            // A pad has none.
            MediaEffect::Program { ppn, oob, .. } if oob.lpn() == Oob::PAD => {
                errors.programmed(ppn, 0);
            }
            MediaEffect::Program { ppn, oob, .. } => errors.programmed(ppn, oob.wsn()),
            MediaEffect::Erase { block } | MediaEffect::SpoiledErase { block } => {
                errors.erased(block);
            }
            MediaEffect::TornProgram { .. }
            | MediaEffect::Store { .. }
            | MediaEffect::Clear { .. } => {}
        }
    }

    /// A newly stored word has no flipped bits.
    fn heal_words(&mut self, words: Range<usize>) {
        self.plant(|faults| faults.flips.retain(|word, _| !words.contains(word)));
    }
}
