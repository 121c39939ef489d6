"""The configuration read again while the daemon runs: `walshadow reload` and SIGHUP."""

import os
import signal

import pytest

from lib import paths
from lib.background import Background
from lib.daemon import toml_text
from lib.process import wait_until


class Writer(Background):
    """Inserts, updates and deletes in every table, until it is stopped."""

    def __init__(self, source, tables):
        super().__init__()
        self.source, self.tables = source, tables

    def work(self):
        n = 100000
        while self.going:
            n += 10
            self.source.app("".join(
                f"BEGIN; INSERT INTO {t} SELECT i, 'w' || i, i FROM generate_series({n}, {n} + 9) i; "
                f"UPDATE {t} SET v = v || '.' WHERE id % 97 = {n} % 97; "
                f"DELETE FROM {t} WHERE id = {n}; COMMIT;" for t in self.tables))


def write_config(daemon, text=None):
    with open(daemon.config_path, "w") as f:
        f.write(toml_text(daemon.config) if text is None else text)


def reload(daemon, text=None):
    write_config(daemon, text)
    done = daemon.verb("reload", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(daemon, text=None):
    """Its message; nothing has changed."""
    before = [(t["name"], t["state"], t["target"]) for t in daemon.status()["tables"]]
    write_config(daemon, text)
    done = daemon.verb("reload", check=False)
    assert done.returncode == 1, done.stdout
    after = [(t["name"], t["state"], t["target"]) for t in daemon.status()["tables"]]
    assert before == after
    assert "configuration not reloaded" in daemon.log_text()
    return done.stderr


def rows(source, table):
    return sorted([str(v) for v in row] for row in source.app(f"SELECT id, v, n FROM {table}"))


def assert_rows(source, daemon, table, target, columns="id, v, n"):
    daemon.wait_caught_up()
    got = sorted(daemon.sql(f"SELECT {columns} FROM {target}"))
    want = rows(source, table)
    assert len(want) > 0
    assert got == want, (len(got), len(want))


def targets(daemon):
    return {name for (name,) in daemon.sql(
        "SELECT concat(database, '.', name) FROM system.tables WHERE comment LIKE 'walshadow %/%/%'",
        "--raw")}


def tables_of(daemon):
    return daemon.config.setdefault("table", {}).setdefault("public", {})


@pytest.fixture
def running(source, daemons):
    for t in "abc":
        source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, v text, n int NOT NULL)")
        source.app(f"INSERT INTO {t} SELECT i, '{t}' || i, i FROM generate_series(1, 3000) i")
    daemon = daemons(source, config={"source": {"tables": "listed"},
                                     "table": {"public": {"a": {"replicate": True},
                                                          "b": {"replicate": True}}}})
    daemon.start()
    daemon.wait_state("streaming")
    return source, daemon


def test_reload_under_writers(running):
    """Tables come, go and are named, typed and chosen otherwise while they are written."""
    source, daemon = running
    tables = tables_of(daemon)
    with Writer(source, "abc"):
        # c comes, b goes, a has another name
        del tables["b"]
        tables["c"] = {"replicate": True}
        tables["a"] = {"target_table": "renamed"}
        assert "3" in reload(daemon)
        assert daemon.table("public.b")["state"] == "skipped"
        daemon.wait_table("public.c")
        daemon.wait_caught_up()
        left = daemon.sql("SELECT count(), max(_lsn) FROM app.b")
        # names change hands; a column has another name and type, one is left out
        tables["a"] = {"target_table": "c"}
        tables["c"] = {"target_table": "renamed"}
        reload(daemon)
        tables["a"] = {"target_table": "c", "columns": [{"attnum": 3, "type": "Int64"},
                                                        {"attnum": 1, "target": "key"},
                                                        {"attnum": 2}]}
        reload(daemon)
        daemon.wait_table("public.a")
    assert_rows(source, daemon, "a", "app.c", "key, v, n")
    assert_rows(source, daemon, "c", "app.renamed")
    assert daemon.sql("SELECT count(), max(_lsn) FROM app.b") == left
    assert [r[:2] for r in daemon.sql("DESCRIBE app.c")[:3]] == [["n", "Int64"], ["key", "Int32"], ["v", "Nullable(String)"]]
    assert targets(daemon) == {"app.b", "app.c", "app.renamed"}
    # b again: with what it missed
    tables["b"] = {"replicate": True}
    write_config(daemon)
    os.kill(daemon.process.pid, signal.SIGHUP)
    daemon.wait_table("public.b")
    assert_rows(source, daemon, "b", "app.b")
    # a restart goes on with the same
    daemon.kill()
    daemon.start()
    daemon.wait_state("streaming")
    source.app("".join(f"INSERT INTO {t} VALUES (-1, 'after', 0);" for t in "abc"))
    assert_rows(source, daemon, "a", "app.c", "key, v, n")
    assert_rows(source, daemon, "b", "app.b")
    assert_rows(source, daemon, "c", "app.renamed")


def test_reload_gone_for_a_time(running):
    """What is committed while a table is not selected is there once it is, also over a restart."""
    source, daemon = running
    tables = tables_of(daemon)
    del tables["b"]
    reload(daemon)
    source.app("UPDATE b SET v = 'missed' WHERE id < 100; DELETE FROM b WHERE id > 2900")
    daemon.wait_caught_up()
    daemon.stop()
    tables["b"] = {"replicate": True}
    daemon.start()
    daemon.wait_state("streaming")
    daemon.wait_table("public.b")
    assert_rows(source, daemon, "b", "app.b")


@pytest.mark.fault_points
@pytest.mark.parametrize("point", ["rename-before", pytest.param("rename-after", marks=pytest.mark.slow),
                                   pytest.param("reload-renamed", marks=pytest.mark.slow)])
def test_reload_killed(source, daemons, point):
    """A kill on the way to a renamed target: the next start has it whole, once, and names may change
    hands in it."""
    for t in "ab":
        source.app(f"CREATE TABLE {t} (id int PRIMARY KEY, v text, n int NOT NULL)")
        source.app(f"INSERT INTO {t} SELECT i, '{t}' || i, i FROM generate_series(1, 3000) i")
    daemon = daemons(source, binary=paths.DEBUG_BIN).start(env={"WALSHADOW_TEST_FAULT": point})
    daemon.wait_state("streaming")
    tables_of(daemon)["a"] = {"target_table": "b"}
    tables_of(daemon)["b"] = {"target_table": "renamed"}
    write_config(daemon)
    assert daemon.verb("reload", check=False).returncode == 1
    assert daemon.wait_exit() == -signal.SIGKILL
    source.app("UPDATE a SET v = 'later' WHERE id < 100; DELETE FROM b WHERE id < 10")
    daemon.start().wait_state("streaming")
    wait_until(lambda: targets(daemon) == {"app.b", "app.renamed"}, 60,
               lambda: f"{targets(daemon)} {daemon.status()}")
    for t in "ab":
        daemon.wait_table(f"public.{t}")
    assert_rows(source, daemon, "a", "app.b")
    assert_rows(source, daemon, "b", "app.renamed")
    daemon.stop()
    daemon.start().wait_state("streaming")
    source.app("INSERT INTO a VALUES (-1, 'after', 0); INSERT INTO b VALUES (-1, 'after', 0)")
    assert_rows(source, daemon, "a", "app.b")
    assert_rows(source, daemon, "b", "app.renamed")
    assert targets(daemon) == {"app.b", "app.renamed"}


def test_restart_with_other_names(running):
    """Other names in the file at a start do what a reload does: nothing is copied, names may change
    hands; also where a table was renamed at the source meanwhile."""
    source, daemon = running
    tables = tables_of(daemon)
    daemon.stop()
    source.app("UPDATE a SET v = 'meanwhile' WHERE id < 100; ALTER TABLE c RENAME TO d; INSERT INTO a VALUES (-1, 'x', 0)")
    tables["a"], tables["b"] = {"target_table": "b"}, {"target_table": "a"}
    daemon.start()
    daemon.wait_state("streaming")
    source.app("DELETE FROM b WHERE id < 50")
    wait_until(lambda: daemon.table("public.a")["target"] == "app.b", 60, lambda: str(daemon.status()))
    assert_rows(source, daemon, "a", "app.b")
    assert_rows(source, daemon, "b", "app.a")
    daemon.kill()
    tables["a"], tables["b"] = {"target_table": "one"}, {"replicate": True}
    daemon.start()
    daemon.wait_state("streaming")
    wait_until(lambda: targets(daemon) == {"app.one", "app.b"}, 60, lambda: f"{targets(daemon)} {daemon.status()}")
    source.app("UPDATE a SET n = 7 WHERE id = 200; UPDATE b SET n = 7 WHERE id = 200")
    assert_rows(source, daemon, "a", "app.one")
    assert_rows(source, daemon, "b", "app.b")
    assert "table is copied again" not in daemon.log_text()


def test_reload_refused(running):
    """A bad file, a key of the start, a name that is taken: said by name, nothing changes."""
    source, daemon = running
    good = toml_text(daemon.config)
    tables = tables_of(daemon)
    assert "walshadow.toml" in refused(daemon, good + "\n[table.public.c\n")
    assert "nonsense" in refused(daemon, good + "\n[table.public.c]\nnonsense = 1\n")
    tables["c"] = {"replicate": True}
    daemon.config["source"]["slot"] = "another"
    assert "source.slot" in refused(daemon)
    del daemon.config["source"]["slot"]
    tables["a"] = {"target_table": "c"}
    assert "the same target" in refused(daemon)
    tables["a"] = {"columns": [{"attnum": 3, "type": "NoType"}]}
    assert "public.a" in refused(daemon)
    tables["a"] = {"replicate": True}
    del tables["c"]
    assert "changed: 0" in reload(daemon)
    source.app("INSERT INTO a VALUES (-1, 'after', 0)")
    assert_rows(source, daemon, "a", "app.a")
    # a hang-up with a bad file is in the log, and the daemon goes on
    seen = daemon.log_text().count("configuration not reloaded")
    write_config(daemon, "[")
    os.kill(daemon.process.pid, signal.SIGHUP)
    wait_until(lambda: daemon.log_text().count("configuration not reloaded") > seen, 20, "SIGHUP")
    source.app("INSERT INTO a VALUES (-2, 'after', 0)")
    assert_rows(source, daemon, "a", "app.a")
