//! Properties of ordinary files that files in a volume lack: permissions, and an inode that a name
//! may lose.
//!
//! Absent: volumes, and the contents of files.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Creates a log or journal with its database's permissions and owner, unless it exists: SQLite's
/// own VFS does the same. Without a database it does nothing.
pub(super) fn make_like(database: &Path, file: &Path) -> io::Result<()> {
    let Ok(like) = fs::metadata(database) else {
        return Ok(());
    };
    let mode = like.mode() & 0o777;

    match fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(file)
    {
        Ok(made) => {
            // The process's umask may have removed bits.
            made.set_permissions(Permissions::from_mode(mode))?;
            // Only root may give a file away; other users own the database, or share it by its
            // group.
            let _ = chown(file, Some(like.uid()), Some(like.gid()));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns true if this process may write an existing file.
pub(super) fn may_write(path: &Path) -> bool {
    let refused = [
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem,
    ];
    let opened = fs::OpenOptions::new().write(true).open(path);
    opened.map_or_else(|error| !refused.contains(&error.kind()), |_| true)
}

/// A file by its name, with its inode at opening.
pub(super) struct Opened {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Opened {
    pub(super) fn at(path: PathBuf) -> Self {
        let identity = identity(&path);
        Self { path, identity }
    }

    /// Its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the name leads to another file now, or to none.
    pub(super) fn has_moved(&self) -> bool {
        identity(&self.path) != self.identity
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path)
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_as_private_as_its_database() {
        let dir = tempfile::tempdir().expect("a folder");
        let (database, journal) = (dir.path().join("a.db"), dir.path().join("a.db-journal"));
        for mode in [0o600, 0o640, 0o666] {
            fs::write(&database, b"").expect("writable");
            fs::set_permissions(&database, Permissions::from_mode(mode)).expect("ours");
            make_like(&database, &journal).expect("it can be made");
            assert_eq!(
                fs::metadata(&journal).expect("it is there").mode() & 0o777,
                mode
            );
            fs::remove_file(&journal).expect("ours");
        }
    }

    #[test]
    fn a_database_that_was_renamed_away_has_moved() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.db");
        fs::write(&path, b"1").expect("writable");
        let opened = Opened::at(path.clone());
        assert!(!opened.has_moved());

        fs::rename(&path, dir.path().join("b.db")).expect("ours");
        assert!(opened.has_moved());
        fs::write(&path, b"2").expect("writable");
        assert!(opened.has_moved());
    }
}
