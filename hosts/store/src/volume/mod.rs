//! A volume: files on a disk that can remap.
//!
//! ```text
//! page 0, 1           superblock, twice
//! 2 .. 2 + slots      a page for each file: name, size, extents; zeroes if there is none
//! ..                  pages of files; free if no file claims them
//! ```
//!
//! Invariants: a page of a file is claimed by that file only; every change of which files there are
//! and what they claim is one page written, and durable before anybody relies on it (`change.rs`
//! has the arguments, FORMAT.md the bytes). Calls of several threads take turns (one mutex around
//! the disk); processes use a volume together by `coordination.rs`, and the device keeps all others
//! out (`tenancy.rs`).
//!
//! Considered and left: *a bitmap of free pages*, a second statement of what the records say, which
//! a cut could make differ: free pages are found by reading the table, which is one command for 256
//! files, and files ask for more as they grow so that this is rare. *A journal*: with one page a
//! change there is nothing to replay. *Sizes in the records at every append*: a page of metadata a
//! transaction; they are written at a sync, and not even then for files with an open end.
//!
//! Absent: directories; holes (a file has all its pages, which cost the device nothing until they
//! are written); who may use the disk, where it has no way to keep others out.

mod bytes;
mod cache;
mod change;
mod coordination;
mod defrag;
mod format;
mod lists;
mod make;
mod resting;
mod share;
mod space;
mod state;
mod table;
mod tenancy;
mod words;

pub use cache::CACHE_BYTES_DEFAULT;
pub use defrag::DefragPlan;
pub use format::{SLOTS_DEFAULT, SLOTS_MAX, uuid_text};
pub use make::NewVolume;
pub use resting::RestingVolume;
pub use space::Extent;
pub use tenancy::{FileHold, Processes, local_name, new_holder};

use crate::guard::Guard;
use crate::{
    Create, FileId, FileInfo, FileWrite, LockFiles, OpenOptions, Share, Statistics, Store,
    StoreError,
};
use cache::Cache;
use coordination::Coordination;
use format::check_name;
use remap_ssd_device::Disk;
use state::VolumeState;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenancy::Membership;

/// A volume that is open.
pub struct Volume<D: Disk> {
    /// Until it is left.
    state: Option<Mutex<VolumeState<D>>>,
    notes: Vec<String>,
    /// Closes it instead of `leave` (`resting`).
    rest: Option<Rest<D>>,
}

type Rest<D> = Box<dyn FnOnce(VolumeState<D>) + Send + Sync>;

/// What a volume is, and how full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// UUID in its usual text form.
    pub uuid: String,
    /// Pages of the volume, its own records included.
    pub pages: u64,
    /// Pages of its own records.
    pub pages_metadata: u64,
    /// Pages that no file has.
    pub pages_free: u64,
    /// Pages of the longest run of them.
    pub pages_free_in_a_row: u64,
    /// Number of files that there can be.
    pub files: u32,
    /// Files that it has room for.
    pub files_max: u32,
}

impl<D: Disk> Volume<D> {
    /// Opens the volume on a disk. A damaged superblock is written again from the other one, which
    /// `notes` says.
    ///
    /// # Errors
    /// There is none, or it is in use by a process that wants it alone.
    pub fn open(disk: D, processes: &Processes) -> Result<Self, StoreError> {
        Self::open_as(disk, processes, false)
    }

    /// Opens the volume so that no other process of `processes` has it open meanwhile: what is done
    /// to several files is done at one instant.
    ///
    /// # Errors
    /// There is none, or another process has it open.
    pub fn open_alone(disk: D, processes: &Processes) -> Result<Self, StoreError> {
        Self::open_as(disk, processes, true)
    }

    fn open_as(mut disk: D, processes: &Processes, alone: bool) -> Result<Self, StoreError> {
        // The disk answers nobody who is not a member.
        let mut membership = Membership::join(processes, &mut disk, alone)?;
        let found = make::find(&mut disk).and_then(|(superblock, notes)| {
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
        // Under the lock, so that whatever was left unfinished is durable before it is relied on.
        let repair =
            |state: &mut VolumeState<D>| make::repair(&mut state.disk, &superblock, &volume.notes);
        volume.state().locked(repair)?;
        Ok(volume)
    }

    /// Keeps at most so many bytes of pages in memory, instead of 64 MiB; 0 for none.
    #[must_use]
    pub fn with_cache(self, bytes: u64) -> Self {
        self.state().cache = Cache::new(bytes);
        self
    }

    /// What was found and mended when it was opened, in sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What is damaged, in sentences that name page and reason. Files that are not named can be
    /// used.
    ///
    /// # Errors
    /// The disk.
    pub fn damage(&self) -> Result<Vec<String>, StoreError> {
        let mut state = self.state();
        state.load()?;
        Ok(state.table.damage())
    }

    /// How many files cannot be opened because of what `damage` says.
    ///
    /// # Errors
    /// The disk.
    pub fn damaged_files(&self) -> Result<u64, StoreError> {
        let mut state = self.state();
        state.load()?;
        Ok(state.table.damaged_files())
    }

    /// What it is, and how full.
    ///
    /// # Errors
    /// The disk, or a damaged record: then nobody knows what is free.
    pub fn info(&self) -> Result<VolumeInfo, StoreError> {
        let mut state = self.state();
        state.load()?;
        let free = state.table.free_runs(&state.superblock)?;
        Ok(VolumeInfo {
            uuid: state.superblock.uuid_text(),
            pages: state.superblock.pages,
            pages_metadata: state.superblock.first_data_page(),
            pages_free: free.iter().map(|run| run.pages).sum(),
            pages_free_in_a_row: free.iter().map(|run| run.pages).max().unwrap_or(0),
            files: state.table.files().count() as u32,
            files_max: state.superblock.slots,
        })
    }

    /// How a file's pages could become contiguous. Nothing is changed.
    ///
    /// # Errors
    /// The file is gone, or the disk.
    pub fn defrag_plan(&self, file: FileId) -> Result<DefragPlan, StoreError> {
        self.state().defrag_plan(file)
    }

    /// Makes a file's pages contiguous by remaps, or as contiguous as the free pages allow; what
    /// was done. The volume must have been opened alone. `progress` is told how many of how many
    /// pages have been remapped.
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

    /// Gives the disk back, also after a panic.
    pub fn into_disk(mut self) -> D {
        let state = self.state.take().expect("it is left once");
        state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .leave()
    }

    /// Switches a guard off, for tests that must notice.
    #[doc(hidden)]
    pub fn without(self, guard: Guard) -> Self {
        self.state().without = Some(guard);
        self
    }

    fn state(&self) -> MutexGuard<'_, VolumeState<D>> {
        // A panic in another thread leaves nothing half done that is not on the disk, and that is
        // kept in order.
        let state = self.state.as_ref().expect("until it is left");
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Disk> Drop for Volume<D> {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else {
            return;
        };
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match self.rest.take() {
            Some(rest) => rest(state),
            None => drop(state.leave()),
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
        state.load()?;
        let found = |state: &VolumeState<D>| {
            state.table.find(name).map(|(slot, inode)| FileId {
                slot,
                birth: inode.birth,
            })
        };

        // Looked for without the lock first: most files are there.
        match (found(&state), options.create) {
            (Some(_), Create::New) => Err(StoreError::Exists(name.into())),
            (Some(file), _) => state.table.check_alone(file.slot).map(|()| file),
            (None, Create::Never) => Err(state.table.missing(name)),
            (None, create) => state.locked(|state| match found(state) {
                // Another process was faster.
                Some(_) if create == Create::New => Err(StoreError::Exists(name.into())),
                Some(file) => state.table.check_alone(file.slot).map(|()| file),
                None => state.create(name, options.open_end),
            }),
        }
    }

    // Handles hold nothing here: slot and birth are looked up at each use.
    fn close(&self, _: FileId) {}

    fn close_inherited(&self) {
        // A thread of the parent that had it locked does not exist here. What is locked stays open.
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
        // Every change of names is durable when it returns.
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
