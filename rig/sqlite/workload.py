"""A program that uses SQLite, and knows only the name of its database.

    workload.py run SETTINGS       works, and prints statistics as JSON
    workload.py check SETTINGS     checks the database, and prints a digest of every row as JSON

SETTINGS is a JSON object: `database` (a path or a URI), `extension` (null for stock SQLite), and for `run` `journal`,
`synchronous`, `transactions`, `rows` (replaced in each transaction), `keys` and `cache` (pages; null is SQLite's own).
The same settings give the same rows on any storage.
"""

import hashlib
import json
import random
import sqlite3
import sys
import time

# One row is a leaf and two overflow pages of 4 KiB.
VALUE_BYTES = 12000


def connect(settings):
    extension = settings["extension"]
    if extension:
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.load_extension(extension)
        loader.close()
    return sqlite3.connect(settings["database"], isolation_level=None, uri=True)


def run(settings):
    draw = random.Random(3)
    begin = time.monotonic()
    database = connect(settings)
    database.execute("PRAGMA page_size = 4096")
    if settings["cache"] is not None:
        database.execute(f"PRAGMA cache_size = {settings['cache']}")
    (mode,) = database.execute(f"PRAGMA journal_mode = {settings['journal']}").fetchone()
    if mode != settings["journal"]:
        sys.exit(f"error: the journal's mode is {mode}, not {settings['journal']}")
    database.execute(f"PRAGMA synchronous = {settings['synchronous']}")
    database.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB)")

    for _ in range(settings["transactions"]):
        database.execute("BEGIN")
        for _ in range(settings["rows"]):
            row = (draw.randrange(settings["keys"]), draw.randbytes(VALUE_BYTES))
            database.execute("REPLACE INTO t VALUES (?, ?)", row)
        database.execute("COMMIT")

    # Closing does the last checkpoint anyway, but does not report its result.
    if mode == "wal":
        database.execute("PRAGMA wal_checkpoint").fetchone()
    statistics = None
    if settings["extension"]:
        statistics = json.loads(database.execute("PRAGMA remap_ssd_statistics").fetchone()[0])
    database.close()
    return {"seconds": time.monotonic() - begin, "statistics": statistics}


def check(settings):
    database = connect(settings)
    (integrity,) = database.execute("PRAGMA integrity_check").fetchone()

    digest = hashlib.sha256()
    rows = 0
    tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    for (table,) in tables:
        for row in database.execute(f'SELECT * FROM "{table}" ORDER BY 1'):
            digest.update(repr(row).encode())
            rows += 1
    database.close()
    return {"integrity": integrity, "rows": rows, "digest": digest.hexdigest()}


if __name__ == "__main__":
    verb = {"run": run, "check": check}[sys.argv[1]]
    print(json.dumps(verb(json.loads(sys.argv[2]))))
