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
