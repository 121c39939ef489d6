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


def test_resync_under_writers(source, daemons, full):
    """Several at once, every kind of table, a kill in the middle of every fifth round at least."""
    workload.create(source)
    source.pgbench_init(1)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    rng = random.Random(11)
    for turn in range(50 if full else 3):
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
