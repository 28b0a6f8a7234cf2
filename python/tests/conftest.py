"""The command line with which figures and messages are compared: `REMAP_SSD`, or the release build of this workspace."""

import json
import os
import pathlib
import subprocess

import pytest


@pytest.fixture(scope="session")
def program() -> str:
    root = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    path = pathlib.Path(os.environ.get("REMAP_SSD", target / "release" / "remap-ssd"))
    assert path.is_file(), f"{path} is missing: cargo build --release -p remap-ssd, or set REMAP_SSD"
    return str(path)


@pytest.fixture(scope="session")
def command_line(program):
    """Runs `remap-ssd compare WORDS --json`; returns its value, without the command line, which Python's results lack."""

    def run(*words: str):
        done = subprocess.run([program, "compare", *words, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout)
        assert results["command"][:2] == ["remap-ssd", "compare"]
        return {**results, "command": []}

    return run


@pytest.fixture(scope="session")
def refusal(program):
    """Runs `remap-ssd compare WORDS`, which must be refused; returns exit code and message."""

    def run(*words: str):
        done = subprocess.run([program, "compare", *words], capture_output=True, text=True)
        assert done.returncode != 0
        return done.returncode, done.stderr

    return run
