//! Lists of writes: their commands run concurrently.
//!
//! Concurrent commands are executed in any order. So a list is cut into *waves*: no page is written
//! twice within one.
//!
//! Invariants: the outstanding commands never exceed the queue, nor `WAVE_BYTES`; a wave begins
//! after all responses of the previous one. Absent: state between lists.

use super::{Call, Client, ClientError};
use crate::spec::opcode::io as opcode;
use remap_ssd_device::{DiskWrite, PageRanges};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Maximum outstanding bytes, unless one command has more.
const WAVE_BYTES: usize = 1 << 20;

type Piece<'a> = DiskWrite<'a>;

impl Client {
    /// Writes a list, wave by wave.
    pub(super) fn write_list(&mut self, writes: &[DiskWrite<'_>]) -> Result<(), ClientError> {
        let pieces = self.pieces(writes)?;
        let depth = self.commands_at_once();

        let mut rest = &pieces[..];
        while !rest.is_empty() {
            // A single write has no conflict, so every wave has at least one.
            let (wave, later) = rest.split_at(wave(rest, depth).max(1));
            self.send_writes(wave)?;
            rest = later;
        }
        Ok(())
    }

    /// Splits the writes into commands that the device accepts. All ranges are checked before
    /// anything is sent.
    fn pieces<'a>(&self, writes: &[DiskWrite<'a>]) -> Result<Vec<Piece<'a>>, ClientError> {
        let bytes_max = self.transfer_bytes_max();
        let mut pieces = Vec::with_capacity(writes.len());
        for write in writes {
            let pages = Self::whole_pages(write.data.len())?;
            self.checked_blocks("write", write.page, pages)?;

            let mut page = write.page;
            for data in write.data.chunks(bytes_max) {
                pieces.push(Piece { page, data });
                page += Self::whole_pages(data.len())?;
            }
        }
        Ok(pieces)
    }

    fn send_writes(&mut self, wave: &[Piece<'_>]) -> Result<(), ClientError> {
        let block_bytes = 1usize << self.lba_shift();
        let calls: Vec<Call<'_>> = wave
            .iter()
            .map(|piece| {
                let nlb_z = (piece.data.len() / block_bytes - 1) as u16;
                let sqe = self.rw(opcode::WRITE, self.blocks(piece.page), nlb_z);
                Call::sending(sqe, piece.data)
            })
            .collect();

        // Sent again as a whole if the connection breaks: writing a page twice is idempotent.
        let answers = self.with(true, |_, io| io.calls(&calls))?;
        let refused = answers.iter().find(|answer| !answer.status.is_success());
        refused.map_or(Ok(()), |answer| {
            Err(self.exclusive.note(ClientError::Status {
                what: "write",
                status: answer.status,
            }))
        })
    }
}

/// Length of the next wave: writes that may be outstanding at once.
fn wave(pieces: &[Piece<'_>], depth: usize) -> usize {
    let (mut written, mut bytes) = (PageRanges::default(), 0);
    // Bytes are limited too: the device buffers the data that it requests.
    let fits = |piece: &&Piece<'_>| {
        let end = piece.page + (piece.data.len() / PAGE_BYTES) as u64;
        bytes += piece.data.len();
        if bytes > WAVE_BYTES || written.meets(piece.page, end) {
            return false;
        }
        written.add(piece.page, end);
        true
    };
    pieces.iter().take(depth).take_while(fits).count()
}
