"""A throwaway PostgreSQL cluster of any supported major."""

import os
import signal
import subprocess
import time

import psycopg2

from . import paths
from .process import (
    Timeout,
    free_port,
    give_to_server_user,
    make_dir,
    remove_dir,
    run,
    spawn,
    stop,
    tail,
    wait_until,
)

SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "12",
    "max_replication_slots": "12",
    "max_prepared_transactions": "10",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "fsync": "off",  # the machine does not lose power during a test
    "autovacuum_naptime": "5s",
    "log_min_messages": "warning",
    "timezone": "Europe/Vienna",  # not the UTC that walshadow renders in
    "max_wal_size": "2GB",
}


class Postgres:
    """One cluster in a temporary directory, listening on a unix socket and on 127.0.0.1.

    Trust authentication for user `postgres`; role `walshadow` has what the contract asks of a
    source and the password `secret`, which TCP connections must give.
    """

    def __init__(self, major=15, settings=None, initdb=(), directory=None):
        self.major = major
        self.bin = paths.postgres_bin(major)
        if not (self.bin / "postgres").exists():
            raise AssertionError(f"PostgreSQL {major} is not in {self.bin}: run script/setup")
        self.base = directory or make_dir("ws-pg-")
        self.data = os.path.join(self.base, "data")
        self.log = os.path.join(self.base, "log")
        self.port = free_port()
        self.process = None
        self.workloads = []
        # --no-sync and C locale: fast, and the text of every value independent of the machine.
        run([self.bin / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync",
             "-E", "UTF8", "--locale=C", *initdb], cwd=self.base)
        merged = {**SETTINGS, **(settings or {})}
        with open(os.path.join(self.data, "postgresql.conf"), "a") as f:
            f.write(f"\nport = {self.port}\nunix_socket_directories = '{self.base}'\n")
            f.write("listen_addresses = '127.0.0.1'\n")
            for name, value in merged.items():
                f.write(f"{name} = '{value}'\n")
        with open(os.path.join(self.data, "pg_hba.conf"), "w") as f:
            f.write("local all all trust\nlocal replication all trust\n")
            f.write("host all all 127.0.0.1/32 scram-sha-256\n")
            f.write("host replication all 127.0.0.1/32 scram-sha-256\n")

    # -- server -----------------------------------------------------------------------------

    def start(self, timeout=60):
        """Starts the server and waits until it accepts connections. Returns self."""
        log = open(self.log, "ab")
        give_to_server_user(self.log)
        self.process = spawn(
            [self.bin / "postgres", "-D", self.data],
            death_signal=signal.SIGQUIT,
            stdout=log,
            stderr=log,
            cwd=self.base,
        )
        log.close()

        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"PostgreSQL {self.major} left:\n{tail(self.log)}")
            try:
                self.connect("postgres").close()
                return True
            except psycopg2.OperationalError:
                return False

        wait_until(ready, timeout, lambda: f"PostgreSQL not ready\n{tail(self.log)}")
        if not self.sql("SELECT 1 FROM pg_roles WHERE rolname = 'walshadow'"):
            self.sql(
                "CREATE ROLE walshadow LOGIN REPLICATION PASSWORD 'secret';"
                "GRANT pg_read_all_data, pg_monitor TO walshadow"
            )
        return self

    def stop(self, mode="fast", timeout=60):
        """mode: fast, immediate (a crash) or smart. Returns the seconds it took."""
        started = time.monotonic()
        numbers = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "smart": signal.SIGTERM}
        if self.process is not None:
            stop(self.process, numbers[mode], timeout)
            self.process = None
        return time.monotonic() - started

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def close(self):
        """Ends workloads and server and removes everything."""
        for workload in self.workloads:
            workload.close()
        try:
            self.stop("immediate")
        finally:
            remove_dir(self.base)

    def __enter__(self):
        if self.process is None:
            self.start()
        return self

    def __exit__(self, *_):
        self.close()

    # -- SQL --------------------------------------------------------------------------------

    def connect(self, dbname="app", user="postgres", autocommit=True, **extra):
        connection = psycopg2.connect(
            host=self.base, port=self.port, dbname=dbname, user=user, **extra
        )
        connection.autocommit = autocommit
        return connection

    def sql(self, text, args=None, dbname="postgres"):
        """Runs statements; returns the rows of the last one, or None if it has none."""
        connection = self.connect(dbname)
        try:
            with connection.cursor() as cursor:
                cursor.execute(text, args)
                return cursor.fetchall() if cursor.description else None
        finally:
            connection.close()

    def app(self, text, args=None):
        """sql() in the database `app`, which the tests replicate."""
        return self.sql(text, args, dbname="app")

    def create_app(self, name="app", options=""):
        self.sql(f'CREATE DATABASE "{name}" {options}')
        return self

    def lsn(self):
        """End of WAL that has been inserted."""
        return self.sql("SELECT pg_current_wal_insert_lsn()::text")[0][0]

    def url(self, dbname="app", user="walshadow"):
        """libpq URL over the unix socket."""
        host = self.base.replace("/", "%2F")
        return f"postgresql://{user}@{host}:{self.port}/{dbname}"

    def tcp_url(self, dbname="app", user="walshadow", password="secret"):
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{dbname}"

    # -- pgbench ----------------------------------------------------------------------------

    def pgbench_init(self, scale=1, dbname="app"):
        run([paths.CLIENT_BIN / "pgbench", "-i", "-q", "-s", scale, "-h", self.base,
             "-p", self.port, "-U", "postgres", dbname], timeout=300)

    def pgbench(self, *args, dbname="app", seconds=None, clients=4, rate=None, script=None):
        """Starts pgbench in the background and returns it (class Pgbench)."""
        argv = [paths.CLIENT_BIN / "pgbench", "-h", self.base, "-p", self.port, "-U", "postgres",
                "-c", clients, "-j", min(clients, 2), "-T", seconds or 3600]
        if rate:
            argv += ["-R", rate]
        if script:
            argv += ["-n", "-f", script]
        workload = Pgbench([*argv, *args, dbname], os.path.join(self.base, "pgbench.log"))
        self.workloads.append(workload)
        return workload


class Pgbench:
    """A running pgbench. It must not end by itself before its time."""

    def __init__(self, argv, log):
        self.log = log
        self.started = time.monotonic()
        with open(log, "ab") as f:
            give_to_server_user(log)
            self.process = spawn(argv, stdout=f, stderr=f)

    def stop(self):
        """Ends the run; an earlier end with an error is an error of the test."""
        if self.process.poll() not in (None, 0):
            raise AssertionError(f"pgbench ended with {self.process.returncode}\n{tail(self.log)}")
        self.close()

    def wait(self, timeout):
        """Waits for a run with a fixed number of seconds or transactions."""
        if self.process.wait(timeout) != 0:
            raise AssertionError(f"pgbench ended with {self.process.returncode}\n{tail(self.log)}")

    def close(self):
        if self.process.poll() is None:
            try:
                stop(self.process, signal.SIGTERM, 10)
            except (Timeout, subprocess.TimeoutExpired):
                pass
