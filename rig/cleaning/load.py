"""Loads that leave garbage for a cleaner. Runs in the guest; the same steps each time.

    load.py fileserver|database make DIR      the initial files
    load.py fileserver|database run DIR SEED  one run; prints its cost as JSON

`fileserver` is Filebench's: a file is deleted, one is written, another appended to, one is read. `database` is YCSB A on SQLite, in WAL
mode at NORMAL: half updates, half reads, of rows of 1 KB of which a fifth gets four fifths of the requests.
"""

import json
import os
import random
import sqlite3
import sys
import time

FOLDERS, FILES, CYCLES = 20, 1500, 1300
ROWS, TRANSACTIONS, PER_TRANSACTION = 100_000, 3_000, 5


def path(base, number):
    return f"{base}/files/{number % FOLDERS}/{number}"


def write(name, chosen, mode="wb", least=65536, most=196608):
    with open(name, mode) as file:
        file.write(chosen.randbytes(chosen.randrange(least, most)))


def make_fileserver(base):
    chosen = random.Random(1)
    for folder in range(FOLDERS):
        os.makedirs(f"{base}/files/{folder}")
    for number in range(FILES):
        write(path(base, number), chosen)


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
    for first in range(0, ROWS, 1000):
        database.execute("BEGIN")
        database.executemany("INSERT INTO t VALUES (?, ?)", ((key, chosen.randbytes(1000)) for key in range(first, first + 1000)))
        database.execute("COMMIT")
    database.close()


def run_database(base, seed):
    chosen = random.Random(seed)
    database = opened(base)
    for _ in range(TRANSACTIONS):
        database.execute("BEGIN")
        for _ in range(PER_TRANSACTION):
            keys = [chosen.randrange(ROWS // 5) * 5 if chosen.random() < 0.8 else chosen.randrange(ROWS) for _ in range(2)]
            database.execute("SELECT v FROM t WHERE k = ?", keys[:1]).fetchone()
            database.execute("UPDATE t SET v = ? WHERE k = ?", (chosen.randbytes(1000), keys[1]))
        database.execute("COMMIT")
    database.close()
    return TRANSACTIONS * PER_TRANSACTION * 2


name, what, base = sys.argv[1:4]
begin = time.monotonic()
operations = globals()[f"{what}_{name}"](base, *map(int, sys.argv[4:]))
os.sync()
print(json.dumps({"seconds": round(time.monotonic() - begin, 3), "operations": operations}))
