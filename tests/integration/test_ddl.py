"""Shape changes are carried in place: no table is copied again, every value equals the source's."""

import os
import random

import pytest

from lib import parity, paths
from lib.engine import Engine
from lib.process import wait_until
from test_resync import settle


def assert_in_place(source, daemon):
    """Equal, and nothing was copied again for it."""
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)
    copied = [line for line in daemon.log_text().split("\n") if "table is copied again" in line]
    assert not copied, copied


IN_PLACE = {
    "add_null": "ALTER TABLE {t} ADD COLUMN w text",
    "add_default": "ALTER TABLE {t} ADD COLUMN w int NOT NULL DEFAULT 7, ADD COLUMN x text DEFAULT 'a\\''b\\\\c'",
    "drop": "ALTER TABLE {t} DROP COLUMN v",
    "drop_add": "ALTER TABLE {t} DROP COLUMN v, ADD COLUMN v bigint DEFAULT 5",
    "rename": "ALTER TABLE {t} RENAME COLUMN v TO \"V v\"",
    "swap_columns": "BEGIN; ALTER TABLE {t} RENAME COLUMN v TO tmp; ALTER TABLE {t} RENAME COLUMN u TO v;"
                    "ALTER TABLE {t} RENAME COLUMN tmp TO u; COMMIT",
    "inherit_name": "BEGIN; ALTER TABLE {t} DROP COLUMN v; ALTER TABLE {t} RENAME COLUMN u TO v; COMMIT",
    "nullable": "ALTER TABLE {t} ALTER n DROP NOT NULL",
    "not_null": "ALTER TABLE {t} ALTER v SET NOT NULL",
    "wider": "ALTER TABLE {t} ALTER c TYPE text, ALTER d TYPE numeric(30, 2), ALTER e TYPE timestamptz",
}


def test_columns(source, daemons):
    """Each kind of change between rows of other transactions, and rows in the same transaction."""
    for t in IN_PLACE:
        source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, v text, u text, n int NOT NULL, c varchar(40), "
                   f"d numeric(9, 2), e timestamptz(3));"
                   f"INSERT INTO {t} SELECT i, 'v' || i, 'u' || i, i, 'c' || i, i / 7.0, "
                   f"'2024-02-03 04:05:06.789+00'::timestamptz + i * interval '1 ms' FROM generate_series(1, 500) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    for t, statement in IN_PLACE.items():
        source.app(f"UPDATE {t} SET n = n + 1000 WHERE id % 3 = 0; DELETE FROM {t} WHERE id % 7 = 0;"
                   f"BEGIN; UPDATE {t} SET n = n + 1 WHERE id % 5 = 0; {statement.format(t=t).replace('BEGIN;', '').replace('COMMIT', '')};"
                   f"UPDATE {t} SET n = n + 1 WHERE id % 4 = 0; INSERT INTO {t} (id, n) SELECT i, i FROM generate_series(601, 620) i"
                   f" ; COMMIT" if t != "not_null" else
                   f"UPDATE {t} SET n = n + 1000 WHERE id % 3 = 0; {statement.format(t=t)}; UPDATE {t} SET v = 'w' WHERE id = 4")
    assert_in_place(source, daemon)
    daemon.kill()
    for t in IN_PLACE:
        source.app(f"UPDATE {t} SET n = n * 2 WHERE id % 9 = 0")
    daemon.start().wait_state("streaming")
    assert_in_place(source, daemon)


def test_names(source, daemons):
    """Tables renamed, swapped, moved to schemas, schemas renamed; what a name belongs to is never mixed up."""
    for t in "abcdefg":
        source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, {t}_v text);"
                   f"INSERT INTO {t} SELECT i, '{t}' || i FROM generate_series(1, 100) i")
    source.app("CREATE SCHEMA s; CREATE TABLE s.t (id int PRIMARY KEY, v text); INSERT INTO s.t VALUES (1, 's');"
               "CREATE TABLE s.p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
               "CREATE TABLE s.p1 PARTITION OF s.p FOR VALUES FROM (0) TO (10); INSERT INTO s.p VALUES (3, 'p')")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("BEGIN; INSERT INTO a VALUES (200, 'in'); ALTER TABLE a RENAME TO a2; INSERT INTO a2 VALUES (201, 'in');"
               "UPDATE a2 SET a_v = 'u' WHERE id % 2 = 0; COMMIT")
    # two names and then three change hands in one transaction
    source.app("BEGIN; ALTER TABLE b RENAME TO x; ALTER TABLE c RENAME TO b; ALTER TABLE x RENAME TO c;"
               "INSERT INTO b VALUES (300, 'was c'); INSERT INTO c VALUES (300, 'was b'); COMMIT")
    source.app("BEGIN; ALTER TABLE b RENAME TO x; ALTER TABLE c RENAME TO b; ALTER TABLE d RENAME TO c;"
               "ALTER TABLE x RENAME TO d; ALTER TABLE d ADD COLUMN n int DEFAULT 3; INSERT INTO d VALUES (301, 'x', 4); COMMIT")
    # one takes the name of one that is dropped, and a new one the name that is given up
    source.app("BEGIN; DROP TABLE e; ALTER TABLE f RENAME TO e; CREATE TABLE f (id int PRIMARY KEY, other int);"
               "INSERT INTO f VALUES (1, 1); INSERT INTO e VALUES (302, 'was f'); COMMIT")
    source.app("ALTER TABLE a2 SET SCHEMA s; INSERT INTO s.a2 VALUES (303, 's'); ALTER SCHEMA s RENAME TO \"S t\";"
               "INSERT INTO \"S t\".t VALUES (2, 't'); INSERT INTO \"S t\".p VALUES (4, 'q');"
               "ALTER TABLE \"S t\".p1 RENAME TO p_one; INSERT INTO \"S t\".p VALUES (5, 'r');"
               "ALTER TABLE \"S t\".p ADD COLUMN n int DEFAULT 9; INSERT INTO \"S t\".p VALUES (6, 'r', 1);"
               "ALTER TABLE \"S t\".p RENAME COLUMN v TO w; UPDATE \"S t\".p SET w = 'z' WHERE id = 3")
    assert_in_place(source, daemon)
    assert {r[0] for r in daemon.sql("SELECT name FROM system.tables WHERE database = 'app_S t'")} >= {"a2", "t", "p"}
    assert daemon.sql("SELECT name FROM system.tables WHERE name LIKE 'walshadow_moved%'") == []
    daemon.kill()
    daemon.start().wait_state("streaming")
    source.app("UPDATE b SET id = id + 1000; UPDATE e SET id = id + 1000; UPDATE \"S t\".a2 SET id = id + 1000")
    assert_in_place(source, daemon)


def test_drop_strategies(source, daemons):
    """The target of a dropped table stays or goes, and comes back under the same name."""
    source.app("CREATE SCHEMA s; CREATE TABLE kept (id int PRIMARY KEY); CREATE TABLE s.gone (id int PRIMARY KEY);"
               "INSERT INTO kept VALUES (1); INSERT INTO s.gone VALUES (1)")
    config = {"destination": {"default": {"drop_table_strategy": "warn"}},
              "namespace": {"s": {"drop_table_strategy": "drop"}}}
    daemon = daemons(source, config=config).start()
    daemon.wait_state("streaming")
    source.app("BEGIN; INSERT INTO kept VALUES (2); INSERT INTO s.gone VALUES (2); DROP TABLE kept, s.gone; COMMIT")
    daemon.wait_caught_up()
    assert daemon.sql("SELECT id FROM app.kept ORDER BY id") == [["1"]]
    assert daemon.sql("SELECT name FROM system.tables WHERE database = 'app_s'") == []
    assert "level=warn msg=\"table dropped at the source, target kept\" table=\"public.kept\"" in daemon.log_text()
    source.app("CREATE TABLE kept (v text PRIMARY KEY); INSERT INTO kept VALUES ('new');"
               "CREATE TABLE s.gone (v text PRIMARY KEY); INSERT INTO s.gone VALUES ('new')")
    source.app("BEGIN; CREATE TABLE s.brief (id int PRIMARY KEY); INSERT INTO s.brief VALUES (1); DROP TABLE s.brief; COMMIT")
    daemon.kill()
    daemon.start().wait_state("streaming")
    assert_in_place(source, daemon)
    aside = daemon.sql("SELECT name FROM system.tables WHERE database = 'app' AND name LIKE 'kept_dropped_%'")
    assert len(aside) == 1 and daemon.sql(f"SELECT id FROM app.{aside[0][0]}") == [["1"]]


DEFAULTS = {
    "bool": ["true"], "int2": ["-7"], "int4": ["2147483647"], "int8": ["-9223372036854775808"], "oid": ["4000000000"],
    "float4": ["'NaN'", "1e-30"], "float8": ["0.1", "'-Infinity'", "1.7976931348623157e308"],
    "numeric(9, 2)": ["-1.5"], "numeric(76, 20)": ["12345678901234567890.123456789"], "numeric": ["'NaN'", "1.500"],
    "text": ["''", "E'a\\'b\\\\c\\n\\t'", "'ü日本'"], "varchar(10)": ["'x'"], "char(5)": ["'ab'"], "name": ["'n'"],
    "bytea": ["'\\x00ff27'"], "date": ["'2024-02-29'", "'1901-01-01'", "'2283-11-11'"],
    "time": ["'23:59:59.999999'"], "timetz": ["'01:02:03+05:30'"], "timestamp": ["'1969-12-31 23:59:59.999999'"],
    "timestamp(3)": ["'2024-01-02 03:04:05.678'"], "timestamptz": ["'2024-01-02 03:04:05.678901+02'"],
    "interval": ["'1 year 2 days 03:04:05.6'"], "uuid": ["'00112233-4455-6677-8899-aabbccddeeff'"],
    "inet": ["'1.2.3.4/24'"], "cidr": ["'10.0.0.0/8'"], "macaddr": ["'08:00:2b:01:02:03'"], "json": ["'{\"a\": [1, null]}'"],
    "jsonb": ["'{\"a\": [1, null], \"b\": \"x''y\"}'"], "int[]": ["'{1,NULL,3}'"], "text[]": ["ARRAY['a,b', 'c\"d', NULL]"],
    "int4range": ["'[1,5)'"], "point": ["'(1.5,-2)'"], "bit(3)": ["B'101'"], "varbit": ["B'1'"], "money": ["'$1,234.56'"],
    "mood": ["'very happy'"], "pair": ["ROW(1, 'a b')"], "dom": ["5"], "xml": ["'<a/>'"], "tsvector": ["'a:1 b:2'"],
    "pg_lsn": ["'1/A0'"], "\"char\"": ["'c'"],
}


def test_value_of_old_rows(source, daemons):
    """ADD COLUMN … DEFAULT without a rewrite: rows of before read as the source says, for every type."""
    source.app("CREATE TYPE mood AS ENUM ('sad', 'very happy'); CREATE TYPE pair AS (a int, b text);"
               "CREATE DOMAIN dom AS int;"
               "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'v' FROM generate_series(1, 20) i;"
               "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id);"
               "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (100);"
               "CREATE TABLE high PARTITION OF root FOR VALUES FROM (100) TO (200); INSERT INTO root VALUES (1), (101)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    added = []
    for name, values in DEFAULTS.items():
        for value in values:
            null = " NOT NULL" if len(added) % 2 else ""
            added.append(f"ADD COLUMN c{len(added)} {name}{null} DEFAULT {value}")
    for i in range(0, len(added), 10):
        source.app(f"ALTER TABLE t {', '.join(added[i:i + 10])}; UPDATE t SET v = 'w' WHERE id = {i % 20 + 1}")
    source.app("ALTER TABLE root ADD COLUMN v text DEFAULT 'd', ADD COLUMN n numeric(9,2) NOT NULL DEFAULT 7;"
               "INSERT INTO root VALUES (2, 'x', 1)")
    assert_in_place(source, daemon)


# Each with rows before, in and after it; {t} is a table of its own.
KILLED = {
    "k_add": "ALTER TABLE {t} ADD COLUMN w int DEFAULT 7; ALTER TABLE {t} ADD COLUMN x text DEFAULT 'x'",
    "k_readd": "ALTER TABLE {t} DROP COLUMN v; ALTER TABLE {t} ADD COLUMN v int DEFAULT 5",
    "k_swap": "ALTER TABLE {t} RENAME COLUMN v TO z; ALTER TABLE {t} RENAME COLUMN u TO v;"
              "ALTER TABLE {t} RENAME COLUMN z TO u",
    "k_rename": "ALTER TABLE {t} RENAME COLUMN v TO z; ALTER TABLE {t} RENAME TO {t}_new",
    "k_null": "ALTER TABLE {t} ALTER n DROP NOT NULL; ALTER TABLE {t} ALTER d TYPE numeric(20, 2)",
}


def kill_round(source, daemon, fault, point, rng):
    """One kill at `point` while shapes change; False if the point was not reached."""
    names = rng.sample(sorted(KILLED), len(KILLED))
    suffix = point.replace("-", "_").replace(":", "_")
    for t in names:
        source.app(f"CREATE TABLE {t}{suffix} (id int PRIMARY KEY, v text, u text, n int NOT NULL, d numeric(9, 2));"
                   f"INSERT INTO {t}{suffix} SELECT i, 'v' || i, 'u' || i, i, i FROM generate_series(1, 50) i")
    daemon.wait_caught_up()
    with open(fault, "w") as f:
        f.write(point)
    for t in names:
        name = f"{t}{suffix}"
        new = f"{name}_new" if t == "k_rename" else name
        together = rng.random() < 0.5
        source.app(f"UPDATE {name} SET n = n + 1 WHERE id % 2 = 0; {'BEGIN;' if together else ''}"
                   f"DELETE FROM {name} WHERE id % 9 = 0; {KILLED[t].format(t=name)};"
                   f"UPDATE {new} SET n = n + 10 WHERE id % 3 = 0; INSERT INTO {new} (id, n) VALUES (100, 1)"
                   f"{'; COMMIT' if together else ''}")
    wait_until(lambda: not daemon.running() or daemon.verb("wait", "--timeout", "1", check=False).returncode == 0,
               120, "the kill, or everything at the destination")
    killed = not daemon.running()
    os.unlink(fault)
    if killed:
        daemon.start().wait_state("streaming")
    assert_in_place(source, daemon)
    return killed


@pytest.mark.fault_points
def test_killed_in_the_middle(source, daemons, full):
    """Before and behind any statement to ClickHouse: what comes again ends in the same tables."""
    rng = random.Random(5)
    source.app("CREATE TABLE first (id int PRIMARY KEY)")
    daemon = daemons(source, binary=paths.DEBUG_BIN)
    fault = os.path.join(daemon.base, "fault")
    daemon.env = {"WALSHADOW_TEST_FAULT": "@" + fault}
    daemon.start().wait_state("streaming")
    points = [f"{p}:{n}" for n in range(1, 14) for p in ("alter-before", "alter-after", "rename-after")]
    points += [f"{p}:{n}" for n in range(1, 6) for p in ("manifest-before-save", "manifest-after-save", "reorder-after-commit")]
    if not full:
        points = ["alter-after:2", "alter-before:5", "rename-after:1"]
    killed = [p for p in points if kill_round(source, daemon, fault, p, rng)]
    assert len(killed) >= len(points) // 2, killed


def test_rewritten_in_passing(source, daemons):
    """Rows that a transaction has written to a file which it leaves again, for one that comes as pages."""
    for t in ("emptied", "again", "widened"):
        source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, v int); INSERT INTO {t} SELECT i, i FROM generate_series(1, 20) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("BEGIN; TRUNCATE emptied; INSERT INTO emptied VALUES (100, 1); CLUSTER emptied USING emptied_pkey;"
               "INSERT INTO emptied VALUES (101, 1); COMMIT")
    source.app("BEGIN; CREATE TABLE made (id int PRIMARY KEY, v int); INSERT INTO made VALUES (1, 1);"
               "CLUSTER made USING made_pkey; INSERT INTO made VALUES (2, 2); COMMIT")
    source.app("BEGIN; TRUNCATE again; INSERT INTO again VALUES (1, 1); TRUNCATE again; INSERT INTO again VALUES (2, 2); COMMIT")
    source.app("BEGIN; CREATE TABLE cast_as AS SELECT i AS id, i AS v FROM generate_series(1, 10) i;"
               "ALTER TABLE cast_as ALTER v TYPE bigint; INSERT INTO cast_as VALUES (11, 11);"
               "ALTER TABLE cast_as ADD PRIMARY KEY (id); COMMIT")
    source.app("BEGIN; TRUNCATE widened; INSERT INTO widened VALUES (1, 1); ALTER TABLE widened ALTER v TYPE bigint;"
               "INSERT INTO widened VALUES (2, 1e12); COMMIT")
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)


def test_views(source, daemons):
    """A view of the current rows follows its table's columns and names."""
    source.app("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, w int);"
               "INSERT INTO a VALUES (1, 'x'), (2, 'y'); INSERT INTO b VALUES (7, 8)")
    config = {"destination": {"default": {"views": True, "drop_table_strategy": "drop"}}}
    daemon = daemons(source, config=config).start()
    daemon.wait_state("streaming")

    def live(name):
        return daemon.sql(f"SELECT * FROM app.{name}_live ORDER BY 1", "--raw")

    source.app("DELETE FROM a WHERE id = 1; UPDATE a SET v = 'z'")
    daemon.wait_caught_up()
    assert live("a") == [["2", "z"]] and live("b") == [["7", "8"]]
    source.app("ALTER TABLE a ADD COLUMN n int DEFAULT 5; INSERT INTO a VALUES (3, 'q', 6); ALTER TABLE a RENAME COLUMN v TO u;"
               "ALTER TABLE b DROP COLUMN w")
    daemon.wait_caught_up()
    assert live("a") == [["2", "z", "5"], ["3", "q", "6"]] and live("b") == [["7"]]
    source.app("BEGIN; ALTER TABLE a RENAME TO x; ALTER TABLE b RENAME TO a; ALTER TABLE x RENAME TO b; COMMIT")
    daemon.wait_caught_up()
    assert live("b") == [["2", "z", "5"], ["3", "q", "6"]] and live("a") == [["7"]]
    source.app("ALTER TABLE b RENAME TO c; ALTER TABLE a ALTER id TYPE bigint")
    daemon.wait_caught_up()
    settle(daemon)
    daemon.kill()
    daemon.start().wait_state("streaming")
    assert live("c") == [["2", "z", "5"], ["3", "q", "6"]] and live("a") == [["7"]]
    source.app("DROP TABLE c")
    daemon.wait_caught_up()
    assert daemon.sql("SELECT name FROM system.tables WHERE database = 'app' AND engine = 'View'") == [["a_live"]]
    parity.assert_equal(source, daemon)


def test_altered_by_hand(source, daemons):
    """Someone drops a target, renames it away, or alters its columns: the next rows mend it."""
    tables = ("dropped", "renamed", "lacking", "retyped", "sound")
    for t in tables:
        source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, v int); INSERT INTO {t} SELECT i, i FROM generate_series(1, 50) i")
    with Engine() as engine:
        daemon = daemons(source, destination=f"clickhouse://default@127.0.0.1:{engine.port}").start()
        daemon.wait_state("streaming")
        daemon.wait_caught_up()
        engine.query("DROP TABLE app.dropped SYNC")
        engine.query("RENAME TABLE app.renamed TO app.elsewhere")
        engine.query("ALTER TABLE app.lacking DROP COLUMN v")
        engine.query("ALTER TABLE app.retyped MODIFY COLUMN v Nullable(String)")
        for t in tables:
            source.app(f"UPDATE {t} SET v = v + 100 WHERE id % 2 = 0; DELETE FROM {t} WHERE id = 7")
        daemon.wait_caught_up()
        settle(daemon)
        source.app("INSERT INTO lacking VALUES (100, 1); ALTER TABLE sound ADD COLUMN w int DEFAULT 3")
        daemon.wait_caught_up()
        for t in tables:
            expected = [tuple(row) for row in source.app(f"SELECT * FROM {t} ORDER BY id")]
            columns = "id, v, w" if t == "sound" else "id, v"
            assert engine.query(f"SELECT {columns} FROM app.{t} FINAL WHERE NOT _is_deleted ORDER BY id") == expected, t
        assert [t["state"] for t in daemon.status()["tables"]] == ["streaming"] * len(tables)
        daemon.stop()
