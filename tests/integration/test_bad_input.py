"""Every bad input: one clear error (what, where, what to do), a non-zero exit where the daemon cannot go
on, and a state directory that can still be used."""

import errno
import os
import re
import socket

import pytest

from lib import parity
from lib.daemon import walshadow
from lib.process import give_to_server_user, remove_dir, run, wait_until


def refused(daemon, *patterns, timeout=60):
    """Starts the daemon and expects it to leave by itself with exactly one error that says all this."""
    daemon.start()
    daemon.wait_exit(timeout)
    return check_refusal(daemon, *patterns)


def check_refusal(daemon, *patterns):
    """The daemon has left: by itself, with an error that says all this and no password."""
    text = daemon.log_text()
    code = daemon.process.returncode
    assert code in (1, 2), (code, text)
    errors = [line for line in text.splitlines() if re.search(r"level=(error|fatal)", line)]
    assert errors, text
    for pattern in patterns:
        assert re.search(pattern, "\n".join(errors), re.I), (pattern, text)
    assert "secret" not in text.replace("secret-", ""), "a password is in the log"
    return errors


def works(daemon, pg):
    """The same state directory serves once the cause is gone."""
    daemon.start().wait_state("streaming")
    parity.assert_equal(pg, daemon)
    daemon.stop()


@pytest.fixture
def pg(source):
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')")
    return source


def test_wrong_password(pg, daemons):
    daemon = daemons(pg)
    daemon.config["source"]["conninfo"] = pg.tcp_url(password="wrong-one")
    errors = refused(daemon, "password", "127.0.0.1")
    assert not any("wrong-one" in line for line in errors)
    daemon.config["source"]["conninfo"] = pg.tcp_url()
    works(daemon, pg)


def test_source_not_there(daemons, pg):
    daemon = daemons(pg)
    daemon.config["source"]["conninfo"] = "postgresql://walshadow@127.0.0.1:1/app"
    done = walshadow("check", "postgresql://walshadow@127.0.0.1:1/app", check=False)
    assert done.returncode == 1
    assert "127.0.0.1" in done.stderr + done.stdout


def test_database_not_there(pg, daemons):
    daemon = daemons(pg)
    daemon.config["source"]["conninfo"] = pg.url("nowhere")
    refused(daemon, "nowhere")


def test_wal_level(sources, daemons):
    pg = sources(settings={"wal_level": "replica"})
    pg.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(pg)
    refused(daemon, "wal_level", "logical")
    pg.sql("ALTER SYSTEM SET wal_level = 'logical'")
    pg.restart()
    works(daemon, pg)


def test_synchronous_standby_names(sources, daemons):
    pg = sources(settings={"synchronous_standby_names": "*", "synchronous_commit": "local"})
    pg.app("CREATE TABLE t (id int PRIMARY KEY)")
    refused(daemons(pg), "synchronous_standby_names")


def test_role_without_rights(pg, daemons):
    pg.sql("CREATE ROLE weak LOGIN")
    daemon = daemons(pg)
    daemon.config["source"]["conninfo"] = pg.url(user="weak")
    refused(daemon, "REPLICATION")


def test_no_free_slot(sources, daemons):
    pg = sources(settings={"max_replication_slots": "1"})
    pg.app("CREATE TABLE t (id int PRIMARY KEY)")
    pg.sql("SELECT pg_create_physical_replication_slot('other')")
    daemon = daemons(pg)
    refused(daemon, "max_replication_slots|free slot")
    pg.sql("SELECT pg_drop_replication_slot('other')")
    works(daemon, pg)


def test_slot_of_another_kind(pg, daemons):
    pg.sql("SELECT pg_create_logical_replication_slot('walshadow_app', 'test_decoding')", dbname="app")
    refused(daemons(pg), "walshadow_app", "logical|physical")


def test_slot_taken_by_another_daemon(pg, daemons):
    first = daemons(pg).start()
    first.wait_state("streaming")
    refused(daemons(pg), "walshadow_app", timeout=120)
    parity.assert_equal(pg, first)


def test_slot_lost(pg, daemons):
    """A dropped slot is one clear error with a remedy, not an endless retry."""
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    daemon.stop()
    pg.sql("SELECT pg_drop_replication_slot('walshadow_app')")
    pg.app("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(2, 60000) i")
    for _ in range(3):
        pg.sql("SELECT pg_switch_wal(); CHECKPOINT")
    refused(daemon, "slot", "walshadow_app")


def test_source_in_recovery(pg, daemons, sources):
    from lib.postgres import Postgres

    standby = Postgres(15)
    try:
        from lib import paths
        from lib.process import remove_dir
        remove_dir(standby.data)
        run([paths.CLIENT_BIN / "pg_basebackup", "-D", standby.data, "-h", pg.base, "-p", pg.port,
             "-U", "postgres", "-R", "-c", "fast", "-X", "stream"], timeout=120)
        with open(os.path.join(standby.data, "postgresql.conf"), "a") as f:
            f.write(f"\nport = {standby.port}\nunix_socket_directories = '{standby.base}'\n")
        standby.start()
        refused(daemons(standby), "recovery|standby")
    finally:
        standby.close()


def test_second_run(pg, daemons):
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    done = walshadow("run", "--config", daemon.config_path, check=False)
    assert done.returncode == 1
    assert daemon.state_dir in done.stderr and str(daemon.process.pid) in done.stderr
    parity.assert_equal(pg, daemon)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_state_directory_not_writable(pg, daemons):
    daemon = daemons(pg)
    os.mkdir(daemon.state_dir)
    os.chmod(daemon.state_dir, 0o500)
    try:
        refused(daemon, re.escape(daemon.state_dir), "permission denied")
    finally:
        os.chmod(daemon.state_dir, 0o700)
    works(daemon, pg)


def test_state_of_another_cluster(pg, daemons, sources):
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    daemon.stop()
    other = sources()
    other.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon.config["source"]["conninfo"] = other.url()
    refused(daemon, "system identifier|system_id|another cluster")
    daemon.config["source"]["conninfo"] = pg.url()
    works(daemon, pg)


def test_foreign_data_directory(pg, daemons):
    """A shadow/ that walshadow did not make is never touched."""
    daemon = daemons(pg)
    os.mkdir(daemon.state_dir)
    give_to_server_user(daemon.state_dir)
    shadow = os.path.join(daemon.state_dir, "shadow")
    run([pg.bin / "initdb", "-D", shadow, "-U", "postgres", "-A", "trust", "--no-sync"], cwd=pg.base)
    before = sorted(os.listdir(shadow))
    refused(daemon, re.escape(shadow))
    assert sorted(os.listdir(shadow)) == before


@pytest.mark.parametrize("section, key, value, said", [
    ("source", "slott", "x", r"slott"),
    ("pipeline", "decoder_pool_size", "many", r"decoder_pool_size"),
    ("memory", "xact_buffer_max", "10XB", r"xact_buffer_max"),
    ("destination.default", "flush_timeout", "soon", r"flush_timeout"),
    ("toast", "mode", "sometimes", r"toast\.mode|mode"),
    ("http", "bind", "0.0.0.0:9999", r"password"),
])
def test_configuration_errors_name_key_and_line(pg, daemons, section, key, value, said):
    daemon = daemons(pg)
    table = daemon.config
    for part in section.split("."):
        table = table.setdefault(part, {})
    table[key] = value
    daemon.start()
    assert daemon.wait_exit(20) in (1, 2)
    text = daemon.log_text()
    assert re.search(said, text), text
    with open(daemon.config_path) as f:
        line = next(n for n, line in enumerate(f, 1) if line.startswith(f"{key} ="))
    if key != "bind":
        assert re.search(rf"\b{line}\b", text), (line, text)


@pytest.mark.parametrize("config", [
    {"table": {"public": {"t": {"initial_load": "object_store"}}}},
    {"destination": {"default": {"url": "s3://bucket"}}},
])
def test_features_not_built_are_refused(pg, daemons, config):
    daemon = daemons(pg, config=config)
    daemon.start()
    assert daemon.wait_exit(30) in (1, 2)
    assert re.search("object_store|s3", daemon.log_text())


def test_two_chdb_destinations(pg, daemons):
    daemon = daemons(pg, config={"destination": {"second": {"url": "chdb:/tmp/elsewhere"}}})
    daemon.start()
    assert daemon.wait_exit(30) in (1, 2)
    assert "chdb" in daemon.log_text()


def test_target_that_is_not_ours(pg, daemons):
    """Two source tables for one target are refused by name."""
    pg.app("CREATE SCHEMA s2; CREATE TABLE s2.t (id int PRIMARY KEY)")
    daemon = daemons(pg, config={"namespace": {"s2": {"target_database": "app"}}})
    daemon.start()

    def said():
        return "s2.t" in daemon.log_text() and (not daemon.running() or daemon.table("s2.t"))

    wait_until(said, 60, daemon.log_text)


def test_encoding_refused(source, daemons):
    source.create_app("latin", "TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    source.sql("CREATE TABLE t (id int PRIMARY KEY)", dbname="latin")
    refused(daemons(source, dbname="latin"), "LATIN1")


def test_garbage_on_every_socket(pg, daemons):
    """Nonsense and half requests on every socket we listen on: an answer or a closed connection, never
    a crash, and the daemon goes on."""
    daemon = daemons(pg).start()
    status = daemon.wait_state("streaming")
    host, port = status["http"].split(":")
    sockets = [("tcp", (host, int(port)))]
    for folder, _, names in os.walk(daemon.state_dir):
        if os.path.basename(folder) in ("chdb",):
            continue
        sockets += [("unix", os.path.join(folder, n)) for n in names
                    if n.startswith(".s.PGSQL.") and not n.endswith(".lock") or n.endswith(".sock")]
    assert len(sockets) >= 3, sockets
    garbage = [b"", b"\0", b"\xff" * 10, b"GET / HTTP/1.1\r\n", b"GET " + b"A" * 100000 + b"\r\n\r\n",
               os.urandom(5000), b"\x7f\xff\xff\xff" + b"x" * 100, b"\0\0\0\x08\x04\xd2\x16\x2f",
               b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff" * 3, b"{" * 50000, b"\n" * 1000]
    for kind, address in sockets:
        for data in garbage:
            family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
            with socket.socket(family) as s:
                s.settimeout(5)
                try:
                    s.connect(address)
                    s.sendall(data)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(65536):
                        pass
                except OSError:
                    pass
    daemon.check_alive()
    pg.app("INSERT INTO t VALUES (2, 'still here')")
    parity.assert_equal(pg, daemon)


def test_remove_drops_the_slot(pg, daemons):
    daemon = daemons(pg).start()
    daemon.wait_state("streaming")
    daemon.stop()
    assert pg.sql("SELECT count(*) FROM pg_replication_slots") == [(1,)]
    walshadow("remove", "--config", daemon.config_path)
    assert pg.sql("SELECT count(*) FROM pg_replication_slots") == [(0,)]
    assert not os.path.exists(daemon.state_dir)


def fill(small, leave_bytes):
    """Leaves so much room on the small file system; returns the file that takes the rest."""
    ballast = os.path.join(small, "ballast")
    free = os.statvfs(small)
    with open(ballast, "wb", buffering=0) as f:
        try:
            for _ in range((free.f_bavail * free.f_frsize - leave_bytes) >> 16):
                f.write(bytes(1 << 16))
        except OSError as error:  # the daemon was quicker
            assert error.errno == errno.ENOSPC
    return ballast


@pytest.fixture
def small(request, pg, daemons):
    """(daemon, folder): a state directory on a file system of its own that can be filled up."""
    folder = os.environ.get("WALSHADOW_TEST_SMALL_FS")
    if not folder:
        pytest.skip("only root can mount a small file system: run by script/test as root")
    daemon = daemons(pg)
    daemon.config["state_dir"] = daemon.state_dir = os.path.join(folder, "state")
    yield daemon, folder
    if daemon.running():
        daemon.kill()
    daemon._end_orphans()
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        os.unlink(path) if os.path.isfile(path) else remove_dir(path)


@pytest.mark.parametrize("megabytes", [2, 8, 14, 24])
def test_full_disk(pg, small, megabytes):
    """No room for the load: one error that says so, whoever found it; with room again it goes on.
    Files of the backup, segments of the archive and the shadow's own WAL run out at other sizes. Only a
    destination without room is asked again until it has some: the status says so."""
    daemon, folder = small
    ballast = fill(folder, megabytes << 20)
    daemon.start()

    def ended():
        return not daemon.running() or "not enough space" in str((daemon.status() or {}).get("waiting_on"))

    wait_until(ended, 60, daemon.log_text)
    if not daemon.running():
        check_refusal(daemon, "no space left")
    os.unlink(ballast)
    if daemon.running():
        daemon.wait_state("streaming")
        parity.assert_equal(pg, daemon)
        daemon.stop()
    works(daemon, pg)


def test_disk_fills_up(pg, small):
    """The same while streaming."""
    daemon, folder = small
    daemon.start().wait_state("streaming")
    daemon.wait_caught_up()
    ballast = fill(folder, 1 << 20)
    pg.app("INSERT INTO t SELECT i, repeat(md5(i::text), 30) FROM generate_series(2, 60000) i")
    code = daemon.wait_exit(120)
    assert code == 1 and "no space left" in daemon.log_text().lower(), (code, daemon.log_text())
    os.unlink(ballast)
    works(daemon, pg)
