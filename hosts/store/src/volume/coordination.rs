//! What the processes of a tenancy share about a volume: a generation, sizes and words, in a file
//! that is mapped into memory (`words.rs`), and a lock for changes of the layout.
//!
//! The file is only about what processes have in memory; nothing in it has to survive the machine,
//! and a volume is whole without it. Sizes are here since a file may grow without a record being
//! written (that is for the next sync), and other processes must see it at once.
//!
//! Invariants: who changes the layout holds the lock and makes the generation odd first; so a
//! process that dies in between leaves it odd, and the next one to get the lock knows. The files by
//! which host software locks a file of the volume are noted by their inodes: if one was removed, and
//! made anew, those who open it are refused, or two groups of locks would know nothing of each
//! other.
//!
//! Absent: who may be here at all (`tenancy.rs`).

use super::tenancy::{Membership, Tenancy, unsignalled};
use super::words::{BOOT_AT, LockWords, Words};
use crate::{LockFiles, StoreError};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The file, or its place in memory if there is one process only.
pub enum Coordination {
    Alone {
        generation: u64,
        /// Birth and size by slot.
        sizes: HashMap<u32, (u64, u64)>,
        words: HashMap<u32, u64>,
        locks: HashMap<u32, LockWords>,
    },
    Shared(CoordinationFile),
}

/// The coordination file and its lock.
pub struct CoordinationFile {
    path: PathBuf,
    file: File,
    words: Words,
}

impl Coordination {
    /// Of a volume of so many slots, for one of its processes.
    pub fn of(membership: &Membership, slots: u32) -> Result<Self, StoreError> {
        match membership {
            // One process needs no file: it remembers by itself.
            Membership::Alone { .. } => Ok(Self::Alone {
                generation: 0,
                sizes: HashMap::new(),
                words: HashMap::new(),
                locks: HashMap::new(),
            }),
            Membership::Tenant(tenancy) => open_present(tenancy, slots).map(Self::Shared),
        }
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

    /// Compares the files by which a file of the volume is locked with those that others have
    /// noted, and notes what nobody has. The lock must be held.
    pub fn same_lock_files(&mut self, slot: u32, birth: u64, found: LockFiles) -> bool {
        let noted = match self {
            Self::Alone { locks, .. } => locks.get(&slot).copied().unwrap_or_default(),
            Self::Shared(shared) => shared.words.locks(slot),
        };
        // The slot may have had another file before.
        let noted = if noted.birth == birth {
            noted.files
        } else {
            LockFiles::default()
        };
        let Some(files) = noted.with(found) else {
            return false;
        };
        let to = LockWords { birth, files };
        match self {
            Self::Alone { locks, .. } => drop(locks.insert(slot, to)),
            Self::Shared(shared) => shared.words.set_locks(slot, to),
        }
        true
    }

    /// Forgets the lock files of the only process: the next use of the volume has new ones.
    pub fn forget_lock_files(&mut self) {
        if let Self::Alone { locks, .. } = self {
            locks.clear();
        }
    }

    /// Waits for the lock.
    pub fn lock(&mut self) -> Result<(), StoreError> {
        let Self::Shared(shared) = self else {
            return Ok(());
        };
        unsignalled(|| shared.file.lock())
            .map_err(|error| StoreError::system(shared.path.display(), error))
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

/// Opens the file of a tenancy; its first process makes it. One that an earlier start of the machine
/// has left is emptied: its sizes may be of data that the machine's crash took away.
fn open_present(tenancy: &Tenancy, slots: u32) -> Result<CoordinationFile, StoreError> {
    let (file, path) = (tenancy.words()?, tenancy.words_path());
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim_ascii();

    let prepare = || -> std::io::Result<Words> {
        unsignalled(|| file.lock())?;
        let mut known = vec![0; boot.len()];

        // The machine's boot says whether what is in the file can be relied on. Nobody else has it
        // mapped while the first process is here.
        let read = file.read_at(&mut known, BOOT_AT)?;
        if tenancy.is_first() && known[..read] != *boot {
            file.set_len(0)?;
            file.write_all_at(boot, BOOT_AT)?;
        }
        let words = Words::of(&file, slots)?;
        // Of a tenancy that is continued: its lock files were in another folder.
        if tenancy.is_first() {
            (0..slots).for_each(|slot| words.set_locks(slot, LockWords::default()));
        }
        file.unlock()?;
        Ok(words)
    };
    match prepare() {
        Ok(words) => Ok(CoordinationFile { path, file, words }),
        Err(error) => Err(StoreError::system(path.display(), error)),
    }
}
