"""A file system on a loop device over the device's FUSE file: what a program has that knows nothing of remapping.

Invariants: whatever happens, nothing stays mounted. Absent: what is written to it.
"""

import os
import shutil
import subprocess

from served import Failure, command

# What is initialized lazily would be written while we count.
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
        """The package without which this cannot be."""
        tool = self.make[0]
        return None if shutil.which(tool) else PACKAGES[tool]

    def attach(self, device):
        backing = os.path.join(device.files, "n1")
        self.loop = command("losetup", "--find", "--show", "--direct-io=on", backing).strip()

    def create(self, *more):
        command(*self.make, *more, self.loop)

    def mount(self):
        command("mount", *self.options, self.loop, self.folder)

    def unmount(self):
        """Everything is on the device, and stays as it is."""
        command("umount", self.folder)

    def require_clean(self):
        """The file system's own check finds nothing to repair."""
        done = subprocess.run([*self.check, self.loop], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"{' '.join(self.check)} finds damage:\n{done.stdout}{done.stderr}")

    def clean(self):
        if os.path.ismount(self.folder):
            subprocess.run(["umount", "-l", self.folder], check=False)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], check=False)
            # The next to ask for a loop device may get this one.
            self.loop = None
