//! Folders of this user for files that its processes lock, in a place where other users have theirs.
//!
//! Invariants: a folder that others can write is refused, and so are links; a folder is opened before
//! it is checked, and its files are opened through it, so that it cannot be exchanged in between. It
//! is locked (shared), which keeps systemd-tmpfiles from aging its contents (tmpfiles.d(5)). Absent:
//! what the files mean (`tenancy`).

use crate::StoreError;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A folder owned by this user, open and locked (shared).
pub(super) struct Folder {
    pub path: PathBuf,
    pub file: File,
}

impl Folder {
    /// Opens the folder of a domain, created if missing.
    pub(super) fn domain(path: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| StoreError::system(path.display(), error);
        // An existing folder is checked below.
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }

        // Opened first and checked then, so that it cannot be exchanged in between.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let file = File::from(folder.map_err(|error| failed(error.into()))?);
        let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        let own = stat.st_uid == rustix::process::geteuid().as_raw();
        if !own || stat.st_mode & 0o022 != 0 {
            return Err(failed(io::Error::other(
                "this folder is not ours alone: others could put files there",
            )));
        }
        Ok(Self::locked(path.into(), file))
    }

    fn locked(path: PathBuf, file: File) -> Self {
        // Where folders cannot be locked, they are merely not protected from cleaning.
        let _ = file.try_lock_shared();
        Self { path, file }
    }

    /// Creates a folder in this one if `new`, else opens an existing one.
    pub(super) fn folder(&self, name: &str, new: bool) -> Result<Self, StoreError> {
        let path = self.path.join(name);
        let failed = |error: rustix::io::Errno| StoreError::system(path.display(), error);
        if new {
            rustix::fs::mkdirat(&self.file, name, Mode::RWXU).map_err(failed)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.file, name, flags, Mode::empty()) {
            Ok(file) => Ok(Self::locked(path, file.into())),
            Err(rustix::io::Errno::NOENT) => Err(StoreError::removed(&path)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns true if this name is that of an open file.
    pub(super) fn has(&self, name: &str, file: &File) -> bool {
        let named = rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW);
        match (named, rustix::fs::fstat(file)) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    /// Opens a file of this user, creating it if `create`; links are refused.
    pub(super) fn open(&self, name: &str, create: bool) -> Result<File, StoreError> {
        let path = self.path.join(name);
        let failed = |error: io::Error| StoreError::system(path.display(), error);
        let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        flags.set(OFlags::CREATE, create);
        let file = match rustix::fs::openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Err(StoreError::removed(&path)),
            Err(error) => return Err(failed(error.into())),
        };

        // Opening a pipe or a device could hang or have side effects.
        let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(failed(io::Error::other("it is no file")));
        }
        Ok(file)
    }
}

pub(super) fn is_linked(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fstat(file)?.st_nlink > 0)
}
