"""partitions = "leaf": each partition has a target of its own, which its rows come and go with."""

import pytest

from lib import parity, paths
from test_resync import settle

LEAF = {"table": {"public": {"events": {"partitions": "leaf"}, "log": {"partitions": "leaf"}}}}


def create(source):
    source.app("CREATE TABLE events (id int, day int, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);"
               "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10);"
               "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);"
               "CREATE TABLE events_2a PARTITION OF events_2 FOR VALUES IN (1, 2, 3);"
               "CREATE TABLE events_2b PARTITION OF events_2 DEFAULT;"
               "CREATE TABLE log (n int, v text) PARTITION BY HASH (n);"
               "CREATE TABLE log_0 PARTITION OF log FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
               "CREATE TABLE log_1 PARTITION OF log FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
               "CREATE TABLE whole (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
               "CREATE TABLE whole_1 PARTITION OF whole FOR VALUES FROM (0) TO (100);"
               "INSERT INTO events SELECT i % 7, i % 20, repeat('v', i * 50) FROM generate_series(1, 140) i ON CONFLICT DO NOTHING;"
               "INSERT INTO log SELECT i, 'l' || i FROM generate_series(1, 100) i; INSERT INTO log SELECT * FROM log WHERE n < 5;"
               "INSERT INTO whole SELECT i, i FROM generate_series(1, 50) i")


LEAVES = ("events_1", "events_2a", "events_2b", "log_0", "log_1")


def assert_leaves(source, daemon, leaves):
    """Value by value, each leaf by itself; and no other table is there."""
    daemon.wait_caught_up()
    settle(daemon)
    compared = parity.assert_equal(source, daemon, split=("events", "log"))
    assert {d.table.name for d in compared} == {*leaves, "whole"}
    found = {r[0] for r in daemon.sql("SELECT name FROM system.tables WHERE database = 'app'")}
    assert found - {"walshadow_rejects"} == {*leaves, "whole"}


@pytest.mark.parametrize("major", [15, *(pytest.param(m, marks=pytest.mark.slow) for m in paths.MAJORS[1:])])
def test_leaves(sources, daemons, major):
    source = sources(major)
    create(source)
    daemon = daemons(source, config=LEAF).start()
    daemon.wait_state("streaming")
    source.app("UPDATE events SET day = (day + 7) % 20, id = id + 100, v = v || 'moved' WHERE id % 3 = 1; DELETE FROM events WHERE id = 5;"
               "INSERT INTO log SELECT i, 'again' FROM generate_series(50, 150) i; UPDATE whole SET v = 'w' WHERE id < 9")
    assert_leaves(source, daemon, LEAVES)
    source.app("ALTER TABLE events ADD COLUMN n int DEFAULT 7; UPDATE events SET n = 8 WHERE id = 2;"
               "BEGIN; INSERT INTO events VALUES (70, 3, 'x'); ALTER TABLE events ALTER n TYPE bigint; COMMIT;"
               "TRUNCATE log_0; INSERT INTO log VALUES (1000, 'after'), (1001, 'after')")
    assert_leaves(source, daemon, LEAVES)
    # nothing is copied for any of it, nor for partitions that come and go
    source.app("CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM (20) TO (30); INSERT INTO events VALUES (1, 25, 'three', 1);"
               "ALTER TABLE events DETACH PARTITION events_1; INSERT INTO events_1 VALUES (900, 4, 'alone', 3);"
               "CREATE TABLE more (v text, id int NOT NULL, day int NOT NULL, n bigint, PRIMARY KEY (id, day));"
               "INSERT INTO more VALUES ('m', 1, 31, 4); ALTER TABLE events ATTACH PARTITION more FOR VALUES FROM (30) TO (40);"
               "INSERT INTO events VALUES (2, 32, 'to more', 5); TRUNCATE events_2; INSERT INTO events VALUES (3, 11, 'back', 1)")
    leaves = (*LEAVES, "events_3", "more")
    assert_leaves(source, daemon, leaves)
    copied = [line for line in daemon.log_text().split("\n") if "table is copied again" in line]
    assert not copied, copied
    daemon.kill()
    source.app("UPDATE events SET v = 'later' WHERE id < 3; INSERT INTO log VALUES (2000, 'later')")
    daemon.start().wait_state("streaming")
    daemon.verb("resync", "events_3")
    assert_leaves(source, daemon, leaves)
    assert daemon.verb("verify", timeout=120, check=False).returncode == 0
    states = {t["name"]: t["state"] for t in daemon.status()["tables"]}
    assert states["public.events"] == states["public.log"] == "skipped"


def test_cannot_be_changed(source, daemons):
    """What is in the targets was divided by the old value: another one is refused by name."""
    create(source)
    daemon = daemons(source, config=LEAF).start()
    daemon.wait_state("streaming")
    daemon.stop()
    daemon.config["table"] = {"public": {"events": {"partitions": "leaf"}, "none_yet": {"partitions": "leaf"}}}
    assert daemon.start().wait_exit() != 0
    assert "[table.public.log] partitions" in daemon.log_text() and 'it was \\"leaf\\"' in daemon.log_text()
    daemon.config["table"]["public"] = {t: {"partitions": "leaf"} for t in ("events", "log", "whole")}
    assert daemon.start().wait_exit() != 0
    assert "[table.public.whole] partitions" in daemon.log_text()
    daemon.config["table"]["public"] = {t: {"partitions": "leaf"} for t in ("events", "log", "none_yet")}
    daemon.start().wait_state("streaming")
    source.app("INSERT INTO events VALUES (800, 4, 'x')")
    assert_leaves(source, daemon, LEAVES)
