"""Every type and types made of others, by load, INSERT and COPY: the String is format('%s', v), over all rows.

The judge is lib/parity.py: PostgreSQL's own text through COPY against ClickHouse's, row by row.
"""

import io

import pytest

from lib import parity, paths, type_values


def has_xml(pg):
    return "--with-libxml" in pg.sql("SELECT setting FROM pg_config WHERE name = 'CONFIGURE'")[0][0]


class Table:
    """One column a type, one row for each number below the longest list of values."""

    def __init__(self, pg, name, columns):
        self.pg, self.name = pg, name
        self.columns = list(columns)
        self.next = 1
        pg.app(f"CREATE TABLE {name} (id int PRIMARY KEY, "
               + ", ".join(f'"{n}" {t}' for n, t, _ in self.columns) + ")")

    def insert(self, columns, rows):
        """NULL in about one value of ten; every value of every list once the rows suffice."""
        lines = []
        for _ in range(rows):
            values = ["NULL" if (self.next + at) % 11 == 10 else v[self.next % len(v)] for at, (_, _, v) in enumerate(columns)]
            lines.append(f"({self.next}, {', '.join(values)})")
            self.next += 1
        for at in range(0, len(lines), 50):
            self.pg.app(f"SET TimeZone = 'UTC'; INSERT INTO {self.name} VALUES " + ",\n".join(lines[at:at + 50]))

    def copy(self):
        """The rows that are there once more, through COPY."""
        connection = self.pg.connect()
        try:
            with connection.cursor() as cursor:
                data = io.StringIO()
                names = ", ".join(f'"{n}"' for n, _, _ in self.columns)
                cursor.copy_expert(f"COPY (SELECT id + {self.next}, {names} FROM {self.name}) TO STDOUT", data)
                data.seek(0)
                cursor.copy_expert(f"COPY {self.name} FROM STDIN", data)
        finally:
            connection.close()
        self.next *= 2


def assert_equal(pg, daemon):
    for difference in parity.assert_equal(pg, daemon, skip=("public.regs",)):
        assert difference.rows > 0
    assert daemon.sql("SELECT count() FROM app.walshadow_rejects") == [["0"]]


# A default that old rows do not hold: PostgreSQL keeps it in the catalog.
MISSING = """
CREATE TABLE late (id int PRIMARY KEY);
INSERT INTO late SELECT generate_series(1, 5);
ALTER TABLE late ADD a jsonb DEFAULT '{"a": "b\\"c", "n": [1.50]}', ADD b text[] DEFAULT ARRAY['x y', '', 'q"\\', NULL],
  ADD c mood DEFAULT 'quo"te', ADD d pair DEFAULT ROW(1, 'a,b', 'ok', '{1.50}'), ADD e int4range DEFAULT '[1,5)',
  ADD f interval[] DEFAULT '{1 day -00:00:01}', ADD g xid8 DEFAULT '7', ADD h money DEFAULT -1234.5, ADD i timestamptz[] DEFAULT
  '{2024-01-02 03:04:05+02}', ADD j float8[] DEFAULT '{0.1,NaN}', ADD k bytea[] DEFAULT ARRAY['\\x00ff'::bytea], ADD l dom_mood DEFAULT 'ok';
INSERT INTO late (id) SELECT generate_series(6, 9);
"""


def wait_again(daemon, name):
    """Copied again, or never touched: what it is now is right."""
    daemon.wait_caught_up()
    daemon.wait_table(name)


def check_type_changes(pg, daemon):
    """A new label is followed; a new text of old rows is copied again."""
    pg.app("ALTER TYPE mood ADD VALUE 'between' BEFORE 'ok'")
    pg.app("INSERT INTO v (id, e, a_e, c_pair, d_mood) VALUES (-1, 'between', '{sad,between}', ROW(1, 'x', 'between', NULL), 'between')")
    pg.app("UPDATE v SET e = 'between' WHERE id = 1")
    daemon.wait_caught_up()
    assert daemon.table("public.v")["state"] == "streaming"
    assert_equal(pg, daemon)
    pg.app("ALTER TYPE mood RENAME VALUE 'between' TO 'neither'; ALTER TYPE pair ADD ATTRIBUTE z point")
    wait_again(daemon, "public.v")
    pg.app("INSERT INTO v (id, e, c_pair) VALUES (-2, 'neither', ROW(1, 'x', 'neither', NULL, '(1,2)'))")
    wait_again(daemon, "public.v")
    assert_equal(pg, daemon)


def insert_many(pg, xml, width=20, rounds=20, rows=300):
    """At least 100,000 values of each type, in tables that one comparison can hold in memory."""
    tables = []
    for _ in range(rounds):
        columns = list(type_values.columns(xml))
        for at in range(0, len(columns), width):
            if at // width == len(tables):
                tables.append(Table(pg, f"w{at}", columns[at:at + width]))
            tables[at // width].insert(columns[at:at + width], rows)
    for table in tables:
        while table.next < 110000:
            table.copy()


@pytest.mark.majors
@pytest.mark.parametrize("major", paths.MAJORS)
def test_every_type(sources, daemons, major, full):
    pg = sources(major)
    pg.app(type_values.SCHEMA + MISSING)
    pg.app("CREATE TABLE regs (id int PRIMARY KEY, c regclass, t regtype, a regclass[]); INSERT INTO regs VALUES (1, 'pg_class', 'int4', '{pg_type}')")
    type_values.rnd.seed(major)
    xml = has_xml(pg)
    table = Table(pg, "v", type_values.columns(xml))
    table.insert(table.columns, 40)
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    assert daemon.table("public.v")["state"] in ("loading", "streaming"), daemon.table("public.v")
    table.insert(list(type_values.columns(xml)), 40)  # goes on in the lists where the load ended
    table.copy()
    if full:
        insert_many(pg, xml)
    assert_equal(pg, daemon)
    assert daemon.sql("SELECT c, t, a FROM app.regs") == [["1259", "23", "{1247}"]]
    types = parity.target_types(daemon, "app", "v")
    assert types["e"] == types["d_mood"] == "LowCardinality(Nullable(String))"
    assert types["a_text"] == types["jsonb"] == "Nullable(String)"
    if full or major in (15, 18):
        check_type_changes(pg, daemon)
