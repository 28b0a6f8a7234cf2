//! Files by name, and replacing one by another.
//!
//! *Replace* (`from` becomes `to`, which may exist): 1. rename `from` to `to~`  2. delete `to`
//! 3. rename `to~` to `to`. Each is durable when it returns (the volume's arguments). Cut before 1:
//! nothing has happened. Cut after 1 or 2: `to~` is there, and opening finishes 2 and 3, so that `to` is
//! the new file. The new contents must be synced before: LevelDB does so before it renames.
//! A name that ends in `~` has no other use here, and `replace` refuses one.
//!
//! Absent: directories. A folder's files are those whose names begin with its path.

use crate::Appender;
use remap_ssd_store::{Create, FileHold, FileId, OpenOptions, Store, StoreError};
use std::sync::Arc;

/// Suffix of a file that is about to replace the one without it.
const REPLACING: &str = "~";

/// The files of a store.
#[derive(Clone)]
pub struct Files {
    store: Arc<dyn Store>,
}

impl Files {
    /// Files of a store; finishes what a cut has interrupted.
    ///
    /// # Errors
    /// The store.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let files = Self { store };
        for info in files.store.list()? {
            if let Some(to) = info.name.strip_suffix(REPLACING) {
                files.finish(&info.name, to)?;
            }
        }
        Ok(files)
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// True if there is a file of this name.
    ///
    /// # Errors
    /// The store.
    pub fn exists(&self, name: &str) -> Result<bool, StoreError> {
        match self.store.open(name, Create::Never.into()) {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Size of a file in bytes.
    ///
    /// # Errors
    /// There is no such file, or the store.
    pub fn size(&self, name: &str) -> Result<u64, StoreError> {
        self.store
            .size(self.store.open(name, Create::Never.into())?)
    }

    /// Names of the files in a folder, without its path.
    ///
    /// # Errors
    /// The store.
    pub fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let infos = self.store.list()?;
        let names = infos
            .iter()
            .filter_map(|info| info.name.strip_prefix(&prefix));
        Ok(names
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect())
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// There is no such file, or the store.
    pub fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete(name)
    }

    /// Renames a file; a file of the new name is replaced at one instant.
    ///
    /// # Errors
    /// There is no such file, or the store.
    pub fn replace(&self, from: &str, to: &str) -> Result<(), StoreError> {
        if from.ends_with(REPLACING) || to.ends_with(REPLACING) {
            let name = if to.ends_with(REPLACING) { to } else { from };
            let why = "a name that ends in ~ is kept for files that are being replaced";
            return Err(StoreError::BadName {
                name: name.into(),
                why,
            });
        }
        // The steps of *Replace* in the file header.
        let between = format!("{to}{REPLACING}");
        self.store.rename(from, &between)?;
        self.finish(&between, to)
    }

    fn finish(&self, between: &str, to: &str) -> Result<(), StoreError> {
        match self.store.delete(to) {
            Ok(()) | Err(StoreError::NotFound(_)) => self.store.rename(between, to),
            Err(error) => Err(error),
        }
    }

    /// Holds a file so that no other process can hold it; creates it if necessary.
    ///
    /// # Errors
    /// Another process holds it, or the store.
    pub fn hold(&self, name: &str) -> Result<FileHold, StoreError> {
        self.store.open(name, Create::IfAbsent.into())?;
        self.store.hold_file(name, true)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// There is no such file, or the store.
    pub fn reader(&self, name: &str) -> Result<Reader, StoreError> {
        Ok(Reader {
            file: self.store.open(name, Create::Never.into())?,
            store: Arc::clone(&self.store),
        })
    }

    /// Opens a file for appending, empty unless `keep`; creates it if necessary.
    ///
    /// # Errors
    /// There is no room, or the store.
    pub fn appender(&self, name: &str, keep: bool) -> Result<Appender, StoreError> {
        let options = OpenOptions {
            create: Create::IfAbsent,
            written_next: true,
            ..OpenOptions::default()
        };
        let file = self.store.open(name, options)?;
        if !keep && self.store.size(file)? > 0 {
            self.store.set_size(file, 0)?;
        }
        Appender::new(Arc::clone(&self.store), file)
    }
}

/// A file that is read.
pub struct Reader {
    store: Arc<dyn Store>,
    pub(crate) file: FileId,
}

impl Reader {
    /// Reads from an offset up to the end of the file; returns the number of bytes read.
    ///
    /// # Errors
    /// The file is gone, or the store.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.store.read(self.file, offset, into)
    }
}
