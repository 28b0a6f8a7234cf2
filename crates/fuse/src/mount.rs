//! Mountpoints: mounting, unmounting, and checks.
//!
//! The mount of a killed server remains, dead: accesses fail with "Transport endpoint is not
//! connected". The next server removes such a mount if it was one of ours, and no other. Invariant:
//! the device can be given back however a mount ends: when unmounting returns, the gate is closed,
//! or the disk can be taken out.

use crate::bytes::Bytes;
use crate::delayed::DelayedAnswers;
use crate::disk::Disk;
use crate::files::Files;
use crate::pages::Pages;
use fuser::{Config, MountOption, Session, SessionUnmounter};
use remap_ssd_nvme::controller::Gate;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of the mount in the kernel's table.
const NAME: &str = "remap-ssd";
const DEVICE: &str = "/dev/fuse";
/// More than enough to keep the device busy, which executes one command at a time.
const THREADS: usize = 4;
/// Once unmounted everywhere, the service ends within milliseconds.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// A forked child also has our files open until it executes a program of its own: a mount can be
/// busy for milliseconds after its last file was closed.
const BUSY_MAX: Duration = Duration::from_millis(500);

/// Why mounting failed, with advice.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel's FUSE device cannot be opened.
    #[error(
        "{DEVICE} cannot be opened ({0}): load the kernel's module with `modprobe fuse`, and see that you may use it"
    )]
    NoFuse(io::Error),
    /// The path does not exist, or is not a folder.
    #[error("there is no such folder: make one with mkdir")]
    NoFolder,
    /// Something is mounted at the path.
    #[error("something is mounted there ({0}): unmount it with umount, or choose another folder")]
    Busy(String),
    /// The folder is not empty.
    #[error("the folder is not empty: what is in it would be hidden; choose an empty one")]
    NotEmpty,
    /// The user may not mount.
    #[error("mounting was refused ({0}): be root, or install fusermount3 (package fuse3)")]
    Refused(io::Error),
    /// The system refused an operation.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Namespaces, or a disk, mounted as files in a folder.
pub struct Mounted {
    /// Stops all further use of the device by the files.
    close: Box<dyn Fn() + Send>,
    mountpoint: PathBuf,
    unmounter: SessionUnmounter,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Mounted {
    /// Mounts files for all namespaces of a subsystem; times count from `epoch`. `ended` is called
    /// when the files are unmounted, by `unmount` or externally.
    ///
    /// # Errors
    /// The reason, with advice.
    pub fn mount(
        gate: Gate,
        mountpoint: &Path,
        epoch: Instant,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, MountError> {
        let gate = Arc::new(gate);
        let disks: Vec<Disk> = (1..)
            .map_while(|nsid| Disk::new(gate.clone(), nsid, epoch))
            .collect();

        // Answers delayed by the model, or by an injected fault, need a thread that waits.
        let delays_answers = disks.first().is_some_and(Disk::delays_answers);
        let delayed = if delays_answers {
            Some(DelayedAnswers::start(epoch)?)
        } else {
            None
        };

        Self::files(
            Files::new(disks, delayed),
            mountpoint,
            Box::new(move || gate.close()),
            ended,
        )
    }

    /// Mounts a file for a disk of host software, which the caller shares: it takes the disk out of
    /// `disk` after unmounting. `ended` as in `mount`.
    ///
    /// # Errors
    /// The reason, with advice.
    pub fn mount_disk<D: remap_ssd_device::Disk + Send + 'static>(
        disk: &Pages<D>,
        mountpoint: &Path,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, MountError> {
        Self::files(
            Files::new(vec![disk.clone()], None),
            mountpoint,
            Box::new(|| {}),
            ended,
        )
    }

    /// Mounts arrays of bytes as files with their names; the caller shares them. `ended` as in
    /// `mount`.
    ///
    /// # Errors
    /// The reason, with advice.
    pub fn mount_arrays<B: Bytes>(
        arrays: Vec<B>,
        mountpoint: &Path,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, MountError> {
        Self::files(Files::new(arrays, None), mountpoint, Box::new(|| {}), ended)
    }

    fn files<B: Bytes>(
        files: Files<B>,
        mountpoint: &Path,
        close: Box<dyn Fn() + Send>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, MountError> {
        // Opened only to report a missing device early and precisely.
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE)
            .map_err(MountError::NoFuse)?;
        prepare(mountpoint)?;

        // Unmounting needs the path as it is in the kernel's mount table.
        let mountpoint = mountpoint.canonicalize()?;

        // DefaultPermissions: the kernel checks owner and mode, since `Files` does not.
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(NAME.into()),
            MountOption::Subtype(NAME.into()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
        ];
        config.n_threads = Some(THREADS);
        let session = Session::new(files, &mountpoint, &config).map_err(MountError::Refused);

        let mut session = session?;

        let unmounter = session.unmount_callable();
        let thread = std::thread::Builder::new()
            .name("fuse".into())
            .spawn(move || {
                serve_without_deadlock();
                let result = session.run();
                ended();
                result
            })?;
        Ok(Self {
            close,
            mountpoint,
            unmounter,
            thread: Some(thread),
        })
    }

    /// Path of the folder.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts, after requests in progress. `false` if the files were in use: the folder is still
    /// freed and the device given back, and programs with an open file get errors.
    ///
    /// # Errors
    /// The service had already failed.
    pub fn unmount(mut self) -> io::Result<bool> {
        let unmounted = self.unmount_once_free() || self.unmounter.unmount().is_ok();
        if !unmounted {
            // Programs with open files get errors from now on; the path is free at once.
            (self.close)();
            detach(&self.mountpoint);
            return Ok(false);
        }

        // Another mount namespace, such as a container's, may have a copy of the mount: then the
        // service does not end.
        let ended = self.thread.take().filter(ends_soon).map(JoinHandle::join);
        (self.close)();
        match ended {
            Some(Ok(Ok(()))) => Ok(true),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(io::Error::other("a thread of the service has failed")),
            None => Ok(false),
        }
    }

    /// Unmounts as soon as the files are unused, within `BUSY_MAX`; `false` if another way must be
    /// tried: without the right to unmount, or if the files are already unmounted.
    fn unmount_once_free(&self) -> bool {
        let until = Instant::now() + BUSY_MAX;
        loop {
            // The files may have been unmounted externally, and others mounted in their place.
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return false;
            }
            match rustix::mount::unmount(&self.mountpoint, UnmountFlags::empty()) {
                Ok(()) => return true,
                Err(Errno::BUSY) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(_) => return false,
            }
        }
    }
}

/// Waits for a thread for a limited time; returns true if it has ended.
fn ends_soon<T>(thread: &JoinHandle<T>) -> bool {
    let until = Instant::now() + ENDING_MAX;
    while !thread.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.is_finished()
}

/// Prevents this thread, and those that it starts, from waiting for themselves.
///
/// A file system may lie on our file, by a loop device. When memory is short, a thread that
/// allocates has to write back dirty pages and evict inodes, including that file system's, and a
/// thread that writes a file is throttled until dirty pages are written, including that file
/// system's. Both would wait for requests that only these threads can serve.
fn serve_without_deadlock() {
    // Refused without CAP_SYS_RESOURCE, or before Linux 5.6: then there is no protection, but no
    // loop device of ours either.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Detaches a mountpoint, even if something under it is still in use.
fn detach(mountpoint: &Path) {
    if rustix::mount::unmount(mountpoint, UnmountFlags::DETACH).is_err() {
        // Without the right to unmount, use the setuid root helper.
        let mut fusermount = Command::new("fusermount3");
        fusermount
            .args(["-u", "-q", "-z", "--"])
            .arg(mountpoint)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let _ = fusermount.status();
    }
}

/// Checks that a folder can be mounted on.
fn prepare(mountpoint: &Path) -> Result<(), MountError> {
    // The kernel may cache attributes of a dead mount, but listing it fails.
    let listed = std::fs::read_dir(mountpoint);

    if listed.is_err_and(|error| error.kind() == ErrorKind::NotConnected) {
        let path = mountpoint
            .canonicalize()
            .or_else(|_| std::path::absolute(mountpoint))?;

        // Remove a dead mount only if it is ours: another one may still be needed.
        match mounted_at(&path)? {
            Some(what) if what == NAME => detach(&path),
            Some(what) => {
                return Err(MountError::Busy(format!(
                    "{what}, which is no longer served"
                )));
            }
            None => return Err(io::Error::from(ErrorKind::NotConnected).into()),
        }
    }

    let metadata = match std::fs::metadata(mountpoint) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(MountError::NoFolder),
        other => other?,
    };

    if !metadata.is_dir() {
        return Err(MountError::NoFolder);
    }

    if let Some(what) = mounted_at(&mountpoint.canonicalize()?)? {
        return Err(MountError::Busy(what));
    }

    match std::fs::read_dir(mountpoint)?.next() {
        Some(_) => Err(MountError::NotEmpty),
        None => Ok(()),
    }
}

/// Source of the topmost mount at a path: a device or file system name.
fn mounted_at(path: &Path) -> io::Result<Option<String>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table
        .lines()
        .filter_map(|line| entry(line).filter(|(point, _)| point == path))
        .next_back()
        .map(|(_, what)| what))
}

/// Mountpoint and source of a line: `36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/root rw`.
fn entry(line: &str) -> Option<(PathBuf, String)> {
    let (left, right) = line.split_once(" - ")?;
    let point = left.split(' ').nth(4)?;
    Some((
        PathBuf::from(unescaped(point)),
        unescaped(right.split(' ').nth(1)?),
    ))
}

/// Blanks, tabs, line ends and backslashes are encoded as three octal digits.
fn unescaped(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escape, plain)| {
        text.replace(escape, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_mount_table_are_read() {
        let line = r"36 35 98:0 /mnt1 /mnt\040of\134mine rw,noatime master:1 - fuse remap-ssd rw,errors=continue";
        assert_eq!(
            entry(line),
            Some((PathBuf::from(r"/mnt of\mine"), NAME.to_owned()))
        );
        assert_eq!(entry("no line of it"), None);
    }
}
