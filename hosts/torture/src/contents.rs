//! Contents of written blocks, each stored once, in a temporary file.
//!
//! Invariants: number 0 is a block of zeroes and takes no space; a number's content never changes.
//! Absent: the content of each disk block; the name of the file: it is unlinked, so that no file
//! remains however the process ends.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of a distinct content of blocks.
pub(crate) type ContentId = u32;
/// The content that takes no space.
pub(crate) const ZEROES: ContentId = 0;

/// Half a BLAKE3 hash: two of 2^32 blocks collide by chance once in 2^64 recordings.
type Fingerprint = [u8; 16];

/// All contents; clones share them.
#[derive(Clone)]
pub struct Contents {
    file: Arc<File>,
    block_bytes: usize,
    table: Arc<Mutex<HashMap<Fingerprint, ContentId>>>,
}

impl Contents {
    /// Creates an empty store.
    ///
    /// # Errors
    /// There is no room for a temporary file.
    pub(crate) fn new(block_bytes: usize) -> io::Result<Self> {
        let file = Arc::new(tempfile::tempfile()?);
        Ok(Self {
            file,
            block_bytes,
            table: Arc::default(),
        })
    }

    /// Number of contents, without the zeroes. Their numbers begin at 1.
    pub fn count(&self) -> u32 {
        self.table().len() as u32
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<Fingerprint, ContentId>> {
        // Entries are added atomically: after a panic elsewhere the table is still consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a block's content and returns its number.
    ///
    /// # Errors
    /// The temporary file cannot be written, or there are 2^32 contents.
    pub(crate) fn put(&self, block: &[u8]) -> io::Result<ContentId> {
        assert_eq!(block.len(), self.block_bytes, "a content is one block");
        // Zeroes are the most frequent content, and take no space.
        if block.iter().all(|byte| *byte == 0) {
            return Ok(ZEROES);
        }
        let hash = blake3::hash(block);
        let fingerprint: Fingerprint = *hash.as_bytes().first_chunk().expect("a hash has 32 bytes");

        let mut table = self.table();
        // Each content once: workloads rewrite the same blocks often.
        if let Some(known) = table.get(&fingerprint) {
            return Ok(*known);
        }
        let next = u32::try_from(table.len() + 1)
            .map_err(|_| io::Error::other("too many different blocks"))?;
        self.file.write_all_at(block, self.position(next))?;
        table.insert(fingerprint, next);
        Ok(next)
    }

    /// Reads a content.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub(crate) fn get(&self, id: ContentId, into: &mut [u8]) -> io::Result<()> {
        match id {
            ZEROES => {
                into.fill(0);
                Ok(())
            }
            _ => self.file.read_exact_at(into, self.position(id)),
        }
    }

    fn position(&self, id: ContentId) -> u64 {
        u64::from(id - 1) * self.block_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_blocks_have_one_number_and_zeroes_have_none_of_the_file() {
        let contents = Contents::new(512).unwrap();
        let ids = [7, 0, 9, 7].map(|byte| contents.put(&[byte; 512]).unwrap());
        assert_eq!((ids, contents.count()), ([1, ZEROES, 2, 1], 2));

        let mut block = [1; 512];
        for (id, byte) in [(1, 7), (2, 9), (0, 0)] {
            contents.get(id, &mut block).unwrap();
            assert_eq!(block, [byte; 512]);
        }
    }
}
