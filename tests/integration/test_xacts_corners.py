"""Ends of transactions that come when nobody expects them: prepared before the load, committed while the
shadow cannot replay, rolled back around values out of line that are on disk already."""

import os
import signal

import pytest

from lib import parity
from lib.process import children, wait_until
from lib.proxy import Proxy

FAST = {"ops": {"status_interval": "500ms"}}
PREPARE = {"max_prepared_transactions": "10"}


def run_to(session, *statements):
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def prepare(pg, gid, *statements):
    session = pg.connect(autocommit=False)
    run_to(session, *statements, f"PREPARE TRANSACTION '{gid}'")
    session.close()


def shadow_pid(daemon):
    with open(os.path.join(daemon.state_dir, "shadow", "postmaster.pid")) as f:
        return int(f.readline())


def test_prepared_before_the_load(sources, daemons, full):
    """Their rows are in the pages of the load and nothing of them is in the stream but the end, which
    comes while it streams, while it is down, and after a load that began again because of them."""
    pg = sources(18 if full else 15, PREPARE)
    pg.app("CREATE TABLE t (id int PRIMARY KEY, n int, body text); CREATE TABLE keyless (a int, b text);"
           "ALTER TABLE t ALTER body SET STORAGE EXTERNAL;"
           "INSERT INTO t SELECT i, 0, repeat(md5(i::text), 120) FROM generate_series(1, 400) i;"
           "INSERT INTO keyless SELECT i, 'old' FROM generate_series(1, 400) i")
    for n, gid in enumerate(("kept", "gone", "kept away", "gone away")):
        low, new = n * 100 + 1, 1000 * (n + 1)
        prepare(pg, gid,
                f"INSERT INTO t SELECT i, 1, repeat(md5(i::text), 150) FROM generate_series({new}, {new + 20}) i",
                f"SAVEPOINT a; UPDATE t SET n = 7, body = repeat('gone', 2000) WHERE id = {low}; ROLLBACK TO a",
                f"SAVEPOINT b; UPDATE t SET n = n + 1 WHERE id BETWEEN {low} AND {low + 20}; RELEASE b",
                f"UPDATE t SET body = repeat(md5(n::text), 130) WHERE id BETWEEN {low + 30} AND {low + 40}",
                f"DELETE FROM t WHERE id BETWEEN {low + 50} AND {low + 60}",
                f"DELETE FROM keyless WHERE a BETWEEN {low} AND {low + 10}",
                f"UPDATE keyless SET b = '{gid}' WHERE a BETWEEN {low + 20} AND {low + 30}",
                f"INSERT INTO keyless SELECT {new}, '{gid}' FROM generate_series(1, 10)")
    pg.sql("CHECKPOINT")
    daemon = daemons(pg, config=FAST).start()
    daemon.wait_state("streaming")
    pg.app("INSERT INTO t VALUES (-1, 0, 'while they wait'); UPDATE t SET n = n + 10 WHERE id IN (25, 125)")
    daemon.wait_caught_up()
    status = daemon.wait_status(lambda s: s["waiting_on"], 30, "says that rows are not decided")
    assert "open or prepared during the initial load" in status["waiting_on"], status
    daemon.kill()
    pg.app("COMMIT PREPARED 'kept away'")
    daemon.start().wait_state("streaming")
    pg.app("ROLLBACK PREPARED 'gone'")
    pg.app("COMMIT PREPARED 'kept'")
    pg.app("UPDATE t SET n = n + 100 WHERE id < 300 AND id % 3 = 0")
    daemon.wait_caught_up()
    daemon.stop()
    pg.app("ROLLBACK PREPARED 'gone away'")
    daemon.start().wait_state("streaming")
    pg.app("UPDATE t SET n = n + 1000 WHERE id % 2 = 0")
    parity.assert_equal(pg, daemon)
    wait_until(lambda: daemon.log_text().count("initial load complete") > 0, 30, "the load is complete")
    loads = daemon.log_text().count("load begins")
    daemon.kill()
    daemon.start().wait_state("streaming")
    parity.assert_equal(pg, daemon)
    assert daemon.log_text().count("load begins") == loads, "everything was decided"


def test_savepoints_around_spilled_values(source, daemons):
    """Versions of a row whose value out of line is another one's of the same transaction, kept or rolled
    back, with more on disk between them than the buffer holds, over a kill."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, n int, body text); ALTER TABLE t ALTER body SET STORAGE EXTERNAL;"
               "CREATE TABLE k (id int, body text); ALTER TABLE k ALTER body SET STORAGE EXTERNAL;"
               "INSERT INTO t SELECT i, 0, repeat(md5(i::text), 300) FROM generate_series(1, 12) i;"
               "INSERT INTO k SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 12) i")
    daemon = daemons(source, config={**FAST, "memory": {"xact_buffer_max": "64KiB"}}).start()
    daemon.wait_state("streaming")
    session = source.connect(autocommit=False)
    noise = "INSERT INTO k SELECT 100, repeat(md5(random()::text), 100) FROM generate_series(1, 60)"
    body = "UPDATE t SET body = repeat(md5('{0}' || id), 250) WHERE id % {1} = 0"
    run_to(session, body.format("a", 2), noise, "SAVEPOINT s", body.format("b", 3), noise,
           "DELETE FROM k WHERE id < 4", "ROLLBACK TO s", "UPDATE t SET n = n + 1", noise)
    daemon.wait_caught_up()
    daemon.kill()
    daemon.start().wait_state("streaming")
    run_to(session, "SAVEPOINT u", body.format("c", 4), "SAVEPOINT v", noise, body.format("d", 5),
           "UPDATE t SET id = id + 100 WHERE id < 6", "RELEASE v", "UPDATE t SET n = n + 1", "ROLLBACK TO u",
           "SAVEPOINT w", "DELETE FROM t WHERE id = 7", noise, "INSERT INTO t SELECT 7, n, body FROM t WHERE id = 8",
           "RELEASE w", "UPDATE t SET n = n + 1", "UPDATE k SET id = id + 50 WHERE id < 9")
    session.commit()
    session.close()
    source.app("UPDATE t SET n = n + 1; UPDATE k SET id = id + 1 WHERE id > 50")
    parity.assert_equal(source, daemon)


def test_commit_prepared_while_the_shadow_stands_still(sources, daemons):
    """The prepared transaction made tables and changed others; the shadow does not replay its end, is
    killed, and so is the daemon: status names the shadow, and the end is equal."""
    pg = sources(15, PREPARE)
    pg.app("CREATE TABLE changed (id int PRIMARY KEY, a int, b text); INSERT INTO changed VALUES (1, 1, 'b')")
    daemon = daemons(pg, config=FAST).start()
    daemon.wait_state("streaming")
    prepare(pg, "shapes", "CREATE TABLE made (id int PRIMARY KEY, v text)", "INSERT INTO made VALUES (1, 'before')",
            "ALTER TABLE changed ADD c int DEFAULT 7", "INSERT INTO changed VALUES (2, 2, 'c', 8)",
            "SAVEPOINT a", "ALTER TABLE made ADD w int", "INSERT INTO made VALUES (2, 'no', 2)", "ROLLBACK TO a",
            "ALTER TABLE changed DROP a", "INSERT INTO changed VALUES (3, 'd', 9)")
    prepare(pg, "undone", "CREATE TABLE undone (id int PRIMARY KEY)", "INSERT INTO undone VALUES (1)")
    daemon.wait_caught_up()
    startup = next(p for p, line in children(shadow_pid(daemon)).items() if "startup" in line)
    os.kill(startup, signal.SIGSTOP)
    try:
        pg.app("COMMIT PREPARED 'shapes'")
        pg.app("ROLLBACK PREPARED 'undone'")
        pg.app("INSERT INTO made VALUES (3, 'after'); INSERT INTO changed VALUES (4, 'e', 10)")
        daemon.wait_status(lambda s: s["waiting_on"] and "shadow" in s["waiting_on"], 30, "names the shadow")
        daemon.kill()
    finally:
        os.kill(startup, signal.SIGCONT)
    os.kill(shadow_pid(daemon), signal.SIGQUIT)
    daemon.start().wait_state("streaming")
    parity.assert_equal(pg, daemon)
    assert daemon.status()["prepared"] == []


@pytest.mark.slow
def test_a_silent_source_is_named(sources, daemons):
    """Bytes stop without a word, as behind a firewall that forgot the connection."""
    pg = sources(15, {"wal_sender_timeout": "4s"})
    pg.app("CREATE TABLE t (id int PRIMARY KEY)")
    with Proxy(pg.port) as proxy:
        url = f"postgresql://walshadow:secret@127.0.0.1:{proxy.port}/app"
        daemon = daemons(pg, "null:", config={**FAST, "source": {"conninfo": url}}).start()
        daemon.wait_state("streaming")
        proxy.stall()
        pg.app("INSERT INTO t VALUES (1)")
        try:
            daemon.wait_status(lambda s: (s["waiting_on"] or "").startswith("source"), 60, "names the source")
        finally:
            proxy.resume()
        daemon.wait_caught_up()
        assert daemon.table("public.t")["rows"] == 1
