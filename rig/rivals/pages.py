"""Writes pages of which a part repeats a content, and reads them back. The same each time, in a guest or on the host.

    pages.py write PATH RECORD PAGES WRITES DUPLICATES WINDOW SEED
    pages.py verify PATH RECORD

`write`: every page once, in random order, then pages chosen at random, WRITES in total. A write repeats one of the last contents with
probability DUPLICATES, or has incompressible content. Everything is synced after every WINDOW writes. Prints the seconds taken.
`verify`: each page has the content written to it last.

Invariants: data do not stay in the page cache. Absent: the device's counts.
"""

import json
import mmap
import os
import random
import sys
import time

PAGE = 4096
# The number of recent contents that a duplicate may repeat.
KNOWN = 4096


def content(number):
    return random.Random(number).randbytes(PAGE)


def opened(path):
    return os.open(path, os.O_RDWR | os.O_DIRECT)


def order(pages, writes, chosen):
    first = list(range(pages))
    chosen.shuffle(first)
    return first + [chosen.randrange(pages) for _ in range(writes - pages)]


def write(path, record, pages, writes, duplicates, window, seed):
    chosen = random.Random(seed)
    # O_DIRECT takes memory that begins at a page.
    buffer = mmap.mmap(-1, PAGE)
    file = opened(path)
    contents, held, repeated = 0, {}, 0
    began = time.monotonic()

    for index, page in enumerate(order(pages, writes, chosen)):
        if contents and chosen.random() < duplicates:
            number = chosen.randrange(max(0, contents - KNOWN), contents)
            repeated += 1
        else:
            number, contents = contents, contents + 1
        buffer[:] = content((seed << 32) + number)
        if os.pwrite(file, buffer, page * PAGE) != PAGE:
            sys.exit("a write was cut short")
        held[page] = number
        if window and (index + 1) % window == 0:
            os.fsync(file)

    os.fsync(file)
    seconds = time.monotonic() - began
    os.close(file)
    with open(record, "w") as to:
        json.dump({"seed": seed, "held": held}, to)
    print(json.dumps({"written": writes, "contents": contents, "repeated": repeated, "seconds": round(seconds, 3)}))


def verify(path, record):
    with open(record) as given:
        known = json.load(given)
    buffer = mmap.mmap(-1, PAGE)
    file = opened(path)
    wrong = []
    for page, number in known["held"].items():
        if os.preadv(file, [buffer], int(page) * PAGE) != PAGE or buffer[:] != content((known["seed"] << 32) + number):
            wrong.append(page)
    if wrong or not known["held"]:
        sys.exit(f"DATA LOST: {len(wrong)} of {len(known['held'])} pages differ; {', '.join(wrong[:3])}")
    print(json.dumps({"verified": len(known["held"])}))


if sys.argv[1] == "write":
    pages, writes, duplicates, window, seed = sys.argv[4:]
    write(sys.argv[2], sys.argv[3], int(pages), int(writes), float(duplicates), int(window), int(seed))
else:
    verify(*sys.argv[2:])
