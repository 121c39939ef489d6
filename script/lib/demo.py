"""What script/demo runs: source, workload, walshadow, a line a second, the comparison."""

import argparse
import json
import os
import pathlib
import signal
import sys
import time

ROOT = pathlib.Path(os.environ.get("WALSHADOW_TEST_ROOT") or pathlib.Path(__file__).parents[2])
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.dont_write_bytecode = True

from lib import parity, workload  # noqa: E402
from lib.daemon import Daemon  # noqa: E402
from lib.postgres import Postgres  # noqa: E402
from lib.process import Timeout  # noqa: E402

LOAD_TIMEOUT = 900


def say(text):
    print(text, flush=True)


def size(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024


def progress_line(status, before, seconds):
    """One line of what `status --json` says; before is the status of the last line."""
    state = status["state"]
    load = status["bootstrap"]
    destination = status["destinations"][0]
    rows = destination["rows"]
    rate = (rows - before["destinations"][0]["rows"]) / seconds if before else 0
    text = f"{status['uptime_s']:4.0f} s  {state:13}"
    if state == "bootstrapping" and load["bytes_total"]:
        text += f"  load {size(load['bytes_done'])} of {size(load['bytes_total'])}"
    text += (f"  {rows:>10,} rows  {rate:>9,.0f} rows/s"
             f"  lag {size(destination['lag_bytes'])}, {destination['lag_seconds']:.2f} s")
    if status["waiting_on"]:
        text += f"  waiting: {status['waiting_on']}"
    return text


class Demo:
    def __init__(self, options):
        self.options = options
        self.cleanup = []
        self.before = None
        self.printed = time.monotonic()
        self.mixers = []

    def watch(self, daemon, until, timeout):
        """Prints a line a second until until(status) is true or the time is over (None)."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            daemon.check_alive()
            for mixer in self.mixers:
                mixer.check()
            status = daemon.status()
            now = time.monotonic()
            if status and status["destinations"] and now - self.printed >= 1:
                say(progress_line(status, self.before, now - self.printed))
                self.before, self.printed = status, now
            if status and until(status):
                return status
            time.sleep(0.2)
        return None

    def start_source(self):
        options = self.options
        say(f"starting PostgreSQL {options.pg} and filling it (pgbench scale {options.scale})")
        pg = Postgres(options.pg)
        self.cleanup.append(pg.close)
        pg.start().create_app()
        workload.create(pg)
        pg.pgbench_init(options.scale)
        self.bench = pg.pgbench(clients=4)
        self.mixers = [workload.Mixer(pg, seed=lane, lane=lane) for lane in range(2)]
        for mixer in self.mixers:
            mixer.start()
        say("workload running: pgbench TPC-B with 4 clients, 2 writers with keys that change, "
            "savepoints, COPY and tables without a key")
        return pg

    def start_daemon(self, pg):
        config = {"log": {"level": "info"}}
        url = "chdb:"
        daemon = Daemon(pg, url, config)
        self.cleanup.append(daemon.close)
        daemon.start()
        say(f"walshadow run {pg.url()} --destination {url}  (log: {daemon.log})")
        return daemon

    def run(self):
        pg = self.start_source()
        daemon = self.start_daemon(pg)
        self.daemon = daemon
        started = time.monotonic()
        loaded = self.watch(daemon, lambda s: s["state"] == "streaming", LOAD_TIMEOUT)
        if not loaded:
            raise Timeout(f"no streaming after {LOAD_TIMEOUT} s: {daemon.status()}")
        say(f"load done in {time.monotonic() - started:.1f} s, streaming; large values join in")
        big = workload.Mixer(pg, seed=99, lane=2, big_values=True)
        big.start()
        self.mixers.append(big)
        self.watch(daemon, lambda s: False, self.options.seconds)
        say("stopping the workload")
        self.bench.stop()
        commits = sum(mixer.stop().commits for mixer in self.mixers)
        stopped = time.monotonic()
        daemon.wait_caught_up(300)
        say(f"caught up {time.monotonic() - stopped:.2f} s after the last commit; the writers beside "
            f"pgbench made {commits} transactions")
        return self.judge(pg, daemon)

    def judge(self, pg, daemon):
        """Compares by the judge of the tests and by `walshadow verify`; both must agree."""
        ok = True
        rows = tables = 0
        for difference in parity.compare_all(pg, daemon):
            tables += 1
            rows += difference.rows
            if difference:
                ok = False
                say(f"  {difference}")
        bad = [t for t in daemon.status()["tables"] if t["state"] != "streaming"]
        for table in bad:
            ok = False
            say(f"  {table['name']}: {table['state']}: {table['reason']}")
        done = daemon.verb("verify", "--json", check=False, timeout=600)
        try:
            verdict = json.loads(done.stdout)
        except ValueError:
            verdict = {"equal": False, "tables": []}
        if done.returncode != 0 or not verdict["equal"]:
            ok = False
            say(f"  walshadow verify: exit {done.returncode} {done.stderr.strip()}")
            for table in verdict["tables"]:
                if table["missing"] or table["extra"] or table["different"]:
                    say(f"    {table}")
        if ok:
            say(f"parity: ok, {tables} tables, {rows:,} rows, value by value")
        else:
            say("parity: DIFFERENT, see above")
        return ok

    def close(self, ok):
        for mixer in self.mixers:
            if mixer.is_alive():
                try:
                    mixer.stop()
                except Exception as error:
                    say(f"writer: {error}")
        if self.options.keep and ok is not None:
            say(f"kept until Enter or SIGTERM; walshadow sql --state-dir {self.daemon.state_dir} 'SELECT …'")
            try:
                sys.stdin.readline() or signal.pause()
            except KeyboardInterrupt:
                pass
        for close in reversed(self.cleanup):
            try:
                close()
            except AssertionError as error:
                say(str(error))


def main():
    parser = argparse.ArgumentParser(prog="script/demo")
    parser.add_argument("--seconds", type=int, default=30, help="how long to stream after the load")
    parser.add_argument("--pg", type=int, choices=(15, 16, 17, 18), default=15)
    parser.add_argument("--destination", choices=("chdb", "clickhouse"), default="chdb")
    parser.add_argument("--scale", type=int, default=10, help="pgbench scale, 100,000 rows each")
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    options = parser.parse_args()
    if options.destination == "clickhouse":
        # its comparison reads the server through `walshadow sql` and `verify`
        parser.error("--destination clickhouse is not supported by this version: sql and verify do "
                     "not read clickhouse:// destinations")

    def interrupted(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    demo = Demo(options)
    ok = None
    try:
        ok = demo.run()
    except KeyboardInterrupt:
        say("interrupted")
    except (AssertionError, OSError) as error:
        say(f"failed: {error}")
        ok = False
    finally:
        demo.close(ok)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
