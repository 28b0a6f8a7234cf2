//! Many writes at once: their commands are under way together.
//!
//! Concurrent commands are executed in any order. So a list is cut into *waves*: no page is written
//! twice within one.
//!
//! Invariants: at most as many commands under way as the queue holds, and so many bytes; a wave
//! begins after all responses of the previous one. Absent: state between lists.

use super::{Call, Client, ClientError};
use crate::spec::opcode::io as opcode;
use remap_ssd_device::{DiskWrite, PageRanges};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Bytes under way at once, unless one command has more.
const WAVE_BYTES: usize = 1 << 20;

type Piece<'a> = DiskWrite<'a>;

impl Client {
    /// Writes a list, wave by wave.
    pub(super) fn write_list(&mut self, writes: &[DiskWrite<'_>]) -> Result<(), ClientError> {
        let pieces = self.pieces(writes)?;
        let depth = self.commands_at_once();

        let mut rest = &pieces[..];
        while !rest.is_empty() {
            // A single write conflicts with nothing, so every wave has at least one.
            let (wave, later) = rest.split_at(wave(rest, depth).max(1));
            self.send_writes(wave)?;
            rest = later;
        }
        Ok(())
    }

    /// The writes as commands that the device takes. All places are checked before anything is
    /// sent.
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
                Call {
                    sqe,
                    send: piece.data,
                    receive: 0,
                }
            })
            .collect();

        // Sent again as a whole if the connection breaks: pages that are written twice hold the
        // same.
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

/// How many of these may be under way at once.
fn wave(pieces: &[Piece<'_>], depth: usize) -> usize {
    let (mut written, mut bytes) = (PageRanges::default(), 0);
    // Bytes count as well as commands: the device buffers what it has asked for.
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
