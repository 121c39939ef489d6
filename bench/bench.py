"""The procedures behind script/bench; what each measures is in bench/README.md."""

import argparse
import datetime
import json
import logging
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(os.environ.get("WALSHADOW_TEST_ROOT") or pathlib.Path(__file__).parents[1])
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "bench")]
sys.dont_write_bytecode = True

import clickhouse_driver  # noqa: E402
from lib import paths  # noqa: E402
from lib.daemon import Daemon, lsn_value  # noqa: E402
from lib.engine import Engine  # noqa: E402
from lib.postgres import Postgres  # noqa: E402
from lib.process import children, free_port, make_dir, remove_dir, run  # noqa: E402
from native_sender import Sender, split_blocks  # noqa: E402

# The writers' sequences come with the table: what is measured later is rows, not DDL.
NARROW = "CREATE TABLE narrow (id bigint PRIMARY KEY, a int, b int, c bigint, d float8); " + "; ".join(
    f"CREATE SEQUENCE batch_{client} MINVALUE 0" for client in range(4))
TICK = os.sysconf("SC_CLK_TCK")
LATE_ROWS = 1000  # how far behind the newest row the latency benchmark's reader looks
BLOCK_ROWS = 8192  # narrow rows of a slice when there is much to do (src/pipeline/drain.c)

# The client tells of every connection refused while an engine starts.
logging.getLogger("clickhouse_driver").setLevel(logging.CRITICAL)


def say(text):
    print(text, flush=True)


def cpu_seconds(pid):
    """User and system time of a process with all its threads and the children it has waited for."""
    with open(f"/proc/{pid}/stat", "rb") as f:
        fields = f.read().rsplit(b")", 1)[1].split()
    return sum(map(int, fields[11:15])) / TICK


def below_cpu_seconds(pid):
    """The same of all processes below it."""
    total = 0.0
    for child in children(pid):
        try:
            total += cpu_seconds(child) + below_cpu_seconds(child)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended, its parent has its time
    return total


def timed(argv, **kwargs):
    """Wall and CPU seconds of a command (its children's included)."""
    before, started = os.times(), time.monotonic()
    done = run(argv, timeout=1800, **kwargs)
    after = os.times()
    cpu = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    return time.monotonic() - started, cpu, done


def best(function, times):
    """The run with the least wall time: noise only adds."""
    return min((function() for _ in range(times)), key=lambda r: r[0])


def log_seconds(text, first, last):
    """Between two messages of a daemon's log."""
    times = []
    for message in (first, last):
        stamp = re.search(rf'^ts=(\S+)Z level=info msg="{message}"', text, re.M).group(1)
        times.append(datetime.datetime.fromisoformat(stamp).timestamp())
    return times[1] - times[0]


def wait_merged(query):
    """Until the engine merges nothing more: how much of that lies within a run is chance else."""
    idle = 0
    while idle < 5:
        time.sleep(0.2)
        idle = 0 if int(query("SELECT count() FROM system.merges")[0][0]) else idle + 1


def fill_narrow(pg, rows, rounds=1, per_commit=1000):
    """Rows in transactions of a thousand, four writers; one of several rounds that go on where the last
    one ended."""
    quarter, room = rows // 4, rows * rounds // 4
    script = os.path.join(pg.base, "fill.sql")
    with open(script, "w") as f:
        f.write(
            "INSERT INTO narrow SELECT i, i::int, 7, i * 3, i / 7.0 FROM generate_series("
            f":client_id::bigint * {room} + nextval(('batch_' || :client_id)::regclass) * {per_commit},"
            f" :client_id::bigint * {room} + (currval(('batch_' || :client_id)::regclass) + 1) * {per_commit} - 1) i;\n"
        )
    run([paths.CLIENT_BIN / "pgbench", "-h", pg.base, "-p", pg.port, "-U", "postgres", "-n", "-c", 4,
         "-j", 2, "-t", quarter // per_commit, "-f", script, "app"], timeout=900)


class Bench:
    def __init__(self, quick):
        self.quick = quick
        self.rows = 400_000 if quick else 5_000_000
        self.results = {}

    def record(self, name, gate, ok, **values):
        self.results[name] = {"gate": gate, "ok": ok, **values}

    # -- walk -------------------------------------------------------------------------------

    def walk(self):
        """pg_waldump -q and walshadow filter over the same sealed segments."""
        with Postgres(15, {"max_wal_size": "8GB", "wal_keep_size": "8GB"}) as pg:
            pg.create_app()
            start = pg.lsn()
            pg.pgbench_init(5 if self.quick else 20)
            pg.pgbench("-M", "prepared", seconds=5 if self.quick else 20).wait(120)
            pg.app(NARROW)
            fill_narrow(pg, self.rows // 3)
            pg.sql("SELECT pg_switch_wal(); CHECKPOINT")
            first = pg.sql("SELECT pg_walfile_name(%s)", (start,))[0][0]
            last = pg.sql("SELECT pg_walfile_name(pg_current_wal_lsn())")[0][0]
            oid = pg.sql("SELECT oid FROM pg_database WHERE datname = 'app'")[0][0]
            folder = os.path.join(pg.data, "pg_wal")
            segments = sorted(n for n in os.listdir(folder)
                              if re.fullmatch(r"[0-9A-F]{24}", n) and first <= n < last)
            files = [os.path.join(folder, n) for n in segments]
            size = sum(os.path.getsize(f) for f in files)

            def waldump():
                return timed([paths.CLIENT_BIN / "pg_waldump", "-q", "-p", folder, segments[0], segments[-1]],
                             check=False)

            def walshadow():
                out = make_dir("ws-bench-")
                try:
                    return timed([paths.PLAIN_BIN, "filter", "--out-dir", out, "--database", oid,
                                  *(a for f in files for a in ("--in", f))])
                finally:
                    remove_dir(out)

            waldump()  # the files are in the page cache for both
            yard, ours = best(waldump, 3), best(walshadow, 3)
        ratio = ours[0] / yard[0]
        self.record("walk", "time ratio <= 3", ratio <= 3, ratio=ratio, mib=size / 2**20,
                    walshadow_mib_s=size / 2**20 / ours[0], waldump_mib_s=size / 2**20 / yard[0],
                    cpu_ratio=ours[1] / yard[1])

    # -- blocks and path --------------------------------------------------------------------

    def loaded(self, pg, destination, config=None):
        """A daemon that has loaded and is stopped: WAL written from now on is caught up with later."""
        daemon = Daemon(pg, destination, config)
        self.settle(daemon)
        return daemon

    def settle(self, daemon):
        daemon.start().wait_state("streaming")
        daemon.wait_caught_up()
        daemon.stop()

    def catch_up(self, pg, daemon, clocks, query=None):
        """Starts the daemon; wall from the first new byte to the last acknowledgement, and CPU, with query
        that of the merges behind it, too."""
        target = lsn_value(pg.lsn())
        daemon.start()
        begin = daemon.wait_status(lambda s: s["state"] == "streaming", 120)
        first = lsn_value(begin["ack_lsn"])
        started = time.monotonic()
        before = {name: clock(daemon) for name, clock in clocks.items()}
        daemon.wait_caught_up(900)
        wall = time.monotonic() - started
        if query:
            wait_merged(query)
        cpu = {name: clock(daemon) - before[name] for name, clock in clocks.items()}
        done = 1 - (first - self.start_lsn) / (target - self.start_lsn)
        return wall, cpu, max(0.0, min(1.0, done))

    def blocks(self):
        """WAL to Native blocks against pgoutput, and the same catch-up into the engine. What the source
        does of its own after so many rows is kept out of the measured times. Three rounds: of blocks the
        best on each side, of path the mean."""
        rounds = 1 if self.quick else 3
        with Postgres(15, {"max_wal_size": "8GB", "autovacuum": "off"}) as pg:
            pg.create_app()
            pg.app(NARROW + "; CREATE PUBLICATION p FOR TABLE narrow")
            null = self.loaded(pg, "null:")
            # A second daemon on the same source needs a slot of its own.
            engine = self.loaded(pg, "chdb:", {"source": {"slot": "walshadow_bench"}})
            try:
                pg.app("SELECT pg_create_logical_replication_slot('yardstick', 'pgoutput')")
                measured = [self.blocks_round(pg, null, engine, rounds) for _ in range(rounds)]
            finally:
                null.close()
                engine.close()
        least = {key: min(m[key] for m in measured) for key in measured[0]}
        ours, theirs = self.rows / least["wall"], self.rows / least["yard"]
        self.record("blocks", "rows/s >= 20 x pgoutput", ours >= 20 * theirs, ratio=ours / theirs,
                    aim="50 x, 2 M rows/s per core", rows_s_per_core=self.rows / least["daemon"],
                    rows=self.rows, rounds=rounds, walshadow_rows_s=ours, pgoutput_rows_s=theirs,
                    daemon_cpu_s=least["daemon"], shadow_cpu_s=least["shadow"],
                    shadow_behind_mb=round(least["behind"] / 1e6))
        # what is merged when differs from round to round, on both sides: no best, but the mean
        mean = {key: statistics.mean(m[key] for m in measured) for key in measured[0]}
        limit = mean["daemon"] + mean["memory_cpu"]
        self.record("path", "CPU ratio <= 1.25", mean["path_cpu"] <= 1.25 * limit,
                    ratio=mean["path_cpu"] / limit, cpu_s=mean["path_cpu"],
                    blocks_cpu_s=mean["daemon"], insert_cpu_s=mean["memory_cpu"],
                    engine_cpu_s=mean["path_engine"], wall_s=least["path_wall"],
                    wall_ratio=least["path_wall"] / (least["wall"] + least["memory_wall"]))

    def blocks_round(self, pg, null, engine, rounds):
        """Seconds for one round's rows, each catch-up brought to the whole number of them. Every round
        begins with empty tables: as little to merge for the first as for the last."""
        pg.app("TRUNCATE narrow")
        for daemon in (null, engine):
            self.settle(daemon)
        self.start_lsn = lsn_value(pg.lsn())
        fill_narrow(pg, self.rows, rounds)
        end = pg.lsn()
        pg.app("SELECT txid_current()")  # something after the end position
        pg.app("CHECKPOINT")
        os.sync()
        own = {"daemon": lambda d: cpu_seconds(d.process.pid)}
        below = {"shadow": lambda d: below_cpu_seconds(d.process.pid)}
        wall, cpu, share = self.catch_up(pg, null, {**own, **below})
        behind = lsn_value(pg.lsn()) - lsn_value(null.status()["shadow"]["replay_lsn"])
        null.stop()
        yard = timed([paths.CLIENT_BIN / "pg_recvlogical", "-h", pg.base, "-p", pg.port, "-U",
                      "postgres", "-d", "app", "-S", "yardstick", "--start", "-f", "/dev/null",
                      "-E", end, "-o", "proto_version=1", "-o", "publication_names=p", "--no-loop"])
        both = {**own, "engine": lambda d: cpu_seconds(d.engine_pid())}
        path_wall, path_cpu, path_share = self.catch_up(pg, engine, both, engine.sql)
        memory = self.insert_from_memory(engine)
        engine.stop()
        return {"wall": wall / share, "daemon": cpu["daemon"] / share, "shadow": cpu["shadow"] / share,
                "behind": behind, "yard": yard[0], "path_wall": path_wall / path_share,
                "path_cpu": sum(path_cpu.values()) / path_share,
                "path_engine": path_cpu["engine"] / path_share,
                "memory_wall": memory["wall"], "memory_cpu": memory["cpu"]}

    path = blocks

    def insert_from_memory(self, daemon):
        """The rows the engine holds, dumped as Native blocks and inserted again from memory: blocks
        and INSERTs of the sizes that the daemon has made."""
        counts = daemon.status()["destinations"][0]
        per_insert = counts["rows"] / counts["inserts"]
        dump = daemon.verb("sql", "--raw", "--format", "Native", "SELECT * FROM app.narrow",
                           text=False, timeout=600).stdout
        blocks = split_blocks(dump, BLOCK_ROWS)
        names = daemon.sql("SELECT name FROM system.columns WHERE database = 'app' AND table = 'narrow' "
                           "ORDER BY position")
        create = daemon.sql("SELECT create_table_query FROM system.tables WHERE database = 'app' "
                            "AND name = 'narrow'")[0][0].replace("\\'", "'").replace("\\n", "\n")
        statement = "INSERT INTO app.narrow (" + ", ".join(f"`{n[0]}`" for n in names) + ") VALUES"
        settings = [("async_insert", "0"), ("optimize_on_insert", "0")]
        with Engine() as engine:
            engine.query("CREATE DATABASE app")
            engine.query(re.sub(r" COMMENT '[^']*'$", "", create))
            sender = Sender(engine.port, "app")
            before, own = cpu_seconds(engine.process.pid), time.process_time()
            started = time.monotonic()
            batch, sent, inserts = [], 0, 0
            for rows, block in blocks:
                batch.append(block)
                sent += rows
                if sent >= (inserts + 1) * per_insert or block is blocks[-1][1]:
                    sender.insert(statement, batch, settings)
                    inserts += 1
                    batch = []
            wall = time.monotonic() - started
            own = time.process_time() - own
            wait_merged(engine.query)
            cpu = cpu_seconds(engine.process.pid) - before + own
        return {"wall": wall, "cpu": cpu}

    # -- backup -----------------------------------------------------------------------------

    def backup(self):
        """Rows of 1 kB, and pgbench's, whose walk is mostly rows, not bytes."""
        rows = 250_000 if self.quick else 1_900_000

        def fill_wide(pg):
            pg.app("CREATE TABLE wide (id int, v text); INSERT INTO wide SELECT i, repeat(md5(i::text), 31) "
                   f"FROM generate_series(1, {rows}) i")
            pg.app("VACUUM FREEZE wide")

        self.backup_of("1kb", 1.5, fill_wide)
        self.backup_of("pgbench", 4, lambda pg: pg.pgbench_init(15 if self.quick else 135))

    def backup_of(self, name, aim, fill):
        limits = {"resident_payload_max": "128MiB", "inline_value_max": "16MiB"}
        with Postgres(15, {"max_wal_size": "8GB"}) as pg:
            pg.create_app()
            fill(pg)
            pg.sql("CHECKPOINT")
            size = pg.sql("SELECT sum(pg_database_size(oid)) FROM pg_database")[0][0]

            def basebackup():
                started = time.monotonic()
                with open("/dev/null", "wb") as null:
                    subprocess.run([paths.CLIENT_BIN / "pg_basebackup", "-h", pg.base, "-p",
                                    str(pg.port), "-U", "postgres", "-D", "-", "-Ft", "-X", "none", "-c",
                                    "fast", "--no-manifest"], check=True, stdout=null)
                return (time.monotonic() - started,)

            basebackup()
            yard = best(basebackup, 3)[0]

            def load():
                with Daemon(pg, "null:", {"memory": limits}) as daemon:
                    daemon.start()
                    daemon.wait_status(lambda s: s["state"] == "bootstrapping", 60)
                    started = time.monotonic()
                    status = daemon.wait_state("streaming", 900)
                    wall = time.monotonic() - started
                    walk = log_seconds(daemon.log_text(), "load begins", "pages walked")
                    cpu, peak = cpu_seconds(daemon.process.pid), daemon.peak_rss_bytes()
                    daemon.stop()
                    pg.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
                return wall, walk, cpu, peak, status["bootstrap"]["rows"]

            ours, walk, cpu, peak, loaded = best(load, 1 if self.quick else 3)
        good = ours <= aim * yard and peak < 300e6
        self.record(f"backup_{name}", f"<= {aim:g}, peak < 300 MB", good, ratio=ours / yard,
                    mib=float(size) / 2**20, walshadow_s=ours, walk_s=walk, cpu_s=cpu, pg_basebackup_s=yard,
                    peak_mb=peak / 1e6, rows=loaded)

    # -- latency ----------------------------------------------------------------------------

    def latency(self):
        for rate in (1000, 10000):
            self.latency_at(rate)

    def latency_at(self, rate):
        port = free_port()
        seconds = 10 if self.quick else 30
        with Postgres(15) as pg:
            pg.create_app()
            pg.app("CREATE TABLE lat (id bigserial PRIMARY KEY, at timestamptz, v text)")
            script = os.path.join(pg.base, "lat.sql")
            with open(script, "w") as f:
                f.write("INSERT INTO lat (at, v) SELECT clock_timestamp(), 'x' FROM generate_series(1, 10);\n")
            config = {"destination": {"default": {"listen": f"127.0.0.1:{port}"}}}
            with Daemon(pg, "chdb:", config) as daemon:
                daemon.start().wait_state("streaming")
                load = pg.pgbench("-M", "prepared", seconds=seconds + 4, clients=4, rate=rate // 10,
                                  script=script)
                delays, first, last = self.watch(port, seconds)
                load.wait(60)
                daemon.wait_caught_up()
                rows = int(daemon.sql("SELECT count() FROM app.lat "
                                      f"WHERE id > {first} AND id <= {last}")[0][0])
                daemon.stop()
        assert len(delays) >= 0.99 * rows, f"the reader missed {rows - len(delays)} of {rows} rows"
        delays.sort()
        p50, p95, p99 = (delays[int(len(delays) * q)] * 1000 for q in (0.5, 0.95, 0.99))
        gate = rate == 10000
        self.record(f"latency_{rate}", "p95 <= 100 ms" if gate else "printed", not gate or p95 <= 100,
                    p50_ms=p50, p95_ms=p95, p99_ms=p99, max_ms=delays[-1] * 1000,
                    rows_s=len(delays) / seconds, polls_mean_ms=statistics.mean(self.polls) * 1000)

    def watch(self, port, seconds):
        """Seconds from each row's insert to the first query that shows it; the ids watched. Rows become
        visible nearly in the order of their ids: a query asks for those behind the newest, and a few
        before them that may have been late. To ask for more would be a load of its own."""
        client = clickhouse_driver.Client("127.0.0.1", port=port)
        delays, seen, self.polls = [], set(), []
        newest = first = 0
        time.sleep(2)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            begun = time.monotonic()
            rows = client.execute("SELECT id, toUnixTimestamp64Micro(at) FROM app.lat "
                                  f"WHERE id > {newest - LATE_ROWS if newest else 0}")
            now = time.time()
            self.polls.append(time.monotonic() - begun)
            fresh = [(i, at) for i, at in rows if i > first and i not in seen]
            if newest:
                delays += [now - at / 1e6 for _, at in fresh]
            seen.update(i for i, _ in fresh)
            if rows:
                newest = max(newest, max(i for i, _ in rows))
                first = first or newest  # what was there at the first look is not measured
            time.sleep(0.002)
        return delays, first, newest

    # -- memory -----------------------------------------------------------------------------

    def memory(self):
        rows = 200_000 if self.quick else 2_000_000
        limits = {"resident_payload_max": "128MiB", "inline_value_max": "16MiB"}
        with Postgres(15, {"max_wal_size": "8GB"}) as pg:
            pg.create_app()
            pg.app("CREATE TABLE big (id int, v text)")
            with Daemon(pg, "null:", {"memory": limits}) as daemon:
                daemon.start().wait_state("streaming")
                before = lsn_value(pg.lsn())
                started = time.monotonic()
                pg.app("INSERT INTO big SELECT i, repeat(md5(i::text), 30) FROM "
                       f"generate_series(1, {rows}) i")
                size = lsn_value(pg.lsn()) - before
                daemon.wait_caught_up(900)
                wall = time.monotonic() - started
                peak = daemon.peak_rss_bytes()
                daemon.stop()
        self.record("memory", "peak < 300 MB", peak < 300e6, peak_mb=peak / 1e6,
                    transaction_mib=size / 2**20, wall_s=wall)


def text(value):
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def main():
    names = ["walk", "blocks", "backup", "latency", "memory"]
    parser = argparse.ArgumentParser(prog="script/bench")
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join([*names, "path"]))
    parser.add_argument("--quick", action="store_true", help="small amounts: shows that it runs")
    parser.add_argument("--output", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.name) - {*names, "path"}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wanted = ["blocks" if n == "path" else n for n in options.name] or names
    bench = Bench(options.quick)
    failed = []
    for name in dict.fromkeys(wanted):
        say(f"-- {name}")
        try:
            getattr(bench, name)()
        except (AssertionError, OSError, RuntimeError, ValueError) as error:
            failed.append(name)
            bench.results[name] = {"ok": False, "error": str(error)[:2000]}
    say("")
    say(f"{'benchmark':14} {'ratio':>8}  {'gate':48} result")
    for name, result in bench.results.items():
        ratio = text(result["ratio"]) if "ratio" in result else ""
        verdict = "ok" if result["ok"] else "MISSED"
        say(f"{name:14} {ratio:>8}  {result.get('gate', ''):48} {verdict}")
        for key, value in result.items():
            if key not in ("ratio", "gate", "ok"):
                say(f"{'':14} {key} {text(value)}")
    with open(options.output, "w") as f:
        json.dump({"quick": options.quick, "cores": os.cpu_count(), "results": bench.results}, f, indent=2)
        f.write("\n")
    return 0 if all(r["ok"] for r in bench.results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
