//! Files that are complete or absent.
//!
//! Absent: their contents.

use crate::Error;
use remap_ssd_sim::report::sheet::{Sheet, TableForm};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Writes a file atomically.
///
/// # Errors
/// The system's reason, with the file's name.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    Pending::begin(path)?.write(text).map(drop)
}

/// A file to be written: under a temporary name until it is complete, then renamed. Dropped, it
/// leaves nothing.
#[derive(Debug)]
pub(crate) struct Pending {
    path: PathBuf,
    /// None if the path exists and is no regular file, such as a terminal.
    beside: Option<NamedTempFile>,
}

impl Pending {
    /// Checks that it can be written.
    ///
    /// # Errors
    /// The system's reason, with the file's name.
    pub(crate) fn begin(path: &Path) -> Result<Self, Error> {
        let about = |error: io::Error| Error::about(path.display(), error);
        let path = path.to_owned();

        // A device or a pipe cannot be replaced by renaming: it is written in place.
        if path.exists() && !path.is_file() {
            if path.is_dir() {
                return Err(about(io::ErrorKind::IsADirectory.into()));
            }
            return Ok(Self { path, beside: None });
        }

        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let why = format!("there is no folder {}", folder.display());
            return Err(Error::about(path.display(), why));
        }

        // Written beside it and renamed, so that a reader never finds a partial file.
        let beside = tempfile::Builder::new()
            .prefix(".remap-ssd-")
            // Permissions of a normal new file, subject to the umask: a temporary file is private
            // by default.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            // The temporary name would not help the user.
            .map_err(|error| about(io::Error::from(error.kind())))?;

        Ok(Self {
            path,
            beside: Some(beside),
        })
    }

    /// Writes it; returns its path.
    ///
    /// # Errors
    /// The system's reason, with the file's name.
    pub(crate) fn write(self, text: &str) -> Result<PathBuf, Error> {
        let about = |error: io::Error| Error::about(self.path.display(), error);
        let Some(mut beside) = self.beside else {
            std::fs::write(&self.path, text).map_err(about)?;
            return Ok(self.path);
        };
        beside.write_all(text.as_bytes()).map_err(about)?;
        // Durable before it has its name: a crash must not leave an empty file under it.
        beside.as_file().sync_all().map_err(about)?;
        let persisted = beside.persist(&self.path).map(drop);
        persisted.map_err(|error| about(error.error))?;
        Ok(self.path)
    }
}

/// The page and the table of results, where they are wanted.
#[derive(Debug)]
pub struct Reports {
    page: Option<Pending>,
    table: Option<(TableForm, Pending)>,
}

impl Reports {
    /// Checks that they can be written: hours of work must not end at a missing folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn begin(page: Option<&Path>, table: Option<&Path>) -> Result<Self, Error> {
        let form = |path: &Path| {
            let form = TableForm::of(path).map_err(Error::usage)?;
            Ok::<_, Error>((form, Pending::begin(path)?))
        };
        Ok(Self {
            page: page.map(Pending::begin).transpose()?,
            table: table.map(form).transpose()?,
        })
    }

    /// Writes them; makes only those that are wanted, and returns their paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(
        self,
        page: impl FnOnce() -> String,
        sheet: impl FnOnce(TableForm) -> Sheet,
    ) -> Result<Vec<PathBuf>, Error> {
        let page = self.page.map(|pending| pending.write(&page()));
        let table = self
            .table
            .map(|(form, table)| table.write(&sheet(form).write(form)));
        page.into_iter().chain(table).collect()
    }
}
