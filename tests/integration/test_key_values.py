"""Key values that their column's target cannot hold: the column becomes String, every row is there."""

from lib.process import wait_until
from test_resync import assert_equal, settle


def column_type(daemon, table, column):
    return daemon.sql(f"SELECT type FROM system.columns WHERE database = 'app' AND table = '{table}' AND name = '{column}'")[0][0]


def test_key_becomes_text(source, daemons):
    source.app("CREATE TABLE dated (d date, n int, v text, PRIMARY KEY (d, n)); CREATE TABLE stamped (at timestamptz PRIMARY KEY, v text);"
               "CREATE TABLE part (d date, n int, v text, PRIMARY KEY (d, n)) PARTITION BY LIST (n);"
               "CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1, 2); CREATE TABLE part_2 PARTITION OF part DEFAULT;"
               "CREATE TABLE given (d date PRIMARY KEY, v text);"
               "INSERT INTO dated SELECT date '2020-01-01' + i, i, 'v' FROM generate_series(1, 300) i;"
               "INSERT INTO part SELECT date '2020-01-01' + i, i % 4, 'v' FROM generate_series(1, 300) i;"
               "INSERT INTO stamped VALUES ('2020-01-01 00:00:00.123456Z', 'a'), ('20000-01-01', 'far'), ('infinity', 'never');"
               "INSERT INTO given VALUES ('2020-01-01', 'a')")
    daemon = daemons(source, config={"table": {"public": {"given": {
        "columns": [{"attnum": 1, "type": "Date32"}, {"attnum": 2}]}}}}).start()
    daemon.wait_state("streaming")
    daemon.wait_caught_up()
    settle(daemon)  # of the load
    assert column_type(daemon, "stamped", "at") == "String" and column_type(daemon, "dated", "d") == "Date32"
    source.app("INSERT INTO dated VALUES ('0044-03-15 BC', 1, 'ides'); UPDATE dated SET v = 'w' WHERE n < 50;"
               "UPDATE dated SET d = '9999-12-31' WHERE n = 60; DELETE FROM dated WHERE n = 70;"
               "INSERT INTO part VALUES ('0044-03-15 BC', 3, 'ides'); UPDATE part SET n = 1 WHERE d < '0001-01-01'")
    daemon.wait_caught_up()
    settle(daemon)
    source.app("UPDATE dated SET v = 'again' WHERE d < '0001-01-01'; DELETE FROM dated WHERE n = 61; INSERT INTO dated VALUES ('infinity', 2, 'i');"
               "DELETE FROM stamped WHERE at = '20000-01-01'; UPDATE stamped SET at = '-infinity' WHERE v = 'never';"
               "DELETE FROM part WHERE n = 1 AND d > '2020-06-01'")
    daemon.wait_caught_up()
    assert_equal(source, daemon)
    assert column_type(daemon, "dated", "d") == column_type(daemon, "part", "d") == "String"

    daemon.kill()  # it stays so
    source.app("UPDATE dated SET v = 'later' WHERE n % 3 = 0; DELETE FROM dated WHERE d = 'infinity'")
    daemon.start().wait_state("streaming")
    source.app("ALTER TABLE dated ADD COLUMN w int DEFAULT 4; INSERT INTO dated VALUES ('0100-01-01 BC', 5, 'x', 6);"
               "ALTER TABLE dated ALTER v TYPE varchar(100); ALTER TABLE part ALTER v TYPE bytea USING v::bytea; UPDATE part SET v = 'b' WHERE n = 0")
    daemon.wait_caught_up()
    assert_equal(source, daemon)
    assert column_type(daemon, "dated", "d") == column_type(daemon, "part", "d") == "String"
    assert daemon.log_text().count("holds a value its target cannot") <= 6  # once each, and in the lines of the status

    # of another type it is what is made of that one
    source.app("ALTER TABLE stamped ALTER at TYPE bigint USING 5 + length(v)")
    daemon.wait_caught_up()
    assert_equal(source, daemon)
    assert column_type(daemon, "stamped", "at") == "Int64"

    # a type that was asked for is a promise
    source.app("INSERT INTO given VALUES ('0044-03-15 BC', 'b')")
    daemon.wait_table("public.given", "stopped")
    assert "key column d holds a value its target cannot" in daemon.table("public.given")["reason"]
    assert daemon.status()["state"] == "streaming"
    source.app("INSERT INTO dated VALUES ('2026-01-01', 9, 'goes on', 1)")
    wait_until(lambda: daemon.sql("SELECT count() FROM app.dated WHERE v = 'goes on'") == [["1"]], 60, "the row")


def test_key_may_be_null(sources, daemons):
    """PostgreSQL 18 lets an index be the identity while its NOT NULL is NOT VALID: no key until it is validated."""
    source = sources(18)
    source.app("CREATE TABLE holes (k int, v int); INSERT INTO holes VALUES (NULL, 1), (NULL, 2), (NULL, 2), (0, 3), (4, 4);"
               "ALTER TABLE holes ADD CONSTRAINT whole NOT NULL k NOT VALID; CREATE UNIQUE INDEX holes_k ON holes (k);"
               "ALTER TABLE holes REPLICA IDENTITY USING INDEX holes_k;"
               "CREATE TABLE later (k int, v int); INSERT INTO later VALUES (NULL, 1), (2, 2)")
    daemon = daemons(source).start()
    daemon.wait_state("streaming")
    source.app("UPDATE holes SET k = 20, v = 7 WHERE ctid IN (SELECT ctid FROM holes WHERE v = 2 LIMIT 1);"
               "DELETE FROM holes WHERE v = 1; INSERT INTO holes VALUES (5, 5); UPDATE holes SET v = 6 WHERE k = 4;"
               "ALTER TABLE later ADD CONSTRAINT whole NOT NULL k NOT VALID; CREATE UNIQUE INDEX later_k ON later (k);"
               "ALTER TABLE later REPLICA IDENTITY USING INDEX later_k; UPDATE later SET v = 8 WHERE k = 2; INSERT INTO later VALUES (3, 3)")
    daemon.wait_caught_up()
    assert_equal(source, daemon)
    source.app("UPDATE holes SET k = 10 WHERE v = 7; DELETE FROM holes WHERE k IS NULL;"
               "ALTER TABLE holes VALIDATE CONSTRAINT whole; UPDATE holes SET v = v + 1; UPDATE holes SET k = 11 WHERE k = 10;"
               "DELETE FROM holes WHERE k = 4")
    daemon.wait_caught_up()
    assert_equal(source, daemon)
    key = daemon.sql("SELECT sorting_key FROM system.tables WHERE database = 'app' AND name = 'holes'")
    assert key[0][0].strip("()") == "k", key
