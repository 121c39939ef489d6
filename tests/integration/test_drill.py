"""kill -9 again and again, at every instant that orders durability and at random ones, with writers
running; after each kill a restart, and equality, value by value.

Seeds are printed and taken from WALSHADOW_TEST_SEED.
"""

import os
import random
import re
import signal
import time

import pytest

from lib import parity, paths, workload
from test_resync import settle

CYCLES = {"ci": 4, "full": 16}  # a major
REACH_SECONDS = 120  # a point that is not passed in this time is one that the workload does not know

# Points that only a load passes; test_dies_while_loading has them.
LOAD_POINTS = ("load-started", "load-rows-durable", "load-before-complete")
# Passed only by a load that leaves rows waiting; test_dies_with_waiting_rows has it.
WAITING_POINTS = ("load-before-waiting",)
# Passed only with a shadow that accepts no connections; test_unseen.py has them.
UNSEEN_POINTS = ("unseen-before-pass", "unseen-passed", "unseen-before-look", "unseen-seen")
# Passed only with toast.mode = "clickhouse", which the drill does not set.
STORE_POINTS = ("toast-before-insert", "toast-after-insert")
# Passed only by a reload that gives a target another name; test_reload.py has it.
RELOAD_POINTS = ("reload-renamed",)
# Passed on the way out.
STOP_POINTS = ("stop-before-drain", "stop-after-drain")
# Instants that are no line of code.
RANDOM_KILLS = ("random", "mid-segment", "mid-transaction")


def fault_names():
    """The fault points in the sources: each one is a place to die."""
    names = set()
    for folder, _, files in os.walk(paths.ROOT / "src"):
        for name in files:
            if name.endswith(".c"):
                with open(os.path.join(folder, name)) as f:
                    names.update(re.findall(r'FAULT_POINT\("([a-z0-9-]+)"\)', f.read()))
    return sorted(names)


SEED = int(os.environ.get("WALSHADOW_TEST_SEED") or random.SystemRandom().randrange(1 << 32))


def plan_of(major, cycles):
    """What to die of: over the majors and cycles each kind comes about equally often."""
    elsewhere = LOAD_POINTS + WAITING_POINTS + UNSEEN_POINTS + STORE_POINTS + RELOAD_POINTS
    kinds = [*(p for p in fault_names() if p not in elsewhere), *RANDOM_KILLS]
    random.Random(SEED).shuffle(kinds)
    first = paths.MAJORS.index(major) * cycles
    return [kinds[(first + i) % len(kinds)] for i in range(cycles)]


class Drill:
    """One source and one daemon that dies and comes back."""

    def __init__(self, source, daemon, rng):
        self.source = source
        self.daemon = daemon
        self.rng = rng
        self.fault_file = os.path.join(daemon.base, "fault")
        self.kills = {}
        self.round = 0
        self.open = None  # a session in a transaction that spans kills

    def start(self):
        self.arm("")
        self.daemon.start(env={"WALSHADOW_TEST_FAULT": "@" + self.fault_file})
        self.daemon.wait_state("streaming")

    def arm(self, text):
        with open(self.fault_file + ".new", "w") as f:
            f.write(text)
        os.chmod(self.fault_file + ".new", 0o644)
        os.rename(self.fault_file + ".new", self.fault_file)

    def provoke(self, point=""):
        """What the writers alone do not reach: shape changes, a spill, sealed and removed segments,
        values out of line that outlive their transaction, a table copied again, its chunks too where
        they were not followed."""
        self.round += 1
        n = self.round
        self.source.app(
            f"CREATE TABLE made{n} (id int PRIMARY KEY); INSERT INTO made{n} VALUES (1);"
            f"ALTER TABLE made{n} ADD c int DEFAULT 7; INSERT INTO made{n} VALUES (2, 2);"
            f"CREATE TABLE bulk{n} AS SELECT i, repeat('x', 100) AS v FROM generate_series(1, 6000) i;"
            f"DROP TABLE IF EXISTS bulk{n - 3 if n > 3 else 0}, made{n - 3 if n > 3 else 0};"
            f"INSERT INTO documents SELECT -{n}, string_agg(md5(random()::text), '') "
            "FROM generate_series(1, 300);"
            "UPDATE documents SET id = id - 10000 WHERE id BETWEEN -3000 AND -1;"
            "SELECT pg_switch_wal()")
        if point.startswith(("alter-", "rename-")):
            self.source.app(f"ALTER TABLE made{n} DROP c")
            self.source.app(f"ALTER TABLE made{n} RENAME TO named{n}")
            self.source.app(f"ALTER TABLE named{n} RENAME TO made{n}")
        if point.startswith("generation-"):
            self.source.app(f"ALTER TABLE made{n} ALTER c TYPE bigint")
        if point == "resync-seeded":
            toast = self.source.app("SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = 'documents'")
            self.source.app(f"VACUUM FULL {toast[0][0]}")
        elif point.startswith("resync-"):
            self.daemon.verb("resync", "--no-wait", "public.keyless", check=False)

    def die_at_point(self, point):
        often = point.startswith(("insert-", "slice-", "reorder-", "spill-"))
        self.arm(f"{point}:{self.rng.randrange(1, 20) if often else 1}")
        deadline = time.monotonic() + REACH_SECONDS
        while self.daemon.running() and time.monotonic() < deadline:
            self.provoke(point)
            time.sleep(0.3)
        assert not self.daemon.running(), f"nothing passes the fault point {point}"
        assert self.daemon.process.returncode == -9, self.daemon.log_text()[-3000:]

    def die_while_stopping(self, point):
        self.arm(point)
        self.daemon.process.send_signal(signal.SIGTERM)
        self.daemon.process.wait(60)
        assert self.daemon.process.returncode == -9, self.daemon.log_text()[-3000:]

    def die_at_random(self, kind):
        if kind == "mid-transaction":
            self.begin()
        elif kind == "mid-segment":
            self.source.sql("SELECT pg_switch_wal()")
        else:
            self.provoke()
        time.sleep(self.rng.uniform(0.05, 1.5))
        self.daemon.kill()

    def begin(self):
        """A transaction with spilled rows that stays open over the kill; the one before it ends."""
        self.end()
        self.open = self.source.connect(autocommit=False)
        with self.open.cursor() as cursor:
            cursor.execute("SAVEPOINT a; INSERT INTO keyless SELECT i, 'gone' FROM generate_series(1, 500) i;"
                           "ROLLBACK TO a; INSERT INTO keyless SELECT i, repeat('open', 20) "
                           "FROM generate_series(1, 5000) i")

    def end(self):
        if self.open is not None:
            self.open.commit() if self.rng.random() < 0.7 else self.open.rollback()
            self.open.close()
            self.open = None

    def cycle(self, kind, writers):
        bench = self.source.pgbench(clients=2, rate=200)
        for writer in writers:
            writer.start()
        time.sleep(self.rng.uniform(0.2, 0.8))
        if kind in RANDOM_KILLS:
            self.die_at_random(kind)
        elif kind in STOP_POINTS:
            self.die_while_stopping(kind)
        else:
            self.die_at_point(kind)
        self.start()
        for writer in writers:
            writer.stop()
        bench.stop()
        if kind != "mid-transaction":
            self.end()
        self.daemon.wait_caught_up()
        settle(self.daemon)
        parity.assert_equal(self.source, self.daemon)
        self.kills[kind] = self.kills.get(kind, 0) + 1
        print(f"killed: {kind}", flush=True)


@pytest.mark.fault_points
@pytest.mark.majors
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("major", paths.MAJORS)
def test_kill_drill(sources, daemons, major, full):
    print(f"WALSHADOW_TEST_SEED={SEED}")
    rng = random.Random(f"{SEED} {major}")
    source = sources(major)
    workload.create(source)
    source.pgbench_init(1)
    source.app("DELETE FROM pgbench_accounts WHERE aid > 3000")  # compared after every kill
    daemon = daemons(source, binary=paths.DEBUG_BIN,
                     config={"memory": {"xact_buffer_max": "256KiB"},
                             "ops": {"status_interval": "500ms", "retention_bytes": "1MiB"}})
    drill = Drill(source, daemon, rng)
    drill.start()
    cycles = CYCLES["full" if full else "ci"]
    for n, kind in enumerate(plan_of(major, cycles)):
        writers = [workload.Mixer(source, seed=rng.randrange(1 << 30), lane=lane, first=n * 500000,
                                  multixacts=True) for lane in range(2)]
        drill.cycle(kind, writers)
    drill.end()
    daemon.wait_caught_up()
    settle(daemon)
    parity.assert_equal(source, daemon)
    assert sum(drill.kills.values()) == cycles


@pytest.mark.fault_points
@pytest.mark.timeout(1200)
def test_dies_while_loading(source, daemons, full):
    """The points of a load: what it began is discarded or found complete, and the end is equal."""
    workload.create(source)
    source.pgbench_init(1)
    daemon = daemons(source, binary=paths.DEBUG_BIN)
    for n, point in enumerate(LOAD_POINTS if full else LOAD_POINTS[-1:]):
        writer = workload.Mixer(source, seed=n, first=n * 500000, big_values=False)
        writer.start()
        daemon.start(env={"WALSHADOW_TEST_FAULT": point})
        assert daemon.wait_exit(120) == -9, daemon.log_text()[-3000:]
        if n + 1 < len(LOAD_POINTS) and full:  # the next one dies in the load that begins again
            writer.stop()
            continue
        daemon.start().wait_state("streaming")
        writer.stop()
        parity.assert_equal(source, daemon)


@pytest.mark.fault_points
def test_dies_with_waiting_rows(source, daemons):
    """The rows that wait for an older transaction are in their file, the manifest does not say so yet."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 500) i")
    session = source.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("UPDATE t SET v = 'open' WHERE id % 2 = 0; DELETE FROM t WHERE id % 5 = 0;"
                       "INSERT INTO t VALUES (1000, 'open')")
    source.app("CHECKPOINT")
    daemon = daemons(source, binary=paths.DEBUG_BIN)
    daemon.start(env={"WALSHADOW_TEST_FAULT": WAITING_POINTS[0]})
    assert daemon.wait_exit(120) == -9, daemon.log_text()[-3000:]
    daemon.start().wait_state("streaming")
    parity.assert_equal(source, daemon)
    daemon.kill()
    daemon.start().wait_state("streaming")
    session.commit()
    parity.assert_equal(source, daemon)
    assert daemon.log_text().count("load begins") == 2
