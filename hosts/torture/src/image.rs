//! The disk after a cut: numbers of recorded contents, and blocks written since.
//!
//! Invariant: the recording never changes; images are independent. Absent: flushes, which have no
//! effect here.

use crate::array::{Array, DiskGeometry};
use crate::contents::{ContentId, Contents, ZEROES};
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A disk after a cut.
pub(crate) struct Image {
    shape: DiskGeometry,
    contents: Contents,
    state: Mutex<DiskState>,
}

struct DiskState {
    blocks: Vec<ContentId>,
    /// Blocks written since the cut.
    written: HashMap<u64, Box<[u8]>>,
}

impl Image {
    /// Creates a disk with these contents.
    pub(crate) fn new(shape: DiskGeometry, contents: Contents, blocks: Vec<ContentId>) -> Self {
        assert_eq!(
            blocks.len() as u64,
            shape.blocks,
            "every block has a content"
        );
        Self {
            shape,
            contents,
            state: Mutex::new(DiskState {
                blocks,
                written: HashMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_block(&self, state: &DiskState, block: u64, into: &mut [u8]) -> io::Result<()> {
        match state.written.get(&block) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                Ok(())
            }
            None => self.contents.get(state.blocks[block as usize], into),
        }
    }
}

impl Array for Image {
    fn shape(&self) -> DiskGeometry {
        self.shape
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let block_bytes = self.shape.block_bytes as usize;
        let (first, count, before) = self.shape.cover(offset, into.len() as u64);
        let mut blocks = vec![0; count as usize * block_bytes];
        let state = self.state();
        for (block, bytes) in (first..).zip(blocks.chunks_mut(block_bytes)) {
            self.read_block(&state, block, bytes)?;
        }
        into.copy_from_slice(&blocks[before..before + into.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _through: bool) -> io::Result<()> {
        let mut state = self.state();
        let (first, whole) = self.shape.whole(offset, data, |block, into| {
            self.read_block(&state, block, into)
        })?;
        for (block, bytes) in (first..).zip(whole.chunks(self.shape.block_bytes as usize)) {
            state.written.insert(block, bytes.into());
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let (parts, blocks) = self.shape.split(offset, len);
        for part in parts {
            self.write(
                part.start,
                &vec![0; (part.end - part.start) as usize],
                false,
            )?;
        }

        // Whole blocks of zeroes have a number; no data are written for them.
        let mut state = self.state();
        for block in blocks {
            state.written.remove(&block);
            state.blocks[block as usize] = ZEROES;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
