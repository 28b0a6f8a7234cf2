//! Writes that a power cut keeps or loses as a whole: those within the disk's atomic write unit
//! (NVMe: AWUPF).
//!
//! The unit counts from a command's start; there is no boundary at which a command would tear. A
//! longer command has no guarantee: each of its blocks is kept or lost on its own, and so is each
//! block of a Write Zeroes or a Deallocate. Invariant: a disk after a cut is what the kept pieces
//! leave, in the order of their submission. Absent: disks without such a unit, whose pieces are
//! versions of blocks (`cut`).

use crate::cut::{DiskState, Lost, Version};
use crate::error::TortureError;
use crate::record::{Event, Recording};
use remap_ssd_nvme::controller::LossDraw;
use std::collections::BTreeSet;

/// The unit of the disk of a recording.
#[derive(Clone, Copy)]
pub(crate) struct AtomicUnit<'a> {
    recording: &'a Recording,
    blocks: u64,
}

/// A write command within the unit, or one block of another command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    /// The command: an index into `Recording::events`.
    event: u32,
    /// The block; none: all of the command.
    block: Option<u64>,
}

impl<'a> AtomicUnit<'a> {
    /// A unit of `bytes`; none if it is a single block, which is always atomic.
    ///
    /// # Errors
    /// It is not a number of whole blocks.
    pub(crate) fn new(recording: &'a Recording, bytes: u64) -> Result<Option<Self>, TortureError> {
        let blocks = recording.shape.atomic_blocks(bytes)?;
        Ok((blocks > 1).then_some(Self { recording, blocks }))
    }

    /// Draws the blocks that lose versions; a number always means the same ones.
    pub(crate) fn draw(&self, state: &DiskState, number: u64) -> Vec<Lost> {
        let pieces: BTreeSet<Piece> = state
            .pending
            .iter()
            .flat_map(|(block, versions)| versions.iter().map(|version| (*block, version)))
            .map(|(block, version)| self.piece(block, version))
            .collect();

        // Each piece is a place with one version.
        let places: Vec<Piece> = pieces.iter().copied().collect();
        let commands = pieces.iter().map(|piece| piece.event.into()).collect();
        let mut draw = LossDraw::new(number, &places, &commands);
        let lost = places
            .iter()
            .filter(|piece| draw.lost(**piece, &[piece.event.into()]) > 0);
        self.without(state, &lost.copied().collect())
    }

    /// The pieces of which these blocks have lost their versions.
    pub(crate) fn pieces(&self, state: &DiskState, lost: &[Lost]) -> BTreeSet<Piece> {
        let of_block = |lost: &Lost| {
            let versions = state.pending.get(&lost.block).into_iter().flatten().rev();
            versions.take(lost.versions as usize)
        };
        lost.iter()
            .flat_map(|lost| of_block(lost).map(|version| self.piece(lost.block, version)))
            .collect()
    }

    /// The blocks that do not keep their newest version if these pieces are lost.
    pub(crate) fn without(&self, state: &DiskState, pieces: &BTreeSet<Piece>) -> Vec<Lost> {
        let lost = state.pending.iter().map(|(block, versions)| {
            let newest = versions.iter().rev();
            // A piece missing under a newer one is not visible.
            let versions = newest
                .take_while(|version| pieces.contains(&self.piece(*block, version)))
                .count() as u32;
            let block = *block;
            Lost { block, versions }
        });
        lost.filter(|lost| lost.versions > 0).collect()
    }

    /// The piece of which a version of a block is a part.
    fn piece(&self, block: u64, version: &Version) -> Piece {
        let event = version.event;
        let is_whole = match &self.recording.events[event as usize] {
            Event::Write { words, .. } => words.len() as u64 <= self.blocks,
            _ => false,
        };
        Piece {
            event,
            block: (!is_whole).then_some(block),
        }
    }
}
