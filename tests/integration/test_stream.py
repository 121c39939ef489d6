"""Changes after the load. Most tests share one source and one daemon and make their own tables, which
also shows CREATE TABLE in the stream."""

import os
import time

import psycopg2
import pytest

from lib import parity, workload
from lib.daemon import Daemon, lsn_value
from lib.paths import MAJORS
from lib.postgres import Postgres
from lib.process import alive, wait_until


class Live:
    """A source with a streaming daemon, shared by the tests of this module."""

    def __init__(self):
        self.pg = Postgres(15).start().create_app()
        self.daemon = Daemon(self.pg)
        self.numbers = iter(range(1, 1000))
        try:
            self.daemon.start().wait_state("streaming")
        except BaseException:
            self.close()
            raise

    def close(self):
        try:
            self.daemon.close()
        finally:
            self.pg.close()

    def table(self, columns, prefix="t"):
        """Creates a table with a fresh name and returns the name."""
        name = f"{prefix}{next(self.numbers)}"
        self.pg.app(f"CREATE TABLE {name} ({columns})")
        return name

    def assert_equal(self, *names):
        """The named tables are equal now."""
        self.daemon.wait_caught_up()
        connection = self.pg.connect()
        try:
            tables = [t for t in parity.source_tables(connection) if t.name in names]
            assert sorted(t.name for t in tables) == sorted(names)
            wrong = [str(d) for d in (parity.compare_table(connection, self.daemon, t)
                                      for t in tables) if d]
        finally:
            connection.close()
        assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def shared():
    made = Live()
    yield made
    made.close()


@pytest.fixture
def live(shared, request):
    request.node.daemons = [shared.daemon]
    shared.daemon.check_alive()
    return shared


@pytest.mark.majors
@pytest.mark.parametrize("major", MAJORS)
def test_mixed_writers(sources, daemons, major, full):
    pg = sources(major)
    workload.create(pg)
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    writers = [workload.Mixer(pg, seed=major * 10 + lane, lane=lane, big_values=lane == 0)
               for lane in range(3)]
    for writer in writers:
        writer.start()
    time.sleep(30 if full else 6)
    for writer in writers:
        writer.stop()
    parity.assert_equal(pg, daemon)
    daemon.stop()


def test_nulls_and_empty_strings(live):
    t = live.table("id int PRIMARY KEY, a text, b varchar(5), c bytea, d int")
    live.pg.app(f"""INSERT INTO {t} VALUES (1, NULL, NULL, NULL, NULL), (2, '', '', '', 0),
        (3, ' ', ' ', '\\x20', -1), (4, 'NULL', '\\N', '\\x00', 2147483647);
        UPDATE {t} SET a = NULL WHERE id = 2; UPDATE {t} SET a = '' WHERE id = 1""")
    live.assert_equal(t)


def test_key_update_leaves_a_tombstone(live):
    t = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    live.pg.app(f"UPDATE {t} SET id = 10 WHERE id = 1")
    live.pg.app(f"DELETE FROM {t} WHERE id = 2")
    live.assert_equal(t)
    raw = live.daemon.sql(f"SELECT id, _is_deleted FROM app.{t} ORDER BY _lsn, id", "--raw")
    latest = {row[0]: row[1] for row in raw}
    assert latest == {"1": "true", "2": "true", "10": "false"}, raw


def test_keys_swapped_in_one_statement(live):
    """Deferrable uniqueness: rows exchange their keys."""
    t = live.table("id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text")
    live.pg.app(f"INSERT INTO {t} SELECT i, 'v' || i FROM generate_series(1, 100) i")
    live.pg.app(f"UPDATE {t} SET id = 101 - id")
    live.assert_equal(t)


def test_key_comes_back_in_one_transaction(live):
    t = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"INSERT INTO {t} VALUES (1, 'one')")
    live.pg.app(f"BEGIN; DELETE FROM {t} WHERE id = 1; INSERT INTO {t} VALUES (1, 'again');"
                f"UPDATE {t} SET v = 'twice' WHERE id = 1; UPDATE {t} SET id = 2; "
                f"UPDATE {t} SET id = 1; COMMIT")
    live.assert_equal(t)


def test_twin_rows(live):
    t = live.table("a int, b text")
    live.pg.app(f"INSERT INTO {t} SELECT 1, 'same' FROM generate_series(1, 100)")
    live.pg.app(f"DELETE FROM {t} WHERE ctid IN (SELECT ctid FROM {t} LIMIT 30)")
    live.pg.app(f"UPDATE {t} SET b = 'other' WHERE ctid IN (SELECT ctid FROM {t} LIMIT 10)")
    live.pg.app(f"VACUUM {t}")
    live.pg.app(f"INSERT INTO {t} SELECT 1, 'same' FROM generate_series(1, 50)")  # reuses the space
    live.assert_equal(t)


def test_savepoints(live):
    t = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"""BEGIN;
        INSERT INTO {t} VALUES (1, 'kept'); SAVEPOINT a;
        INSERT INTO {t} VALUES (2, 'lost'); UPDATE {t} SET v = 'lost' WHERE id = 1; SAVEPOINT b;
        INSERT INTO {t} VALUES (3, 'lost too'); ROLLBACK TO a;
        INSERT INTO {t} VALUES (2, 'second try'); SAVEPOINT c; DELETE FROM {t} WHERE id = 1;
        ROLLBACK TO c; RELEASE c; COMMIT""")
    live.assert_equal(t)


def test_more_than_64_subtransactions(live):
    t = live.table("id int PRIMARY KEY, v text")
    with live.pg.connect(autocommit=False) as session, session.cursor() as cursor:
        for i in range(300):
            cursor.execute("SAVEPOINT s")
            cursor.execute(f"INSERT INTO {t} VALUES (%s, 'x')", (i,))
            cursor.execute("ROLLBACK TO s" if i % 3 == 0 else "RELEASE s")
        session.commit()
    live.assert_equal(t)


def test_copy_of_1000_rows(live):
    import io

    t = live.table("id int PRIMARY KEY, v text")
    u = live.table("id int, v text")
    with live.pg.connect(autocommit=False) as session, session.cursor() as cursor:
        for batch in range(5):
            text = "".join(f"{batch * 1000 + i}\tvalue {i}\n" for i in range(1000))
            cursor.copy_expert(f"COPY {t} FROM STDIN", io.StringIO(text))
            cursor.copy_expert(f"COPY {u} FROM STDIN", io.StringIO(text))
        session.commit()
    live.assert_equal(t, u)


def test_values_of_a_megabyte(live):
    """Compressible and not, inserted, replaced and deleted in the transaction that wrote them."""
    t = live.table("id int PRIMARY KEY, v text, b bytea")
    live.pg.app(f"ALTER TABLE {t} ALTER b SET STORAGE external")
    with live.pg.connect() as session, session.cursor() as cursor:
        for i in range(6):
            cursor.execute(f"INSERT INTO {t} VALUES (%s, %s, %s)",
                           (i, os.urandom(512 * 1024).hex(), psycopg2.Binary(os.urandom(1 << 20))))
        cursor.execute(f"INSERT INTO {t} VALUES (10, repeat('long ', 300000), '')")
        cursor.execute(f"UPDATE {t} SET v = %s, b = %s WHERE id = 1",
                       (os.urandom(300000).hex(), psycopg2.Binary(b"\0" * (1 << 20))))
        cursor.execute(f"DELETE FROM {t} WHERE id = 2")
    live.assert_equal(t)


def test_inline_compressed_values(live):
    t = live.table("id int PRIMARY KEY, pglz text COMPRESSION pglz, lz4 text COMPRESSION lz4")
    live.pg.app(f"INSERT INTO {t} SELECT i, repeat('abc', 500 + i), repeat('xyz' || i, 500 + i) "
                "FROM generate_series(1, 200) i")
    live.assert_equal(t)


def test_on_conflict(live):
    t = live.table("id int PRIMARY KEY, n int")
    live.pg.app(f"INSERT INTO {t} SELECT i, 0 FROM generate_series(1, 100) i")
    live.pg.app(f"INSERT INTO {t} SELECT i, 1 FROM generate_series(50, 150) i "
                f"ON CONFLICT (id) DO UPDATE SET n = {t}.n + 1")
    live.pg.app(f"INSERT INTO {t} SELECT i, 9 FROM generate_series(1, 200) i ON CONFLICT DO NOTHING")
    live.assert_equal(t)


def test_speculative_insert_that_loses(live):
    """Two sessions insert one key at the same time: the loser's tuple is super-deleted."""
    import threading

    t = live.table("id int PRIMARY KEY, n int")
    u = live.table("id int, n int")
    live.pg.app(f"CREATE UNIQUE INDEX ON {u} (id)")

    def writer(offset):
        with live.pg.connect() as session, session.cursor() as cursor:
            for i in range(300):
                for name in (t, u):
                    cursor.execute(f"INSERT INTO {name} VALUES (%s, %s) ON CONFLICT (id) "
                                   f"DO UPDATE SET n = {name}.n + 1", (i, offset))

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    live.assert_equal(t, u)


def test_truncate(live):
    t = live.table("id int PRIMARY KEY, v text")
    u = live.table("id int, v text")
    for name in (t, u):
        live.pg.app(f"INSERT INTO {name} SELECT i, 'before' FROM generate_series(1, 1000) i")
    live.pg.app(f"TRUNCATE {t}, {u}")
    live.assert_equal(t, u)
    live.pg.app(f"BEGIN; INSERT INTO {t} VALUES (1, 'gone'); TRUNCATE {t}; INSERT INTO {t} "
                f"VALUES (2, 'stays'); COMMIT; BEGIN; TRUNCATE {u}; INSERT INTO {u} VALUES (5, 'x');"
                "ROLLBACK; " f"INSERT INTO {u} VALUES (3, 'after')")
    live.assert_equal(t, u)


def test_create_and_fill_in_one_transaction(live):
    live.pg.app("BEGIN; CREATE TABLE newborn (id int PRIMARY KEY, v text); "
                "INSERT INTO newborn SELECT i, 'n' FROM generate_series(1, 500) i; "
                "TRUNCATE newborn; INSERT INTO newborn VALUES (7, 'seven'); COMMIT")
    live.pg.app("BEGIN; CREATE TABLE stillborn (id int PRIMARY KEY); INSERT INTO stillborn VALUES (1);"
                "ROLLBACK")
    live.pg.app("CREATE TABLE selected AS SELECT i AS id, 's' AS v FROM generate_series(1, 500) i")
    live.assert_equal("newborn", "selected")


def test_drop_table_retains_the_target(live):
    t = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"INSERT INTO {t} VALUES (1, 'x')")
    live.assert_equal(t)
    live.pg.app(f"DROP TABLE {t}")
    live.daemon.wait_table(f"public.{t}", "dropped")
    assert live.daemon.sql(f"SELECT count() FROM app.{t}") == [["1"]]


@pytest.mark.parametrize("statement", [
    "VACUUM FULL {t}", "CLUSTER {t} USING {t}_pkey", "VACUUM (FREEZE) {t}", "REINDEX TABLE {t}",
    "ANALYZE {t}", "GRANT SELECT ON {t} TO walshadow", "CREATE INDEX ON {t} (v)",
    "CREATE INDEX CONCURRENTLY ON {t} (v)", "REINDEX TABLE CONCURRENTLY {t}",
    "ALTER TABLE {t} SET (fillfactor = 50)", "COMMENT ON TABLE {t} IS 'x'",
    "CREATE STATISTICS {t}_s ON id, v FROM {t}", "ALTER TABLE {t} ALTER v SET STORAGE EXTERNAL",
    "ALTER TABLE {t} ALTER v SET STATISTICS 10", "ALTER TABLE {t} ALTER v SET COMPRESSION pglz",
    "ALTER TABLE {t} REPLICA IDENTITY FULL",
])
def test_what_changes_no_shape(live, statement):
    t = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"INSERT INTO {t} SELECT i, 'before' FROM generate_series(1, 300) i")
    live.pg.app(f"DELETE FROM {t} WHERE id % 5 = 0")
    live.pg.app(statement.format(t=t))
    live.pg.app(f"UPDATE {t} SET v = 'after' WHERE id % 2 = 0; INSERT INTO {t} VALUES (1000, 'new')")
    live.assert_equal(t)
    assert live.daemon.table(f"public.{t}")["state"] == "streaming"


def test_catalog_rewrites_pass(live):
    """VACUUM FULL of catalogs moves their files; what follows is still understood."""
    for catalog in ("pg_class", "pg_attribute", "pg_type", "pg_index"):
        live.pg.app(f"VACUUM FULL {catalog}")
    live.pg.app("REINDEX TABLE pg_class")
    t = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"INSERT INTO {t} VALUES (1, 'after the rewrites')")
    live.assert_equal(t)


def test_shape_change_copies_that_table_alone(live):
    t = live.table("id int PRIMARY KEY, v text")
    other = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"INSERT INTO {t} VALUES (1, 'x'); INSERT INTO {other} VALUES (1, 'x')")
    live.pg.app(f"ALTER TABLE {t} ADD COLUMN w int; INSERT INTO {t} VALUES (2, 'y', 3)")
    live.pg.app(f"INSERT INTO {other} VALUES (2, 'y')")
    live.daemon.wait_caught_up()
    live.daemon.wait_table(f"public.{t}", "streaming")
    live.pg.app(f"INSERT INTO {t} VALUES (3, 'z', 4)")
    live.assert_equal(t)
    live.assert_equal(other)


def test_partitions(live):
    root = live.table("id int, region int, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region",
                      "root")
    live.pg.app(f"CREATE TABLE {root}_a PARTITION OF {root} FOR VALUES IN (1);"
                f"CREATE TABLE {root}_b PARTITION OF {root} FOR VALUES IN (2)")
    live.pg.app(f"INSERT INTO {root} SELECT i, 1 + i % 2, 'p' FROM generate_series(1, 200) i;"
                f"UPDATE {root} SET region = 3 - region WHERE id % 5 = 0;"
                f"DELETE FROM {root} WHERE id % 7 = 0")
    live.assert_equal(root)
    names = [t["name"] for t in live.daemon.status()["tables"]]
    assert f"public.{root}" in names and f"public.{root}_a" not in names


def test_spilled_transaction(sources, daemons):
    """A transaction far larger than the transaction buffer, with small ones in between."""
    pg = sources()
    pg.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE s (id int PRIMARY KEY)")
    daemon = daemons(pg, config={"memory": {"xact_buffer_max": "1MiB"}}).start()
    daemon.wait_state("streaming")
    with pg.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO t SELECT i, repeat(md5(i::text), 5) FROM generate_series(1, 60000) i")
        pg.app("INSERT INTO s SELECT generate_series(1, 100)")
        cursor.execute("SAVEPOINT a")
        cursor.execute("UPDATE t SET v = 'lost' WHERE id % 2 = 0")
        cursor.execute("ROLLBACK TO a")
        cursor.execute("DELETE FROM t WHERE id % 3 = 0")
        session.commit()
    parity.assert_equal(pg, daemon)
    with pg.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO t SELECT i, repeat(md5(i::text), 5) FROM generate_series(100000, 160000) i")
        session.rollback()
    parity.assert_equal(pg, daemon)
    spill = [n for _, _, names in os.walk(os.path.join(daemon.state_dir, "spill")) for n in names]
    assert not spill, "an ended transaction leaves nothing in spill/"


def test_tiny_limits(sources, daemons):
    """Every queue and buffer as small as it goes: rare waits become common ones."""
    pg = sources()
    workload.create(pg)
    config = {
        "memory": {"resident_payload_max": "4MiB", "inline_value_max": "2MiB",
                   "xact_buffer_max": "256KiB"},
        "destination": {"default": {"row_budget": 100, "byte_budget": "64KiB"}},
        "pipeline": {"decoder_pool_size": 1, "inserter_pool_size": 1},
    }
    daemon = daemons(pg, config=config).start()
    daemon.wait_state("streaming")
    writers = [workload.Mixer(pg, seed=lane, lane=lane, rounds=100, big_values=lane == 0)
               for lane in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        writer.stop()
    parity.assert_equal(pg, daemon)


def test_source_shuts_down_fast_and_returns(sources, daemons):
    """A fast shutdown is not held up by the daemon, which comes back by itself."""
    pg = sources()
    pg.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    session = pg.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, 'unacknowledged')")
    pg.app("INSERT INTO t VALUES (2, 'committed')")
    assert pg.stop("fast") < 5
    daemon.wait_state("reconnecting", 30)
    pg.start()
    daemon.wait_state("streaming", 60)
    pg.app("INSERT INTO t VALUES (3, 'after')")
    parity.assert_equal(pg, daemon)


def test_source_crashes(sources, daemons):
    """Transactions that died with the server leave no rows and hold neither the floor nor the slot."""
    pg = sources()
    workload.create(pg)
    daemon = daemons(pg, config={"ops": {"status_interval": "500ms"}}).start()
    daemon.wait_state("streaming")
    session = pg.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("INSERT INTO keyless SELECT i, 'dead' FROM generate_series(1, 5000) i")
    pg.app("INSERT INTO keyless VALUES (1, 'committed')")
    pg.sql("CHECKPOINT")
    pg.stop("immediate")
    pg.start()
    daemon.wait_state("streaming", 60)
    pg.app("INSERT INTO keyless VALUES (2, 'after')")
    parity.assert_equal(pg, daemon)
    daemon.wait_status(lambda s: s["decoder"]["open_xacts"] == 0, 60, "dead transaction let go")
    pg.sql("SELECT pg_switch_wal(); CHECKPOINT")
    end = lsn_value(pg.lsn()) >> 24
    pg.app("INSERT INTO keyless VALUES (3, 'later')")
    wait_until(lambda: lsn_value(pg.sql("SELECT restart_lsn::text FROM pg_replication_slots")[0][0]) >> 24 >= end,
               60, lambda: f"the slot stays: {daemon.status()}")


def test_engine_killed(sources, daemons):
    """kill -9 of the embedded engine: the daemon lives, starts it again, nothing is lost."""
    pg = sources()
    workload.create(pg)
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    writer = workload.Mixer(pg, seed=3)
    writer.start()
    pid = daemon.process.pid
    for _ in range(3):
        time.sleep(1.5)
        engine = daemon.engine_pid()
        os.kill(engine, 9)
        wait_until(lambda: not alive(engine), 10, "engine ends")
        wait_until(lambda: any(" engine " in line for line in children_of(daemon)), 30, "engine back")
    writer.stop()
    assert daemon.process.pid == pid
    parity.assert_equal(pg, daemon)


def children_of(daemon):
    from lib.process import children

    daemon.check_alive()
    return children(daemon.process.pid).values()


def test_prepared_transactions(sources, daemons):
    """PREPARE, a daemon restart, COMMIT PREPARED: what PREPARE wrote arrives. ROLLBACK PREPARED: not."""
    pg = sources()
    pg.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    for gid in ("one", "two", "three"):
        pg.app(f"BEGIN; INSERT INTO t VALUES ({len(gid) * 10 + ord(gid[0])}, '{gid}');"
               f"PREPARE TRANSACTION '{gid}'")
    pg.app("COMMIT PREPARED 'one'")
    daemon.wait_status(lambda s: {p["gid"] for p in s["prepared"]} == {"two", "three"}, 30, "prepared")
    parity.assert_equal(pg, daemon)
    daemon.kill()
    daemon.start().wait_state("streaming")
    pg.app("COMMIT PREPARED 'two'")
    pg.app("ROLLBACK PREPARED 'three'")
    parity.assert_equal(pg, daemon)
    daemon.wait_status(lambda s: not s["prepared"], 30, "nothing prepared")


def test_wait_takes_any_position(live):
    """wait returns for positions in padding and after a segment switch, and 2 on a timeout."""
    live.pg.sql("SELECT pg_switch_wal()")
    live.daemon.wait_caught_up(30)
    lsn = live.pg.lsn()
    assert live.daemon.verb("wait", "--lsn", lsn, "--timeout", "30").returncode == 0
    status = live.daemon.status()
    # The insert position of a fresh page is behind its header, the end of the last record before it.
    last = lsn_value(lsn)
    last -= last % 8192 if last % 8192 in (24, 40) else 0
    assert lsn_value(status["ack_lsn"]) >= last
    assert lsn_value(status["floor_lsn"]) <= lsn_value(status["ack_lsn"])
    done = live.daemon.verb("wait", "--lsn", "FF/0", "--timeout", "1", check=False)
    assert done.returncode != 0


def test_commands_read_the_daemon(live):
    t = live.table("id int PRIMARY KEY, v text")
    live.pg.app(f"INSERT INTO {t} VALUES (1, 'x'), (2, 'y'); DELETE FROM {t} WHERE id = 2")
    live.assert_equal(t)
    assert live.daemon.sql(f"SELECT count() FROM app.{t}") == [["1"]]  # final by itself
    out = live.daemon.verb("sql", "--format", "JSONEachRow", f"SELECT id, v FROM app.{t}").stdout
    assert out == '{"id":1,"v":"x"}\n'
    assert f"public.{t}" in live.daemon.verb("tables").stdout
    refused = live.daemon.verb("sql", f"DROP TABLE app.{t}", check=False)
    assert refused.returncode == 1 and refused.stderr
    two = live.daemon.verb("sql", f"SELECT 1; DROP TABLE app.{t}", check=False)
    assert two.returncode == 1
    assert live.daemon.sql(f"SELECT count() FROM app.{t}") == [["1"]]
    verdict = live.daemon.verb("verify", "--json", t)
    assert '"equal":true' in verdict.stdout.replace(" ", "")
