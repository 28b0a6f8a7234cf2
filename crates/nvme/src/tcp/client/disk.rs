//! A remote device as a `Disk`, transparent to host software.
//!
//! Invariant: pages are 4,096 bytes for any block size of the namespace. Absent: functions beyond
//! those of the client.

use super::{Client, ClientError};
use remap_ssd_device::{
    Disk, DiskFileBlock, DiskRemap, DiskWrite, FileMapError, FilePage, FileStatus, HoldError,
    HolderId, RemapAllError,
};
use remap_ssd_media::geometry::PAGE_BYTES;

impl Client {
    /// Number of the namespace's blocks in `pages` pages.
    pub(super) fn blocks(&self, pages: u64) -> u64 {
        pages * (PAGE_BYTES as u64 >> self.lba_shift())
    }

    /// Number of pages in `bytes` bytes.
    pub(super) fn whole_pages(bytes: usize) -> Result<u64, ClientError> {
        if bytes.is_multiple_of(PAGE_BYTES) {
            Ok((bytes / PAGE_BYTES) as u64)
        } else {
            Err(ClientError::NotWholePages(bytes))
        }
    }
}

impl Disk for Client {
    type Error = ClientError;

    fn pages(&self) -> u64 {
        self.namespace().nsze >> (PAGE_BYTES.trailing_zeros() - u32::from(self.lba_shift()))
    }

    fn identity(&self) -> Option<[u8; 16]> {
        // Zeroes mean that the device has no identifier.
        Some(self.namespace().nguid).filter(|nguid| *nguid != [0; 16])
    }

    fn take_holder(&mut self) -> Option<HolderId> {
        self.options.holder.take()
    }

    fn hold(
        &mut self,
        holder: HolderId,
        ended: &[HolderId],
    ) -> Result<Option<HolderId>, HoldError<ClientError>> {
        self.hold_namespace(holder, ended)
    }

    fn join_hold(&mut self, holder: HolderId) -> Result<(), HoldError<ClientError>> {
        self.join_holder(holder)
    }

    fn let_go(&mut self) -> Result<(), ClientError> {
        self.let_go_namespace()
    }

    fn still_held(&mut self) -> Result<(), ClientError> {
        self.hold_again()
    }

    fn close_inherited(&mut self) {
        // The parent's sockets: nothing is sent, and its connections go on.
        if !self.process.is_current() {
            self.queues = None;
        }
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), ClientError> {
        let pages = Self::whole_pages(into.len())?;
        let data = Client::read(self, self.blocks(page), self.blocks(pages))?;
        into.copy_from_slice(&data);
        Ok(())
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), ClientError> {
        // Writing a part of a page would need a read-modify-write, which a disk does not promise.
        Self::whole_pages(data.len())?;
        Client::write(self, self.blocks(page), data)
    }

    fn write_all(&mut self, writes: &[DiskWrite<'_>]) -> Result<(), ClientError> {
        self.write_list(writes)
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), ClientError> {
        Client::trim(self, self.blocks(page), self.blocks(pages))
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        Client::flush(self)
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), ClientError> {
        let DiskRemap {
            target,
            source,
            pages,
            relocate,
            atomic,
        } = *remap;

        // A command cannot have zero blocks.
        if pages == 0 {
            return Ok(());
        }

        let blocks =
            u32::try_from(self.blocks(pages.into())).map_err(|_| ClientError::TooLong(pages))?;
        Client::remap(
            self,
            self.blocks(source),
            self.blocks(target),
            blocks,
            relocate,
            atomic,
        )
        .map(drop)
    }

    fn remap_all(&mut self, remaps: &[DiskRemap]) -> Result<(), RemapAllError<ClientError>> {
        self.remap_list(remaps)
    }

    fn fs_write(
        &mut self,
        page: u64,
        data: &[u8; PAGE_BYTES],
        file: FilePage,
    ) -> Result<FileStatus, FileMapError<ClientError>> {
        self.file_map_write(page, data, file)
    }

    fn fs_list(&mut self, inode: u32) -> Result<Vec<DiskFileBlock>, FileMapError<ClientError>> {
        let blocks = self.file_map_read(Some(inode))?;
        Ok(blocks
            .iter()
            .map(|[offset, page]| DiskFileBlock {
                offset: *offset,
                page: u64::from(*page),
            })
            .collect())
    }

    fn fs_files(&mut self) -> Result<Vec<u32>, FileMapError<ClientError>> {
        Ok(self
            .file_map_read(None)?
            .iter()
            .map(|[inode, _]| *inode)
            .collect())
    }

    fn fs_reset(&mut self) -> Result<(), FileMapError<ClientError>> {
        self.file_map_reset()
    }
}
