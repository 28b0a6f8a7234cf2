"""The two arms of the comparison: each a fresh device, and a place for a database on it.

Stock is ext4 on a loop device over the device's FUSE file; ours is a volume on the same kind of device over NVMe/TCP. Both are
counted by the device itself, from the moment the place is made until everything is unmounted or closed and flushed, so what
ext4 and the volume write for themselves is in the figures. Locks of the extension are files of the machine: they cost the
device nothing.

Invariants: whatever happens, nothing stays mounted and no server is left. Absent: what is run.
"""

import json
import os
import re
import subprocess
import time

SERVER_START_SECONDS = 60


class Failure(Exception):
    """A sentence for who runs this."""


def command(*arguments, **options):
    """Runs a program; its output, or a failure that has it."""
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, arguments))[:300]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Device:
    """`remap-ssd serve` with a new device in memory."""

    def __init__(self, program, scratch, size, latency, files):
        self.program = program
        self.scratch = scratch
        self.files = os.path.join(scratch, "files") if files else None
        self.log = os.path.join(scratch, "serve.log")
        arguments = [program, "serve", "--memory", size, "--latency", latency, "--listen", "127.0.0.1:0"]
        if self.files:
            os.mkdir(self.files)
            arguments += ["--fuse", self.files]
        with open(self.log, "w") as log:
            self.server = subprocess.Popen(arguments, stdout=log, stderr=log)

    def wait(self):
        """Until it serves."""
        until = time.monotonic() + SERVER_START_SECONDS
        while time.monotonic() < until and self.server.poll() is None:
            with open(self.log) as log:
                found = re.search(r" serving .*address=([0-9.:]+)", log.read())
            if found and (not self.files or os.path.exists(os.path.join(self.files, "n1"))):
                self.address = found[1]
                return
            time.sleep(0.05)
        with open(self.log) as log:
            raise Failure(f"the server does not serve:\n{log.read()}")

    def counters(self):
        """What the device has counted, with all that it was asked to keep."""
        command(self.program, "io", "--connect", self.address, "flush")
        return json.loads(command(self.program, "io", "--connect", self.address, "stat", "--json"))

    def stop(self):
        self.server.terminate()
        try:
            self.server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        if self.files and os.path.ismount(self.files):
            subprocess.run(["umount", "-l", self.files], check=False)


class Stock:
    """SQLite's own VFS on ext4."""

    name = "stock"
    extension = None

    def __init__(self, program, scratch, size, latency):
        self.mounted = os.path.join(scratch, "mounted")
        self.loop = None
        os.mkdir(self.mounted)
        self.device = Device(program, scratch, size, latency, files=True)

    def make(self):
        self.device.wait()
        backing = os.path.join(self.device.files, "n1")
        self.loop = command("losetup", "--find", "--show", "--direct-io=on", backing).strip()
        # What is initialized lazily would be written while we count.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        command("mkfs.ext4", "-q", "-F", "-E", lazy, self.loop)
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

    def __init__(self, program, scratch, size, latency, extension):
        self.extension = extension
        self.scratch = scratch
        self.device = Device(program, scratch, size, latency, files=False)

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
