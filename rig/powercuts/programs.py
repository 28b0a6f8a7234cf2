"""Workloads of rig/torture's programs, and checks of their data.

    programs.py load PROGRAM OPTION...      works in $DIR, and writes a number to $MARKS for each acknowledged item
    programs.py check PROGRAM OPTION...     checks $DIR after a cut; the last line is the verdict

The check's last line is `ok`, `last: ...` (only the last acknowledged item is missing), `tail: ...` (the last ones are), or `corrupt: ...`.
Exit code 0 is for `ok` alone: the promises of programs are in rig/torture, not here.
"""

import hashlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

DIR = os.environ["DIR"]
# Seconds between two steps: without them a program that never syncs would end before any writeback.
PACE = 0.008


def mark(number):
    with open(os.environ["MARKS"], "w", encoding="ascii") as marks:
        marks.write(f"{number}\n")


def acknowledged():
    with open(os.environ["MARKS"], encoding="ascii") as marks:
        return max((int(line) for line in marks), default=0)


class Found(Exception):
    """A verdict."""


def corrupt(what):
    raise Found(f"corrupt: {what}")


def compare(present):
    """Compares the numbers found with those acknowledged, from 1 on; more may be present, since acknowledgement comes after the operation."""
    last = acknowledged()
    missing = sorted(set(range(1, last + 1)) - set(present))
    if not missing:
        raise Found("ok")
    if missing != list(range(missing[0], last + 1)) or any(number > last for number in present):
        corrupt("something older is missing")
    if len(missing) == 1:
        raise Found("last: the last acknowledged one is missing")
    raise Found(f"tail: {len(missing)} acknowledged ones are missing")


def content(number, size=1500):
    """Bytes of a number, unique to it."""
    return hashlib.shake_128(str(number).encode()).digest(size)


# SQLite: OPTIONS are journal_mode and synchronous.


def sqlite(mode, synchronous):
    import sqlite3

    db = sqlite3.connect(f"{DIR}/t.db", isolation_level=None)
    db.execute(f"pragma journal_mode={mode}")
    db.execute(f"pragma synchronous={synchronous}")
    return db


def load_sqlite(mode, synchronous):
    db = sqlite(mode, synchronous)
    db.execute("create table t (id integer primary key, version, body)")
    for number in range(1, 61):
        db.execute("begin")
        db.execute("insert into t values (?, 0, ?)", (number, content(f"{number}.0")))
        # Rows in the middle change, so that old pages are written again.
        for old in (number * 7 % 60, number * 11 % 60):
            row = db.execute("select version from t where id = ?", (old,)).fetchone()
            if row:
                version = row[0] + 1
                db.execute("update t set version = ?, body = ? where id = ?", (version, content(f"{old}.{version}"), old))
        db.execute("commit")
        mark(number)
        time.sleep(PACE)


def check_sqlite(mode, synchronous):
    import sqlite3

    if not os.path.exists(f"{DIR}/t.db"):
        compare([])
    try:
        db = sqlite(mode, synchronous)
        if db.execute("pragma integrity_check").fetchone()[0] != "ok":
            corrupt("integrity_check")
        if not db.execute("select 1 from sqlite_master").fetchone():
            compare([])
        rows = db.execute("select id, version, body from t").fetchall()
    except sqlite3.DatabaseError as error:
        corrupt(str(error))
    if any(body != content(f"{number}.{version}") for number, version, body in rows):
        corrupt("a row that was never written")
    compare([row[0] for row in rows])


# LevelDB and LMDB: OPTION is sync or nosync.


def load_leveldb(sync):
    import plyvel

    db = plyvel.DB(f"{DIR}/db", create_if_missing=True, write_buffer_size=64 << 10)
    for number in range(1, 201):
        db.put(b"%d" % number, content(number), sync=sync == "sync")
        mark(number)
        time.sleep(PACE)


def check_leveldb(_):
    import plyvel

    if not os.path.exists(f"{DIR}/db"):
        compare([])
    try:
        rows = list(plyvel.DB(f"{DIR}/db", create_if_missing=True).iterator(verify_checksums=True))
    except (plyvel.Error, OSError) as error:
        corrupt(str(error).replace(DIR, ""))
    if any(body != content(int(number)) for number, body in rows):
        corrupt("a value that was never written")
    compare([int(number) for number, _ in rows])


def load_lmdb(sync):
    import lmdb

    env = lmdb.open(f"{DIR}/db", map_size=32 << 20, sync=sync == "sync", metasync=sync == "sync")
    for number in range(1, 121):
        with env.begin(write=True) as transaction:
            transaction.put(b"%d" % number, content(number))
            transaction.delete(b"%d" % (number - 40))
        mark(number)
        time.sleep(PACE)


def check_lmdb(_):
    import lmdb

    if not os.path.exists(f"{DIR}/db/data.mdb"):
        compare([])
    try:
        with lmdb.open(f"{DIR}/db", map_size=32 << 20).begin() as transaction:
            rows = {int(number): body for number, body in transaction.cursor()}
    except (lmdb.Error, ValueError) as error:
        corrupt(str(error).replace(DIR, ""))
    if any(body != content(number) for number, body in rows.items()):
        corrupt("a value that was never written")
    # All but the last forty were deleted.
    last = max(rows, default=0)
    if sorted(rows) != list(range(max(last - 39, 1), last + 1)):
        corrupt("keys of different transactions")
    compare(range(1, last + 1))


# Redis: OPTION is appendfsync.


class Redis:
    """A server of our own, on a socket in a folder of our own."""

    def __init__(self, appendfsync):
        self.scratch = tempfile.TemporaryDirectory()
        path = f"{self.scratch.name}/socket"
        options = ["--port", "0", "--unixsocket", path, "--dir", DIR, "--appendonly", "yes", "--save", ""]
        self.log = open(f"{self.scratch.name}/log", "w+", encoding="utf-8")
        options += ["--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0"]
        self.server = subprocess.Popen(["redis-server", *options], stdout=self.log, stderr=self.log)
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(500):
            if self.server.poll() is not None:
                corrupt("refuses to start: " + self.words())
            try:
                self.socket.connect(path)
                break
            except OSError:
                time.sleep(0.02)
        self.answers = self.socket.makefile("rb")

    def words(self):
        self.log.seek(0)
        lines = [line for line in self.log if " # " in line]
        return lines[-1].split(" # ")[-1].strip().replace(DIR, "") if lines else "without a word"

    def ask(self, *words):
        try:
            self.socket.sendall((" ".join(words) + "\r\n").encode())
            line = self.answers.readline().decode().strip()
        except ConnectionError:
            line = ""
        if not line:
            # It listens before it has read its files.
            self.server.wait()
            corrupt("refuses to start: " + self.words())
        if line.startswith("$") and line != "$-1":
            line = self.answers.readline().decode().strip()
        return line

    def end(self):
        self.server.terminate()
        self.server.wait()


def load_redis(appendfsync):
    server = Redis(appendfsync)
    for number in range(1, 201):
        if server.ask("SET", "n", str(number)) != "+OK":
            sys.exit("redis does not set")
        server.ask("SET", f"k{number}", content(number, 200).hex())
        mark(number)
        if number % 50 == 25:
            server.ask("BGREWRITEAOF")
        time.sleep(0.005)
    server.end()


def check_redis(appendfsync):
    server = Redis(appendfsync)
    for _ in range(500):
        answer = server.ask("GET", "n")
        if not answer.startswith("-LOADING"):
            break
        time.sleep(0.02)
    keys = server.ask("DBSIZE")
    server.end()
    last = int(answer) if answer.isdigit() else 0
    if last and int(keys.lstrip(":")) not in (last, last + 1):
        corrupt("keys are missing")
    compare(range(1, last + 1))


# Git: no options; git syncs everything that it can.


def git(*words):
    options = ["-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "user.name=n", "-c", "user.email=e@e"]
    command = ["git", *options, "-c", "safe.directory=*", "-c", "gc.auto=0", "-C", f"{DIR}/r", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def load_git():
    subprocess.run(["git", "init", "-q", "-b", "main", f"{DIR}/r"], check=True)
    for number in range(1, 16):
        with open(f"{DIR}/r/file", "wb") as file:
            file.write(content(number))
        git("add", "file")
        if git("commit", "-q", "-m", str(number)).returncode:
            sys.exit("git does not commit")
        mark(number)


def check_git():
    if not os.path.exists(f"{DIR}/r/.git"):
        compare([])
    for name in ("HEAD", "config"):
        path = f"{DIR}/r/.git/{name}"
        if acknowledged() and (not os.path.exists(path) or os.path.getsize(path) == 0):
            corrupt(f".git/{name} is empty or missing")
    subject = git("log", "-1", "--format=%s").stdout.strip()
    if subject:
        done = git("fsck", "--full", "--no-dangling")
        if done.returncode:
            corrupt("fsck: " + (done.stderr.splitlines() or ["?"])[0][:40])
    compare(range(1, int(subject or 0) + 1))


# RocksDB: OPTION is sync or nosync.


def rocksdb():
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(64 << 10)
    return rocksdict.Rdict(f"{DIR}/db", options=options)


def load_rocksdb(sync):
    import rocksdict

    db = rocksdb()
    write = rocksdict.WriteOptions()
    write.sync = sync == "sync"
    for number in range(1, 201):
        db.put(b"%d" % number, content(number), write_opt=write)
        mark(number)
        time.sleep(PACE)
    db.close()


def check_rocksdb(_):
    if not os.path.exists(f"{DIR}/db"):
        compare([])
    try:
        db = rocksdb()
        rows = list(db.items())
        db.close()
    except Exception as error:  # The module's exceptions have no common class.
        corrupt(str(error).splitlines()[0].replace(DIR, ""))
    if any(body != content(int(number)) for number, body in rows):
        corrupt("a value that was never written")
    compare([int(number) for number, _ in rows])


# PostgreSQL: OPTION is the value of fsync.


class Postgres:
    """A server of our own, not as root, on a socket in a folder of our own."""

    USER = 65534
    AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]

    def __init__(self, fsync, *more):
        self.scratch = tempfile.TemporaryDirectory()
        os.chown(self.scratch.name, self.USER, self.USER)
        options = ["-D", f"{DIR}/pg", "-k", self.scratch.name, "-c", "listen_addresses=", "-c", f"fsync={fsync}"]
        options += ["-c", "max_wal_size=2MB", "-c", "min_wal_size=2MB", "-c", "checkpoint_timeout=30s", "-c", "shared_buffers=1MB"]
        options += ["-c", "unix_socket_permissions=0777", "-c", "autovacuum_naptime=1s", *more]
        self.log = open(f"{self.scratch.name}/log", "w+", encoding="utf-8")
        command = [*self.AS_USER, "postgres", *options]
        self.server = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=self.scratch.name)

    def starts(self):
        """Waits until it answers; a sentence if it ends instead."""
        while self.server.poll() is None:
            if self.psql("select 1").returncode == 0:
                return None
            time.sleep(0.05)
        self.log.seek(0)
        words = [line.split(":  ", 1)[-1].strip() for line in self.log if "PANIC" in line or "FATAL" in line]
        return words[-1] if words else "without a word"

    def command(self, *words):
        return ["psql", "-h", self.scratch.name, "-U", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1", *words]

    def psql(self, sql):
        command = self.command("-c", sql, "postgres")
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def end(self):
        self.server.terminate()
        self.server.wait()


def initdb(*more):
    os.chmod(DIR, 0o777)
    with tempfile.TemporaryDirectory() as scratch:
        os.chown(scratch, Postgres.USER, Postgres.USER)
        words = ["initdb", "-D", f"{scratch}/pg", "-U", "postgres", "--no-sync", "--wal-segsize=1", "--no-locale", *more]
        subprocess.run([*Postgres.AS_USER, *words], check=True, stdout=subprocess.DEVNULL, cwd=scratch)
        into_disk(f"{scratch}/pg")


def into_disk(folder):
    """In one go, since it is not the preparation that is cut."""
    subprocess.run(["cp", "-a", folder, DIR], check=True)
    subprocess.run(["sync", "-f", DIR], check=True)


def load_postgres(fsync):
    initdb()
    server = Postgres(fsync)
    if words := server.starts():
        sys.exit(f"postgres does not start: {words}")
    session = subprocess.Popen(server.command("postgres"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    session.stdin.write("create table t (id int primary key, version int, body text);\n")
    for number in range(1, 81):
        old = number * 7 % 60
        session.stdin.write(
            f"begin; insert into t values ({number}, 0, '{content(f'{number}.0').hex()}');"
            f" update t set version = version + 1 where id = {old}; commit;\n\\echo {number}\n")
        session.stdin.flush()
        if session.stdout.readline().strip() != str(number):
            sys.exit("postgres does not commit")
        mark(number)
        time.sleep(PACE)
    session.stdin.close()
    session.wait()
    server.end()


def check_postgres(fsync):
    # The server is started for the first time before anything is acknowledged.
    if not acknowledged():
        raise Found("ok")
    server = Postgres(fsync)
    try:
        if words := server.starts():
            corrupt("refuses to start: " + words.replace(DIR, ""))
        done = server.psql("set enable_seqscan=off; select id, body from t order by id")
        if "does not exist" in done.stderr:
            compare([])
        if done.returncode:
            corrupt(done.stderr.splitlines()[0].replace(DIR, ""))
        rows = [line.split("|") for line in done.stdout.splitlines()]
        if server.psql("set enable_indexscan=off; set enable_bitmapscan=off; select count(*) from t").stdout.strip() != str(len(rows)):
            corrupt("table and index differ")
        if any(body != content(f"{number}.0").hex() for number, body in rows):
            corrupt("a row that was never written")
        compare([int(number) for number, _ in rows])
    finally:
        server.end()


# Databases that write pages in place: the first OPTION switches their own protection against torn pages, on|off of PostgreSQL and 1|0 of
# MariaDB, whose second one is innodb_flush_method. Every transaction changes rows that
# its number determines, and stores the number. So the number tells what each row must hold.

PAGE_ROWS = 5000
PAGE_TRANSACTIONS = 150
PAGE_CHANGES = 60


def changed_rows(number):
    return random.Random(number).sample(range(1, PAGE_ROWS + 1), PAGE_CHANGES)


def row_body(row, version):
    return content(f"{row}.{version}", 500).hex()


def table_statements():
    yield "create table last (number int)"
    yield "insert into last values (0)"
    yield "create table t (id int primary key, version int, body varchar(1000))"
    for first in range(1, PAGE_ROWS + 1, 100):
        rows = (f"({row}, 0, '{row_body(row, 0)}')" for row in range(first, first + 100))
        yield f"insert into t values {', '.join(rows)}"


def change_pages(client, begin):
    """Transactions of a client that reads statements; a mark for each that it has committed."""
    session = subprocess.Popen(client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    versions = [0] * (PAGE_ROWS + 1)
    for number in range(1, PAGE_TRANSACTIONS + 1):
        statements = [begin]
        for row in changed_rows(number):
            versions[row] += 1
            statements.append(f"update t set version = {versions[row]}, body = '{row_body(row, versions[row])}' where id = {row}")
        statements += [f"update last set number = {number}", "commit", "select number from last"]
        session.stdin.write(";\n".join(statements) + ";\n")
        session.stdin.flush()
        if session.stdout.readline().strip() != str(number):
            sys.exit("the database does not commit")
        mark(number)
    session.stdin.close()
    session.wait()


def compare_pages(query):
    """The rows after a cut, read by a function from a statement to lines of fields."""
    last = int(query("select number from last")[0][0])
    versions = [0] * (PAGE_ROWS + 1)
    for number in range(1, last + 1):
        for row in changed_rows(number):
            versions[row] += 1
    expected = [[str(row), str(versions[row]), row_body(row, versions[row])] for row in range(1, PAGE_ROWS + 1)]
    if query("select id, version, body from t order by id") != expected:
        corrupt("rows that no transaction left")
    compare(range(1, last + 1))


def load_pgpages(full_page_writes):
    initdb("--data-checksums")
    server = Postgres("on", "-c", f"full_page_writes={full_page_writes}")
    if words := server.starts():
        sys.exit(f"postgres does not start: {words}")
    for statement in table_statements():
        server.psql(statement)
    server.psql("checkpoint")
    change_pages(server.command("postgres"), "begin")
    server.end()


def check_pgpages(full_page_writes):
    if not acknowledged():
        raise Found("ok")
    server = Postgres("on", "-c", f"full_page_writes={full_page_writes}")

    def query(statement):
        done = server.psql(statement)
        if done.returncode:
            corrupt(done.stderr.splitlines()[0].replace(DIR, ""))
        return [line.split("|") for line in done.stdout.splitlines()]

    try:
        if words := server.starts():
            corrupt("refuses to start: " + words.replace(DIR, ""))
        # All pages, by their checksums, and then the rows by the index.
        query("select count(*) from t")
        query("set enable_seqscan=off; select max(version) from t where id > 0")
        compare_pages(query)
    finally:
        server.end()


class MariaDb:
    """A server of our own, on a socket in a folder of our own."""

    def __init__(self, folder, doublewrite, flush_method):
        self.scratch = tempfile.TemporaryDirectory()
        self.socket = f"{self.scratch.name}/s"
        options = [f"--datadir={folder}", f"--socket={self.socket}", f"--pid-file={self.scratch.name}/pid", "--user=root"]
        options += [f"--innodb-flush-method={flush_method}", f"--innodb-doublewrite={doublewrite}", "--innodb-flush-log-at-trx-commit=1"]
        # A small cache and log, and no waiting, so that pages are written all the time.
        options += ["--innodb-buffer-pool-size=6M", "--innodb-log-file-size=4M", "--innodb-max-dirty-pages-pct=0"]
        options += ["--innodb-flush-neighbors=0", "--skip-networking", "--skip-log-bin", "--skip-slave-start"]
        self.log = open(f"{self.scratch.name}/log", "w+", encoding="utf-8", errors="replace")
        self.server = subprocess.Popen(["mariadbd", "--no-defaults", *options], stdout=self.log, stderr=self.log)

    def starts(self):
        """Waits until it answers; a sentence if it ends instead."""
        while self.server.poll() is None:
            if self.run("select 1").returncode == 0:
                return None
            time.sleep(0.05)
        self.log.seek(0)
        words = [line.split("[ERROR]", 1)[1].strip() for line in self.log if "[ERROR]" in line]
        return words[0] if words else "without a word"

    def command(self, *words):
        return ["mariadb", "--no-defaults", "-S", self.socket, "-u", "root", "-N", "-B", "-n", "--skip-reconnect", *words]

    def run(self, statement):
        return subprocess.run(self.command("-e", statement, "test"), capture_output=True, text=True, check=False)

    def query(self, statement):
        done = self.run(statement)
        if done.returncode:
            corrupt((done.stderr.splitlines() or ["the client fails"])[0])
        return [line.split("\t") for line in done.stdout.splitlines()]

    def end(self):
        self.server.terminate()
        self.server.wait()


def load_mariadb(doublewrite, flush_method):
    with tempfile.TemporaryDirectory() as scratch:
        options = [f"--datadir={scratch}/data", "--user=root", "--auth-root-authentication-method=normal", "--innodb-log-file-size=4M"]
        subprocess.run(["mariadb-install-db", "--no-defaults", *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server = MariaDb(f"{scratch}/data", doublewrite, flush_method)
        if words := server.starts():
            sys.exit(f"mariadbd does not start: {words}")
        subprocess.run(server.command("test"), input=";\n".join(table_statements()) + ";\n", text=True, check=True)
        server.end()
        into_disk(f"{scratch}/data")

    server = MariaDb(f"{DIR}/data", doublewrite, flush_method)
    if words := server.starts():
        sys.exit(f"mariadbd does not start: {words}")
    change_pages(server.command("test"), "start transaction")
    server.end()


def check_mariadb(doublewrite, flush_method):
    if not acknowledged():
        raise Found("ok")
    server = MariaDb(f"{DIR}/data", doublewrite, flush_method)
    try:
        if words := server.starts():
            corrupt("refuses to start: " + words.replace(DIR, ""))
        checked = server.query("check table t, last")
        if any(line[-1] != "OK" for line in checked):
            corrupt(" ".join(checked[0][2:]))
        compare_pages(server.query)
    finally:
        # The disk is of no further use, so a clean shutdown is a waste of time.
        server.server.kill()
        server.server.wait()


# Stores that are libraries: small programs of this project, which rig/torture builds. OPTION is sync or nosync.


def run_store(verb, *words):
    folder = os.environ["STORES"]
    program = f"{folder}/bbolt" if words[0] == "bbolt" else f"{folder}/stores"
    arguments = words[1:] if words[0] == "bbolt" else words
    done = subprocess.run([program, verb, *arguments], capture_output=True, text=True, check=False)
    line = (done.stdout.strip().splitlines() or ["corrupt: the program crashes"])[-1].replace(DIR, "")
    if verb == "load":
        sys.exit(done.returncode and f"{words[0]}: {done.stderr.strip()}")
    raise Found(line if done.returncode in (0, 1) else "corrupt: the program crashes")


def load_store(*words):
    run_store("load", *words)


def check_store(*words):
    run_store("check", *words)


# A file written and renamed without fsync: OPTION is over (always one name) or new (always a new one).


def load_rename(kind):
    for number in range(1, 401):
        with open(f"{DIR}/tmp", "wb") as file:
            file.write(b"%06d\n" % number * 3000)
        os.rename(f"{DIR}/tmp", f"{DIR}/conf" if kind == "over" else f"{DIR}/conf{number}")
        mark(number)
        time.sleep(0.001)


def check_rename(_):
    present = []
    for name in os.listdir(DIR):
        if name.startswith("conf"):
            with open(f"{DIR}/{name}", "rb") as file:
                data = file.read()
            if not data:
                corrupt("an empty file")
            if b"\0" in data:
                corrupt("zeroes")
            if not data[:6].isdigit() or data != data[:7] * 3000:
                corrupt("a part of a file, or parts of several")
            present.append(int(data[:6]))
    # With one name only the newest version counts; with many, any may be missing.
    last = max(present, default=0)
    compare(range(1, last + 1))


def main():
    verb, program, *options = sys.argv[1:]
    try:
        globals()[f"{verb}_{program}"](*options)
    except Found as found:
        print(found)
        sys.exit(str(found) != "ok")


if __name__ == "__main__":
    main()
