"""A small NVMe/TCP host: connects a queue and writes, reads and copies on it, one command after the other.

Invariant: a failed command raises a failure with its status. Absent: all other functions of Linux's host, which the rigs that boot a kernel use.
"""

import socket
import struct

SUBSYSTEM_FIELD, HOST_FIELD = 256, 512
IN_CAPSULE, TRANSPORT = 0x01, 0x5A


class Queue:
    """One connection with its queue; `cntlid` is 0xffff for the first, the admin queue."""

    def __init__(self, address, subsystem, host, qid, cntlid):
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.cid = 0
        self.socket.sendall(struct.pack("<BBBBIHBBI", 0, 0, 128, 0, 128, 0, 0, 0, 0).ljust(128, b"\0"))
        self.exactly(128)
        data = bytearray(1024)
        data[0:16] = host.encode()[-16:].ljust(16, b"\1")
        data[16:18] = struct.pack("<H", cntlid)
        for at, name in ((SUBSYSTEM_FIELD, subsystem), (HOST_FIELD, host)):
            data[at : at + len(name)] = name.encode()
        connect = struct.pack("<HHHBBI", 0, qid, 31, 0, 0, 60_000 if qid == 0 else 0)
        self.cntlid = self.fabrics(1, connect, bytes(data)) & 0xFFFF

    def exactly(self, count):
        got = bytearray()
        while len(got) < count:
            piece = self.socket.recv(count - len(got))
            if not piece:
                raise ConnectionError("the service has closed the connection")
            got += piece
        return bytes(got)

    def command(self, opcode, nsid, words, data=b"", length=0, kind=None):
        """Sends a command with `words` as its dwords 10 to 15; the result, and data that came back."""
        self.cid = self.cid + 1 & 0x7FFF
        identifier = IN_CAPSULE if data else TRANSPORT
        sgl = struct.pack("<QI3xB", 0, len(data) or length, identifier)
        fourth = nsid if kind is None else kind
        entry = struct.pack("<BBHI", opcode, 0x40, self.cid, fourth).ljust(24, b"\0") + sgl + words.ljust(24, b"\0")
        head = struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, 72 + len(data))
        self.socket.sendall(head + entry + data)
        back = bytearray()
        while True:
            kind, _, _, offset, total = struct.unpack("<BBBBI", self.exactly(8))
            rest = self.exactly(total - 8)
            if kind == 7:
                back += rest[offset - 8 :]
                continue
            if kind != 5:
                raise ConnectionError(f"PDU {kind} instead of a response")
            result, _, _, _, status = struct.unpack("<QHHHH", rest[:16])
            if status >> 1:
                raise OSError(f"opcode {opcode:#x}: status {status >> 1:#x}")
            return result, bytes(back)

    def fabrics(self, kind, words, data=b""):
        return self.command(0x7F, 0, words, data, kind=kind)[0]


class Host:
    """A host with an admin queue and one I/O queue."""

    def __init__(self, address, subsystem, name):
        host, port = address.rsplit(":", 1)
        address = (host, int(port))
        self.admin = Queue(address, subsystem, name, 0, 0xFFFF)
        enable = struct.pack("<IIQ", 0, 0x14, 0x0046_0001)
        self.admin.fabrics(0, enable)
        self.queue = Queue(address, subsystem, name, 1, self.admin.cntlid)

    def write(self, lba, data):
        """Writes whole blocks of 4096 bytes, 128 KiB at most."""
        self.queue.command(1, 1, struct.pack("<QI", lba, len(data) // 4096 - 1), data)

    def read(self, lba, blocks):
        return self.queue.command(2, 1, struct.pack("<QI", lba, blocks - 1), length=blocks * 4096)[1]

    def copy(self, source, target, blocks):
        entry = struct.pack("<QQHxxIIHH", 0, source, blocks - 1, 0, 0, 0, 0).ljust(32, b"\0")
        self.queue.command(0x19, 1, struct.pack("<QI", target, 0), entry)

    def flush(self):
        self.queue.command(0, 1, b"")
