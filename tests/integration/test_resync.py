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
