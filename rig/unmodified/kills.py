"""Kills the device under programs at random moments: earlier data must be intact afterwards.

Each program is prepared once, in an image; each kill uses a copy of the image, on whose folder the server then
restarts. Mounting replays the file system's journal; then its own check must find nothing, and so must the program's: a database
recovers, is consistent, and has each acknowledged commit; synced data are unchanged.

Invariants: a round in which the program ended before the kill, or had not yet acknowledged a commit, does not count. Absent:
power cuts of the machine that holds the folder (`crash`, and the tests of folders).
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

# Time limit for a program to detect that its disk is gone.
PATIENCE_SECONDS = 120


class Rounds:
    """One program with its prepared image; each round uses a copy."""

    def __init__(self, given, make, size, dedup):
        self.given = given
        self.scratch = tempfile.mkdtemp(prefix="programs.")
        os.chmod(self.scratch, 0o755)
        self.aside, self.image = (os.path.join(self.scratch, name) for name in ("aside", "image"))
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

    def stop(self):
        """Shuts down cleanly: all data are on the device."""
        self.filesystem.clean()
        self.device.stop()
        self.device = None

    def prepare(self):
        self.serve()
        self.filesystem.create()
        self.filesystem.mount()
        self.program.prepare(self.filesystem.folder, self.aside)
        self.filesystem.unmount()
        self.stop()
        for path in (self.image, self.aside):
            # Reserved but unwritten space becomes holes, which are not copied again.
            command("cp", "-a", "--sparse=always", path, f"{path}.kept")

    def restore(self):
        """Restores the prepared files in the same places, which a database's settings name."""
        for path in (self.image, self.aside):
            shutil.rmtree(path, ignore_errors=True)
            command("cp", "-a", f"{path}.kept", path)
        self.serve()
        self.filesystem.mount()

    def run(self, kill_after):
        """Runs the program, and kills the device after the given seconds. Returns its run time, and whether it was killed."""
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
        """Serves the image again, and makes all checks."""
        self.filesystem.clean()
        self.serve()
        self.filesystem.mount()
        self.filesystem.unmount()
        self.filesystem.require_clean()
        self.filesystem.mount()
        self.program.after_kill(self.filesystem.folder, self.aside)

    def round(self, kill_after):
        """Returns the program's run time, and whether it was killed."""
        self.restore()
        self.program.promised = None
        seconds, killed = self.run(kill_after)
        if killed:
            self.recover()
        self.filesystem.unmount()
        self.stop()
        return seconds, killed

    def close(self):
        self.program.close()
        self.filesystem.clean()
        if self.device:
            self.device.stop()
        shutil.rmtree(self.scratch)


def kills(given, make, size, dedup, seed):
    """Kills the device under a program `given.kills` times. Returns the findings."""
    draw = random.Random(seed)
    rounds = Rounds(given, make, size, dedup)
    name = rounds.program.name
    try:
        rounds.prepare()
        whole, _ = rounds.round(None)

        done = tried = 0
        promised = []
        while done < given.kills:
            tried += 1
            if tried > 3 * given.kills + 5:
                raise Failure(f"{name} ends before it is killed, or has acknowledged nothing: {done} of {given.kills} kills in {tried} rounds")
            try:
                _, killed = rounds.round(draw.uniform(0.05, 0.9) * whole)
            except Failure as failure:
                raise Failure(f"{name}, deduplication {dedup}, kill {done + 1} (seed {seed}): {failure}") from None
            if killed and rounds.program.promised != 0:
                done += 1
                promised += [rounds.program.promised] if rounds.program.promised is not None else []
    finally:
        rounds.close()

    return {"program": name, "dedup": dedup, "kills": done, "seconds": round(whole, 1), "acknowledged": sum(promised) if promised else None}
