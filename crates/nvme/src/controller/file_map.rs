//! The map of files: pages written as part of a file, and lists of them.
//!
//! Absent: storage of the map in the device.

use super::blocks::{Blocks, Namespace};
use super::data::HostData;
use super::io::{ActiveCommand, status_of};
use super::turn::Step;
use crate::spec::status::Status;
use remap_ssd_device::Completion;
use remap_ssd_ftl::{FilePage, FileStatus};
use remap_ssd_media::Payload;
use remap_ssd_media::geometry::PAGE_BYTES;

impl ActiveCommand<'_, '_> {
    pub(super) fn fs_write(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
        page: FilePage,
    ) -> Result<FileStatus, Status> {
        let lpn = namespace.page_of(blocks.slba);

        self.touch(namespace, blocks);
        self.device.spend(Step::Write);

        // Too few bytes are a transport error, and then nothing may be written.
        let bytes = data
            .take(PAGE_BYTES)
            .first_chunk::<PAGE_BYTES>()
            .ok_or(Status::DATA_TRANSFER)?;

        let completion = self
            .device
            .fs_write(self.now, lpn, &Payload::Bytes(bytes), page);

        // Time has passed even if the page is refused below.
        self.done(Completion {
            done_at: completion.done_at,
            result: Ok(()),
        })?;

        let status = completion.result.map_err(status_of)?;

        // An older cached version would otherwise replace this page.
        self.forget_pages(lpn, 1);
        self.note_write(lpn, bytes);

        Ok(status)
    }

    /// Lists a file's pages with their first LBAs, or the files. Skips pages of other namespaces.
    pub(super) fn fs_list(
        &mut self,
        namespace: &Namespace,
        inode: Option<u32>,
    ) -> Result<Vec<[u32; 2]>, Status> {
        let Some(inode) = inode else {
            let (done_at, files) = self.device.fs_files(self.now);

            self.device
                .spend(Step::List(files.as_ref().map_or(0, Vec::len)));
            self.done(Completion {
                done_at,
                result: Ok(()),
            })?;

            return Ok(files
                .map_err(status_of)?
                .into_iter()
                .map(|inode| [inode, 0])
                .collect());
        };

        let (done_at, blocks) = self.device.fs_map(self.now, inode);
        self.device
            .spend(Step::List(blocks.as_ref().map_or(0, Vec::len)));
        self.done(Completion {
            done_at,
            result: Ok(()),
        })?;

        // The map covers the whole device. A host must not learn about files in other namespaces.
        let own = namespace.first_lpn..namespace.first_lpn.offset(namespace.pages);
        let blocks = blocks
            .map_err(status_of)?
            .into_iter()
            .filter(|block| own.contains(&block.lpn));

        Ok(blocks
            .map(|block| [block.offset, block.lpn.offset_from(own.start)])
            .collect())
    }

    pub(super) fn fs_reset(&mut self) -> Result<(), Status> {
        let completion = self.device.fs_reset(self.now);
        self.done(completion)
    }
}
