"""Values out of line (TOAST) that a row keeps from an earlier transaction: each must arrive whole.

The values are random, so that a value taken for another one shows. The judge is lib/parity: every row,
value by value."""

import os
import random
import shutil
import threading
import time
import urllib.request

import psycopg2
import pytest

from lib import parity, paths
from lib.daemon import walshadow
from lib.engine import Engine
from lib.process import make_dir, remove_dir, wait_until
from test_resync import settle

SEED = int(os.environ.get("WALSHADOW_TEST_SEED") or 0)

# One column for each way a value may be stored: out of line without compression, compressed out of
# line, compressed if that is enough, always in the row.
TABLE = """
CREATE TABLE {name} (id int PRIMARY KEY, n int, external text, extended text, main text, raw bytea);
ALTER TABLE {name} ALTER external SET STORAGE EXTERNAL, ALTER main SET STORAGE MAIN,
    ALTER raw SET STORAGE EXTERNAL;
"""
# Hexadecimal digits compress to about two thirds; with `pad` a value is much longer than its chunks.
FUNCTIONS = """
CREATE FUNCTION noise(bytes int, pad int DEFAULT 0) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT string_agg(md5(random()::text), '') || repeat('x', pad)
    FROM generate_series(1, greatest(bytes / 32, 1)) $$;
CREATE FUNCTION big() RETURNS text LANGUAGE sql VOLATILE AS
    $$ SELECT noise((3000 + random() * random() * 40000)::int, (random() * 5000)::int) $$;
"""


def create(pg, *names, rows=20):
    pg.app(FUNCTIONS + "".join(TABLE.format(name=name) for name in names))
    for name in names:
        insert(pg, name, 1, rows)


def insert(pg, name, first, last):
    pg.app(f"INSERT INTO {name} SELECT i, i, big(), big(), big(), big()::bytea "
           f"FROM generate_series({first}, {last}) i")


def store_bytes(daemon):
    """What the chunk store takes on disk."""
    return os.stat(os.path.join(daemon.state_dir, "toast", "data.mdb")).st_blocks * 512


def metric(daemon, name):
    with urllib.request.urlopen(f"http://{daemon.status()['http']}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"walshadow_{name} "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def rejects(daemon):
    return daemon.sql("SELECT table, column, reason, action, key, lsn, xid FROM app.walshadow_rejects FINAL "
                      "ORDER BY ALL")


def assert_equal(pg, daemon):
    daemon.wait_caught_up()
    settle(daemon)  # a DDL of the load's time makes its table be copied again
    parity.assert_equal(pg, daemon)
    found = rejects(daemon)
    assert not found, found


@pytest.mark.parametrize("major", [15, *(pytest.param(m, marks=pytest.mark.slow) for m in (16, 17, 18))])
def test_unchanged_values(sources, daemons, major):
    """UPDATE of another column: of loaded values, in the same statement's wake, the same and another
    transaction, through a subtransaction, a key change, an upsert, a partition and a kill."""
    pg = sources(major)
    create(pg, "t", "keyless")
    pg.app("ALTER TABLE keyless DROP CONSTRAINT keyless_pkey;"
           "CREATE TABLE text_key (code text PRIMARY KEY, n int, v text);"
           "ALTER TABLE text_key ALTER code SET STORAGE EXTERNAL;"
           "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
           "CREATE TABLE parts_a PARTITION OF parts FOR VALUES FROM (0) TO (100);"
           "CREATE TABLE parts_b PARTITION OF parts FOR VALUES FROM (100) TO (200);"
           "INSERT INTO text_key SELECT noise(2200) || i, i, big() FROM generate_series(1, 5) i;"
           "INSERT INTO parts SELECT i * 20, big() FROM generate_series(1, 9) i")
    if major == 15:
        pg.app("ALTER TABLE t ALTER extended SET COMPRESSION lz4, ALTER main SET COMPRESSION lz4")
        insert(pg, "t", 21, 40)
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    pg.app("UPDATE t SET n = n + 1 WHERE id % 2 = 0; UPDATE keyless SET n = n + 1 WHERE id % 2 = 0;"
           "UPDATE text_key SET n = n + 1; UPDATE parts SET id = id + 1 WHERE id < 100")
    assert_equal(pg, daemon)
    insert(pg, "t", 101, 110)
    pg.app("UPDATE t SET n = -n WHERE id > 100")
    session = pg.connect(autocommit=False)
    cursor = session.cursor()
    cursor.execute("""
        INSERT INTO t SELECT i, i, big(), big(), big(), big()::bytea FROM generate_series(111, 115) i;
        UPDATE t SET n = n + 5 WHERE id >= 111;
        SAVEPOINT a; UPDATE t SET external = big(), n = 7 WHERE id = 112; ROLLBACK TO a;
        UPDATE t SET n = n + 1 WHERE id = 112;
        SAVEPOINT b; DELETE FROM t WHERE id = 113; ROLLBACK TO b;
        UPDATE t SET id = 1113 WHERE id = 113; UPDATE t SET extended = big() WHERE id IN (3, 114);
        UPDATE parts SET id = id + 105 WHERE id = 41;
        INSERT INTO t VALUES (115, 1, big(), 'x', 'y', 'z') ON CONFLICT (id) DO UPDATE SET n = 99;
    """)
    session.commit()
    session.close()
    pg.app("UPDATE t SET n = n + 1; UPDATE keyless SET n = n + 1; UPDATE parts SET id = id - 1")
    assert_equal(pg, daemon)
    daemon.kill()
    pg.app("UPDATE t SET n = n + 1; DELETE FROM t WHERE id % 5 = 0; UPDATE t SET main = 'short'"
           " WHERE id % 7 = 0; UPDATE text_key SET n = n + 1")
    daemon.start().wait_state("streaming")
    pg.app("UPDATE t SET n = n + 1; UPDATE parts SET id = id + 1")
    assert_equal(pg, daemon)
    assert metric(daemon, "toast_unresolved_total") == 0


def tablespace(pg, name):
    directory = make_dir("ws-space-")
    pg.sql(f"CREATE TABLESPACE {name} LOCATION '{directory}'")
    return directory


def test_files_that_are_replaced(source, daemons):
    """TRUNCATE, VACUUM FULL, CLUSTER, DROP, SET TABLESPACE: the chunks of the new file count, those of
    the old one do not. A checkpoint inside a rewrite makes WAL carry chunks in page images only."""
    create(source, "emptied", "vacuumed", "ordered", "gone", "moved", rows=40)
    insert(source, "vacuumed", 41, 240)
    directory = tablespace(source, "elsewhere")
    try:
        daemon = daemons(source).start()
        daemon.wait_state("streaming")
        for table in ("emptied", "vacuumed", "ordered", "gone", "moved"):
            source.app(f"DELETE FROM {table} WHERE id % 3 = 0")
            insert(source, table, 1001, 1010)
        checkpoints = threading.Event()

        def checkpoint():
            while not checkpoints.is_set():
                source.sql("CHECKPOINT")

        thread = threading.Thread(target=checkpoint)
        thread.start()
        try:
            for _ in range(2):
                source.app("VACUUM FULL vacuumed")
        finally:
            checkpoints.set()
            thread.join()
        source.app("TRUNCATE emptied")
        insert(source, "emptied", 1, 10)
        source.app("CLUSTER ordered USING ordered_pkey; UPDATE ordered SET n = n + 1")
        source.app("DROP TABLE gone;" + TABLE.format(name="gone"))
        insert(source, "gone", 1, 10)
        source.app("ALTER TABLE moved SET TABLESPACE elsewhere")
        for table in ("emptied", "vacuumed", "ordered", "gone", "moved"):
            source.app(f"UPDATE {table} SET n = n + 1")
        assert_equal(source, daemon)
        source.app("BEGIN; TRUNCATE emptied; INSERT INTO emptied SELECT * FROM ordered;"
                   "UPDATE emptied SET n = n + 1; TRUNCATE ordered; INSERT INTO ordered SELECT * "
                   "FROM emptied; COMMIT; UPDATE ordered SET n = n + 1;"
                   "DELETE FROM moved WHERE id % 2 = 0; UPDATE moved SET n = n + 1")
        source.app("VACUUM moved")
        source.app("VACUUM vacuumed")
        insert(source, "moved", 2001, 2010)
        source.app("UPDATE moved SET n = n + 1; UPDATE vacuumed SET main = big() WHERE id % 2 = 0;"
                   "UPDATE vacuumed SET n = n + 1; UPDATE emptied SET n = n + 1")
        source.app("BEGIN; UPDATE ordered SET n = n + 1; CLUSTER ordered; COMMIT;"
                   "BEGIN; UPDATE moved SET n = n + 1, main = big() WHERE id % 2 = 1;"
                   "ALTER TABLE moved SET TABLESPACE pg_default; COMMIT")
        daemon.kill()
        daemon.start().wait_state("streaming")
        for table in ("emptied", "vacuumed", "ordered", "gone", "moved"):
            source.app(f"UPDATE {table} SET n = n + 1")
        for table in ("ordered", "moved"):  # pages are all that WAL has of them: copied again
            daemon.wait_table(f"public.{table}", "streaming")
        assert_equal(source, daemon)
        assert metric(daemon, "toast_unresolved_total") == 0
    finally:
        source.stop("immediate")
        remove_dir(directory)


def resyncs(daemon):
    """Reasons of copies, by table, from the log."""
    return [line for line in daemon.log_text().splitlines() if 'msg="table is copied again"' in line]


def test_toast_table_rewritten_alone(source, daemons):
    """VACUUM FULL of a TOAST table: same value ids, other places, and WAL has whole pages only."""
    create(source, "t", "parts", rows=30)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("DELETE FROM t WHERE id % 3 = 0; UPDATE t SET n = n + 1, main = big() WHERE id % 5 = 0")
    toast = source.app("SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = 't'")[0][0]
    source.app(f"VACUUM FULL {toast}")
    source.app("UPDATE t SET n = n + 1")
    source.app("DELETE FROM t WHERE id % 4 = 0; UPDATE t SET external = big() WHERE id % 7 = 0")
    insert(source, "t", 101, 130)
    source.app("UPDATE t SET n = n + 1; UPDATE parts SET n = n + 1")
    daemon.wait_caught_up()
    daemon.wait_table("public.t", "streaming")
    assert ["TOAST table was rewritten" in line for line in resyncs(daemon)] == [True]
    assert_equal(source, daemon)
    daemon.kill()
    source.app("UPDATE t SET n = n + 1")
    source.app(f"VACUUM FULL {toast}")
    daemon.start().wait_state("streaming")
    source.app("UPDATE t SET n = n + 1; UPDATE parts SET n = n + 1")
    daemon.wait_caught_up()
    daemon.wait_table("public.t", "streaming")
    assert_equal(source, daemon)
    assert metric(daemon, "toast_unresolved_total") == 0


def test_lost_store(source, daemons):
    """A value that the store should have and has not: its table is copied again, and no other."""
    create(source, "t", "idle", rows=10)
    source.app("CREATE TABLE text_key (code text PRIMARY KEY, n int);"
               "ALTER TABLE text_key ALTER code SET STORAGE EXTERNAL;"
               "INSERT INTO text_key SELECT noise(2200) || i, i FROM generate_series(1, 5) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    daemon.wait_caught_up()
    daemon.stop()
    shutil.rmtree(os.path.join(daemon.state_dir, "toast"))
    daemon.start().wait_state("streaming")
    assert "the chunk store was not there" in daemon.log_text()
    source.app("UPDATE t SET n = n + 1 WHERE id = 3; UPDATE text_key SET n = -n WHERE n = 2;"
               "UPDATE idle SET external = 'x', extended = 'y', main = 'z', raw = ''")
    daemon.wait_caught_up()
    for name in ("t", "text_key"):
        daemon.wait_table(f"public.{name}", "streaming")
    source.app("UPDATE t SET n = n + 1; UPDATE text_key SET n = n + 10; UPDATE idle SET n = n + 1")
    daemon.wait_caught_up()
    parity.assert_equal(source, daemon)
    assert len(resyncs(daemon)) == 2 and "public.idle" not in "".join(resyncs(daemon))


def test_disabled(source, daemons):
    """Without a store a kept value is a bad value: NULL or the default, counted, a row of rejects."""
    create(source, "t", "chosen")
    source.app("ALTER TABLE t ALTER external SET NOT NULL")
    daemon = daemons(source, config={"toast": {"mode": "disabled"}}).start()
    daemon.wait_state("streaming")
    assert "public.t" in daemon.log_text(), "the start names the tables concerned"
    source.app("BEGIN; INSERT INTO t SELECT 100, 1, big(), big(); UPDATE t SET n = 2 WHERE id = 100;"
               "COMMIT; UPDATE t SET n = 3 WHERE id = 100; UPDATE chosen SET n = 5 WHERE id = 1")
    daemon.wait_caught_up()
    assert daemon.table("public.t")["state"] == "streaming"
    assert daemon.sql("SELECT n, external, extended IS NULL FROM app.t FINAL WHERE id = 100") == [
        ["3", "", "1"]]
    lost = {tuple(row[:3]) for row in rejects(daemon)}
    assert ("public.t", "external", "the value is not in the chunk store") in lost
    assert ("public.chosen", "raw", "the value is not in the chunk store") in lost
    assert metric(daemon, "toast_unresolved_total") > 0
    source.app("UPDATE t SET external = 'x', extended = 'y', main = 'z', raw = '' ")
    daemon.wait_caught_up()
    assert daemon.sql("SELECT DISTINCT external, extended, main FROM app.t FINAL") == [
        ["x", "y", "z"]]
    assert not os.path.exists(os.path.join(daemon.state_dir, "toast"))


@pytest.mark.slow
def test_values_over_the_cap(source, daemons):
    """inline_value_max holds for kept values too; the value is not read."""
    create(source, "t", rows=3)
    source.app("UPDATE t SET external = noise(100000), extended = noise(64, 200000) WHERE id = 1")
    daemon = daemons(source, config={"memory": {"inline_value_max": "64KiB"}}).start()
    daemon.wait_state("streaming")
    source.app("UPDATE t SET n = 0 WHERE id = 1")
    daemon.wait_caught_up()
    assert daemon.sql("SELECT n, external IS NULL, extended IS NULL, main IS NULL FROM app.t FINAL "
                      "WHERE id = 1") == [["0", "1", "1", "0"]]
    assert {tuple(row[1:3]) for row in rejects(daemon)} == {
        (column, "larger than memory.inline_value_max") for column in ("extended", "external")}


def test_the_store_gets_smaller(source, daemons):
    """What was deleted goes once the floor has passed it."""
    create(source, "t", rows=1)
    source.app("INSERT INTO t SELECT i, i, noise(60000), 'x', 'y', 'z' FROM generate_series(2, 400) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    daemon.wait_caught_up()
    wait_until(lambda: store_bytes(daemon) > 20 << 20, 30, lambda: f"{store_bytes(daemon)} bytes")
    source.app("DELETE FROM t WHERE id > 1")

    def smaller():
        source.sql("SELECT pg_switch_wal(); CHECKPOINT")
        return store_bytes(daemon) < 4 << 20

    wait_until(smaller, 60, lambda: f"{store_bytes(daemon)} bytes", 0.3)
    source.app("UPDATE t SET n = n + 1")
    assert_equal(source, daemon)


class Writer(threading.Thread):
    """Random statements on one table, from a seed. Statements of several writers meet in locks only."""

    COLUMNS = ("external", "extended", "main", "raw")

    def __init__(self, pg, table, seed, pause=0):
        super().__init__()
        self.pause = pause
        self.pg, self.table, self.rng = pg, table, random.Random(seed)
        self.stopping = threading.Event()
        self.rewrites = threading.Event()
        self.error = None

    def statement(self):
        rng, t = self.rng, self.table
        row = rng.randrange(60)
        column = rng.choice(self.COLUMNS)
        value = "big()::bytea" if column == "raw" else "big()"
        return rng.choices((
            f"INSERT INTO {t} SELECT {row}, 0, big(), big(), big(), big()::bytea ON CONFLICT (id) DO "
            f"UPDATE SET n = {t}.n + 1",
            f"UPDATE {t} SET n = n + 1 WHERE id % 7 = {row % 7}",
            f"UPDATE {t} SET {column} = {value}, n = n + 1 WHERE id = {row}",
            f"UPDATE {t} SET {column} = NULL WHERE id = {row}",
            f"UPDATE {t} SET id = id + 1000 WHERE id = {row} AND NOT EXISTS (SELECT FROM {t} x "
            f"WHERE x.id = {row} + 1000)",
            f"DELETE FROM {t} WHERE id % 11 = {row % 11}",
            f"TRUNCATE {t}",
        ), (12, 10, 12, 2, 3, 3, 0.4))[0]

    def turn(self, connection):
        rng = self.rng
        with connection.cursor() as cursor:
            if rng.random() < 0.04 and self.rewrites.is_set():
                connection.autocommit = True
                try:
                    cursor.execute(rng.choice((f"VACUUM FULL {self.table}", f"VACUUM {self.table}",
                                               f"CLUSTER {self.table} USING {self.table}_pkey",
                                               "CHECKPOINT")))
                except psycopg2.errors.DataCorrupted as error:
                    # PostgreSQL 15 to 18: a row version that was replaced by xid 950 is still copied
                    # although its value was deleted by xid 940, which committed later, and a VACUUM
                    # with a horizon between the two has removed the chunks. Nothing is lost.
                    assert "for toast value" in str(error), error
                connection.autocommit = False
                return
            for _ in range(rng.randint(1, 4)):
                inner = rng.random() < 0.3
                if inner:
                    cursor.execute("SAVEPOINT s")
                cursor.execute(self.statement())
                if inner:
                    cursor.execute(f"{rng.choice(('RELEASE', 'ROLLBACK TO'))} SAVEPOINT s")
        if rng.random() < 0.15:
            connection.rollback()
        else:
            connection.commit()

    def run(self):
        try:
            connection = self.pg.connect(autocommit=False)
            while not self.stopping.is_set():
                time.sleep(self.pause)
                try:
                    self.turn(connection)
                except psycopg2.errors.DeadlockDetected:
                    connection.rollback()
                    connection.autocommit = False
            connection.close()
        except Exception as error:  # told by stop()
            self.error = error

    def stop(self):
        self.stopping.set()
        self.join(60)
        assert self.error is None, self.error


def torture(pg, daemons, seed, rounds, mode="local", pause=0):
    """Writers from before the load until after, `pause` seconds between their transactions; kills;
    equal after each round."""
    create(pg, "a", "b", rows=50)
    rng = random.Random(seed)
    daemon = daemons(pg, config={"toast": {"mode": mode}})
    for cycle in range(rounds):
        writers = [Writer(pg, table, seed * 1000 + cycle * 10 + i, pause)
                   for i, table in enumerate(("a", "b", "b"))]
        for writer in writers:
            writer.start()
        try:
            time.sleep(rng.uniform(0.2, 1.0))
            if cycle > 0:
                for writer in writers:
                    writer.rewrites.set()
                time.sleep(rng.uniform(0.2, 1.0))
                daemon.kill()
            daemon.start().wait_state("streaming")
            for writer in writers:
                writer.rewrites.set()
            time.sleep(rng.uniform(0.5, 2.0))
        finally:
            for writer in writers:
                writer.stop()
        assert_equal(pg, daemon)
    assert metric(daemon, "toast_unresolved_total") == 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("major", paths.MAJORS)
def test_torture(sources, daemons, major, full):
    for turn in range(4 if full else 1):
        seed = SEED + major * 100 + turn
        print(f"WALSHADOW_TEST_SEED={SEED}")
        torture(sources(major), daemons, seed, 10 if full else 2)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("major", [15, *(pytest.param(m, marks=pytest.mark.slow) for m in (16, 17, 18))])
def test_torture_in_clickhouse(sources, daemons, major, full):
    """The same with the chunks in the destination."""
    for turn in range(2 if full else 1):
        seed = SEED + major * 100 + turn
        print(f"WALSHADOW_TEST_SEED={SEED}")
        # a query a transaction, about: not the pace of `local`
        torture(sources(major), daemons, seed, 10 if full else 2, "clickhouse", 0.01 if full else 0.05)


def chunk_rows(daemon):
    """Rows of each table of chunks, merged or not."""
    return {name: int(rows) for name, rows in daemon.sql(
        "SELECT name, total_rows FROM system.tables WHERE name LIKE 'walshadow_toast_%'", "--raw")}


@pytest.mark.slow  # chunks are looked at every half minute
def test_chunks_in_clickhouse_are_reclaimed(source, daemons):
    """What was deleted goes once the floor has passed it, also after a restart; values that stay do not."""
    create(source, "t", rows=5)
    source.app("INSERT INTO t SELECT i, i, noise(60000), 'x', 'y', 'z' FROM generate_series(6, 100) i")
    daemon = daemons(source, config={"toast": {"mode": "clickhouse"}}).start()
    daemon.wait_state("streaming")
    daemon.wait_caught_up()
    wait_until(lambda: sum(chunk_rows(daemon).values()) > 2500, 60, lambda: chunk_rows(daemon))
    source.app("DELETE FROM t WHERE id > 5; UPDATE t SET n = n + 1")
    assert_equal(source, daemon)
    daemon.kill()
    daemon.start().wait_state("streaming")

    def smaller():
        source.sql("SELECT pg_switch_wal(); CHECKPOINT")
        return sum(chunk_rows(daemon).values()) < 500

    wait_until(smaller, 120, lambda: chunk_rows(daemon), 0.5)
    source.app("UPDATE t SET n = n + 1; UPDATE t SET main = big() WHERE id = 1; UPDATE t SET n = n + 1")
    assert_equal(source, daemon)
    assert not os.path.exists(os.path.join(daemon.state_dir, "toast"))
    # with its table, its chunks go
    source.app("DROP TABLE t; CREATE TABLE other (id int PRIMARY KEY)")
    daemon.wait_caught_up()

    def gone():
        source.sql("SELECT pg_switch_wal(); CHECKPOINT")
        return not chunk_rows(daemon)

    wait_until(gone, 120, lambda: chunk_rows(daemon), 0.5)


def test_remove_drops_tables_of_chunks(source, daemons):
    """`walshadow remove` takes away what its store made at a server, and nothing of others."""
    create(source, "t", rows=2)
    others = "app.walshadow_toast_77 COMMENT 'walshadow 1/2/toast'", "app.walshadow_toast_old"
    with Engine() as engine:
        daemon = daemons(source, destination=f"clickhouse://default@127.0.0.1:{engine.port}",
                         config={"toast": {"mode": "clickhouse"}}).start()
        daemon.wait_state("streaming")
        daemon.wait_caught_up()
        daemon.stop()
        for text in others:
            name, _, comment = text.partition(" ")
            engine.query(f"CREATE TABLE {name} (i Int8) ENGINE = MergeTree ORDER BY i {comment}")

        def tables():
            return {row[0] for row in engine.query(
                "SELECT name FROM system.tables WHERE database = 'app' AND name LIKE '%toast%'")}

        foreign = {text.split()[0].removeprefix("app.") for text in others}
        assert len(tables() - foreign) == 1
        refused = walshadow("remove", "--config", daemon.config_path, "--set",
                            "destination.default.url=clickhouse://default@127.0.0.1:1", check=False)
        assert refused.returncode == 1 and "--keep-chunks" in refused.stderr, refused
        assert os.path.exists(daemon.state_dir) and len(tables()) == 3
        done = walshadow("remove", "--config", daemon.config_path)
        assert "1 tables of chunks dropped" in done.stdout
        assert tables() == foreign and not os.path.exists(daemon.state_dir)
        assert engine.query("SELECT count() FROM app.t FINAL") == [(2,)]


@pytest.mark.slow
def test_remove_drops_tables_of_chunks_that_stay_behind(source, daemons):
    """The same where the embedded engine's data is kept."""
    create(source, "t", rows=2)
    daemon = daemons(source, config={"toast": {"mode": "clickhouse"}}).start()
    daemon.wait_state("streaming")
    daemon.wait_caught_up()
    assert len(chunk_rows(daemon)) == 1
    daemon.stop()
    done = walshadow("remove", "--config", daemon.config_path, "--keep-data")
    assert "1 tables of chunks dropped" in done.stdout
    assert os.listdir(daemon.state_dir) == ["chdb"]
    left = walshadow("sql", "--config", daemon.config_path,
                     "SELECT count() FROM system.tables WHERE name LIKE 'walshadow_toast_%' "
                     "UNION ALL SELECT count() FROM app.t").stdout
    assert sorted(left.split()) == ["0", "2"]
