//! State that the processes of a tenancy share about a volume: a generation, sizes and change
//! words, in a file mapped into memory (`words.rs`), and a lock for changes of the layout.
//!
//! The file only coordinates running processes: nothing in it has to survive a reboot, and a volume
//! is complete without it. It holds sizes because a file may grow before its record is written (at
//! the next sync), and other processes must see the new size at once.
//!
//! Invariants: to change the layout, a process takes the lock and makes the generation odd first.
//! If it dies in between, the generation stays odd, which tells the next one to get the lock. The
//! lock files of host software for a file of the volume are recorded by inode: if one was removed
//! and recreated, opening it fails, or two groups of processes would hold locks unknown to each
//! other.
//!
//! Absent: admission of processes (`tenancy.rs`).

use super::tenancy::{Membership, Tenancy, unsignalled};
use super::words::{BOOT_AT, LockWords, Words};
use crate::{LockFiles, StoreError};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

/// How long a server may still execute commands of a process that died. The sockets close when the
/// process dies, and commands already delivered are executed at once; this is thousands of times as
/// long.
const LAST_COMMANDS: Duration = Duration::from_millis(200);

/// The file, or its equivalent in memory for a single process.
pub(super) enum Coordination {
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
pub(super) struct CoordinationFile {
    path: PathBuf,
    file: File,
    words: Words,
}

impl Coordination {
    /// Opens the coordination of a volume of `slots` slots.
    pub(super) fn of(membership: &Membership, slots: u32) -> Result<Self, StoreError> {
        match membership {
            // A single process needs no file.
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
    pub(super) fn generation(&self) -> u64 {
        match self {
            Self::Alone { generation, .. } => *generation,
            Self::Shared(shared) => shared.words.generation(),
        }
    }

    /// Changes the generation. The lock must be held.
    pub(super) fn set_generation(&mut self, to: u64) {
        match self {
            Self::Alone { generation, .. } => *generation = to,
            Self::Shared(shared) => shared.words.set_generation(to),
        }
    }

    /// The present size of a file, if it was set since the machine booted.
    pub(super) fn size(&self, slot: u32, birth: u64) -> Option<u64> {
        let (of, size) = match self {
            Self::Alone { sizes, .. } => sizes.get(&slot).copied()?,
            Self::Shared(shared) => shared.words.size(slot),
        };
        (of == birth).then_some(size)
    }

    /// Sets the present size of a file.
    pub(super) fn set_size(&mut self, slot: u32, birth: u64, size: u64) {
        match self {
            Self::Alone { sizes, .. } => {
                sizes.insert(slot, (birth, size));
            }
            Self::Shared(shared) => shared.words.set_size(slot, birth, size),
        }
    }

    /// The change word of a slot's file: odd while its bytes are being changed.
    pub(super) fn word(&self, slot: u32) -> u64 {
        match self {
            Self::Alone { words, .. } => words.get(&slot).copied().unwrap_or(0),
            Self::Shared(shared) => shared.words.change(slot),
        }
    }

    /// Sets the change word; the caller has its turn to write the file.
    pub(super) fn set_word(&mut self, slot: u32, to: u64) {
        match self {
            Self::Alone { words, .. } => {
                words.insert(slot, to);
            }
            Self::Shared(shared) => shared.words.set_change(slot, to),
        }
    }

    /// Returns false if the lock files found for a file of the volume differ from those recorded;
    /// records those not yet recorded. The lock must be held.
    pub(super) fn same_lock_files(&mut self, slot: u32, birth: u64, found: LockFiles) -> bool {
        let noted = match self {
            Self::Alone { locks, .. } => locks.get(&slot).copied().unwrap_or_default(),
            Self::Shared(shared) => shared.words.locks(slot),
        };

        // The entry may belong to an earlier file of the slot.
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

    /// Forgets the lock files of a single process: the next use of the volume has new ones.
    pub(super) fn forget_lock_files(&mut self) {
        if let Self::Alone { locks, .. } = self {
            locks.clear();
        }
    }

    /// Acquires the lock, waiting for it.
    pub(super) fn lock(&mut self) -> Result<(), StoreError> {
        let Self::Shared(shared) = self else {
            return Ok(());
        };
        unsignalled(|| shared.file.lock())
            .map_err(|error| StoreError::system(shared.path.display(), error))
    }

    /// Releases the lock, if the volume is shared.
    pub(super) fn unlock(&mut self) {
        if let Self::Shared(shared) = self {
            // Closing the file releases it too, so an error here needs no handling.
            let _ = shared.file.unlock();
        }
    }

    /// Waits for commands of another process that died, which may still be in flight to the disk.
    pub(super) fn await_last_commands(&self) {
        if matches!(self, Self::Shared(_)) {
            std::thread::sleep(LAST_COMMANDS);
        }
    }
}

/// Opens the file of a tenancy; its first process creates it. One from an earlier boot of the
/// machine is emptied: its sizes may cover data lost in the machine's crash.
fn open_present(tenancy: &Tenancy, slots: u32) -> Result<CoordinationFile, StoreError> {
    let (file, path) = (tenancy.words()?, tenancy.words_path());
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim_ascii();

    let prepare = || -> std::io::Result<Words> {
        unsignalled(|| file.lock())?;
        let mut known = vec![0; boot.len()];

        // The boot_id tells whether the contents are valid. While the first process is here, no
        // other one has the file mapped.
        let read = file.read_at(&mut known, BOOT_AT)?;
        if tenancy.is_first() && known[..read] != *boot {
            file.set_len(0)?;
            file.write_all_at(boot, BOOT_AT)?;
        }
        let words = Words::of(&file, slots)?;
        // The lock files of a continued tenancy were in another folder.
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
