//! Frames read ahead while a checkpoint copies them: it takes them in the order of the database's
//! pages, from all over the log, and one by one each would be a round trip to the device.
//!
//! # Why what is kept stays true
//!
//! This lives between `SQLITE_FCNTL_CKPT_START` and `SQLITE_FCNTL_CKPT_DONE`. Whoever copies frames
//! holds the checkpoint lock. What it copies was committed before it began, and a frame is
//! overwritten only after the log has been started again, for which SQLite waits until the
//! wal-index says that all frames are copied: it says so after the end. Frames behind the last one
//! to be copied may be written by others meanwhile, and what is kept of them is old: nobody asks
//! for them before the end.
//!
//! Absent: stamps, and whether a checkpoint runs.

use super::stored::StoredLog;
use remap_ssd_store::StoreError;
use std::collections::BTreeMap;

/// Bytes that are read at once: much more than a round trip costs, and not much if only a few of
/// them are needed.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that are kept. Frames of a longer log are read one by one when these are full.
const CHUNKS_MAX: usize = 64;

/// What has been read ahead.
#[derive(Default)]
pub struct Ahead {
    /// By their place in the file; the last one may be short.
    chunks: BTreeMap<u64, Vec<u8>>,
}

impl Ahead {
    /// Reads bytes of the log's file; what is not there is zeroes. Answers how many bytes there
    /// were.
    pub fn read(
        &mut self,
        log: &StoredLog,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, StoreError> {
        let within = (offset % CHUNK_BYTES as u64) as usize;
        let place = offset - within as u64;

        if !self.chunks.contains_key(&place) && self.chunks.len() < CHUNKS_MAX {
            let mut chunk = vec![0; CHUNK_BYTES];
            let bytes = log.read(place, &mut chunk)?;
            chunk.truncate(bytes);
            self.chunks.insert(place, chunk);
        }

        // Large pages may begin in one chunk and end in the next.
        match self
            .chunks
            .get(&place)
            .and_then(|chunk| chunk.get(within..within + into.len()))
        {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                Ok(into.len())
            }
            None => log.read(offset, into),
        }
    }
}
