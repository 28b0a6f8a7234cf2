//! The device's file map, by the vendor commands 91h, 92h and 94h.
//!
//! Invariants: a device without the commands or without a map is reported as `Unsupported`, not as
//! a failure; a list is read with as many commands as needed. Absent: use of the lists.

use super::error::broken;
use super::queue::entry;
use super::{Call, Client, ClientError};
use crate::spec::opcode::io as opcode;
use crate::spec::status::Status;
use remap_ssd_device::{FileMapError, FilePage, FileStatus};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Size of a list entry, and of the head of each answer.
const ENTRY_BYTES: usize = 8;

impl Client {
    pub(super) fn file_map_write(
        &mut self,
        page: u64,
        data: &[u8; PAGE_BYTES],
        file: FilePage,
    ) -> Result<FileStatus, FileMapError<ClientError>> {
        let slba = self
            .checked_blocks("write of the file map", page, 1)
            .map_err(FileMapError::Disk)?;
        let mut sqe = self.rw(opcode::FS_WRITE, slba, (self.blocks(1) - 1) as u16);
        (sqe.cdw13, sqe.cdw14) = (file.inode, file.offset);
        let call = Call::sending(sqe, data);
        // If only the response was lost, the retry lists the page twice, as two writes would.
        let answers = self
            .with(true, |_, io| io.calls(&[call]))
            .map_err(FileMapError::Disk)?;
        let answer = answers
            .first()
            .ok_or(FileMapError::Disk(broken("no answer")))?;

        match (answer.status, answer.result as u32) {
            (status, _) if status.is_success() => Ok(FileStatus::Recorded),
            (Status::NOT_LISTED, 1) => Ok(FileStatus::FilesFull),
            (Status::NOT_LISTED, 2) => Ok(FileStatus::BlocksFull),
            (Status::NOT_LISTED, 3) => Ok(FileStatus::MapDamaged),
            (status, _) => Err(file_map(self.exclusive.note(ClientError::Status {
                what: "write of the file map",
                status,
            }))),
        }
    }

    /// Reads the whole list of a file (page in the file, page of the namespace), or of the files
    /// (inode, 0).
    pub(super) fn file_map_read(
        &mut self,
        inode: Option<u32>,
    ) -> Result<Vec<[u32; 2]>, FileMapError<ClientError>> {
        let receive = self.transfer_bytes_max();
        let mut entries: Vec<[u32; 2]> = Vec::new();
        loop {
            let mut sqe = entry(opcode::FS_MAP, self.options.nsid);
            sqe.cdw10 = (receive / 4 - 1) as u32;
            (sqe.cdw12, sqe.cdw13) = (u32::from(inode.is_none()), inode.unwrap_or(0));

            // The list continues where the last answer ended.
            sqe.cdw14 = entries.len() as u32;
            let answer = self
                .io("list of the file map", true, &Call::receiving(sqe, receive))
                .map_err(file_map)?;

            let words: Vec<[u32; 2]> = answer
                .data
                .as_chunks::<ENTRY_BYTES>()
                .0
                .iter()
                .map(|bytes| {
                    [0, 4].map(|at| {
                        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                    })
                })
                .collect();
            let (head, listed) = words
                .split_first()
                .ok_or(FileMapError::Disk(broken("a list without a head")))?;
            let total = head[0] as usize;

            // The answer has the requested length, however many entries are listed in it.
            let wanted = total.saturating_sub(entries.len()).min(listed.len());
            entries.extend_from_slice(&listed[..wanted]);
            if entries.len() >= total {
                return Ok(entries);
            }

            // A device that makes no progress would cause an endless loop.
            if wanted == 0 {
                return Err(FileMapError::Disk(broken("a list that does not go on")));
            }
        }
    }

    pub(super) fn file_map_reset(&mut self) -> Result<(), FileMapError<ClientError>> {
        let sqe = entry(opcode::FS_RESET, self.options.nsid);
        self.io("reset of the file map", true, &Call::new(sqe))
            .map(drop)
            .map_err(file_map)
    }
}

fn file_map(error: ClientError) -> FileMapError<ClientError> {
    match error {
        ClientError::Status {
            status: Status::NO_FILE_MAP | Status::INVALID_OPCODE,
            ..
        } => FileMapError::Unsupported,
        other => FileMapError::Disk(other),
    }
}
