"""A file system on a loop device over the device's FUSE file, for programs without support for remapping.

Invariants: nothing stays mounted on any exit. Absent: the data written to it.
"""

import os
import shutil
import subprocess
import time

from served import Failure, command

# Lazy initialization would write during the count.
EXT4 = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
MAKE = {
    "ext4": EXT4,
    "xfs": ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-d", "single", "-m", "single"],
    "btrfs-dup": ["mkfs.btrfs", "-q", "-f", "-d", "dup", "-m", "dup"],
}
CHECK = {
    "ext4": ["e2fsck", "-fn"],
    "xfs": ["xfs_repair", "-n"],
    "btrfs": ["btrfs", "check", "--readonly"],
}
# A tenth of a second each.
CLEAN_TRIES = 100
PACKAGES = {"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs"}


class FileSystem:
    """Made on the file of the first namespace, and mounted at `folder`."""

    def __init__(self, kind, options, folder):
        self.make = MAKE[kind]
        self.check = CHECK[kind.split("-")[0]]
        self.options = ["-o", options] if options else []
        self.folder = folder
        self.loop = None
        os.mkdir(folder)

    def missing(self):
        """The package that must be installed."""
        tool = self.make[0]
        return None if shutil.which(tool) else PACKAGES[tool]

    def attach(self, device):
        backing = os.path.join(device.files, "n1")
        self.loop = command("losetup", "--find", "--show", "--direct-io=on", "--sector-size", "4096", backing).strip()

    def create(self, *more):
        command(*self.make, *more, self.loop)

    def mount(self):
        command("mount", *self.options, self.loop, self.folder)

    def unmount(self):
        """Unmounts: all data are on the device and no longer change."""
        command("umount", self.folder)

    def require_clean(self):
        """The file system's own check finds nothing to repair."""
        done = subprocess.run([*self.check, self.loop], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"{' '.join(self.check)} finds damage:\n{done.stdout}{done.stderr}")

    def mounted(self):
        """Uses the kernel's list of mounts: a folder whose device is gone cannot be examined."""
        with open("/proc/self/mounts") as mounts:
            return any(line.split(" ")[1] == self.folder for line in mounts)

    def clean(self):
        """Unmounts in any state. A lazy unmount is the last resort, since a hidden mount would prevent the next one of the same name."""
        for _ in range(CLEAN_TRIES):
            if not self.mounted() or subprocess.run(["umount", self.folder], check=False, capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", self.folder], check=False)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], check=False)
            # Another process may now get this loop device.
            self.loop = None
