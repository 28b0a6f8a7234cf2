"""A record, outside the device, of commits that a database acknowledged: a kill must not lose any of them.

Several clients, each with its own connection, commit one transaction after the other: a new row in `ledger`, whose content follows from
client and number, and its number in one of the client's `slots`. A number is recorded once the database has acknowledged the commit
and a query has found it.

Invariants after a kill at any moment: each client's rows are numbers from 1 on without a gap, up to the last recorded one, or
the one after it, which was under way; their contents are intact; each slot names the last row written to it.
Absent: starting a database, and connecting to it.
"""

import contextlib
import hashlib
import os
import subprocess
import threading

from served import Failure

CLIENTS, SLOTS = 2, 97
# Hexadecimal digits of a row's content: with two clients, several rows per database page, and several pages per second.
CONTENT_BYTES = 900
CLOSE_SECONDS = 20

SETUP = [
    "CREATE TABLE ledger(client INT, number INT, content TEXT, PRIMARY KEY (client, number))",
    "CREATE TABLE slots(client INT, slot INT, number INT, PRIMARY KEY (client, slot))",
    "INSERT INTO slots VALUES " + ", ".join(f"({client}, {slot}, 0)" for client in range(CLIENTS) for slot in range(SLOTS)),
]


def content(client, number):
    return hashlib.shake_128(f"{client} {number}".encode()).hexdigest(CONTENT_BYTES)


def transaction(client, number):
    slot = number % SLOTS
    where = f"WHERE client = {client} AND slot = {slot};"
    return [
        "BEGIN;",
        f"INSERT INTO ledger VALUES ({client}, {number}, '{content(client, number)}');",
        f"UPDATE slots SET number = {number} {where}",
        "COMMIT;",
        f"SELECT number FROM slots {where}",
    ]


class Ledger:
    """`connect` is a command that takes SQL line by line, prints the results of queries, and ends at the first error."""

    def __init__(self, aside, connect=None):
        self.aside, self.connect = aside, connect
        self.ending = threading.Event()

    def path(self, client):
        return os.path.join(self.aside, f"acknowledged.{client}")

    def acknowledged(self, client):
        """The last recorded number."""
        with contextlib.suppress(FileNotFoundError):
            with open(self.path(client)) as record:
                return max(map(int, record), default=0)
        return 0

    def write(self, client, process):
        number = 0
        # The database may end at any moment, and this client with it.
        with open(self.path(client), "w") as record, contextlib.suppress(BrokenPipeError):
            while not self.ending.is_set():
                number += 1
                process.stdin.write("\n".join(transaction(client, number)) + "\n")
                process.stdin.flush()
                if process.stdout.readline().strip() != str(number):
                    return
                print(number, file=record, flush=True)

    @contextlib.contextmanager
    def writing(self):
        """Clients commit until this ends."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "cwd": "/"}
        processes = [subprocess.Popen(self.connect, **pipes) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=self.write, args=given, daemon=True) for given in enumerate(processes)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ending.set()
            for thread, process in zip(threads, processes):
                thread.join(CLOSE_SECONDS)
                process.kill()
                process.wait()
                thread.join(CLOSE_SECONDS)

    def check(self, query, separator):
        """Checks that all recorded commits are present. `query` returns the result of a statement as lines of fields. Returns the number of recorded commits."""
        rows, slots = {}, {}
        for line in query("SELECT client, number, MD5(content) FROM ledger"):
            client, number, digest = line.split(separator)
            rows[int(client), int(number)] = digest
        for line in query("SELECT client, slot, number FROM slots"):
            client, slot, number = map(int, line.split(separator))
            slots[client, slot] = number

        for client in range(CLIENTS):
            numbers = sorted(number for of, number in rows if of == client)
            last, promised = len(numbers), self.acknowledged(client)
            if numbers != list(range(1, last + 1)):
                raise Failure(f"client {client}: {promised} commits were acknowledged; the rows are not 1 to {last}: {gaps(numbers)}")
            if not promised <= last <= promised + 1:
                raise Failure(f"client {client}: {promised} commits were acknowledged, {last} are there")
            for number in numbers:
                if rows[client, number] != hashlib.md5(content(client, number).encode()).hexdigest():
                    raise Failure(f"client {client}: row {number} has another content")
            for slot in range(SLOTS):
                wanted = max((number for number in range(last, max(0, last - SLOTS), -1) if number % SLOTS == slot), default=0)
                if slots.get((client, slot)) != wanted:
                    raise Failure(f"client {client}: slot {slot} names row {slots.get((client, slot))}, not {wanted}: a commit is there in part")
        return sum(self.acknowledged(client) for client in range(CLIENTS))


def gaps(numbers):
    return ", ".join(str(number) for number in sorted(set(range(1, max(numbers, default=0))) - set(numbers))[:5]) + " are missing"
