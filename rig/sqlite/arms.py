"""The two arms of the comparison: each a fresh device, and a place for a database on it.

Stock is ext4 on a loop device over the device's FUSE file; ours is a volume on the same kind of device over NVMe/TCP. The device
itself counts, from the creation of the place until everything is unmounted or closed and flushed, so the figures include
the metadata of ext4 and the volume. The extension's locks are files of the machine, which cost the
device nothing.

Invariants: nothing stays mounted and no server keeps running on any exit. Absent: the workloads.
"""

import os

from filesystem import FileSystem
from served import Device, command


class Stock:
    """SQLite's own VFS on ext4."""

    name = "stock"
    extension = None

    def __init__(self, program, scratch, size, latency, record=None, mkfs=()):
        self.mkfs = mkfs
        self.filesystem = FileSystem("ext4", None, os.path.join(scratch, "mounted"))
        self.device = Device(program, scratch, size, latency, files=True, record=record)

    def make(self):
        self.device.wait()
        self.filesystem.attach(self.device)
        self.filesystem.create(*self.mkfs)
        self.filesystem.mount()

    def environment(self):
        return {}

    def folder(self):
        return self.filesystem.folder

    def database(self, name):
        return os.path.join(self.filesystem.folder, name)

    def settle(self):
        """Unmounts: all data are on the device and no longer change."""
        self.filesystem.unmount()

    def reopen(self):
        self.filesystem.mount()

    def clean(self):
        self.filesystem.clean()
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
        """Nothing to do: the last close has flushed everything."""

    def reopen(self):
        """Nothing was unmounted."""

    def clean(self):
        self.device.stop()
