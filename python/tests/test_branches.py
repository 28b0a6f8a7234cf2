"""The fixtures that give each test a branch of a database, with a real device and SQLite's extension."""

import contextlib
import pathlib
import sqlite3

import pytest

import remap_ssd.sqlite


@pytest.fixture(scope="session", autouse=True)
def the_extension(program):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAP_SSD", program)
        try:
            remap_ssd.sqlite.extension()
        except FileNotFoundError as why:
            pytest.skip(str(why))
        yield


@pytest.fixture(scope="session")
def remap_database(the_extension, remap_volume, tmp_path_factory):
    path = tmp_path_factory.mktemp("stock") / "app.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        db.executemany("INSERT INTO t(b) VALUES (?)", ((f"row {number}" * 20,) for number in range(2000)))
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return remap_volume.load(path)


def rows(db):
    return db.execute("SELECT count(*) FROM t").fetchone()[0]


@pytest.mark.parametrize("number", range(20))
def test_each_test_has_the_database_as_it_was_loaded(remap_branch, number):
    assert rows(remap_branch) == 2000
    with remap_branch:
        remap_branch.execute("DELETE FROM t WHERE a > ?", (number,))
    assert rows(remap_branch) == number
    assert remap_branch.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_code_under_test_may_connect_by_itself(remap_branch_uri, remap_branch):
    with contextlib.closing(sqlite3.connect(remap_branch_uri, uri=True)) as db:
        with db:
            db.execute("INSERT INTO t(b) VALUES ('new')")
    assert rows(remap_branch) == 2001


def test_a_branch_that_is_deleted_leaves_the_database_alone(remap_volume, remap_database):
    uri = remap_volume.branch(remap_database, "mine")
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as db, db:
        db.execute("DROP TABLE t")
    remap_volume.delete(remap_database, "mine")
    with contextlib.closing(remap_volume.connect(remap_database)) as db:
        assert rows(db) == 2000
    with pytest.raises(sqlite3.OperationalError, match="there is no file mine"):
        remap_volume.delete(remap_database, "mine")


def test_a_name_that_is_taken_is_refused(remap_volume, remap_database):
    with pytest.raises(sqlite3.OperationalError, match="already"):
        remap_volume.branch(remap_database, remap_database)
