//! Media in a folder: making it, opening it, and looking into it.
//!
//! Absent: the files (`folder`), and making changes durable (`durable`, `rest`).

use super::Media;
use crate::array::NandArray;
use crate::folder::{self, Folder, FolderLock, FoundFolder, ReplayReport};
use crate::geometry::Geometry;
use crate::image_file::ImageError;
use crate::slab::Slab;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Creating and opening a device in a folder.
impl Media {
    /// Creates a device with real bytes in an existing folder without one. By default
    /// `journal_bytes` is about the size of the state. On failure, files may be left behind.
    ///
    /// # Errors
    /// The system's reason, a full disk among them.
    pub fn create_folder(
        dir: &Path,
        geometry: Geometry,
        nvram_words: usize,
        journal_bytes: Option<u64>,
    ) -> Result<Self, ImageError> {
        let (folder, nand, nvram) = Folder::create(dir, geometry, nvram_words, journal_bytes)?;
        Ok(Self::in_folder(folder, nand, nvram))
    }

    /// Powers on the device in a folder.
    ///
    /// # Errors
    /// There is none, it is damaged, in use, or of another version.
    pub fn open_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        Self::find_folder(dir, false)?.begin()
    }

    /// Powers on the device in a folder. Nothing is written if it was left by `rest` or `tidy`.
    ///
    /// # Errors
    /// As `open_folder`.
    pub fn resume_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        Self::find_folder(dir, false)?.resume()
    }

    /// Powers on a copy of the device in a folder: the files are not changed by any use of it.
    ///
    /// # Errors
    /// As `open_folder`.
    pub fn look_into_folder(dir: &Path) -> Result<(Self, ReplayReport), ImageError> {
        let found = FoundFolder::look(dir)?;
        let report = found.report();
        Ok((found.into_copy(), report))
    }

    /// Reads the device in a folder for use. `accept_loss`: drop damaged data, where possible.
    ///
    /// # Errors
    /// As `open_folder`; damaged files are unchanged.
    pub fn find_folder(dir: &Path, accept_loss: bool) -> Result<FoundFolder, ImageError> {
        FoundFolder::find(dir, accept_loss)
    }

    /// Reads the device in a folder to find damage. Nothing is written.
    ///
    /// # Errors
    /// The damage leaves nothing to recover from.
    pub fn weigh_folder(dir: &Path) -> Result<FoundFolder, ImageError> {
        FoundFolder::weigh(dir)
    }

    /// Opens the page contents of a device in a folder, for early write-back only.
    ///
    /// # Errors
    /// The system's reason.
    pub fn contents_file(dir: &Path) -> io::Result<File> {
        folder::open_contents(dir)
    }

    /// Locks a device in a folder until the result is dropped.
    ///
    /// # Errors
    /// It is in use, or there is none.
    pub fn lock_folder(dir: &Path) -> Result<FolderLock, ImageError> {
        FolderLock::take(dir)
    }

    /// Names of the files that `create_folder` makes.
    pub fn folder_files(dir: &Path) -> Vec<PathBuf> {
        folder::file_paths(dir)
    }

    fn in_folder(folder: Folder, nand: NandArray, nvram: Slab<u64>) -> Self {
        let mut media = Self::assemble(nand, nvram);
        media.folder = Some(Box::new(folder));
        media
    }
}

/// From files to media.
impl FoundFolder {
    /// Powers the device on.
    ///
    /// # Errors
    /// The system's reason.
    pub fn begin(self) -> Result<(Media, ReplayReport), ImageError> {
        let report = self.report();
        let (folder, nand, nvram) = self.begin_state()?;
        Ok((Media::in_folder(folder, nand, nvram), report))
    }

    /// Powers the device on. If its journal is at rest, it is continued and nothing is written.
    ///
    /// # Errors
    /// The system's reason.
    pub fn resume(self) -> Result<(Media, ReplayReport), ImageError> {
        let report = self.report();
        let (folder, nand, nvram) = self.go_on()?;
        Ok((Media::in_folder(folder, nand, nvram), report))
    }

    /// Powers on a copy in memory.
    pub fn into_copy(self) -> Media {
        let (nand, nvram) = self.into_tables();
        Media::assemble(nand, nvram)
    }
}
