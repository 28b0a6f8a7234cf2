//! Where workloads and checks run: the disk as a file through FUSE, a loop device on it, a file
//! system on that.
//!
//! Invariants: whatever is mounted or attached here is taken away again when it is dropped, and
//! nothing else is; a loop device is detached once. What is missing is one sentence that says what
//! to do.
//!
//! A process in another mount namespace (a container, `unshare -m`) may have a copy of a mount. While
//! there is one the file system goes on, and would write its journal to the disk that is put behind
//! the file next. So a disk is given back only when its loop device is free: removing the folder at
//! which it was mounted ends the copies too (mount_namespaces(7)), except for those in use.
//!
//! Absent: what is on the disk.

use crate::array::{Array, DISK, DiskGeometry, MARKS, MarkSink, Served, Slot};
use crate::child::{ToolError, tool};
use crate::error::TortureError;
use remap_ssd_fuse::Mounted;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// A file system and how it is made and mounted.
#[derive(Clone, Debug, Default)]
pub struct FileSystem {
    /// Its name, as mount knows it; mkfs has it after the point.
    pub name: String,
    /// Options for mkfs, separated by blanks, besides ours.
    pub mkfs_options: String,
    /// Options for mount, separated by commas.
    pub mount_options: String,
}

/// What mkfs is told besides: to be quiet, to go on without questions, and to leave nothing for
/// later.
fn mkfs_options(name: &str) -> &'static [&'static str] {
    match name {
        "ext2" | "ext3" | "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        "xfs" | "btrfs" | "f2fs" => &["-q", "-f"],
        _ => &[],
    }
}

/// Options of each mount, besides the user's. XFS does not mount a file system twice, and knows it
/// by its UUID: another cut of the same recording may still be mounted, by a second campaign or by
/// processes that a check has left.
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

/// Who gets the marks; nobody between workloads.
type Sink = Arc<Mutex<Option<MarkSink>>>;

/// A folder with the disk's file, which can be given another disk.
pub struct Stage {
    // Dropped in this order: first what is mounted, then the folder.
    mounted: Option<Mounted>,
    scratch: TempDir,
    slot: Slot,
    shape: DiskGeometry,
    marks: Sink,
}

/// Says what this machine lacks for a file system of that name.
///
/// # Errors
/// What is missing, and what to do.
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
    /// Serves a folder with the file of a disk of this size, which has none yet.
    ///
    /// # Errors
    /// FUSE is missing, or there is no room for a folder.
    pub fn new(shape: DiskGeometry) -> Result<Self, TortureError> {
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

    /// Puts a disk behind the file.
    pub fn put(&self, array: Arc<dyn Array>) {
        self.slot.put(Some(array));
    }

    /// Why a request of the disk has failed, if one has: the machine's fault, and no outcome of a
    /// run or a check.
    pub fn take_failure(&self) -> Option<TortureError> {
        self.slot.take_failure().map(TortureError::Scratch)
    }

    /// Who gets the marks from now on.
    pub fn marks_to(&self, sink: Option<MarkSink>) {
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = sink;
    }

    /// Path of the file that is the disk.
    pub fn file(&self) -> PathBuf {
        self.scratch.path().join("files").join(DISK)
    }

    /// The file into which a workload writes its marks.
    pub fn marks(&self) -> PathBuf {
        self.scratch.path().join("files").join(MARKS)
    }

    /// The file in which a check reads the marks before the cut.
    pub fn marks_seen(&self) -> PathBuf {
        self.scratch.path().join(MARKS)
    }

    /// Where file systems are mounted.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("mounted")
    }

    /// Makes a file system.
    ///
    /// # Errors
    /// The tool's words.
    pub fn make(&self, fs: &FileSystem) -> Result<(), TortureError> {
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
                    // The version comes first, and a page of usage last.
                    words
                        .lines()
                        .find(|line| !line.starts_with("mke2fs "))
                        .unwrap_or("it said nothing")
                )),
            })
    }

    /// Mounts the file system that is on the disk; recovery is the kernel's.
    ///
    /// # Errors
    /// The inner one: the file system refuses.
    pub fn mount(&self, fs: &FileSystem) -> Result<Result<MountedFs, String>, TortureError> {
        let mut attached = Loop::attach(&self.file(), self.shape)?;

        let folder = self.folder();
        let target = folder.to_string_lossy().into_owned();
        // As the kernel names it.
        let file = self.file().canonicalize()?;

        let mut arguments = vec!["-t", &fs.name];
        let options = mount_options(fs).join(",");
        if !options.is_empty() {
            arguments.extend(["-o", &options]);
        }

        arguments.extend([attached.device.as_str(), &target]);

        match tool("mount", &arguments) {
            Ok(_) => {
                // From now on the kernel detaches it when it is unmounted, however this process
                // ends.
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
        // Requests that still come are refused, so that nobody waits for us.
        self.slot.put(None);
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmount();
        }
    }
}

/// A loop device of ours.
struct Loop {
    device: String,
    attached: bool,
}

impl Loop {
    fn attach(file: &Path, shape: DiskGeometry) -> Result<Self, TortureError> {
        // Direct I/O: the loop device must not cache, or FUSE would see writes and flushes in an
        // order that is not the file system's. Its sectors are what a cut keeps old or new.
        let (sector, file) = (shape.block_bytes.to_string(), file.to_string_lossy());

        let arguments = [
            "--find",
            "--show",
            "--direct-io=on",
            "--sector-size",
            &sector,
            &file,
        ];

        // Another process may take the device that losetup has found.
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

    /// At once, or as soon as it is not in use any more. Then the device may be somebody else's:
    /// never twice.
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
pub struct MountedFs {
    folder: PathBuf,
    /// The disk's file, on which the loop device is.
    file: PathBuf,
    name: String,
    device: String,
    mounted: bool,
}

/// Who still has a file system that was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody: the disk is the stage's again.
    Free,
    /// Processes that had files open. It is out of the folders' tree all the same, but the disk is
    /// its own until they end: the stage must not be used again.
    InUse,
    /// Processes of another mount namespace, which has a copy of the mount. The stage must not be
    /// used again.
    Elsewhere,
}

impl MountedFs {
    /// Folder at which it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Unmounts it.
    pub fn unmount(mut self) -> Unmounted {
        self.try_unmount()
    }

    fn try_unmount(&mut self) -> Unmounted {
        if !std::mem::take(&mut self.mounted) {
            return Unmounted::Free;
        }

        let target = self.folder.to_string_lossy();
        // What was killed may take a moment to close its files.
        let clean = soon(|| tool("umount", &[&target]).is_ok());

        if !clean {
            let _ = tool("umount", &["--lazy", &target]);
        }

        // Copies of the mount end with the folder. A new one takes its place.
        let renewed = std::fs::remove_dir(&self.folder);
        let _ = renewed.and_then(|()| std::fs::create_dir(&self.folder));
        let free = clean && soon(|| !self.is_attached());

        if self.name == "btrfs" {
            // It remembers the devices of a file system, and would look for this one among the next
            // ones.
            let _ = tool("btrfs", &["device", "scan", "--forget", &self.device]);
        }

        match (clean, free) {
            (true, true) => Unmounted::Free,
            (true, false) => Unmounted::Elsewhere,
            (false, _) => Unmounted::InUse,
        }
    }

    /// Whether the loop device is on the disk still. The kernel detaches it with the last mount.
    fn is_attached(&self) -> bool {
        let device = Path::new(&self.device).file_name().unwrap_or_default();
        let file = Path::new("/sys/block")
            .join(device)
            .join("loop/backing_file");
        std::fs::read_to_string(file)
            .is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == self.file)
    }
}

/// Whether it is so, or becomes so within two seconds.
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
