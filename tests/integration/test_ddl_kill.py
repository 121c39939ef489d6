"""kill -9 at every instant of every kind of shape change: what comes again ends in the same tables."""

import os
import random

import pytest

from lib import parity, paths
from lib.process import wait_until
from test_resync import settle

SEED = int(os.environ.get("WALSHADOW_TEST_SEED") or random.SystemRandom().randrange(1 << 32))

# {t}: a table (id int PRIMARY KEY, v text, n int NOT NULL) with rows; it ends as {now}, or is gone.
CHANGES = {
    "add_default": ("ALTER TABLE {t} ADD COLUMN w int NOT NULL DEFAULT 7, ADD COLUMN x text DEFAULT 'x'", "{t}"),
    "drop_column": ("ALTER TABLE {t} DROP COLUMN v", "{t}"),
    "rename_column": ("ALTER TABLE {t} RENAME COLUMN v TO z", "{t}"),
    "rename_table": ("ALTER TABLE {t} RENAME TO {t}_new", "{t}_new"),
    "drop_table": ("DROP TABLE {t}", None),
    "drop_and_make": ("DROP TABLE {t}; CREATE TABLE {t} (n int NOT NULL, id bigint PRIMARY KEY)", "{t}"),
    "truncate": ("TRUNCATE {t}", "{t}"),
    "retype": ("ALTER TABLE {t} ALTER v TYPE int USING length(v)", "{t}"),
    "key": ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (n, id)", "{t}"),
}
# In the order in which a change meets them, and how many passes are tried at most: of those that come at
# any time, too.
POINTS = {
    "boundary-before-capture": 2, "catalog-log-before-sync": 2, "slice-dispatched": 2, "insert-before-ack": 2,
    "insert-after-ack": 2, "manifest-before-save": 3, "file-before-rename": 2, "file-after-rename": 2,
    "manifest-after-save": 3, "statement-before": 6, "statement-after": 6, "alter-before": 6, "alter-after": 6,
    "rename-before": 4, "rename-after": 4, "reorder-after-commit": 3, "resync-before-open": 2, "resync-copying": 2,
    "resync-copied": 2, "resync-exchanged": 2, "resync-done": 2, "generation-sent": 2, "generation-exchanged": 2,
}
# What each must have passed, else the matrix has a hole.
PASSED = {
    "add_default": ("alter-before", "alter-after"),
    "drop_column": ("alter-before", "alter-after"),
    "rename_column": ("alter-before", "alter-after"),
    "rename_table": ("rename-before", "rename-after"),
    "drop_table": ("statement-before", "statement-after"),
    "drop_and_make": ("statement-before", "statement-after"),
    "truncate": ("statement-before", "statement-after"),
    "retype": ("generation-sent", "resync-exchanged", "generation-exchanged"),
    "key": ("resync-before-open", "resync-copying", "resync-exchanged", "resync-done"),
}
EVERY = ("boundary-before-capture", "catalog-log-before-sync", "manifest-before-save", "manifest-after-save",
         "reorder-after-commit")


class Matrix:
    def __init__(self, source, daemon, rng):
        self.source, self.daemon, self.rng = source, daemon, rng
        self.fault = os.path.join(daemon.base, "fault")
        self.rounds = 0
        self.reached = set()
        daemon.env = {"WALSHADOW_TEST_FAULT": "@" + self.fault}
        daemon.start().wait_state("streaming")

    def change(self, t, name):
        """Rows of before, in and after the change, all of it in one transaction or each by itself."""
        change, now = CHANGES[name]
        now = now and now.format(t=t)
        begin, end = self.rng.choice([("BEGIN;", "COMMIT;"), ("", "")])
        after = (f"INSERT INTO {now} (id, n) VALUES (100, 1); UPDATE {now} SET n = n + 10 WHERE id % 3 = 0;{end}"
                 f"INSERT INTO {now} (id, n) VALUES (101, 2); DELETE FROM {now} WHERE id = 5;") if now else end
        self.source.app(f"UPDATE {t} SET n = n + 1 WHERE id % 2 = 0; {begin} DELETE FROM {t} WHERE id % 9 = 0;"
                        f"UPDATE {t} SET id = id + 1000 WHERE id = 7; {change.format(t=t)}; {after}"
                        "INSERT INTO other (n) VALUES (1)")
        return now

    def arm(self, point):
        with open(self.fault + ".new", "w") as f:
            f.write(point)
        os.chmod(self.fault + ".new", 0o644)
        os.rename(self.fault + ".new", self.fault)

    def round(self, name, point, n):
        """Returns whether the n-th pass of the point came."""
        self.rounds += 1
        t = f"k{self.rounds}"
        self.source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, v text, n int NOT NULL);"
                        f"INSERT INTO {t} SELECT i, 'v' || i, i FROM generate_series(1, 50) i")
        self.daemon.wait_caught_up()
        self.arm(f"{point}:{n}")
        now = self.change(t, name)
        wait_until(lambda: not self.daemon.running() or self.is_done(), 60, f"{name} {point}:{n}: the kill, or its end")
        killed = not self.daemon.running()
        self.arm("")
        if killed:
            assert self.daemon.process.returncode == -9, self.daemon.log_text()[-3000:]
        else:
            self.daemon.kill()  # passes are counted from a start on
        self.daemon.start().wait_state("streaming")
        try:
            self.compare(t, now)
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}, {name} killed at {point}:{n}: {error}") from None
        if now:
            self.source.app(f"DROP TABLE {now}")
        if killed:
            self.reached.add(point)
        return killed

    def is_done(self):
        """Everything is at the destination, and nothing is copied."""
        if self.daemon.verb("wait", "--timeout", "1", check=False).returncode != 0:
            return False
        status = self.daemon.status()
        return status is not None and all(t["state"] != "resyncing" for t in status["tables"])

    def compare(self, t, now):
        self.daemon.wait_caught_up()
        settle(self.daemon)
        parity.assert_equal(self.source, self.daemon)
        found = {r[0] for r in self.daemon.sql("SELECT name FROM system.tables WHERE database = 'app'")}
        assert found == {"other", "walshadow_rejects"} | ({now} if now else set()), (t, found)


@pytest.fixture
def matrix(source, daemons):
    print(f"WALSHADOW_TEST_SEED={SEED}")
    source.app("CREATE TABLE other (id serial PRIMARY KEY, n int)")
    config = {"destination": {"default": {"drop_table_strategy": "drop"}}, "ops": {"status_interval": "500ms"}}
    return Matrix(source, daemons(source, binary=paths.DEBUG_BIN, config=config), random.Random(SEED))


@pytest.mark.fault_points
def test_some(matrix):
    for name, point, n in (("drop_and_make", "statement-after", 1), ("truncate", "statement-after", 1),
                           ("retype", "generation-exchanged", 1), ("key", "resync-exchanged", 1)):
        assert matrix.round(name, point, n), (name, point)


@pytest.mark.slow
@pytest.mark.fault_points
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CHANGES)
def test_every_point(matrix, name):
    for point, most in POINTS.items():
        n = 1
        while n <= most and matrix.round(name, point, n):
            n += 1
    missed = set(EVERY + PASSED[name]) - matrix.reached
    print(f"{name}: {matrix.rounds} rounds, killed at {sorted(matrix.reached)}")
    assert not missed, missed
