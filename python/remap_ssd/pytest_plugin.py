"""A pytest fixture: what does my program lose when power fails?

    def test_my_store(torture):
        torture(workload="./load.sh $DIR", check="./check.sh $DIR", fs="ext4", rounds=50)

Installed with the package: pytest discovers it automatically. It runs ``remap-ssd torture`` (docs/torture.md), found by
``$REMAP_SSD`` or in the path, and fails the test with the code that replays the first failed cut.

Invariant: a test passes only if all its cuts were checked and passed. Absent: the model of a cut, which belongs to the command.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, Optional, Union

import pytest

__all__ = ["Torture", "torture"]

#: A command for the shell, or its words.
Words = Union[str, Sequence[str]]


def _command(words: Words) -> str:
    return words if isinstance(words, str) else shlex.join(words)


def _program() -> str:
    program = os.environ.get("REMAP_SSD") or shutil.which("remap-ssd")
    if not program:
        raise pytest.UsageError("there is no remap-ssd: put it into the path, or set REMAP_SSD to it")
    return program


class Torture:
    """The fixture, which a test calls once or several times."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._runs = 0

    def __call__(
        self,
        workload: Words,
        check: Words,
        *,
        fs: Optional[str] = "ext4",
        nvme_tcp: bool = False,
        rounds: int = 20,
        seed: int = 1,
        scheme: Optional[str] = None,
        dedup: bool = False,
        faults: Sequence[str] = (),
        options: Sequence[str] = (),
        missing: str = "fail",
    ) -> dict[str, Any]:
        """Records the workload, cuts it, and checks: the command's JSON if all cuts passed.

        ``fs=None`` gives the disk itself as ``$FILE``, and needs no root. ``nvme_tcp=True`` serves it at ``$ADDRESS``, without a
        file system; it needs neither root nor FUSE. ``scheme``, ``dedup`` and ``faults`` are those of the
        command line, and so are further ``options``. ``missing="skip"`` skips the test where this machine lacks something
        (root, FUSE, loop devices), instead of failing it.
        """
        self._runs += 1
        recording = self._folder / f"{self._runs}.recording"
        words = [_program(), "torture", "--json", "--rounds", str(rounds), "--seed", str(seed)]
        words += ["--nvme-tcp"] if nvme_tcp else ["--file"] if fs is None else ["--fs", fs]
        words += ["--workload", _command(workload), "--check", _command(check)]
        words += ["--record", str(recording)]
        words += ["--scheme", scheme] if scheme else []
        words += ["--dedup"] if dedup else []
        for fault in faults:
            words += ["--fault", fault]

        done = subprocess.run([*words, *options], capture_output=True, text=True)
        if done.returncode not in (0, 1) or not done.stdout:
            reason = done.stderr.strip() or f"remap-ssd ended with {done.returncode}"
            # An error in the arguments is never a reason to skip.
            if missing == "skip" and done.returncode == 2 and "--help" not in reason:
                pytest.skip(reason)
            pytest.fail(reason, pytrace=False)

        found: dict[str, Any] = json.loads(done.stdout)
        if done.returncode == 1:
            pytest.fail(_explained(found, recording), pytrace=False)
        return found


def _explained(found: dict[str, Any], recording: pathlib.Path) -> str:
    """The first failure, in the command's words."""
    without_cut = found["without_cut"]
    if without_cut:
        return f"without any power cut: {without_cut['why']}\n{without_cut['output']}"

    failure = found["failure"]
    smallest = failure["smallest"] or failure
    lines = [
        f"a power cut in round {failure['round']} of seed {found['seed']}: {failure['why']}",
        failure["output"],
        f"{failure['blocks_lost']} of {failure['blocks_unflushed']} blocks lost something; last mark: {failure['last_mark']}",
        f"replay: remap-ssd torture --replay '{smallest['code']}' --from {recording}",
    ]
    return "\n".join(lines)


@pytest.fixture
def torture(tmp_path_factory: pytest.TempPathFactory) -> Torture:
    """Cuts the power of the disk to which a program writes; see :class:`Torture`."""
    return Torture(tmp_path_factory.mktemp("torture"))
