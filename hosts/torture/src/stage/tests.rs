//! Options of mounts, and mounts with a copy in another mount namespace.

use super::*;
use crate::contents::{Contents, ZEROES};
use crate::image::Image;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const SHAPE: DiskGeometry = DiskGeometry {
    block_bytes: 512,
    blocks: 32_768,
};

fn ext4() -> FileSystem {
    FileSystem {
        name: "ext4".into(),
        ..FileSystem::default()
    }
}

/// A stage with a blank disk; none if a requirement is missing.
fn stage() -> Option<Stage> {
    let unshare = Command::new("unshare").args(["-m", "true"]).status();
    let namespaces = unshare.is_ok_and(|status| status.success());
    let missing = require("ext4").err().map(|error| error.to_string());
    let missing = missing.or((!namespaces).then(|| "unshare does not work".into()));
    let stage = match missing.map_or_else(
        || Stage::new(SHAPE),
        |what| Err(TortureError::missing(what)),
    ) {
        Ok(stage) => stage,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    stage.put(blank());
    Some(stage)
}

fn blank() -> Arc<dyn Array> {
    let contents = Contents::new(SHAPE.block_bytes as usize).unwrap();
    let blocks = vec![ZEROES; SHAPE.blocks as usize];
    Arc::new(Image::new(SHAPE, contents, blocks))
}

/// A process with its own mount namespace, until it is dropped.
struct Elsewhere(Child);

impl Elsewhere {
    /// Starts it in this folder; on return it has a copy of each mount.
    fn new(folder: &Path) -> Self {
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-c", "cd \"$0\" && echo in && read line"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "in\n");
        Self(child)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn an_unmounted_file_system_is_gone_though_another_mount_namespace_has_a_copy() {
    let Some(stage) = stage() else { return };
    stage.make(&ext4()).unwrap();
    for _ in 0..2 {
        let mounted = stage.mount(&ext4()).unwrap().unwrap();
        let device = mounted.device.clone();
        let _elsewhere = Elsewhere::new(Path::new("/"));
        assert_eq!(mounted.unmount(), Unmounted::Free);

        // No process writes to the next disk.
        let file = Path::new("/sys/block").join(device.trim_start_matches("/dev/"));
        let file = std::fs::read_to_string(file.join("loop/backing_file"));
        assert_ne!(file.ok(), Some(format!("{}\n", stage.file().display())));
    }
}

#[test]
fn a_file_system_that_another_mount_namespace_uses_is_not_given_back() {
    let Some(stage) = stage() else { return };
    stage.make(&ext4()).unwrap();
    let mounted = stage.mount(&ext4()).unwrap().unwrap();
    let elsewhere = Elsewhere::new(mounted.folder());
    assert_eq!(mounted.unmount(), Unmounted::Elsewhere);

    // The end of that process ends the rest too.
    drop(elsewhere);
    let mounted = stage.mount(&ext4()).unwrap().unwrap();
    assert_eq!(mounted.unmount(), Unmounted::Free);
}

// Another cut of the recording may be mounted: XFS refuses a second file system of one UUID.
#[test]
fn a_mount_has_the_options_of_the_user_and_xfs_the_one_that_allows_two_cuts() {
    let options = |name: &str, users: &str| {
        let fs = FileSystem {
            name: name.into(),
            mount_options: users.into(),
            ..FileSystem::default()
        };
        mount_options(&fs).join(",")
    };
    assert_eq!(options("ext4", ""), "");
    assert_eq!(
        options("ext4", "noatime,data=journal"),
        "noatime,data=journal"
    );
    assert_eq!(options("xfs", ""), "nouuid");
    assert_eq!(options("xfs", "noatime"), "nouuid,noatime");
}
