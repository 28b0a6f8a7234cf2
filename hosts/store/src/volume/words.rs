//! The words that processes share about a volume, in a file that is mapped into memory.
//!
//! ```text
//! bytes 0-7            generation of the layout; odd during a change; 0 if the volume has not been used yet
//! bytes 8-43           the kernel's boot_id: contents from an earlier boot of the machine are ignored
//! 4096 + 16 x slot     birth and present size of the slot's file
//! 1052672 + 8 x slot   change word of the slot's file, which changes whenever its bytes do (`cache.rs`)
//! 1576960 + 24 x slot  birth of the slot's file; inodes of its lock files, 0 if not yet recorded
//! ```
//!
//! A SQLite transaction reads them dozens of times; a system call for each took longer than the
//! round trip to the device. SQLite maps its wal-index for the same reason.
//!
//! Invariants: all processes read and write the words atomically. The blocks are allocated before
//! the file is mapped, so that no access meets a full file system. The file is truncated only by
//! the first process after a boot of the machine, before any process maps it.
//!
//! Absent: locks, and the meaning of the words (`coordination.rs`).

use super::format::SLOTS_MAX;
use crate::LockFiles;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

const GENERATION_AT: u64 = 0;
/// Offset of the kernel's boot_id.
pub(super) const BOOT_AT: u64 = 8;
const SIZES_AT: u64 = 4096;
const SIZE_BYTES: u64 = 16;
const WORDS_AT: u64 = SIZES_AT + SIZE_BYTES * SLOTS_MAX as u64;
const WORD_BYTES: u64 = 8;
const LOCKS_AT: u64 = WORDS_AT + WORD_BYTES * SLOTS_MAX as u64;
const LOCK_BYTES: u64 = 24;

/// The recorded lock files of a file in the volume.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockWords {
    /// Birth of the file that they belong to.
    pub birth: u64,
    pub files: LockFiles,
}

/// The words of a volume.
pub(super) struct Words {
    map: MmapRaw,
}

impl Words {
    /// Maps the file of a volume of `slots` slots. Its lock must be held.
    pub(super) fn of(file: &File, slots: u32) -> io::Result<Self> {
        allocate(file, slots)?;
        let [.., last] = ranges(slots);
        let map = MmapOptions::new().len(last.end as usize).map_raw(file)?;
        Ok(Self { map })
    }

    pub(super) fn generation(&self) -> u64 {
        self.load(GENERATION_AT)
    }

    pub(super) fn set_generation(&self, to: u64) {
        self.store(GENERATION_AT, to);
    }

    /// Birth and size of a slot's file.
    pub(super) fn size(&self, slot: u32) -> (u64, u64) {
        // In the opposite order of `set_size`: once the birth is there, so is the size.
        let at = SIZES_AT + SIZE_BYTES * u64::from(slot);
        (self.load(at), self.load(at + SIZE_BYTES / 2))
    }

    pub(super) fn set_size(&self, slot: u32, birth: u64, size: u64) {
        // The size first: it becomes valid with the birth.
        let at = SIZES_AT + SIZE_BYTES * u64::from(slot);
        self.store(at + SIZE_BYTES / 2, size);
        self.store(at, birth);
    }

    /// The word that changes with the bytes of a slot's file.
    pub(super) fn change(&self, slot: u32) -> u64 {
        self.load(WORDS_AT + WORD_BYTES * u64::from(slot))
    }

    pub(super) fn set_change(&self, slot: u32, to: u64) {
        self.store(WORDS_AT + WORD_BYTES * u64::from(slot), to);
    }

    /// The lock files of a slot's file. The volume's lock must be held.
    pub(super) fn locks(&self, slot: u32) -> LockWords {
        let at = LOCKS_AT + LOCK_BYTES * u64::from(slot);
        LockWords {
            birth: self.load(at),
            files: LockFiles {
                locks: self.load(at + 8),
                memory: self.load(at + 16),
            },
        }
    }

    pub(super) fn set_locks(&self, slot: u32, to: LockWords) {
        // The entry is valid only with its birth: that of another file is cleared first.
        let at = LOCKS_AT + LOCK_BYTES * u64::from(slot);
        if self.load(at) != to.birth {
            self.store(at, 0);
        }
        self.store(at + 8, to.files.locks);
        self.store(at + 16, to.files.memory);
        self.store(at, to.birth);
    }

    fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::SeqCst)
    }

    fn store(&self, at: u64, to: u64) {
        self.word(at).store(to, Ordering::SeqCst);
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        let at = usize::try_from(at).expect("the map is in memory");
        assert!(at.is_multiple_of(8) && at + 8 <= self.map.len(), "a word");
        // SAFETY: the eight bytes are in the map, which begins at a page, and live as long as
        // `self`. All processes change them atomically.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }
}

/// The used bytes of the file: generation and sizes, change words, and lock files.
fn ranges(slots: u32) -> [Range<u64>; 3] {
    let slots = u64::from(slots);
    [
        0..SIZES_AT + SIZE_BYTES * slots,
        WORDS_AT..WORDS_AT + WORD_BYTES * slots,
        LOCKS_AT..LOCKS_AT + LOCK_BYTES * slots,
    ]
}

/// Allocates the blocks that will be used. Existing contents stay.
fn allocate(file: &File, slots: u32) -> io::Result<()> {
    for range in ranges(slots) {
        let bytes = range.end - range.start;
        // On some file systems a signal ends it early.
        let allocated = retry_on_intr(|| {
            rustix::fs::fallocate(file, FallocateFlags::empty(), range.start, bytes)
        });

        match allocated {
            Ok(()) => {}
            // The file system has no fallocate. There is no data after the end, and no other user
            // yet.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let end = file.metadata()?.len().max(range.start);
                let missing = range.end.saturating_sub(end);
                file.write_all_at(&vec![0; missing as usize], end)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Access to a hole in the file would raise a signal on a full file system; a write returns an
    // error.
    #[test]
    fn words_have_their_blocks_before_they_are_used() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().expect("a folder");
        let mut options = File::options();
        options.read(true).write(true).create(true);
        let file = options.open(dir.path().join("words")).expect("possible");
        let slots = 4096;
        Words::of(&file, slots).expect("possible");
        let used = 4096 + (16 + 8 + 24) * u64::from(slots);
        let blocks = file.metadata().expect("it is open").blocks();
        assert!(blocks * 512 >= used, "{blocks} blocks");
    }
}
