"""Loads that leave garbage for a cleaner. Runs in the guest; the same steps each time.

    load.py fileserver|database make DIR      the initial files
    load.py fileserver|database run DIR SEED  one run; prints its cost as JSON

`fileserver` is Filebench's: a file is deleted, one is written, another appended to, one is read. `database` is YCSB A on SQLite, in WAL
mode at NORMAL: half updates, half reads, of rows of 1 KB of which a fifth gets four fifths of the requests.

The initial files take FULL of the file system.
"""

import glob
import json
import os
import random
import sqlite3
import sys
import time

FULL = 0.75
FOLDERS, CYCLES = 20, 8_000
TRANSACTIONS, PER_TRANSACTION = 10_000, 5


def used(base):
    there = os.statvfs(base)
    return 1 - there.f_bavail / there.f_blocks


def path(base, number):
    return f"{base}/files/{number % FOLDERS}/{number}"


def write(name, chosen, mode="wb", least=65536, most=196608):
    with open(name, mode) as file:
        file.write(chosen.randbytes(chosen.randrange(least, most)))


def make_fileserver(base):
    chosen = random.Random(1)
    for folder in range(FOLDERS):
        os.makedirs(f"{base}/files/{folder}")
    number = 0
    while used(base) < FULL:
        write(path(base, number), chosen)
        number += 1


def run_fileserver(base, seed):
    chosen = random.Random(seed)
    there = [int(name) for folder in range(FOLDERS) for name in os.listdir(f"{base}/files/{folder}")]
    there.sort()
    following = there[-1] + 1
    for cycle in range(CYCLES):
        gone = chosen.randrange(len(there))
        os.remove(path(base, there[gone]))
        there[gone] = following
        write(path(base, following), chosen)
        following += 1
        write(path(base, chosen.choice(there)), chosen, "ab", 4096, 28672)
        with open(path(base, chosen.choice(there)), "rb") as file:
            file.read()
        if cycle % 100 == 99:
            os.sync()
    return CYCLES * 4


def opened(base):
    database = sqlite3.connect(f"{base}/database", isolation_level=None)
    database.execute("PRAGMA page_size = 4096")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def make_database(base):
    chosen = random.Random(1)
    database = opened(base)
    database.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB)")
    first = 0
    while used(base) < FULL:
        database.execute("BEGIN")
        database.executemany("INSERT INTO t VALUES (?, ?)", ((key, chosen.randbytes(1000)) for key in range(first, first + 1000)))
        database.execute("COMMIT")
        first += 1000
    database.close()


def run_database(base, seed):
    chosen = random.Random(seed)
    database = opened(base)
    rows = database.execute("SELECT max(k) FROM t").fetchone()[0] + 1
    for _ in range(TRANSACTIONS):
        database.execute("BEGIN")
        for _ in range(PER_TRANSACTION):
            keys = [chosen.randrange(rows // 5) * 5 if chosen.random() < 0.8 else chosen.randrange(rows) for _ in range(2)]
            database.execute("SELECT v FROM t WHERE k = ?", keys[:1]).fetchone()
            database.execute("UPDATE t SET v = ? WHERE k = ?", (chosen.randbytes(1000), keys[1]))
        database.execute("COMMIT")
    database.close()
    return TRANSACTIONS * PER_TRANSACTION * 2


def cleanings():
    """Blocks that F2FS's cleaners have moved, by its own counts."""
    told = {}
    for path in glob.glob("/sys/fs/f2fs/*/moved_blocks_*ground"):
        with open(path) as file:
            told[os.path.basename(path)] = int(file.read())
    return told


name, what, base = sys.argv[1:4]
before = cleanings()
begin = time.monotonic()
operations = globals()[f"{what}_{name}"](base, *map(int, sys.argv[4:]))
os.sync()
moved = {name: count - before[name] for name, count in cleanings().items()}
print(json.dumps({"seconds": round(time.monotonic() - begin, 3), "operations": operations, **moved}))
