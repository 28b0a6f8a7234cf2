//! Sharing by system calls.
//!
//! `FICLONERANGE` comes first: it shares or reports that it cannot (XFS and Btrfs share). Then, for
//! files on a mount of this project's FUSE server only, `copy_file_range`, which is a Copy command
//! of the device. It is not used on other file systems: it may silently write every byte, and pages
//! counted as shared must be. The rest is read and written, and counted as copied.
//!
//! Invariant: ranges take effect in order, each as if read first. Absent: remembering which ranges
//! could not be shared; the kernel reports it without touching data.

use super::{Opened, PAGE, State};
use crate::{FileId, Share, StoreError};
use rustix::io::{Errno, retry_on_intr};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Bytes copied per step.
const COPY_BYTES: u64 = 1 << 20;
/// Mount source of this project's server in the kernel's list; its type is `fuse`, or `fuse.` and a
/// name.
const OUR_SOURCE: &str = "remap-ssd";

/// Cached facts about file systems.
#[derive(Default)]
pub(super) struct Sharing {
    /// By device number, true for a mount of this project's server.
    ours: HashMap<u64, bool>,
}

impl Sharing {
    fn is_ours(&mut self, file: &File) -> bool {
        let Ok(dev) = file.metadata().map(|metadata| metadata.dev()) else {
            return false;
        };
        *self.ours.entry(dev).or_insert_with(|| {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            is_our_mount(&mounts, rustix::fs::major(dev), rustix::fs::minor(dev))
        })
    }
}

/// Returns true if a device number belongs to a mount of this project's server, by the text of
/// `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn is_our_mount(mounts: &str, major: u32, minor: u32) -> bool {
    let device = format!("{major}:{minor}");
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&device));
    let mut what = line
        .and_then(|line| line.split_once(" - "))
        .map_or("", |(_, what)| what)
        .split(' ');
    let kind = what.next().unwrap_or_default();
    (kind == "fuse" || kind.starts_with("fuse.")) && what.next() == Some(OUR_SOURCE)
}

/// Merges ranges of two files that are consecutive in both. Within one file (which may have two
/// handles) a later range may read the target of an earlier one, so those stay separate.
pub(super) fn merged(shares: &[Share], one_file: impl Fn(FileId, FileId) -> bool) -> Vec<Share> {
    let mut merged: Vec<Share> = Vec::new();
    for share in shares.iter().filter(|share| share.bytes > 0) {
        match merged.last_mut() {
            Some(last)
                if (last.from, last.to) == (share.from, share.to)
                    && !one_file(share.from, share.to)
                    && last.from_offset.checked_add(last.bytes) == Some(share.from_offset)
                    && last.to_offset.checked_add(last.bytes) == Some(share.to_offset) =>
            {
                last.bytes += share.bytes;
            }
            _ => merged.push(*share),
        }
    }
    merged
}

impl State {
    /// Shares one range, or copies it.
    pub(super) fn share(&mut self, share: &Share) -> Result<(), StoreError> {
        let Share {
            from_offset,
            to_offset,
            bytes,
            ..
        } = *share;
        let (from, to) = (self.opened(share.from)?, self.opened(share.to)?);
        let size = from.size()?;

        // Bounds are checked first: nothing is written for an invalid range.
        if from_offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(StoreError::Range {
                offset: from_offset,
                bytes,
                size,
            });
        }
        if to_offset
            .checked_add(bytes)
            // The kernel's offsets are signed.
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(StoreError::Range {
                offset: to_offset,
                bytes,
                size: to.size()?,
            });
        }
        let overlap = overlaps(&from, &to, share);

        // Only ranges with the same offset within a page can be shared.
        if from_offset % PAGE != to_offset % PAGE || overlap {
            let why = || {
                format!("the ranges overlap, or are not aligned to {PAGE} bytes in the same way")
            };
            return self.copy(&from, &to, share, why);
        }

        // Partial pages at both ends are copied, whole pages between them are shared.
        let head = (from_offset.next_multiple_of(PAGE) - from_offset).min(bytes);
        let whole = (bytes - head) / PAGE * PAGE;
        let part = |at: u64, bytes: u64| Share {
            from_offset: from_offset + at,
            to_offset: to_offset + at,
            bytes,
            ..*share
        };
        let why = || format!("a part of a page of {PAGE} bytes cannot be shared");
        self.copy(&from, &to, &part(0, head), why)?;
        self.share_pages(&from, &to, &part(head, whole))?;
        self.copy(&from, &to, &part(head + whole, bytes - head - whole), why)
    }

    fn share_pages(&mut self, from: &Opened, to: &Opened, share: &Share) -> Result<(), StoreError> {
        if share.bytes == 0 {
            return Ok(());
        }
        let refused = match retry_on_intr(|| clone_range(&from.file, &to.file, share)) {
            Ok(()) => {
                self.statistics.pages_shared += share.bytes / PAGE;
                return Ok(());
            }
            Err(
                // These mean that the file system, or this pair of files, cannot share, and that
                // nothing was changed (ioctl_ficlonerange(2)). Other errors are failures.
                error @ (Errno::OPNOTSUPP
                | Errno::NOTTY
                | Errno::XDEV
                | Errno::INVAL
                | Errno::NOSYS),
            ) => error,
            Err(error) => return Err(to.failed(error)),
        };

        // Only on this project's mounts: elsewhere this call may silently copy.
        if self.sharing.is_ours(&from.file) && self.sharing.is_ours(&to.file) {
            let done =
                copy_file_range(&from.file, &to.file, share).map_err(|error| to.failed(error))?;
            // Short: the rest cannot be done this way. Copying all of it below gives the same
            // result.
            if done == share.bytes {
                self.statistics.pages_shared += done / PAGE;
                return Ok(());
            }
        }

        self.copy(from, to, share, || {
            format!(
                "the file system cannot share: {}",
                std::io::Error::from(refused)
            )
        })
    }

    fn copy(
        &mut self,
        from: &Opened,
        to: &Opened,
        share: &Share,
        why: impl FnOnce() -> String,
    ) -> Result<(), StoreError> {
        // An overlapping range is read as a whole first.
        let step = if overlaps(from, to, share) {
            share.bytes
        } else {
            share.bytes.min(COPY_BYTES)
        };

        let mut buffer = vec![0; step as usize];
        let mut done = 0;
        while done < share.bytes {
            let bytes = &mut buffer[..step.min(share.bytes - done) as usize];
            let read = from.read(share.from_offset + done, bytes)?;

            // The file was truncated concurrently.
            if read < bytes.len() {
                return Err(StoreError::Range {
                    offset: share.from_offset,
                    bytes: share.bytes,
                    size: from.size()?,
                });
            }
            to.write(share.to_offset + done, bytes)?;
            done += read as u64;
        }

        let pages = (share.to_offset + share.bytes).div_ceil(PAGE) - share.to_offset / PAGE;
        self.statistics
            .copied(if share.bytes == 0 { 0 } else { pages }, why);
        Ok(())
    }
}

/// Returns true if source and target overlap in one file.
fn overlaps(from: &Opened, to: &Opened, share: &Share) -> bool {
    from.identity == to.identity && share.from_offset.abs_diff(share.to_offset) < share.bytes
}

/// The kernel's `struct file_clone_range` (ioctl_ficlonerange(2)).
#[repr(C)]
struct FileCloneRange {
    src_fd: i64,
    src_offset: u64,
    src_length: u64,
    dest_offset: u64,
}

const FICLONERANGE: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::write::<FileCloneRange>(0x94, 13);

/// Shares a range, or changes nothing.
fn clone_range(from: &File, to: &File, share: &Share) -> Result<(), Errno> {
    let range = FileCloneRange {
        src_fd: from.as_raw_fd().into(),
        src_offset: share.from_offset,
        src_length: share.bytes,
        dest_offset: share.to_offset,
    };
    // SAFETY: the opcode is FICLONERANGE, whose argument is a pointer to `struct file_clone_range`,
    // which the kernel reads during the call and does not change; `FileCloneRange` has its layout.
    // The descriptor in it is open: `from` is borrowed.
    unsafe {
        rustix::ioctl::ioctl(
            to,
            rustix::ioctl::Setter::<FICLONERANGE, FileCloneRange>::new(range),
        )
    }
}

/// Makes the file system copy a range; returns the number of bytes done.
fn copy_file_range(from: &File, to: &File, share: &Share) -> Result<u64, Errno> {
    let mut done = 0;
    while done < share.bytes {
        let (mut source, mut target) = (share.from_offset + done, share.to_offset + done);
        // The kernel copies less than 2 GiB per call.
        let left = (share.bytes - done).min(1 << 30) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), left) {
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::INVAL) => break,
            Ok(bytes) => done += bytes as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_ours_is_told_by_its_device_number() {
        let mounts = "\
29 1 0:26 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
83 29 0:52 / /mnt/ours rw,nosuid shared:44 - fuse.remap-ssd remap-ssd rw,user_id=0
84 29 0:53 / /mnt/other rw shared:45 - fuse.sshfs host: rw
85 29 0:54 / /mnt/plain rw shared:46 - fuse remap-ssd rw
";
        assert!(is_our_mount(mounts, 0, 52));
        assert!(is_our_mount(mounts, 0, 54));
        assert!(!is_our_mount(mounts, 0, 53), "another FUSE server may copy");
        assert!(!is_our_mount(mounts, 0, 26));
        assert!(!is_our_mount(mounts, 0, 5));
    }
}
