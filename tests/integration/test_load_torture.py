"""The initial load while everything happens at once, from before it begins until after it has ended."""

import io
import random
import threading
import time

import psycopg2
import pytest

from lib import parity
from lib.paths import DEBUG_BIN, MAJORS

SCHEMA = """
CREATE TABLE filler (id int PRIMARY KEY, v text);
CREATE TABLE keyed (id int PRIMARY KEY, n int, v text) WITH (autovacuum_enabled = off, fillfactor = 70);
CREATE TABLE indexed (id int PRIMARY KEY, n int, v text) WITH (autovacuum_enabled = off);
CREATE INDEX ON indexed (n);
CREATE TABLE loose (id int, n int, v text) WITH (autovacuum_enabled = off);
CREATE INDEX ON loose (id);
CREATE TABLE parts (id int, n int, v text) PARTITION BY RANGE (n);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (500);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (500) TO (MAXVALUE);
CREATE INDEX ON parts (id);
CREATE TABLE upserted (code text PRIMARY KEY, n int);
CREATE TABLE blobs (id int PRIMARY KEY, n int, body text);
CREATE TABLE loose_blobs (id int, n int, body text);
CREATE TABLE emptied (id int PRIMARY KEY, v text);
CREATE TABLE frozen (id int, v text);
CREATE UNLOGGED TABLE volatile (id int);
"""
ROWS = 3000
HOT = 150  # rows that all sessions lock and change
TABLES = ("keyed", "indexed", "loose", "parts")


class Session(threading.Thread):
    """One of eight sessions: transactions of random operations, some undone, some prepared."""

    def __init__(self, pg, seed, lane, rewrites=False):
        super().__init__(daemon=True)
        self.pg, self.lane = pg, lane
        self.rewrites = rewrites
        self.rng = random.Random(seed * 100 + lane)
        self.ending = threading.Event()
        self.error = None
        self.next_id = ROWS + 1 + lane * 1_000_000
        self.prepared = []
        self.counts = {"commit": 0, "rollback": 0, "prepare": 0, "refused": 0}

    def run(self):
        try:
            connection = self.pg.connect(autocommit=False)
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '200ms'; SET deadlock_timeout = '50ms'")
                connection.commit()
                while not self.ending.is_set():
                    self.transaction(connection, cursor)
            self.settle(connection, 0)
            connection.close()
        except Exception as error:  # raised by finish()
            self.error = error

    def finish(self):
        self.ending.set()
        self.join(60)
        if self.error is not None:
            raise self.error
        return self

    def transaction(self, connection, cursor):
        rng = self.rng
        operations = [self.insert, self.change, self.change, self.lock, self.lock, self.remove, self.savepoints,
                      self.upsert, self.large, self.lock_own]
        try:
            if self.lane == 0 and rng.random() < 0.1:
                self.vacuum(connection)
            replaces = self.lane == 1 and rng.random() < 0.2
            if replaces:
                self.replace(cursor)
            else:
                for _ in range(rng.randrange(1, 6)):
                    rng.choice(operations)(cursor)
            if rng.random() < 0.1:
                connection.rollback()
                self.counts["rollback"] += 1
            elif rng.random() < 0.1 and not replaces:  # no prepared one may hold temporary tables
                gid = f"g{self.lane}-{self.counts['prepare']}"
                self.counts["prepare"] += 1
                cursor.execute(f"PREPARE TRANSACTION '{gid}'")
                connection.commit()
                self.prepared.append(gid)
                self.settle(connection, 2)
            else:
                connection.commit()
                self.counts["commit"] += 1
        except (psycopg2.errors.LockNotAvailable, psycopg2.errors.DeadlockDetected,
                psycopg2.errors.SerializationFailure):  # a row that moved to another partition
            connection.rollback()
            self.counts["refused"] += 1

    def settle(self, connection, keep):
        """Ends prepared transactions, the oldest first, until `keep` are left."""
        connection.autocommit = True
        with connection.cursor() as cursor:
            while len(self.prepared) > keep:
                verb = "COMMIT" if self.rng.random() < 0.7 else "ROLLBACK"
                cursor.execute(f"{verb} PREPARED '{self.prepared.pop(0)}'")
        connection.autocommit = False

    def some(self):
        """A condition for a few rows, often hot ones."""
        rng = self.rng
        low = rng.randrange(1, HOT) if rng.random() < 0.6 else rng.randrange(1, ROWS)
        return f"id BETWEEN {low} AND {low + rng.randrange(0, 4)}"

    def new(self):
        self.next_id += 1
        return self.next_id

    def table(self):
        return self.rng.choice(TABLES)

    def insert(self, cursor):
        values = ", ".join(f"({self.new()}, {self.rng.randrange(1000)}, repeat('i', {self.rng.randrange(80)}))"
                           for _ in range(self.rng.randrange(1, 30)))
        cursor.execute(f"INSERT INTO {self.table()} VALUES {values}")

    def change(self, cursor):
        column = self.rng.choice(("n = n + 1", "v = md5(v)", "n = 999 - n"))
        cursor.execute(f"UPDATE {self.table()} SET {column} WHERE {self.some()}")

    def remove(self, cursor):
        cursor.execute(f"DELETE FROM {self.table()} WHERE {self.some()}")

    def lock(self, cursor):
        strength = self.rng.choice(("KEY SHARE", "KEY SHARE", "SHARE", "NO KEY UPDATE"))
        cursor.execute(f"SELECT 1 FROM {self.table()} WHERE {self.some()} FOR {strength}")

    def lock_own(self, cursor):
        """A lock, then a change of the same rows in a subtransaction: one transaction's multixact."""
        table, rows = self.table(), self.some()
        verb = self.rng.choice((f"UPDATE {table} SET n = n + 1", f"DELETE FROM {table}"))
        cursor.execute(f"SELECT 1 FROM {table} WHERE {rows} FOR SHARE; SAVEPOINT own; {verb} WHERE {rows}")
        if self.rng.random() < 0.3:
            cursor.execute("ROLLBACK TO SAVEPOINT own")

    def savepoints(self, cursor):
        for _ in range(self.rng.randrange(1, 4)):
            cursor.execute("SAVEPOINT s")
            self.insert(cursor)
            self.change(cursor)
            if self.rng.random() < 0.4:
                cursor.execute("ROLLBACK TO SAVEPOINT s")

    def upsert(self, cursor):
        action = self.rng.choice(("NOTHING", "UPDATE SET n = upserted.n + 1"))
        cursor.execute(f"INSERT INTO upserted VALUES ('u{self.rng.randrange(400)}', 0) ON CONFLICT (code) DO {action}")
        if self.rng.random() < 0.3:
            cursor.execute(f"DELETE FROM upserted WHERE code = 'u{self.rng.randrange(400)}'")

    def large(self, cursor):
        if self.rng.random() < 0.3:
            key, table = self.new(), self.rng.choice(("blobs", "loose_blobs"))
            cursor.execute(f"INSERT INTO {table} VALUES (%s, 0, %s)", (key, self.rng.randbytes(50_000).hex()))
            change = self.rng.choice(("DELETE FROM {} WHERE id = %s", "UPDATE {} SET n = n + 1 WHERE id = %s",
                                      "UPDATE {} SET body = reverse(body) WHERE id = %s"))
            cursor.execute(change.format(table), (self.rng.randrange(key - 40, key + 1),))

    def replace(self, cursor):
        """Files that come and go: TRUNCATE, COPY FREEZE, CREATE and DROP; perhaps rewrites."""
        lines = "".join(f"{self.new()}\tline\n" for _ in range(self.rng.randrange(1, 400)))
        kind = self.rng.randrange(4 if self.rewrites else 3)
        if kind == 0:
            cursor.execute("TRUNCATE emptied")
            cursor.copy_expert("COPY emptied FROM STDIN", io.StringIO(lines))
        elif kind == 1:
            cursor.execute("TRUNCATE frozen")
            cursor.copy_expert("COPY frozen FROM STDIN (FREEZE)", io.StringIO(lines))
        elif kind == 2:
            cursor.execute("DROP TABLE IF EXISTS passing; CREATE TABLE passing (id int, v text);"
                           "CREATE TEMP TABLE gone ON COMMIT DROP AS SELECT 1")
            cursor.copy_expert("COPY passing FROM STDIN", io.StringIO(lines))
        else:
            table = self.rng.choice(("emptied", "frozen"))
            cursor.execute(f"ALTER TABLE {table} ALTER v TYPE text USING upper(v)")

    def vacuum(self, connection):
        connection.autocommit = True
        with connection.cursor() as cursor:
            option = self.rng.choice(("", "(FREEZE)", "(TRUNCATE OFF)"))
            cursor.execute(f"VACUUM {option} {self.rng.choice(TABLES + ('upserted', 'emptied'))}")
        connection.autocommit = False


def long_transactions(pg):
    """Open before the load and past its end; returns them with what ends them."""
    result = []
    for n, end in enumerate(("commit", "rollback", "prepare", "commit")):
        session = pg.connect(autocommit=False)
        low = 400 + 100 * n  # rows beside those that the sessions fight for
        with session.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"SELECT 1 FROM {table} WHERE id BETWEEN {low} AND {low + 60} FOR KEY SHARE;"
                               f"SAVEPOINT a; UPDATE {table} SET v = 'long {n}' WHERE id BETWEEN {low} AND {low + 30};"
                               f"SAVEPOINT b; DELETE FROM {table} WHERE id BETWEEN {low + 31} AND {low + 40};"
                               f"INSERT INTO {table} VALUES ({-low}, {n}, 'long'); ROLLBACK TO SAVEPOINT b;"
                               f"INSERT INTO {table} VALUES ({-low - 1}, {n}, 'long')")
            if end == "prepare":
                cursor.execute("PREPARE TRANSACTION 'long'")
                session.commit()
        result.append((session, end))
    return result


def end_long(pg, transactions):
    for session, end in transactions:
        session.commit() if end == "commit" else session.rollback()
        session.close()
    pg.app("COMMIT PREPARED 'long'")


def one_round(pg, daemon, seed, before, after, rewrites=False):
    """Writers, the load, and the comparison; nothing may be stopped."""
    pg.app(SCHEMA)
    pg.app("INSERT INTO filler SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 15000) i")
    for table in TABLES:
        pg.app(f"INSERT INTO {table} SELECT i, i % 1000, md5(i::text) FROM generate_series(1, {ROWS}) i")
    sessions = [Session(pg, seed, lane, rewrites) for lane in range(8)]
    transactions = long_transactions(pg)
    for session in sessions:
        session.start()
    time.sleep(before / 2)
    pg.app("CHECKPOINT")
    time.sleep(before / 2)
    daemon.start()
    daemon.wait_state("streaming")
    time.sleep(after)
    for session in sessions:
        session.finish()
    assert sum(s.counts["commit"] for s in sessions) > 20, [s.counts for s in sessions]
    end_long(pg, transactions)
    compare(pg, daemon)


def compare(pg, daemon):
    """Tables that a transaction from before the load has changed are copied again: then all are equal."""
    def settled(status):
        return all(t["state"] in ("streaming", "dropped") for t in status["tables"] if t["name"] != "public.volatile")

    daemon.wait_status(settled, 90, "every table streams")
    found = parity.assert_equal(pg, daemon)
    assert len(found) >= 10


@pytest.mark.majors
@pytest.mark.parametrize("major", MAJORS)
def test_load_torture(sources, daemons, major):
    """One seeded round: eight sessions, long and prepared transactions, files that come and go."""
    pg = sources(major, {"max_prepared_transactions": "40"})
    one_round(pg, daemons(pg), major, before=1, after=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("major", MAJORS)
def test_load_torture_rounds(sources, daemons, major):
    """Twenty rounds, with longer times before and after and small limits in every other one."""
    for seed in range(20):
        print(f"seed {seed}")
        pg = sources(major, {"max_prepared_transactions": "40"})
        config = {"memory": {"xact_buffer_max": "64KiB"}} if seed % 2 else None
        daemon = daemons(pg, config=config)
        one_round(pg, daemon, seed, before=1 + seed % 3, after=1 + seed % 2, rewrites=seed % 3 == 0)
        daemon.stop()
        pg.close()


@pytest.mark.fault_points
def test_lost_multixact(source, daemons):
    """Nobody knows who updated a row that others had locked: its table alone is copied again."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE u (id int PRIMARY KEY);"
               "INSERT INTO t SELECT i, 0 FROM generate_series(1, 500) i; INSERT INTO u VALUES (1)")
    holder, writer = source.connect(autocommit=False), source.connect(autocommit=False)
    holder.cursor().execute("SELECT FROM t WHERE id < 20 FOR KEY SHARE")
    writer.cursor().execute("UPDATE t SET n = 1 WHERE id < 10")
    writer.commit()
    writer.cursor().execute("UPDATE t SET n = 2 WHERE id BETWEEN 10 AND 19")
    writer.rollback()
    holder.commit()
    daemon = daemons(source, binary=DEBUG_BIN, env={"WALSHADOW_TEST_LOSE_MEMBERS": "1"}).start()
    daemon.wait_state("streaming")
    daemon.wait_table("public.t", "streaming")
    again = [line for line in daemon.log_text().splitlines() if 'msg="table is copied again"' in line]
    assert len(again) == 1 and 'table="public.t"' in again[0] and "members of its multixact" in again[0]
    parity.assert_equal(source, daemon)


@pytest.mark.fault_points
def test_torn_and_empty_pages(sources, daemons):
    """Blocks that are written after the backup's start arrive torn or empty: their rows come out of the
    WAL's images."""
    pg = sources(15, {"shared_buffers": "2MB", "bgwriter_delay": "10ms", "bgwriter_lru_maxpages": "1000"})
    pg.app("CREATE TABLE t (id int PRIMARY KEY, n int, v text) WITH (fillfactor = 80);"
           "CREATE TABLE loose (id int, n int, v text); CREATE INDEX ON loose (id)")
    for table in ("t", "loose"):
        pg.app(f"INSERT INTO {table} SELECT i, 0, repeat(md5(i::text), 10) FROM generate_series(1, 40000) i")
    script = pg.base + "/script.sql"
    with open(script, "w") as f:
        f.write("\\set i random(1, 40000)\n\\set n random(1, 1000000000)\n"
                "UPDATE t SET n = n + 1 WHERE id = :i;\nUPDATE loose SET n = n + 1 WHERE id = :i;\n"
                "INSERT INTO loose SELECT :n, 1, repeat('new', 100) FROM generate_series(1, 5);\n"
                "DELETE FROM loose WHERE id = :i + 1;\n")
    writers = pg.pgbench(clients=4, script=script)
    daemon = daemons(pg, binary=DEBUG_BIN, env={"WALSHADOW_TEST_TEAR": "1"}).start()
    daemon.wait_state("streaming")
    writers.stop()
    torn = daemon.log_text().count("page torn on purpose")
    assert torn > 20
    assert all(t["state"] == "streaming" for t in daemon.status()["tables"])
    parity.assert_equal(pg, daemon)
