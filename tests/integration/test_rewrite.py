"""A table that is rewritten is a new generation, taken from the WAL of the transaction that rewrote it:
nothing is copied again, every value equals the source's (docs/ddl.md)."""

import os

import pytest

from lib import parity, paths
from lib.background import Background
from lib.process import remove_dir, wait_until
from test_ddl import assert_in_place
from test_resync import settle
from test_toast import tablespace

# {t}: (id int [PRIMARY KEY], n int, v text, w text) with rows, some of them twice where there is no key.
REWRITES = {
    "retype": "ALTER TABLE {t} ALTER n TYPE bigint",
    "retype_using": "ALTER TABLE {t} ALTER n TYPE text USING 'n' || n, ALTER v DROP DEFAULT, ALTER v TYPE bytea USING v::bytea",
    "volatile": "ALTER TABLE {t} ADD COLUMN r float8 DEFAULT random()",
    "serial": "ALTER TABLE {t} ADD COLUMN s serial",
    "vacuum_full": "VACUUM FULL {t}",
    "cluster": "CLUSTER {t} USING {t}_n",
    "twice": "BEGIN; ALTER TABLE {t} ALTER n TYPE bigint; ALTER TABLE {t} ALTER n TYPE numeric; COMMIT",
    "savepoint": "BEGIN; SAVEPOINT a; ALTER TABLE {t} ALTER n TYPE numeric; INSERT INTO {t} VALUES (-1, -1);"
                 "ROLLBACK TO a; ALTER TABLE {t} ALTER n TYPE bigint; COMMIT",
    "rolled_back": "BEGIN; ALTER TABLE {t} ALTER n TYPE numeric; ROLLBACK",
    "rows_around": "BEGIN; INSERT INTO {t} SELECT i, i FROM generate_series(2001, 2100) i; DELETE FROM {t} WHERE id % 7 = 0;"
                   "UPDATE {t} SET n = n + 1 WHERE id % 5 = 0; ALTER TABLE {t} ALTER n TYPE bigint;"
                   "INSERT INTO {t} SELECT i, i FROM generate_series(2101, 2200) i; DELETE FROM {t} WHERE id % 11 = 0;"
                   "UPDATE {t} SET n = n + 1 WHERE id % 3 = 0; COMMIT",
    "columns_too": "BEGIN; ALTER TABLE {t} DROP COLUMN w; ALTER TABLE {t} ADD COLUMN w2 text DEFAULT 'x';"
                   "ALTER TABLE {t} ALTER n TYPE bigint; INSERT INTO {t} (id, n) VALUES (3001, 1); COMMIT",
    "emptied_before": "BEGIN; TRUNCATE {t}; INSERT INTO {t} VALUES (1, 1); ALTER TABLE {t} ALTER n TYPE bigint;"
                      "INSERT INTO {t} VALUES (2, 2); COMMIT",
    "emptied_after": "BEGIN; ALTER TABLE {t} ALTER n TYPE bigint; TRUNCATE {t}; INSERT INTO {t} VALUES (2, 2); COMMIT",
    "emptied_twice": "BEGIN; ALTER TABLE {t} ALTER n TYPE numeric; ALTER TABLE {t} ALTER n TYPE bigint; TRUNCATE {t};"
                     "INSERT INTO {t} VALUES (2, 2); COMMIT",
    "prepared": "BEGIN; ALTER TABLE {t} ALTER n TYPE bigint; INSERT INTO {t} VALUES (3001, 1);"
                "PREPARE TRANSACTION '{t}'; COMMIT PREPARED '{t}'",
    "none_left": "DELETE FROM {t}; ALTER TABLE {t} ALTER n TYPE bigint",
    "out_of_line": "ALTER TABLE {t} ALTER w TYPE bytea USING convert_to(w, 'UTF8')",
}
# What the WAL does not say whole: copied again.
COPIED = {
    "cluster_in_block": "BEGIN; INSERT INTO {t} VALUES (3001, 1); CLUSTER {t} USING {t}_n; COMMIT",
    "cluster_then_rows": "BEGIN; CLUSTER {t} USING {t}_n; INSERT INTO {t} VALUES (3001, 1); COMMIT",
    "cluster_then_move": "BEGIN; CLUSTER {t} USING {t}_n; ALTER TABLE {t} SET TABLESPACE other; COMMIT",
    "move_then_cluster": "BEGIN; ALTER TABLE {t} SET TABLESPACE other; CLUSTER {t} USING {t}_n; COMMIT",
    "empty": "DELETE FROM {t}; VACUUM FULL {t}",
}


def run(source, statements):
    """One by one: VACUUM runs in no transaction block."""
    connection = source.connect("app")
    with connection.cursor() as cursor:
        for statement in statements.split(";"):
            cursor.execute(statement)
    connection.close()


def make(source, t, key):
    source.app(f"CREATE TABLE {t} (id int {key}, n int, v text DEFAULT 'v', w text); CREATE INDEX {t}_n ON {t} (n);"
               f"INSERT INTO {t} SELECT i, 3000 - i, 'v' || i, CASE WHEN i % 50 = 0 THEN "
               f"(SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 200) j) END FROM generate_series(1, 1500) i")
    if not key:  # twin rows
        source.app(f"INSERT INTO {t} SELECT * FROM {t} WHERE id % 10 = 0")


KEYS = {"keyed": "PRIMARY KEY", "keyless": ""}


@pytest.mark.parametrize("major", paths.MAJORS)
@pytest.mark.parametrize("kind", KEYS)
def test_rewrites(sources, daemons, kind, major):
    source = sources(major, {"max_prepared_transactions": "5", "wal_compression": "on" if major % 2 == 0 else "off"})
    for t in REWRITES:
        make(source, t, KEYS[kind])
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    for t, statements in REWRITES.items():
        # old versions, deleted rows and row locks are in the pages of the old file
        source.app(f"UPDATE {t} SET n = n + 1 WHERE id % 4 = 0; DELETE FROM {t} WHERE id % 13 = 0;"
                   f"BEGIN; UPDATE {t} SET n = 0; ROLLBACK; BEGIN; SELECT 1 FROM {t} FOR SHARE; COMMIT")
        run(source, statements.format(t=t))
        source.app(f"UPDATE {t} SET v = 'after' WHERE id % 6 = 0; DELETE FROM {t} WHERE id % 17 = 0;"
                   f"INSERT INTO {t} (id) VALUES (9000)")
    assert_in_place(source, daemon)
    rewritten = daemon.log_text().count("table rewritten, its rows are taken from the WAL")
    # of a table with a key VACUUM FULL and CLUSTER change nothing; one is rolled back
    assert rewritten == len(REWRITES) - (3 if kind == "keyed" else 1)
    daemon.kill()
    for t in REWRITES:
        source.app(f"UPDATE {t} SET v = 'later' WHERE id % 8 = 0")
    daemon.start().wait_state("streaming")
    assert_in_place(source, daemon)
    assert daemon.sql("SELECT name FROM system.tables WHERE name LIKE 'walshadow_resync_%'", "--raw") == []


@pytest.mark.parametrize("kind", KEYS)
def test_what_the_wal_does_not_say(source, daemons, kind):
    directory = tablespace(source, "other")
    try:
        for t in COPIED:
            make(source, t, KEYS[kind])
        daemon = daemons(source).start()
        daemon.wait_state("streaming")
        for t, statements in COPIED.items():
            run(source, statements.format(t=t))
            source.app(f"UPDATE {t} SET v = 'after' WHERE id % 6 = 0; INSERT INTO {t} (id) VALUES (9000)")
        daemon.wait_caught_up()
        settle(daemon)
        parity.assert_equal(source, daemon)
    finally:
        source.close()
        remove_dir(directory)


@pytest.mark.parametrize("kind", KEYS)
def test_partitioned(source, daemons, kind):
    """All partitions are rewritten, or the table is copied; one that is empty has no rows to write."""
    for t in ("parts", "one_alone", "one_emptied"):
        source.app(f"CREATE TABLE {t} (id int {KEYS[kind]}, n int, v text) PARTITION BY RANGE (id);"
                   f"CREATE TABLE {t}_b (v text, id int NOT NULL {KEYS[kind]}, n int);"
                   f"ALTER TABLE {t} ATTACH PARTITION {t}_b FOR VALUES FROM (100) TO (200);"
                   f"CREATE TABLE {t}_a PARTITION OF {t} FOR VALUES FROM (0) TO (100);"
                   f"CREATE TABLE {t}_empty PARTITION OF {t} FOR VALUES FROM (200) TO (300);"
                   f"INSERT INTO {t} SELECT i, i, repeat(md5(i::text), 100) FROM generate_series(1, 199) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("BEGIN; DELETE FROM parts WHERE id % 7 = 0; DELETE FROM parts WHERE id > 100 AND id % 11 = 1; UPDATE parts SET id = id + 100 WHERE id % 11 = 0 AND id < 100 AND (id + 100) % 11 = 1;"
               "ALTER TABLE parts ALTER n TYPE bigint; INSERT INTO parts VALUES (205, 1, 'x'); COMMIT;"
               "UPDATE parts SET v = 'after' WHERE id % 3 = 0; INSERT INTO parts VALUES (206, 1, 'y')")
    assert_in_place(source, daemon)
    assert "table rewritten, its rows are taken from the WAL" in daemon.log_text()
    run(source, "VACUUM FULL one_alone_a")
    source.app("BEGIN; TRUNCATE one_emptied_a; ALTER TABLE one_emptied ALTER n TYPE bigint; COMMIT;"
               "UPDATE one_alone SET n = n + 1; INSERT INTO one_emptied VALUES (50, 1)")
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)


class Writers(Background):
    def __init__(self, source):
        super().__init__()
        self.source = source

    def work(self):
        n = 0
        while self.going:
            n += 1
            self.source.app(f"INSERT INTO live (id, v) SELECT i, 'x' FROM generate_series({n * 50}, {n * 50 + 49}) i;"
                            f"UPDATE live SET v = v || 'y' WHERE id % 97 = {n % 97}; DELETE FROM live WHERE id % 101 = {n % 101}")


@pytest.mark.parametrize("kind", KEYS)
def test_under_writers(source, daemons, kind):
    """Rows of others before, between and after many rewrites."""
    source.app(f"CREATE TABLE live (id bigint {KEYS[kind]}, v text)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    with Writers(source):
        for _ in range(6):
            for statements in ("ALTER TABLE live ALTER id TYPE numeric", "VACUUM FULL live",
                               "ALTER TABLE live ALTER id TYPE bigint"):
                run(source, statements)
    assert_in_place(source, daemon)


@pytest.mark.fault_points
@pytest.mark.parametrize("point", ["generation-sent", "resync-exchanged", "generation-exchanged"])
@pytest.mark.parametrize("kind", KEYS)
def test_dies(source, daemons, kind, point):
    make(source, "t", KEYS[kind])
    daemon = daemons(source, binary=paths.DEBUG_BIN)
    fault = os.path.join(daemon.base, "fault")
    daemon.env = {"WALSHADOW_TEST_FAULT": "@" + fault}
    daemon.start().wait_state("streaming")
    daemon.wait_caught_up()
    with open(fault + ".new", "w") as f:
        f.write(point)
    os.chmod(fault + ".new", 0o644)
    os.rename(fault + ".new", fault)
    source.app("INSERT INTO t VALUES (5001, 1); BEGIN; DELETE FROM t WHERE id % 3 = 0;"
               "ALTER TABLE t ALTER n TYPE bigint; INSERT INTO t VALUES (5002, 2); COMMIT; DELETE FROM t WHERE id % 5 = 0")
    wait_until(lambda: not daemon.running(), 60, f"it dies at {point}")
    os.unlink(fault)
    source.app("UPDATE t SET v = 'later' WHERE id % 7 = 0")
    daemon.start().wait_state("streaming")
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)
    assert daemon.sql("SELECT name FROM system.tables WHERE name LIKE 'walshadow_resync_%'", "--raw") == []
