"""The kernel's own interface to reservations (linux/pr.h), as cluster software uses it."""

import fcntl
import os
import struct
import sys
import time

WRITE = 1 << 30


def order(device, number, form, *values):
    packed = bytearray(struct.pack(form, *values))
    # Unlike writes, which the kernel queues, these fail while no path is connected.
    deadline = time.monotonic() + 60
    while True:
        try:
            # A refusal by the device is a number above 0, not an errno.
            refused = fcntl.ioctl(device, WRITE | len(packed) << 16 | ord("p") << 8 | number, packed, True)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    if refused:
        raise OSError(f"the device refuses {number}: {refused:#x}")


def register(device, old, new, flags=0):
    order(device, 200, "=QQII", old, new, flags, 0)


def reserve(device, key, kind):
    order(device, 201, "=QII", key, kind, 0)


def release(device, key, kind):
    order(device, 202, "=QII", key, kind, 0)


def preempt(device, old, new, kind):
    order(device, 203, "=QQII", old, new, kind, 0)


def clear(device, key):
    order(device, 205, "=QII", key, 0, 0)


def main():
    device = os.open(sys.argv[1], os.O_RDWR)
    # Write exclusive, and exclusive access for registrants.
    write_exclusive, exclusive_registrants = 1, 4
    if sys.argv[2] == "hold":
        register(device, 0, 77)
        reserve(device, 77, write_exclusive)
        return
    preempt(device, 77, 77, exclusive_registrants)
    release(device, 77, exclusive_registrants)
    register(device, 77, 78)
    clear(device, 78)
    try:
        reserve(device, 78, write_exclusive)
    except OSError:
        return
    sys.exit("a host that is not registered has reserved the device")


main()
