"""The source goes away and comes back, in every way it can; or it comes back as something that cannot
be followed, and that is one clear error."""

import os
import random
import re
import signal
import time

import pytest

from lib import parity, workload
from lib.process import wait_until
from lib.proxy import Proxy

FAST = {"ops": {"status_interval": "500ms"}}


def tcp_url(port):
    return f"postgresql://walshadow:secret@127.0.0.1:{port}/app"


def leaves(daemon, *words, timeout=60):
    """The daemon ends by itself with one error that has these words."""
    assert daemon.wait_exit(timeout) == 1, daemon.log_text()[-3000:]
    fatal = [line for line in daemon.log_text().splitlines() if "msg=fatal" in line][-1]
    for word in words:
        assert re.search(word, fatal), fatal
    return fatal


def test_cut_stalled_and_delayed(sources, daemons, full):
    """Behind a proxy that cuts, stalls until the server gives up, and delays, with writers running."""
    source = sources(15, {"wal_sender_timeout": "3s"})
    workload.create(source)
    rng = random.Random(5)
    with Proxy(source.port) as proxy:
        daemon = daemons(source, config={**FAST, "source": {"conninfo": tcp_url(proxy.port)}}).start()
        daemon.wait_state("streaming")
        writer = workload.Mixer(source, seed=5, multixacts=True, big_values=True)
        writer.start()
        for _ in range(20 if full else 3):
            time.sleep(rng.uniform(0.2, 1))
            proxy.cut()
        proxy.refuse = True
        proxy.cut()
        status = daemon.wait_status(lambda s: s["state"] == "reconnecting" and s["waiting_on"], 30,
                                    "reconnecting")
        assert "source" in status["waiting_on"]
        proxy.refuse = False
        daemon.wait_state("streaming")
        for _ in range(3 if full else 1):
            proxy.stall()
            time.sleep(5)  # longer than wal_sender_timeout: the server has ended the connection
            proxy.resume()
            time.sleep(0.5)
        proxy.delay = 0.01
        time.sleep(1)
        proxy.delay = 0
        writer.stop()
        parity.assert_equal(source, daemon)
        daemon.stop()


def test_sender_timeout_while_the_pump_waits(sources, daemons):
    """Replies go out often enough for a short wal_sender_timeout also while nothing is read."""
    source = sources(15, {"wal_sender_timeout": "2s"})
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source, "null:").start()
    daemon.wait_state("streaming")
    daemon.verb("pause")
    pid = source.sql("SELECT active_pid FROM pg_replication_slots")[0][0]
    time.sleep(5)
    assert source.sql("SELECT active_pid FROM pg_replication_slots")[0][0] == pid
    assert daemon.status()["state"] == "paused"
    source.app("INSERT INTO t VALUES (1)")
    daemon.verb("resume")
    daemon.wait_caught_up()
    assert daemon.table("public.t")["rows"] == 1


def test_fast_shutdown_does_not_wait(source, daemons):
    """pg_ctl stop -m fast returns within 5 s with a transaction unacknowledged, with the engine
    standing still and the pump blocked behind it; status says what it waits for."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = daemons(source, config={
        **FAST, "memory": {"resident_payload_max": "1MiB", "xact_buffer_max": "128KiB"},
        "destination": {"default": {"row_budget": 500}}}).start()
    daemon.wait_state("streaming")
    source.app("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 100) i")
    daemon.wait_caught_up()
    engine = daemon.engine_pid()
    os.kill(engine, signal.SIGSTOP)
    try:
        for n in range(1, 30):
            source.app(f"INSERT INTO t SELECT i, repeat('y', 500) FROM generate_series({n}000, {n}999) i")
        status = daemon.wait_status(
            lambda s: (s["waiting_on"] or "").startswith("destination default: "), 30,
            "names what it waits for")
        assert status["destinations"][0]["lag_bytes"] > 0
        assert source.stop("fast") < 5
        daemon.wait_status(lambda s: s["state"] == "reconnecting" or s["waiting_on"], 30, "goes on waiting")
        source.start()
    finally:
        os.kill(engine, signal.SIGCONT)
    parity.assert_equal(source, daemon)
    # the same while it is paused
    daemon.verb("pause")
    source.app("INSERT INTO t VALUES (-1, 'paused')")
    assert source.stop("fast") < 5
    source.start()
    daemon.verb("resume")
    parity.assert_equal(source, daemon)
    daemon.stop()


def test_pause_and_resume(source, daemons):
    """Nothing is read while it is paused; the pause ends with the process."""
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source, "null:", config=FAST).start()
    daemon.wait_state("streaming")
    source.app("INSERT INTO t VALUES (1)")
    daemon.verb("pause")
    assert daemon.table("public.t")["rows"] == 1, "what was read has arrived when pause returns"
    source.app("INSERT INTO t SELECT generate_series(2, 10)")
    time.sleep(1)
    status = daemon.status()
    assert status["state"] == "paused" and daemon.table("public.t")["rows"] == 1, status
    again = daemon.verb("pause", check=False)
    assert again.returncode == 1 and "paused" in again.stderr, again
    daemon.verb("resume")
    daemon.wait_caught_up()
    assert daemon.table("public.t")["rows"] == 10
    daemon.verb("pause")
    daemon.stop()
    daemon.start().wait_state("streaming")
    daemon.stop()


def test_slot_dropped_while_streaming(source, daemons):
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    with Proxy(source.port) as proxy:
        daemon = daemons(source, "null:",
                         config={**FAST, "source": {"conninfo": tcp_url(proxy.port)}}).start()
        daemon.wait_state("streaming")
        proxy.refuse = True
        proxy.cut()
        wait_until(lambda: source.sql("SELECT active FROM pg_replication_slots") == [(False,)], 20,
                   "the slot is free")
        source.sql("SELECT pg_drop_replication_slot('walshadow_app')")
        proxy.refuse = False
        leaves(daemon, "walshadow_app", "load again")
        daemon.start()
        leaves(daemon, "walshadow_app", "load again")


@pytest.mark.parametrize("away", (True, pytest.param(False, marks=pytest.mark.slow)))
def test_slot_lost_to_a_limit(sources, daemons, away):
    """max_slot_wal_keep_size went by while we were away, or there and not reading: the checkpoint
    that takes the slot does not wait for us."""
    source = sources(15, {"max_slot_wal_keep_size": "32MB", "max_wal_size": "64MB"})
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source, "null:", config=FAST).start()
    daemon.wait_state("streaming")
    daemon.stop() if away else daemon.verb("pause")
    for n in range(6):
        source.app(f"CREATE TABLE waste{n} (v text); DROP TABLE waste{n}")
        source.sql("SELECT pg_switch_wal()")
    started = time.monotonic()
    source.sql("CHECKPOINT")
    assert time.monotonic() - started < 20
    assert source.sql("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
    daemon.start() if away else daemon.verb("resume")
    leaves(daemon, "max_slot_wal_keep_size", "load again")
    if not away:
        daemon.start()
        leaves(daemon, "walshadow_app", "max_slot_wal_keep_size", "load again")


def test_wal_level_lowered(source, daemons):
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source, "null:", config=FAST).start()
    daemon.wait_state("streaming")
    source.sql("ALTER SYSTEM SET wal_level = 'replica'")
    source.restart("fast")
    source.app("INSERT INTO t VALUES (1)")
    leaves(daemon, "wal_level", "logical", "load again")


def test_becomes_synchronous(source, daemons):
    """Noticed while it runs; the commits that waited go on once it has left."""
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source, "null:", config=FAST).start()
    daemon.wait_state("streaming")
    source.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    source.sql("SELECT pg_reload_conf()")
    leaves(daemon, "synchronous")
    source.sql("ALTER SYSTEM RESET synchronous_standby_names")
    source.sql("SELECT pg_reload_conf()")
    source.app("INSERT INTO t VALUES (1)")


def test_timeline_switch(source, daemons):
    """The source comes back promoted: another timeline is refused by name, running and at a start."""
    source.app("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    daemon = daemons(source, "null:", config=FAST).start()
    daemon.wait_state("streaming")
    source.stop("fast")
    open(os.path.join(source.data, "standby.signal"), "w").close()
    source.start()
    source.sql("SELECT pg_promote()")
    wait_until(lambda: not source.sql("SELECT pg_is_in_recovery()")[0][0], 30, "promoted")
    source.app("INSERT INTO t VALUES (2)")
    leaves(daemon, "timeline")
    daemon.start()
    leaves(daemon, "timeline", "--ignore-cursor")


def test_another_walshadow_holds_the_slot(source, daemons):
    """Told by name, and not only after a minute."""
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    first = daemons(source, "null:", config=FAST).start()
    first.wait_state("streaming")
    second = daemons(source, "null:", config=FAST).start()
    leaves(second, "walshadow_app", "another walshadow", timeout=30)
    first.stop()


def test_shadow_restarted_with_many_subtransactions(source, daemons):
    """A shadow that starts while a transaction with more than 64 subtransactions is open accepts no
    connections until that has ended: the stream goes on, status says so."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = daemons(source, config=FAST).start()
    daemon.wait_state("streaming")
    session = source.connect(autocommit=False)
    with session.cursor() as cursor:
        for i in range(100):
            cursor.execute(f"SAVEPOINT s{i}; INSERT INTO t VALUES ({1000 + i}, 'sub')")
    source.sql("CHECKPOINT")
    daemon.wait_caught_up()
    with open(os.path.join(daemon.state_dir, "shadow", "postmaster.pid")) as f:
        os.kill(int(f.readline()), signal.SIGQUIT)
    status = daemon.wait_status(lambda s: s["waiting_on"] and "shadow" in s["waiting_on"], 30,
                                "names the shadow")
    source.app("INSERT INTO t VALUES (1, 'meanwhile')")
    daemon.wait_caught_up()
    if "64 subtransactions" in status["waiting_on"]:
        session.commit()
    else:
        session.rollback()
    source.app("CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later VALUES (1)")
    parity.assert_equal(source, daemon)


@pytest.mark.slow
def test_a_stall_is_told(source, daemons):
    """30 s without progress while there is work: a line in the log names what is waited for."""
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source, config=FAST).start()
    daemon.wait_state("streaming")
    engine = daemon.engine_pid()
    os.kill(engine, signal.SIGSTOP)
    try:
        source.app("INSERT INTO t VALUES (1)")
        wait_until(lambda: "no progress" in daemon.log_text(), 60, "the stall is told", 1)
    finally:
        os.kill(engine, signal.SIGCONT)
    line = next(x for x in daemon.log_text().splitlines() if "no progress" in x)
    assert "destination default" in line, line
    parity.assert_equal(source, daemon)


def test_ignore_cursor_and_start_lsn(source, daemons):
    """A position above the floor is refused; one below it sends again what collapses; without the
    cursor, also with a damaged manifest or after a promotion, everything is loaded again."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE k (a int);"
               "CREATE TABLE cut (id int PRIMARY KEY); INSERT INTO cut VALUES (1)")
    daemon = daemons(source, config=FAST)
    daemon.start("--start-lsn", "0/2000000")
    leaves(daemon, "--start-lsn", "initial load")
    daemon.start().wait_state("streaming")
    floor = daemon.status()["floor_lsn"]
    source.app("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 1000) i; INSERT INTO k VALUES (1), (2);"
               "UPDATE t SET v = 'y' WHERE id < 500; DELETE FROM k WHERE a = 1")
    source.app("TRUNCATE cut")
    source.app("ALTER TABLE cut ADD more int DEFAULT 5; INSERT INTO cut VALUES (2, 7)")
    source.app("ALTER TABLE cut RENAME more TO other; INSERT INTO cut VALUES (4, 8)")
    daemon.wait_caught_up()
    daemon.stop()
    high = source.sql("SELECT (pg_current_wal_lsn() + 1000000000)::text")[0][0]
    daemon.start("--start-lsn", high)
    leaves(daemon, "--start-lsn", "floor")
    daemon.start("--start-lsn", floor).wait_state("streaming")
    daemon.wait_caught_up()
    assert daemon.status()["destinations"][0]["rows"] >= 1500, "it is sent again before wait returns"
    parity.assert_equal(source, daemon)
    daemon.stop()
    source.app("DELETE FROM t WHERE id > 900; INSERT INTO k VALUES (3)")
    manifest = os.path.join(daemon.state_dir, "manifest.toml")
    with open(manifest, "r+") as f:
        f.truncate(100)
    daemon.start()
    leaves(daemon, "manifest")
    source.stop("fast")
    open(os.path.join(source.data, "standby.signal"), "w").close()
    source.start()
    source.sql("SELECT pg_promote()")
    wait_until(lambda: not source.sql("SELECT pg_is_in_recovery()")[0][0], 30, "promoted")
    daemon.start("--ignore-cursor").wait_state("streaming")
    parity.assert_equal(source, daemon)
    daemon.stop()
    daemon.start("--ignore-cursor").wait_state("streaming")
    source.app("INSERT INTO k VALUES (4)")
    parity.assert_equal(source, daemon)
