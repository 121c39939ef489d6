"""Temporary tables are created and dropped all day: they hold nothing up, and are not replicated."""

import threading
import time

import pytest

from lib import parity
from lib.process import wait_until

LOOP = """DO $$ BEGIN FOR i IN 1..{n} LOOP
  EXECUTE 'CREATE TEMP TABLE s' || i || ' (id serial PRIMARY KEY, v text, w {w}) ON COMMIT DROP';
  EXECUTE 'CREATE INDEX ON s' || i || ' (v)';
  EXECUTE 'INSERT INTO s' || i || ' (v) SELECT repeat(''x'', 3000)';
  EXECUTE 'ALTER TABLE s' || i || ' ADD COLUMN y int DEFAULT 5, DROP COLUMN w';
  INSERT INTO t (v) VALUES ('row');
  COMMIT;
END LOOP; END $$"""


def holds(daemon):
    return daemon.status()["holds"]["count"]


@pytest.mark.majors
@pytest.mark.parametrize("major", [15, *(pytest.param(m, marks=pytest.mark.slow) for m in (16, 17)), 18])
def test_temporary_tables_hold_nothing(sources, daemons, full, major):
    """Four sessions make temporary tables of every kind while another analyses and vacuums, with
    the rows of a table between them; then pg_class gets another file, the daemon restarts, and the
    tables that sessions keep are altered and dropped."""
    source = sources(major)
    source.app("CREATE TABLE t (id serial PRIMARY KEY, v text); CREATE TABLE grown (id int PRIMARY KEY, v text)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    before = holds(daemon)
    until = time.monotonic() + (60 if full else 6)
    made = [0] * 4

    def make(worker):
        connection = source.connect()
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMP TABLE kept (id int, v text); CREATE TEMP TABLE emptied (id int) "
                           "ON COMMIT DELETE ROWS")
            while time.monotonic() < until:
                cursor.execute(LOOP.format(n=50, w="int"))
                cursor.execute("BEGIN; CREATE TEMP TABLE undone (id int); SAVEPOINT a; CREATE TEMP TABLE u2 AS "
                               "SELECT 1 AS a; ROLLBACK TO a; INSERT INTO t (v) VALUES ('x'); ROLLBACK")
                cursor.execute("TRUNCATE kept; INSERT INTO kept SELECT i, 'k' FROM generate_series(1, 500) i;"
                               "SELECT id INTO TEMP selected FROM kept; INSERT INTO emptied VALUES (1)")
                cursor.execute("ANALYZE kept; DROP TABLE selected")
                made[worker] += 53
        connection.close()

    def look_after():
        connection = source.connect()
        connection.autocommit = True
        with connection.cursor() as cursor:
            n = 0
            while time.monotonic() < until:
                n += 1
                cursor.execute(f"INSERT INTO grown SELECT i, 'g' FROM generate_series({n * 1000}, {n * 1000 + 500}) i")
                cursor.execute("ANALYZE")
                cursor.execute("DELETE FROM grown WHERE id % 3 = 0")
                cursor.execute("VACUUM grown")
        connection.close()

    threads = [threading.Thread(target=make, args=(i,)) for i in range(4)] + [threading.Thread(target=look_after)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) > 200, made
    daemon.wait_caught_up()
    assert holds(daemon) == before, "temporary tables held the stream"
    parity.assert_equal(source, daemon)

    session = source.connect()
    session.autocommit = True
    with session.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE kept (id int, v text)")
        source.app("VACUUM FULL pg_class")  # all of them may have changed: one hold, no more
        daemon.wait_caught_up()
        before = holds(daemon)
        cursor.execute("CREATE TEMP TABLE more (id serial, v text); TRUNCATE kept; INSERT INTO t (v) VALUES ('y')")
        daemon.wait_caught_up()
        assert holds(daemon) == before
        daemon.stop()
        daemon.start().wait_state("streaming")
        cursor.execute("TRUNCATE kept; ALTER TABLE more ADD w int; INSERT INTO t (v) VALUES ('z')")
        session.close()
        wait_until(lambda: source.app("SELECT count(*) FROM pg_class WHERE relpersistence = 't'")[0][0] == 0, 30,
                   "the session's tables are dropped")
        daemon.wait_caught_up()
        assert holds(daemon) == 0
    source.app("ALTER TABLE t ADD COLUMN w int DEFAULT 3; INSERT INTO t (v) VALUES ('shape')")
    daemon.wait_caught_up()
    assert holds(daemon) == 1
    parity.assert_equal(source, daemon)
