//! How processes on one machine use one volume together: a small local file for each volume.
//!
//! ```text
//! NAME        generation, sizes and words (`words.rs`); locked for changes of the layout
//! NAME.use    locked (shared) for as long as a volume is open
//! ```
//!
//! The file is only about what processes have in memory; nothing in it has to survive the machine,
//! and a volume is whole without it. Sizes are here since a file may grow without a record being
//! written (that is for the next sync), and other processes must see it at once.
//!
//! Invariants: who changes the layout holds the lock and makes the generation odd first; so a
//! process that dies in between leaves it odd, and the next one to get the lock knows. The path
//! follows from the user, the volume and its disk alone: processes that a shell, `cron` and a
//! service start do not agree on `XDG_RUNTIME_DIR`, and two files would mean two owners of one
//! page. NAME is the volume's UUID and the disk's identity: a copy of a volume has its UUID, and
//! sizes and words of its own. Files that belong to others, and links, are refused. If somebody
//! deletes the file, its users notice and forget what they have in memory.
//!
//! Absent: protection from other machines, other users, and processes that see another `/tmp`:
//! these must not use a volume at the same time.

use super::words::{BOOT_AT, Words};
use crate::{StoreError, uuid_text};
use remap_ssd_device::Disk;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// The file's name, for a volume on a disk.
pub fn name(uuid: &str, disk: &impl Disk) -> String {
    match disk.identity() {
        Some(identity) => format!("{uuid}-{}", uuid_text(&identity)),
        None => uuid.into(),
    }
}

/// Who may use a volume at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// Only this one: the disk is its own, and ends with it. Sizes that no sync has recorded end
    /// too.
    One,
    /// Several on this machine, by means of files in this folder.
    Several(PathBuf),
}

impl Processes {
    /// Several, in the folder that all processes of this user on this machine find:
    /// `/tmp/remap-ssd-UID`.
    pub fn local() -> Self {
        Self::Several(PathBuf::from(format!(
            "/tmp/remap-ssd-{}",
            rustix::process::geteuid().as_raw()
        )))
    }
}

/// The file, or its place in memory if there is one process only.
pub enum Coordination {
    Alone {
        generation: u64,
        /// Birth and size by slot.
        sizes: HashMap<u32, (u64, u64)>,
        words: HashMap<u32, u64>,
    },
    Shared(CoordinationFile),
}

/// The coordination file and its locks.
pub struct CoordinationFile {
    path: PathBuf,
    slots: u32,
    file: File,
    words: Words,
    _in_use: File,
}

impl Coordination {
    /// Joins those who use the volume of so many slots whose file has this name; if `alone`, there
    /// must be nobody, and nobody can join meanwhile.
    pub fn join(
        processes: &Processes,
        name: &str,
        slots: u32,
        alone: bool,
    ) -> Result<Self, StoreError> {
        // One process needs no file: it remembers by itself.
        let Processes::Several(dir) = processes else {
            return Ok(Self::Alone {
                generation: 0,
                sizes: HashMap::new(),
                words: HashMap::new(),
            });
        };

        // Locked for as long as the volume is open; shared, unless it must be alone.
        let in_use = open_file(dir, &format!("{name}.use"))?;
        match if alone {
            in_use.try_lock()
        } else {
            in_use.try_lock_shared()
        } {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(StoreError::InUse),
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(StoreError::system(dir.display(), error));
            }
        }

        let (file, words) = open_present(dir, name, slots)?;
        Ok(Self::Shared(CoordinationFile {
            path: dir.join(name),
            slots,
            file,
            words,
            _in_use: in_use,
        }))
    }

    /// Whether nobody has the volume open; for as long as the answer is kept, nobody can open it.
    pub fn reserve(processes: &Processes, name: &str) -> Result<Option<File>, StoreError> {
        let Processes::Several(dir) = processes else {
            return Ok(None);
        };
        let in_use = open_file(dir, &format!("{name}.use"))?;
        match in_use.try_lock() {
            Ok(()) => Ok(Some(in_use)),
            Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::InUse),
            Err(std::fs::TryLockError::Error(error)) => {
                Err(StoreError::system(dir.display(), error))
            }
        }
    }

    /// Whether the file is still the one it was; if not, nothing remembered counts. To be asked
    /// before and after what relies on it.
    pub fn is_the_same(&mut self) -> Result<bool, StoreError> {
        let Self::Shared(shared) = self else {
            return Ok(true);
        };
        let stat = rustix::fs::fstat(&shared.file).map_err(|error| shared.failed(error))?;
        if stat.st_nlink > 0 {
            return Ok(true);
        }
        shared.reopen()?;
        Ok(false)
    }

    /// The generation of the layout.
    pub fn generation(&self) -> u64 {
        match self {
            Self::Alone { generation, .. } => *generation,
            Self::Shared(shared) => shared.words.generation(),
        }
    }

    /// Changes the generation. The lock must be held.
    pub fn set_generation(&mut self, to: u64) {
        match self {
            Self::Alone { generation, .. } => *generation = to,
            Self::Shared(shared) => shared.words.set_generation(to),
        }
    }

    /// The present size of a file, if somebody has changed it since the machine was started.
    pub fn size(&self, slot: u32, birth: u64) -> Option<u64> {
        let (of, size) = match self {
            Self::Alone { sizes, .. } => sizes.get(&slot).copied()?,
            Self::Shared(shared) => shared.words.size(slot),
        };
        (of == birth).then_some(size)
    }

    /// Notes the present size of a file.
    pub fn set_size(&mut self, slot: u32, birth: u64, size: u64) {
        match self {
            Self::Alone { sizes, .. } => {
                sizes.insert(slot, (birth, size));
            }
            Self::Shared(shared) => shared.words.set_size(slot, birth, size),
        }
    }

    /// The word of a slot's file: odd while its bytes are being changed.
    pub fn word(&self, slot: u32) -> u64 {
        match self {
            Self::Alone { words, .. } => words.get(&slot).copied().unwrap_or(0),
            Self::Shared(shared) => shared.words.change(slot),
        }
    }

    /// Changes it; who does so has its turn to write the file.
    pub fn set_word(&mut self, slot: u32, to: u64) {
        match self {
            Self::Alone { words, .. } => {
                words.insert(slot, to);
            }
            Self::Shared(shared) => shared.words.set_change(slot, to),
        }
    }

    /// Waits for the lock. `false` if the file is not the one it was.
    pub fn lock(&mut self) -> Result<bool, StoreError> {
        let Self::Shared(shared) = self else {
            return Ok(true);
        };
        let mut same = true;
        loop {
            shared.file.lock().map_err(|error| shared.failed(error))?;
            // Whoever deleted it while we waited has left us a lock that nobody else will ask for.
            let stat = rustix::fs::fstat(&shared.file).map_err(|error| shared.failed(error))?;
            if stat.st_nlink > 0 {
                return Ok(same);
            }
            shared.reopen()?;
            same = false;
        }
    }

    /// Gives the lock back, if the volume is shared.
    pub fn unlock(&mut self) {
        if let Self::Shared(shared) = self {
            // It also ends with the file; there is nothing to do if it cannot be given back
            // earlier.
            let _ = shared.file.unlock();
        }
    }

    /// Whether commands of another process that died may still be under way to the disk.
    pub fn others_may_have_died(&self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

impl CoordinationFile {
    fn failed(&self, error: impl Into<std::io::Error>) -> StoreError {
        StoreError::system(self.path.display(), error)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let (dir, name) = (
            self.path.parent().unwrap_or(Path::new("/")),
            self.path.file_name().unwrap_or_default(),
        );
        (self.file, self.words) = open_present(dir, &name.to_string_lossy(), self.slots)?;
        Ok(())
    }
}

/// Opens or makes the file of a volume. One that an earlier start of the machine has left is
/// emptied: its sizes may be of data that the machine's crash took away.
fn open_present(dir: &Path, name: &str, slots: u32) -> Result<(File, Words), StoreError> {
    let file = open_file(dir, name)?;
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim_ascii();

    let prepare = || -> std::io::Result<Words> {
        file.lock()?;
        let mut known = vec![0; boot.len()];

        // The machine's boot says whether what is in the file can be relied on.
        let read = file.read_at(&mut known, BOOT_AT)?;
        if known[..read] != *boot {
            file.set_len(0)?;
            file.write_all_at(boot, BOOT_AT)?;
        }
        let words = Words::of(&file, slots)?;
        file.unlock()?;
        Ok(words)
    };
    match prepare() {
        Ok(words) => Ok((file, words)),
        Err(error) => Err(StoreError::system(dir.join(name).display(), error)),
    }
}

/// Opens or makes a file of ours in a folder of ours; links, and what others own, are refused.
fn open_file(dir: &Path, name: &str) -> Result<File, StoreError> {
    let failed = |error: std::io::Error| StoreError::system(dir.display(), error);
    // A folder that is there already is looked at below, whoever made it.
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed(error));
        }
        _ => {}
    }

    // Opened and then looked at, so that it cannot be exchanged in between.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder =
        rustix::fs::openat(CWD, dir, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let stat = rustix::fs::fstat(&folder).map_err(|error| failed(error.into()))?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    if !own || stat.st_mode & 0o022 != 0 {
        return Err(failed(std::io::Error::other(
            "this folder is not ours alone: others could put files there",
        )));
    }

    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, name, flags, Mode::RUSR | Mode::WUSR);
    let file = file.map_err(|error| StoreError::system(dir.join(name).display(), error))?;
    let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;

    // A pipe or a device would hang, or do something.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(StoreError::system(
            dir.join(name).display(),
            std::io::Error::other("it is no file"),
        ));
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_folder_or_the_file_is_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (ours, other) = (dir.path().join("ours"), dir.path().join("other"));
        open_file(&ours, "volume").expect("possible");
        std::os::unix::fs::symlink(&ours, &other).expect("possible");
        assert!(open_file(&other, "volume").is_err());
        std::os::unix::fs::symlink(ours.join("volume"), ours.join("link")).expect("possible");
        assert!(open_file(&ours, "link").is_err());
        std::fs::set_permissions(&ours, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .expect("possible");
        assert!(
            open_file(&ours, "volume")
                .expect_err("anybody may write here")
                .to_string()
                .contains("ours alone")
        );
    }

    // A hole in the file would be a signal, where a write could have said that the file system is
    // full.
    #[test]
    fn words_have_their_blocks_before_they_are_used() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().expect("a folder");
        let processes = Processes::Several(dir.path().into());
        let slots = 4096;
        Coordination::join(&processes, "volume", slots, false).expect("possible");
        let file = std::fs::metadata(dir.path().join("volume")).expect("it is there");
        let used = 4096 + (16 + 8) * u64::from(slots);
        assert!(file.blocks() * 512 >= used, "{} blocks", file.blocks());
    }

    #[test]
    fn what_an_earlier_start_of_the_machine_left_does_not_count() {
        let dir = tempfile::tempdir().expect("a folder");
        let join = || {
            Coordination::join(&Processes::Several(dir.path().into()), "volume", 16, false)
                .expect("possible")
        };

        let mut first = join();
        first.set_generation(6);
        first.set_size(3, 77, 4097);
        assert_eq!(join().size(3, 77), Some(4097));
        drop(first);

        let file = File::options()
            .write(true)
            .open(dir.path().join("volume"))
            .expect("it is there");
        file.write_all_at(b"another boot", BOOT_AT)
            .expect("possible");

        let later = join();
        assert_eq!(later.size(3, 77), None);
        assert_eq!(later.generation(), 0);
    }

    #[test]
    fn a_file_that_somebody_deletes_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        let join = || {
            Coordination::join(&Processes::Several(dir.path().into()), "volume", 16, false)
                .expect("possible")
        };
        // The folder of `tempfile` is ours alone.
        let mut first = join();
        first.set_generation(6);
        first.set_size(3, 77, 4097);
        std::fs::remove_file(dir.path().join("volume")).expect("it is there");
        assert!(!first.is_the_same().expect("possible"));
        assert!(first.is_the_same().expect("possible"));
        let mut second = join();
        assert_eq!(second.generation(), 0);
        assert_eq!(second.size(3, 77), None);
        second.set_generation(2);
        assert_eq!(first.generation(), 2);
    }
}
