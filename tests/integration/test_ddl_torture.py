"""Random shape changes and rows, seeded, with kills: at the end every table equals the source.

What there is to change is read from the source's own catalog before each statement, inside the
transaction, so that a statement may build on what the transaction has done. A statement that the
source refuses is rolled back to its savepoint."""

import random
import time

import psycopg2
import pytest

from lib import parity, paths
from test_resync import settle

TYPES = {
    "int": "7", "bigint": "-5", "text": "'t'", "varchar(20)": "'c'", "numeric(9, 2)": "1.5", "bool": "true",
    "timestamptz(3)": "'2024-01-02 03:04:05.678+00'", "uuid": "'00112233-4455-6677-8899-aabbccddeeff'", "int[]": "'{1,2}'",
}
WIDER = {"varchar(20)": "text", "numeric(9, 2)": "numeric(12, 2)", "timestamptz(3)": "timestamptz", "int": "bigint"}
VALUES = {
    "int4": "(random() * 1000)::int", "int8": "(random() * 1e12)::bigint", "text": "md5(random()::text)",
    "varchar": "left(md5(random()::text), 9)", "numeric": "(random() * 1000)::numeric(9, 2)", "bool": "random() < 0.5",
    "timestamptz": "'2020-01-01'::timestamptz + random() * interval '900 days'", "uuid": "gen_random_uuid()",
    "_int4": "ARRAY[(random() * 9)::int, NULL]",
}


class Chaos:
    """One writer; every choice comes from the seed."""

    def __init__(self, source, seed):
        self.rng = random.Random(seed)
        self.connection = source.connect(autocommit=False)
        self.cursor = self.connection.cursor()
        self.serial = 0
        self.done = {}
        for schema in ("s1", "s2"):
            self.cursor.execute(f"CREATE SCHEMA {schema}")
        for _ in range(5):
            self.create()
        self.connection.commit()

    # -- what is there --------------------------------------------------------------------------

    def rows(self, query, *args):
        self.cursor.execute(query, args)
        return self.cursor.fetchall()

    def table(self, kinds="r", partitions=False):
        found = self.rows(
            "SELECT c.oid::regclass::text, c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname IN ('public', 's1', 's2') AND relkind = ANY (%s) AND relispartition = %s ORDER BY c.relname",
            list(kinds), partitions)
        return self.rng.choice(found) if found else None

    def columns(self, oid, where="true"):
        return self.rows(
            "SELECT quote_ident(attname), typname, attnotnull FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid "
            "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attname <> 'id' AND NOT EXISTS (SELECT FROM pg_index "
            f"WHERE indrelid = attrelid AND attnum = ANY (indkey)) AND {where} ORDER BY attnum", oid)

    def name(self):
        self.serial += 1
        return f"n{self.serial}"

    def run(self, sql):
        self.cursor.execute(sql)

    # -- statements -----------------------------------------------------------------------------

    def create(self):
        kind = self.rng.choice(["PRIMARY KEY", "PRIMARY KEY", ""])
        columns = [f"c{i} {t}" for i, t in enumerate(self.rng.sample(sorted(TYPES), 3))]
        name = f"{self.rng.choice(['public', 's1'])}.{self.name()}"
        parts = kind and self.rng.random() < 0.3
        self.run(f"CREATE TABLE {name} (id int {kind}, {', '.join(columns)}){' PARTITION BY RANGE (id)' if parts else ''}")
        for i in range(3 if parts else 0):
            self.run(f"CREATE TABLE {name}_{i} PARTITION OF {name} FOR VALUES FROM ({i * 1000}) TO ({i * 1000 + 1000})")
        self.fill(name, self.rows("SELECT %s::regclass::oid", name)[0][0], 50)

    def fill(self, name, oid, n):
        values = [(c, VALUES[t]) for c, t, _ in self.columns(oid) if t in VALUES]
        self.run(f"INSERT INTO {name} (id{''.join(', ' + c for c, _ in values)}) SELECT i"
                 f"{''.join(', ' + v for _, v in values)} FROM generate_series({self.serial}, {self.serial + n - 1}) i"
                 " WHERE i < 3000 ON CONFLICT DO NOTHING")
        self.serial += n

    def insert(self):
        name, oid, _ = self.table("rp")
        self.fill(name, oid, self.rng.randint(1, 30))

    def update(self):
        name, oid, _ = self.table("rp")
        for column, kind, _ in self.columns(oid)[:2]:
            if kind in VALUES:
                self.run(f"UPDATE {name} SET {column} = {VALUES[kind]} WHERE id % 7 = {self.rng.randint(0, 6)}")

    def move(self):
        name, _, kind = self.table("r")
        self.run(f"UPDATE {name} SET id = id + 5000 WHERE id % 11 = {self.rng.randint(0, 10)} AND id < 3000")

    def delete(self):
        self.run(f"DELETE FROM {self.table('rp')[0]} WHERE id % 9 = {self.rng.randint(0, 8)}")

    def truncate(self):
        self.run(f"TRUNCATE {', '.join({self.table('rp')[0] for _ in range(self.rng.randint(1, 2))})}")

    def add(self):
        t = self.rng.choice(sorted(TYPES))
        default = self.rng.choice(["", f"DEFAULT {TYPES[t]}", f"NOT NULL DEFAULT {TYPES[t]}"])
        if t == "uuid" and default:
            default = "DEFAULT gen_random_uuid()" if self.rng.random() < 0.3 else default
        self.run(f"ALTER TABLE {self.table('rp')[0]} ADD COLUMN {self.name()} {t} {default}")

    def column_of(self, where="true"):
        name, oid, _ = self.table("rp")
        found = self.columns(oid, where)
        return (name, self.rng.choice(found)[0]) if found else (name, "none")

    def drop_column(self):
        name, column = self.column_of()
        self.run(f"ALTER TABLE {name} DROP COLUMN {column}")

    def rename_column(self):
        name, column = self.column_of()
        self.run(f"ALTER TABLE {name} RENAME COLUMN {column} TO {self.name()}")

    def replace_column(self):
        name, column = self.column_of()
        self.run(f"ALTER TABLE {name} DROP COLUMN {column}, ADD COLUMN {column} text DEFAULT 'again'")

    def swap_columns(self):
        name, oid, _ = self.table("rp")
        (a, *_), (b, *_) = self.rng.sample(self.columns(oid), 2)
        for x, y in ((a, "swap"), (b, a), ("swap", b)):
            self.run(f"ALTER TABLE {name} RENAME COLUMN {x} TO {y}")

    def retype(self):
        name, column = self.column_of("typname IN ('varchar', 'numeric', 'timestamptz', 'int4')")
        oid = self.rows("SELECT %s::regclass::oid", name)[0][0]
        was = self.rows("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s AND quote_ident(attname) = %s",
                        oid, column)
        to = {"character varying(20)": "text", "numeric(9,2)": "numeric(12, 2)", "integer": "bigint",
              "timestamp(3) with time zone": "timestamptz"}.get(was[0][0], "text") if was else "text"
        self.run(f"ALTER TABLE {name} ALTER {column} TYPE {to}")

    def null(self):
        name, column = self.column_of()
        self.run(f"ALTER TABLE {name} ALTER {column} {self.rng.choice(['DROP', 'SET'])} NOT NULL")

    def rename(self):
        self.run(f"ALTER TABLE {self.table('rp')[0]} RENAME TO {self.name()}")

    def swap(self):
        a, b = self.table("rp")[0], self.table("rp")[0]
        bare = {x: x.split(".")[-1] for x in (a, b)}
        schema = a.split(".")[0] + "." if "." in a else ""
        if a == b or ("." in a) != ("." in b) or (schema and not b.startswith(schema)):
            return
        self.run(f"ALTER TABLE {a} RENAME TO swap; ALTER TABLE {b} RENAME TO {bare[a]};"
                 f"ALTER TABLE {schema}swap RENAME TO {bare[b]}")

    def set_schema(self):
        self.run(f"ALTER TABLE {self.table('rp')[0]} SET SCHEMA {self.rng.choice(['public', 's1', 's2'])}")

    def rename_schema(self):
        self.run("ALTER SCHEMA s1 RENAME TO s0; ALTER SCHEMA s2 RENAME TO s1; ALTER SCHEMA s0 RENAME TO s2")

    def drop(self):
        self.run(f"DROP TABLE {self.table('rp')[0]}")
        self.create()

    def brief(self):
        self.run("CREATE TABLE brief (id int); INSERT INTO brief VALUES (1); DROP TABLE brief")

    def cluster(self):
        name, oid, _ = self.table("r")
        index = self.rows("SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s", oid)
        if index:
            self.run(f"CLUSTER {name} USING {index[0][0].split('.')[-1]}")

    def identity(self):
        self.run(f"ALTER TABLE {self.table('r')[0]} REPLICA IDENTITY {self.rng.choice(['FULL', 'DEFAULT'])}")

    def unkey(self):
        name, oid, _ = self.table("r")
        found = self.rows("SELECT conname FROM pg_constraint WHERE conrelid = %s AND contype = 'p'", oid)
        self.run(f"ALTER TABLE {name} DROP CONSTRAINT {found[0][0]}" if found else f"ALTER TABLE {name} ADD PRIMARY KEY (id)")

    def detach(self):
        name, oid, _ = self.table("r", partitions=True)
        root = self.rows("SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = %s", oid)[0][0]
        self.run(f"ALTER TABLE {root} DETACH PARTITION {name}")

    COMMON = ("insert", "insert", "update", "update", "delete", "move", "add", "add", "drop_column", "rename_column")
    RARE = ("truncate", "replace_column", "swap_columns", "retype", "null", "rename", "swap", "set_schema", "rename_schema", "drop",
            "brief", "cluster", "identity", "unkey", "detach", "create")

    def statement(self):
        """One statement, or none where the source refuses it; now and then taken back."""
        which = self.rng.choice(self.COMMON if self.rng.random() < 0.6 else self.RARE)
        self.run("SAVEPOINT one")
        try:
            getattr(self, which)()
            if self.rng.random() < 0.15:
                self.run("ROLLBACK TO one")
            else:
                self.done[which] = self.done.get(which, 0) + 1
        except (psycopg2.Error, TypeError, ValueError):
            self.run("ROLLBACK TO one")

    def transaction(self):
        for _ in range(self.rng.choice([1, 1, 2, 4])):
            self.statement()
        if self.rng.random() < 0.08:
            self.connection.rollback()
        else:
            self.connection.commit()
        if self.rng.random() < 0.03:
            self.vacuum_full()

    def vacuum_full(self):
        """In no transaction block, unlike all else."""
        name, _, _ = self.table("rp")
        self.connection.rollback()
        self.connection.autocommit = True
        self.run(f"VACUUM FULL {name}")
        self.connection.autocommit = False

    def close(self):
        self.connection.close()


def torture(source, daemon, seed, transactions, rounds):
    chaos = Chaos(source, seed)
    rng = random.Random(seed)
    daemon.start().wait_state("streaming")
    for turn in range(rounds):
        kills = sorted(rng.sample(range(transactions), 1 if turn % 2 == 0 else 0))
        for i in range(transactions):
            chaos.transaction()
            if i in kills:
                time.sleep(rng.uniform(0, 0.6))
                daemon.kill()
                daemon.start()
        daemon.wait_state("streaming")
        daemon.wait_caught_up()
        settle(daemon)
        try:
            parity.assert_equal(source, daemon)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, round {turn}: {error}") from None
    chaos.close()
    assert sum(chaos.done.values()) > transactions * rounds // 2, chaos.done


@pytest.mark.parametrize("major", paths.MAJORS)
def test_short(sources, daemons, major):
    source = sources(major)
    torture(source, daemons(source), 100 + major, 20, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("major", paths.MAJORS)
def test_long(sources, daemons, major, seed):
    source = sources(major)
    torture(source, daemons(source), seed, 120, 4)
