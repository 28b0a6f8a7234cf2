"""Fills the file system to be cleaned, and cleans it by ioctl. Runs in the guest.

    work.py make DIR                 files of 4 MiB; then a random four tenths of their blocks are overwritten
    work.py clean DIR SYSFS N        cleans N segments and writes a checkpoint; prints the cost as JSON
    work.py cut DIR SYSFS RECORD     cleans everything; occasionally writes a block, or appends one, and syncs
    work.py verify DIR [RECORD]      each block is its last acknowledged version, or one attempted later

A block's content follows from its file, its place and its version. RECORD has a line `try over FILE BLOCK VERSION` before a write, and
`sure` instead of `try` once fsync has returned. Progress is reported as `remapped BLOCKS`, on the second serial port.
"""

import fcntl
import hashlib
import json
import os
import random
import struct
import sys
import time

FILES, BLOCKS, CHURNED, BLOCK = 28, 1024, 400, 4096
GARBAGE_COLLECT = 0x4004F506
WRITE_CHECKPOINT = 0xF507
SEGMENTS_CUT = 60


def content(file, block, version):
    return hashlib.shake_128(f"{file} {block} {version}".encode()).digest(BLOCK)


def churned(file):
    return sorted(random.Random(file).sample(range(BLOCKS), CHURNED))


def make(base):
    for file in range(FILES):
        with open(f"{base}/f{file}", "wb") as out:
            for block in range(BLOCKS):
                out.write(content(file, block, 0))
    os.sync()
    for file in range(FILES):
        with open(f"{base}/f{file}", "r+b") as out:
            for block in churned(file):
                out.seek(block * BLOCK)
                out.write(content(file, block, 1))
    os.sync()


def counters(sysfs):
    folder = f"{sysfs}/remap"
    if not os.path.isdir(folder):
        return {}
    told = {name: open(f"{folder}/{name}").read().strip() for name in os.listdir(folder)}
    return {name: int(value) if value.isdigit() else value for name, value in told.items()}


def collect(directory):
    fcntl.ioctl(directory, GARBAGE_COLLECT, struct.pack("I", 1))


def clean(base, sysfs, segments):
    directory = os.open(base, os.O_RDONLY)
    begin, cleaned = time.monotonic(), 0
    for _ in range(segments):
        try:
            collect(directory)
            cleaned += 1
        except OSError as error:
            # Nothing is left to clean.
            print("cleaning ends:", error, file=sys.stderr)
            break
    fcntl.ioctl(directory, WRITE_CHECKPOINT)
    seconds = round(time.monotonic() - begin, 3)
    # The module also has a counter called `segments`: those that were remapped.
    print(json.dumps({**counters(sysfs), "seconds": seconds, "segments": cleaned}))


def disturb(base, step, chosen, record):
    """Overwrites a block, or appends one; every other one is synced, the rest stay dirty."""
    file = chosen.randrange(FILES)
    block = chosen.choice([chosen.randrange(BLOCKS), BLOCKS])
    print("try over", file, block, step, file=record, flush=True)
    handle = os.open(f"{base}/f{file}", os.O_WRONLY)
    os.pwrite(handle, content(file, block, step), block * BLOCK)
    if step % 2 == 0:
        os.fsync(handle)
        print("sure over", file, block, step, file=record, flush=True)
    os.close(handle)


def cut(base, sysfs, record):
    directory = os.open(base, os.O_RDONLY)
    chosen = random.Random(int.from_bytes(os.urandom(8), "little"))
    found = {}
    with open("/dev/ttyS1", "w") as told, open(record, "a") as record:
        try:
            for step in range(SEGMENTS_CUT):
                disturb(base, step + 2, chosen, record)
                if step % 5 == 4:
                    fcntl.ioctl(directory, WRITE_CHECKPOINT)
                collect(directory)
                found = counters(sysfs)
                print("remapped", found["blocks"], file=told, flush=True)
        except OSError as error:
            found = {**counters(sysfs), "error": str(error)}
            print("died", json.dumps(found))
            return
    print("cleaned")


def versions(record):
    """By file and block: the last acknowledged version, and those attempted after it."""
    tried, sure = {}, {}
    for line in open(record) if record else []:
        kind, way, *rest = line.split()
        if way != "over" or len(rest) != 3:
            continue
        file, block, version = map(int, rest)
        (tried if kind == "try" else sure).setdefault((file, block), []).append(version)
    return tried, sure


def verify(base, record):
    tried, sure = versions(record)
    wrong = []
    for file in range(FILES):
        old = set(churned(file))
        with open(f"{base}/f{file}", "rb") as data:
            for block in range(BLOCKS + 1):
                found = data.read(BLOCK)
                first = int(block in old)
                last = max(sure.get((file, block), [first]))
                allowed = [last] + [version for version in tried.get((file, block), []) if version > last]
                # An append that was not synced may be absent, or only its length present.
                unsure = block == BLOCKS and (file, block) not in sure and not any(found)
                if not unsure and found not in (content(file, block, version) for version in allowed):
                    zero = " (zeroes)" if not any(found) else ""
                    wrong.append(f"f{file} block {block} is not version {' or '.join(map(str, allowed))}{zero}")
    if wrong:
        sys.exit(f"DATA LOST: {len(wrong)} blocks differ; {'; '.join(wrong[:3])}")


arguments = sys.argv[2:]
if sys.argv[1] == "make":
    make(*arguments)
elif sys.argv[1] == "clean":
    clean(arguments[0], arguments[1], int(arguments[2]))
elif sys.argv[1] == "cut":
    cut(*arguments)
else:
    verify(arguments[0], arguments[1] if len(arguments) > 1 else None)
