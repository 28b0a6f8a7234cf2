"""Writes a page to a block device, and syncs it on the host's order. Runs in the guest.

    flush.py DEVICE     answers `@written`, waits for a line, and answers `@synced {"error": NAME}`, null if fsync returned 0
"""

import errno
import json
import mmap
import os
import sys

PAGE = 4096

device = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, PAGE)
page.write(os.urandom(PAGE))
if os.pwrite(device, page, 0) != PAGE:
    sys.exit("the page was not written whole")

with open("/dev/ttyS1", "rb", buffering=0) as heard, open("/dev/ttyS1", "wb", buffering=0) as told:
    told.write(b"@written\n")
    heard.readline()
    try:
        os.fsync(device)
        found = None
    except OSError as error:
        found = errno.errorcode[error.errno]
    told.write(f"@synced {json.dumps({'error': found})}\n".encode())
