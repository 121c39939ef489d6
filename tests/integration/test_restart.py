"""kill -9 at any instant, then run again: the end equals an uninterrupted run."""

import os
import time

from lib import parity, workload
from lib.daemon import lsn_value
from lib.process import wait_until


def test_kill_during_load(source, daemons):
    """The next start says that a load was cut short, discards it and loads again."""
    workload.create(source)
    source.pgbench_init(10)
    writer = workload.Mixer(source)
    writer.start()
    daemon = daemons(source).start()
    daemon.wait_status(
        lambda s: s["state"] == "bootstrapping" and s["bootstrap"]["bytes_done"] > 20 << 20,
        what="load under way")
    daemon.kill()
    daemon.start()
    daemon.wait_status(lambda s: s["state"] == "bootstrapping", what="loads again")
    daemon.kill()
    daemon.start().wait_state("streaming")
    writer.stop()
    text = daemon.log_text()
    assert "interrupted" in text or "again" in text, "the restart says what it discards"
    parity.assert_equal(source, daemon)


def test_kill_with_a_long_transaction_open(source, daemons):
    """The first rows of a transaction that is open over several restarts are not lost."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE s (id int PRIMARY KEY)")
    daemon = daemons(source, config={"memory": {"xact_buffer_max": "1MiB"}}).start()
    daemon.wait_state("streaming")
    session = source.connect(autocommit=False)
    cursor = session.cursor()
    for cycle in range(3):
        cursor.execute(f"INSERT INTO t SELECT i, repeat('x', 200) FROM "
                       f"generate_series({cycle * 20000}, {cycle * 20000 + 9999}) i")
        source.app(f"INSERT INTO s VALUES ({cycle})")
        source.sql("SELECT pg_switch_wal(); CHECKPOINT")
        daemon.wait_caught_up()
        time.sleep(2)  # several status intervals: the floor had every chance to pass
        daemon.kill()
        daemon.start().wait_state("streaming")
    session.commit()
    parity.assert_equal(source, daemon)


def test_stop_and_start(source, daemons):
    """A clean stop acknowledges what was read, says that the slot holds WAL, and goes on from there."""
    workload.create(source)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    writer = workload.Mixer(source)
    writer.start()
    time.sleep(1)
    daemon.stop()
    last = daemon.log_text().strip().splitlines()[-1]
    assert "slot" in last
    writer.stop()
    daemon.start().wait_state("streaming")
    parity.assert_equal(source, daemon)


def test_commits_before_the_ack_are_not_sent_again(source, daemons):
    """A restart skips what was acknowledged: no second version of a row appears."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 1000) i")
    daemon.wait_caught_up()
    daemon.stop()
    daemon.start().wait_state("streaming")
    source.app("INSERT INTO t VALUES (2000, 'y')")
    parity.assert_equal(source, daemon)
    assert daemon.sql("SELECT count() FROM app.t", "--raw") == [["1001"]]


def test_truncate_is_not_run_again(source, daemons):
    """TRUNCATE below the floor's reach is replayed after a kill, but later rows stay."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE pin (id int)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    session = source.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("INSERT INTO pin VALUES (1)")  # keeps the floor below what follows
    source.app("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 100) i")
    source.app("TRUNCATE t")
    source.app("INSERT INTO t VALUES (1, 'after')")
    daemon.wait_caught_up()
    time.sleep(2)
    daemon.kill()
    daemon.start().wait_state("streaming")
    session.rollback()
    parity.assert_equal(source, daemon)


def test_shadow_killed(source, daemons):
    workload.create(source)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    writer = workload.Mixer(source)
    writer.start()
    time.sleep(1)
    with open(os.path.join(daemon.state_dir, "shadow", "postmaster.pid")) as f:
        old = int(f.readline())
    os.kill(old, 9)

    def replaced():
        daemon.check_alive()
        try:
            with open(os.path.join(daemon.state_dir, "shadow", "postmaster.pid")) as f:
                return int(f.readline()) != old
        except (OSError, ValueError):
            return False

    wait_until(replaced, 60, "another shadow")
    source.app("CREATE TABLE after_it (id int PRIMARY KEY); INSERT INTO after_it VALUES (1)")
    writer.stop()
    parity.assert_equal(source, daemon)


def test_engine_killed_with_the_daemon(source, daemons):
    workload.create(source)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    writer = workload.Mixer(source)
    writer.start()
    time.sleep(1)
    engine = daemon.engine_pid()
    daemon.kill()
    try:
        os.kill(engine, 9)
    except ProcessLookupError:
        pass
    daemon.start().wait_state("streaming")
    writer.stop()
    parity.assert_equal(source, daemon)


def test_positions_only_grow(source, daemons):
    """floor ≤ ack ≤ received, none moves back, also over restarts."""
    source.pgbench_init(1)
    bench = source.pgbench(clients=2)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    last = {}
    for cycle in range(2):
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            status = daemon.status()
            floor, ack = lsn_value(status["floor_lsn"]), lsn_value(status["ack_lsn"])
            assert floor <= ack <= lsn_value(status["source"]["received_lsn"]), status
            assert floor >= last.get("floor", 0), (status, last)
            if cycle == 0 or ack:
                assert ack >= last.get("ack", 0) or cycle, (status, last)
            last = {"floor": floor, "ack": ack}
            time.sleep(0.1)
        daemon.kill()
        daemon.start().wait_state("streaming")
    bench.stop()
    parity.assert_equal(source, daemon)
