"""Shape changes are carried in place: no table is copied again, every value equals the source's."""

import pytest

from lib import parity, paths
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
