//! Private mounts, which end with this process, even if it is killed.
//!
//! Absent: the mounts themselves.

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Makes later mounts of this thread and its children private. Unmounts elsewhere still propagate:
/// a copy would keep their device in use, and a FUSE server would wait for it. If the kernel
/// refuses (without root), mounts are visible to all; they are still removed at the end.
pub fn private_mounts() {
    // SAFETY: the function is unsafe because of file descriptors that become private to a thread;
    // only mounts are unshared here.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok() {
        let _ = mount_change(
            "/",
            MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM,
        );
    }
}
