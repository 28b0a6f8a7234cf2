"""Synchronous writers, a file each. Runs in the guest.

    writers.py make DIR FILES           files of 1 MiB
    writers.py write DIR SYSFS SYNCS N  each of the first four overwrites N blocks of 4 KiB in a row and syncs, SYNCS times; prints JSON
    writers.py around SYSFS PROGRAM...  runs a program; prints the blocks that F2FS writes meanwhile as JSON
    writers.py cut DIR SYSFS RECORD KIND   files are changed, and mostly synced: `mixed` also truncates,
                                        punches, renames and cleans; `calm` seldom does
    writers.py check DIR RECORD         each file has its last synced state, or some of the changes attempted later

RECORD has a line `try op FILE NUMBER KIND A SYNC` before a change, and `sure op FILE NUMBER` once fsync has returned. The data written
follow from file and number. Progress is reported as `progress {...}` on the second serial port.
"""

import ctypes
import fcntl
import hashlib
import json
import os
import random
import re
import struct
import subprocess
import sys
import time

BLOCK, BLOCKS, WRITERS = 4096, 256, 4
PUNCH_KEEP_SIZE = 3
GARBAGE_COLLECT = 0x4004F506
COUNTERS = ["listed", "refused", "synced", "noded", "checkpoints", "resets"]
# Of overwriting, appending, changing the size, punching a hole, changing the mode and renaming.
WEIGHTS = {"mixed": [70, 16, 4, 4, 3, 3], "calm": [800, 180, 5, 5, 5, 5]}
libc = ctypes.CDLL(None, use_errno=True)


def content(file, number, size):
    return hashlib.shake_128(f"{file} {number}".encode()).digest(size)


def names(base, file):
    return [f"{base}/w{file}", f"{base}/w{file}.moved"]


def make(base, files):
    for file in range(files):
        with open(names(base, file)[0], "wb") as out:
            out.write(content(file, 0, BLOCKS * BLOCK))
    os.sync()


def counters(sysfs):
    folder = f"{sysfs}/fswrite"
    if not os.path.isdir(folder):
        return {}
    return {name: int(open(f"{folder}/{name}").read()) for name in COUNTERS}


def written_blocks(sysfs):
    """Blocks of data and of nodes written outside checkpoints, by F2FS's own count."""
    name = os.path.basename(sysfs)
    with open(f"/proc/fs/f2fs/{name}/iostat_info") as info:
        text = info.read()
    return {f"{kind}_blocks": int(re.search(rf"fs {kind}:?\s+(\d+)", text)[1]) // BLOCK for kind in ("data", "node")}


def write_one(base, file, syncs, blocks):
    chosen = random.Random(file)
    handle = os.open(names(base, file)[0], os.O_WRONLY)
    for number in range(syncs):
        os.pwrite(handle, content(file, number, blocks * BLOCK), chosen.randrange(BLOCKS // blocks) * blocks * BLOCK)
        os.fsync(handle)
    os.close(handle)


def measured(sysfs, load):
    """The counts that change while the load runs, and its time."""
    before, begin = {**written_blocks(sysfs), **counters(sysfs)}, time.monotonic()
    load()
    seconds = time.monotonic() - begin
    after = {**written_blocks(sysfs), **counters(sysfs)}
    return {**{name: after[name] - before[name] for name in after}, "seconds": round(seconds, 3)}


def write(base, sysfs, syncs, blocks):
    def load():
        children = []
        for file in range(WRITERS):
            child = os.fork()
            if not child:
                write_one(base, file, syncs, blocks)
                os._exit(0)
            children.append(child)
        failed = [child for child in children if os.waitpid(child, 0)[1]]
        assert not failed, "a writer failed"

    print(json.dumps({**measured(sysfs, load), "syncs": syncs * WRITERS}))


def around(sysfs, *program):
    print(json.dumps(measured(sysfs, lambda: subprocess.run(program, check=True, stdout=sys.stderr))))


# --- changes, in memory and in a file system ---


def changed(state, file, number, kind, amount):
    """The state after a change: bytes, name, mode."""
    data, name, mode = bytearray(state[0]), state[1], state[2]
    if kind == "over":
        data[amount * BLOCK : (amount + 1) * BLOCK] = content(file, number, BLOCK)
    elif kind == "grow":
        data += content(file, number, amount)
    elif kind == "size":
        data = data[:amount] + bytes(max(0, amount - len(data)))
    elif kind == "punch":
        data[amount * BLOCK : (amount + 3) * BLOCK] = bytes(3 * BLOCK)
    elif kind == "mode":
        mode = amount
    elif kind == "name":
        name = amount
    return bytes(data), name, mode


def do(base, handle, state, file, number, kind, amount):
    if kind == "over":
        os.pwrite(handle, content(file, number, BLOCK), amount * BLOCK)
    elif kind == "grow":
        os.pwrite(handle, content(file, number, amount), len(state[0]))
    elif kind == "size":
        os.ftruncate(handle, amount)
    elif kind == "punch":
        if libc.fallocate(handle, PUNCH_KEEP_SIZE, ctypes.c_long(amount * BLOCK), ctypes.c_long(3 * BLOCK)):
            raise OSError(ctypes.get_errno(), "fallocate")
    elif kind == "mode":
        os.fchmod(handle, amount)
    elif kind == "name":
        os.rename(names(base, file)[state[1]], names(base, file)[amount])


def choose(chosen, state, weights):
    """A change that is possible, and how it is synced."""
    whole = len(state[0]) // BLOCK
    kind = chosen.choices(["over", "grow", "size", "punch", "mode", "name"], weights)[0]
    if whole < 16 and kind in ("over", "size", "punch"):
        kind = "grow"
    amount = {
        "over": lambda: chosen.randrange(whole),
        "grow": lambda: chosen.randrange(1, 9000),
        "size": lambda: max(0, len(state[0]) + chosen.randrange(-20000, 5000)),
        "punch": lambda: chosen.randrange(whole - 3),
        "mode": lambda: chosen.choice([0o600, 0o640, 0o644]),
        "name": lambda: 1 - state[1],
    }[kind]()
    sync = "fsync" if kind in ("mode", "name") else chosen.choices(["fsync", "fdatasync", "none"], [5, 4, 1])[0]
    return kind, amount, sync


def first_state(file):
    return content(file, 0, BLOCKS * BLOCK), 0, 0o644


def disturb(base, file, told, weights):
    """Changes one file until the device is gone. A line is one write, so that lines of several writers do not mix."""
    chosen = random.Random(int.from_bytes(os.urandom(8), "little"))
    state, number = first_state(file), 0
    handle = os.open(names(base, file)[0], os.O_WRONLY)
    while True:
        number += 1
        kind, amount, sync = choose(chosen, state, weights)
        os.write(told, f"try op {file} {number} {kind} {amount} {sync}\n".encode())
        do(base, handle, state, file, number, kind, amount)
        state = changed(state, file, number, kind, amount)
        if sync != "none":
            (os.fsync if sync == "fsync" else os.fdatasync)(handle)
            os.write(told, f"sure op {file} {number}\n".encode())


def clean_one(directory):
    """Moves a segment's blocks, those that lists name among them."""
    try:
        fcntl.ioctl(directory, GARBAGE_COLLECT, struct.pack("I", 1))
    except OSError:
        # Nothing to clean, or the device is gone, as the writers will see.
        pass


def cut(base, sysfs, record, kind):
    told = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    port = os.open("/dev/ttyS1", os.O_WRONLY | os.O_APPEND)
    files = len([name for name in os.listdir(base) if re.fullmatch(r"w\d+", name)])
    children = []
    for file in range(files):
        child = os.fork()
        if not child:
            try:
                disturb(base, file, told, WEIGHTS[kind])
            except OSError:
                os._exit(3)
            os._exit(1)
        children.append(child)
    found, directory = {}, os.open(base, os.O_RDONLY)
    while children:
        found = counters(sysfs) or found
        if kind == "mixed":
            clean_one(directory)
        os.write(port, f"progress {json.dumps(found)}\n".encode())
        time.sleep(0.1)
        for child in list(children):
            if os.waitpid(child, os.WNOHANG)[0]:
                children.remove(child)
    print(json.dumps(found))


# --- the state afterwards ---


def states(record):
    """By file: the last acknowledged state, and those attempted after it."""
    tried, sure = {}, {}
    for line in open(record):
        words = line.split()
        if words[:2] == ["try", "op"] and len(words) == 7:
            tried.setdefault(int(words[2]), []).append((int(words[3]), words[4], int(words[5])))
        elif words[:2] == ["sure", "op"] and len(words) == 4:
            sure[int(words[2])] = int(words[3])
    found = {}
    for file, changes in tried.items():
        state, later = first_state(file), []
        for number, kind, amount in changes:
            state = changed(state, file, number, kind, amount)
            if number > sure.get(file, 0):
                later.append(state)
            else:
                acknowledged = state
        if file not in sure:
            acknowledged = first_state(file)
        found[file] = [acknowledged, *later]
    return found


def wrong_in(base, file, allowed):
    """Sentences for the parts of a file that match no permitted state."""
    there = [at for at, name in enumerate(names(base, file)) if os.path.exists(name)]
    if len(there) != 1 or there[0] not in [state[1] for state in allowed]:
        return [f"w{file} has names {there}, not {[state[1] for state in allowed]}"]
    path = names(base, file)[there[0]]
    data = open(path, "rb").read()
    mode = os.stat(path).st_mode & 0o777
    wrong = []
    if len(data) not in [len(state[0]) for state in allowed] and not min(len(s[0]) for s in allowed) <= len(data) <= max(len(s[0]) for s in allowed):
        wrong.append(f"w{file} has {len(data)} bytes, not {[len(state[0]) for state in allowed]}")
    if mode not in [state[2] for state in allowed]:
        wrong.append(f"w{file} has mode {mode:o}")
    for at in range(0, len(data), BLOCK):
        part = data[at : at + BLOCK]
        if not any(part == state[0][at : at + BLOCK].ljust(BLOCK, b"\0")[: len(part)] for state in allowed):
            zero = " (zeroes)" if not any(part) else ""
            wrong.append(f"w{file} block {at // BLOCK} is not the synced one{zero}")
    return wrong


def check(base, record):
    found = states(record)
    wrong = [sentence for file, allowed in found.items() for sentence in wrong_in(base, file, allowed)]
    if wrong:
        sys.exit(f"DATA LOST: {len(wrong)} faults; {'; '.join(wrong[:4])}")


arguments = sys.argv[2:]
if sys.argv[1] == "make":
    make(arguments[0], int(arguments[1]))
elif sys.argv[1] == "write":
    write(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]))
elif sys.argv[1] == "around":
    around(*arguments)
elif sys.argv[1] == "cut":
    cut(*arguments)
else:
    check(*arguments)
