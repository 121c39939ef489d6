"""The judge itself: it must see every kind of difference, and nothing where there is none."""

import pytest

from lib import parity
from lib.parity import Column, Table

KEYED = Table("public", "t", 1, [Column("id", "integer", True), Column("v", "text", False),
                                  Column("f", "double precision", False)], ["id"], False)
KEYLESS = KEYED._replace(key=[])
TYPES = {"id": "Int32", "v": "Nullable(String)", "f": "Nullable(Float64)"}


def compare(source, target, table=KEYED):
    return parity.compare_lines(table, TYPES, list(source), list(target))


def test_equal_in_any_order():
    assert not compare([b"1\ta\t1", b"2\t\\N\t\\N"], [b"2\t\\N\t\\N", b"1\ta\t1"])


def test_equal_floats_in_another_spelling():
    assert not compare([b"1\ta\t1e+100"], [b"1\ta\t1e100"])
    assert not compare([b"1\ta\tNaN"], [b"1\ta\tnan"])
    assert not compare([b"1\ta\t-Infinity"], [b"1\ta\t-inf"])


@pytest.mark.parametrize("target, kind", [
    ([], "missing"),
    ([b"1\ta\t1", b"2\ta\t1"], "extra"),
    ([b"1\tb\t1"], "different"),
    ([b"1\t\\N\t1"], "different"),  # NULL is not a
    ([b"1\ta\t1.0000000000000002"], "different"),
    ([b"2\ta\t1"], "missing"),
    ([b"1\ta\t1", b"1\ta\t1"], "extra"),  # a twin too many
])
def test_differences_are_seen(target, kind):
    found = compare([b"1\ta\t1"], target)
    assert getattr(found, kind)
    assert "public.t" in str(found)


def test_null_empty_and_backslash_n_are_three_values():
    assert compare([b"1\t\\N\t1"], [b"1\t\t1"])
    assert compare([b"1\t\\\\N\t1"], [b"1\t\\N\t1"])
    assert parity.unescape(b"\\N") is None
    assert parity.unescape(b"\\\\N") == b"\\N"


def test_zero_signs_of_floats_differ():
    assert compare([b"1\ta\t-0"], [b"1\ta\t0"])


def test_twins_are_counted():
    row = b"1\ta\t1"
    assert not compare([row] * 3, [row] * 3, KEYLESS)
    assert len(compare([row] * 3, [row] * 2, KEYLESS).missing) == 1


def test_decimals_compare_as_values():
    table = Table("public", "d", 1, [Column("id", "integer", True),
                                     Column("d", "numeric", False)], ["id"], False)
    types = {"id": "Int32", "d": "Nullable(Decimal(12, 2))"}
    assert not parity.compare_lines(table, types, [b"1\t1.50"], [b"1\t1.5"])
    assert parity.compare_lines(table, types, [b"1\t1.50"], [b"1\t1.51"])


def test_source_text_is_postgresql_output(source):
    source.app("""
        CREATE TABLE t (id int PRIMARY KEY, c char(5), i inet, b bytea, x timestamptz, n text, e text);
        INSERT INTO t VALUES (1, 'ab', '1.2.3.4', '\\x00ff', '2026-01-02 03:04:05.6+01', NULL, '')
    """)
    with source.connect() as connection:
        (table,) = parity.source_tables(connection)
        assert table.key == ["id"]
        (line,) = parity.source_lines(connection, table)
    assert line == b"1\tab   \t1.2.3.4\t\\\\x00ff\t2026-01-02 02:04:05.6+00\t\\N\t"


def test_keys_follow_the_replica_identity(source):
    from lib import workload

    workload.create(source)
    with source.connect() as connection:
        keys = {t.name: t.key for t in parity.source_tables(connection)}
    assert keys["ident_index"] == ["a", "b"]
    assert keys["deferrable_key"] == []
    assert keys["keyless"] == []
    assert keys["composite_key"] == ["tenant", "code"]
    assert keys["full_identity"] == ["id"]


def test_clickhouse_18_answers_its_own_client():
    from lib.clickhouse import ClickHouse

    with ClickHouse() as server:
        assert server.query("SELECT version()")[0][0].startswith("18.16")
        assert server.client("SELECT 1 + 1").stdout == "2\n"
