"""Code shared by both ways of planting faults: the copy of the tree, its build, and running tests that may hang."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# The parts of the tree that the tests need.
PARTS = [
    "Cargo.toml", "Cargo.lock", "FORMAT.md", "README.md", "docs", "crates", "hosts", "python", "fuzz", "experiments",
    ".cargo", "rust-toolchain.toml",
]


class Wrong(Exception):
    """An error, in one sentence."""


def crate_folder(root, crate):
    """A crate's path: crates are named by their folders."""
    folders = [root / parent / crate for parent in ("crates", "hosts")]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def package(crate):
    """The name of a crate's package: the program's package has the program's name."""
    return "remap-ssd" if crate == "cli" else f"remap-ssd-{crate}"


def copy_tree(to):
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name)
        elif source.is_file():
            shutil.copy2(source, to / name)
    rename_version(to, "planted")


def rename_version(tree, name):
    """Gives the packages of a copy a version of their own: Cargo, which tells packages by name and version and not by their
    folder, would otherwise take the copy's build for the tree's in a target folder that both use."""
    manifest, lock = tree / "Cargo.toml", tree / "Cargo.lock"
    version = re.search(r'\[workspace\.package\]\nversion = "([^"]+)"', manifest.read_text())[1]
    for file, before in ((manifest, r"\[workspace\.package\]\n"), (lock, r'name = "remap-ssd[^"]*"\n')):
        pattern = rf'({before}version = "{re.escape(version)})"'
        file.write_text(re.sub(pattern, rf'\1+{name}"', file.read_text()))


def cargo(arguments, tree, target_dir):
    """Runs Cargo on the rewritten tree; returns its messages, its other output, and its exit code."""
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(target_dir),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "RUSTFLAGS": os.environ.get("RUSTFLAGS", ""),
    }
    command = ["cargo"] + arguments
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr, done.returncode


def link_dependencies(built, target_dir):
    """Takes over the third-party crates of another target folder, which Cargo then finds built. Libraries are hard links, since
    the compiler replaces them as files; all that is rewritten in place is copied. Packages of the tree are left out, by name."""
    for part in ("deps", "build", ".fingerprint"):
        source, to = built / "debug" / part, target_dir / "debug" / part
        if not source.is_dir():
            continue
        to.mkdir(parents=True, exist_ok=True)
        for entry in source.iterdir():
            # Test programs are in `deps` too.
            is_ours = re.match(r"(lib)?remap[-_]ssd", entry.name)
            is_library = re.match(r"lib.*\.(rlib|rmeta|so)$", entry.name)
            if is_ours or (to / entry.name).exists():
                continue
            if part == "deps" and is_library:
                link_or_copy(entry, to / entry.name)
            elif part != "deps" and entry.is_dir():
                # Complete or not there: Cargo would take a half of it for whole.
                half = to / f"{entry.name}.part"
                shutil.rmtree(half, ignore_errors=True)
                shutil.copytree(entry, half)
                half.rename(to / entry.name)


def link_or_copy(source, to):
    try:
        os.link(source, to)
    except OSError:
        shutil.copy2(source, to)


def executables(messages):
    """The tests that Cargo has built, by `CRATE/TARGET`; unit tests are `CRATE/lib`."""
    found = {}
    for message in messages:
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            crate = Path(message["manifest_path"]).parent.name
            kinds = message["target"]["kind"]
            name = "lib" if {"lib", "cdylib"} & set(kinds) else message["target"]["name"]
            found[f"{crate}/{name}"] = message["executable"]
    return found


class Runner:
    """Runs tests, each in its own process group, which ends with it."""

    def __init__(self, executables, tree, scratch):
        self.executables, self.tree, self.scratch = executables, tree, scratch
        self.children, self.lock = set(), threading.Lock()

    def run(self, target, wanted, number, limit, more={}):
        """Runs the tests of a target that the arguments `wanted` choose; what failed, or None, and the seconds."""
        command = [self.executables[target], "--test-threads=1"] + wanted
        environment = os.environ | {"MUTANT": str(number), "RUST_BACKTRACE": "0", "TMPDIR": str(self.scratch)} | more
        start = time.monotonic()
        child = subprocess.Popen(
            command, cwd=crate_folder(self.tree, target.split("/")[0]), env=environment, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        with self.lock:
            self.children.add(child)
        overdue = threading.Event()

        def end():
            overdue.set()
            kill(child)

        timer = threading.Timer(limit, end)
        timer.start()
        failed, ran = None, 0
        try:
            for line in child.stdout:
                if line.startswith("running "):
                    ran = int(line.split()[1])
                # The rest need not be waited for.
                if failed is None and line.rstrip().endswith("... FAILED"):
                    failed = line.removeprefix("test ").split(" ... ")[0]
                    kill(child)
            code = child.wait()
        finally:
            timer.cancel()
            with self.lock:
                self.children.discard(child)
        if failed is None and overdue.is_set():
            failed = f"more than {limit:.0f} s"
        elif failed is None and code != 0:
            failed = f"exit code {code}"
        elif failed is None and ran == 0 and number == 0:
            failed = "no test of this name"
        return failed, time.monotonic() - start

    def said(self, target, arguments):
        """The output of a target's tests for arguments other than to run."""
        folder = crate_folder(self.tree, target.split("/")[0])
        return subprocess.run([self.executables[target]] + arguments, cwd=folder, capture_output=True, text=True).stdout

    def end_all(self):
        with self.lock:
            for child in self.children:
                kill(child)


def kill(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("a share is 0 to 1")
    return value
