"""A served device, for rigs that run programs on it and read its counters.

Invariants: counters are read after a flush; a stopped server leaves no mount. Absent: the data on the device.
"""

import json
import os
import re
import subprocess
import time

SERVER_START_SECONDS = 60


class Failure(Exception):
    """A failure, with a message for the user."""


def command(*arguments, **options):
    """Runs a program; returns its output, or raises a failure that contains it."""
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, arguments))[:300]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Device:
    """`remap-ssd serve` with a new device in memory, or with an image. `record` is the file for its commands; `more` are further options."""

    def __init__(self, program, scratch, size, latency, files, record=None, more=(), image=None):
        self.program = program
        self.files = os.path.join(scratch, "files") if files else None
        self.log = os.path.join(scratch, "serve.log")
        storage = ["--image", image] if image else ["--memory", size]
        arguments = [program, "serve", *storage, "--latency", latency, "--listen", "127.0.0.1:0", *more]
        if record:
            arguments += ["--record", record]
        if self.files:
            os.makedirs(self.files, exist_ok=True)
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

    def counters(self, flush=True):
        """The device's counters, after all data are durable.

        Only the host that has reserved the namespace may flush: if there is one, it has done so.
        """
        if flush:
            command(self.program, "io", "--connect", self.address, "flush")
        return json.loads(command(self.program, "io", "--connect", self.address, "stat", "--json"))

    def runs(self):
        """True if the server's process is running."""
        return self.server.poll() is None

    def kill(self):
        """As a power cut of the server's process: nothing is saved, and its files are gone."""
        self.server.kill()
        self.server.wait()
        if self.files:
            subprocess.run(["umount", "-l", self.files], check=False, capture_output=True)

    def stop(self):
        self.server.terminate()
        try:
            self.server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        if self.files and os.path.ismount(self.files):
            subprocess.run(["umount", "-l", self.files], check=False)


def total(counter):
    """A counter that is split by causes, as one number."""
    return sum(counter.values()) if isinstance(counter, dict) else counter
