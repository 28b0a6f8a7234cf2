"""A thousand rows deleted in each of 200 tests: on a branch of a database, or on a copy of it.

    pytest python/examples/test_branches.py -k branch
    pytest python/examples/test_branches.py -k copy

The database has MIB MiB (environment, default 64); TESTS is the number of tests. pytest prints the time of each run; --durations=1 shows the loading.
"""

import contextlib
import os
import random
import shutil
import sqlite3

import pytest

MIB = int(os.environ.get("MIB", "64"))
TESTS = int(os.environ.get("TESTS", "200"))
ROWS = MIB * 1000


@pytest.fixture(scope="session")
def stock(tmp_path_factory):
    """An ordinary database."""
    path = tmp_path_factory.mktemp("stock") / "app.db"
    noise = random.Random(1)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
        db.executemany("INSERT INTO t(b) VALUES (?)", ((noise.randbytes(1000),) for _ in range(ROWS)))
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def remap_database(stock, remap_volume):
    return remap_volume.load(stock)


@pytest.fixture
def copied(stock, tmp_path):
    path = tmp_path / "app.db"
    shutil.copyfile(stock, path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        yield db
    path.unlink()


def delete_a_thousand(db, number):
    first = number * 131 % (ROWS - 1000)
    with db:
        db.execute("DELETE FROM t WHERE a > ? AND a <= ?", (first, first + 1000))
    assert db.execute("SELECT max(a) FROM t").fetchone() == (ROWS,)


@pytest.mark.parametrize("number", range(TESTS))
def test_on_a_branch(remap_branch, number):
    delete_a_thousand(remap_branch, number)


@pytest.mark.parametrize("number", range(TESTS))
def test_on_a_copy(copied, number):
    delete_a_thousand(copied, number)
