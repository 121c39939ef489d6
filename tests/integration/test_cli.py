"""What people type: help, usage errors, exit codes, check, wait, sql, verify, remove."""

import json
import re
import time

import pytest

from lib import paths
from lib.daemon import walshadow
from lib.engine import Engine
from lib.process import remove_dir, make_dir

VERBS = ("run check status tables config wait sql verify resync pause resume reload remove engine filter "
         "wal").split()


def usage(*args, **kwargs):
    """Expects exit code 2 and an error on stderr; returns its text."""
    result = walshadow(*args, check=False, **kwargs)
    assert result.returncode == 2, result
    assert result.stdout == ""
    assert result.stderr.strip()
    return result.stderr


@pytest.fixture
def state_dir():
    path = make_dir("ws-cli-")
    yield path
    remove_dir(path)


def test_version_and_help():
    assert re.fullmatch(r"walshadow \d+\.\d+\.\d+\n", walshadow("--version").stdout)
    text = walshadow("--help").stdout
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", text, re.M), verb
    assert "usage" in usage()


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb(verb):
    result = walshadow(verb, "--help")
    text = result.stdout + result.stderr
    assert re.search(r"usage", text, re.I) and verb in text


def test_usage_errors():
    assert "unknown verb" in usage("nosuch")
    assert "--nosuch" in usage("status", "--nosuch")
    assert "unexpected argument" in usage("status", "extra")
    assert "needs a value" in usage("status", "--state-dir")
    assert "takes no value" in usage("status", "--json=1")
    assert "SECTION.KEY=VALUE" in usage("config", "--set", "log.level")
    assert "unknown key" in usage("config", "--set", "log.nosuch=1")
    assert "log.level" in usage("config", "--set", "log.level=loud")
    assert "not an LSN" in usage("wait", "--lsn", "12")
    assert "not a number" in usage("wait", "--timeout", "soon")
    assert "needs" in usage("sql")
    assert "needs" in usage("resync")
    assert "no source" in usage("run")
    assert "not an LSN" in usage("run", "--start-lsn", "x", "postgresql://h/d")
    assert "--max-segments" in usage("run", "--max-segments", "0", "postgresql://h/d")
    assert "/nonexistent" in usage("status", "--config", "/nonexistent")
    assert "not supported" in usage("run", "postgresql://h/d", "--initial-load", "object_store")


def test_configuration_errors_name_key_and_line(state_dir):
    path = f"{state_dir}/w.toml"
    for text, line, says in (
        ("[source]\n\nconinfo = 'x'\n", 3, 'unknown key "source.coninfo"'),
        ("[memory]\nresident_payload_max = 'much'\n", 2, "must be a size"),
        ("[pipeline\n", 1, "]"),
    ):
        with open(path, "w") as f:
            f.write(text)
        assert re.search(rf"{re.escape(path)}:{line}.*{re.escape(says)}", usage("config", "--config", path))


def test_config_shows_origins_and_masks_secrets(state_dir):
    path = f"{state_dir}/w.toml"
    with open(path, "w") as f:
        f.write("[http]\nuser = 'u'\npassword = 'geheim1'\n[pipeline]\ninserter_pool_size = 3\n"
                "[source]\nconninfo = 'host=h password=geheim2 dbname=app'\n")
    text = walshadow("config", "--config", path, "--set", "log.level=debug",
                     env={"WALSHADOW_OPS_STATUS_INTERVAL": "3s"}).stdout
    assert "geheim" not in text
    assert re.search(r"^inserter_pool_size = 3 +# file$", text, re.M)
    assert re.search(r'^level = "debug" +# command line$', text, re.M)
    assert re.search(r'^status_interval = "3s" +# environment$', text, re.M)
    assert re.search(r'^slot = "walshadow_app" +# default$', text, re.M)


@pytest.mark.parametrize("page", ["configuration", "metrics"])
def test_reference_pages_are_current(page):
    text = walshadow("config", "--markdown", page).stdout
    assert text == (paths.ROOT / "docs" / f"{page}.md").read_text(), f"walshadow config --markdown {page}"


def test_without_a_daemon(state_dir):
    for args in (("status",), ("tables",), ("pause",), ("resume",), ("reload",), ("resync", "t"), ("verify",)):
        result = walshadow(*args, "--state-dir", state_dir, check=False)
        assert result.returncode == 1, result
        assert "no walshadow runs" in result.stderr
    started = time.monotonic()
    assert "timeout" in usage("wait", "--state-dir", state_dir, "--timeout", "0.5")
    assert time.monotonic() - started < 5
    result = walshadow("sql", "--state-dir", state_dir, "SELECT 1", check=False)
    assert result.returncode == 1 and "no data" in result.stderr


def test_remove_touches_nothing_foreign(state_dir):
    with open(f"{state_dir}/precious", "w") as f:
        f.write("x")
    result = walshadow("remove", "--state-dir", state_dir, "--keep-slot", check=False)
    assert result.returncode == 1 and "precious" in result.stderr
    assert open(f"{state_dir}/precious").read() == "x"


def findings(pg, *args):
    result = walshadow("check", pg.url(), "--json", "--set", f"shadow.bin_dir={pg.bin}", *args, check=False)
    report = json.loads(result.stdout)
    assert report["ok"] == (result.returncode == 0)
    return report["ok"], {f["code"]: f for f in report["findings"]}


def test_check_of_a_good_source(source):
    source.app("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE nokey (a int);"
               "CREATE UNLOGGED TABLE unl (a int); CREATE MATERIALIZED VIEW mv AS SELECT 1 AS a;"
               "CREATE SEQUENCE seq; CREATE TABLE odd (id int PRIMARY KEY, p aclitem);"
               "CREATE DOMAIN dd AS int; CREATE DOMAIN ddd AS dd; CREATE TABLE dom (id ddd PRIMARY KEY)")
    ok, found = findings(source)
    assert ok, found
    assert "public.unl" in found["unlogged_tables"]["text"]
    assert "public.mv" in found["materialized_views"]["text"]
    assert "public.seq" in found["sequences"]["text"]
    assert "public.nokey" in found["replica_identity"]["text"]
    assert "public.odd" in found["column_type"]["text"] and "aclitem" in found["column_type"]["text"]
    ok, found = findings(source, "--set", "table.public.nosuch.replicate=true",
                         "--set", "table.public.odd.replicate=false")
    assert "configured_table" in found and "column_type" not in found


def test_check_names_every_problem_at_once(sources):
    pg = sources(settings={"wal_level": "replica", "max_replication_slots": "0", "max_wal_senders": "1",
                           "full_page_writes": "off",
                           "synchronous_standby_names": "*", "synchronous_commit": "local"})
    pg.sql("CREATE ROLE poor LOGIN")
    result = walshadow("check", pg.url(user="poor"), "--json", "--set", "shadow.bin_dir=/nonexistent",
                       check=False)
    assert result.returncode == 1
    codes = {f["code"] for f in json.loads(result.stdout)["findings"] if f["severity"] == "error"}
    assert codes >= {"wal_level", "max_replication_slots", "max_wal_senders", "full_page_writes",
                     "synchronous_standby_names", "role_replication", "shadow_bin_dir"}


def test_check_of_an_encoding_and_of_no_server(sources):
    pg = sources()
    pg.create_app("latin", "ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    result = walshadow("check", pg.url("latin"), check=False)
    assert result.returncode == 1 and "LATIN1" in result.stdout
    result = walshadow("check", "postgresql://u:geheim@127.0.0.1:1/x", check=False)
    assert result.returncode == 1 and "source_connection" in result.stdout
    assert "geheim" not in result.stdout + result.stderr


def test_wal_compression_the_shadow_cannot_read(sources):
    pg = sources(settings={"wal_compression": "lz4"})
    ok, found = findings(pg)
    assert ok and "wal_compression" not in found


TABLES = r"""
CREATE TABLE k (id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric(12,3), nn numeric,
  t text, vc varchar(20), bc char(5), by bytea, d date, tm time, tz timetz, ts timestamp, tsz timestamptz,
  ts3 timestamp(3), iv interval, u uuid, j json, c "char", o oid, nm name);
INSERT INTO k SELECT g, g%2=0, g, g::int8*1000000007, g/3.0, g/7.0, g*1.5, g/3.0, 'text '||g||E'\t\\\n''x', 'v'||g,
  'ab', decode(md5(g::text),'hex'), date '2000-01-01'+g, time '00:00:00.123456'+g*interval '1 s',
  timetz '10:00:00+02', timestamp '1999-12-31 23:59:59.999999'+g*interval '1 h',
  timestamptz '2020-01-01 00:00:00+00', timestamp '2020-01-01 00:00:00.123', g*interval '1 day 2 hours',
  md5(g::text)::uuid, '{"a":1}', 'x', g, 'nm'||g FROM generate_series(1,2000) g;
INSERT INTO k (id) VALUES (-5);
INSERT INTO k (id, f4, f8, tm, t) VALUES (-6, 'NaN', '-0', '24:00:00', '');
INSERT INTO k (id, f4, f8) VALUES (-7, 'Infinity', '-Infinity');
CREATE TABLE tk (a text, b int, v text, PRIMARY KEY (a, b));
INSERT INTO tk SELECT 'k'||g||CASE WHEN g%3=0 THEN 'ä' ELSE E'\t' END, g%5, 'v' FROM generate_series(1,3000) g;
CREATE TABLE nk (a int, b text);
INSERT INTO nk SELECT g%10, 'x' FROM generate_series(1,3000) g; DELETE FROM nk WHERE a = 3;
CREATE TABLE pk (id int, r int) PARTITION BY RANGE (id);
CREATE TABLE pk1 PARTITION OF pk FOR VALUES FROM (0) TO (500);
CREATE TABLE pk2 PARTITION OF pk FOR VALUES FROM (500) TO (10000);
INSERT INTO pk SELECT g, g FROM generate_series(0,999) g;
CREATE TABLE dk (d date, u uuid, n numeric, f float8, vc varchar, by bytea, PRIMARY KEY (d, u, n, f, vc, by));
INSERT INTO dk SELECT date '2000-01-01'+g%50, md5(g::text)::uuid, g/8.0, g/3.0, 'v'||g, decode(md5(g::text),'hex')
  FROM generate_series(1,500) g;
"""


def verify(daemon, *args):
    result = walshadow("verify", "--config", daemon.config_path, "--json", *args, check=False, timeout=120)
    assert result.stdout, result
    report = json.loads(result.stdout)
    assert report["equal"] == (result.returncode == 0)
    return report["equal"], {t["name"]: t for t in report["tables"]}


def counts(table):
    return tuple(table[k] for k in ("missing", "extra", "different"))


def test_verify_sees_what_is_equal_and_every_kind_of_difference(source, daemons):
    source.app(TABLES)
    daemon = daemons(source)
    daemon.start().wait_state("streaming")
    equal, tables = verify(daemon)
    assert equal, tables
    assert {name: t["rows"] for name, t in tables.items()} == {
        "public.k": 2003, "public.tk": 3000, "public.nk": 2700, "public.pk": 1000, "public.dk": 500}
    source.app("UPDATE k SET t = 'new'||id WHERE id % 10 = 0; DELETE FROM k WHERE id BETWEEN 1 AND 19;"
               "UPDATE nk SET b = 'y' WHERE a = 4; DELETE FROM tk WHERE b = 2; INSERT INTO pk VALUES (7, 7)")
    equal, tables = verify(daemon, "k", "public.nk")
    assert equal and set(tables) == {"public.k", "public.nk"}, tables
    result = walshadow("verify", "nosuch", "--config", daemon.config_path, check=False)
    assert result.returncode == 1 and "nosuch" in result.stderr
    assert daemon.verb("sql", "SELECT count() FROM k").stdout == "1984\n"
    assert int(daemon.verb("sql", "--raw", "SELECT count() FROM k").stdout) > 1984
    assert daemon.verb("sql", "DROP TABLE k", check=False).returncode == 1
    daemon.stop()
    # without a daemon sql starts an engine for the one statement
    assert daemon.verb("sql", "--format", "CSV", "SELECT count(), 'a' FROM k").stdout == '1984,"a"\n'

    # someone else writes to the destination: a lost row, a row too many, a changed cell of several types
    engine = Engine(directory=daemon.state_dir)
    engine.start()
    try:
        for sql in (
            "DELETE FROM app.k WHERE id = 100",
            "INSERT INTO app.k (id, _lsn) VALUES (100000, 1)",
            "ALTER TABLE app.k UPDATE t = 'other' WHERE id = 101 SETTINGS mutations_sync = 2",
            "ALTER TABLE app.k UPDATE f8 = NULL WHERE id = 102 SETTINGS mutations_sync = 2",
            "ALTER TABLE app.k UPDATE f8 = 0 WHERE id = -6 SETTINGS mutations_sync = 2",
            "ALTER TABLE app.k UPDATE ts = addMicroseconds(ts, 1) WHERE id = 103 SETTINGS mutations_sync = 2",
            "ALTER TABLE app.k UPDATE bc = 'ab' WHERE id = 104 SETTINGS mutations_sync = 2",
            "ALTER TABLE app.nk UPDATE b = 'z' WHERE a = 5 SETTINGS mutations_sync = 2",
            "DELETE FROM app.tk WHERE b = 4 AND a < 'k2'",
        ):
            engine.query(sql)
        lost = 600 - engine.query("SELECT count() FROM app.tk FINAL WHERE b = 4")[0][0]
        assert lost > 100
    finally:
        engine.stop()
    daemon.start().wait_state("streaming")
    equal, tables = verify(daemon)
    assert not equal
    assert counts(tables["public.k"]) == (1, 1, 5)
    assert counts(tables["public.nk"]) == (0, 0, 300)
    assert counts(tables["public.tk"]) == (lost, 0, 0)
    assert counts(tables["public.pk"]) == (0, 0, 0) and counts(tables["public.dk"]) == (0, 0, 0)
    text = walshadow("verify", "--config", daemon.config_path, "k", check=False).stdout
    assert "id='101': t is 'text 101" in text and "missing at the destination" in text

    daemon.stop()
    result = walshadow("remove", "--config", daemon.config_path)
    assert "walshadow_app dropped" in result.stdout
    assert source.sql("SELECT count(*) FROM pg_replication_slots") == [(0,)]


def test_verify_of_large_values(source, daemons):
    """Values that in blocks of many rows would not fit into a query's memory."""
    source.app("CREATE TABLE big (id int PRIMARY KEY, v text); CREATE TABLE twins (v text);"
               "INSERT INTO big SELECT i, repeat(md5(i::text), 20000) FROM generate_series(1, 120) i;"
               "INSERT INTO twins SELECT v FROM big")
    daemon = daemons(source, config={"destination": {"default": {"memory_max": "256MiB"}}})
    daemon.start().wait_state("streaming")
    equal, tables = verify(daemon)
    assert equal and {t["rows"] for t in tables.values()} == {120}, tables


def test_verify_while_writers_run(source, daemons):
    source.pgbench_init(1)
    daemon = daemons(source)
    daemon.start().wait_state("streaming")
    workload = source.pgbench(seconds=60, clients=2, rate=200)
    equal, tables = verify(daemon)
    workload.stop()
    assert equal, tables
    equal, tables = verify(daemon)
    assert equal and tables["public.pgbench_accounts"]["rows"] == 100000, tables
