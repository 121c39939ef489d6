"""Many tables, and many shape changes beside a load: what one table does costs the others nothing."""

import re
import time

import psycopg2
import pytest

from lib import parity, paths
from lib.background import Background
from lib.process import wait_until
from test_resync import settle

TABLES = 2000


def holds(daemon):
    return daemon.status()["holds"]


def relations_read(text):
    """How many relations each boundary has read again."""
    return [int(n) for n in re.findall(r'msg="boundary captured" lsn=\S+ relations=(\d+)', text)]


def timed_start(daemon):
    began = time.monotonic()
    daemon.start().wait_state("streaming", 600)
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_tables(source, daemons):
    """2,000 tables: a restart is short, and DDL on one reads that one and holds no longer for the rest."""
    source.app("DO $$ BEGIN FOR i IN 1..%d LOOP EXECUTE format('CREATE TABLE t%%s (id int PRIMARY KEY, v text, n numeric)', i);"
               "EXECUTE format('INSERT INTO t%%s VALUES (1, ''one'', 1.5)', i); IF i %% 100 = 0 THEN COMMIT; END IF; END LOOP; END $$" % TABLES)
    source.app("CREATE TABLE few (id int PRIMARY KEY)")
    daemon = daemons(source)
    loaded = timed_start(daemon)
    daemon.wait_caught_up()
    seconds = re.search(r'msg="initial load complete" seconds=([\d.]+)', daemon.log_text()).group(1)
    print(f"first start {loaded:.1f} s, {seconds} s of it the load")
    assert loaded - float(seconds) < 20
    daemon.stop()
    again = timed_start(daemon)
    print(f"restart {again:.1f} s")
    assert again < 20
    seen = len(daemon.log_text())
    for i in range(1, 41):
        source.app(f"INSERT INTO few VALUES ({i}); ALTER TABLE t{i} ADD COLUMN w int DEFAULT 7; INSERT INTO t{i} VALUES (2, 'two', 2, 8);"
                   f"UPDATE t{i + 100} SET n = n + 1; ALTER TABLE t{i} RENAME COLUMN v TO u")
    daemon.wait_caught_up()
    read = relations_read(daemon.log_text()[seen:])
    assert len(read) == 40 and max(read) <= 4, read  # the table, its TOAST table, their indexes
    held = holds(daemon)
    print(f"holds with {TABLES} tables: {held}")
    assert held["count"] == 40 and held["p50_ms"] < 500, held
    skip = {f"public.t{i}" for i in range(1, TABLES + 1) if 50 < i <= 100 or i > 160}
    settle(daemon)
    parity.assert_equal(source, daemon, skip=skip)
    counted = daemon.sql("SELECT sum(total_rows) FROM system.tables WHERE database = 'app' AND name LIKE 't%'")
    assert int(counted[0][0]) >= TABLES + 40, counted


class Maintenance(Background):
    """What an operator's scripts do to tables that are written, again and again."""

    STATEMENTS = (
        "ALTER TABLE pgbench_accounts ADD COLUMN c{n} int NOT NULL DEFAULT {n}",
        "VACUUM FULL pgbench_tellers",
        "ANALYZE",
        "CREATE INDEX CONCURRENTLY i{n} ON pgbench_accounts (abalance)",
        "CLUSTER pgbench_branches USING pgbench_branches_pkey",
        "ALTER TABLE pgbench_history ADD COLUMN c{n} text DEFAULT 'h{n}'",
        "VACUUM FULL pgbench_accounts",
        "DROP INDEX CONCURRENTLY i{n}",
        "ANALYZE pgbench_accounts",
        "CLUSTER pgbench_accounts USING pgbench_accounts_pkey",
        "ALTER TABLE pgbench_accounts DROP COLUMN c{n}",
        "REINDEX TABLE CONCURRENTLY pgbench_tellers",
    )

    def __init__(self, source):
        super().__init__()
        self.source, self.rounds = source, 0

    def work(self):
        connection = self.source.connect()
        with connection.cursor() as cursor:
            while self.going:
                for statement in self.STATEMENTS:
                    self.one(cursor, statement.format(n=self.rounds))
                self.rounds += 1
        connection.close()

    @staticmethod
    def one(cursor, statement):
        while True:
            try:
                return cursor.execute(statement)
            except psycopg2.errors.DeadlockDetected:  # PostgreSQL's own, with pgbench
                if statement.startswith("CREATE INDEX"):
                    cursor.execute(f"DROP INDEX IF EXISTS {statement.split()[3]}")


@pytest.mark.majors
@pytest.mark.parametrize("major", [m if m == 17 else pytest.param(m, marks=pytest.mark.slow) for m in paths.MAJORS])
def test_maintenance_under_load(sources, daemons, full, major):
    """pgbench with rewrites, new columns, indexes and ANALYZE in a loop: equal at the end, and nothing is
    copied again, also where a rewrite writes the values of added columns into the old rows."""
    source = sources(major)
    source.pgbench_init(1)
    if not full:
        source.app("DELETE FROM pgbench_accounts WHERE aid > 2000")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    bench = source.pgbench("-n", clients=2, rate=300, script=None)
    with Maintenance(source) as maintenance:
        wait_until(lambda: maintenance.error or maintenance.rounds >= (60 if full else 1), 300, "rounds")
    bench.stop()
    daemon.wait_caught_up(300)
    settle(daemon, 300)
    print(f"{maintenance.rounds} rounds, holds {holds(daemon)}")
    parity.assert_equal(source, daemon)
    assert "table is copied again" not in daemon.log_text()
