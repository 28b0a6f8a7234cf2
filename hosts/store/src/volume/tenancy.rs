//! Access control for a volume: the processes of one *tenancy* may use it at the same time. The
//! device holds the volume for the tenancy and excludes all others.
//!
//! ```text
//! DIR/NAME.join        locked while a process joins or leaves
//! DIR/NAME.use         locked (shared) for as long as a volume is open; the tenancy's identifier
//! DIR/NAME.ID/words    generation, sizes and words (`words.rs`); locked for changes of the layout
//! DIR/NAME.ID/..       locks of host software, and which files are open (`FILE%open`)
//! ```
//!
//! DIR is the *lock domain*: `/tmp/remap-ssd-UID` for the processes of one user on one machine.
//! NAME is the disk's identity: a copy of a volume has a different one. ID is random. It is also
//! the holder identifier given to the device (`Disk::hold`), so the device excludes processes that
//! do not see the same files (another /tmp, user, container or machine, or an emptied /tmp).
//!
//! *Join*, with NAME.join locked until the words exist. If no process has NAME.use locked, this
//! process is the first:
//! 1. ID is added to NAME.use
//! 2. the device is held by ID
//! 3. the folder is made
//! 4. NAME.use has ID alone
//! 5. folders of earlier tenancies are removed
//!
//! Killed in 1 to 3: all identifiers in NAME.use belong to dead processes, since the lock was free;
//! the next process may replace any of them that the device names, even if its connection is still
//! open. Killed in 4 or 5: an ended tenancy, and folders that the next one removes. If other
//! processes have NAME.use locked, the process reads ID, and the device says whether ID is the
//! holder; nothing is acquired and no file is created. So state cached by a process whose hold was
//! revoked is never trusted again.
//!
//! *Leave*, with NAME.join locked: a process that can lock NAME.use exclusively is the last: 1.
//! sizes that only the words have go to the records  2. the hold is released  3. NAME.use is
//! emptied  4. the folder is removed  5. NAME.use is removed  6. NAME.join is removed. Killed after
//! 1: the next process continues the words, which hold the same sizes. Killed after 2: it begins
//! with new words, since another tenancy may have used the volume in between. Killed after 5: the
//! next process creates another NAME.use.
//!
//! *Removed locks* exclude as before:
//! 1. NAME.use is opened only with NAME.join locked, so until 6 only by the process that leaves: a
//!    lock on the removed NAME.use excludes no later process.
//! 2. Processes that opened NAME.join before 6 get its lock after the last process has left. They
//!    see that it is unlinked, and start again before they open any NAME.use, which may already
//!    belong to others. Processes that come after 6 create both files, when 1 to 5 are done.
//! 3. In the other order, processes that come after NAME.join is removed would find NAME.use still
//!    locked, and be refused.
//! 4. A process removes only the files that it has locked. If others were created in their place
//!    (`rm -rf /tmp/*`), they belong to another tenancy, which keeps them.
//!
//! Files of a killed process stay until the last process of the next tenancy of this disk leaves:
//! their identifiers let that tenancy take over.
//!
//! *Words are continued* only if the device says that the tenancy that wrote them is still the
//! holder: then no other tenancy has changed the volume since.
//!
//! *Files are removed* (`rm -rf /tmp/*`): processes that have the volume open keep their
//! descriptors and continue. Nothing is recreated for an old tenancy: its processes can open
//! nothing more, and the error says why. A new process creates new files, and so another tenancy,
//! which the device refuses until the last process of the old one has closed the volume. The
//! folders are locked (shared), which keeps systemd-tmpfiles from aging their contents
//! (tmpfiles.d(5)).
//!
//! *A forked child* shares its parent's locks, and releases nothing.
//!
//! Absent: the meaning of the words (`coordination.rs`), files that only this user can change
//! (`domain.rs`), how a disk excludes other holders.

use super::domain::{Folder, is_linked};
use super::format::uuid_text;
use super::random::random;
use super::superblocks;
use crate::StoreError;
use remap_ssd_device::{Disk, HoldError, HolderId};
use rustix::fs::AtFlags;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const ID_BYTES: usize = size_of::<HolderId>();
/// Maximum identifiers remembered of tenancies that ended without leaving.
const IDS_MAX: usize = 16;
/// Suffix of the file that marks another one as open. Names of files in volumes contain `%` only in
/// `%25` and `%2F`.
const OPEN: &str = "%open";

/// The processes that may use a volume at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// Only this one: it owns the disk, which ends with it. Sizes that no sync has recorded are
    /// lost.
    One,
    /// Several on this machine, coordinated by files in this folder.
    Several(PathBuf),
}

impl Processes {
    /// Several, in the folder shared by all processes of this user on this machine:
    /// `/tmp/remap-ssd-UID`.
    pub fn local() -> Self {
        Self::Several(PathBuf::from(format!(
            "/tmp/remap-ssd-{}",
            rustix::process::geteuid().as_raw()
        )))
    }
}

/// A process's membership among the users of a volume.
pub(super) enum Membership {
    /// The only one.
    Alone {
        process: u32,
    },
    Tenant(Tenancy),
}

/// A tenancy, as seen by one of its processes.
pub(super) struct Tenancy {
    /// Locked against cleaning by systemd-tmpfiles.
    domain: Folder,
    /// Name of the files of this disk.
    name: String,
    own: Folder,
    join: File,
    in_use: File,
    /// True if this process created the tenancy.
    is_first: bool,
    process: u32,
}

/// Keeps a file of a volume from being deleted or replaced by other processes.
#[derive(Debug)]
pub struct FileHold {
    _file: Option<File>,
}

impl FileHold {
    /// For a file that no other process can open.
    pub const NONE: Self = Self { _file: None };
}

impl Membership {
    /// Joins the users of the volume on a disk; the disk then answers. With `alone`, fails if there
    /// are other users, and none can join before `leave`. Otherwise others wait until `let_join` or
    /// `leave`.
    pub(super) fn join<D: Disk>(
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

    /// Lets other processes join, now that the tenancy's shared state is complete.
    pub(super) fn let_join(&self) -> Result<(), StoreError> {
        let Self::Tenant(tenancy) = self else {
            return Ok(());
        };
        let unlocked = tenancy.join.unlock();
        unlocked.map_err(|error| StoreError::system(tenancy.own.path.display(), error))
    }

    /// Leaves. The last process runs `before` while the volume is still held; if that fails, the
    /// device stays held, and the next process of this domain continues from the state left there.
    pub(super) fn leave<T, D: Disk>(
        &mut self,
        volume: &mut T,
        before: impl FnOnce(&mut T) -> Result<(), StoreError>,
        disk: impl FnOnce(&mut T) -> &mut D,
    ) {
        let process = match self {
            Self::Alone { process } | Self::Tenant(Tenancy { process, .. }) => *process,
        };

        // A child of `fork` has a copy: the parent is still there.
        if process != std::process::id() {
            return;
        }

        match self {
            Self::Alone { .. } => {
                // If the disk cannot be reached, it detects that its holder is gone.
                let _ = disk(volume).let_go();
            }
            Self::Tenant(tenancy) => {
                tenancy.leave(|| before(volume).is_ok() && disk(volume).let_go().is_ok());
            }
        }
    }

    /// In a child of `fork`: closes the descriptors inherited from the parent. The parent's locks
    /// are unaffected (flock(2)) and end with the parent.
    pub(super) fn close_inherited(&mut self) {
        let (Self::Alone { process } | Self::Tenant(Tenancy { process, .. })) = *self;
        if process != std::process::id() {
            *self = Self::Alone { process };
        }
    }

    /// The folder for the tenancy's own files.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Alone { .. } => None,
            Self::Tenant(tenancy) => Some(tenancy.own.path.clone()),
        }
    }

    /// Marks a file as open. With `alone`, fails if it is open, and keeps others from opening it.
    pub(super) fn hold_file(&self, name: &str, alone: bool) -> Result<FileHold, StoreError> {
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

/// Escapes a name in a volume as a file name: names in volumes may contain slashes.
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
        let [join_name, use_name] = lock_names(name);
        loop {
            let domain = Folder::domain(dir)?;
            let failed = |error: io::Error| StoreError::system(dir.display(), error);
            let join = domain.open(&join_name, true)?;
            unsignalled(|| join.lock()).map_err(failed)?;
            // Removed since it was opened: others have another one, and NAME.use is theirs.
            if !is_linked(&join).map_err(failed)? {
                continue;
            }
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
            // If they were unlinked by others (`rm -rf /tmp/*`), other processes open different
            // files.
            if !is_linked(&join).map_err(failed)? || !is_linked(&in_use).map_err(failed)? {
                continue;
            }

            let own = if is_first {
                begin(&domain, name, &in_use, disk).inspect_err(|_| {
                    // Nothing was begun, and no tenancy before it is remembered.
                    if read_ids(&in_use).is_ok_and(|ids| ids.is_empty()) {
                        remove_locks(&domain, name, [&join, &in_use]);
                    }
                })?
            } else {
                enter(&domain, name, &in_use, disk)?
            };
            if is_first && !alone {
                // Not atomic, but other processes take this lock only while holding the join lock.
                unsignalled(|| in_use.lock_shared()).map_err(failed)?;
            }
            return Ok(Self {
                domain,
                name: name.into(),
                own,
                join,
                in_use,
                is_first,
                process: std::process::id(),
            });
        }
    }

    fn leave(&mut self, last: impl FnOnce() -> bool) {
        // A process that cannot lock leaves the tenancy as if it had died.
        if unsignalled(|| self.join.lock()).is_err() {
            return;
        }
        if self.in_use.try_lock().is_ok() && last() {
            let _ = write_ids(&self.in_use, &[]);
            let _ = std::fs::remove_dir_all(&self.own.path);
            remove_locks(&self.domain, &self.name, [&self.join, &self.in_use]);
        }
        let _ = self.in_use.unlock();
        let _ = self.join.unlock();
    }

    /// The file of the words, which only the first process creates.
    pub(super) fn words(&self) -> Result<File, StoreError> {
        self.own.open(WORDS, self.is_first)
    }

    /// The words' path, for messages.
    pub(super) fn words_path(&self) -> PathBuf {
        self.own.path.join(WORDS)
    }

    /// Returns true if this process created the tenancy.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }
}

const WORDS: &str = "words";

/// The base name of the files for the volume on a disk. A disk without identity lives in this
/// process and can be read by anything that holds it.
fn name<D: Disk>(disk: &mut D) -> Result<Option<String>, StoreError> {
    if let Some(identity) = disk.identity() {
        return Ok(Some(uuid_text(&identity)));
    }
    match superblocks::find(disk) {
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

/// Creates a tenancy, as its first process.
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
    // The disk may have been opened with the identifier of a holder that never came to be.
    let id = disk.take_holder().unwrap_or_else(new_holder);

    // The steps of *Join* in the file header.
    ids.push(id);
    write_ids(in_use, &ids).map_err(failed)?;
    let before = match disk.hold(id, &ended) {
        Ok(before) => before,
        Err(error) => {
            // If the connection broke, the device may have recorded the identifier.
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
    // Only the tenancy before has changed the volume since these were written.
    let words = domain.path.join(own_name(name, before)).join(WORDS);
    match std::fs::rename(&words, own.path.join(WORDS)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::system(words.display(), error))
        }
        _ => Ok(own),
    }
}

/// Removes the folders of other tenancies in the domain: the device is held by this one.
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

/// Joins an existing tenancy.
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

/// Names of the files that are locked: to join or leave, and while a volume is open.
fn lock_names(name: &str) -> [String; 2] {
    ["join", "use"].map(|end| format!("{name}.{end}"))
}

/// Removes both files that this process has locked, or neither if others are in their place. The
/// file header ("Removed locks") explains the order. A failure leaves them, which is harmless.
fn remove_locks(domain: &Folder, name: &str, [join, in_use]: [&File; 2]) {
    let [join_name, use_name] = lock_names(name);
    if domain.has(&join_name, join) && domain.has(&use_name, in_use) {
        let remove = |name: &str| rustix::fs::unlinkat(&domain.file, name, AtFlags::empty());
        if remove(&use_name).is_ok() {
            let _ = remove(&join_name);
        }
    }
}

fn own_name(name: &str, id: HolderId) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}.{hex}")
}

/// Returns an identifier that no other holder of a disk has.
pub fn new_holder() -> HolderId {
    random()
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

/// Waits for a lock, retrying when a signal interrupts.
pub(super) fn unsignalled(mut lock: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
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
        let refused = Folder::domain(&ours)
            .err()
            .expect("all users may write here");
        assert!(refused.to_string().contains("ours alone"));
    }

    /// A size written by a dead tenancy, as read by the next one.
    fn continued(boot: &[u8]) -> Option<u64> {
        let dir = tempfile::tempdir().expect("a folder");
        let domain = Folder::domain(dir.path()).expect("ours");
        let in_use = domain.open("volume.use", true).expect("possible");
        let [join, second] = [(); 2].map(|()| domain.open("join", true).expect("possible"));
        let tenancy = |own, join, in_use| Tenancy {
            domain: Folder::domain(dir.path()).expect("ours"),
            name: "volume".into(),
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
