"""What Linux says of untorn writes, and whether it and the device keep their word. In the guest of rig/atomics; answers are JSON objects.

    untorn.py limits DISK PATH             sysfs of the disk and statx of the path: atomic_write_*
    untorn.py shots PATH                   one RWF_ATOMIC write of each power of two, and those that Linux must refuse
    untorn.py load PATH STATE FLAG         writes records until the device fails; `atomic` as FLAG: with RWF_ATOMIC
    untorn.py check PATH STATE             each record is whole, and none is older than its last acknowledged version
    untorn.py plant PATH STATE FOLDER      the first half of a record's next version, as a file that dd puts in its place

Records have 16 or 64 KiB, a sequence number and a checksum. Each belongs to one thread, so that of each record one write at most is under way.
STATE is not on the device.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import struct
import sys
import threading
import zlib

RWF_ATOMIC = 0x40
STATX_WRITE_ATOMIC = 0x10000
STATX_ATTR_WRITE_ATOMIC = 0x400000
FS_IOC_FIEMAP = 0xC020660B
KIB = 1 << 10
MIB = 1 << 20

# (bytes, number, begin) of the records of each size.
GROUPS = [(16 * KIB, 256, 0), (64 * KIB, 64, 4 * MIB)]
THREADS = 8
# Acknowledged writes after which the load counts as begun.
BEGUN = 40


def name(error):
    # Linux's name of 95; Python's is the same number's other one.
    return "EOPNOTSUPP" if error.errno == errno.EOPNOTSUPP else errno.errorcode.get(error.errno, str(error.errno))


def open_direct(path):
    return os.open(path, os.O_RDWR | os.O_DIRECT)


def buffer_of(data):
    """Memory that direct I/O takes: aligned to pages."""
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


def write(fd, data, offset, flags=RWF_ATOMIC, memory=None):
    memory = memory or buffer_of(data)
    memory[:] = data
    done = os.pwritev(fd, [memory], offset, flags)
    assert done == len(data), f"{done} of {len(data)} bytes written"


# --- limits ---


def statx(path):
    found = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statx(-100, path.encode(), 0, STATX_WRITE_ATOMIC, found):
        raise OSError(ctypes.get_errno(), f"statx {path}")
    mask, _, attributes = struct.unpack_from("<IIQ", found.raw, 0)
    least, most, segments, _, fast = struct.unpack_from("<IIIII", found.raw, 168)
    known = bool(mask & STATX_WRITE_ATOMIC)
    return {"known": known, "attribute": bool(attributes & STATX_ATTR_WRITE_ATOMIC), "min": least, "max": most, "segments": segments, "max_opt": fast}


def limits(disk, path):
    names = ["atomic_write_max_bytes", "atomic_write_unit_min_bytes", "atomic_write_unit_max_bytes", "atomic_write_boundary_bytes"]
    names += ["logical_block_size", "max_hw_sectors_kb", "max_segments"]
    queue = {}
    for one in names:
        try:
            with open(f"/sys/block/{os.path.basename(disk)}/queue/{one}") as file:
                queue[one] = int(file.read())
        except FileNotFoundError:
            queue[one] = None
    return {"queue": queue, "statx": statx(path)}


# --- shots ---


def extents(path, offset, length):
    """(physical, length) of the parts of a file's range; none for a disk."""
    if path.startswith("/dev/"):
        return [(offset, length)]
    count = 32
    request = bytearray(struct.pack("<QQIIII", offset, length, 1, 0, count, 0) + bytes(56 * count))
    fd = os.open(path, os.O_RDONLY)
    fcntl.ioctl(fd, FS_IOC_FIEMAP, request)
    os.close(fd)
    parts = []
    for at in range(struct.unpack_from("<I", request, 20)[0]):
        logical, physical, size = struct.unpack_from("<QQQ", request, 32 + 56 * at)
        begin, end = max(logical, offset), min(logical + size, offset + length)
        parts.append((physical + begin - logical, end - begin))
    return parts


def tried(path, size, offset, flags=os.O_DIRECT, buffers=1):
    fd = os.open(path, os.O_RDWR | flags)
    try:
        done = os.pwritev(fd, [buffer_of(os.urandom(size // buffers)) for _ in range(buffers)], offset, RWF_ATOMIC)
        return "done" if done == size else f"{done} bytes"
    except OSError as error:
        return name(error)
    finally:
        os.close(fd)


def shots(path):
    most = max(4 * KIB, statx(path)["max"])
    taken = []
    size = 4 * KIB
    while size <= most:
        before = extents(path, size, size)
        result = tried(path, size, size)
        after = extents(path, size, size)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        taken.append({"bytes": size, "result": result, "before": before, "after": after})
        size *= 2
    refused = {
        "larger": tried(path, 2 * most, 0),
        "misaligned": tried(path, 8 * KIB, 4 * KIB),
        "three blocks": tried(path, 12 * KIB, 0),
        "two buffers": tried(path, 8 * KIB, 0, buffers=2),
        "page cache": tried(path, 4 * KIB, 0, flags=0),
    }
    # For comparison: what is larger than any command.
    fd = open_direct(path)
    write(fd, os.urandom(2 * MIB), 4 * MIB, flags=0)
    os.fsync(fd)
    os.close(fd)
    return {"taken": taken, "refused": refused, "plain": extents(path, 4 * MIB, 2 * MIB)}


# --- records ---


def record(number, sequence, size):
    body = struct.pack("<QQ", sequence, number) * (size // 16 - 1)
    return body + struct.pack("<QQ", size, zlib.crc32(body))


def places():
    """(number, bytes, offset) of each record."""
    number = 0
    for size, count, begin in GROUPS:
        for at in range(count):
            yield number, size, begin + at * size
            number += 1


class State:
    """For each record the last version that was tried, the last acknowledged one, and the last one that a completed sync covers."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path) as file:
                self.__dict__.update(json.load(file), path=path)
        except FileNotFoundError:
            self.sequence = 0
            self.tried, self.acked, self.synced = [], [], []

    def save(self):
        with open(self.path, "w") as file:
            json.dump({name: value for name, value in self.__dict__.items() if name != "path"}, file)


def load(path, state, flag):
    flags = RWF_ATOMIC if flag == "atomic" else 0
    fd = open_direct(path)
    all_places = list(places())
    if not state.tried:
        state.sequence = 1
        for number, size, offset in all_places:
            write(fd, record(number, 1, size), offset, flags)
        os.fsync(fd)
        state.tried, state.acked, state.synced = ([1] * len(all_places) for _ in range(3))
    lock = threading.Lock()
    errors, counts = [], {"acked": 0, "syncs": 0}

    def worker(mine):
        chosen = random.Random(int.from_bytes(os.urandom(8), "little"))
        memories = {size: mmap.mmap(-1, size) for size, _, _ in GROUPS}
        try:
            while True:
                number, size, offset = chosen.choice(mine)
                with lock:
                    state.sequence += 1
                    sequence = state.sequence
                state.tried[number] = sequence
                write(fd, record(number, sequence, size), offset, flags, memories[size])
                state.acked[number] = sequence
                with lock:
                    counts["acked"] += 1
                    if counts["acked"] == BEGUN:
                        open("/tmp/begun", "w").close()
                if chosen.random() < 0.05:
                    covered = list(state.acked)
                    os.fdatasync(fd)
                    with lock:
                        state.synced = [max(pair) for pair in zip(state.synced, covered)]
                        counts["syncs"] += 1
        except OSError as error:
            errors.append(name(error))

    threads = [threading.Thread(target=worker, args=(all_places[at::THREADS],)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state.save()
    unknown = sum(tried > acked for tried, acked in zip(state.tried, state.acked))
    return {**counts, "in_flight": unknown, "errors": sorted(set(errors))}


def versions(data):
    """The sequence numbers that appear in a record, by its blocks."""
    return [struct.unpack_from("<Q", data, at)[0] for at in range(0, len(data), 4 * KIB)]


def check(path, state):
    fd = open_direct(path)
    found = {"records": 0, "torn": [], "unknown": [], "lost_acked": [], "lost_synced": [], "in_flight": 0, "in_flight_new": 0}
    for number, size, offset in places():
        with mmap.mmap(-1, size) as memory:
            assert os.preadv(fd, [memory], offset) == size
            data = memory[:]
        found["records"] += 1
        sequence = struct.unpack_from("<Q", data)[0]
        if data != record(number, sequence, size):
            found["torn"].append([number, versions(data)])
            continue
        if sequence > state.tried[number]:
            found["unknown"].append([number, sequence, state.tried[number]])
        if sequence < state.acked[number]:
            found["lost_acked"].append([number, sequence, state.acked[number]])
        if sequence < state.synced[number]:
            found["lost_synced"].append([number, sequence, state.synced[number]])
        if state.tried[number] > state.acked[number]:
            found["in_flight"] += 1
            found["in_flight_new"] += sequence == state.tried[number]
        # What was found is what the next round begins with.
        state.tried[number] = state.acked[number] = state.synced[number] = sequence
    for number, _ in found["torn"]:
        _, size, offset = list(places())[number]
        state.sequence += 1
        write(fd, record(number, state.sequence, size), offset, flags=0)
        state.tried[number] = state.acked[number] = state.synced[number] = state.sequence
    os.fsync(fd)
    os.close(fd)
    state.save()
    return found


def plant(path, state, folder):
    """A record of which only the first half was written; the state counts it as tried."""
    number, size, offset = random.choice(list(places()))
    state.sequence += 1
    state.tried[number] = state.sequence
    with open(f"{folder}/half", "wb") as file:
        file.write(record(number, state.sequence, size)[: size // 2])
    state.save()
    return {"number": number, "block": offset // (4 * KIB), "blocks": size // (8 * KIB)}


def main():
    verb, path, *rest = sys.argv[1:]
    if verb in ("load", "check", "plant"):
        rest[0] = State(rest[0])
    print(json.dumps({"limits": limits, "shots": shots, "load": load, "check": check, "plant": plant}[verb](path, *rest)))


main()
