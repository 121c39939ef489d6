"""Tables and writers that touch what a copy can get wrong: keys that change, twins, NULLs, savepoints,
large values, bulk loads. Every type used here is one that walshadow decodes from the start."""

import io
import random
import threading

SCHEMA = """
CREATE TABLE keyed (
    id int PRIMARY KEY,
    small int2, big int8, flag bool, code "char", object oid,
    real4 float4, real8 float8, amount numeric, price numeric(12,2),
    label text, short varchar(40), padded char(12), ident name,
    raw bytea, day date, clock time, zoned timetz, stamp timestamp, moment timestamptz,
    span interval, tag uuid, doc json);
CREATE TABLE composite_key (tenant int, code text, n int, note text, PRIMARY KEY (tenant, code));
CREATE TABLE text_key (code text PRIMARY KEY, n int);
CREATE TABLE ident_index (a int NOT NULL, b text NOT NULL, c int);
CREATE UNIQUE INDEX ident_index_ab ON ident_index (a, b);
ALTER TABLE ident_index REPLICA IDENTITY USING INDEX ident_index_ab;
CREATE TABLE full_identity (id int PRIMARY KEY, v text);
ALTER TABLE full_identity REPLICA IDENTITY FULL;
CREATE TABLE deferrable_key (id int PRIMARY KEY DEFERRABLE, v text);
CREATE TABLE keyless (a int, b text);
CREATE TABLE twins (a int, b text);
CREATE TABLE documents (id int PRIMARY KEY, body text);
CREATE TABLE parts (id int, region int, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
CREATE TABLE keyless_parts (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE keyless_parts_low PARTITION OF keyless_parts FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE keyless_parts_high PARTITION OF keyless_parts FOR VALUES FROM (1000) TO (MAXVALUE);
CREATE TABLE empty_table (id int PRIMARY KEY, v text);
CREATE SCHEMA other;
CREATE TABLE other.keyed (id int PRIMARY KEY, v text);
CREATE TABLE "Odd ""Name" (id int PRIMARY KEY, "select" text, "it's" int);
"""

# Rows present before the load, each with a corner of its type.
CORNERS = """
INSERT INTO keyed (id) VALUES (-1);
INSERT INTO keyed VALUES (-2, -32768, -9223372036854775808, false, '', 0, '-0', '-0', 0, 0, '', '', '',
    '', '', '1900-01-01', '00:00', '00:00+00', '1970-01-01', '1970-01-01 00:00+00', '0',
    '00000000-0000-0000-0000-000000000000', '""');
INSERT INTO keyed VALUES (-3, 32767, 9223372036854775807, true, 'x', 4294967295, 3.4028235e38,
    1.7976931348623157e308, 123456789012345678901234567890.123456789, 9999999999.99, E'tab\\tnl\\nbs\\\\q\\'v\\x0b',
    'zażółć', 'blanks   ', 'nm', '\\xdeadbeef00ff', '2262-04-11', '23:59:59.999999', '12:00:00.5+14',
    '2262-04-11 23:47:16', '2199-12-31 23:59:59.999999+00', '1 year 2 mons 3 days 04:05:06.789',
    'ffffffff-ffff-ffff-ffff-ffffffffffff', '{"a": [1, 2, {"b": null}]}');
INSERT INTO keyed (id, real4, real8, amount, label, span) VALUES
    (-4, 'NaN', 'NaN', 'NaN', '\\N', '-1 day'), (-5, 'Infinity', '-Infinity', 1e-20, 'NULL', '-00:00:01'),
    (-6, 1.17549435e-38, 5e-324, -0.1, E'\\\\', '1 mon -1 day'), (-7, 0.1, 0.1, 1e30, '\\', '100 years');
INSERT INTO keyless SELECT i, CASE WHEN i % 7 = 0 THEN NULL WHEN i % 11 = 0 THEN '' ELSE 'r' || i END
    FROM generate_series(1, 2000) i;
INSERT INTO twins SELECT i % 5, CASE WHEN i % 3 = 0 THEN NULL ELSE 'twin' END FROM generate_series(1, 300) i;
INSERT INTO composite_key SELECT i % 10, 'c' || i, i, NULL FROM generate_series(1, 1000) i;
INSERT INTO text_key SELECT 'k' || i, i FROM generate_series(1, 500) i;
INSERT INTO ident_index SELECT i, 'b' || i, i FROM generate_series(1, 500) i;
INSERT INTO full_identity SELECT i, 'v' || i FROM generate_series(1, 500) i;
INSERT INTO deferrable_key SELECT i, 'v' || i FROM generate_series(1, 500) i;
INSERT INTO documents SELECT i, repeat('compressible ' || i || ' ', 300) FROM generate_series(1, 200) i;
INSERT INTO parts SELECT i, i % 4, 'p' || i FROM generate_series(1, 1000) i;
INSERT INTO keyless_parts SELECT i, 'p' || i FROM generate_series(1, 2000) i;
INSERT INTO other.keyed SELECT i, 'o' || i FROM generate_series(1, 100) i;
INSERT INTO "Odd ""Name" SELECT i, 's' || i, i FROM generate_series(1, 50) i;
DELETE FROM keyless WHERE a % 10 = 0; DELETE FROM twins WHERE ctid IN (SELECT ctid FROM twins LIMIT 20);
"""


def create(pg, dbname="app"):
    """Creates the tables with their first rows, some of them dead."""
    pg.sql(SCHEMA, dbname=dbname)
    pg.sql(CORNERS, dbname=dbname)


def random_keyed(rng, key):
    """A row of `keyed` as SQL literals; a third of the values NULL."""

    def maybe(text):
        return "NULL" if rng.random() < 0.33 else text

    def quoted(text):
        return "'" + text.replace("'", "''") + "'"

    letters = "abc äöü €\t\n\\'\"%"
    word = "".join(rng.choice(letters) for _ in range(rng.randrange(0, 60)))
    values = [
        str(rng.randrange(-32768, 32768)), str(rng.randrange(-(2**63), 2**63)),
        rng.choice(["true", "false"]), quoted(rng.choice("abcXYZ")), str(rng.randrange(2**32)),
        quoted(repr(rng.uniform(-1e6, 1e6))), quoted(repr(rng.uniform(-1e300, 1e300))),
        str(rng.randrange(-(10**30), 10**30)) + "." + str(rng.randrange(10**9)),
        f"{rng.randrange(-10**11, 10**11) / 100:.2f}",
        quoted(word), quoted(word[:40]), quoted("pad" + str(rng.randrange(1000))), quoted(word[:20]),
        "'\\x" + rng.randbytes(rng.randrange(0, 40)).hex() + "'",
        f"date '1970-01-01' + {rng.randrange(-20000, 80000)}",
        f"time '00:00' + interval '{rng.randrange(86400)} s {rng.randrange(10**6)} us'",
        f"'{rng.randrange(24):02}:30:00.{rng.randrange(10**6):06}{rng.choice(['+02', '-11:30', '+00'])}'",
        f"timestamp '2000-01-01' + interval '{rng.randrange(-10**9, 10**9)} s {rng.randrange(10**6)} us'",
        f"timestamptz '2000-01-01 00:00+00' + interval '{rng.randrange(-10**9, 10**9)} s'",
        quoted(f"{rng.randrange(-50, 50)} mons {rng.randrange(-40, 40)} days {rng.randrange(-99999, 99999)} s"),
        f"'{rng.randbytes(16).hex()}'", "'" + '{"k": %d, "t": "ü"}' % rng.randrange(10**6) + "'",
    ]
    return f"({key}, {', '.join(maybe(v) for v in values)})"


class Mixer(threading.Thread):
    """A writer with one connection and a seed; several may run, each owns the ids of its lane.

    Errors of the writer are errors of the test: check() raises them.
    """

    LANES = 8

    def __init__(self, pg, seed=1, lane=0, dbname="app", big_values=False, rounds=None,
                 first=0, multixacts=True):
        super().__init__(daemon=True)
        self.pg = pg
        self.rng = random.Random(seed)
        self.lane = lane
        self.dbname = dbname
        self.big_values = big_values
        self.rounds = rounds
        # Whether a row that an upsert locked may be updated by a later subtransaction: then it has a
        # multixact with an updater.
        self.multixacts = multixacts
        self._nested = False
        self.done = 0
        self.commits = 0
        self.error = None
        self._ending = threading.Event()
        self._next = lane + self.LANES * (1 + first)  # ids of the lane below are left out

    def run(self):
        try:
            connection = self.pg.connect(self.dbname, autocommit=False)
            try:
                while not self._ending.is_set() and (self.rounds is None or self.done < self.rounds):
                    self.step(connection)
                    self.done += 1
            finally:
                connection.close()
        except Exception as error:  # handed to the test by check()
            self.error = error

    def stop(self):
        self._ending.set()
        self.join(60)
        self.check()
        return self

    def check(self):
        if self.error is not None:
            raise self.error

    def new_id(self):
        self._next += self.LANES
        return self._next

    def old_id(self):
        """An id this lane gave out before (perhaps deleted since)."""
        span = (self._next - self.lane) // self.LANES
        return self.lane + self.LANES * (1 + self.rng.randrange(max(1, span)))

    def step(self, connection):
        """One transaction of one to six random operations, one in eight rolled back."""
        rng = self.rng
        operations = [self.insert_keyed, self.update_keyed, self.delete_keyed, self.change_key,
                      self.composite, self.texts, self.identities, self.keyless, self.twins,
                      self.savepoints, self.copy_rows, self.upsert, self.partitions, self.documents]
        self._nested = False
        with connection.cursor() as cursor:
            for _ in range(rng.randrange(1, 7)):
                rng.choice(operations)(cursor)
        if rng.random() < 0.125:
            connection.rollback()
        else:
            connection.commit()
            self.commits += 1

    def insert_keyed(self, cursor):
        rows = [random_keyed(self.rng, self.new_id()) for _ in range(self.rng.randrange(1, 8))]
        cursor.execute("INSERT INTO keyed VALUES " + ", ".join(rows))

    def update_keyed(self, cursor):
        row = random_keyed(self.rng, self.old_id())
        cursor.execute(f"DELETE FROM keyed WHERE id = {row[1:row.index(',')]}; INSERT INTO keyed VALUES {row}")
        cursor.execute("UPDATE keyed SET small = %s, label = %s WHERE id = %s",
                       (self.rng.randrange(100), "upd" * self.rng.randrange(20), self.old_id()))

    def delete_keyed(self, cursor):
        cursor.execute("DELETE FROM keyed WHERE id = %s", (self.old_id(),))

    def change_key(self, cursor):
        cursor.execute("UPDATE keyed SET id = %s WHERE id = %s", (self.new_id(), self.old_id()))
        new, old = self.new_id(), self.old_id()
        cursor.execute("INSERT INTO text_key VALUES (%s, 1) ON CONFLICT DO NOTHING", (f"t{old}",))
        cursor.execute("UPDATE text_key SET code = %s WHERE code = %s", (f"t{new}", f"t{old}"))

    def composite(self, cursor):
        if self._nested and not self.multixacts:
            return
        tenant, code = 100 + self.lane, f"x{self.old_id() % 500}"
        cursor.execute(
            "INSERT INTO composite_key VALUES (%s, %s, %s, NULL) ON CONFLICT (tenant, code) "
            "DO UPDATE SET n = composite_key.n + 1, note = 'seen'", (tenant, code, self.done))
        if self.rng.random() < 0.3:
            cursor.execute("DELETE FROM composite_key WHERE tenant = %s AND code = %s",
                           (tenant, f"x{self.old_id() % 500}"))

    def texts(self, cursor):
        value = self.rng.choice([None, "", " ", "NULL", "\\N", "ü" * 100])
        cursor.execute("INSERT INTO other.keyed VALUES (%s, %s)", (self.new_id() + 1000, value))

    def identities(self, cursor):
        key = self.new_id() + 10000
        for table in ("full_identity", "deferrable_key"):
            cursor.execute(f"INSERT INTO {table} VALUES (%s, %s)", (key, "n"))
            cursor.execute(f"UPDATE {table} SET v = v || 'u' WHERE id = %s", (key,))
        cursor.execute("INSERT INTO ident_index VALUES (%s, %s, 1)", (key, "z"))
        cursor.execute("UPDATE ident_index SET c = c + 1 WHERE a = %s", (key,))
        if self.rng.random() < 0.4:
            cursor.execute("UPDATE ident_index SET b = 'moved' WHERE a = %s", (key,))
        if self.rng.random() < 0.4:
            cursor.execute("UPDATE full_identity SET id = -id WHERE id = %s", (key,))
        if self.rng.random() < 0.4:
            cursor.execute("DELETE FROM deferrable_key WHERE id = %s", (key,))

    def keyless(self, cursor):
        key = self.new_id() + 10000
        cursor.execute("INSERT INTO keyless SELECT %s, 'new' FROM generate_series(1, 3)", (key,))
        cursor.execute("UPDATE keyless SET b = b || '+' WHERE a = %s", (key,))
        cursor.execute("DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE a = %s "
                       "LIMIT 1)", (key,))
        cursor.execute("INSERT INTO keyless_parts VALUES (%s, 'k'), (%s, 'k')", (key, -key))
        cursor.execute("UPDATE keyless_parts SET id = id + 100000 WHERE id = %s", (-key,))

    def twins(self, cursor):
        a = 10 + self.lane
        cursor.execute("INSERT INTO twins SELECT %s, 'twin' FROM generate_series(1, 5)", (a,))
        cursor.execute("DELETE FROM twins WHERE ctid IN (SELECT ctid FROM twins WHERE a = %s LIMIT 2)",
                       (a,))

    def savepoints(self, cursor):
        first, second = self.new_id(), self.new_id()
        cursor.execute("SAVEPOINT one")
        cursor.execute("INSERT INTO keyed (id, label) VALUES (%s, 'kept')", (first,))
        cursor.execute("SAVEPOINT two")
        cursor.execute("INSERT INTO keyed (id, label) VALUES (%s, 'lost')", (second,))
        cursor.execute("UPDATE keyed SET label = 'lost' WHERE id = %s", (first,))
        cursor.execute("ROLLBACK TO SAVEPOINT two")
        cursor.execute("UPDATE keyed SET small = 1 WHERE id = %s", (first,))
        if self.rng.random() < 0.3:
            cursor.execute("ROLLBACK TO SAVEPOINT one")
            self._nested = True  # the savepoint stays: what follows is in a subtransaction
        else:
            cursor.execute("RELEASE SAVEPOINT one")

    def copy_rows(self, cursor):
        if self.rng.random() > 0.2:
            return
        text = "".join(f"{self.new_id() + 50000}\t{self.rng.choice(['x', '', chr(92) + 'N'])}\n"
                       for _ in range(1000))
        cursor.copy_expert("COPY keyless FROM STDIN", io.StringIO(text))

    def upsert(self, cursor):
        if self._nested and not self.multixacts:
            return
        cursor.execute("INSERT INTO text_key VALUES (%s, 1) ON CONFLICT (code) DO UPDATE "
                       "SET n = text_key.n + 1", (f"u{self.lane}-{self.old_id() % 20}",))

    def partitions(self, cursor):
        key = self.new_id() + 10000
        # The second row's id is no other row's, in whatever leaf: the lanes' own are positive.
        cursor.execute("INSERT INTO parts VALUES (%s, 1, 'a'), (%s, 7, 'b')", (key, -key))
        # An update of the partition key moves the row to another leaf.
        cursor.execute("UPDATE parts SET region = 2 WHERE id = %s", (key,))

    def documents(self, cursor):
        """Values whole in each row version: a TOAST pointer never outlives its transaction's row."""
        key = self.new_id() + 10000
        cursor.execute("INSERT INTO documents VALUES (%s, repeat('text ', %s))",
                       (key, self.rng.randrange(1000)))
        if self.big_values and self.rng.random() < 0.2:
            body = self.rng.randbytes(512 * 1024).hex()  # 1 MB that does not compress to a page
            cursor.execute("INSERT INTO documents VALUES (%s, %s)", (-key, body))
            if self.rng.random() < 0.3:
                cursor.execute("UPDATE documents SET body = reverse(body) WHERE id = %s", (-key,))
            if self.rng.random() < 0.3:
                cursor.execute("DELETE FROM documents WHERE id = %s", (-key,))
