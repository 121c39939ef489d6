"""Shapes that change while the shadow accepts no connections, because a transaction with more than 64
subtransactions was open when it started: the stream goes on, and what changed is copied again."""

import os
import random

import pytest

from lib import paths
from lib.daemon import lsn_value
from lib.process import wait_until
from test_resync import assert_equal

SEED = int(os.environ.get("WALSHADOW_TEST_SEED") or random.SystemRandom().randrange(1 << 32))

SCHEMA = """
CREATE TABLE steady (id int PRIMARY KEY, v text);
CREATE TABLE changed (id int PRIMARY KEY, a int, b text);
CREATE TABLE renamed (id int PRIMARY KEY, v text);
CREATE TABLE doomed (id int PRIMARY KEY, v text);
CREATE TABLE keyless (a int, b text);
CREATE TABLE wide (id int PRIMARY KEY, n int, body text);
ALTER TABLE wide ALTER body SET STORAGE EXTERNAL;
CREATE TABLE emptied (id int PRIMARY KEY, v text, n int DEFAULT 0);
CREATE TABLE parts (id int, region int, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TYPE mood AS ENUM ('fine', 'bad');
CREATE TABLE moods (id int PRIMARY KEY, m mood);
INSERT INTO changed SELECT i, i, 'b' || i FROM generate_series(1, 500) i;
INSERT INTO renamed SELECT i, 'r' FROM generate_series(1, 50) i;
INSERT INTO doomed SELECT i, repeat('d', 3000) FROM generate_series(1, 50) i;
INSERT INTO keyless SELECT i % 7, 'k' FROM generate_series(1, 300) i;
INSERT INTO wide SELECT i, 0, repeat(md5(i::text), 200) FROM generate_series(1, 60) i;
INSERT INTO emptied SELECT i, 'e' FROM generate_series(1, 50) i;
INSERT INTO parts SELECT i, 1 FROM generate_series(1, 50) i;
INSERT INTO moods VALUES (1, 'fine'), (2, 'bad');
"""

# Each in a transaction of its own, rows before and after it.
CHANGES = """
CREATE TABLE made (id int PRIMARY KEY, v text)
INSERT INTO made SELECT i, repeat('m', i * 40) FROM generate_series(1, 100) i
ALTER TABLE changed ADD c numeric DEFAULT 1.5
INSERT INTO changed VALUES (1001, 1, 'after', 2.25)
ALTER TABLE changed DROP a
UPDATE changed SET b = b || '+' WHERE id % 3 = 0
ALTER TABLE changed ALTER id TYPE bigint
DELETE FROM changed WHERE id % 10 = 1
ALTER TABLE renamed RENAME TO named
INSERT INTO named VALUES (1001, 'by its new name')
CREATE TABLE renamed (id text PRIMARY KEY)
INSERT INTO renamed VALUES ('took the name')
DROP TABLE doomed
DELETE FROM keyless WHERE a = 3
VACUUM FULL keyless
UPDATE keyless SET b = b || '+' WHERE a = 1
DELETE FROM wide WHERE id % 2 = 0
VACUUM FULL wide
UPDATE wide SET n = n + 1
ALTER TABLE wide ADD more text
ALTER TABLE emptied ALTER v SET STORAGE EXTERNAL
TRUNCATE emptied
INSERT INTO emptied SELECT i, repeat('after the truncate', 500) FROM generate_series(1, 20) i
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)
INSERT INTO parts SELECT i, 2 FROM generate_series(1, 50) i
CREATE SCHEMA one_more; ALTER TYPE mood ADD VALUE 'new'
INSERT INTO moods VALUES (3, 'new')
CREATE SCHEMA elsewhere
CREATE TABLE elsewhere.t (id int PRIMARY KEY)
INSERT INTO elsewhere.t VALUES (1)
CREATE TABLE passing (id int PRIMARY KEY)
DROP TABLE passing
"""


class Closed:
    """A source, a daemon, and a shadow that accepts no connections since the daemon was killed."""

    def __init__(self, pg, daemon, config_env=None):
        self.pg, self.daemon = pg, daemon
        pg.app(SCHEMA)
        daemon.start().wait_state("streaming")
        self.old = pg.connect(autocommit=False)
        with self.old.cursor() as cursor:  # older than anything that follows
            cursor.execute("INSERT INTO steady VALUES (-1, 'old')")
        self.session = pg.connect(autocommit=False)
        with self.session.cursor() as cursor:
            cursor.execute("DO $$ BEGIN FOR i IN 1..120 LOOP BEGIN INSERT INTO steady VALUES (1000 + i, 'sub'); "
                           "EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$")
        pg.sql("CHECKPOINT")
        at = lsn_value(pg.sql("SELECT checkpoint_lsn::text FROM pg_control_checkpoint()")[0][0])
        daemon.wait_status(lambda s: lsn_value(s["shadow"]["replay_lsn"]) > at, 60,
                           "the shadow has the checkpoint, where it will start again")
        daemon.wait_caught_up()
        daemon.kill()
        self.start(config_env)

    def start(self, env=None):
        self.daemon.start(env=env).wait_state("streaming")
        self.daemon.wait_status(lambda s: "64 subtransactions" in (s["waiting_on"] or ""), 30,
                                "says that the shadow is closed")

    def change(self, statements):
        for n, statement in enumerate(statements):
            self.pg.app(statement)
            self.pg.app(f"INSERT INTO steady VALUES ({2000 + n}, 'meanwhile')")

    def flows(self, rows):
        """Other tables are followed all the same."""
        wait_until(lambda: self.daemon.sql("SELECT count() FROM app.steady WHERE v = 'meanwhile'") == [[str(rows)]], 60,
                   lambda: f"the rows beside: {self.daemon.status()}")

    def open(self, commit=True):
        self.session.commit() if commit else self.session.rollback()
        self.session.close()
        self.pg.sql("CHECKPOINT")  # and with it a list of the running transactions
        wait_until(lambda: "accepts connections again" in self.daemon.log_text(), 60,
                   lambda: f"the shadow is asked: {self.daemon.status()}")

    def close(self):
        self.old.commit()
        self.old.close()


@pytest.mark.parametrize("major", (15, pytest.param(18, marks=pytest.mark.slow)))
def test_stream_goes_on(sources, daemons, major):
    source = sources(major)
    daemon = daemons(source, config={"ops": {"status_interval": "300ms"}})
    closed = Closed(source, daemon)
    statements = CHANGES.strip().splitlines()
    half = len(statements) // 2
    closed.change(statements[:half])
    closed.flows(half)
    changed = daemon.table("public.changed")
    assert changed["state"] == "resyncing" and "64 subtransactions" in changed["reason"], changed
    done = daemon.verb("wait", "--timeout", "1", check=False)  # its target has not everything
    assert done.returncode == 2 and "table public.changed is still being copied" in done.stderr, done.stderr
    if major == 18:  # what was passed is known after a restart too, and passed again
        daemon.kill()
        closed.start()
    for n, statement in enumerate(statements[half:], half):
        source.app(statement)
        source.app(f"INSERT INTO steady VALUES ({2000 + n}, 'meanwhile')")
    closed.flows(len(statements))
    # rows that lie before the look and commit behind it
    late = source.connect(autocommit=False)
    with late.cursor() as cursor:
        cursor.execute("INSERT INTO made VALUES (-1, 'late'); UPDATE wide SET n = n + 10 WHERE id < 20;"
                       "INSERT INTO changed VALUES (-1, 'late', 3)")
    closed.open(commit=major == 15)
    source.app("UPDATE emptied SET n = n + 1; UPDATE wide SET n = n + 100 WHERE id > 30; INSERT INTO made VALUES (-2, 'behind')")
    late.commit()
    late.close()
    source.app("UPDATE emptied SET n = n + 1; UPDATE wide SET n = n + 1000; ALTER TABLE made ADD later int DEFAULT 3")
    closed.close()
    assert_equal(source, daemon)
    text = daemon.log_text()
    assert "rows of a file that no table has" not in text, "a false alarm"
    assert {t["name"]: t["state"] for t in daemon.status()["tables"]}["public.doomed"] == "dropped"


# Where the steps of it can be cut short.
POINTS = ("unseen-before-pass", "unseen-passed", "unseen-before-look", "catalog-log-before-sync",
          "unseen-seen")


@pytest.mark.fault_points
@pytest.mark.parametrize("point", [pytest.param(p, marks=[] if p == POINTS[-1] else pytest.mark.slow)
                                   for p in POINTS])
def test_killed_between(sources, daemons, point):
    """kill -9 at each step: passed again or known, seen again or known, the end is equal."""
    print(f"WALSHADOW_TEST_SEED={SEED}")
    source = sources(random.Random(f"{SEED} {point}").choice(paths.MAJORS))
    daemon = daemons(source, binary=paths.DEBUG_BIN, config={"ops": {"status_interval": "300ms"}})
    closed = Closed(source, daemon, {"WALSHADOW_TEST_FAULT": point})
    statements = CHANGES.strip().splitlines()
    while_closed = point in ("unseen-before-pass", "unseen-passed")
    for n, statement in enumerate(statements):
        source.app(statement)
        source.app(f"INSERT INTO steady VALUES ({2000 + n}, 'meanwhile')")
    if not while_closed:
        closed.session.commit()
        source.sql("CHECKPOINT")
    assert daemon.wait_exit(60) == -9, daemon.log_text()[-3000:]
    daemon.start().wait_state("streaming")
    if while_closed:
        closed.open()
    closed.close()
    source.sql("CHECKPOINT")
    wait_until(lambda: daemon.table("elsewhere.t") is not None, 60,
               lambda: f"what was unseen is known: {daemon.status()}")
    assert_equal(source, daemon)
