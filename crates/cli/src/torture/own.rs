//! Mounts that nobody else sees, and that end with this process, even if it is killed.
//!
//! Absent: mounts themselves.

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// From now on what this thread and its children mount is theirs alone. What others unmount is
/// unmounted here as well: a copy would keep their device in use, and a FUSE server would wait for
/// it. Where the kernel refuses (without root), mounts are seen by all; they are taken away in the
/// end all the same.
pub fn mounts() {
    // SAFETY: it is file descriptors that must not become private to a thread unnoticed; this is
    // about mounts.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok() {
        let _ = mount_change(
            "/",
            MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM,
        );
    }
}
