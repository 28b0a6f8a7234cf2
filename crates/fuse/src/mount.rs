//! Mountpoints: mounting, unmounting, and everything that can be wrong with them.
//!
//! A server that was killed leaves its mount behind, dead: whoever looks at it is told "Transport
//! endpoint is not connected". The next server takes such a mount away if it was one of ours, and
//! nothing else. Invariant: however it ends, the device can be given back: the gate is closed, or
//! the disk taken out, when unmounting returns.

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

/// What is mounted, in the kernel's table.
const NAME: &str = "remap-ssd";
const DEVICE: &str = "/dev/fuse";
/// More than the device, which does one command at a time, can keep busy.
const THREADS: usize = 4;
/// Once it is unmounted everywhere, the service ends within milliseconds.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// A program that forks has our files open for its child too, until the child runs a program of its
/// own: a mount can be busy for milliseconds after its last file was closed.
const BUSY_MAX: Duration = Duration::from_millis(500);

/// Why nothing is mounted, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel's FUSE device cannot be opened.
    #[error(
        "{DEVICE} cannot be opened ({0}): load the kernel's module with `modprobe fuse`, and see that you may use it"
    )]
    NoFuse(io::Error),
    /// Not there, or no folder.
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

/// Namespaces, or a disk, as files in a folder.
pub struct Mounted {
    /// Lets nobody in any more.
    close: Box<dyn Fn() + Send>,
    mountpoint: PathBuf,
    unmounter: SessionUnmounter,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Mounted {
    /// Mounts files for all namespaces of a subsystem; times count from `epoch`. `ended` is called
    /// when the files are gone, by `unmount` or by somebody else.
    ///
    /// # Errors
    /// The reason, and what to do about it.
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

        // Answers that wait for the model, or for a planted fault, need someone who waits.
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

    /// Mounts a file for a disk of host software, which stays with the caller: what is left of it
    /// is taken out of `disk` after unmounting. `ended` as in `mount`.
    ///
    /// # Errors
    /// The reason, and what to do about it.
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

    /// Mounts arrays of bytes, each a file by its name; they stay with the caller. `ended` as in
    /// `mount`.
    ///
    /// # Errors
    /// The reason, and what to do about it.
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
        // Opened only to say early, and by name, what is missing.
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE)
            .map_err(MountError::NoFuse)?;
        prepare(mountpoint)?;

        // Unmounting needs the path as the kernel's mount table has it.
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

    /// Path at which the files are.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts, after what is under way. `false` if the files were in use: the folder is free
    /// again and the device is given back all the same, and whoever has a file open is told that
    /// the device is gone.
    ///
    /// # Errors
    /// The service had failed before.
    pub fn unmount(mut self) -> io::Result<bool> {
        let unmounted = self.unmount_once_free() || self.unmounter.unmount().is_ok();
        if !unmounted {
            // Programs with open files get errors from now on; the path is free at once.
            (self.close)();
            detach(&self.mountpoint);
            return Ok(false);
        }

        // In another mount namespace, such as a container's, there may be a copy of the mount: then
        // the service goes on.
        let ended = self.thread.take().filter(ends_soon).map(JoinHandle::join);
        (self.close)();
        match ended {
            Some(Ok(Ok(()))) => Ok(true),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(io::Error::other("a thread of the service has failed")),
            None => Ok(false),
        }
    }

    /// Unmounts as soon as nobody uses the files, if that is soon; `false` if it must be tried
    /// another way, as it must without the right to unmount, or if the files are unmounted already.
    fn unmount_once_free(&self) -> bool {
        let until = Instant::now() + BUSY_MAX;
        loop {
            // Somebody else may have unmounted the files, and mounted others in their place.
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

/// Waits for a thread for a limited time: has it ended?
fn ends_soon<T>(thread: &JoinHandle<T>) -> bool {
    let until = Instant::now() + ENDING_MAX;
    while !thread.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.is_finished()
}

/// Keeps this thread, and those that it starts, from waiting for themselves.
///
/// A file system may lie on our file, by a loop device. When memory is short, a thread that
/// allocates is made to write back dirty pages and to evict inodes, of that file system too, and a
/// thread that writes a file is slowed down until dirty pages are written, that file system's too.
/// Both would wait for requests that only these threads can serve.
fn serve_without_deadlock() {
    // Without CAP_SYS_RESOURCE, or before Linux 5.6, it is refused: then it is as it was, and there
    // is no loop device of ours either.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Detaches a mountpoint, even if something under it is still in use.
fn detach(mountpoint: &Path) {
    if rustix::mount::unmount(mountpoint, UnmountFlags::DETACH).is_err() {
        // Without the right to unmount, the helper that is setuid root does it.
        let mut fusermount = Command::new("fusermount3");
        fusermount
            .args(["-u", "-q", "-z", "--"])
            .arg(mountpoint)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let _ = fusermount.status();
    }
}

/// Sees that a folder can be mounted on.
fn prepare(mountpoint: &Path) -> Result<(), MountError> {
    // Of a dead mount the kernel may remember attributes, but there is nobody to list it.
    let listed = std::fs::read_dir(mountpoint);

    if listed.is_err_and(|error| error.kind() == ErrorKind::NotConnected) {
        let path = mountpoint
            .canonicalize()
            .or_else(|_| std::path::absolute(mountpoint))?;

        // Only a dead mount of ours is taken away: somebody may still want another.
        match mounted_at(&path)? {
            Some(what) if what == NAME => detach(&path),
            Some(what) => {
                return Err(MountError::Busy(format!(
                    "{what}, which nobody serves any more"
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

/// What is mounted at a path, last of what is mounted there: a device's name, or a file system's.
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

/// Blanks, tabs, line ends and backslashes stand there as three octal digits.
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
