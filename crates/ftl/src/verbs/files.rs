//! The verbs of the file map: write a page of a file, read the lists, and reset them (MEMSYS'17
//! §4.2.2).
//!
//! Absent: the map (`files`).

use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::records::files::{FileBlock, FilePage, FileStatus};
use remap_ssd_media::{Lpn, Payload};

impl Ftl {
    /// Writes a page of a file and records its position in the file.
    ///
    /// # Errors
    /// `NoFileMap`, and those of `write`: then nothing is recorded.
    pub fn fs_write(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        page: FilePage,
    ) -> Result<FileStatus, Refusal> {
        self.has_file_map()?;
        self.write(lpn, payload)?;
        // The list waits for the page on flash.
        self.write_back(lpn, 1)?;
        // The data is written by now, so a failure of the list is not an error of the write.
        let status = self
            .files
            .append(&mut self.core.media, &self.core.tables, lpn, page)
            .unwrap_or_else(|_| {
                self.files.damaged = true;
                FileStatus::MapDamaged
            });
        match status {
            FileStatus::Recorded => self.core.stats.fs_recorded += 1,
            FileStatus::FilesFull => self.core.stats.fs_files_full += 1,
            FileStatus::BlocksFull => self.core.stats.fs_blocks_full += 1,
            FileStatus::MapDamaged => {}
        }

        self.core.fill_lines();
        Ok(status)
    }

    /// Pages of a file written since the last reset, in order.
    ///
    /// # Errors
    /// `NoFileMap`; `MediaError` if the map is damaged.
    pub fn fs_map(&mut self, inode: u32) -> Result<Vec<FileBlock>, Refusal> {
        self.has_file_map()?;
        self.files
            .list(&mut self.core.media, inode)
            .map_err(|_| Refusal::MediaError)
    }

    /// Files written since the last reset, by inode number.
    ///
    /// # Errors
    /// `NoFileMap`; `MediaError` if the map is damaged.
    pub fn fs_files(&mut self) -> Result<Vec<u32>, Refusal> {
        self.has_file_map()?;
        self.files
            .inodes(&mut self.core.media)
            .map_err(|_| Refusal::MediaError)
    }

    /// Forgets all files.
    ///
    /// # Errors
    /// `NoFileMap`.
    pub fn fs_reset(&mut self) -> Result<(), Refusal> {
        self.has_file_map()?;
        self.files.reset(&mut self.core.media);
        self.core.fill_lines();
        self.core.stats.fs_resets += 1;
        Ok(())
    }

    fn has_file_map(&self) -> Result<(), Refusal> {
        if self.core.config.fs_files > 0 {
            Ok(())
        } else {
            Err(Refusal::NoFileMap)
        }
    }
}
