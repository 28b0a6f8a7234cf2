//! The environment of workloads and checks: the disk as a file through FUSE, a loop device on it, a
//! file system on that.
//!
//! Invariants: every mount and loop device made here is removed on drop, and no other; a loop
//! device is detached only once. A missing requirement is reported in one sentence with a remedy.
//!
//! A process in another mount namespace (a container, `unshare -m`) may hold a copy of a mount.
//! While it exists the file system stays active, and would write its journal to the next disk
//! of the file. So a disk is released only when its loop device is free. Removing the mount
//! point ends the copies too (mount_namespaces(7)), except for those in use.
//!
//! Absent: the contents of the disk.

use crate::array::{Array, DiskGeometry};
use crate::child::{ToolError, tool};
use crate::error::TortureError;
use crate::served::{DISK, MARKS, MarkSink, Served, Slot};
use remap_ssd_fuse::Mounted;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// A file system, and options for mkfs and mount.
#[derive(Clone, Debug, Default)]
pub struct FileSystem {
    /// Its name for mount, and the suffix of its mkfs.
    pub name: String,
    /// Additional options for mkfs, separated by spaces.
    pub mkfs_options: String,
    /// Options for mount, separated by commas.
    pub mount_options: String,
}

/// Our own options for mkfs: quiet, without questions, and without lazy initialization.
fn mkfs_options(name: &str) -> &'static [&'static str] {
    match name {
        "ext2" | "ext3" | "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        "xfs" | "btrfs" | "f2fs" => &["-q", "-f"],
        _ => &[],
    }
}

/// Options of each mount, ours and the user's. XFS refuses to mount the same UUID twice, and
/// another cut of the same recording may still be mounted, by a second campaign or by leftover
/// processes of a check.
fn mount_options(fs: &FileSystem) -> Vec<&str> {
    let own = if fs.name == "xfs" { "nouuid" } else { "" };
    [own, &fs.mount_options]
        .into_iter()
        .filter(|options| !options.is_empty())
        .collect()
}

fn package(name: &str) -> &str {
    match name {
        "ext2" | "ext3" | "ext4" => "e2fsprogs",
        "xfs" => "xfsprogs",
        "btrfs" => "btrfs-progs",
        "f2fs" => "f2fs-tools",
        "nilfs2" => "nilfs-tools",
        other => other,
    }
}

/// Receiver of the marks; none between workloads.
type Sink = Arc<Mutex<Option<MarkSink>>>;

/// A folder with the disk's file, whose disk can be exchanged.
pub(crate) struct Stage {
    // Dropped in this order: first the mount, then the folder.
    mounted: Option<Mounted>,
    scratch: TempDir,
    slot: Slot,
    shape: DiskGeometry,
    marks: Sink,
}

/// Checks that this machine meets the requirements for a file system of that name.
///
/// # Errors
/// The missing requirement, with a remedy.
pub fn require(name: &str) -> Result<(), TortureError> {
    let missing = |sentence: String| Err(TortureError::Missing(sentence));

    if !rustix::process::geteuid().is_root() {
        return missing(
            "loop devices and mounts need root: run it with sudo, or without a file system (--file)".into(),
        );
    }

    if !Path::new("/dev/loop-control").exists() {
        return missing(
            "there is no /dev/loop-control: load the kernel's module with `modprobe loop`".into(),
        );
    }

    if matches!(tool("losetup", &["--version"]), Err(ToolError::NotThere)) {
        return missing("losetup is not installed: install the package mount".into());
    }

    if name.is_empty()
        || !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        return missing(format!(
            "`{name}` is no name of a file system: choose one such as ext4, xfs or btrfs"
        ));
    }

    let mkfs = format!("mkfs.{name}");
    if matches!(tool(&mkfs, &["-V"]), Err(ToolError::NotThere)) {
        return missing(format!(
            "{mkfs} is not installed: install the package {}",
            package(name)
        ));
    }

    // Loads the module, if there is one.
    let known = || {
        let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        list.lines()
            .any(|line| line.split_whitespace().next_back() == Some(name))
    };

    if !known() && (tool("modprobe", &["-q", "--", name]).is_err() || !known()) {
        return missing(format!(
            "this kernel has no file system {name}: choose one of those in /proc/filesystems"
        ));
    }

    Ok(())
}

impl Stage {
    /// Serves a folder with the file of a disk of this size, initially without a disk.
    ///
    /// # Errors
    /// FUSE is missing, or there is no room for a folder.
    pub(crate) fn new(shape: DiskGeometry) -> Result<Self, TortureError> {
        let scratch = tempfile::Builder::new()
            .prefix("remap-ssd-torture-")
            .tempdir()?;
        for name in ["files", "mounted"] {
            std::fs::create_dir(scratch.path().join(name))?;
        }

        let (slot, marks) = (Slot::new(shape), Sink::default());
        let sink = marks.clone();
        let mark = move |lines: &[u8]| {
            if let Some(sink) = &*sink.lock().unwrap_or_else(PoisonError::into_inner) {
                sink(lines);
            }
        };
        let files = vec![Served::Disk(slot.clone()), Served::Marks(Box::new(mark))];
        let mounted = Mounted::mount_arrays(files, &scratch.path().join("files"), || {});
        let mounted = mounted.map_err(|error| TortureError::missing(error.to_string()))?;
        Ok(Self {
            mounted: Some(mounted),
            scratch,
            slot,
            shape,
            marks,
        })
    }

    /// Sets the disk that backs the file.
    pub(crate) fn put(&self, array: Arc<dyn Array>) {
        self.slot.put(Some(array));
    }

    /// Takes the failure of a disk request, if any: the machine's fault, not a result of a run or a
    /// check.
    pub(crate) fn take_failure(&self) -> Option<TortureError> {
        self.slot.take_failure().map(TortureError::Scratch)
    }

    /// Sets the receiver of marks.
    pub(crate) fn marks_to(&self, sink: Option<MarkSink>) {
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = sink;
    }

    /// Path of the file that is the disk.
    pub(crate) fn file(&self) -> PathBuf {
        self.scratch.path().join("files").join(DISK)
    }

    /// The file into which a workload writes its marks.
    pub(crate) fn marks(&self) -> PathBuf {
        self.scratch.path().join("files").join(MARKS)
    }

    /// The file from which a check reads the marks before the cut.
    pub(crate) fn marks_seen(&self) -> PathBuf {
        self.scratch.path().join(MARKS)
    }

    /// Mount point of file systems.
    pub(crate) fn folder(&self) -> PathBuf {
        self.scratch.path().join("mounted")
    }

    /// Makes a file system.
    ///
    /// # Errors
    /// The tool's output.
    pub(crate) fn make(&self, fs: &FileSystem) -> Result<(), TortureError> {
        let attached = Loop::attach(&self.file(), self.shape)?;

        let mut arguments = mkfs_options(&fs.name).to_vec();
        arguments.extend(fs.mkfs_options.split_whitespace());
        arguments.push(&attached.device);

        tool(&format!("mkfs.{}", fs.name), &arguments)
            .map(drop)
            .map_err(|error| match error {
                ToolError::NotThere => {
                    TortureError::Missing(format!("mkfs.{} is not installed", fs.name))
                }
                ToolError::Failed(words) => TortureError::Missing(format!(
                    "mkfs.{} failed ({}): another --size or other --mkfs-options may help",
                    fs.name,
                    // The first line is the version, and the last ones are a usage text.
                    words
                        .lines()
                        .find(|line| !line.starts_with("mke2fs "))
                        .unwrap_or("it said nothing")
                )),
            })
    }

    /// Mounts the file system on the disk; the kernel recovers it.
    ///
    /// # Errors
    /// The inner error: the mount fails.
    pub(crate) fn mount(&self, fs: &FileSystem) -> Result<Result<MountedFs, String>, TortureError> {
        let mut attached = Loop::attach(&self.file(), self.shape)?;

        let folder = self.folder();
        let target = folder.to_string_lossy().into_owned();
        // The path as the kernel reports it.
        let file = self.file().canonicalize()?;

        let mut arguments = vec!["-t", &fs.name];
        let options = mount_options(fs).join(",");
        if !options.is_empty() {
            arguments.extend(["-o", &options]);
        }

        arguments.extend([attached.device.as_str(), &target]);

        match tool("mount", &arguments) {
            Ok(_) => {
                // From now on the kernel detaches it at the unmount, however this process ends.
                attached.detach();
                Ok(Ok(MountedFs {
                    folder,
                    file,
                    name: fs.name.clone(),
                    device: attached.device.clone(),
                    mounted: true,
                }))
            }
            Err(ToolError::Failed(words)) => Ok(Err(words)),
            Err(ToolError::NotThere) => Err(TortureError::missing(
                "mount is not installed: install the package mount",
            )),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Later requests are refused, so that no process waits for us.
        self.slot.put(None);
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmount();
        }
    }
}

/// A loop device that we attached.
struct Loop {
    device: String,
    attached: bool,
}

impl Loop {
    fn attach(file: &Path, shape: DiskGeometry) -> Result<Self, TortureError> {
        // Direct I/O: with caching by the loop device FUSE would not see the file system's order of
        // writes and flushes. Its sectors are the blocks that a cut leaves old or new.
        let (sector, file) = (shape.block_bytes.to_string(), file.to_string_lossy());

        let arguments = [
            "--find",
            "--show",
            "--direct-io=on",
            "--sector-size",
            &sector,
            &file,
        ];

        // Another process may take the device that losetup found.
        let mut attempts = 0;
        let device = loop {
            match tool("losetup", &arguments) {
                Ok(device) => break device,
                Err(ToolError::Failed(words)) if attempts == 20 => {
                    let sentence =
                        format!("no loop device could be attached ({words}): see `losetup --list`");
                    return Err(TortureError::Missing(sentence));
                }
                Err(ToolError::Failed(_)) => std::thread::sleep(Duration::from_millis(50)),
                Err(ToolError::NotThere) => {
                    return Err(TortureError::missing(
                        "losetup is not installed: install the package mount",
                    ));
                }
            }
            attempts += 1;
        };

        Ok(Self {
            device,
            attached: true,
        })
    }

    /// Detaches now, or once it is no longer in use. After that the device may belong to another
    /// process: never detach twice.
    fn detach(&mut self) {
        if std::mem::take(&mut self.attached) {
            let _ = tool("losetup", &["--detach", &self.device]);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.detach();
    }
}

/// A file system while it is mounted.
pub(crate) struct MountedFs {
    folder: PathBuf,
    /// The disk's file, which backs the loop device.
    file: PathBuf,
    name: String,
    device: String,
    mounted: bool,
}

/// Remaining users of a file system that was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmounted {
    /// None: the stage can reuse the disk.
    Free,
    /// Processes with open files. The mount is detached, but the file system keeps the disk until
    /// they end: the stage must not be reused.
    InUse,
    /// Processes of another mount namespace, which has a copy of the mount. The stage must not be
    /// reused.
    Elsewhere,
}

impl MountedFs {
    /// Folder at which it is mounted.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Unmounts it.
    pub(crate) fn unmount(mut self) -> Unmounted {
        self.try_unmount()
    }

    fn try_unmount(&mut self) -> Unmounted {
        if !std::mem::take(&mut self.mounted) {
            return Unmounted::Free;
        }

        let target = self.folder.to_string_lossy();
        // Killed processes may take a moment to close their files.
        let clean = soon(|| tool("umount", &[&target]).is_ok());

        if !clean {
            let _ = tool("umount", &["--lazy", &target]);
        }

        // Removing the folder ends copies of the mount. A new one takes its place.
        let renewed = std::fs::remove_dir(&self.folder);
        let _ = renewed.and_then(|()| std::fs::create_dir(&self.folder));
        let free = clean && soon(|| !self.is_attached());

        if self.name == "btrfs" {
            // btrfs remembers the devices of a file system, and would match this one against later
            // disks.
            let _ = tool("btrfs", &["device", "scan", "--forget", &self.device]);
        }

        match (clean, free) {
            (true, true) => Unmounted::Free,
            (true, false) => Unmounted::Elsewhere,
            (false, _) => Unmounted::InUse,
        }
    }

    /// Returns true if the loop device is still attached to the disk. The kernel detaches it with
    /// the last mount.
    fn is_attached(&self) -> bool {
        let device = Path::new(&self.device).file_name().unwrap_or_default();
        let file = Path::new("/sys/block")
            .join(device)
            .join("loop/backing_file");
        std::fs::read_to_string(file)
            .is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == self.file)
    }
}

/// Returns true if the condition holds within two seconds.
fn soon(is_so: impl Fn() -> bool) -> bool {
    (0..100).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_so()
    })
}

impl Drop for MountedFs {
    fn drop(&mut self) {
        self.try_unmount();
    }
}

#[cfg(test)]
mod tests;
