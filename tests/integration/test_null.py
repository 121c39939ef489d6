"""The whole path up to the blocks, into `null:`; small enough for the sanitizer builds, which end the
process at the first finding."""

import time

import pytest

from lib import paths, workload
from lib.daemon import lsn_value
from lib.process import wait_until

pytestmark = pytest.mark.null

PATIENCE = 300 if paths.SANITIZED else 120


def start(pg, daemons, **kwargs):
    daemon = daemons(pg, "null:", **kwargs).start()
    daemon.wait_state("streaming", PATIENCE)
    return daemon


def check(daemon):
    """Everything was acknowledged and nothing was refused."""
    daemon.wait_caught_up(PATIENCE)
    status = daemon.status()
    assert status["destinations"][0]["errors"] == 0, status
    for table in status["tables"]:
        assert table["state"] == "streaming", table
    return status


@pytest.mark.parametrize("major", paths.MAJORS)
def test_load_and_stream(sources, daemons, major):
    pg = sources(major)
    workload.create(pg)
    pg.pgbench_init(1)
    bench = pg.pgbench(clients=2, rate=200)
    writer = workload.Mixer(pg, seed=major)
    writer.start()
    daemon = start(pg, daemons)
    big = workload.Mixer(pg, seed=5, lane=1, big_values=True)
    big.start()
    time.sleep(3)
    writer.stop()
    big.stop()
    bench.stop()
    before = check(daemon)["destinations"][0]["rows"]
    pg.app("INSERT INTO keyless SELECT i, 'n' FROM generate_series(1, 1234) i")
    assert check(daemon)["destinations"][0]["rows"] - before == 1234
    daemon.stop()


def test_restarts(source, daemons):
    """Clean stops and kills; the floor goes on from where it was."""
    workload.create(source)
    daemon = start(source, daemons)
    writer = workload.Mixer(source)
    writer.start()
    floor = 0
    for cycle in range(3):
        time.sleep(1)
        daemon.stop() if cycle % 2 else daemon.kill()
        daemon.start().wait_state("streaming", PATIENCE)
        now = lsn_value(daemon.status()["floor_lsn"])
        assert now >= floor
        floor = now
    writer.stop()
    check(daemon)
    daemon.stop()


def test_tiny_limits(source, daemons):
    workload.create(source)
    config = {"memory": {"resident_payload_max": "4MiB", "inline_value_max": "2MiB",
                         "xact_buffer_max": "256KiB"},
              "destination": {"default": {"row_budget": 100, "byte_budget": "64KiB"}}}
    daemon = start(source, daemons, config=config)
    writer = workload.Mixer(source, rounds=60, big_values=True)
    writer.start()
    writer.join(120)
    writer.stop()
    source.app("BEGIN; INSERT INTO keyless SELECT i, repeat('x', 100) FROM generate_series(1, 30000) i;"
               "ROLLBACK")
    source.app("INSERT INTO keyless SELECT i, repeat('x', 100) FROM generate_series(1, 30000) i")
    check(daemon)
    daemon.stop()


def test_source_goes_and_comes(source, daemons):
    workload.create(source)
    daemon = start(source, daemons)
    for mode in ("fast", "immediate"):
        session = source.connect(autocommit=False)
        with session.cursor() as cursor:
            cursor.execute("INSERT INTO keyless SELECT i, 'dead' FROM generate_series(1, 500) i")
        source.restart(mode)
        daemon.wait_state("streaming", PATIENCE)
        source.app("INSERT INTO keyless VALUES (1, 'after')")
        check(daemon)
    wait_until(lambda: daemon.status()["decoder"]["open_xacts"] == 0, 60, "dead transactions let go")
    daemon.stop()


def test_stop_during_load(source, daemons):
    """SIGTERM in the middle of a load ends cleanly and quickly."""
    source.pgbench_init(5)
    daemon = daemons(source, "null:").start()
    daemon.wait_status(lambda s: s["state"] == "bootstrapping", PATIENCE, "load begins")
    daemon.stop()
    daemon.start().wait_state("streaming", PATIENCE)
    check(daemon)
    daemon.stop()


@pytest.mark.slow
def test_memory_of_a_2_gb_transaction(source, daemons):
    """The daemon stays under 300 MB."""
    if paths.SANITIZED:
        pytest.skip("a sanitizer's memory is not the daemon's")
    source.app("CREATE TABLE t (id int, v text)")
    daemon = start(source, daemons, config={"memory": {
        "resident_payload_max": "128MiB", "inline_value_max": "16MiB"}})
    source.app("INSERT INTO t SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 2000000) i")
    daemon.wait_caught_up(600)
    peak = daemon.peak_rss_bytes()
    assert peak < 300 * 1000 * 1000, f"{peak / 1e6:.0f} MB"
