"""Transactions that hold the catalog while others change shapes: they stay open over the boundary, and
nothing waits for them. And catalogs that get new files while the stream is read."""

import os
import pathlib
import signal
import time

import psycopg2
import pytest

from lib import parity, paths
from lib.background import Background
from lib.daemon import lsn_value
from lib.process import wait_until
from test_resync import settle


def majors(always):
    """All; one of them at CI depth."""
    return [m if m == always else pytest.param(m, marks=pytest.mark.slow) for m in paths.MAJORS]


# Each holds what the shadow's catalog reader needs: as an AccessExclusiveLock in the WAL it would stand
# in its way until the transaction ends. And what another has done before and commits meanwhile: where a
# catalog is built anew, PostgreSQL itself waits for those who have written to it.
COLUMNS = ("ALTER TABLE {t} DROP COLUMN gone; ALTER TABLE {t} RENAME COLUMN v TO u;"
           "UPDATE {t} SET u = u || '+' WHERE id % 3 = 0")
NAME = "ALTER TABLE {t} RENAME TO {t}_new; DELETE FROM {t}_new WHERE id % 10 = 1"
EVERYTHING = ("ALTER TABLE {t} ADD COLUMN w int NOT NULL DEFAULT 7; UPDATE {t} SET w = w + 1 WHERE id % 3 = 1;" + COLUMNS
              + ";" + NAME + "; CREATE TABLE {t} (id int PRIMARY KEY, v text); INSERT INTO {t} VALUES (1, 'took the name')")
HELD = {
    "lock_class": ("LOCK pg_class", EVERYTHING),
    "reindex_attribute": ("REINDEX TABLE pg_attribute", NAME),
    "lock_types": ("LOCK pg_type, pg_attribute, pg_index IN ACCESS EXCLUSIVE MODE", EVERYTHING),
    "reindex_class": ("REINDEX TABLE pg_class", COLUMNS),
    "cluster_attribute": ("CLUSTER pg_attribute USING pg_attribute_relid_attnum_index", NAME),
}


class Warm:
    """A session that has read from the catalog what it needs, so that a held catalog is no obstacle."""

    def __init__(self, source):
        self.connection = source.connect()
        self.cursor = self.connection.cursor()
        self.n = 0
        self.cursor.execute("SET statement_timeout = '20s'; SET plan_cache_mode = force_generic_plan;"
                            "PREPARE one (int) AS INSERT INTO steady VALUES ($1, 'meanwhile')")
        for _ in range(3):
            self.insert()

    def insert(self):
        """Returns where it is in the WAL."""
        self.n += 1
        self.cursor.execute(f"EXECUTE one ({self.n})")
        self.cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        return lsn_value(self.cursor.fetchone()[0])

    def close(self):
        self.connection.close()


def acked(daemon, lsn, what):
    return daemon.wait_status(lambda s: lsn_value(s["ack_lsn"]) >= lsn, 30, what)


def shadow_pid(daemon):
    with open(os.path.join(daemon.state_dir, "shadow", "postmaster.pid")) as f:
        return int(f.readline())


@pytest.mark.majors
@pytest.mark.parametrize("major", majors(15))
def test_catalog_held(sources, daemons, full, major):
    """What commits while the catalog is held arrives while it is held, shapes and rows: neither the
    shadow nor a question to the source waits for the holder."""
    source = sources(major)
    source.app("CREATE TABLE steady (id int PRIMARY KEY, v text)")
    for t in HELD:
        source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, v text, gone int);"
                   f"INSERT INTO {t} SELECT i, 'v' || i, i FROM generate_series(1, 100) i")
    daemon = daemons(source, config={"ops": {"status_interval": "300ms"}}).start()
    daemon.wait_state("streaming")
    warm = Warm(source)
    for n, (t, (statement, change)) in enumerate(HELD.items()):
        daemon.wait_caught_up()
        before = daemon.status()["holds"]["count"]
        changing, holding = (source.connect(autocommit=False, options="-c statement_timeout=20s") for _ in range(2))
        with changing.cursor() as cursor, holding.cursor() as holder:
            cursor.execute(f"INSERT INTO {t} VALUES (-1, 'before'); {change.format(t=t)}")
            holder.execute("INSERT INTO steady VALUES (%s, 'of the holder')", (-1 - n,))
            holder.execute(statement)
            warm.insert()
            changing.commit()
            status = acked(daemon, warm.insert(), f"{t}: the shape change arrives while the catalog is held")
            assert status["holds"]["count"] == before + 1, status["holds"]
            if full and n == 1:  # a shadow that starts meanwhile is not in its way either
                pid = shadow_pid(daemon)
                os.kill(pid, signal.SIGKILL)
                acked(daemon, warm.insert(), "rows do not wait for the shadow")
            holding.commit() if n % 2 == 0 else holding.rollback()
        changing.close()
        holding.close()
        now = t if change == COLUMNS else t + "_new"
        source.app(f"ALTER TABLE {now} ADD COLUMN x text DEFAULT 'x'; INSERT INTO {now} (id, x) VALUES (-2, 'y');"
                   f"ALTER TABLE {now} ALTER x SET DEFAULT 'other'; INSERT INTO {now} (id) VALUES (-3)")
    warm.close()
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)
    assert "table is copied again" not in daemon.log_text()
    if not full:
        return
    daemon.kill()
    daemon.start().wait_state("streaming")
    source.app("ALTER TABLE reindex_class ADD COLUMN y int DEFAULT 3; UPDATE reindex_class SET y = 4 WHERE id = 5;"
               "ALTER TABLE lock_class_new RENAME COLUMN w TO z; UPDATE lock_class_new SET z = 4 WHERE id = 5")
    parity.assert_equal(source, daemon)


class Rewriter(Background):
    """Gives catalogs new files, again and again, while others change shapes."""

    STATEMENTS = ("VACUUM FULL pg_class", "VACUUM FULL pg_attribute", "REINDEX TABLE pg_class", "VACUUM FULL pg_type",
                  "CLUSTER pg_class USING pg_class_oid_index", "REINDEX INDEX pg_attribute_relid_attnum_index",
                  "VACUUM FULL pg_index", "REINDEX TABLE pg_type")

    def __init__(self, source):
        super().__init__()
        self.source = source
        self.done = 0

    def work(self):
        connection = self.source.connect()
        with connection.cursor() as cursor:
            while self.going:
                try:
                    cursor.execute(self.STATEMENTS[self.done % len(self.STATEMENTS)])
                    self.done += 1
                except psycopg2.errors.DeadlockDetected:
                    continue  # PostgreSQL's own, with the session that changes shapes
                time.sleep(0.02)
        connection.close()


STEP = ("INSERT INTO a VALUES ({n}, 'row {n}'); ALTER TABLE a ADD COLUMN c{n} int DEFAULT {n};"
        "UPDATE a SET c{n} = -1 WHERE id % 2 = 0;"
        "BEGIN; CREATE TABLE t{n} (id int PRIMARY KEY, v text); INSERT INTO t{n} SELECT i, 'n' FROM generate_series(1, 20) i;"
        "SAVEPOINT s; ALTER TABLE t{n} DROP COLUMN v; ROLLBACK TO s; ALTER TABLE t{n} RENAME COLUMN v TO w; COMMIT;"
        "INSERT INTO t{n} VALUES (100, 'after'); ALTER TABLE b RENAME TO b_; INSERT INTO b_ VALUES ({n}, 'by another name');"
        "ALTER TABLE b_ RENAME TO b")


@pytest.mark.majors
@pytest.mark.parametrize("major", majors(18))
def test_catalog_rewritten(sources, daemons, full, major):
    """VACUUM FULL, CLUSTER and REINDEX of catalogs between, before and behind shape changes and rows."""
    source = sources(major)
    source.app("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("VACUUM FULL pg_class")
    source.app("VACUUM FULL pg_attribute")
    steps = 0
    session = source.connect()
    until = time.monotonic() + (60 if full else 10)
    with Rewriter(source) as rewriter, session.cursor() as cursor:
        while time.monotonic() < until and steps < (400 if full else 6):
            steps += 1
            time.sleep(0.1)
            wait_until(lambda n=steps: step(cursor, n), 30, "the source does it")
            if full and steps % 40 == 0:
                daemon.kill()
                daemon.start()
    session.close()
    assert steps >= 5 and rewriter.done >= 5, (steps, rewriter.done)
    daemon.wait_state("streaming")
    daemon.wait_caught_up()
    settle(daemon)
    print(f"{steps} steps, {rewriter.done} rewrites, holds {daemon.status()['holds']}")
    parity.assert_equal(source, daemon)
    assert "table is copied again" not in daemon.log_text()


def step(cursor, n):
    """Its transactions in turn; False: one was a victim of a deadlock at the source, again."""
    try:
        for part in statements(STEP.format(n=n)):
            cursor.execute(part)
        return True
    except (psycopg2.errors.DeadlockDetected, psycopg2.errors.DuplicateTable, psycopg2.errors.UndefinedTable,
            psycopg2.errors.DuplicateColumn, psycopg2.errors.UniqueViolation):
        return undo(cursor, n)


def statements(text):
    """BEGIN … COMMIT is one."""
    inside, parts = False, []
    for one in text.split(";"):
        if inside:
            parts[-1] += ";" + one
        else:
            parts.append(one)
        inside = (inside or one.strip() == "BEGIN") and one.strip() != "COMMIT"
    return parts


def undo(cursor, n):
    """Back to where the step began."""
    cursor.execute("ROLLBACK")
    for part in (f"DROP TABLE IF EXISTS t{n}", f"ALTER TABLE a DROP COLUMN IF EXISTS c{n}", f"DELETE FROM a WHERE id = {n}",
                 "ALTER TABLE IF EXISTS b_ RENAME TO b", f"DELETE FROM b WHERE id = {n}"):
        cursor.execute(part)
    return False


@pytest.mark.parametrize("lock", ["LOCK pg_class IN ACCESS EXCLUSIVE MODE", "REINDEX TABLE pg_attribute",
                                  "CLUSTER pg_proc USING pg_proc_oid_index"])
@pytest.mark.parametrize("major", majors(15))
def test_tables_beside_a_catalog_lock(sources, daemons, major, lock):
    """Files made by a transaction that locks a catalog are taken for catalogs' until it is known whose they
    are: tables that it makes, rewrites and empties have all their rows, and their rows stay out of the shadow."""
    source = sources(major)
    source.app("CREATE TABLE keyed (id int PRIMARY KEY, n int, v text);"
               "INSERT INTO keyed SELECT i, i, repeat(md5(i::text), 100) FROM generate_series(1, 100) i;"
               "CREATE TABLE keyless (n int, v text); INSERT INTO keyless SELECT i, i FROM generate_series(1, 100) i;"
               "CREATE TABLE emptied (n int, v text); INSERT INTO emptied SELECT i, i FROM generate_series(1, 100) i;"
               "CREATE TABLE large (n int, v text); ALTER TABLE large ALTER v SET STORAGE EXTERNAL")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app(f"BEGIN; {lock}; CREATE TABLE made (id int PRIMARY KEY, v text); ALTER TABLE made ALTER v SET STORAGE EXTERNAL;"
               "INSERT INTO made SELECT i, repeat('secret', 1000) FROM generate_series(1, 50) i;"
               "ALTER TABLE keyed ALTER n TYPE bigint; INSERT INTO keyed VALUES (1000, 1);"
               "ALTER TABLE keyless ALTER n TYPE bigint; INSERT INTO keyless VALUES (1000, 1);"
               "TRUNCATE emptied, large; INSERT INTO emptied VALUES (5, 'secret');"
               "INSERT INTO large VALUES (1, repeat('secret', 1000)); COMMIT")
    source.app("INSERT INTO made VALUES (100, 'a'); INSERT INTO keyed VALUES (2000, 1); INSERT INTO emptied VALUES (6, 'b');"
               "UPDATE keyless SET v = v || 'x' WHERE n % 3 = 0; UPDATE large SET n = 2; UPDATE made SET v = v || 'y' WHERE id = 3")
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)
    copied = {line.split("table=")[1].split()[0] for line in daemon.log_text().split("\n") if "table is copied again" in line}
    assert copied == {'"public.emptied"', '"public.large"'}
    daemon.kill()
    source.app("DELETE FROM made WHERE id = 7; UPDATE keyed SET n = 8 WHERE id = 9; INSERT INTO emptied VALUES (7, 'never there');"
               "INSERT INTO large VALUES (3, repeat('secret', 1000)); DELETE FROM large WHERE n = 2")
    daemon.start().wait_state("streaming")
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)
    daemon.stop()
    kept = b"".join(path.read_bytes() for path in (pathlib.Path(daemon.state_dir) / "shadow" / "base").rglob("*")
                    if path.is_file())
    assert b"never there" not in kept
