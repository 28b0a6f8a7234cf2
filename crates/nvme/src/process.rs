//! Identity of the current process. `fork` copies memory and descriptors, and the copies must not
//! be used: two processes that read one socket take each other's answers.
//!
//! A page that the kernel fills with zeroes in a child (`MADV_WIPEONFORK`, madvise(2), Linux 4.14)
//! holds the number of the process. Checking it is a load, cheap enough for every command. Process
//! identifiers are less reliable: the first process of every PID namespace has the same one.
//!
//! Invariants: a process and its ancestors have different numbers; so a number recorded when an
//! object was created tells whether the object was inherited. Nothing here blocks, since a lock
//! held by another thread during `fork` stays locked in the child.
//!
//! Absent: children of `vfork` and `posix_spawn`, which share their parent's memory until they
//! execute a program.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Bytes mapped for the number: a page, or more.
const MAP_BYTES: usize = 4096;
/// Set in numbers that are process identifiers, where the kernel cannot wipe pages.
const IS_PID: u64 = 1 << 63;

/// A process, to be compared with the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The current process.
    pub fn current() -> Self {
        /// Number of processes among this one and its ancestors that have a number. Copied to
        /// children.
        static TAKEN: AtomicU64 = AtomicU64::new(0);

        let Some(number) = wiped_word() else {
            return Self(IS_PID | u64::from(std::process::id()));
        };
        match number.load(Ordering::Relaxed) {
            0 => {
                let new = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
                // Another thread may have been faster: its number counts.
                match number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => Self(new),
                    Err(known) => Self(known),
                }
            }
            known => Self(known),
        }
    }

    /// Returns true if this is the current process, and not one of its ancestors.
    #[inline]
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// The word that is 0 in a process without a number yet; `None` where the kernel cannot wipe pages.
fn wiped_word() -> Option<&'static AtomicU64> {
    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
    static IS_IMPOSSIBLE: AtomicBool = AtomicBool::new(false);

    let mut word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        if IS_IMPOSSIBLE.load(Ordering::Relaxed) {
            return None;
        }
        let Some(new) = map_wiped() else {
            IS_IMPOSSIBLE.store(true, Ordering::Relaxed);
            return None;
        };
        word = match WORD.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(known) => {
                // SAFETY: the page was mapped just now, and only this thread has its address.
                let _ = unsafe { munmap(new.cast(), MAP_BYTES) };
                known
            }
        };
    }

    // SAFETY: the page stays mapped for the lifetime of the process, is aligned, and is only
    // accessed atomically.
    Some(unsafe { &*word })
}

/// Maps a page that is zero in children.
fn map_wiped() -> Option<*mut AtomicU64> {
    // SAFETY: the kernel chooses an unused address, and the advice covers only that page, to which
    // no reference exists yet.
    unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let page = mmap_anonymous(null_mut(), MAP_BYTES, access, MapFlags::PRIVATE).ok()?;
        if madvise(page, MAP_BYTES, Advice::LinuxWipeOnFork).is_err() {
            let _ = munmap(page, MAP_BYTES);
            return None;
        }
        Some(page.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_number_in_all_of_its_threads() {
        let here = Process::current();
        let others: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(Process::current))
            .map(|thread| thread.join().expect("it does not panic"))
            .collect();
        assert_eq!(others, [here; 4]);
        assert!(here.is_current());
    }
}
