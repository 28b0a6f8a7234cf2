"""Database servers whose files are on the device: MariaDB with sysbench, PostgreSQL with pgbench.

If the device will be killed, additional clients commit rows, and each acknowledged commit must be present afterwards (`ledger`).

Invariants: a started server is ended. Sockets and logs are outside the file system under test.
"""

import contextlib
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import time

from ledger import SETUP, Ledger
from programs import Program
from served import Failure, command

START_SECONDS = 60
FLUSH_SECONDS = 120


class MariaDb(Program):
    """InnoDB with or without its doublewrite buffer, sysbench's oltp_write_only."""

    tools = {"mariadbd": "mariadb-server", "sysbench": "sysbench"}

    def __init__(self, name, short, doublewrite):
        super().__init__(name, short)
        self.doublewrite = doublewrite
        self.rows = max(5000, int(60_000 * self.scale))
        self.events = int(6000 * self.scale)
        self.server = None

    def about(self):
        switch = "on" if self.doublewrite else "off"
        return f"MariaDB, doublewrite {switch}: sysbench oltp_write_only, 4 tables of {self.rows:,} rows, {self.events:,} transactions"

    def socket(self, aside):
        return os.path.join(aside, "s")

    def start(self, folder, aside):
        with open(os.path.join(aside, "mariadb.log"), "a") as log:
            given = [f"--datadir={folder}/data", f"--socket={self.socket(aside)}", f"--pid-file={aside}/pid", "--user=root"]
            innodb = ["--innodb-buffer-pool-size=24M", "--innodb-log-file-size=48M", "--innodb-flush-method=O_DIRECT"]
            durable = ["--innodb-flush-log-at-trx-commit=1", f"--innodb-doublewrite={int(self.doublewrite)}"]
            # The amount written must not depend on the machine's speed: pages are flushed when room is needed, not periodically.
            steady = ["--innodb-adaptive-flushing=0", "--innodb-flush-neighbors=0", "--innodb-max-dirty-pages-pct=90"]
            given += [*innodb, *durable, *steady, "--skip-networking", "--skip-log-bin"]
            self.server = subprocess.Popen(["mariadbd", "--no-defaults", *given], stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.server.poll() is None:
            if self.admin(aside, "ping", check=False):
                return
            time.sleep(0.1)
        with open(os.path.join(aside, "mariadb.log")) as log:
            raise Failure(f"MariaDB does not start:\n{log.read()[-2000:]}")

    def admin(self, aside, verb, check=True):
        given = ["mariadb-admin", "--no-defaults", "-S", self.socket(aside), "-u", "root", verb]
        return subprocess.run(given, capture_output=True, check=check).returncode == 0

    def stop(self, aside):
        self.admin(aside, "shutdown")
        self.server.wait(timeout=120)
        self.server = None

    def query(self, aside, text):
        return command("mariadb", "--no-defaults", "-S", self.socket(aside), "-u", "root", "-N", "-e", text)

    def sysbench(self, aside, verb, *more):
        where = ["--db-driver=mysql", f"--mysql-socket={self.socket(aside)}", "--mysql-user=root"]
        command("sysbench", "oltp_write_only", *where, "--tables=4", f"--table-size={self.rows}", "--rand-seed=1", *more, verb)

    def prepare(self, folder, aside):
        install = [f"--datadir={folder}/data", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"]
        command("mariadb-install-db", "--no-defaults", *install, "--innodb-log-file-size=48M")
        self.start(folder, aside)
        self.query(aside, "CREATE DATABASE sbtest")
        self.sysbench(aside, "prepare")
        if self.killed:
            self.query(aside, "; ".join(["USE sbtest", *SETUP]))
        self.stop(aside)

    def run(self, folder, aside):
        self.start(folder, aside)
        with self.committing(aside):
            self.sysbench(aside, "run", "--threads=1", f"--events={self.events}", "--time=0")
        self.work = self.pages_written(aside)
        self.stop(aside)

    def committing(self, aside):
        """Clients whose commits must be present after a kill."""
        if not self.killed:
            return contextlib.nullcontext()
        client = ["mariadb", "--no-defaults", "-S", self.socket(aside), "-u", "root", "-N", "-B", "-n", "--skip-reconnect", "sbtest"]
        return Ledger(aside, client).writing()

    def after_kill(self, folder, aside):
        self.start(folder, aside)
        self.promised = Ledger(aside).check(lambda text: self.query(aside, f"USE sbtest; {text}").splitlines(), "\t")
        self.stop(aside)
        self.digest(folder, aside)

    def pages_written(self, aside):
        """Pages that InnoDB wrote to its tables, after all are written: their number also depends on the machine's speed."""
        self.query(aside, "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0; SET GLOBAL innodb_max_dirty_pages_pct = 0")
        until = time.monotonic() + FLUSH_SECONDS
        while self.status(aside, "Innodb_buffer_pool_pages_dirty") > 0:
            if time.monotonic() > until:
                raise Failure(f"InnoDB has dirty pages after {FLUSH_SECONDS} s")
            time.sleep(0.1)
        return self.status(aside, "Innodb_pages_written")

    def status(self, aside, name):
        return int(self.query(aside, f"SHOW GLOBAL STATUS LIKE '{name}'").split()[1])

    def digest(self, folder, aside):
        self.start(folder, aside)
        tables = [f"sbtest.sbtest{number}" for number in range(1, 5)]
        checked = self.query(aside, f"CHECK TABLE {', '.join(tables)}").strip().splitlines()
        if len(checked) != len(tables) or not all(line.endswith("OK") for line in checked):
            raise Failure(f"MariaDB finds damage: {checked}")
        # Each transaction deletes a row and inserts it again.
        counts = [self.query(aside, f"SELECT COUNT(*) FROM {table}").strip() for table in tables]
        self.stop(aside)
        if set(counts) != {str(self.rows)}:
            raise Failure(f"MariaDB's tables have {counts} rows, not {self.rows} each")
        return " ".join(counts)

    def close(self):
        if self.server and self.server.poll() is None:
            self.server.kill()
            self.server.wait()


class Postgres(Program):
    """PostgreSQL with or without full pages in its log, pgbench."""

    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def __init__(self, name, short, full_page_writes):
        super().__init__(name, short)
        self.full_page_writes = full_page_writes
        self.factor = max(2, int(12 * self.scale))
        self.transactions = int(6000 * self.scale)
        self.server = None

    def about(self):
        switch = "on" if self.full_page_writes else "off"
        return f"PostgreSQL, full_page_writes {switch}: pgbench, scale {self.factor}, 2 clients with {self.transactions:,} transactions each"

    @staticmethod
    def programs():
        """Debian's folder of the newest version."""
        found = glob.glob("/usr/lib/postgresql/*/bin")
        return max(found, key=lambda path: int(re.search(r"/(\d+)/bin$", path)[1]), default=None)

    @property
    def tools(self):
        return {} if self.programs() and shutil.which("setpriv") else {"postgres": "postgresql"}

    def pg(self, program, *arguments):
        """The server refuses to run as root."""
        return command(*self.user, os.path.join(self.programs(), program), *arguments, cwd="/")

    def start(self, folder, aside):
        log = os.path.join(aside, "postgres.log")
        with open(log, "a") as lines:
            given = [*self.user, os.path.join(self.programs(), "postgres"), "-D", os.path.join(folder, "data")]
            self.server = subprocess.Popen(given, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines, cwd="/")
        until = time.monotonic() + START_SECONDS
        ready = [os.path.join(self.programs(), "pg_isready"), "-q", "-h", aside]
        while time.monotonic() < until and self.server.poll() is None:
            if subprocess.run(ready, cwd="/", check=False).returncode == 0:
                return
            time.sleep(0.05)
        with open(log) as lines:
            raise Failure(f"PostgreSQL does not start:\n{lines.read()[-2000:]}")

    def stop(self):
        """Its fast shutdown; the file system is free once the process has ended."""
        self.server.send_signal(signal.SIGINT)
        self.server.wait(timeout=120)
        self.server = None

    def prepare(self, folder, aside):
        owner = pwd.getpwnam("postgres")
        data = os.path.join(folder, "data")
        os.mkdir(data)
        for path in (data, aside):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        self.pg("initdb", "-D", data, "-A", "trust")
        with open(os.path.join(data, "postgresql.conf"), "a") as settings:
            settings.write(
                f"unix_socket_directories = '{aside}'\nlisten_addresses = ''\nshared_buffers = 16MB\nautovacuum = off\n"
                f"full_page_writes = {'on' if self.full_page_writes else 'off'}\n"
                # A killed server would leave files in the machine's shared memory.
                f"dynamic_shared_memory_type = {'mmap' if self.killed else 'posix'}\n"
                "max_wal_size = 64MB\nmin_wal_size = 32MB\ncheckpoint_timeout = 30s\n"
            )
        self.start(folder, aside)
        self.pg("pgbench", "-i", "-q", "-s", str(self.factor), "-h", aside, "postgres")
        if self.killed:
            self.query(aside, "; ".join(SETUP))
        self.stop()

    def run(self, folder, aside):
        self.start(folder, aside)
        with self.committing(aside):
            self.pg("pgbench", "-n", "-h", aside, "-c", "2", "-t", str(self.transactions), "--random-seed=1", "postgres")
        self.stop()

    def committing(self, aside):
        """Clients whose commits must be present after a kill."""
        if not self.killed:
            return contextlib.nullcontext()
        client = [*self.user, os.path.join(self.programs(), "psql"), "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-h", aside, "postgres"]
        return Ledger(aside, client).writing()

    def sums(self, folder, aside):
        """Every transaction adds the same amount to an account, a teller, a branch and the history: four sums that are equal, and
        the number of transactions."""
        self.start(folder, aside)
        sums = [
            self.query(aside, f"SELECT COALESCE(SUM({column}), 0) FROM {table}")
            for column, table in (
                ("abalance", "pgbench_accounts"),
                ("tbalance", "pgbench_tellers"),
                ("bbalance", "pgbench_branches"),
                ("delta", "pgbench_history"),
            )
        ]
        transactions = int(self.query(aside, "SELECT COUNT(*) FROM pgbench_history"))
        self.stop()
        if len(set(sums)) != 1:
            raise Failure(f"PostgreSQL's sums differ: {sums}")
        return sums[0], transactions

    def query(self, aside, text):
        return self.pg("psql", "-h", aside, "-At", "-c", text, "postgres").strip()

    def digest(self, folder, aside):
        total, transactions = self.sums(folder, aside)
        if transactions != 2 * self.transactions:
            raise Failure(f"PostgreSQL has {transactions} of {2 * self.transactions} transactions")
        return total

    def after_kill(self, folder, aside):
        # Its process is gone, but another may have its number by now, and PostgreSQL takes that to be its server.
        for lock in (os.path.join(folder, "data", "postmaster.pid"), *glob.glob(os.path.join(aside, ".s.PGSQL.*"))):
            with contextlib.suppress(FileNotFoundError):
                os.remove(lock)
        self.start(folder, aside)
        self.promised = Ledger(aside).check(lambda text: self.query(aside, text).splitlines(), "|")
        self.stop()
        self.sums(folder, aside)

    def close(self):
        """Kills the server, which may be unable to stop because its disk is gone."""
        if self.server and self.server.poll() is None:
            # A stopped server (SIGSTOP) starts no children while the existing ones are ended.
            self.server.send_signal(signal.SIGSTOP)
            for pid in children(self.server.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.server.kill()
            self.server.wait()


def children(parent):
    """The processes that this one has started, and that have not ended."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(pid))
    return found
