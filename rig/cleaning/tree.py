"""A tree of files of which a part is deleted, for a file system's own cleaner. Runs in the guest; the same each time.

    tree.py make DIR SUMS MIB  writes MIB MiB of files, then deletes two fifths; prints the remaining ones as JSON
    tree.py verify DIR SUMS    the remaining files have the checksums of SUMS, and there are no others

Deleted files lie between remaining ones, so that a log's segments are neither full nor empty. No two pages are equal.
"""

import hashlib
import json
import os
import random
import sys

FOLDERS = 20
DELETED = 0.4
LEAST, MOST = 16384, 180224


def path(base, number):
    return os.path.join(base, "files", str(number % FOLDERS), str(number))


def make(base, record, mebibytes):
    chosen = random.Random(5)
    for folder in range(FOLDERS):
        os.makedirs(os.path.join(base, "files", str(folder)))
    sums, written, number = {}, 0, 0
    while written < mebibytes << 20:
        content = chosen.randbytes(chosen.randrange(LEAST, MOST))
        with open(path(base, number), "wb") as file:
            file.write(content)
        sums[number] = hashlib.sha256(content).hexdigest(), len(content)
        written += len(content)
        number += 1
    os.sync()

    for gone in chosen.sample(sorted(sums), int(len(sums) * DELETED)):
        os.remove(path(base, gone))
        del sums[gone]
    os.sync()
    with open(record, "w") as file:
        json.dump({path("", number): digest for number, (digest, _) in sums.items()}, file)
    print(json.dumps({"written_bytes": written, "files": len(sums), "bytes": sum(size for _, size in sums.values())}))


def verify(base, record):
    with open(record) as file:
        wanted = json.load(file)
    found = {}
    for at, _, names in os.walk(os.path.join(base, "files")):
        for name in names:
            full = os.path.join(at, name)
            with open(full, "rb") as file:
                found[os.path.relpath(full, base)] = hashlib.file_digest(file, "sha256").hexdigest()
    wrong = [name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)]
    if wrong or not wanted:
        sys.exit(f"DATA LOST: {len(wrong)} of {len(wanted)} files differ; {', '.join(wrong[:3])}")
    print(json.dumps({"verified": len(found)}))


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    verify(*sys.argv[2:])
