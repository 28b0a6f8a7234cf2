"""Writes and syncs until the device fails, or checks that acknowledged data are present.

    append.py write DIR RECORD     writes in five ways, in turn; a line in RECORD once fsync has returned
    append.py check DIR RECORD     all data in RECORD are in DIR

RECORD is not on the device. Ways: `log` grows by a record, `table` has a slot of 4 KiB replaced in place, `name` is
replaced by a renamed file, `dir/N` is a new file, `db` is an SQLite database with one transaction per row.
"""

import hashlib
import os
import random
import sqlite3
import sys

SLOTS = 64
SLOT = 4096


def blob(way, number, size):
    """Bytes unique to this version of this object."""
    head = f"{way} {number} ".encode()
    body = hashlib.shake_128(head).digest(size - len(head))
    return head + body


def log_record(number):
    return blob("log", number, 100 + number * 37 % 3000)


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def put(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def write(base, record):
    chosen = random.Random(int.from_bytes(os.urandom(8), "little"))
    os.makedirs(f"{base}/dir")
    journal = chosen.choice(["wal", "delete"])
    db = sqlite3.connect(f"{base}/db", isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {journal}")
    db.execute("PRAGMA synchronous = EXTRA")
    db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)")
    log = os.open(f"{base}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    table = os.open(f"{base}/table", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(table, b"".join(blob("table", slot, SLOT) for slot in range(SLOTS)), 0)
    os.fsync(table)
    os.fsync(log)
    sync_dir(f"{base}/dir")
    sync_dir(base)
    number = SLOTS
    while True:
        number += 1
        way = chosen.choice(["log", "table", "name", "dir", "db"])
        slot = number % SLOTS
        print("try", way, number, file=record, flush=True)
        if way == "log":
            os.write(log, log_record(number))
            os.fsync(log)
        elif way == "table":
            os.pwrite(table, blob("table", number, SLOT), slot * SLOT)
            os.fdatasync(table)
        elif way == "name":
            put(f"{base}/name.new", blob("name", number, 9000))
            os.rename(f"{base}/name.new", f"{base}/name")
            sync_dir(base)
        elif way == "dir":
            put(f"{base}/dir/{number}", blob("dir", number, 5000))
            sync_dir(f"{base}/dir")
        else:
            db.execute("INSERT INTO t VALUES (?, ?)", (number, blob("db", number, 900)))
        print("ack", way, number, file=record, flush=True)


def version(way, data, size):
    """The version of an object, if it is intact."""
    words = data.split(b" ", 2)
    number = int(words[1])
    assert data == blob(way, number, size), f"{way}: neither old nor new"
    return number


def check(base, record):
    acked, tried = {}, {}
    for line in open(record):
        kind, way, number = line.split()
        (acked if kind == "ack" else tried).setdefault(way, []).append(int(number))
    assert acked, "nothing was acknowledged, so nothing was tested"

    data = open(f"{base}/log", "rb").read()
    for number in acked.get("log", []):
        wanted = log_record(number)
        assert data.startswith(wanted), f"log: record {number} is missing"
        data = data[len(wanted) :]
    last = tried.get("log", [0])[-1]
    # Appended and not acknowledged: a part of it may be present, or only its space.
    assert len(data) <= len(log_record(last)), "log: more than was written"

    latest = {slot: slot for slot in range(SLOTS)} | {number % SLOTS: number for number in acked.get("table", [])}
    with open(f"{base}/table", "rb") as table:
        for slot in range(SLOTS):
            found = version("table", table.read(SLOT), SLOT)
            assert found >= latest[slot] and found % SLOTS == slot, f"table: slot {slot} is {found}"

    if "name" in acked:
        found = version("name", open(f"{base}/name", "rb").read(), 9000)
        assert found >= acked["name"][-1], f"name: {found} is older than {acked['name'][-1]}"

    for number in acked.get("dir", []):
        assert open(f"{base}/dir/{number}", "rb").read() == blob("dir", number, 5000), f"dir/{number} is not whole"

    db = sqlite3.connect(f"{base}/db")
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "db: integrity_check"
    rows = dict(db.execute("SELECT n, v FROM t"))
    gone = [number for number in acked.get("db", []) if rows.get(number) != blob("db", number, 900)]
    journal = db.execute("PRAGMA journal_mode").fetchone()[0]
    # Whether they are the last ones tells a lost tail from lost data.
    assert not gone, f"db ({journal}): rows {gone} are missing; the last that were acknowledged are {acked['db'][-3:]}"
    db.close()
    print(sum(map(len, acked.values())), "acknowledged")


if sys.argv[1] == "write":
    with open(sys.argv[3], "w") as record:
        try:
            write(sys.argv[2], record)
        except (OSError, sqlite3.Error) as error:
            print("the device is gone:", error)
else:
    check(sys.argv[2], sys.argv[3])
