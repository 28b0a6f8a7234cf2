//! Files carried into a volume and out of it, byte for byte.
//!
//! Invariant: a name refers to a complete file; an import or an export has another name until it is complete
//! and durable. An SQLite database is exported as stock SQLite would have written it, and only if its
//! file is complete: not with a log, or a journal that must be rolled back. Absent: any other
//! interpretation of files, and SQLite, which does both. A database in use may change while it is
//! copied.

use crate::stock::{StockFile, unfinished};
use remap_ssd_store::{Create, FileHold, FileId, OpenOptions, Store, StoreError};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Bytes copied at a time.
const STEP: usize = 1 << 20;
/// Suffix of an unfinished import or export.
const PART: &str = ".part";

/// Why a file was not carried.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// The volume refused, or its disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The other side of the copy failed.
    #[error(transparent)]
    Local(#[from] io::Error),
    /// The database continues in another file.
    #[error(
        "{name} is not complete without {beside}: open it with SQLite and the extension, run \
         `PRAGMA wal_checkpoint(TRUNCATE)`, close it, and export it again"
    )]
    Incomplete {
        /// The database.
        name: String,
        /// The other file.
        beside: String,
    },
    /// The name is taken, and must not be replaced.
    #[error("there is a file {0} already")]
    Exists(String),
    /// The new file is complete and durable, but has its temporary name; a file that it replaces is
    /// deleted.
    #[error("the new file is complete, but has the name {part}: {error}")]
    Unnamed {
        /// Its temporary name.
        part: String,
        /// Why it could not be renamed.
        error: StoreError,
    },
}

/// Progress callback: bytes done, and bytes in total.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// A file of a volume, complete, to be copied out.
pub struct Export<'a>(StockFile<'a>);

impl<'a> Export<'a> {
    /// Opens the file.
    ///
    /// # Errors
    /// There is no such file, or it is a database that continues in another one.
    pub fn open(volume: &'a dyn Store, name: &str) -> Result<Self, CarryError> {
        let file = volume.open(name, OpenOptions::default())?;

        // Without it the exported file would be another database: SQLite's integrity checks would
        // find nothing.
        if let Some(beside) = unfinished(volume, name)? {
            let name = name.to_owned();
            return Err(CarryError::Incomplete { name, beside });
        }

        // Read as stock SQLite would see it, without the additions of our own SQLite.
        Ok(Self(StockFile::open(volume, file)?))
    }

    /// Copies all of it to a local file; an older one stays until the new one is complete.
    ///
    /// # Errors
    /// The volume could not be read, or the file could not be written.
    pub fn copy_to(&self, path: &Path, progress: Progress<'_>) -> Result<(), CarryError> {
        replace(path, |out| self.copy(out, progress))
    }

    /// Copies all of it.
    ///
    /// # Errors
    /// The volume could not be read, or `out` could not be written.
    pub fn copy(&self, out: &mut dyn Write, progress: Progress<'_>) -> Result<(), CarryError> {
        let mut buffer = vec![0; STEP];
        let mut done = 0;

        loop {
            let read = self.0.read(done, &mut buffer)?;

            if read == 0 {
                return Ok(out.flush()?);
            }

            out.write_all(&buffer[..read])?;
            done += read as u64;
            progress(done, self.0.size());
        }
    }
}

/// Writes to a file beside this one, and renames it when it is complete and durable.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), CarryError>,
) -> Result<(), CarryError> {
    let mut part = path.as_os_str().to_owned();
    part.push(PART);
    let mut out = File::create(&part)?;
    let written = write(&mut out).and_then(|()| {
        out.sync_all()?;
        Ok(fs::rename(&part, path)?)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// A file to be copied in, whose name no process has open or can open.
pub struct Import<'a> {
    volume: &'a dyn Store,
    name: String,
    exists: bool,
    /// Until the new file is in place.
    _alone: FileHold,
}

impl<'a> Import<'a> {
    /// Takes the name; a file that has it stays until the new one is complete.
    ///
    /// # Errors
    /// The name is taken, and `replace` is false, or a process has the file open.
    pub fn begin(volume: &'a dyn Store, name: &str, replace: bool) -> Result<Self, CarryError> {
        let exists = match volume.open(name, OpenOptions::default()) {
            Ok(_) if !replace => return Err(CarryError::Exists(name.to_owned())),
            Ok(_) => true,
            Err(StoreError::NotFound(_)) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            volume,
            name: name.to_owned(),
            exists,
            _alone: volume.hold_file(name, true)?,
        })
    }

    /// Copies all of `source`, of which `expected` bytes are known. Returns the number of bytes.
    ///
    /// # Errors
    /// `source` could not be read, or the volume could not be written; the name is as before,
    /// except after [`CarryError::Unnamed`].
    pub fn copy(
        self,
        source: &mut dyn Read,
        expected: u64,
        progress: Progress<'_>,
    ) -> Result<u64, CarryError> {
        let Self { volume, name, .. } = &self;

        // Remove the remains of an interrupted import.
        let part = format!("{name}{PART}");
        match volume.delete(&part) {
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let file = volume.open(&part, Create::New.into())?;
        let copied = copy_in(*volume, file, source, expected, progress);
        let bytes = copied.inspect_err(|_| {
            // If this fails too, the first error is reported.
            let _ = volume.delete(&part);
        })?;

        // 1. make the new file durable  2. remove the old one  3. rename the new one. Cut between 2
        // and 3: the new file is present and complete, under its temporary name.
        volume.sync(file)?;
        if self.exists {
            volume.delete(name)?;
        }
        match volume.rename(&part, name) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(CarryError::Unnamed { part, error }),
        }
    }
}

fn copy_in(
    volume: &dyn Store,
    file: FileId,
    source: &mut dyn Read,
    expected: u64,
    progress: Progress<'_>,
) -> Result<u64, CarryError> {
    let mut buffer = Vec::with_capacity(STEP);
    let mut done = 0;

    loop {
        buffer.clear();
        Read::take(&mut *source, STEP as u64).read_to_end(&mut buffer)?;
        if buffer.is_empty() {
            return Ok(done);
        }

        volume.write(file, done, &buffer)?;
        done += buffer.len() as u64;
        progress(done, expected);
    }
}
