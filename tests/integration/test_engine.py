"""`walshadow engine` against real clients: python3-clickhouse-driver, Debian's clickhouse-client 18.16
and the engine's own remote(), which is ClickHouse 26.7 as a client."""

import datetime
import decimal
import ipaddress
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import clickhouse_driver
import pytest
from clickhouse_driver import errors

from lib import paths, process
from lib.engine import Engine

ALL_TYPES = """a Int32, b Nullable(String), c Float64, d DateTime64(6, 'UTC'), e Decimal(20, 4), f UUID,
    g Array(Int32), h LowCardinality(String), i Date32, j Enum8('x' = 1, 'y' = 2), k FixedString(3),
    l Bool, m Map(String, Int32), n Tuple(Int8, String), o LowCardinality(Nullable(String)), p UInt64,
    q Nullable(Decimal(38, 10)), r Array(Array(Nullable(String))), s IPv4, t DateTime"""


def rows_of_all_types(n):
    utc = datetime.timezone.utc
    return [(i, None if i % 3 == 0 else "é\0" * (i % 50), i / 3,
             datetime.datetime(1999, 12, 31, 23, 59, 59, i, utc), decimal.Decimal(i) / 8,
             uuid.UUID(int=i * 2**100 + i), [j - 2 for j in range(i % 5)], f"lc{i % 7}",
             datetime.date(1950, 1, 1) + datetime.timedelta(i), "xy"[i % 2], "abc", i % 2 == 0,
             {f"k{i}": i}, (i % 100, str(i)), None if i % 5 == 0 else f"v{i % 9}", 2**64 - 1 - i,
             None if i % 4 == 0 else decimal.Decimal(-i) / 3 * 0 - decimal.Decimal(i) / 16,
             [[None, str(i)], []], ipaddress.IPv4Address(f"10.0.{i % 200}.1"),
             datetime.datetime(2030, 1, 1)) for i in range(n)]


@pytest.fixture(scope="module")
def ports():
    return {"read_only": process.free_port()}


@pytest.fixture(scope="module")
def engine(ports):
    made = Engine("--read-only-listen", f"tcp:127.0.0.1:{ports['read_only']}", http=True)
    try:
        made.start()
        made.query("CREATE DATABASE app")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def second():
    with Engine().start() as made:
        yield made


def http(engine, sql, **params):
    """(status, body, headers)"""
    url = f"http://127.0.0.1:{engine.http_port}/?{urllib.parse.urlencode(params)}"
    try:
        with urllib.request.urlopen(url, data=sql.encode(), timeout=60) as r:
            return r.status, r.read(), r.headers
    except urllib.error.HTTPError as e:
        return e.code, e.read(), e.headers


def old_client(engine, sql, data=None, compression=0):
    if shutil.which("clickhouse-client") is None:
        pytest.skip("no clickhouse-client")
    done = subprocess.run(["clickhouse-client", "--host", "127.0.0.1", "--port", str(engine.port),
                           f"--compression={compression}", "--query", sql], input=data,
                          capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_all_types_there_and_back(engine):
    client = clickhouse_driver.Client("127.0.0.1", port=engine.port, database="app")
    client.execute(f"CREATE TABLE kinds ({ALL_TYPES}) ENGINE = MergeTree ORDER BY a")
    rows = rows_of_all_types(3000)
    assert client.execute("INSERT INTO kinds VALUES", rows) == len(rows)
    assert client.execute("SELECT * FROM kinds ORDER BY a") == rows
    # ClickHouse's own reading of some of them
    assert client.execute("SELECT count(), sum(a), countIf(b IS NULL), sum(length(g)), max(i) FROM kinds") == [
        (3000, sum(range(3000)), 1000, sum(i % 5 for i in range(3000)),
         datetime.date(1950, 1, 1) + datetime.timedelta(2999))]
    # a column list in another order, missing columns get defaults
    assert client.execute("INSERT INTO kinds (h, a) VALUES", [("only", -1)]) == 1
    assert client.execute("SELECT a, b, h, g FROM kinds WHERE a < 0") == [(-1, None, "only", [])]
    client.disconnect()


def test_results_without_rows_have_columns(engine):
    for sql, columns in [("SELECT 1 AS a, 'x' AS b WHERE 0", [("a", "UInt8"), ("b", "String")]),
                         ("SHOW TABLES FROM system LIKE 'nothing'", [("name", "String")])]:
        assert engine.query(sql, with_column_types=True) == ([], columns)
    assert engine.query("SELECT 1 FORMAT TSV") == [(1,)]


def test_errors_have_code_and_text_and_the_session_lives(engine):
    client = clickhouse_driver.Client("127.0.0.1", port=engine.port, database="app")
    client.execute("CREATE TABLE small (a Int8, b String) ENGINE = MergeTree ORDER BY a")
    for sql, data, code, text in [
            ("SELECT * FROM nope", None, 60, "UNKNOWN_TABLE"),
            ("SELEC 1", None, 62, "Syntax error"),
            ("SELECT 1; SELECT 2", None, 62, "Multi-statements"),
            ("SELECT throwIf(number = 2000000) FROM numbers(3000000)", None, 395, "throwIf"),
            ("INSERT INTO nope VALUES", [(1,)], 60, "UNKNOWN_TABLE"),
            ("INSERT INTO small (a, nope) VALUES", [(1, 2)], 16, "nope"),
            ("INSERT INTO small (a, a) VALUES", [(1, 2)], 15, "twice")]:
        with pytest.raises(errors.ServerException) as failure:
            client.execute(sql, data)
        assert failure.value.code == code and text in failure.value.message, sql
        assert client.execute("SELECT 7") == [(7,)]
    with pytest.raises(errors.ServerException) as failure:
        clickhouse_driver.Client("127.0.0.1", port=engine.port, database="none").execute("SELECT 1")
    assert failure.value.code == 81
    with pytest.raises(errors.ServerException) as failure:
        clickhouse_driver.Client("127.0.0.1", port=engine.port, user="eve").execute("SELECT 1")
    assert failure.value.code == 516


def test_settings_hold_for_their_query_only(engine):
    client = clickhouse_driver.Client("127.0.0.1", port=engine.port)
    ask = "SELECT getSetting('max_block_size')"
    default = client.execute(ask)
    assert client.execute(ask, settings={"max_block_size": 123}) == [(123,)]
    assert client.execute(ask) == default
    client.execute("SET max_block_size = 77")
    assert client.execute(ask, settings={"max_block_size": 123}) == [(123,)]
    assert client.execute(ask) == [(77,)]
    assert client.execute(ask, settings={"no_such_setting": 1}) == [(77,)]
    assert engine.query(ask) == default


def test_clickhouse_client_18_16(engine):
    for compression in (0, 1):
        table = f"app.old{compression}"
        assert old_client(engine, f"CREATE TABLE {table} (a Int32, s String) ENGINE = MergeTree ORDER BY a")[0] == 0
        data = b"".join(b"%d\t%s\n" % (i, b"x" * (i % 1000)) for i in range(20000))
        code, _, err = old_client(engine, f"INSERT INTO {table} FORMAT TSV", data, compression)
        assert code == 0, err
        code, out, err = old_client(engine, f"SELECT a, s FROM {table} ORDER BY a", None, compression)
        assert (code, out) == (0, data), err
        code, out, _ = old_client(engine, f"INSERT INTO {table} VALUES (-1, 'it''s')", None, compression)
        code, out, _ = old_client(engine, f"SELECT s FROM {table} WHERE a < 0 FORMAT JSONEachRow", None, compression)
        assert (code, out) == (0, b'{"s":"it\'s"}\n')
    code, _, err = old_client(engine, "SELECT * FROM app.nope")
    assert code == 60 and b"UNKNOWN_TABLE" in err


@pytest.mark.parametrize("method", ["LZ4", "ZSTD", "NONE"])
def test_remote_of_a_second_engine(engine, second, method):
    here = f"127.0.0.1:{engine.port}"
    engine.query("CREATE TABLE IF NOT EXISTS app.far (a UInt32, s Nullable(String)) ENGINE = MergeTree ORDER BY a")
    engine.query("TRUNCATE TABLE app.far")
    settings = {"network_compression_method": method}
    second.query(f"INSERT INTO FUNCTION remote('{here}', 'app', 'far') SELECT number, if(number % 3 = 0, NULL, "
                 "repeat('z', number % 100)) FROM numbers(100000)", settings=settings)
    want = engine.query("SELECT count(), sum(a), sum(cityHash64(a, s)) FROM app.far")
    assert want[0][:2] == (100000, 4999950000)
    got = second.query("SELECT count(), sum(a), sum(cityHash64(a, s)) FROM "
                       f"(SELECT * FROM remote('{here}', 'app', 'far'))", settings=settings)
    assert got == want
    assert second.query(f"SELECT a % 2 AS k, count() FROM remote('{here}', 'app', 'far') GROUP BY k ORDER BY k",
                        settings=settings) == [(0, 50000), (1, 50000)]
    # cancelled by the reader after three rows
    assert second.query(f"SELECT * FROM remote('{here}', numbers(1000000000)) LIMIT 3",
                        settings=settings) == [(0,), (1,), (2,)]


REFUSED = ["CREATE TABLE app.x (a Int8) ENGINE = Memory", "DROP TABLE app.ro", "INSERT INTO app.ro SELECT 1",
           "INSERT INTO app.ro VALUES (1)", "SELECT 1 INTO OUTFILE '{out}'", "SYSTEM FLUSH LOGS",
           "KILL QUERY WHERE 1", "USE app", "SET final = 0", "SELECT 1; SELECT 2", "OPTIMIZE TABLE app.ro",
           "SELECT * FROM file('/etc/passwd', 'LineAsString')", "SELECT file('/etc/passwd')",
           "SELECT arrayMap(file, ['/etc/passwd'])", "SELECT `fil\\x65`('/etc/passwd')",
           "SELECT “'”, file('/etc/passwd'), “'” FROM (SELECT 1 AS `'`)",
           "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a Int8')",
           "DESCRIBE TABLE url('http://127.0.0.1:1/', 'CSV')",
           "SELECT * FROM remote('127.0.0.1:{port}', 'app', 'ro')"]


def test_readers_only_read(engine, ports, tmp_path):
    engine.query("CREATE TABLE app.ro (a Int8, file String) ENGINE = MergeTree ORDER BY a")
    engine.query("INSERT INTO app.ro VALUES", params=[(1, "one")])
    out = str(tmp_path / "out")
    reader = clickhouse_driver.Client("127.0.0.1", port=ports["read_only"])
    for sql in REFUSED:
        sql = sql.format(out=out, port=engine.port)
        with pytest.raises(errors.ServerException) as failure:
            reader.execute(sql)
        assert failure.value.code == 164, (sql, failure.value)
        status, body, headers = http(engine, sql)
        assert (status, headers["X-ClickHouse-Exception-Code"]) == (403, "164"), (sql, body)
    with pytest.raises(errors.ServerException) as failure:
        reader.execute("INSERT INTO app.ro VALUES", [(2, "two")])
    assert failure.value.code == 164
    assert not os.path.exists(out)
    # what they may do, a column named like the function included
    assert reader.execute("SELECT file FROM app.ro WHERE file = 'one'") == [("one",)]
    assert reader.execute("SHOW TABLES FROM app LIKE '%ro'") == [("ro",)]
    assert reader.execute("SELECT a FROM app.ro WHERE 0", with_column_types=True) == ([], [("a", "Int8")])
    assert http(engine, "SELECT count() FROM ro", database="app")[1] == b"1\n"


def test_readers_see_the_current_rows(engine, ports):
    engine.query("CREATE TABLE app.repl (k Int32, v String, _lsn UInt64, _is_deleted Bool) "
                 "ENGINE = ReplacingMergeTree(_lsn, _is_deleted) ORDER BY k")
    for rows in ([(1, "a", 10, False), (2, "b", 11, False)], [(1, "c", 12, False), (2, "", 13, True)]):
        engine.query("INSERT INTO app.repl VALUES", params=rows)
    reader = clickhouse_driver.Client("127.0.0.1", port=ports["read_only"])
    assert reader.execute("SELECT k, v FROM app.repl") == [(1, "c")]
    assert http(engine, "SELECT count() FROM app.repl")[1] == b"1\n"
    assert http(engine, "SELECT count() FROM app.repl", final=0)[1] == b"4\n"


def test_http(engine):
    base = f"http://127.0.0.1:{engine.http_port}"
    assert urllib.request.urlopen(f"{base}/ping", timeout=10).read() == b"Ok.\n"
    assert urllib.request.urlopen(f"{base}/?query=SELECT+1", timeout=10).read() == b"1\n"
    status, body, headers = http(engine, "SELECT 1 AS a FORMAT JSON")
    assert status == 200 and b'"a": 1' in body and headers["X-ClickHouse-Format"] == "JSON"
    assert http(engine, "SELECT 1 AS a", default_format="JSONEachRow")[1] == b'{"a":1}\n'
    assert http(engine, "SELECT {x:String}", param_x="it's")[1] == b"it\\'s\n"
    assert http(engine, "SELECT 1", nonsense=1)[0] == 404
    assert http(engine, "SELECT 1", max_memory_usage=0)[0] == 403
    status, body, headers = http(engine, "SELECT * FROM nope")
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (404, "60") and b"UNKNOWN_TABLE" in body
    # a streamed result has no limit, another one does
    _, body, _ = http(engine, "SELECT number FROM numbers(10000000)")
    assert body.count(b"\n") == 10000000 and body.endswith(b"9999999\n")
    status, body, headers = http(engine, "SELECT number FROM numbers(20000000) FORMAT JSON")
    assert status == 413 and headers["X-ClickHouse-Exception-Code"] == "396"
    # an error after the first bytes is not taken for the end
    with pytest.raises(Exception) as failure:
        http(engine, "SELECT throwIf(number = 3000000) FROM numbers(5000000)")
    assert "Incomplete" in type(failure.value).__name__


def test_users():
    base = process.make_dir("ws-e-")
    secret = os.path.join(base, "password")
    with open(secret, "w", encoding="ascii") as file:
        file.write("s3cret\n")
    process.give_to_server_user(secret)
    made = Engine("--user", "ann", "--password-file", secret, directory=base, http=True)
    try:
        with pytest.raises(AssertionError):  # the harness logs in as default
            made.start(timeout=5)
        ask = {"host": "127.0.0.1", "port": made.port}
        assert clickhouse_driver.Client(**ask, user="ann", password="s3cret").execute("SELECT 1") == [(1,)]
        for user, password in [("ann", ""), ("ann", "s3cre"), ("ann", "s3crets3cret"), ("default", ""), ("default", "s3cret")]:
            with pytest.raises(errors.ServerException) as failure:
                clickhouse_driver.Client(**ask, user=user, password=password).execute("SELECT 1")
            assert failure.value.code == 516
        assert http(made, "SELECT 1")[0] == 401
        assert http(made, "SELECT 1", user="ann", password="s3cret")[0] == 200
        request = urllib.request.Request(f"http://127.0.0.1:{made.http_port}/?query=SELECT+1",
                                         headers={"Authorization": "Basic YW5uOnMzY3JldA=="})
        assert urllib.request.urlopen(request, timeout=10).read() == b"1\n"
    finally:
        made.close()


def test_many_connections(engine):
    engine.query("CREATE TABLE app.many (a Int32, s String) ENGINE = MergeTree ORDER BY a")
    failures = []

    def work(n):
        try:
            client = clickhouse_driver.Client("127.0.0.1", port=engine.port)
            for i in range(10):
                client.execute("INSERT INTO app.many VALUES", [(n * 1000 + i * 10 + j, "s") for j in range(10)])
                client.execute("SELECT count() FROM app.many")
            client.disconnect()
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
    assert engine.query("SELECT count(), uniqExact(a) FROM app.many") == [(2000, 2000)]


def test_kill_and_restart_keeps_what_was_acknowledged():
    with Engine().start() as made:
        made.query("CREATE DATABASE app")
        made.query("CREATE TABLE app.t (a Int32) ENGINE = MergeTree ORDER BY a")
        acked = []

        def work():
            client = clickhouse_driver.Client("127.0.0.1", port=made.port)
            try:
                for i in range(100000):
                    client.execute("INSERT INTO app.t VALUES", [(i,)])
                    acked.append(i)
            except (errors.Error, OSError, EOFError):
                pass

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(1.5)
        made.kill()
        thread.join(30)
        made.start()
        have = {r[0] for r in made.query("SELECT a FROM app.t")}
        assert len(acked) > 10
        assert set(acked) <= have and len(have) <= len(acked) + 1
        assert made.stop() == 0
        assert not os.path.exists(made.socket)


def test_one_engine_per_directory():
    with Engine().start() as made:
        other = subprocess.run([*map(str, made.argv[:2]), "--path", made.path, "--listen", "tcp:127.0.0.1:0",
                                "--lock-wait", "1"], capture_output=True, timeout=60, check=False,
                               env={**os.environ, "LD_LIBRARY_PATH": str(paths.DEPS)})
        assert other.returncode == 1 and b"in use by another engine" in other.stderr


def test_control_pipe_ends_it():
    read_end, write_end = os.pipe()
    with Engine() as made:
        made.start() if made.process is None else None
        made.stop()
        argv = [*map(str, made.argv), "--control-fd", str(read_end)]
        child = subprocess.Popen(argv, pass_fds=[read_end], stdout=subprocess.PIPE, cwd=made.base,
                                 env={**os.environ, "LD_LIBRARY_PATH": str(paths.DEPS)})
        try:
            assert child.stdout.readline().startswith(b"ready listen=unix:")
            os.close(write_end)
            assert child.wait(20) == 0
        finally:
            child.kill()
            os.close(read_end)


def garbage(rng):
    kind = rng.randrange(5)
    noise = rng.randbytes(rng.randrange(1, 3000))
    if kind == 0:
        return noise
    hello = b"\0\4test" + bytes([26, 7]) + b"\xbb\xa9\3" + b"\0" + b"\7default" + b"\0"
    if kind == 1:
        return hello[:rng.randrange(len(hello))]
    if kind == 2:
        return hello + b"\0" + noise
    if kind == 3:  # a string of 2^60 bytes
        return hello + b"\0" + b"\1" + b"\xff\xff\xff\xff\xff\xff\xff\xff\x0f" + noise
    return b"GET / HTTP/1.1\r\n" + noise


def test_garbage_on_every_socket(engine, ports):
    rng = random.Random(7)

    def send(make):
        with make() as s:
            s.settimeout(10)
            try:
                s.sendall(garbage(rng))
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except (ConnectionError, BrokenPipeError):
                pass

    def unix():
        s = socket.socket(socket.AF_UNIX)
        s.connect(engine.socket)
        return s

    for _ in range(60):
        for port in (engine.port, ports["read_only"], engine.http_port):
            send(lambda p=port: socket.create_connection(("127.0.0.1", p)))
        send(unix)
    assert engine.query("SELECT 1") == [(1,)]
    assert http(engine, "SELECT 1")[1] == b"1\n"


def test_bad_blocks_are_refused(engine):
    """A block that does not fit the sample, or is damaged, stores nothing."""
    engine.query("CREATE TABLE app.strict (a Int32, b Nullable(String)) ENGINE = MergeTree ORDER BY a")

    def string(s):
        return bytes([len(s)]) + s

    def column(name, kind, data):
        return string(name) + string(kind) + data  # revision 54453: no flag byte

    def block(columns, rows):
        return (b"\2\0" + b"\1\0\2\xff\xff\xff\xff\0" + bytes([len(columns), rows]) + b"".join(columns))

    good = [column(b"a", b"Int32", struct.pack("<i", 5)), column(b"b", b"Nullable(String)", b"\0\1x")]
    cases = [(good, 0), ([good[1], good[0]], 0), ([good[0]], 7),
             ([column(b"a", b"Int64", struct.pack("<q", 5)), good[1]], 53),
             ([good[0], column(b"b", b"String", b"\1x")], 53),
             ([good[0], column(b"c", b"Nullable(String)", b"\0\1x")], 16),
             ([good[0], good[0]], 10)]
    stored = 0
    for columns, code in cases:
        client = clickhouse_driver.Client("127.0.0.1", port=engine.port)
        client.connection.connect()
        client.connection.send_query("INSERT INTO app.strict (a, b) VALUES")
        client.connection.send_external_tables(None)
        assert client.connection.receive_packet().block.num_columns in (0, 2)
        client.connection.socket.sendall(block(columns, 1) + b"\2\0\1\0\2\xff\xff\xff\xff\0\0\0")
        packet = client.connection.receive_packet()
        if code:
            assert packet.exception.code == code
        else:
            assert packet.exception is None, packet.exception
            stored += 1
        client.disconnect()
        assert engine.query("SELECT count() FROM app.strict") == [(stored,)]


def test_faults_on_demand():
    with Engine("--fault", "fail-insert=2:252,delay-eos=300").start() as made:
        made.query("CREATE DATABASE app")
        made.query("CREATE TABLE app.t (a Int32) ENGINE = MergeTree ORDER BY a")
        began = time.monotonic()
        made.query("INSERT INTO app.t VALUES", params=[(1,)])
        assert time.monotonic() - began >= 0.3
        with pytest.raises(errors.ServerException) as failure:
            made.query("INSERT INTO app.t VALUES", params=[(2,)])
        assert failure.value.code == 252
        made.query("INSERT INTO app.t VALUES", params=[(3,)])
        assert made.query("SELECT a FROM app.t ORDER BY a") == [(1,), (3,)]


@pytest.mark.parametrize("fault,stored", [("kill-insert=1", 0), ("kill-eos=1", 1)])
def test_killed_around_the_commit(fault, stored):
    with Engine("--fault", fault).start() as made:
        made.query("CREATE DATABASE app")
        made.query("CREATE TABLE app.t (a Int32) ENGINE = MergeTree ORDER BY a")
        with pytest.raises((EOFError, OSError, errors.Error)):
            made.query("INSERT INTO app.t VALUES", params=[(1,)])
        assert made.process.wait(10) == -signal.SIGKILL
        made.argv = made.argv[:-2]
        made.start()
        assert made.query("SELECT count() FROM app.t") == [(stored,)]


def test_sigterm_lets_an_insert_end():
    with Engine("--fault", "delay-eos=2000").start() as made:
        made.query("CREATE DATABASE app")
        made.query("CREATE TABLE app.t (a Int32) ENGINE = MergeTree ORDER BY a")
        result = []
        thread = threading.Thread(target=lambda: result.append(made.query("INSERT INTO app.t VALUES", params=[(1,)])))
        thread.start()
        time.sleep(0.7)
        assert made.stop() == 0
        thread.join(10)
        assert result == [1]
