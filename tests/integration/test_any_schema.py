"""Tables nobody had in mind: random names, types, keys and identities, written by several sessions from
before the load on, with kills of the daemon and the engine; equal at the end."""

import io
import os
import random
import signal
import threading
import time

import pytest
from psycopg2 import errors

from lib import paths
from test_resync import assert_equal

SEED = int(os.environ.get("WALSHADOW_TEST_SEED") or random.SystemRandom().randrange(1 << 32))

TABLE_NAMES = ("t", 'Weird "q" name', "select", "täble", "a.b", "x'y", "back\\slash", "with space", "Ünï`tick", "_lsn")
COLUMN_NAMES = ("id", "Select", "b c", "_is", "é", 'q"q', "ti`ck", "_lsn_", "order", "x.y", "k'k", "Z", "val", "__v")


def text(rng, big=False):
    return rng.choice((
        lambda: "", lambda: "v%d" % rng.randrange(1000), lambda: "x" * rng.randrange(1800, 9000),
        lambda: "é漢字\t\n\\N'\"" + chr(rng.randrange(0x1F300, 0x1F5FF)) * rng.randrange(5),
        lambda: "".join(rng.choices("0123456789abcdef", k=rng.randrange(2000, 20000))),
        lambda: "".join(rng.choices("abcdefghij\n", k=rng.randrange(900_000, 1_200_000) if big else 50)),
    ))()


def month_and_day(rng):
    return "2026-%02d-%02d" % (rng.randrange(1, 13), rng.randrange(1, 29))


# What any column may hold.
VALUES = {
    "int": lambda rng: str(rng.randrange(-(2**31), 2**31)),
    "bigint": lambda rng: str(rng.randrange(-(2**63), 2**63)),
    "smallint": lambda rng: str(rng.randrange(-5, 5)),
    "text": text,
    "varchar(300)": lambda rng: text(rng)[:200],
    "char(7)": lambda rng: text(rng)[:7],
    "bytea": lambda rng: "\\x" + rng.randbytes(rng.randrange(100)).hex(),
    "numeric": lambda rng: rng.choice(("NaN", "0", "-0.00100", "1e%d" % rng.randrange(60), "%.5f" % rng.uniform(0, 1e9))),
    "numeric(12,3)": lambda rng: "%.3f" % rng.uniform(-5e7, 5e7),
    "float8": lambda rng: rng.choice(("NaN", "Infinity", "-0", repr(rng.random() * 10 ** rng.randrange(-30, 30)))),
    "real": lambda rng: "%.5g" % rng.random(),
    "boolean": lambda rng: rng.choice("tf"),
    "date": lambda rng: rng.choice(("2020-02-29", "1970-01-01", "1900-01-01", "2299-12-31", month_and_day(rng))),
    "timestamp": lambda rng: rng.choice(("1999-12-31 23:59:59.999999", month_and_day(rng) + " 09:10:11.123")),
    "timestamptz": lambda rng: month_and_day(rng) + " 01:02:03.%06d+05:30" % rng.randrange(10**6),
    "time": lambda rng: rng.choice(("24:00:00", "%02d:00:00.5" % rng.randrange(24))),
    "interval": lambda rng: "%d mons %d days %d secs" % (rng.randrange(-50, 50), rng.randrange(-400, 400), rng.randrange(10**6)),
    "uuid": lambda rng: "%032x" % rng.getrandbits(128),
    "jsonb": lambda rng: '{"a": [%d, null, "é\\n"], "b": {"c": %s}}' % (rng.randrange(99), rng.random()),
    "json": lambda rng: ' {"x" :  %d } ' % rng.randrange(9),
    "int[]": lambda rng: "{%s}" % ",".join(rng.choice(("NULL", str(rng.randrange(9)))) for _ in range(rng.randrange(5))),
    "text[]": lambda rng: rng.choice(("{}", '{"a b",NULL,"",c}', "{{x,y},{z,w}}")),
    "inet": lambda rng: "10.%d.0.1/%d" % (rng.randrange(255), rng.randrange(33)),
    "macaddr": lambda rng: "08:00:2b:01:02:%02x" % rng.randrange(256),
    "int4range": lambda rng: rng.choice(("empty", "[1,%d)" % rng.randrange(2, 99), "(,5]")),
    "bit(5)": lambda rng: format(rng.randrange(32), "05b"),
    "money": lambda rng: "%.2f" % rng.uniform(0, 1000),
    "point": lambda rng: "(%d,%d)" % (rng.randrange(9), rng.randrange(9)),
    "tsvector": lambda rng: "'a':%d 'bc':2" % rng.randrange(1, 9),
    "xid8": lambda rng: str(rng.getrandbits(60)),
}
# What a key column may hold beyond that: its column becomes String for it.
KEY_VALUES = {**VALUES, "date": lambda rng: rng.choice(("infinity", "0044-03-15 BC", VALUES["date"](rng))),
              "timestamp": lambda rng: rng.choice(("-infinity", VALUES["timestamp"](rng)))}
KEY_TYPES = ("int", "bigint", "smallint", "varchar(300)", "char(7)", "uuid", "date", "timestamp", "timestamptz", "boolean",
             "numeric(12,3)", "numeric", "inet", "bytea", "time")
KEY_COLUMNS = {"none": 0, "pk": 1, "pk2": 2, "pk3": 3, "index": 2, "full": 0, "parts": 2}


def quote(name):
    return '"' + name.replace('"', '""') + '"'


class Table:
    def __init__(self, rng, number):
        self.plain = TABLE_NAMES[number % len(TABLE_NAMES)] + str(number)
        self.name = quote(self.plain)
        self.kind = rng.choice(tuple(KEY_COLUMNS))
        names = rng.sample(COLUMN_NAMES, rng.randrange(3, 11))
        self.keys = names[:KEY_COLUMNS[self.kind]]
        self.columns = [(n, rng.choice(KEY_TYPES if n in self.keys else tuple(VALUES)), n in self.keys or rng.random() < 0.2)
                        for n in rng.sample(names, len(names))]

    def create(self):
        columns = ", ".join(f"{quote(n)} {t}{' NOT NULL' if not_null else ''}" for n, t, not_null in self.columns)
        key = ", ".join(map(quote, self.keys))
        primary = f", PRIMARY KEY ({key})" if self.kind in ("pk", "pk2", "pk3", "parts") else ""
        by = f" PARTITION BY HASH ({quote(self.keys[0])})" if self.kind == "parts" else ""
        yield f"CREATE TABLE {self.name} ({columns}{primary}){by}"
        for part in range(3 if self.kind == "parts" else 0):
            yield (f"CREATE TABLE {quote(self.plain + f'_{part}')} PARTITION OF {self.name} "
                   f"FOR VALUES WITH (MODULUS 3, REMAINDER {part})")
        if self.kind == "index":
            index = quote(self.plain + "_index")
            yield f"CREATE UNIQUE INDEX {index} ON {self.name} ({key})"
            yield f"ALTER TABLE {self.name} REPLICA IDENTITY USING INDEX {index}"
        if self.kind == "full":
            yield f"ALTER TABLE {self.name} REPLICA IDENTITY FULL"

    def value(self, rng, column, big=False):
        name, kind, not_null = column
        if not not_null and rng.random() < 0.2:
            return None
        if kind == "text":
            return text(rng, big)
        return (KEY_VALUES if name in self.keys else VALUES)[kind](rng)

    def row(self, rng, big=False):
        return [self.value(rng, column, big) for column in self.columns]


class Session(threading.Thread):
    """Random transactions until it is told to stop."""

    def __init__(self, pg, tables, seed):
        super().__init__(daemon=True)
        self.pg, self.tables, self.rng = pg, tables, random.Random(seed)
        self.going, self.steps, self.error = True, 0, None

    def run(self):
        try:
            # psycopg2 keeps Python's lock while a COPY ends: what waits for another session must not wait long
            connection = self.pg.connect(autocommit=False, options="-c lock_timeout=1s")
            while self.going:
                self.transaction(connection)
            connection.close()
        except BaseException as error:  # noqa: BLE001 - the test tells of it
            self.error = error

    def end(self):
        self.going = False
        self.join(60)
        assert self.error is None, self.error

    def transaction(self, connection):
        cursor = connection.cursor()
        try:
            for _ in range(self.rng.choice((1, 1, 2, 8))):
                if self.rng.random() < 0.3:
                    self.savepoints(cursor)
                else:
                    self.step(cursor)
            self.rng.choice((connection.commit, connection.commit, connection.commit, connection.rollback))()
        except (errors.UniqueViolation, errors.DeadlockDetected, errors.LockNotAvailable):
            connection.rollback()

    def savepoints(self, cursor):
        cursor.execute("SAVEPOINT outer_one")
        for _ in range(2):
            cursor.execute("SAVEPOINT inner_one")
            try:
                self.step(cursor)
            except errors.UniqueViolation:
                cursor.execute("ROLLBACK TO inner_one")
        cursor.execute(self.rng.choice(("ROLLBACK TO outer_one", "RELEASE outer_one")))

    def step(self, cursor):
        table = self.rng.choice(self.tables)
        self.rng.choice((self.insert, self.insert, self.insert, self.update, self.update, self.touch, self.delete, self.copy))(
            cursor, table)
        self.steps += 1

    def insert(self, cursor, table):
        places = ", ".join(["%s"] * len(table.columns))
        row = table.row(self.rng, self.rng.random() < 0.15)
        for _ in range(1 if table.keys else self.rng.choice((1, 3))):  # twins
            cursor.execute(f"INSERT INTO {table.name} VALUES ({places}) ON CONFLICT DO NOTHING", row)

    def some(self, table, most):
        return f"ctid IN (SELECT ctid FROM {table.name} ORDER BY random() LIMIT {most})"

    def update(self, cursor, table):
        column = self.rng.choice(table.columns)
        most = 1 if column[0] in table.keys else self.rng.choice((1, 5))
        cursor.execute(f"UPDATE {table.name} SET {quote(column[0])} = %s WHERE {self.some(table, most)}",
                       [table.value(self.rng, column, self.rng.random() < 0.2)])

    def touch(self, cursor, table):
        column = quote(table.columns[0][0])
        cursor.execute(f"UPDATE {table.name} SET {column} = {column} WHERE {self.some(table, 20)}")

    def delete(self, cursor, table):
        cursor.execute(f"DELETE FROM {table.name} WHERE {self.some(table, 2)}")

    def copy(self, cursor, table):
        def field(value):
            if value is None:
                return "\\N"
            return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")

        rows = ("\t".join(map(field, table.row(self.rng))) for _ in range(self.rng.choice((10, 1000))))
        cursor.copy_expert(f"COPY {table.name} FROM STDIN", io.StringIO("\n".join(rows) + "\n"))


@pytest.mark.parametrize("major", [16, *(pytest.param(m, marks=pytest.mark.slow) for m in (15, 17, 18))])
def test_any_schema(sources, daemons, major):
    assert major in paths.MAJORS
    print(f"WALSHADOW_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    source = sources(major)
    tables = [Table(rng, number) for number in range(12)]
    for table in tables:
        for statement in table.create():
            source.app(statement)
    source.pgbench_init(5)
    sessions = [Session(source, tables, SEED + lane) for lane in range(4)]
    for session in sessions:
        session.start()
    time.sleep(2)
    daemon = daemons(source).start()
    daemon.wait_status(lambda s: s["state"] == "bootstrapping", 60)
    time.sleep(rng.random())
    daemon.kill()
    daemon.start()
    source.pgbench_init(6)  # again, in the load
    daemon.wait_state("streaming", 300)
    for victim in ("daemon", "engine", "daemon"):
        time.sleep(rng.uniform(2, 4))
        if victim == "engine":
            os.kill(daemon.engine_pid(), signal.SIGKILL)
            continue
        daemon.kill()
        time.sleep(rng.random())
        daemon.start().wait_state("streaming", 300)
    time.sleep(2)
    assert daemon.running()
    for session in sessions:
        session.end()
    assert sum(session.steps for session in sessions) > 200
    daemon.wait_caught_up(300)
    assert {t["state"] for t in daemon.status()["tables"]} == {"streaming"}
    assert_equal(source, daemon)
