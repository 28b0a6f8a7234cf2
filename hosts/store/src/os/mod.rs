//! A store on the operating system: a folder and its files.
//!
//! Invariants: a name is the name of a file in the folder; ranges that the file system can share
//! are shared, the rest is copied and counted with the reason. Several processes use the folder as
//! they would without this store. A file without write permission is opened read-only. Absent:
//! subfolders, and sizes that are not kept (`open_end` and `written_next` have no effect).

mod share;

use crate::{Create, FileId, FileInfo, OpenOptions, Share, Statistics, Store, StoreError};
use remap_ssd_media::geometry::PAGE_BYTES;
use rustix::fs::{CWD, FallocateFlags, RenameFlags};
use share::Sharing;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE: u64 = PAGE_BYTES as u64;

/// A folder as a store.
pub struct OsStore {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: Vec<Option<Arc<Opened>>>,
    births: u64,
    /// Names have changed since the folder was last synced.
    names_changed: bool,
    statistics: Statistics,
    sharing: Sharing,
}

struct Opened {
    birth: u64,
    /// Device and inode: two handles may refer to one file.
    identity: (u64, u64),
    path: PathBuf,
    file: File,
}

impl Opened {
    fn failed(&self, error: impl Into<io::Error>) -> StoreError {
        StoreError::system(self.path.display(), error)
    }

    fn size(&self) -> Result<u64, StoreError> {
        Ok(self
            .file
            .metadata()
            .map_err(|error| self.failed(error))?
            .len())
    }

    /// Reads up to the end.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_all_at(data, offset)
            .map_err(|error| self.failed(error))
    }
}

impl OsStore {
    /// Opens an existing folder.
    ///
    /// # Errors
    /// It does not exist, or is no folder.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::system(folder.display(), error);
        if !std::fs::metadata(folder).map_err(failed)?.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::NotADirectory)));
        }
        Ok(Self {
            folder: folder.into(),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, file: FileId) -> Result<Arc<Opened>, StoreError> {
        self.state().opened(file)
    }

    fn path(&self, name: &str) -> Result<PathBuf, StoreError> {
        // A name must not lead out of the folder.
        let why = match name {
            "" => "it is empty",
            "." | ".." => "it is a folder's",
            _ if name.contains('/') => "it has a slash",
            _ if name.contains('\0') => "it has a zero byte",
            _ => return Ok(self.folder.join(name)),
        };
        Err(StoreError::BadName {
            name: name.into(),
            why,
        })
    }

    fn make_names_durable(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        // Syncing a file does not cover its name, which is in the folder (fsync(2)).
        if std::mem::take(&mut state.names_changed) {
            let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
            if let Err(error) = synced {
                // The next sync tries again.
                state.names_changed = true;
                return Err(StoreError::system(self.folder.display(), error));
            }
        }
        Ok(())
    }
}

impl State {
    fn opened(&self, file: FileId) -> Result<Arc<Opened>, StoreError> {
        let known = self.files.get(file.slot as usize).and_then(Option::as_ref);
        known
            .filter(|known| known.birth == file.birth)
            .cloned()
            .ok_or(StoreError::Gone)
    }

    fn add(&mut self, path: PathBuf, file: File) -> Result<FileId, StoreError> {
        let metadata = file
            .metadata()
            .map_err(|error| StoreError::system(path.display(), error))?;

        // The inode shows that two handles are of one file, which decides how ranges are shared.
        let identity = (metadata.dev(), metadata.ino());

        self.births += 1;
        // Slots are reused; the birth tells an old handle from a new one.
        let slot = self
            .files
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.files.push(None);
                self.files.len() - 1
            });

        self.files[slot] = Some(Arc::new(Opened {
            birth: self.births,
            identity,
            path,
            file,
        }));
        Ok(FileId {
            slot: slot as u32,
            birth: self.births,
        })
    }
}

impl Store for OsStore {
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<FileId, StoreError> {
        let path = self.path(name)?;
        let mut how = File::options();
        how.read(true).write(true);

        // An empty file may be new, with a name that is not yet durable.
        let existed = std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0);
        let opened = match options.create {
            Create::Never => how.open(&path),
            Create::IfAbsent => how.create(true).truncate(false).open(&path),
            Create::New => how.create_new(true).open(&path),
        };

        // Without write permission it is opened read-only; later writes fail.
        let opened = opened.or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                if options.create != Create::New =>
            {
                File::open(&path).map_err(|_| error)
            }
            _ => Err(error),
        });
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound(name.into()),
            io::ErrorKind::AlreadyExists => StoreError::Exists(name.into()),
            _ => StoreError::system(path.display(), error),
        })?;

        let mut state = self.state();
        state.names_changed |= !existed;
        state.add(path, file)
    }

    fn close(&self, file: FileId) {
        let mut state = self.state();
        if state.opened(file).is_ok() {
            state.files[file.slot as usize] = None;
        }
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name)?;
        std::fs::remove_file(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound(name.into()),
            _ => StoreError::system(path.display(), error),
        })?;
        self.state().names_changed = true;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (old, new) = (self.path(from)?, self.path(to)?);
        // Renaming a file to its own name changes nothing, and `NOREPLACE` would refuse it.
        if from == to && old.exists() {
            return Ok(());
        }
        // Plain rename(2) would silently replace a file of the new name.
        rustix::fs::renameat_with(CWD, &old, CWD, &new, RenameFlags::NOREPLACE).map_err(
            |error| match error {
                rustix::io::Errno::NOENT => StoreError::NotFound(from.into()),
                rustix::io::Errno::EXIST => StoreError::Exists(to.into()),
                _ => StoreError::system(old.display(), error),
            },
        )?;
        self.state().names_changed = true;
        Ok(())
    }

    fn list(&self) -> Result<Vec<FileInfo>, StoreError> {
        let failed = |error| StoreError::system(self.folder.display(), error);
        let mut list = Vec::new();

        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;

            // Folders, and names that are not UTF-8, are not files of the store.
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                // Blocks of 512 bytes (stat(2)).
                let pages = (metadata.blocks() * 512).div_ceil(PAGE);
                list.push(FileInfo {
                    name,
                    bytes: metadata.len(),
                    pages,
                    extents: 0,
                    open_end: false,
                    branch: None,
                });
            }
        }

        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn size(&self, file: FileId) -> Result<u64, StoreError> {
        self.opened(file)?.size()
    }

    fn set_size(&self, file: FileId, size: u64) -> Result<(), StoreError> {
        let opened = self.opened(file)?;
        opened
            .file
            .set_len(size)
            .map_err(|error| opened.failed(error))
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.opened(file)?.read(offset, into)
    }

    fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.opened(file)?.write(offset, data)?;
        let pages = (offset + data.len() as u64).div_ceil(PAGE) - offset / PAGE;
        self.state().statistics.pages_written += if data.is_empty() { 0 } else { pages };
        Ok(())
    }

    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let opened = self.opened(file)?;
        let end = offset.saturating_add(bytes).min(opened.size()?);
        let Some(bytes) = end.checked_sub(offset).filter(|bytes| *bytes > 0) else {
            return Ok(());
        };

        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Punches a hole if the file system supports it; otherwise writes zeroes.
        match rustix::fs::fallocate(&opened.file, flags, offset, bytes) {
            Ok(()) => {
                let whole = (end / PAGE).saturating_sub(offset.div_ceil(PAGE));
                self.state().statistics.pages_discarded += whole;
                Ok(())
            }
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                // 1 MiB at a time: the range may be as long as the file.
                let zeroes = vec![0; bytes.min(1 << 20) as usize];
                for at in (offset..end).step_by(1 << 20) {
                    self.write(file, at, &zeroes[..(end - at).min(1 << 20) as usize])?;
                }
                Ok(())
            }
            Err(error) => Err(opened.failed(error)),
        }
    }

    fn share_all(&self, shares: &[Share]) -> Result<(), StoreError> {
        let mut state = self.state();
        let identity = |file| state.opened(file).ok().map(|opened| opened.identity);
        // Pages of a log are often consecutive in the database too: each merged range saves a
        // system call.
        let merged = share::merged(shares, |from, to| identity(from) == identity(to));
        merged.iter().try_for_each(|share| state.share(share))
    }

    fn sync(&self, file: FileId) -> Result<(), StoreError> {
        // fdatasync(2) covers the size; it omits only metadata such as times.
        let opened = self.opened(file)?;
        opened
            .file
            .sync_data()
            .map_err(|error| opened.failed(error))?;
        self.state().statistics.syncs += 1;
        self.make_names_durable()
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        // Cloned out of the lock: a sync may take long.
        let opened: Vec<Arc<Opened>> = self.state().files.iter().flatten().cloned().collect();
        for opened in opened {
            opened
                .file
                .sync_data()
                .map_err(|error| opened.failed(error))?;
        }
        // Covers files that are closed.
        let synced = File::open(&self.folder).and_then(|folder| Ok(rustix::fs::syncfs(&folder)?));
        synced.map_err(|error| StoreError::system(self.folder.display(), error))?;
        self.state().statistics.syncs += 1;
        self.make_names_durable()
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        self.make_names_durable()
    }

    fn statistics(&self) -> Statistics {
        self.state().statistics.clone()
    }
}
