"""What a review found: cases between the parts, each wrong once."""

import os
import signal
import time

import pytest

from lib import parity
from lib.engine import Engine
from lib.paths import CLIENT_BIN
from lib.process import give_to_server_user, spawn, stop, wait_until


def at_rest(daemon, *statements):
    """Runs statements in the embedded engine while the daemon is down; returns the last result."""
    os.makedirs(daemon.state_dir, exist_ok=True)
    give_to_server_user(daemon.state_dir)
    engine = Engine(directory=daemon.state_dir).start()
    try:
        return [engine.query(s) for s in statements][-1]
    finally:
        engine.stop()


def test_rows_before_a_drop(source, daemons):
    """A dropped table's target is kept, with every row that was committed before."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE s (id int PRIMARY KEY)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    session = source.connect()
    with session.cursor() as cursor:
        for statement in ("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 30000) i",
                          "DROP TABLE t", "INSERT INTO s VALUES (1)"):
            cursor.execute(statement)
    daemon.wait_caught_up()
    assert daemon.sql("SELECT count() FROM app.t") == [["30000"]]
    assert daemon.table("public.t")["state"] == "dropped"
    parity.assert_equal(source, daemon)


def test_temporary_tables_are_not_listed(source, daemons):
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    session = source.connect()
    with session.cursor() as cursor:
        for i in range(5):
            cursor.execute(f"CREATE TEMP TABLE scratch{i} (id serial PRIMARY KEY, v text);"
                           f"INSERT INTO scratch{i} (v) SELECT repeat('x', 3000);"
                           f"INSERT INTO t VALUES ({i}, 'x')")
        cursor.execute("DROP TABLE scratch0")
        daemon.wait_caught_up()
        assert [t["name"] for t in daemon.status()["tables"]] == ["public.t"]
    parity.assert_equal(source, daemon)
    assert "scratch" not in daemon.log_text()
    daemon.stop()
    daemon.start().wait_state("streaming")
    assert [t["name"] for t in daemon.status()["tables"]] == ["public.t"]


def test_targets_lost_at_a_restart(source, daemons):
    """A table selected later, one whose target was dropped by hand and one that was not selected for a
    time are copied again: what they have would not be whole."""
    for name in ("kept", "later", "gone", "gap"):
        source.app(f"CREATE TABLE {name} (id int PRIMARY KEY, v text);"
                   f"INSERT INTO {name} SELECT i, 'x' FROM generate_series(1, 500) i")
    daemon = daemons(source, config={"table": {"public": {"later": {"replicate": False}}}}).start()
    daemon.wait_state("streaming")
    assert daemon.table("public.later")["state"] == "skipped"
    daemon.stop()
    at_rest(daemon, "DROP TABLE app.gone SYNC")
    daemon.config["table"]["public"] = {"gap": {"replicate": False}}
    source.app("INSERT INTO gap VALUES (1001, 'missed'); INSERT INTO kept VALUES (1001, 'y')")
    daemon.start().wait_state("streaming")
    for name in ("later", "gone"):
        daemon.wait_table(f"public.{name}", "streaming", 60)
    assert daemon.log_text().count("its target does not exist") == 2
    assert daemon.table("public.gap")["state"] == "skipped"
    daemon.wait_caught_up()
    for name in ("kept", "later", "gone"):
        count = "501" if name == "kept" else "500"
        assert daemon.sql(f"SELECT count() FROM app.{name}") == [[count]]
    daemon.stop()
    del daemon.config["table"]
    daemon.start().wait_state("streaming")
    daemon.wait_table("public.gap", "streaming", 60)
    parity.assert_equal(source, daemon)


def test_adopted_target(source, daemons):
    """An empty table that fits is used, known again at the next start, and emptied, not dropped, by
    the next load."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text);"
               "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 500) i")
    daemon = daemons(source)
    at_rest(daemon, "CREATE DATABASE IF NOT EXISTS app",
            "CREATE TABLE app.t (id Int32, v Nullable(String), _lsn UInt64, _xid UInt32, "
            "_commit_ts DateTime64(6,'UTC'), _is_deleted Bool) "
            "ENGINE = ReplacingMergeTree(_lsn, _is_deleted) ORDER BY id "
            "SETTINGS index_granularity = 1024")
    daemon.start().wait_state("streaming")
    parity.assert_equal(source, daemon)
    daemon.stop()
    source.app("INSERT INTO t SELECT i, 'y' FROM generate_series(501, 600) i")
    daemon.start().wait_state("streaming")
    parity.assert_equal(source, daemon)
    daemon.stop()
    for name in ("manifest.toml",):  # as if it had been killed in the load
        path = os.path.join(daemon.state_dir, name)
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text.replace('"complete"', '"started"'))
    source.app("DELETE FROM t WHERE id % 2 = 0")
    daemon.start().wait_state("streaming")
    parity.assert_equal(source, daemon)
    found = daemon.sql("SELECT create_table_query FROM system.tables WHERE name = 't'")
    assert "index_granularity = 1024" in found[0][0], found


def test_load_is_complete_at_once(source, daemons):
    """Not only at the next status interval: a kill just after the load loads nothing again."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text);"
               "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 500) i")
    daemon = daemons(source, config={"ops": {"status_interval": "1h"}}).start()
    daemon.wait_state("streaming")
    daemon.kill()
    daemon.start().wait_state("streaming")
    assert daemon.log_text().count("load begins") == 1
    parity.assert_equal(source, daemon)


def test_load_is_complete_with_the_last_transaction(source, daemons):
    """The same where rows waited for a transaction that was open when the load began."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    session = source.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("INSERT INTO t SELECT i, 'open' FROM generate_series(1, 500) i")
    source.app("CHECKPOINT")
    daemon = daemons(source, config={"ops": {"status_interval": "1h"}}).start()
    daemon.wait_state("streaming")
    assert "initial load complete but for rows that wait" in daemon.log_text()
    assert 'msg="initial load complete"' not in daemon.log_text()
    session.commit()
    parity.assert_equal(source, daemon)
    time.sleep(1)
    assert 'msg="initial load complete"' in daemon.log_text()
    daemon.kill()
    daemon.start().wait_state("streaming")
    assert daemon.log_text().count("load begins") == 1
    parity.assert_equal(source, daemon)


def test_many_subtransactions_across_the_load(source, daemons):
    """More than 64 open subtransactions: a standby cannot know them all, so the load waits for the
    transaction's end, says so, and then has everything."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text);"
               "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 500) i")
    session = source.connect(autocommit=False)
    with session.cursor() as cursor:
        for i in range(100):
            cursor.execute(f"SAVEPOINT s{i}; INSERT INTO t VALUES ({1000 + i}, 'sub')")
            if i % 10 == 3:
                cursor.execute(f"ROLLBACK TO s{i}")
    daemon = daemons(source).start()
    daemon.wait_status(
        lambda s: s["waiting_on"] and "64 open subtransactions" in s["waiting_on"], what="waits")
    source.app("INSERT INTO t VALUES (5000, 'meanwhile'); CREATE TABLE later (id int PRIMARY KEY)")
    assert daemon.status()["state"] == "bootstrapping"
    begin = time.monotonic()
    daemon.stop()  # not only when the transaction ends
    assert time.monotonic() - begin < 20
    daemon.start()
    daemon.wait_status(
        lambda s: s["waiting_on"] and "64 open subtransactions" in s["waiting_on"], what="waits")
    session.commit()
    daemon.wait_state("streaming")
    parity.assert_equal(source, daemon)
    assert "more than 64 subtransactions" in daemon.log_text()


@pytest.mark.slow
def test_slot_taken_by_another_client(source, daemons):
    """A minute of "slot is active" is not our own connection that was cut: the daemon leaves."""
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    daemon.process.send_signal(signal.SIGSTOP)
    source.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
               "WHERE slot_name = 'walshadow_app'")
    wait_until(lambda: source.sql("SELECT active FROM pg_replication_slots") == [(False,)], 20,
               "the slot is still in use")
    directory = os.path.join(source.base, "received")
    os.mkdir(directory)
    give_to_server_user(directory)
    holder = spawn([CLIENT_BIN / "pg_receivewal", "-d", source.url(), "-S", "walshadow_app",
                    "-D", directory])
    try:
        wait_until(lambda: source.sql("SELECT active FROM pg_replication_slots") == [(True,)], 20,
                   "the slot is not taken")
        daemon.process.send_signal(signal.SIGCONT)
        assert daemon.wait_exit(120) == 1
    finally:
        stop(holder, signal.SIGTERM, 10)
    assert "slot walshadow_app is in use by another client" in daemon.log_text()


def test_stop_while_the_engine_starts(source, daemons):
    """An engine that never answers does not hold a stop."""
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source)
    engine = os.path.join(daemon.base, "engine")
    with open(engine, "w") as f:
        f.write("#!/bin/sh\nexec sleep 1000\n")
    os.chmod(engine, 0o755)
    daemon.config["destination"]["default"]["engine_bin"] = engine
    daemon.start()
    daemon.wait_status(lambda s: s["waiting_on"] and "engine" in s["waiting_on"], what="engine")
    begin = time.monotonic()
    daemon.stop()
    assert time.monotonic() - begin < 20
