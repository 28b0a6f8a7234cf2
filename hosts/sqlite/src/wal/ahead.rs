//! Read-ahead of frames during a checkpoint: it copies them in the order of the database's pages,
//! from all over the log, and one by one each would be a round trip to the device.
//!
//! # Why frames read ahead stay valid
//!
//! They live between `SQLITE_FCNTL_CKPT_START` and `SQLITE_FCNTL_CKPT_DONE`. The copying connection
//! holds the checkpoint lock. The frames it copies were committed before it began, and a frame is
//! overwritten only after a restart of the log, for which SQLite waits until the wal-index says
//! that all frames are copied; that is set after the end. Frames after the last one to be copied
//! may be written by other connections in between, which makes their read-ahead stale: they are not
//! read before the end.
//!
//! Absent: stamps, and detecting a checkpoint.

use super::stored::StoredLog;
use remap_ssd_store::StoreError;
use std::collections::BTreeMap;

/// Bytes per read: large compared with a round trip, and not too large if only a few are needed.
const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of chunks. When they are used up, further frames of a longer log are read one by
/// one.
const CHUNKS_MAX: usize = 64;

/// The chunks read ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// By offset in the file; the last one may be short.
    chunks: BTreeMap<u64, Vec<u8>>,
}

impl Ahead {
    /// Reads bytes of the log's file, and zero-fills missing ones. Returns the number of bytes
    /// read.
    pub(super) fn read(
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

        // Large pages may cross the end of a chunk.
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
