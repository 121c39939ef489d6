"""One table is copied again while the stream runs: by name, by itself, and as an initial load."""

import random
import time

import pytest

from lib import parity, workload
from lib.process import wait_until


def resync(daemon, table, *options, check=True):
    return daemon.verb("resync", *options, table, timeout=180, check=check)


def settle(daemon, timeout=120):
    """Waits until nothing is copied any more; no table may be stopped."""

    def settled(status):
        return all(t["state"] != "resyncing" for t in status["tables"])

    status = daemon.wait_status(settled, timeout, "copies end")
    stopped = [t for t in status["tables"] if t["state"] == "stopped"]
    assert not stopped, stopped


def assert_equal(source, daemon):
    """By the test's own comparison and by `walshadow verify`; no table of a copy is left."""
    settle(daemon)
    parity.assert_equal(source, daemon)
    done = daemon.verb("verify", timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    left = daemon.sql("SELECT name FROM system.tables WHERE name LIKE 'walshadow_resync_%'", "--raw")
    assert left == []


def test_resync_keyed(source, daemons):
    """Rows that are wrong at the destination are right afterwards, writers running."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(9, 2), at timestamptz)")
    source.app("INSERT INTO t SELECT i, 'v' || i, i / 7.0, now() FROM generate_series(1, 20000) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.pgbench_init(1)
    daemon.wait_caught_up()
    done = resync(daemon, "t")
    assert "streaming" in done.stdout
    assert_equal(source, daemon)


def test_wait_holds_for_copies(source, daemons):
    """`wait` alone says that the destination has everything: also of tables that DDL makes it copy again."""
    source.app("CREATE TABLE r (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);"
               "CREATE TABLE r_1 PARTITION OF r FOR VALUES FROM (0) TO (50000); CREATE TABLE r_2 PARTITION OF r DEFAULT;"
               "CREATE TABLE k (id int, v text); INSERT INTO r SELECT i, 'v' || i FROM generate_series(1, 80000) i;"
               "INSERT INTO k SELECT i, 'v' || i FROM generate_series(1, 50000) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    for statement in ("ALTER TABLE r DETACH PARTITION r_1", "ALTER TABLE k ADD PRIMARY KEY (id)",
                      "ALTER TABLE r ATTACH PARTITION r_1 FOR VALUES FROM (0) TO (50000)",
                      "ALTER TABLE k ALTER v TYPE bytea USING v::bytea; UPDATE k SET v = '\\x00' WHERE id = 7"):
        source.app(statement)
        daemon.wait_caught_up()
        parity.assert_equal(source, daemon)
    daemon.verb("resync", "r", "--no-wait")
    daemon.wait_caught_up()
    assert daemon.table("public.r")["state"] == "streaming"
    for statement, table in (("ALTER TABLE k DROP CONSTRAINT k_pkey", "k"), ("ALTER TABLE r DETACH PARTITION r_1", "public.r")):
        source.app(statement)
        done = daemon.verb("verify", table, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


class Writers:
    """pgbench and the mixed writers of every kind of table."""

    def __init__(self, source, seed=1):
        self.pgbench = source.pgbench(seconds=600, clients=2, rate=100)
        self.mixers = [workload.Mixer(source, seed=seed * 10 + lane, lane=lane, multixacts=True,
                                      first=seed * 500000)
                       for lane in range(2)]
        for mixer in self.mixers:
            mixer.start()

    def stop(self):
        self.pgbench.stop()
        for mixer in self.mixers:
            mixer.stop()
            mixer.check()


def all_tables(daemon):
    return [t["name"] for t in daemon.status()["tables"] if t["state"] == "streaming"]


@pytest.mark.majors
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("major", [15, *(pytest.param(m, marks=pytest.mark.slow) for m in (16, 17, 18))])
def test_resync_under_writers(sources, daemons, major, full):
    """Several at once, every kind of table, a kill in the middle of every fifth round at least."""
    source = sources(major)
    workload.create(source)
    source.pgbench_init(1)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    rng = random.Random(major - 4)
    rounds = 50 if major == 15 else 10
    for turn in range(rounds if full else 3):
        print(f"round {turn}")
        writers = Writers(source, turn + 1)
        time.sleep(rng.uniform(0, 0.5))
        for name in rng.sample(all_tables(daemon), 4):
            resync(daemon, name, "--no-wait")
        if turn % 5 == 1:
            time.sleep(rng.uniform(0, 0.6))
            daemon.kill()
            daemon.start().wait_state("streaming")
        time.sleep(rng.uniform(0.5, 2))
        writers.stop()
        assert_equal(source, daemon)


SHAPES = {
    "added": "ALTER TABLE {t} ADD COLUMN w int DEFAULT 7",
    "dropped": "ALTER TABLE {t} DROP COLUMN v",
    "renamed": "ALTER TABLE {t} RENAME TO {t}_new",
    "column_renamed": "ALTER TABLE {t} RENAME COLUMN v TO vv",
    "retyped": "ALTER TABLE {t} ALTER n TYPE bigint",
    "rewritten": "ALTER TABLE {t} ADD COLUMN r uuid DEFAULT gen_random_uuid()",
    "rekeyed": "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD PRIMARY KEY (n)",
    "unkeyed": "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
    "moved": "CREATE SCHEMA s; ALTER TABLE {t} SET SCHEMA s",
    "swap": "CREATE TABLE swap_next (LIKE swap INCLUDING ALL); INSERT INTO swap_next SELECT id + 1, v, n "
            "FROM swap; ALTER TABLE swap RENAME TO swap_old; ALTER TABLE swap_next RENAME TO swap",
    "unlogged": "ALTER TABLE {t} SET UNLOGGED; ALTER TABLE {t} SET LOGGED",
}


def test_shape_changes(source, daemons):
    """Every change of a table's shape is followed by itself, rows written before, in and after it."""
    for name in SHAPES:
        source.app(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, n int NOT NULL UNIQUE);"
                   f"INSERT INTO {name} SELECT i, 'v' || i, i * 2 FROM generate_series(1, 3000) i")
    source.app("CREATE TABLE bag (v int, w text); CREATE TABLE root (id int PRIMARY KEY, v text) "
               "PARTITION BY RANGE (id)")
    for i in range(4):
        source.app(f"CREATE TABLE part{i} PARTITION OF root FOR VALUES FROM ({i * 100}) TO ({i * 100 + 100})")
    source.app("INSERT INTO bag SELECT i % 5, 'x' FROM generate_series(1, 500) i;"
               "INSERT INTO root SELECT i, 'r' FROM generate_series(0, 399) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    for name, statement in SHAPES.items():
        source.app(f"UPDATE {name} SET n = n + 100000 WHERE id % 3 = 0;"
                   f"DELETE FROM {name} WHERE id % 7 = 0")
        source.app(statement.format(t=name))
        now = {"renamed": "renamed_new", "moved": "s.moved"}.get(name, name)
        source.app(f"UPDATE {now} SET n = n + 1 WHERE id % 4 = 0; DELETE FROM {now} WHERE id % 11 = 0")
    source.app("DELETE FROM bag WHERE v = 1")
    source.app("VACUUM FULL bag")
    source.app("INSERT INTO bag SELECT 9, 'y' FROM generate_series(1, 50)")
    source.app("ALTER TABLE root DETACH PARTITION part0; DROP TABLE part1; TRUNCATE part2")
    source.app("CREATE TABLE part4 (id int PRIMARY KEY, v text); INSERT INTO part4 VALUES (450, 'a');"
               "ALTER TABLE root ATTACH PARTITION part4 FOR VALUES FROM (400) TO (500);"
               "INSERT INTO root VALUES (451, 'b'), (210, 'again'); UPDATE part0 SET v = 'own'")
    daemon.wait_caught_up()
    assert_equal(source, daemon)
    # what is replayed after a kill changes nothing
    daemon.kill()
    source.app("UPDATE rekeyed SET v = 'after' WHERE id % 5 = 0")
    daemon.start().wait_state("streaming")
    daemon.wait_caught_up()
    assert_equal(source, daemon)


def cells(daemon, table):
    """Every live row with all its columns but _lsn, as the destination has them."""
    return daemon.sql_bytes(f"SELECT * EXCEPT (_lsn) FROM {table} ORDER BY ALL")


def test_copy_delivers_what_the_page_walk_does(source, daemons):
    """The same source loaded both ways: the same rows, cell by cell, and again after a resync."""
    workload.create(source)
    source.app("CREATE TABLE big (id int PRIMARY KEY, v text, w bytea);"
               "INSERT INTO big SELECT i, (SELECT string_agg(md5((i * j)::text), '') FROM "
               "generate_series(1, 300) j), decode(repeat(md5(i::text), 200), 'hex') FROM "
               "generate_series(1, 60) i")
    walk = daemons(source, config={"source": {"slot": "walk"}}).start()
    walk.wait_state("streaming")
    walk.wait_caught_up()
    copy = daemons(source, config={"source": {"slot": "copy"}}, args=["--initial-load", "copy"]).start()
    copy.wait_state("streaming")
    settle(copy)
    names = [t["target"] for t in walk.status()["tables"] if t["state"] == "streaming"]
    assert len(names) > 10

    def quoted(target):
        database, table = target.split(".", 1)
        return f"`{database}`.`{table}`"

    def dump(daemon):
        return {n: cells(daemon, quoted(n)) for n in names}

    expected = dump(walk)
    assert dump(copy) == expected
    for name in all_tables(walk):
        resync(walk, name, "--no-wait")
    settle(walk)
    assert dump(walk) == expected
    # values out of line that only the copy has seen, kept by updates of another column
    for turn in range(3):
        source.app(f"UPDATE big SET id = id + 1000 WHERE id % 3 = {turn}")
        source.app("ALTER TABLE big ADD COLUMN x%d int DEFAULT 1" % turn)
        source.app("UPDATE big SET x%d = id" % turn)
    for daemon in (walk, copy):
        daemon.wait_caught_up()
        assert_equal(source, daemon)
        assert daemon.sql("SELECT count() FROM app.walshadow_rejects") == [["0"]]


def test_stopped_table(source, daemons):
    """What stopped a table is named again as long as it is there; without it a resync mends."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, n numeric(9, 2)); INSERT INTO t VALUES (1, 1.5);"
               "CREATE TABLE u (id int PRIMARY KEY); CREATE UNLOGGED TABLE volatile (id int)")
    daemon = daemons(source, config={"table": {"public": {"t": {"on_bad_value": "error"}}}}).start()
    daemon.wait_state("streaming")
    source.app("INSERT INTO t VALUES (2, 'NaN'); INSERT INTO t VALUES (3, 3)")
    daemon.wait_table("public.t", "stopped")
    done = resync(daemon, "t", check=False)
    assert done.returncode == 1 and "column n holds a value" in done.stderr, done
    source.app("UPDATE t SET n = 2 WHERE id = 2")
    done = resync(daemon, "public.t")
    assert "asked for" in done.stdout and done.stdout.endswith("public.t: streaming\n")
    source.app("INSERT INTO t VALUES (4, 4)")
    assert_equal(source, daemon)
    for name, why in (("nothing", "no table nothing"), ("volatile", "not replicated")):
        done = resync(daemon, name, check=False)
        assert done.returncode == 1 and why in done.stderr
    # what cannot be copied stops by name, and goes on once it can be
    source.sql("REVOKE pg_read_all_data FROM walshadow")
    assert "permission denied" in resync(daemon, "u", check=False).stderr
    assert daemon.table("public.t")["state"] == "streaming"
    source.sql("GRANT pg_read_all_data TO walshadow")
    resync(daemon, "u")
    assert_equal(source, daemon)
    # a kill between mark and copy
    source.app("BEGIN; LOCK TABLE u IN ACCESS EXCLUSIVE MODE; COMMIT")
    session = source.connect(autocommit=False)
    session.cursor().execute("LOCK TABLE u IN ACCESS EXCLUSIVE MODE")
    resync(daemon, "u", "--no-wait")
    time.sleep(0.5)
    daemon.kill()
    daemon.start().wait_state("streaming")
    assert daemon.table("public.u")["state"] == "resyncing"
    session.rollback()
    assert_equal(source, daemon)


def test_null_destination(source, daemons):
    """Everything happens but nothing is kept."""
    source.app("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    daemon = daemons(source, destination="null:").start()
    daemon.wait_state("streaming")
    resync(daemon, "t")
    source.app("ALTER TABLE t ADD COLUMN v text; INSERT INTO t VALUES (2, 'x')")
    source.app("ALTER TABLE t ADD COLUMN r uuid DEFAULT gen_random_uuid()")
    daemon.wait_caught_up()
    settle(daemon)
    assert "msg=\"table changed in place\"" in daemon.log_text()
    assert "msg=\"table rewritten, its rows are taken from the WAL\"" in daemon.log_text()
