//! Lock files that a child of `fork` inherits from its parent.
//!
//! SQLite's VFS for Unix records in memory, by device and inode, which locks this process has on a
//! file. A child has that memory and not the locks (fcntl(2)). Its own connection to the same
//! database would take the parent's lock for its own: the parent, closing, would find itself alone,
//! copy the log into the database and delete it, and later commits of the child would be lost. So
//! the child closes the inherited files by that VFS, which then forgets the inode.
//!
//! Invariants: a child closes its copies of descriptors, releases only locks of its own (none), and
//! deletes nothing. If the child uses a connection of its parent, which SQLite forbids, it finds
//! zeroes in place of the shared memory, which no connection accepts as an index, and never an
//! unmapped page. No call of the VFS, and no change of the list, is half done at a `fork` (`gate`).
//!
//! Absent: VFSs other than SQLite's for POSIX locks: the effect of closing is unknown there.

use super::{system, text};
use crate::forked::{PerProcess, take_inherited};
use crate::place;
use libsqlite3_sys as ffi;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{
    Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// The open lock files, by the addresses of their files.
type Open = BTreeMap<usize, Regions>;
/// Addresses and sizes of their shared memory.
type Regions = BTreeMap<usize, usize>;

static OPEN: PerProcess<Mutex<Open>> = PerProcess::new();
static GATE: PerProcess<RwLock<()>> = PerProcess::new();

thread_local! {
    /// Held while the thread forks.
    static CLOSED: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

fn open_locks() -> MutexGuard<'static, Open> {
    OPEN.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Must be held during a call of the system's VFS for a lock file: `fork` waits for it. Such calls
/// do not wait for other processes.
pub(super) fn gate() -> RwLockReadGuard<'static, ()> {
    GATE.get().read().unwrap_or_else(PoisonError::into_inner)
}

/// Makes `fork` wait for calls in progress.
pub(super) fn watch_forks() {
    static WATCHING: Once = Once::new();

    type Handler = unsafe extern "C" fn();
    unsafe extern "C" {
        /// pthread_atfork(3).
        fn pthread_atfork(
            prepare: Option<Handler>,
            parent: Option<Handler>,
            child: Option<Handler>,
        ) -> c_int;
    }
    unsafe extern "C" fn close_gate() {
        let gate = GATE.get().write().unwrap_or_else(PoisonError::into_inner);
        // A terminating thread has lost this variable; then the gate opens again.
        let _ = CLOSED.try_with(|closed| closed.replace(Some(gate)));
    }
    unsafe extern "C" fn open_gate() {
        let _ = CLOSED.try_with(RefCell::take);
    }
    unsafe extern "C" fn leave_gate() {
        // The child creates its own gate. This one stays as the parent's threads left it.
        let _ = CLOSED.try_with(|closed| std::mem::forget(closed.take()));
    }

    // SAFETY: the functions stay loaded as long as the process (the extension is loaded
    // permanently), and do not unwind. If registering fails for lack of memory, a child has what
    // SQLite promises: no database that another thread was using at the fork.
    WATCHING.call_once(|| unsafe {
        pthread_atfork(Some(close_gate), Some(open_gate), Some(leave_gate));
    });
}

/// Registration of an open lock file, until dropped.
pub(super) struct KnownLock(usize);

impl KnownLock {
    /// Registers a file that was opened while the gate was held, which still is.
    pub(super) fn new(file: *mut ffi::sqlite3_file, _: &RwLockReadGuard<'_, ()>) -> Self {
        open_locks().insert(file.expose_provenance(), Regions::new());
        Self(file.addr())
    }

    /// Records a region of the shared memory.
    pub(super) fn note_region(&self, address: *mut c_void, bytes: usize) {
        let _gate = gate();
        if let Some(regions) = open_locks().get_mut(&self.0)
            && !address.is_null()
        {
            regions.insert(address.expose_provenance(), bytes);
        }
    }
}

impl Drop for KnownLock {
    fn drop(&mut self) {
        let _gate = gate();
        open_locks().remove(&self.0);
    }
}

/// Must be called before any opening or closing: the first call in a child closes inherited
/// descriptors.
pub(super) fn settle() {
    static SETTLED: PerProcess<OnceLock<()>> = PerProcess::new();
    SETTLED.get().get_or_init(|| {
        close();
        place::close_inherited();
    });
}

/// Closes the lock files inherited from the parent.
fn close() {
    let locks: Vec<Open> = OPEN.inherited().map(take_inherited).collect();
    let locks: Open = locks.into_iter().flatten().collect();
    // SAFETY: the VFS's name is a C string that lives as long as the VFS.
    if locks.is_empty() || !matches!(unsafe { text(system().zName) }, "unix" | "unix-excl") {
        return;
    }

    let mut memory = Regions::new();
    for (file, regions) in locks {
        let file: *mut ffi::sqlite3_file = std::ptr::with_exposed_provenance_mut(file);
        // SAFETY: the memory of an inherited lock file is never freed (`x_close` forgets it); the
        // file is open, or has no functions any more. Its connection does not reach it: the file
        // above it returns errors in this process.
        unsafe {
            let Some(methods) = (*file).pMethods.as_ref() else {
                continue;
            };
            if let (Some(unmap), false) = (methods.xShmUnmap, regions.is_empty()) {
                unmap(file, 0);
            }
            if let Some(close) = methods.xClose {
                close(file);
            }
        }
        memory.extend(regions);
    }

    for (address, bytes) in memory {
        // SAFETY: the address was unmapped above. If it is in use again the kernel refuses, and a
        // connection that must not be used reads that.
        let _ = unsafe {
            mmap_anonymous(
                std::ptr::without_provenance_mut(address),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
            )
        };
    }
}
