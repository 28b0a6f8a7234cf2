//! Who may use a volume at the same time: the processes of one *tenancy*, which the device holds
//! against everybody else.
//!
//! ```text
//! DIR/NAME.join        locked while a process joins or leaves
//! DIR/NAME.use         locked (shared) for as long as a volume is open; the tenancy's identifier
//! DIR/NAME.ID/words    generation, sizes and words (`words.rs`); locked for changes of the layout
//! DIR/NAME.ID/..       locks of host software, and which files are open (`FILE%open`)
//! ```
//!
//! DIR is the *lock domain*: `/tmp/remap-ssd-UID` for the processes of a user on a machine. NAME is
//! the disk's identity: a copy of a volume has a name of its own. ID is random. It is also the
//! identifier by which the device knows the holder (`Disk::hold`), so that processes that do not
//! see the same files (another /tmp, user, container, machine, or /tmp was emptied) are kept out by
//! the device, whatever they do.
//!
//! *Join*, with NAME.join locked until the words are there: nobody has NAME.use locked, so the
//! process is the first:
//! 1. ID is added to NAME.use
//! 2. the device is held by ID
//! 3. the folder is made
//! 4. NAME.use has ID alone
//! 5. folders of earlier tenancies are removed
//!
//! Killed in 1 to 3: all identifiers in NAME.use are of processes that are dead, since the lock was
//! free; the next process may replace whichever of them the device names, without asking whether it
//! is connected still. Killed in 4 or 5: an ended tenancy, and folders that the next one removes. If
//! others have NAME.use locked, the process reads ID, and the device says whether that is the holder;
//! nothing is acquired and no file made, so nothing that a process remembers is ever believed again
//! after it was sent away.
//!
//! *Leave*, with NAME.join locked: a process that can lock NAME.use alone is the last: 1. sizes that
//! only the words have go to the records  2. the device is let go  3. NAME.use is empty  4. the
//! folder is removed. Killed after 1: the next one continues the words, which say the same. Killed
//! after 2: it begins with new words, since others may have been there meanwhile.
//!
//! *Words are continued* only if the device says that the tenancy that wrote them is the holder
//! still: nobody else has changed the volume since.
//!
//! *Files that are removed* (`rm -rf /tmp/*`): those who have the volume open keep their descriptors
//! and go on. Nothing is made anew for an old tenancy: its processes open nothing any more, and
//! say why. A new process makes new files, and so another tenancy, which the device refuses until
//! the last process of the old one has closed the volume. The folders are locked (shared), which
//! keeps systemd-tmpfiles from aging what is in them (tmpfiles.d(5)).
//!
//! *A forked child* shares the locks of its parent, and leaves nothing.
//!
//! Files that belong to others, and links, are refused. Absent: what the words mean
//! (`coordination.rs`), how a disk keeps others out.

use super::change::random;
use super::format::uuid_text;
use super::make;
use crate::StoreError;
use remap_ssd_device::{Disk, HoldError, HolderId};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

const ID_BYTES: usize = size_of::<HolderId>();
/// Identifiers that are remembered of tenancies that ended without leaving.
const IDS_MAX: usize = 16;
/// End of the name of a file that says that another one is open. Names of files in volumes have no
/// `%` but for `%25` and `%2F`.
const OPEN: &str = "%open";

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

/// A process among those who use a volume together.
pub enum Membership {
    /// The only one.
    Alone {
        process: u32,
    },
    Tenant(Tenancy),
}

/// A tenancy, for one of its processes.
pub struct Tenancy {
    /// Locked, so that it is not cleaned up.
    _domain: Folder,
    own: Folder,
    join: File,
    in_use: File,
    /// Whether this process has made it.
    is_first: bool,
    process: u32,
}

/// A folder of ours, open and locked (shared).
struct Folder {
    path: PathBuf,
    file: File,
}

/// Keeps a file of a volume from being deleted or replaced by other processes.
#[derive(Debug)]
pub struct FileHold {
    _file: Option<File>,
}

impl FileHold {
    /// Of a file that no other process can have.
    pub const NONE: Self = Self { _file: None };
}

impl Membership {
    /// Joins those who use the volume on a disk, which then answers; if `alone`, there must be
    /// nobody, and nobody can join meanwhile. Others wait until `let_join` or `leave`.
    pub fn join<D: Disk>(
        processes: &Processes,
        disk: &mut D,
        alone: bool,
    ) -> Result<Self, StoreError> {
        let process = std::process::id();
        let name = match processes {
            Processes::One => None,
            Processes::Several(_) => name(disk)?,
        };
        let (Processes::Several(dir), Some(name)) = (processes, name) else {
            let holder = disk.take_holder().unwrap_or_else(new_holder);
            disk.hold(holder, &[]).map_err(not_held)?;
            return Ok(Self::Alone { process });
        };
        Tenancy::join(dir, &name, alone, disk).map(Self::Tenant)
    }

    /// Lets others join, now that they find what the tenancy shares.
    pub fn let_join(&self) -> Result<(), StoreError> {
        let Self::Tenant(tenancy) = self else {
            return Ok(());
        };
        let unlocked = tenancy.join.unlock();
        unlocked.map_err(|error| StoreError::system(tenancy.own.path.display(), error))
    }

    /// Leaves. The last process runs `before` while the volume is still its own; if that fails, the
    /// device stays held, and the next process of this domain goes on from what is there.
    pub fn leave<T, D: Disk>(
        &mut self,
        volume: &mut T,
        before: impl FnOnce(&mut T) -> Result<(), StoreError>,
        disk: impl FnOnce(&mut T) -> &mut D,
    ) {
        let process = match self {
            Self::Alone { process } | Self::Tenant(Tenancy { process, .. }) => *process,
        };
        if process != std::process::id() {
            return;
        }
        match self {
            Self::Alone { .. } => {
                // A disk that cannot be reached sees that its holder is gone.
                let _ = disk(volume).let_go();
            }
            Self::Tenant(tenancy) => {
                tenancy.leave(|| before(volume).is_ok() && disk(volume).let_go().is_ok());
            }
        }
    }

    /// In a child of `fork`: closes the descriptors that it has of its parent's. The parent's locks
    /// stay as they are (flock(2)), and end with the parent.
    pub fn close_inherited(&mut self) {
        let (Self::Alone { process } | Self::Tenant(Tenancy { process, .. })) = *self;
        if process != std::process::id() {
            *self = Self::Alone { process };
        }
    }

    /// The folder in which the processes of the tenancy have files of their own.
    pub fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Alone { .. } => None,
            Self::Tenant(tenancy) => Some(tenancy.own.path.clone()),
        }
    }

    /// Says that a file is open, or, `alone`, that it must not be open and nobody may open it.
    pub fn hold_file(&self, name: &str, alone: bool) -> Result<FileHold, StoreError> {
        let Self::Tenant(tenancy) = self else {
            return Ok(FileHold::NONE);
        };
        let file = tenancy.own.open(&(local_name(name) + OPEN), true)?;
        let locked = if alone {
            file.try_lock()
        } else {
            file.try_lock_shared()
        };
        match locked {
            Ok(()) => Ok(FileHold { _file: Some(file) }),
            Err(TryLockError::WouldBlock) => Err(StoreError::FileInUse(name.into())),
            Err(TryLockError::Error(error)) => {
                Err(StoreError::system(tenancy.own.path.display(), error))
            }
        }
    }
}

/// A name in a volume as a name in a folder: names in volumes may have slashes.
pub fn local_name(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

impl Tenancy {
    fn join<D: Disk>(
        dir: &Path,
        name: &str,
        alone: bool,
        disk: &mut D,
    ) -> Result<Self, StoreError> {
        let [join_name, use_name] = ["join", "use"].map(|end| format!("{name}.{end}"));
        loop {
            let domain = Folder::domain(dir)?;
            let failed = |error: io::Error| StoreError::system(dir.display(), error);
            let join = domain.open(&join_name, true)?;
            unsignalled(|| join.lock()).map_err(failed)?;
            let in_use = domain.open(&use_name, true)?;

            let is_first = match in_use.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) if alone => return Err(StoreError::InUse),
                Err(TryLockError::WouldBlock) => match in_use.try_lock_shared() {
                    Ok(()) => false,
                    Err(TryLockError::WouldBlock) => return Err(StoreError::InUse),
                    Err(TryLockError::Error(error)) => return Err(failed(error)),
                },
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            };
            // Removed since they were opened: others find other files.
            if !is_linked(&join).map_err(failed)? || !is_linked(&in_use).map_err(failed)? {
                continue;
            }

            let own = if is_first {
                begin(&domain, name, &in_use, disk)?
            } else {
                enter(&domain, name, &in_use, disk)?
            };
            if is_first && !alone {
                // Not one step, but nobody else asks for it without the other lock.
                unsignalled(|| in_use.lock_shared()).map_err(failed)?;
            }
            return Ok(Self {
                _domain: domain,
                own,
                join,
                in_use,
                is_first,
                process: std::process::id(),
            });
        }
    }

    fn leave(&mut self, last: impl FnOnce() -> bool) {
        // What cannot be locked is left as by a process that dies.
        if unsignalled(|| self.join.lock()).is_err() {
            return;
        }
        if self.in_use.try_lock().is_ok() && last() {
            let _ = write_ids(&self.in_use, &[]);
            let _ = std::fs::remove_dir_all(&self.own.path);
        }
        let _ = self.in_use.unlock();
        let _ = self.join.unlock();
    }

    /// The file of the words. Only the first process makes it.
    pub fn words(&self) -> Result<File, StoreError> {
        self.own.open(WORDS, self.is_first)
    }

    /// The words' path, for messages.
    pub fn words_path(&self) -> PathBuf {
        self.own.path.join(WORDS)
    }

    /// Whether this process has made the tenancy.
    pub fn is_first(&self) -> bool {
        self.is_first
    }
}

const WORDS: &str = "words";

/// The files' name, for the volume on a disk. One without an identity is in this process, and can
/// be read by whoever has it.
fn name<D: Disk>(disk: &mut D) -> Result<Option<String>, StoreError> {
    if let Some(identity) = disk.identity() {
        return Ok(Some(uuid_text(&identity)));
    }
    match make::find(disk) {
        Ok((superblock, _)) => Ok(Some(superblock.uuid_text())),
        Err(StoreError::NoVolume(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn not_held<E: std::error::Error + Send + Sync + 'static>(error: HoldError<E>) -> StoreError {
    match error {
        HoldError::Held(sentence) => StoreError::Held(sentence),
        HoldError::Unsupported(sentence) => StoreError::NotExclusive(sentence),
        HoldError::Disk(error) => StoreError::disk(error),
    }
}

/// The first process of a tenancy makes it.
fn begin<D: Disk>(
    domain: &Folder,
    name: &str,
    in_use: &File,
    disk: &mut D,
) -> Result<Folder, StoreError> {
    let failed = |error: io::Error| StoreError::system(domain.path.display(), error);
    let mut ids = read_ids(in_use).map_err(failed)?;
    ids.drain(..ids.len().saturating_sub(IDS_MAX - 1));
    let ended = ids.clone();
    // The disk may have been reached by the identifier of a holder that never was.
    let id = disk.take_holder().unwrap_or_else(new_holder);

    // The steps of "join" above.
    ids.push(id);
    write_ids(in_use, &ids).map_err(failed)?;
    let before = match disk.hold(id, &ended) {
        Ok(before) => before,
        Err(error) => {
            // If the way to the disk broke, it may have it.
            if !matches!(error, HoldError::Disk(_)) {
                write_ids(in_use, &ended).map_err(failed)?;
            }
            return Err(not_held(error));
        }
    };

    let made = make_own(domain, name, id, before).and_then(|own| {
        write_ids(in_use, &[id]).map_err(failed)?;
        Ok(own)
    });
    if made.is_err() {
        let _ = disk.let_go();
        return made;
    }
    remove_others(domain, name, id);
    made
}

fn make_own(
    domain: &Folder,
    name: &str,
    id: HolderId,
    before: Option<HolderId>,
) -> Result<Folder, StoreError> {
    let own = domain.folder(&own_name(name, id), true)?;
    let Some(before) = before else {
        return Ok(own);
    };
    // Nobody but the tenancy before has changed the volume since these were written.
    let words = domain.path.join(own_name(name, before)).join(WORDS);
    match std::fs::rename(&words, own.path.join(WORDS)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::system(words.display(), error))
        }
        _ => Ok(own),
    }
}

/// The device is ours: what other tenancies left in the domain means nothing any more.
fn remove_others(domain: &Folder, name: &str, id: HolderId) {
    let (own, prefix) = (own_name(name, id), format!("{name}."));
    let Ok(entries) = std::fs::read_dir(&domain.path) else {
        return;
    };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let end = file.to_str().and_then(|file| file.strip_prefix(&prefix));
        let is_tenancy = end.is_some_and(|end| {
            end.len() == 2 * ID_BYTES && end.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        if is_tenancy && file != *own {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A process joins those who are there.
fn enter<D: Disk>(
    domain: &Folder,
    name: &str,
    in_use: &File,
    disk: &mut D,
) -> Result<Folder, StoreError> {
    let failed = |error: io::Error| StoreError::system(domain.path.display(), error);
    let ids = read_ids(in_use).map_err(failed)?;
    let id = *ids
        .last()
        .ok_or_else(|| StoreError::removed(&domain.path))?;
    disk.join_hold(id).map_err(not_held)?;
    domain.folder(&own_name(name, id), false)
}

fn own_name(name: &str, id: HolderId) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}.{hex}")
}

/// An identifier that no other holder of a disk has.
pub fn new_holder() -> HolderId {
    (u128::from(random()) << 64 | u128::from(random())).to_be_bytes()
}

fn read_ids(file: &File) -> io::Result<Vec<HolderId>> {
    let mut bytes = [0; ID_BYTES * IDS_MAX];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(bytes[..read].as_chunks::<ID_BYTES>().0.to_vec())
}

fn write_ids(file: &File, ids: &[HolderId]) -> io::Result<()> {
    file.write_all_at(ids.as_flattened(), 0)?;
    file.set_len(ids.as_flattened().len() as u64)
}

/// Waits for a lock, whatever signals come.
pub fn unsignalled(mut lock: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn is_linked(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fstat(file)?.st_nlink > 0)
}

impl Folder {
    /// The folder of a domain, which is made if need be.
    fn domain(path: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| StoreError::system(path.display(), error);
        // A folder that is there already is looked at below, whoever made it.
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }

        // Opened and then looked at, so that it cannot be exchanged in between.
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
        // Where folders cannot be locked, they are only not kept from being cleaned up.
        let _ = file.try_lock_shared();
        Self { path, file }
    }

    /// A folder in this one: a new one, or one that is there.
    fn folder(&self, name: &str, new: bool) -> Result<Self, StoreError> {
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

    /// Opens a file of ours, or makes it if `create`; links are refused.
    fn open(&self, name: &str, create: bool) -> Result<File, StoreError> {
        let path = self.path.join(name);
        let failed = |error: io::Error| StoreError::system(path.display(), error);
        let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        flags.set(OFlags::CREATE, create);
        let file = match rustix::fs::openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Err(StoreError::removed(&path)),
            Err(error) => return Err(failed(error.into())),
        };

        // A pipe or a device would hang, or do something.
        let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(failed(io::Error::other("it is no file")));
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::coordination::Coordination;
    use crate::volume::words::BOOT_AT;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_link_in_the_place_of_the_folder_or_the_file_is_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (ours, other) = (dir.path().join("ours"), dir.path().join("other"));
        let folder = Folder::domain(&ours).expect("possible");
        folder.open("volume", true).expect("possible");
        symlink(&ours, &other).expect("possible");
        assert!(Folder::domain(&other).is_err());
        symlink(ours.join("volume"), ours.join("link")).expect("possible");
        assert!(folder.open("link", true).is_err());
        std::fs::set_permissions(&ours, PermissionsExt::from_mode(0o777)).expect("possible");
        let refused = Folder::domain(&ours).err().expect("anybody may write here");
        assert!(refused.to_string().contains("ours alone"));
    }

    /// The words of a tenancy that has died, in the folder of the next one.
    fn continued(boot: &[u8]) -> Option<u64> {
        let dir = tempfile::tempdir().expect("a folder");
        let domain = Folder::domain(dir.path()).expect("ours");
        let in_use = domain.open("volume.use", true).expect("possible");
        let [join, second] = [(); 2].map(|()| domain.open("join", true).expect("possible"));
        let tenancy = |own, join, in_use| Tenancy {
            _domain: Folder::domain(dir.path()).expect("ours"),
            own,
            join,
            in_use,
            is_first: true,
            process: std::process::id(),
        };
        let of = |tenancy| Coordination::of(&Membership::Tenant(tenancy), 16).expect("possible");

        let own = make_own(&domain, "volume", [1; 16], None).expect("possible");
        let words = own.path.join(WORDS);
        let mut first = of(tenancy(own, join, in_use));
        first.set_size(3, 77, 4097);
        drop(first);
        if !boot.is_empty() {
            let file = File::options()
                .write(true)
                .open(words)
                .expect("it is there");
            file.write_all_at(boot, BOOT_AT).expect("possible");
        }

        let in_use = domain.open("volume.use", true).expect("possible");
        let own = make_own(&domain, "volume", [2; 16], Some([1; 16])).expect("possible");
        of(tenancy(own, second, in_use)).size(3, 77)
    }

    #[test]
    fn what_an_earlier_start_of_the_machine_left_does_not_count() {
        assert_eq!(continued(b""), Some(4097));
        assert_eq!(continued(b"another boot"), None);
    }
}
