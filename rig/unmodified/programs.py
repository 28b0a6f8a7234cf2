"""The programs: requirements, work before and during the count, and the data required afterwards.

A program gets a folder on the file system under test and one outside it, for sockets and logs. A seed determines all random choices
and the amount of work, so two runs do the same. Absent: databases with a server (`databases`).
"""

import hashlib
import os
import random
import re
import sqlite3

from served import Failure, command

MEBIBYTE = 1 << 20


class Program:
    """One row. `filesystem` and `options` describe its file system, `tools` the requirements: program and package."""

    filesystem = "ext4"
    options = None
    tools = {}

    def __init__(self, name, short):
        self.name = name
        # The short form does a tenth of the work.
        self.scale = 0.1 if short else 1.0
        # The device will be killed under it.
        self.killed = False
        # Commits acknowledged in the killed run, which must be present; `None` if the program promises none.
        self.promised = None
        # Pages written once by the program's own report, if runs differ.
        self.work = None

    def about(self):
        raise NotImplementedError

    def obtain(self):
        """Fetches requirements that are not packages, once for all runs. A failure skips the program."""

    def prepare(self, folder, aside):
        """Runs before pages are counted."""

    def run(self, folder, aside):
        """Runs while pages are counted."""
        raise NotImplementedError

    def digest(self, folder, aside):
        """The data afterwards, as text: independent of the device."""
        raise NotImplementedError

    def after_kill(self, folder, aside):
        """Checks the data after the device was killed under `run`: prepared data are present, and nothing is partial."""
        self.digest(folder, aside)

    def close(self):
        """Ends running processes, in any state."""


def tree_digest(folder):
    """Names and contents of all files."""
    digest = hashlib.sha256()
    for at, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            path = os.path.join(at, name)
            digest.update(os.path.relpath(path, folder).encode())
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def make_tree(folder, total, seed=3):
    """Files as in a source tree: most are small, the sizes are log-normal with a mean of some 20 KB. No two pages are equal."""
    draw = random.Random(seed)
    made = 0
    while made < total:
        size = min(int(draw.lognormvariate(9.0, 1.4)), MEBIBYTE)
        at = os.path.join(folder, f"d{draw.randrange(60)}", f"e{draw.randrange(6)}")
        os.makedirs(at, exist_ok=True)
        with open(os.path.join(at, f"f{made}"), "wb") as file:
            file.write(draw.randbytes(size))
        made += size


class Fio(Program):
    """fio writes a file, in order or at random."""

    tools = {"fio": "fio"}

    def __init__(self, name, short, journal, pattern):
        super().__init__(name, short)
        self.options = f"data={journal}"
        self.pattern = pattern
        self.mebibytes = max(8, int(150 * self.scale))

    def about(self):
        how = {"sequential": "in order, 64 KiB each, fsync after 16", "random": "4 KiB at random, fsync after 8"}
        return f"ext4 {self.options}: fio writes {self.mebibytes} MiB {how[self.pattern]}"

    def fio(self, folder, *more):
        given = ["--name=w", f"--directory={folder}", "--ioengine=psync", "--refill_buffers"]
        # A block's checksum includes the time, so runs differ: used only where needed.
        if self.killed and "--rw=read" not in more:
            given += ["--verify=crc32c", "--do_verify=0", "--verify_state_save=0"]
        command("fio", *given, f"--size={self.mebibytes}M", *more)

    def prepare(self, folder, aside):
        if self.pattern == "random":
            self.fio(folder, "--rw=write", "--bs=4k", "--end_fsync=1", "--randseed=5")

    def run(self, folder, aside):
        if self.pattern == "random":
            self.fio(folder, "--rw=randwrite", "--bs=4k", "--fsync=8", "--randseed=7", f"--io_size={self.mebibytes * 3 // 4}M")
        else:
            self.fio(folder, "--rw=write", "--bs=64k", "--fsync=16", "--randseed=7")

    def digest(self, folder, aside):
        return tree_digest(folder)

    def after_kill(self, folder, aside):
        # Each block contains a checksum. Parts missing in an unfinished file were never synced.
        if self.pattern == "random":
            self.fio(folder, "--rw=read", "--bs=4k", "--verify=crc32c", "--verify_fatal=1")


class Copy(Program):
    """cp -r of a tree."""

    def __init__(self, name, short, filesystem):
        super().__init__(name, short)
        self.filesystem = filesystem
        self.bytes = int(120 * MEBIBYTE * self.scale)

    def about(self):
        return f"cp -r of {self.bytes // MEBIBYTE} MiB in small files on {self.filesystem}"

    def prepare(self, folder, aside):
        make_tree(os.path.join(folder, "from"), self.bytes)
        self.prepared = tree_digest(os.path.join(folder, "from"))

    def run(self, folder, aside):
        command("cp", "-r", "--reflink=never", os.path.join(folder, "from"), os.path.join(folder, "to"))

    def digest(self, folder, aside):
        one, two = (tree_digest(os.path.join(folder, name)) for name in ("from", "to"))
        if one != two:
            raise Failure("the copy differs from the source")
        return one

    def after_kill(self, folder, aside):
        if tree_digest(os.path.join(folder, "from")) != self.prepared:
            raise Failure("the source of the copy has changed")


class WriteTree(Copy):
    """The tree itself, written where the file system keeps two copies of everything."""

    def about(self):
        return f"{self.bytes // MEBIBYTE} MiB in small files, written to {self.filesystem}: two copies of all that is there"

    def prepare(self, folder, aside):
        pass

    def run(self, folder, aside):
        make_tree(folder, self.bytes)

    def digest(self, folder, aside):
        return tree_digest(folder)

    def after_kill(self, folder, aside):
        """Nothing was synced: only the file system's own check applies."""


class GitClone(Program):
    """A clone on the same disk, with objects of its own."""

    tools = {"git": "git"}
    # The user's git configuration must have no effect.
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def about(self):
        return f"git clone --no-hardlinks of a repository with {self.mebibytes()} MiB of files, and its work tree"

    def mebibytes(self):
        return max(6, int(60 * self.scale))

    def git(self, folder, *arguments):
        who = ["-c", "user.name=rig", "-c", "user.email=rig@invalid", "-c", "gc.auto=0"]
        return command("git", *who, *arguments, cwd=folder, env={**os.environ, **self.environment})

    def prepare(self, folder, aside):
        origin = os.path.join(folder, "origin")
        make_tree(origin, self.mebibytes() * MEBIBYTE)
        self.git(origin, "init", "-q")
        self.git(origin, "add", ".")
        self.git(origin, "commit", "-q", "-m", "all")

    def run(self, folder, aside):
        self.git(folder, "clone", "-q", "--no-hardlinks", "origin", "clone")

    def digest(self, folder, aside):
        clone = os.path.join(folder, "clone")
        self.git(clone, "fsck", "--full", "--strict")
        if self.git(clone, "status", "--porcelain").strip():
            raise Failure("the clone's work tree differs from its commit")
        # Commits have times: only the tree is the same in two runs.
        return self.git(clone, "rev-parse", "HEAD^{tree}").strip()

    def after_kill(self, folder, aside):
        self.git(os.path.join(folder, "origin"), "fsck", "--full", "--strict")


class Sqlite(Program):
    """SQLite as it is, on a file."""

    def __init__(self, name, short, journal, synchronous):
        super().__init__(name, short)
        self.journal, self.synchronous = journal, synchronous
        self.transactions = int(6000 * self.scale)

    def about(self):
        return f"SQLite, journal_mode={self.journal}, synchronous={self.synchronous}: {self.transactions:,} rows of 12,000 bytes"

    def prepare(self, folder, aside):
        database = sqlite3.connect(os.path.join(folder, "app.db"))
        database.execute("PRAGMA page_size = 4096")
        database.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB)")
        database.close()

    def rows(self):
        """The rows that the transactions write, in order."""
        draw = random.Random(3)
        for _ in range(self.transactions):
            yield draw.randrange(6000), draw.randbytes(12000)

    def run(self, folder, aside):
        database = sqlite3.connect(os.path.join(folder, "app.db"), isolation_level=None)
        database.execute(f"PRAGMA journal_mode = {self.journal}")
        database.execute(f"PRAGMA synchronous = {self.synchronous}")
        self.acknowledged = 0
        for row in self.rows():
            database.execute("REPLACE INTO t VALUES (?, ?)", row)
            self.acknowledged += 1
        database.close()

    def table(self, folder):
        """All rows of an intact database."""
        database = sqlite3.connect(os.path.join(folder, "app.db"))
        (integrity,) = database.execute("PRAGMA integrity_check").fetchone()
        if integrity != "ok":
            raise Failure(f"SQLite finds damage: {integrity}")
        rows = dict(database.execute("SELECT k, v FROM t"))
        database.close()
        return rows

    def digest(self, folder, aside):
        return hashlib.sha256(repr(sorted(self.table(folder).items())).encode()).hexdigest()

    def after_kill(self, folder, aside):
        """The table is as after a number of transactions: all acknowledged ones if each was synced, and at most one more."""
        found = self.table(folder)
        table, number = {}, 0
        matches = [0] if found == table else []
        for number, (key, value) in enumerate(self.rows(), 1):
            if number > self.acknowledged + 1:
                break
            table[key] = value
            # Comparing everything each time would take minutes.
            if len(table) == len(found) and found.get(key) == value and found == table:
                matches.append(number)
        self.promised = self.acknowledged if self.synchronous == "full" else None
        least = self.promised or 0
        if not any(match >= least for match in matches):
            raise Failure(f"SQLite acknowledged {self.acknowledged} transactions; the table is as after {matches or 'none of them'}")


class RocksDb(Program):
    """RocksDB's db_bench: a store that never writes the same page twice, but compacts."""

    tools = {"db_bench": "rocksdb-tools", "ldb": "rocksdb-tools"}

    def about(self):
        return f"RocksDB's db_bench: {self.keys():,} values of 800 bytes, overwritten and compacted"

    def keys(self):
        return int(120_000 * self.scale)

    def bench(self, folder, benchmarks, *more):
        sizes = ["--write_buffer_size=8388608", "--target_file_size_base=8388608", "--max_bytes_for_level_base=33554432"]
        given = [f"--num={self.keys()}", "--value_size=800", "--compression_type=none", "--seed=1", *sizes, *more]
        direct = "--use_direct_io_for_flush_and_compaction=true"
        return command("db_bench", f"--benchmarks={benchmarks}", f"--db={os.path.join(folder, 'rocks')}", direct, *given)

    def run(self, folder, aside):
        self.bench(folder, "fillrandom,overwrite,compact")

    def digest(self, folder, aside):
        self.bench(folder, "readseq", "--use_existing_db=1", "--threads=1", "--verify_checksum=1")
        told = command("ldb", f"--db={os.path.join(folder, 'rocks')}", "dump", "--count_only")
        found = re.search(r"Keys in range: (\d+)", told)
        if not found:
            raise Failure(f"ldb counts no keys:\n{told}")
        return found[1]

    def after_kill(self, folder, aside):
        # Its log is not synced, so losses are expected; existing data must match their checksums.
        if os.path.exists(os.path.join(folder, "rocks", "CURRENT")):
            self.bench(folder, "readseq", "--use_existing_db=1", "--threads=1", "--verify_checksum=1")
