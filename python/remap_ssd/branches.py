"""A branch of a loaded SQLite database for each test, in milliseconds.

    @pytest.fixture(scope="session")
    def remap_database(remap_volume):
        with contextlib.closing(remap_volume.connect("app.db")) as db:
            db.executescript(SCHEMA_AND_DATA)
        return "app.db"                      # or: return remap_volume.load("fixtures/app.db")

    def test_orders(remap_branch):           # a sqlite3.Connection to this test's own branch
        remap_branch.execute("DELETE FROM orders")

``remap_branch_uri`` is the URI of the same branch, for code under test that connects by itself. The database is on a device in a temporary folder
(docs/sqlite.md), with the program and the extension that ``remap_ssd.sqlite`` finds.

Invariants: a test sees the database as it was loaded, whatever other tests do; its branch is deleted after it. Absent: sharing a device
between processes (each worker of pytest-xdist has its own).
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sqlite3
import subprocess
import urllib.parse
from collections.abc import Iterator
from typing import Any, Optional, Union

import pytest

from . import sqlite

__all__ = ["Volume", "remap_branch", "remap_branch_uri", "remap_database", "remap_volume"]


class Volume:
    """Files on a new device in a folder, for one process.

    ``size`` is that of the device, such as ``"4GiB"``: it has to hold the database and its branches, although they share its pages on
    flash. ``files`` is the maximum number of files: up to three for each database.
    """

    def __init__(self, folder: Union[str, "os.PathLike[str]"], *, size: str = "4GiB", files: int = 256) -> None:
        try:
            self._program = sqlite.program()
            sqlite.load()
        except (FileNotFoundError, sqlite3.Error) as error:
            raise pytest.UsageError(str(error)) from error
        self._image = pathlib.Path(folder).absolute()
        self._makers: dict[str, sqlite3.Connection] = {}
        options = ["--scheme", "remap-ssd-x", "--set", "firmware.count_max=65535"]
        self._run("image", "create", str(self._image), "--size", size, *options)
        self._run("volume", "create", "--files", str(files), "--image", str(self._image))

    def _run(self, *words: str) -> None:
        done = subprocess.run([self._program, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"remap-ssd ended with {done.returncode}")

    def uri(self, name: str) -> str:
        """The URI of a database in the volume."""
        image = urllib.parse.quote(str(self._image))
        return f"file:{urllib.parse.quote(name)}?vfs=remap&image={image}"

    def connect(self, name: str, **options: Any) -> sqlite3.Connection:
        """Opens or creates a database in the volume; ``options`` are those of ``sqlite3.connect``."""
        return sqlite3.connect(self.uri(name), uri=True, **options)

    def load(self, path: Union[str, "os.PathLike[str]"], name: Optional[str] = None) -> str:
        """Copies an ordinary database into the volume, in which nothing may be open yet; returns its name there."""
        name = name or pathlib.Path(path).name
        self._run("volume", "import", os.fspath(path), "--name", name, "--image", str(self._image))
        return name

    def branch(self, database: str, name: str) -> str:
        """Makes ``name``, a branch of a database with its committed transactions; returns its URI."""
        # Kept open: opening the volume costs more than a branch.
        maker = self._makers.get(database)
        if maker is None:
            maker = self._makers[database] = self.connect(database)
        maker.execute("SELECT remap_branch(?)", (name,)).fetchall()
        return self.uri(name)

    def delete(self, database: str, name: str) -> None:
        """Deletes a branch of a database. A connection that still has it open fails from then on."""
        self._makers[database].execute("SELECT remap_branch_delete(?)", (name,)).fetchall()

    def close(self) -> None:
        """Closes the volume's own connections."""
        for maker in self._makers.values():
            maker.close()
        self._makers.clear()


@pytest.fixture(scope="session")
def remap_volume(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volume]:
    """A volume on a new device, for the databases of this session; the ini option ``remap_size`` is the device's size."""
    folder = tmp_path_factory.mktemp("remap") / "device"
    volume = Volume(folder, size=str(request.config.getini("remap_size")))
    yield volume
    volume.close()
    # pytest keeps the folders of three runs.
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def remap_database() -> str:
    """The name of the loaded database in ``remap_volume``. Define this fixture in your own conftest.py."""
    raise pytest.UsageError("define a session fixture remap_database that loads a database into remap_volume and returns its name")


@pytest.fixture
def remap_branch_uri(remap_volume: Volume, remap_database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URI of this test's own branch of ``remap_database``, for ``sqlite3.connect(..., uri=True)``."""
    # The number keeps names short and apart; a test may be repeated.
    number = getattr(request.config, "_remap_branches", 0) + 1
    setattr(request.config, "_remap_branches", number)
    name = f"branch-{number}"
    yield remap_volume.branch(remap_database, name)
    remap_volume.delete(remap_database, name)


@pytest.fixture
def remap_branch(remap_branch_uri: str) -> Iterator[sqlite3.Connection]:
    """A connection to this test's own branch of ``remap_database``."""
    connection = sqlite3.connect(remap_branch_uri, uri=True)
    yield connection
    connection.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the ini option ``remap_size``."""
    parser.addini("remap_size", "size of the device of remap_volume, such as 4GiB", default="4GiB")
