//! A volume: files on a disk that can remap.
//!
//! ```text
//! page 0, 1           superblock, twice
//! 2 .. 2 + slots      a page for each file: name, size, extents; zeroes if there is none
//! ..                  pages of files; free if no file claims them
//! ```
//!
//! Invariants: a page of a file is claimed by that file only; every layout change is one page
//! written, and durable before other operations rely on it (`change.rs` has the arguments,
//! FORMAT.md the bytes). Threads take turns (one mutex around the disk); processes coordinate by
//! `coordination.rs`, and the device excludes all others (`tenancy.rs`).
//!
//! Considered and rejected: *a bitmap of free pages*: redundant with the records, and a cut could
//! make them differ. Free pages are found by reading the table, which is one command for 256 files,
//! and growing files ask for more than they need so that this is rare. *A journal*: with one page
//! per change there is nothing to replay. *Sizes in the records at every append*: a page of
//! metadata per transaction; they are written at a sync, and not even then for files with an open
//! end.
//!
//! Absent: directories; holes (a file has all its pages, which cost the device nothing until
//! written); access control where the disk cannot exclude other users.

mod branch;
mod bytes;
mod cache;
mod change;
mod coordination;
mod defrag;
mod domain;
mod format;
mod lists;
mod make;
mod random;
mod resting;
mod share;
mod space;
mod state;
mod superblocks;
mod table;
mod tenancy;
mod words;

pub use cache::CACHE_BYTES_DEFAULT;
pub use defrag::DefragPlan;
pub use format::uuid_text;
pub use make::NewVolume;
pub use resting::RestingVolume;
pub use space::Extent;
pub use tenancy::{FileHold, Processes, local_name, new_holder};

use crate::guard::Guard;
use crate::{
    Create, FileId, FileInfo, FileSpace, FileWrite, LockFiles, NewBranch, OpenOptions, PageRun,
    Share, Statistics, Store, StoreError,
};
use cache::Cache;
use coordination::Coordination;
use format::check_name;
use remap_ssd_device::Disk;
use state::VolumeState;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenancy::Membership;

/// An open volume.
pub struct Volume<D: Disk> {
    /// `None` once the volume is left.
    state: Option<Mutex<VolumeState<D>>>,
    notes: Vec<String>,
    /// Closes the volume instead of `leave` (`resting`).
    rest: Option<Rest<D>>,
}

type Rest<D> = Box<dyn FnOnce(VolumeState<D>) + Send + Sync>;

/// A volume's identity and usage.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VolumeInfo {
    /// UUID in its usual text form.
    pub uuid: String,
    /// Pages of the volume, including its own records.
    pub pages: u64,
    /// Pages of its own records.
    pub pages_metadata: u64,
    /// Pages that no file claims.
    pub pages_free: u64,
    /// Length of the longest run of free pages.
    pub pages_free_in_a_row: u64,
    /// Number of files.
    pub files: u32,
    /// Maximum number of files.
    pub files_max: u32,
}

impl<D: Disk> Volume<D> {
    /// Opens the volume on a disk. A damaged superblock is rewritten from the other one and
    /// reported in `notes`.
    ///
    /// # Errors
    /// There is no volume, or another process holds it alone.
    pub fn open(disk: D, processes: &Processes) -> Result<Self, StoreError> {
        Self::open_as(disk, processes, false)
    }

    /// Opens the volume exclusively among `processes`: changes of several files then happen at one
    /// instant.
    ///
    /// # Errors
    /// There is no volume, or another process has it open.
    pub fn open_alone(disk: D, processes: &Processes) -> Result<Self, StoreError> {
        Self::open_as(disk, processes, true)
    }

    fn open_as(mut disk: D, processes: &Processes, alone: bool) -> Result<Self, StoreError> {
        // The disk refuses processes that are not members.
        let mut membership = Membership::join(processes, &mut disk, alone)?;
        let found = superblocks::find(&mut disk).and_then(|(superblock, notes)| {
            let coordination = Coordination::of(&membership, superblock.slots)?;
            membership.let_join()?;
            Ok((superblock, notes, coordination))
        });
        let (superblock, notes, coordination) = match found {
            Ok(found) => found,
            Err(error) => {
                membership.leave(&mut disk, |_| Ok(()), |disk| disk);
                return Err(error);
            }
        };

        let volume = Self {
            state: Some(Mutex::new(VolumeState {
                disk,
                superblock,
                membership,
                coordination,
                table: table::Table::new(&superblock),
                cache: Cache::new(CACHE_BYTES_DEFAULT),
                changing: Vec::new(),
                statistics: Statistics::default(),
                without: None,
            })),
            notes,
            rest: None,
        };
        // Under the lock, so that an unfinished change is durable before it is relied on.
        let repair = |state: &mut VolumeState<D>| {
            superblocks::repair(&mut state.disk, &superblock, &volume.notes)
        };
        volume.state().locked(repair)?;
        Ok(volume)
    }

    /// Caches at most `bytes` bytes of pages, instead of 64 MiB; 0 for none.
    #[must_use]
    pub fn with_cache(self, bytes: u64) -> Self {
        self.state().cache = Cache::new(bytes);
        self
    }

    /// Messages about repairs made at opening.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Messages about damage, each with page and reason. Files not mentioned can be used.
    ///
    /// # Errors
    /// The disk.
    pub fn damage(&self) -> Result<Vec<String>, StoreError> {
        let mut state = self.state();
        state.load()?;
        Ok(state.table.damage())
    }

    /// Number of files that cannot be opened because of `damage`.
    ///
    /// # Errors
    /// The disk.
    pub fn damaged_files(&self) -> Result<u64, StoreError> {
        let mut state = self.state();
        state.load()?;
        Ok(state.table.damaged_files())
    }

    /// The volume's identity and usage.
    ///
    /// # Errors
    /// The disk, or a damaged record: then the free pages are unknown.
    pub fn info(&self) -> Result<VolumeInfo, StoreError> {
        let mut state = self.state();
        state.load()?;
        let free = state.table.free_runs(&state.superblock)?;
        Ok(VolumeInfo {
            uuid: state.superblock.uuid_text(),
            pages: state.superblock.pages,
            pages_metadata: state.superblock.first_data_page(),
            pages_free: space::pages_in(&free),
            pages_free_in_a_row: free.iter().map(|run| run.pages).max().unwrap_or(0),
            files: state.table.files().count() as u32,
            files_max: state.superblock.slots,
        })
    }

    /// Plans how to make a file's pages contiguous. Nothing is changed.
    ///
    /// # Errors
    /// The file is gone, or the disk.
    pub fn defrag_plan(&self, file: FileId) -> Result<DefragPlan, StoreError> {
        self.state().defrag_plan(file)
    }

    /// Makes a file's pages contiguous by remaps, or as contiguous as the free pages allow. Returns
    /// the plan carried out. The volume must have been opened alone. `progress` gets the number of
    /// pages remapped and the total.
    ///
    /// # Errors
    /// The file is gone, or the disk; the file is as it was then.
    pub fn defrag(
        &self,
        file: FileId,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DefragPlan, StoreError> {
        self.state().defrag(file, progress)
    }

    /// Merges a branch into the file that it was made of: that file gets the branch's contents, and
    /// the branch is gone. Nothing is programmed but two records. Returns the file's name. With
    /// `force`, changes of that file since the branch was made are lost; without, they are an error.
    ///
    /// # Errors
    /// It is not a branch, its parent is gone or has changed, or the disk. Neither has changed then,
    /// but after an error of the disk the merge may have taken place.
    pub fn merge(&self, name: &str, force: bool) -> Result<String, StoreError> {
        self.state().merge(name, force)
    }

    /// Runs of the pages at which two files do not share a page of the device, found without reading
    /// them. Pages that only one of the files has are among them.
    ///
    /// # Errors
    /// A file is gone, or the disk cannot say.
    pub fn differing(&self, a: FileId, b: FileId) -> Result<Vec<PageRun>, StoreError> {
        self.state().differing(a, b)
    }

    /// The pages of a file, and how many of them no other file shares.
    ///
    /// # Errors
    /// The file is gone, or the disk cannot say.
    pub fn space(&self, file: FileId) -> Result<FileSpace, StoreError> {
        self.state().space(file)
    }

    /// Leaves the volume and returns the disk, also after a panic.
    pub fn into_disk(mut self) -> D {
        let state = self.state.take().expect("it is left once");
        leave(state.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Switches a guard off, for tests that must detect it.
    #[doc(hidden)]
    pub fn without(self, guard: Guard) -> Self {
        self.state().without = Some(guard);
        self
    }

    fn state(&self) -> MutexGuard<'_, VolumeState<D>> {
        // A panic in another thread leaves no partial change except on the disk, where the order of
        // writes keeps it consistent.
        let state = self.state.as_ref().expect("until it is left");
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves a volume and returns the disk.
fn leave<D: Disk>(mut state: VolumeState<D>) -> D {
    // Taken out, to borrow the rest separately.
    let process = std::process::id();
    let alone = Membership::Alone { process };
    let mut membership = std::mem::replace(&mut state.membership, alone);
    membership.leave(
        &mut state,
        |state| state.record_sizes(),
        |state| &mut state.disk,
    );
    state.disk
}

impl<D: Disk> Drop for Volume<D> {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else {
            return;
        };
        match (state.into_inner(), self.rest.take()) {
            (Ok(state), Some(rest)) => rest(state),
            // After a panic the firmware's tables are recovered from what is on the disk.
            (Ok(state), None) => drop(leave(state)),
            (Err(poisoned), _) => drop(leave(poisoned.into_inner())),
        }
    }
}

impl<D: Disk + Send> Store for Volume<D> {
    fn identity(&self) -> Option<[u8; 16]> {
        Some(self.state().superblock.uuid)
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<FileId, StoreError> {
        check_name(name).map_err(|why| StoreError::BadName {
            name: name.into(),
            why,
        })?;
        let mut state = self.state();
        state.settled()?;
        state.load()?;
        let found = |state: &VolumeState<D>| {
            state.table.find(name).map(|(slot, inode)| FileId {
                slot,
                birth: inode.birth,
            })
        };

        // Looked up without the lock first: most files exist.
        match (found(&state), options.create) {
            (Some(_), Create::New) => Err(StoreError::Exists(name.into())),
            (Some(file), _) => state.table.check_alone(file.slot).map(|()| file),
            (None, Create::Never) => Err(state.table.missing(name)),
            (None, create) => state.locked(|state| match found(state) {
                // Another process was faster.
                Some(_) if create == Create::New => Err(StoreError::Exists(name.into())),
                Some(file) => state.table.check_alone(file.slot).map(|()| file),
                None => state.create(name, options),
            }),
        }
    }

    // Handles hold no resources: slot and birth are looked up at each use.
    fn close(&self, _: FileId) {}

    fn close_inherited(&self) {
        // A thread that had it locked does not exist in the child. A locked state stays open.
        if let Some(Ok(mut state)) = self.state.as_ref().map(Mutex::try_lock) {
            state.membership.close_inherited();
            state.disk.close_inherited();
        }
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.state().delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        check_name(to).map_err(|why| StoreError::BadName {
            name: to.into(),
            why,
        })?;
        self.state().rename(from, to)
    }

    fn list(&self) -> Result<Vec<FileInfo>, StoreError> {
        self.state().list()
    }

    fn size(&self, file: FileId) -> Result<u64, StoreError> {
        self.state().size(file)
    }

    fn set_size(&self, file: FileId, size: u64) -> Result<(), StoreError> {
        self.state().set_size(file, size)
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.state().read(file, offset, into)
    }

    fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.state().write(file, offset, data)
    }

    fn write_all(&self, file: FileId, writes: &[FileWrite<'_>]) -> Result<(), StoreError> {
        self.state().write_all(file, writes)
    }

    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), StoreError> {
        self.state().discard(file, offset, bytes)
    }

    fn share_all(&self, shares: &[Share]) -> Result<(), StoreError> {
        self.state().share_all(shares)
    }

    fn branch(&self, branches: &[NewBranch<'_>], made_at: u64) -> Result<(), StoreError> {
        for NewBranch { to, .. } in branches {
            check_name(to).map_err(|why| StoreError::BadName {
                name: (*to).into(),
                why,
            })?;
        }
        self.state().branch(branches, made_at)
    }

    fn sync(&self, file: FileId) -> Result<(), StoreError> {
        let mut state = self.state();
        // Before the flush, which makes the data and the size durable together.
        state.record_size(file)?;
        state.flush()
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        state.record_sizes()?;
        state.flush()
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        // Every change of names is already durable when it returns.
        Ok(())
    }

    fn folder(&self) -> Option<PathBuf> {
        self.state().membership.folder()
    }

    fn hold_file(&self, name: &str, alone: bool) -> Result<FileHold, StoreError> {
        self.state().membership.hold_file(name, alone)
    }

    fn note_lock_files(&self, file: FileId, locks: LockFiles) -> Result<(), StoreError> {
        let mut state = self.state();
        state.coordination.lock()?;
        let same = state
            .coordination
            .same_lock_files(file.slot, file.birth, locks);
        state.coordination.unlock();
        let folder = state.membership.folder().unwrap_or_default();
        if same {
            Ok(())
        } else {
            Err(StoreError::removed(&folder))
        }
    }

    fn still_held(&self) -> Result<(), StoreError> {
        self.state().disk.still_held().map_err(StoreError::disk)
    }

    fn statistics(&self) -> Statistics {
        self.state().statistics.clone()
    }
}
