"""Programs whose device is killed under them, at a moment that is drawn: what was there before is there afterwards, whole.

Each kill is on a fresh image, whose server starts again on what its folder has. The file system's journal is replayed by mounting it;
then its own check must find nothing, and the program's own: a database recovers and is consistent, what was synced is the same.

Invariants: a round in which the program ended before the kill does not count as one. Absent: power cuts of the machine that holds the
folder (`crash`, and the tests of folders).
"""

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time

from filesystem import FileSystem
from served import Device, Failure, command

# How long a program may take to notice that its disk is gone.
PATIENCE_SECONDS = 120


class Round:
    """One program on one fresh image."""

    def __init__(self, given, make, size, dedup):
        self.given = given
        self.scratch = tempfile.mkdtemp(prefix="programs.")
        os.chmod(self.scratch, 0o755)
        self.aside = os.path.join(self.scratch, "aside")
        self.image = os.path.join(self.scratch, "image")
        os.mkdir(self.aside)
        self.program = make()
        self.program.killed = True
        self.filesystem = FileSystem(self.program.filesystem, self.program.options, os.path.join(self.scratch, "mounted"))
        self.device = None
        command(given.program, "image", "create", self.image, "--size", size, "--dedup", dedup)

    def serve(self):
        self.device = Device(self.given.program, self.scratch, None, "none", files=True, image=self.image)
        self.device.wait()
        self.filesystem.attach(self.device)

    def prepare(self):
        self.serve()
        self.filesystem.create()
        self.filesystem.mount()
        self.program.prepare(self.filesystem.folder, self.aside)
        command("sync", "-f", self.filesystem.folder)

    def run(self, kill_after):
        """Runs the program, and kills the device after so many seconds. Answers how long it ran, and whether it was killed."""
        failures = []

        def work():
            try:
                self.program.run(self.filesystem.folder, self.aside)
            except (Failure, OSError, sqlite3.Error, subprocess.SubprocessError, ValueError, IndexError) as failure:
                failures.append(failure)

        worker = threading.Thread(target=work)
        begin = time.monotonic()
        worker.start()
        worker.join(kill_after)
        killed = worker.is_alive()
        if killed:
            self.device.kill()
            worker.join(PATIENCE_SECONDS)
            self.program.close()
            worker.join(PATIENCE_SECONDS)
            if worker.is_alive():
                raise Failure(f"{self.program.name} does not notice that its disk is gone")
        elif failures:
            raise failures[0]
        return time.monotonic() - begin, killed

    def recover(self):
        """Serves the image again; everything that must hold does."""
        self.filesystem.clean()
        self.serve()
        self.filesystem.mount()
        self.filesystem.unmount()
        self.filesystem.require_clean()
        self.filesystem.mount()
        self.program.after_kill(self.filesystem.folder, self.aside)
        self.filesystem.unmount()

    def clean(self):
        self.program.close()
        self.filesystem.clean()
        if self.device:
            self.device.stop()
        shutil.rmtree(self.scratch)


def one(given, make, size, dedup, kill_after):
    """Answers how long the program ran, and whether it was killed."""
    work = Round(given, make, size, dedup)
    try:
        work.prepare()
        seconds, killed = work.run(kill_after)
        if killed:
            work.recover()
        return seconds, killed
    finally:
        work.clean()


def kills(given, make, size, dedup, seed):
    """Kills the device under a program `given.kills` times. Answers a sentence."""
    draw = random.Random(seed)
    whole, _ = one(given, make, size, dedup, None)

    done = tried = 0
    while done < given.kills:
        tried += 1
        if tried > 3 * given.kills + 5:
            raise Failure(f"{make().name} ends before it is killed: {done} of {given.kills} kills in {tried} rounds")
        _, killed = one(given, make, size, dedup, draw.uniform(0.05, 0.9) * whole)
        done += killed
    return f"{make().name:<24}{dedup:>6}  {done} kills within {whole:.1f} s: the file system is clean, and all that must be there is"
