"""The two arms of the comparison: each a fresh device, and a place for a database on it.

Stock is ext4 on a loop device over the device's FUSE file; ours is a volume on the same kind of device over NVMe/TCP. Both are
counted by the device itself, from the moment the place is made until everything is unmounted or closed and flushed, so what
ext4 and the volume write for themselves is in the figures. Locks of the extension are files of the machine: they cost the
device nothing.

Invariants: whatever happens, nothing stays mounted and no server is left. Absent: what is run.
"""

import os
import subprocess

from served import Device, command


class Stock:
    """SQLite's own VFS on ext4."""

    name = "stock"
    extension = None

    def __init__(self, program, scratch, size, latency, record=None, mkfs=()):
        self.mkfs = mkfs
        self.mounted = os.path.join(scratch, "mounted")
        self.loop = None
        os.mkdir(self.mounted)
        self.device = Device(program, scratch, size, latency, files=True, record=record)

    def make(self):
        self.device.wait()
        backing = os.path.join(self.device.files, "n1")
        self.loop = command("losetup", "--find", "--show", "--direct-io=on", backing).strip()
        # What is initialized lazily would be written while we count.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        command("mkfs.ext4", "-q", "-F", "-E", lazy, *self.mkfs, self.loop)
        command("mount", self.loop, self.mounted)

    def environment(self):
        return {}

    def folder(self):
        return self.mounted

    def database(self, name):
        return os.path.join(self.mounted, name)

    def settle(self):
        """Everything is on the device, and stays as it is."""
        command("umount", self.mounted)

    def reopen(self):
        command("mount", self.loop, self.mounted)

    def clean(self):
        if os.path.ismount(self.mounted):
            subprocess.run(["umount", "-l", self.mounted], check=False)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], check=False)
        self.device.stop()


class Ours:
    """The extension's VFS on a volume."""

    name = "ours"

    def __init__(self, program, scratch, size, latency, extension, record=None):
        self.extension = extension
        self.scratch = scratch
        self.device = Device(program, scratch, size, latency, files=False, record=record)

    def make(self):
        self.device.wait()
        command(self.device.program, "volume", "create", "--connect", self.device.address)

    def environment(self):
        return {
            "REMAP_SSD_SQLITE_SO": self.extension,
            "REMAP_SSD_SQLITE_DEFAULT": "1",
            "REMAP_SSD_DEVICE": self.device.address,
        }

    def folder(self):
        return self.scratch

    def database(self, name):
        return f"file:{name}?vfs=remap&device={self.device.address}"

    def settle(self):
        """The last close has flushed what there was."""

    def reopen(self):
        """Nothing was unmounted."""

    def clean(self):
        self.device.stop()
