//! Leaves a folder so that it can be reopened at low cost.
//!
//! Absent: the definition of a folder at rest (`folder`).

use super::Media;
use crate::array::PageContents;
use crate::folder::RestingFolder;
use crate::image_file::ImageError;
use std::io;
use std::path::Path;

impl Media {
    /// The last step before the process ends: everything is durable, and the next opening continues
    /// from here. Nothing is written if nothing has happened since the last sync.
    ///
    /// # Errors
    /// As `sync`.
    pub fn rest(&mut self) -> io::Result<()> {
        match &self.folder {
            None => Ok(()),
            Some(folder) if folder.is_short() => self.sync(),
            Some(_) => self.tidy(),
        }
    }

    /// Like `rest`, and closes the folder in any case: the tables stay, without contents. Until
    /// `resume_with_tables` the media must not be used. `None` if the folder could not be left at rest or
    /// cannot be read, or none is open.
    ///
    /// # Errors
    /// As `sync`.
    pub fn rest_keeping_tables(&mut self) -> io::Result<Option<RestingFolder>> {
        self.rest()?;
        let Some(folder) = self.folder.take().filter(|folder| folder.is_at_rest()) else {
            return Ok(None);
        };
        let contents = std::mem::replace(&mut self.nand.contents, PageContents::None);
        let PageContents::Mapped(pages) = contents else {
            unreachable!("a folder's contents are mapped")
        };
        Ok(folder.close(pages))
    }

    /// Reopens the folder that `rest_keeping_tables` closed. `false`: it has changed, or cannot be read, and
    /// the media must be discarded.
    ///
    /// # Errors
    /// The folder is in use.
    pub fn resume_with_tables(
        &mut self,
        dir: &Path,
        mark: RestingFolder,
    ) -> Result<bool, ImageError> {
        let Some((folder, pages)) = mark.open(dir)? else {
            return Ok(false);
        };
        self.nand.contents = PageContents::Mapped(pages);
        self.folder = Some(Box::new(folder));
        Ok(true)
    }
}
