"""auto_create = false: targets are made by others; walshadow fills those that are there."""

from lib.engine import Engine
from lib.process import wait_until
from test_resync import resync, settle

OFF = {"namespace": {"public": {"auto_create": False}, "s": {"target_database": "app"}}}


def make_target(engine, table):
    """The target that another made: as walshadow would, but for what is his own choice."""
    text = engine.query("SELECT create_table_query FROM system.tables WHERE database = 'app' AND name = 'model'")[0][0]
    text = text[:text.index(" COMMENT ")].replace("app.model", f"app.{table}", 1)
    engine.query(text.replace("SETTINGS ", "SETTINGS max_parts_to_merge_at_once = 50, "))


def has_target(engine, table):
    return engine.query(f"SELECT count() FROM system.tables WHERE database = 'app' AND name = '{table}'")[0][0] == 1


def assert_rows(source, engine, *tables):
    for t in tables:
        expected = [tuple(row) for row in source.app(f"SELECT id, v, n FROM {t} ORDER BY id")]
        assert engine.query(f"SELECT id, v, n FROM app.{t.split('.')[-1]} FINAL WHERE NOT _is_deleted ORDER BY id") == expected, t


def is_missing(daemon, table, state):
    t = daemon.table(f"public.{table}")
    return t["state"] == state and "auto_create is false" in t["reason"] and f"app.{table} does not exist" in t["reason"]


def test_auto_create_off(source, daemons):
    shape = "(id int PRIMARY KEY, v text, n numeric(9, 2))"
    source.app(f"CREATE SCHEMA s; CREATE TABLE s.model {shape}; CREATE TABLE early {shape}; INSERT INTO s.model VALUES (1);"
               "INSERT INTO early SELECT i, 'e' || i, i / 7.0 FROM generate_series(1, 1000) i")
    with Engine() as engine:
        daemon = daemons(source, destination=f"clickhouse://default@127.0.0.1:{engine.port}", config=OFF).start()
        daemon.wait_state("streaming")
        daemon.wait_caught_up()
        assert is_missing(daemon, "early", "skipped") and not has_target(engine, "early")
        daemon.verb("reload")  # nor does what still misses stand in the way of a reload
        assert is_missing(daemon, "early", "skipped") and not has_target(engine, "early")

        # one that is there before its source table, and one made late: copied at the next reload
        make_target(engine, "later")
        make_target(engine, "early")
        source.app(f"CREATE TABLE later {shape}; INSERT INTO later SELECT i, 'l', i FROM generate_series(1, 500) i")
        source.app("UPDATE early SET v = 'again' WHERE id % 3 = 0")
        daemon.verb("reload")
        source.app("UPDATE later SET n = n + 1 WHERE id % 2 = 0; DELETE FROM early WHERE id % 10 = 0")
        daemon.wait_caught_up()
        settle(daemon)
        assert_rows(source, engine, "s.model", "early", "later")
        assert "max_parts_to_merge_at_once = 50" in engine.query(
            "SELECT engine_full FROM system.tables WHERE database = 'app' AND name = 'later'")[0][0]

        # dropped while the daemon is down: said, not made; the others go on
        daemon.stop()
        engine.query("DROP TABLE app.later SYNC")
        source.app("INSERT INTO later VALUES (9001); INSERT INTO early VALUES (9001)")
        daemon.start().wait_state("streaming")
        daemon.wait_table("public.later", "stopped")
        assert is_missing(daemon, "later", "stopped") and not has_target(engine, "later")
        wait_until(lambda: engine.query("SELECT count() FROM app.early WHERE id = 9001")[0][0] == 1, 60, "the other's row")
        assert_rows(source, engine, "s.model", "early")
        make_target(engine, "later")
        resync(daemon, "later")
        daemon.wait_caught_up()
        settle(daemon)
        assert_rows(source, engine, "s.model", "early", "later")
