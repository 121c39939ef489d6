"""Transactions of every kind and size end equal, and no acknowledgement runs ahead of the destination."""

import random
import threading
import time

import pytest

from lib import parity, paths
from lib.daemon import Daemon, lsn_value
from lib.postgres import Postgres
from lib.process import wait_until


class Live:
    """One source and one daemon whose transaction buffer is so small that most of this spills."""

    def __init__(self):
        self.pg = Postgres(15, {"max_prepared_transactions": "20"}).start().create_app()
        self.pg.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE keyless (a int, b text);"
                    "CREATE TABLE counter (id int PRIMARY KEY, n int); INSERT INTO counter VALUES (1, 0);"
                    "CREATE TABLE documents (id int PRIMARY KEY, body text)")
        self.daemon = Daemon(self.pg, config={"memory": {"xact_buffer_max": "64KiB"}}).start()
        self.daemon.wait_state("streaming")
        self.next = 0

    def ids(self, n):
        self.next += n
        return range(self.next - n + 1, self.next + 1)

    def close(self):
        try:
            self.daemon.close()
        finally:
            self.pg.close()


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


def check(live):
    parity.assert_equal(live.pg, live.daemon)


def test_commit_order_is_not_begin_order(live, full):
    rng = random.Random(1)
    for _ in range(10 if full else 3):
        sessions = [live.pg.connect(autocommit=False) for _ in range(12)]
        cursors = [s.cursor() for s in sessions]
        for cursor in cursors:  # all have an xid before any of them ends
            cursor.execute("INSERT INTO keyless VALUES (0, 'first')")
        for _ in range(8):
            for cursor in rng.sample(cursors, len(cursors)):
                ids = live.ids(20)
                cursor.execute("INSERT INTO t SELECT i, repeat('v', 50) FROM generate_series(%s, %s) i",
                               (ids[0], ids[-1]))
                cursor.execute("UPDATE t SET v = 'changed' WHERE id BETWEEN %s AND %s",
                               (ids[0], ids[0] + rng.randrange(20)))
        for session in rng.sample(sessions, len(sessions)):
            session.rollback() if rng.random() < 0.2 else session.commit()
            # the same row over and over: the last commit's version must win
            live.pg.app("UPDATE counter SET n = n + 1")
            session.close()
    check(live)


def test_interleaved_long_transactions(live, full):
    """Ten transactions side by side for ten seconds, each with savepoints."""
    seconds = 10 if full else 2
    errors = []

    def work(lane, ids):
        try:
            rng = random.Random(lane)
            session = live.pg.connect(autocommit=False)
            with session.cursor() as cursor:
                end = time.monotonic() + seconds
                todo = iter(ids)
                while time.monotonic() < end:
                    key = next(todo)
                    cursor.execute("SAVEPOINT a")
                    cursor.execute("INSERT INTO t VALUES (%s, %s)", (key, "x" * rng.randrange(300)))
                    cursor.execute("ROLLBACK TO a" if rng.random() < 0.3 else "RELEASE a")
                    time.sleep(rng.uniform(0, 0.03))
            session.rollback() if lane % 5 == 4 else session.commit()
            session.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(lane, live.ids(20000))) for lane in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    check(live)


def test_nested_savepoints(live, full):
    """200 deep, releases and rollbacks at random depths."""
    rng = random.Random(3)
    for _ in range(6 if full else 2):
        session = live.pg.connect(autocommit=False)
        with session.cursor() as cursor:
            depth = deepest = 0
            while deepest < 200 or depth > 0:
                up = deepest < 200 and rng.random() < 0.9
                if up:
                    depth += 1
                    deepest = max(deepest, depth)
                    cursor.execute(f"SAVEPOINT s{depth}")
                key = live.ids(1)[0]
                cursor.execute("INSERT INTO t VALUES (%s, %s)", (key, f"depth {depth}"))
                if rng.random() < 0.3:
                    cursor.execute("UPDATE t SET v = v || '+' WHERE id IN (%s, %s)", (key, key - 5))
                if rng.random() < 0.1:
                    cursor.execute("DELETE FROM t WHERE id = %s", (key - 3,))
                if not up and depth > 0:
                    to = rng.randrange(max(1, depth - 4), depth + 1)
                    cursor.execute(f"{'RELEASE' if rng.random() < 0.6 else 'ROLLBACK TO'} s{to}")
                    depth = to - 1
        session.commit()
        session.close()
    check(live)


def test_5000_subtransactions(live):
    ids = live.ids(5000)
    live.pg.app(f"""DO $$ BEGIN
        FOR i IN {ids[0]}..{ids[-1]} LOOP
            BEGIN
                INSERT INTO t VALUES (i, 'sub');
                IF i % 3 = 0 THEN RAISE EXCEPTION 'no'; END IF;
                IF i % 7 = 0 THEN UPDATE t SET v = 'twice' WHERE id = i; END IF;
            EXCEPTION WHEN raise_exception THEN NULL;
            END;
        END LOOP; END $$""")
    live.pg.app(f"""DO $$ BEGIN
        FOR i IN {ids[0]}..{ids[0] + 499} LOOP
            BEGIN UPDATE t SET v = v || i WHERE id = i; DELETE FROM t WHERE id = i + 1 AND i % 11 = 0;
            EXCEPTION WHEN division_by_zero THEN NULL; END;
        END LOOP; RAISE EXCEPTION 'all of it'; EXCEPTION WHEN raise_exception THEN NULL; END $$""")
    check(live)


def test_large_values_in_a_spilled_transaction(live, full):
    """At full depth the index of their chunks is larger than what it may hold in memory."""
    rng = random.Random(9)
    session = live.pg.connect(autocommit=False)
    with session.cursor() as cursor:
        for key in range(700 if full else 40):
            cursor.execute("INSERT INTO documents VALUES (%s, %s)",
                           (key, rng.randbytes(60000 + key % 7 * 1000).hex()))
        cursor.execute("SAVEPOINT a; UPDATE documents SET body = 'lost' || body; ROLLBACK TO a;"
                       "UPDATE documents SET body = reverse(body) WHERE id % 3 = 0;"
                       "DELETE FROM documents WHERE id % 5 = 0")
    session.commit()
    session.close()
    check(live)


def prepared(daemon, gid):
    return next((p for p in daemon.status()["prepared"] if p["gid"] == gid), None)


@pytest.mark.timeout(900)
def test_prepared_across_restarts(sources, daemons, full):
    """Of both sides, with other WAL in between; COMMIT PREPARED delivers what PREPARE wrote."""
    pg = sources(15, {"max_prepared_transactions": "5"})
    pg.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE other (id int, v text)")
    daemon = daemons(pg, config={"memory": {"xact_buffer_max": "64KiB"},
                                 "ops": {"status_interval": "500ms"}}).start()
    daemon.wait_state("streaming")
    for gid, base in (("kept", 0), ("gone", 10000)):
        session = pg.connect(autocommit=False)
        with session.cursor() as cursor:
            cursor.execute("INSERT INTO t SELECT i, repeat('p', 50) FROM generate_series(%s, %s) i",
                           (base + 1, base + 2000))
            cursor.execute("SAVEPOINT a; INSERT INTO t VALUES (%s, 'no'); ROLLBACK TO a", (base + 5000,))
            cursor.execute("SAVEPOINT b; INSERT INTO t VALUES (%s, 'yes'); RELEASE b", (base + 5001,))
            cursor.execute(f"PREPARE TRANSACTION '{gid}'")
        session.close()
    daemon.wait_caught_up()
    first = prepared(daemon, "kept")
    assert first["bytes"] > 0 and first["age_s"] >= 0, first
    megabytes = 200 if full else 20
    restarts = 3 if full else 1
    for cycle in range(restarts):
        pg.app("INSERT INTO other SELECT i, repeat(md5(i::text), 30) "
               f"FROM generate_series(1, {megabytes * 1000 // restarts}) i")
        pg.sql("SELECT pg_switch_wal(); CHECKPOINT")
        daemon.wait_caught_up()
        daemon.kill()
        daemon.start().wait_state("streaming")
        pg.restart("immediate" if cycle % 2 == 0 else "fast")
        daemon.wait_status(lambda s: s["state"] == "streaming" and len(s["prepared"]) == 2, 60,
                           "both are prepared")
        parity.assert_equal(pg, daemon, skip=("public.other",))  # large: at the end
    held = prepared(daemon, "kept")
    assert held["bytes"] > megabytes * 900000, held
    pg.app("COMMIT PREPARED 'kept'")
    pg.app("ROLLBACK PREPARED 'gone'")
    parity.assert_equal(pg, daemon)
    assert daemon.sql("SELECT count() FROM app.t") == [["2001"]]
    assert daemon.status()["prepared"] == []
    pg.sql("SELECT pg_switch_wal(); CHECKPOINT")
    end = lsn_value(pg.lsn())
    wait_until(lambda: lsn_value(daemon.status()["floor_lsn"]) > end - (48 << 20), 30,
               lambda: f"the floor stays: {daemon.status()}")


@pytest.mark.timeout(2400)
def test_memory_of_a_large_transaction(source, daemons, full):
    """One transaction of many rows passes through a daemon whose memory has a bound."""
    limit = 512 << 20 if full else 64 << 20
    rows = 20_000_000 if full else 1_000_000
    source.app("CREATE TABLE t (id int, v text)")
    config = {} if full else {"memory": {"resident_payload_max": "64MiB", "xact_buffer_max": "16MiB",
                                         "inline_value_max": "8MiB"}}
    daemon = daemons(source, "null:", config={**config, "ops": {"status_interval": "200ms"}}).start()
    daemon.wait_state("streaming")
    source.app(f"INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, {rows}) i")
    daemon.wait_caught_up(2000)
    status = daemon.status()
    assert status["destinations"][0]["rows"] == rows
    peak = daemon.peak_rss_bytes()
    print(f"peak {peak / 1e6:.0f} MB for {rows} rows")
    assert peak < limit + 150 * 1000 * 1000, f"{peak / 1e6:.0f} MB"


class Teller(threading.Thread):
    """Writes one row a transaction and remembers a position that its commit ends before. No faster than
    an engine that fails can follow."""

    def __init__(self, pg, lane):
        super().__init__(daemon=True)
        self.pg, self.lane, self.error = pg, lane, None
        self.written = []  # (position, id)
        self.ending = threading.Event()

    def run(self):
        try:
            connection = self.pg.connect()
            with connection.cursor() as cursor:
                key = self.lane
                while not self.ending.wait(0.01):
                    key += 10
                    table = "t" if self.rows() % 3 else "u"
                    cursor.execute(f"INSERT INTO {table} VALUES (%s, repeat('x', 100))", (key,))
                    cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
                    self.written.append((lsn_value(cursor.fetchone()[0]), key))
            connection.close()
        except Exception as error:
            self.error = error

    def rows(self):
        return len(self.written)


def test_no_ack_exceeds_what_the_destination_holds(source, daemons, full):
    """The engine fails, delays and cuts connections at random; whatever the status says is
    acknowledged is there, at any moment."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY, v text)")
    daemon = daemons(source, env={"WALSHADOW_TEST_ENGINE_FAULT": "random=11:15"},
                     config={"destination": {"default": {"row_budget": 50}}}).start()
    daemon.wait_state("streaming")
    tellers = [Teller(source, lane) for lane in range(4)]
    for teller in tellers:
        teller.start()
    deadline = time.monotonic() + (60 if full else 6)
    looked = moved = 0
    last = 0
    while time.monotonic() < deadline:
        ack = lsn_value(daemon.status()["ack_lsn"])
        held = {int(r[0]) for r in daemon.sql("SELECT id FROM app.t UNION ALL SELECT id FROM app.u")}
        owed = {key for teller in tellers for lsn, key in list(teller.written) if lsn <= ack}
        assert owed <= held, f"acknowledged {ack:X}, missing {sorted(owed - held)[:10]}"
        looked += 1
        moved += ack > last
        last = ack
    for teller in tellers:
        teller.ending.set()
        teller.join(30)
        assert teller.error is None, teller.error
    assert looked > 5 and moved > 2, (looked, moved)
    parity.assert_equal(source, daemon)
    assert daemon.status()["destinations"][0]["errors"] > 0, "the engine failed nothing"


@pytest.mark.slow
@pytest.mark.majors
@pytest.mark.parametrize("major", paths.MAJORS)
def test_pgbench(sources, daemons, major):
    """Load under pgbench, an index built beside it, drained to parity."""
    pg = sources(major)
    pg.pgbench_init(1)
    bench = pg.pgbench(seconds=30, clients=4)
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    time.sleep(4)
    pg.app("CREATE INDEX CONCURRENTLY ON pgbench_history (bid)")
    bench.wait(90)
    parity.assert_equal(pg, daemon)


def test_idle_database_beside_a_busy_one(source, daemons):
    """The slot follows the WAL of another database within two status intervals."""
    source.create_app("noise")
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    source.sql("CREATE TABLE big (v text)", dbname="noise")
    interval = 2
    daemon = daemons(source, "null:", config={"ops": {"status_interval": f"{interval}s"}}).start()
    daemon.wait_state("streaming")
    source.sql("INSERT INTO big SELECT repeat(md5(i::text), 30) FROM generate_series(1, 60000) i",
               dbname="noise")
    source.sql("SELECT pg_switch_wal(); CHECKPOINT")
    segment = lsn_value(source.lsn()) >> 24
    daemon.wait_caught_up()
    began = time.monotonic()

    def follows():
        lsn = source.sql("SELECT restart_lsn::text FROM pg_replication_slots")[0][0]
        return lsn_value(lsn) >> 24 >= segment

    wait_until(follows, 60, lambda: f"slot stays: {daemon.status()}", 0.1)
    took = time.monotonic() - began
    assert took < 2 * interval + 1, f"{took:.1f} s"
