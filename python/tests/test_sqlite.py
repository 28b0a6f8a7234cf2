"""`remap_ssd.sqlite` with real SQLites: Python's own, by both ways of loading, and those of SQLAlchemy, Django and APSW.

Each case is a process of its own: the extension is loaded once in a process.
"""

import pathlib
import re
import sqlite3
import subprocess
import sys
import textwrap

import pytest

import remap_ssd.sqlite

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITHOUT_EXTENSIONS = not hasattr(sqlite3.Connection, "enable_load_extension")


@pytest.fixture(autouse=True)
def the_extension(program, monkeypatch):
    monkeypatch.setenv("REMAP_SSD", program)
    try:
        remap_ssd.sqlite.extension()
    except FileNotFoundError as why:
        pytest.skip(str(why))


@pytest.fixture
def python(tmp_path):
    """Runs a program in an empty folder; returns its output, which has to be the same whatever was printed before."""

    def run(text, *, check=True):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip() if check else done.stderr.strip()

    return run


def recipe(word):
    """The block of docs/sqlite.md that has this word."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "sqlite.md").read_text(), re.M | re.S)
    [found] = [block for block in blocks if word in block]
    return found


def test_rows_in_a_folder_survive_the_process(python):
    program = """
        import remap_ssd.sqlite
        db = remap_ssd.sqlite.connect("app.db", device="disk", size="32MiB")
        db.execute("PRAGMA journal_mode = WAL")
        with db:
            db.execute("CREATE TABLE IF NOT EXISTS t(x)")
            db.execute("INSERT INTO t VALUES (1)")
        print(*db.execute("SELECT count(*) FROM t").fetchone(), db.execute("PRAGMA database_list").fetchone()[2].count("/"))
    """
    assert [python(program) for _ in range(3)] == ["1 2", "2 2", "3 2"]


def test_rows_in_memory_survive_the_connection_and_not_the_process(python):
    program = """
        import remap_ssd.sqlite
        for _ in range(3):
            db = remap_ssd.sqlite.connect("app.db", device=32 << 20)
            with db:
                db.execute("CREATE TABLE IF NOT EXISTS t(x)")
                db.execute("INSERT INTO t VALUES (1)")
            print(*db.execute("SELECT count(*) FROM t").fetchone())
            db.close()
    """
    assert [python(program).split() for _ in range(2)] == [["1", "2", "3"]] * 2


def test_a_child_of_fork_is_refused_the_memory_of_its_parent(python):
    said = python(
        """
        import os, remap_ssd.sqlite, sqlite3
        db = remap_ssd.sqlite.connect("app.db", device="32MiB")
        db.execute("CREATE TABLE t(x)")
        child = os.fork()
        if child == 0:
            try:
                remap_ssd.sqlite.connect("app.db", device="32MiB")
            except sqlite3.OperationalError as why:
                print(why, flush=True)
            try:
                db.execute("SELECT * FROM t")
            except sqlite3.OperationalError as why:
                print(why, flush=True)
            own = remap_ssd.sqlite.connect("app.db", device="disk", size="32MiB")
            print(own.execute("SELECT 'its own'").fetchone()[0], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(db.execute("SELECT count(*) FROM t").fetchone()[0])
        """
    )
    refused, inherited, own, parents = said.splitlines()
    assert "forked" in refused
    assert inherited.startswith("disk I/O error")
    assert (own, parents) == ("its own", "0")


def test_threads_connect_at_the_same_time_to_a_folder_that_none_has_made(python):
    said = python(
        """
        import concurrent.futures, remap_ssd.sqlite
        def insert(number):
            db = remap_ssd.sqlite.connect("app.db", device="disk", size="32MiB", timeout=60)
            with db:
                db.execute("CREATE TABLE IF NOT EXISTS t(x)")
                db.execute("INSERT INTO t VALUES (?)", (number,))
            db.close()
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(insert, range(24)))
        db = remap_ssd.sqlite.connect("app.db", device="disk")
        import os
        print(*db.execute("SELECT count(*), sum(x) FROM t").fetchone(), os.listdir("."))
        """
    )
    assert said == "24 276 ['disk']"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ('connect("app.db", device="absent", size=None)', "absent"),
        ('connect("app.db", device="127.0.0.1:1")', "127.0.0.1:1"),
        ('connect("app.db", device="new", size="many")', "size=many"),
        ('connect("app.db", device="1KiB")', "MiB"),
        ('connect("app.db", device={"devise": "127.0.0.1:1"})', "the nearest is device="),
        ('connect("app.db", device={"memory": "32MiB", "image": "disk"})', "one place"),
        ('connect(":memory:", device="32MiB")', "':memory:'"),
    ],
)
def test_an_opening_that_fails_says_why(python, call, reason):
    said = python(f"import remap_ssd.sqlite\nremap_ssd.sqlite.{call}", check=False).splitlines()[-1]
    assert re.match(r"(sqlite3\.OperationalError|ValueError): ", said), said
    assert reason in said
    assert "automatic extension" not in said


def test_a_statement_that_fails_says_why(python):
    said = python(
        """
        import remap_ssd.sqlite
        db = remap_ssd.sqlite.connect("app.db", device="16MiB")
        db.execute("CREATE TABLE t(x)")
        cursor = db.cursor()
        while True:
            cursor.execute("INSERT INTO t VALUES (randomblob(100000))")
            db.commit()
        """,
        check=False,
    ).splitlines()[-1]
    assert re.match(r"sqlite3\.OperationalError: database or disk is full: remap: .+", said), said


@pytest.mark.skipif(WITHOUT_EXTENSIONS, reason="this Python has only the other way")
def test_the_way_of_pythons_without_extensions_works_in_others_too(python):
    said = python(
        """
        import remap_ssd.sqlite
        remap_ssd.sqlite._load_by_sqlite(remap_ssd.sqlite.extension())
        print(*remap_ssd.sqlite.connect("app.db", device="32MiB").execute("SELECT 7").fetchone())
        """
    )
    assert said == "7"


def test_sqlalchemy(python):
    pytest.importorskip("sqlalchemy")
    python(recipe("import sqlalchemy"))


def test_django(python, tmp_path):
    pytest.importorskip("django")
    (tmp_path / "settings.py").write_text(recipe("django.db"))
    program = """
        import os, django
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        django.setup()
        from django.db import connection
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS t(x)")
            cursor.execute("INSERT INTO t VALUES (1)")
            cursor.execute("SELECT count(*) FROM t")
            print(cursor.fetchone()[0], connection.settings_dict["NAME"].split("?")[0])
        connection.close()
    """
    assert [python(program) for _ in range(2)] == ["1 file:app.db", "2 file:app.db"]


def test_apsw_and_one_sqlite_in_a_process(python):
    pytest.importorskip("apsw")
    said = python(
        recipe("import apsw")
        + textwrap.dedent(
            """
            import sqlite3
            try:
                remap_ssd.sqlite.connect("app.db", device="32MiB")
            except sqlite3.OperationalError as why:
                print(why)
            """
        )
    )
    assert "another SQLite in this process" in said
