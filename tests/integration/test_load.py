"""The initial load: rows before, during and after it, on every supported major."""

import os
import struct
import threading
import time
import zlib

import pytest

from lib import parity, workload
from lib.paths import MAJORS
from lib.process import wait_until


def start_writers(pg, count=2, **kwargs):
    writers = [workload.Mixer(pg, seed=lane, lane=lane, **kwargs) for lane in range(count)]
    for writer in writers:
        writer.start()
    return writers


@pytest.mark.majors
@pytest.mark.parametrize("major", MAJORS)
def test_load_under_writers(sources, daemons, major):
    """pgbench and mixed writers from before the load until after it; a second pgbench start, with its
    TRUNCATE of pgbench_history, while the backup runs."""
    pg = sources(major)
    workload.create(pg)
    pg.pgbench_init(2)
    first = pg.pgbench(clients=2)
    writers = start_writers(pg)
    daemon = daemons(pg).start()
    daemon.wait_status(lambda s: s["state"] in ("bootstrapping", "streaming"), what="load begins")
    second = pg.pgbench(clients=2)
    daemon.wait_state("streaming")
    big = workload.Mixer(pg, seed=9, lane=7, big_values=True)
    big.start()
    time.sleep(3)
    for writer in (*writers, big):
        writer.stop()
    first.stop()
    second.stop()
    differences = parity.assert_equal(pg, daemon)
    assert len(differences) == 18  # 14 of the workload, 4 of pgbench; leaves come through their root
    for table in daemon.status()["tables"]:
        assert table["state"] == "streaming", table
    done = daemon.verb("verify", "--json")
    assert '"equal":true' in done.stdout.replace(" ", "")
    daemon.stop()


def test_open_transactions_around_the_load(source, daemons):
    """Transactions open when the backup starts: some commit during it, some after, some never."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text)")
    source.app("CREATE TABLE loose (id int, v text)")
    source.app("INSERT INTO t SELECT i, 'old' FROM generate_series(1, 20000) i;"
               "INSERT INTO loose SELECT i, 'old' FROM generate_series(1, 20000) i; CHECKPOINT")
    sessions = []
    for start, verb in ((1, "commit"), (2, "rollback"), (3, "later commit"), (4, "later rollback"),
                        (5, "abandoned")):
        session = source.connect(autocommit=False)
        with session.cursor() as cursor:
            for table in ("t", "loose"):
                cursor.execute(f"INSERT INTO {table} VALUES (%s, %s)", (100000 + start, verb))
                cursor.execute(f"UPDATE {table} SET v = %s WHERE id %% 10 = %s", (verb, start))
                cursor.execute(f"DELETE FROM {table} WHERE id = %s", (start + 1000 + 5,))
        sessions.append(session)
    source.app("CHECKPOINT")  # their rows are in the data files
    daemon = daemons(source).start()
    daemon.wait_status(lambda s: s["state"] in ("bootstrapping", "streaming"), what="load begins")
    sessions[0].commit()
    sessions[1].rollback()
    daemon.wait_state("streaming")
    sessions[2].commit()
    sessions[3].rollback()
    sessions[4].close()
    parity.assert_equal(source, daemon)


@pytest.mark.majors
@pytest.mark.parametrize("major", [15, *(pytest.param(m, marks=pytest.mark.slow) for m in (16, 17, 18))])
def test_rows_that_open_transactions_change_are_there(sources, daemons, major):
    """What transactions open since before the load update or delete is at the destination until they
    commit, as it is at the source: keys, rows without one, values out of line, partitions; with a
    subtransaction, a multixact, a key that moves and a row that takes another's key. Restarts in
    between go on with what waits: nothing is loaded again."""
    source = sources(major, {"max_prepared_transactions": "5"})
    source.app("""CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE loose (id int, v text);
        CREATE TABLE big (id int PRIMARY KEY, n int, v text); ALTER TABLE big ALTER v SET STORAGE EXTERNAL;
        CREATE TABLE parts (id int, v text, PRIMARY KEY (id)) PARTITION BY HASH (id);
        CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        INSERT INTO t SELECT i, 'old' FROM generate_series(1, 3000) i;
        INSERT INTO loose SELECT i, 'old' FROM generate_series(1, 3000) i;
        INSERT INTO parts SELECT i, 'old' FROM generate_series(1, 3000) i;
        INSERT INTO big SELECT i, 0, repeat(md5(i::text), 200) FROM generate_series(1, 300) i""")
    lock = open_session(source, "SELECT 1 FROM t WHERE id % 20 < 4 FOR KEY SHARE")

    def changes(n):
        return f"""UPDATE t SET v = 'new{n}' WHERE id % 20 = {n}; DELETE FROM parts WHERE id % 20 = {n};
            UPDATE loose SET v = 'new{n}' WHERE id % 20 = {n}; DELETE FROM loose WHERE id % 20 = {n} AND id % 3 = 0;
            UPDATE big SET n = {n} WHERE id % 20 = {n}; UPDATE big SET v = repeat('z', 9000) WHERE id % 40 = {n};
            DELETE FROM big WHERE id % 60 = {n}; UPDATE parts SET v = 'moved', id = id + 10000 WHERE id % 20 = {10 + n};
            INSERT INTO big SELECT 1000 + i, {n}, repeat('n', 9000) FROM generate_series({n} * 10, {n} * 10 + 5) i"""

    sessions = []
    for n in range(4):
        session = open_session(source, changes(n))
        with session.cursor() as cursor:
            cursor.execute(f"SAVEPOINT a; DELETE FROM t WHERE id % 20 = {n + 4}; INSERT INTO t SELECT i, 'again{n}' "
                           f"FROM generate_series({n + 4}, 1000, 20) i; UPDATE t SET id = id + 10000 "
                           f"WHERE id % 20 = {n + 8}; SAVEPOINT b; DELETE FROM t WHERE id % 20 = {n + 12}")
            cursor.execute("ROLLBACK TO b")
        sessions.append(session)
    for n in (2, 3):
        with sessions[n].cursor() as cursor:
            cursor.execute(f"PREPARE TRANSACTION 'p{n}'")
    lock.rollback()
    source.app("CHECKPOINT")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    daemon.wait_caught_up()
    parity.assert_equal(source, daemon)
    daemon.kill()
    daemon.start().wait_state("streaming")
    daemon.wait_caught_up()
    parity.assert_equal(source, daemon)
    source.app("UPDATE t SET v = v || '+' WHERE id % 20 >= 16; UPDATE big SET n = n + 1 WHERE id % 20 >= 16")
    with sessions[0].cursor() as cursor:
        cursor.execute("UPDATE t SET v = v || ' later' WHERE id % 40 = 0; DELETE FROM big WHERE id >= 1002 AND id < 1010;"
                       "UPDATE parts SET id = id - 10000 WHERE id > 10000 AND id % 40 = 10")
    daemon.wait_caught_up()
    parity.assert_equal(source, daemon)
    daemon.stop()
    sessions[0].commit()
    daemon.start().wait_state("streaming")
    sessions[1].rollback()
    daemon.wait_caught_up()
    parity.assert_equal(source, daemon)
    assert "transactions that were open or prepared during the initial load" in daemon.status()["waiting_on"]
    source.sql("COMMIT PREPARED 'p2'", dbname="app")
    daemon.wait_caught_up()
    daemon.kill()
    source.sql("ROLLBACK PREPARED 'p3'", dbname="app")
    source.app("DELETE FROM parts WHERE id % 3 = 0")
    daemon.start().wait_state("streaming")
    daemon.wait_caught_up()
    parity.assert_equal(source, daemon)
    wait_until(lambda: not os.path.exists(os.path.join(daemon.state_dir, "load_undecided")), 30, "nothing waits any more")
    source.app("INSERT INTO t SELECT i, 'back' FROM generate_series(1, 3000) i ON CONFLICT (id) DO UPDATE SET v = t.v || '!';"
               "DELETE FROM loose WHERE id % 2 = 0; UPDATE big SET n = -1")
    parity.assert_equal(source, daemon)
    daemon.stop()
    daemon.start().wait_state("streaming")
    parity.assert_equal(source, daemon)
    log = daemon.log_text()
    assert log.count("msg=\"load begins\"") == 1 and "copied again" not in log


def test_copies_wait_for_transactions_older_than_the_load(source, daemons):
    """What such a transaction changed before the backup is in no stream, so a snapshot that does not see
    its end is not enough: a copy of its tables waits for it, one of other tables does not."""
    for name in ("t", "loose", "other"):
        key = "PRIMARY KEY" if name != "loose" else ""
        source.app(f"CREATE TABLE {name} (id int {key}, v text);"
                   f"INSERT INTO {name} SELECT i, 'old' FROM generate_series(1, 2000) i")
    writer = open_session(source, "DELETE FROM t WHERE id % 20 = 1; UPDATE t SET v = 'new' WHERE id % 20 = 2;"
                          "DELETE FROM loose WHERE id % 20 = 1; UPDATE loose SET v = 'new' WHERE id % 20 = 2;"
                          "SELECT count(*) FROM other")
    source.app("CHECKPOINT")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    asked = [threading.Thread(target=daemon.verb, args=("resync", f"public.{name}")) for name in ("t", "loose")]
    for thread in asked:
        thread.start()
    assert daemon.verb("resync", "public.other").returncode == 0
    with writer.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (5001, 'late'); DELETE FROM t WHERE id % 20 = 3")
    for name in ("t", "loose"):
        wait_until(lambda: any(f'table="public.{name}"' in line and "older than the initial load" in line
                               for line in daemon.log_text().split("\n")), 30, "the copy waits")
    assert all(thread.is_alive() for thread in asked)
    writer.commit()
    for thread in asked:
        thread.join(60)
        assert not thread.is_alive()
    parity.assert_equal(source, daemon)


def test_rows_that_are_dead_locked_or_unhinted(source, daemons):
    """Aborted inserts, deleted and updated rows without hint bits, lockers alone and together, frozen
    rows, HOT chains and line pointers that redirect."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text, n int) WITH (autovacuum_enabled = off)")
    source.app("CREATE TABLE frozen (id int PRIMARY KEY, v text)")
    source.app("INSERT INTO frozen SELECT i, 'f' FROM generate_series(1, 5000) i")
    source.app("VACUUM (FREEZE) frozen")
    source.app("INSERT INTO t SELECT i, 'v', 0 FROM generate_series(1, 5000) i")
    source.app("UPDATE t SET n = 1 WHERE id % 3 = 0")
    source.app("UPDATE t SET n = 2 WHERE id % 9 = 0")
    source.app("VACUUM t")
    source.app("DELETE FROM t WHERE id % 7 = 0")
    with source.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO t SELECT i, 'aborted', 0 FROM generate_series(10001, 12000) i")
        cursor.execute("UPDATE t SET v = 'aborted' WHERE id % 11 = 0")
        cursor.execute("DELETE FROM t WHERE id % 13 = 0")
        session.rollback()
    lockers = [source.connect(autocommit=False) for _ in range(2)]
    for locker in lockers:
        with locker.cursor() as cursor:
            cursor.execute("SELECT 1 FROM t WHERE id % 17 = 0 FOR SHARE")
    source.app("CHECKPOINT")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    for locker in lockers:
        locker.rollback()
    parity.assert_equal(source, daemon)


def open_session(pg, text, dbname="app"):
    session = pg.connect(dbname, autocommit=False)
    with session.cursor() as cursor:
        cursor.execute(text)
    return session


@pytest.mark.majors
@pytest.mark.parametrize("major", [15, pytest.param(16, marks=pytest.mark.slow),
                                   pytest.param(17, marks=pytest.mark.slow), 18])
def test_rows_changed_while_others_lock_them(sources, daemons, major):
    """Updaters and deleters in multixacts: over before the load, open during it, one prepared; members in
    the backup's files and in the window's records; keyed and keyless."""
    pg = sources(major)
    for table, key in (("t", "PRIMARY KEY"), ("loose", "")):
        pg.app(f"CREATE TABLE {table} (id int {key}, v text) WITH (autovacuum_enabled = off);"
               f"CREATE INDEX ON {table} (v);"  # no HOT: old versions stay
               f"INSERT INTO {table} SELECT i, 'old' FROM generate_series(1, 900) i")

    def both(text, low, high):
        return "".join(text.format(t=t, rows=f"id BETWEEN {low} AND {high}") + ";" for t in ("t", "loose"))

    update, delete = "UPDATE {t} SET v = 'new' WHERE {rows}", "DELETE FROM {t} WHERE {rows}"
    share = "SELECT 1 FROM {t} WHERE {rows} FOR KEY SHARE"
    self_locked = share + "; SAVEPOINT a; " + delete  # lock and delete by one transaction: members too
    locker = open_session(pg, both(share, 1, 600))
    open_session(pg, both(update, 1, 100)).commit()
    open_session(pg, both(update, 101, 200)).rollback()
    open_session(pg, both(self_locked, 601, 640)).commit()
    open_session(pg, both(self_locked, 641, 680)).rollback()
    undone = open_session(pg, both(self_locked, 681, 700))
    with undone.cursor() as cursor:
        cursor.execute("ROLLBACK TO a")
    undone.commit()
    commits = open_session(pg, both(update, 201, 300) + both(self_locked, 701, 740))
    aborts = open_session(pg, both(update, 301, 400) + both(self_locked, 741, 780))
    prepared = open_session(pg, both(update, 401, 500) + "PREPARE TRANSACTION 'gid'")
    prepared.commit()
    # Rows of an open transaction that has locked and changed them itself.
    own = open_session(pg, both("INSERT INTO {t} SELECT i, 'own' FROM generate_series(1000, 1100) i", 1, 1))
    with own.cursor() as cursor:
        cursor.execute("SAVEPOINT a;" + both(share, 1000, 1040) + "SAVEPOINT b;" + both(update, 1000, 1020)
                       + both(delete, 1021, 1040) + "SAVEPOINT c;" + both(delete, 1041, 1050) + "ROLLBACK TO c")
    locker.commit()
    pg.app("CHECKPOINT")
    daemon = daemons(pg).start()
    daemon.wait_status(lambda s: s["state"] in ("bootstrapping", "streaming"), what="load begins")
    late = open_session(pg, both(share, 501, 600))
    open_session(pg, both(update, 501, 550)).commit()
    daemon.wait_state("streaming")
    commits.commit()
    aborts.rollback()
    pg.app("COMMIT PREPARED 'gid'")
    own.commit()
    late.commit()
    parity.assert_equal(pg, daemon)
    assert all(t["state"] == "streaming" for t in daemon.status()["tables"])


def test_upserts_caught_half_done(source, daemons):
    """Rows on a page between an INSERT … ON CONFLICT's insert and its confirmation: confirmed, taken back
    or rolled back, within the load and after it; a function in the index holds them there."""
    source.app("""
        CREATE FUNCTION slow(code text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN -- the first call looks for conflicts, the second is after the row was put on its page
            IF current_setting('app.stop_at', true) = '2' THEN
                PERFORM set_config('app.stop_at', '0', false);
                PERFORM pg_advisory_lock(current_setting('app.lock')::int);
                PERFORM pg_advisory_unlock(current_setting('app.lock')::int);
            ELSIF current_setting('app.stop_at', true) = '1' THEN
                PERFORM set_config('app.stop_at', '2', false);
            END IF;
            RETURN code;
        END $$;
        CREATE TABLE t (code text NOT NULL, v text) WITH (autovacuum_enabled = off);
        CREATE TABLE loose (code text, v text) WITH (autovacuum_enabled = off);
        CREATE UNIQUE INDEX t_slow ON t (slow(code));
        CREATE UNIQUE INDEX loose_slow ON loose (slow(code));
        ALTER TABLE t ADD PRIMARY KEY (code); -- its index comes after the slow one
    """)
    gates = source.connect()
    with gates.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(1), pg_advisory_lock(2)")
    held = []
    for n, (table, end) in enumerate((t, e) for t in ("t", "loose") for e in ("commit", "conflict", "rollback")
                                     for _ in range(2)):
        session = source.connect(autocommit=False)
        thread = threading.Thread(target=_upsert, args=(session, table, f"k{n}", n % 2 + 1, end), daemon=True)
        thread.start()
        held.append(thread)
    wait_until(lambda: source.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
               == [(len(held),)], 20, "upserts do not wait")
    for n in (2, 3, 8, 9):  # these will find the conflict when they go on
        source.app(f"SET statement_timeout = '10s'; INSERT INTO {'t' if n < 6 else 'loose'} VALUES ('k{n}', 'won')")
    source.app("CHECKPOINT")
    source.pgbench_init(3)  # the load takes a moment
    daemon = daemons(source).start()
    daemon.wait_status(lambda s: s["state"] in ("bootstrapping", "streaming"), what="load begins")
    with gates.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(1)")
        daemon.wait_state("streaming")
        time.sleep(0.5)
        cursor.execute("SELECT pg_advisory_unlock(2)")
    for thread in held:
        thread.join(20)
        assert not thread.is_alive()
    assert source.app("SELECT count(*), count(*) FILTER (WHERE v = 'won') FROM t") == [(4, 2)]
    parity.assert_equal(source, daemon)


def _upsert(session, table, code, lock, end):
    with session.cursor() as cursor:
        cursor.execute(f"SET app.lock = '{lock}'; SET app.stop_at = '1';"
                       f"INSERT INTO {table} VALUES ('{code}', 'mine') ON CONFLICT DO NOTHING")
    session.rollback() if end == "rollback" else session.commit()
    session.close()


# access/htup_details.h
XMIN_HINTS, MOVED_OFF, MOVED_IN = 0x0300, 0x4000, 0x8000


def test_rows_moved_by_an_old_vacuum(source, daemons):
    """HEAP_MOVED_OFF and HEAP_MOVED_IN as servers before 9.0 left them, written into the file of a
    stopped server; the server's own reading is the referee."""
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)")
    source.app("INSERT INTO t SELECT i, 'r' || i FROM generate_series(1, 60) i")
    commits = int(source.app("SELECT pg_current_xact_id()::text")[0][0])
    aborts = open_session(source, "SELECT pg_current_xact_id()")
    with aborts.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text")
        aborted = int(cursor.fetchone()[0])
    aborts.rollback()
    path = os.path.join(source.data, source.app("SELECT pg_relation_filepath('t')")[0][0])
    source.stop()
    with open(path, "r+b") as f:
        page = bytearray(f.read(8192))
        for line in range(1, 61):
            at = struct.unpack_from("<I", page, 24 + 4 * (line - 1))[0] & 0x7FFF
            (mask,) = struct.unpack_from("<H", page, at + 20)
            moved = (0, MOVED_OFF, MOVED_IN)[line % 3]
            hint = (0, 0x0100, 0x0200)[line // 12 % 3]
            struct.pack_into("<H", page, at + 20, mask & ~XMIN_HINTS | moved | hint)
            if moved:
                struct.pack_into("<I", page, at + 8, (commits, aborted)[line // 3 % 2])
        f.seek(0)
        f.write(page)
    source.start()
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    assert 15 < source.app("SELECT count(*) FROM t WHERE v IS NOT NULL")[0][0] < 45
    source.app("INSERT INTO t VALUES (1000, 'after')")
    parity.assert_equal(source, daemon)


@pytest.mark.slow
def test_many_tables(source, daemons):
    """1,500 tables, with and without key, some of them empty."""
    for first in range(0, 1500, 100):
        source.app("".join(f"CREATE TABLE t{n} (id int {'PRIMARY KEY' if n % 2 else ''}, v text);"
                           f"INSERT INTO t{n} SELECT i, 'v' || i * {n} FROM generate_series(1, {n % 7}) i;"
                           for n in range(first, first + 100)))
    daemon = daemons(source).start()
    daemon.wait_state("streaming", 600)
    source.app("".join(f"INSERT INTO t{n} VALUES (-{n}, 'after');" for n in range(0, 1500, 3)))
    daemon.wait_caught_up()
    wrong = []
    for first in range(0, 1500, 100):
        names = range(first, first + 100)
        found = daemon.sql(" UNION ALL ".join(
            f"SELECT {n} n, count(), ifNull(sum(id), 0), groupBitXor(CRC32(ifNull(v, ''))) FROM app.t{n}" for n in names)
            + " ORDER BY n")
        for n, count, total, crc in ([int(x) for x in row] for row in found):
            rows = [(i, f"v{i * n}") for i in range(1, n % 7 + 1)] + ([(-n, "after")] if n % 3 == 0 else [])
            want = 0
            for _, v in rows:
                want ^= zlib.crc32(v.encode())
            if (count, total, crc) != (len(rows), sum(i for i, _ in rows), want):
                wrong.append((n, count, total))
    assert not wrong


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_segments(sources, daemons):
    """A table of three segment files, under writers from before the load until after it."""
    pg = sources(15, {"max_wal_size": "8GB"})
    pg.app("CREATE TABLE wide (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off);"
           "INSERT INTO wide SELECT i, repeat(md5(i::text), 40) FROM generate_series(1, 2000000) i")
    assert pg.app("SELECT pg_relation_size('wide') > 2::int8 << 30") == [(True,)]
    script = os.path.join(pg.base, "script.sql")
    with open(script, "w") as f:
        f.write("\\set i random(1, 2000000)\nUPDATE wide SET v = 'changed' WHERE id = :i;\n"
                "DELETE FROM wide WHERE id = :i + 1;\n")
    writers = pg.pgbench(clients=2, script=script)
    # the comparison reads all rows in one query, which may use half of it
    daemon = daemons(pg, config={"destination": {"default": {"memory_max": "3GiB"}}}).start()
    daemon.wait_state("streaming", 600)
    writers.stop()
    daemon.wait_caught_up(600)
    rows = pg.app("SELECT count(*), sum(id), count(*) FILTER (WHERE v = 'changed'),"
                  " sum(id) FILTER (WHERE v = 'changed') FROM wide")[0]
    found = daemon.sql("SELECT count(), sum(id), countIf(v = 'changed'), sumIf(id, v = 'changed'),"
                       " countIf(v != 'changed' AND v != repeat(lower(hex(MD5(toString(id)))), 40)) FROM app.wide")
    assert [int(x) for x in found[0]] == [int(x) for x in rows] + [0]
    assert int(rows[2]) > 100


def test_tablespaces(source, daemons):
    """Rows in another tablespace are loaded; the shadow never touches the source's directories."""
    space = os.path.join(source.base, "space")
    os.mkdir(space)
    from lib.process import give_to_server_user
    give_to_server_user(space)
    source.sql(f"CREATE TABLESPACE elsewhere LOCATION '{space}'")
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text) TABLESPACE elsewhere")
    source.app("CREATE UNLOGGED TABLE u (id int) TABLESPACE elsewhere")
    source.app("INSERT INTO t SELECT i, 'x' || i FROM generate_series(1, 30000) i")
    source.app("INSERT INTO u SELECT generate_series(1, 100)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("INSERT INTO t SELECT i, 'y' FROM generate_series(30001, 30100) i")
    daemon.wait_caught_up()
    connection = source.connect()
    tables = [t for t in parity.source_tables(connection) if t.name == "t"]
    difference = parity.compare_table(connection, daemon, tables[0])
    assert not difference, str(difference)
    assert source.app("SELECT count(*) FROM u") == [(100,)]


def test_other_databases(source, daemons):
    """WAL of other databases, their creation and removal included, passes by."""
    source.create_app("noise")
    source.pgbench_init(1, "noise")
    noise = source.pgbench(dbname="noise", clients=2)
    source.app("CREATE TABLE t (id int PRIMARY KEY, v text);"
               "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 1000) i")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.sql("CREATE DATABASE copied TEMPLATE template0 STRATEGY wal_log")
    source.sql("CREATE DATABASE copied2 TEMPLATE template0 STRATEGY file_copy")
    source.sql("CREATE TABLE t (id int); INSERT INTO t VALUES (1); TRUNCATE t", dbname="copied")
    source.sql("VACUUM FULL pg_class", dbname="copied")
    source.sql("DROP DATABASE copied")
    source.sql("DROP DATABASE copied2")
    source.app("INSERT INTO t VALUES (5000, 'after')")
    noise.stop()
    parity.assert_equal(source, daemon)
    assert [t["name"] for t in daemon.status()["tables"]] == ["public.t"]


def test_quiet_database_lets_the_slot_advance(source, daemons):
    """Nothing happens in our database while another one writes: ack, floor and slot still move."""
    source.create_app("noise")
    source.app("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    slot = daemon.status()["source"]["slot"]
    query = "SELECT restart_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    before = source.sql(query, (slot,))[0][0]
    source.sql("CREATE TABLE big (v text)", dbname="noise")

    def moved():
        source.sql("INSERT INTO big SELECT repeat(md5(i::text), 30) FROM generate_series(1, 3000) i",
                   dbname="noise")
        source.sql("CHECKPOINT")
        return source.sql(query, (slot,))[0][0] > before + 32 * 1024 * 1024

    wait_until(moved, 90, lambda: f"slot stays: {daemon.status()}", 0.5)


def test_what_cannot_be_copied_is_named(source, daemons):
    """A table that cannot be exact is skipped or stopped with a reason; the others go on."""
    source.app("""
        CREATE TABLE fine (id int PRIMARY KEY, v text);
        CREATE TABLE grants (id int PRIMARY KEY, g aclitem[]);
        CREATE TABLE toasted (id int PRIMARY KEY, v text);
        CREATE UNLOGGED TABLE volatile (id int PRIMARY KEY);
        CREATE TABLE named (id int PRIMARY KEY, _lsn bigint);
        INSERT INTO fine SELECT i, 'x' FROM generate_series(1, 100) i;
        INSERT INTO grants VALUES (1, '{postgres=r/postgres}');
        INSERT INTO toasted SELECT i, (SELECT string_agg(md5((i * j)::text), '') FROM
            generate_series(1, 300) j) FROM generate_series(1, 10) i;
    """)
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("INSERT INTO fine VALUES (101, 'after'); INSERT INTO grants VALUES (2, '{}');"
               "UPDATE toasted SET id = id + 100")
    daemon.wait_caught_up()
    states = {t["name"]: t for t in daemon.status()["tables"]}
    assert states["public.fine"]["state"] == "streaming"
    assert states["public.grants"]["state"] == "skipped"
    assert "aclitem" in states["public.grants"]["reason"]
    assert states["public.toasted"]["state"] == "streaming"
    assert states["public.named"]["state"] == "skipped"
    assert "_lsn" in states["public.named"]["reason"]
    assert "volatile" in daemon.log_text()
    connection = source.connect()
    for table in parity.source_tables(connection):
        if table.name in ("fine", "toasted"):
            difference = parity.compare_table(connection, daemon, table)
            assert not difference, str(difference)


def test_what_is_not_replicated_is_not_copied_again(source, daemons):
    """A materialized view gets a new file with every refresh, also by a transaction that was open when
    the load began."""
    source.app("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);"
               "CREATE MATERIALIZED VIEW mv AS SELECT * FROM t")
    connection = source.connect(autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (2)")  # open when the load begins
        daemon = daemons(source).start()
        daemon.wait_status(lambda s: s["bootstrap"]["bytes_done"] > 0)
        cursor.execute("REFRESH MATERIALIZED VIEW mv")
        connection.commit()
    daemon.wait_state("streaming")
    source.app("REFRESH MATERIALIZED VIEW mv")
    daemon.wait_caught_up()
    states = {t["name"]: t for t in daemon.status()["tables"]}
    assert states["public.mv"]["state"] == "skipped", states["public.mv"]
    assert "materialized view" in states["public.mv"]["reason"]
    assert "copied again" not in daemon.log_text()
    parity.assert_equal(source, daemon)


def test_load_reports_progress(source, daemons):
    source.pgbench_init(10)
    daemon = daemons(source).start()
    seen = []

    def done(status):
        if status["state"] == "bootstrapping" and status["bootstrap"]["bytes_total"]:
            seen.append(status["bootstrap"])
        return status["state"] == "streaming"

    daemon.wait_status(done, 180, "load")
    assert seen, "the load was never seen at work"
    assert all(s["bytes_done"] <= s["bytes_total"] * 1.1 for s in seen)
    assert [s["bytes_done"] for s in seen] == sorted(s["bytes_done"] for s in seen)
    parity.assert_equal(source, daemon)


def test_user_rows_never_reach_the_shadow(source, daemons):
    """No byte of a user's row lies in the shadow's data directory or in the filtered WAL."""
    secret = "c0ffee-marker-" + "x" * 40
    source.app(f"CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, '{secret}')")
    source.app("VACUUM FREEZE t")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app(f"INSERT INTO t VALUES (2, '{secret}'); UPDATE t SET v = v || '{secret}'")
    source.sql("SELECT pg_switch_wal(); CHECKPOINT")
    daemon.wait_caught_up()
    found = []
    for part in ("shadow", "wal"):
        for folder, _, names in os.walk(os.path.join(daemon.state_dir, part)):
            for name in names:
                try:
                    with open(os.path.join(folder, name), "rb") as f:
                        if secret.encode() in f.read():
                            found.append(os.path.join(folder, name))
                except OSError:
                    continue
    assert not found
    parity.assert_equal(source, daemon)
