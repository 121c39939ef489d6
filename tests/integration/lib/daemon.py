"""The daemon under test, driven through its public surface only."""

import json
import os
import signal

from . import paths
from .process import (
    alive,
    children,
    give_to_server_user,
    make_dir,
    remove_dir,
    run,
    spawn,
    stop,
    tail,
    wait_until,
)

# Sanitizers end the process at the first finding; the exit code tells it from the daemon's own.
SANITIZER_EXIT = 97
SANITIZER_ENV = {
    "ASAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:halt_on_error=1:second_deadlock_stack=1",
}


def lsn_value(text):
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def walshadow(*args, timeout=60, check=True, binary=None, env=None, text=True, cwd="/tmp"):
    """Runs one verb to its end; returns the completed process."""
    return run(
        [binary or paths.BIN, *args],
        timeout=timeout,
        check=check,
        text=text,
        cwd=cwd,
        env={**os.environ, **SANITIZER_ENV, **(env or {})},
    )


def toml_text(config):
    """A nested dict as TOML: enough for walshadow's configuration."""

    def value(v):
        if isinstance(v, bool):
            return "true" if v else "false"
        if isinstance(v, (int, float)):
            return str(v)
        if isinstance(v, dict):
            return "{ " + ", ".join(f"{k} = {value(x)}" for k, x in v.items()) + " }"
        if isinstance(v, (list, tuple)):
            return "[" + ", ".join(value(x) for x in v) + "]"
        return json.dumps(v)

    lines = [f"{k} = {value(v)}" for k, v in config.items() if not isinstance(v, dict)]

    def section(prefix, table):
        plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
        if plain:
            lines.append(f"[{prefix}]")
            lines.extend(f"{k} = {value(v)}" for k, v in plain.items())
        for k, v in table.items():
            if isinstance(v, dict):
                section(f"{prefix}.{k}", v)

    for k, v in config.items():
        if isinstance(v, dict):
            section(k, v)
    return "\n".join(lines) + "\n"


class Daemon:
    """`walshadow run` with its own state directory.

    pg is the source (class Postgres) or a URL. config is a nested dict in the shape of the TOML
    file. destination "null:", "chdb:" or a clickhouse:// URL.
    """

    def __init__(self, pg, destination="chdb:", config=None, binary=None, dbname="app", env=None,
                 args=()):
        self.pg = pg
        self.source = pg if isinstance(pg, str) else pg.url(dbname)
        self.binary = binary or paths.BIN
        self.destination = destination
        self.base = make_dir("ws-d-")
        self.state_dir = os.path.join(self.base, "state")
        self.config_path = os.path.join(self.base, "walshadow.toml")
        self.log = os.path.join(self.base, "daemon.log")
        self.env = env or {}
        self.args = list(args)
        self.process = None
        self.exit_code = None
        self.config = {
            "state_dir": self.state_dir,
            "source": {"conninfo": self.source},
            "shadow": {},
            "destination": {"default": {"url": destination}},
            "http": {"bind": "127.0.0.1:0"},
            "ops": {"status_interval": "1s"},
            "log": {"level": "debug"},
        }
        if not isinstance(pg, str):
            self.config["shadow"]["bin_dir"] = str(pg.bin)
        if destination.startswith("chdb:"):
            # libchdb cannot be loaded into a sanitized process: the engine is the plain build.
            self.config["destination"]["default"]["libchdb"] = str(paths.LIBCHDB)
            self.config["destination"]["default"]["engine_bin"] = str(paths.PLAIN_BIN)
        for section, values in (config or {}).items():
            self._merge(self.config, section, values)

    @staticmethod
    def _merge(into, key, value):
        if isinstance(value, dict):
            for k, v in value.items():
                Daemon._merge(into.setdefault(key, {}), k, v)
        else:
            into[key] = value

    # -- process ----------------------------------------------------------------------------

    def start(self, *args, env=None):
        """Starts `run` and returns self at once; see wait_state()."""
        assert self.process is None or self.process.poll() is not None
        with open(self.config_path, "w") as f:
            f.write(toml_text(self.config))
        with open(self.log, "ab") as log:
            give_to_server_user(self.log)
            give_to_server_user(self.config_path)
            self.process = spawn(
                [self.binary, "run", "--config", self.config_path, *self.args, *args],
                stdout=log,
                stderr=log,
                cwd=self.base,
                env={**os.environ, **SANITIZER_ENV, **self.env, **(env or {})},
            )
        self.exit_code = None
        return self

    def verb(self, *args, **kwargs):
        """Another verb against this daemon's state directory."""
        verb, *rest = args
        return walshadow(verb, "--state-dir", self.state_dir, *rest, **kwargs)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def check_alive(self):
        if not self.running():
            code = self.process.returncode if self.process else None
            raise AssertionError(f"the daemon left with {code}\n{tail(self.log)}")

    def kill(self):
        """kill -9 of the daemon alone; its shadow and engine stay to fend for themselves."""
        self.check_alive()
        self.process.kill()
        self.process.wait(10)

    def stop(self, timeout=45):
        """SIGTERM; a clean stop exits 0."""
        self.check_alive()
        code = stop(self.process, signal.SIGTERM, timeout)
        if code != 0:
            raise AssertionError(f"clean stop exited {code}\n{tail(self.log)}")

    def wait_exit(self, timeout=60):
        """Waits until the daemon leaves by itself; returns the exit code."""
        self.process.wait(timeout)
        return self.process.returncode

    def log_text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def close(self):
        """Ends everything and removes the state. A daemon that crashed is an error."""
        code = None
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(40)
                except Exception:
                    self.process.kill()
                    self.process.wait(10)
            code = self.process.returncode
        self._end_orphans()
        keep = os.environ.get("WALSHADOW_TEST_KEEP_LOGS")
        if keep:
            os.makedirs(keep, exist_ok=True)
            name = os.path.basename(self.base)
            with open(os.path.join(keep, name + ".log"), "w") as f:
                f.write(tail(self.log, 100000))
        crashed = code is not None and (
            code == SANITIZER_EXIT or code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
        )
        text = tail(self.log, 200) if crashed else ""
        remove_dir(self.base)
        if crashed:
            raise AssertionError(f"the daemon crashed with {code}\n{text}")

    def _end_orphans(self):
        """A killed daemon leaves its shadow to its next start; tests that end there end it."""
        try:
            with open(os.path.join(self.state_dir, "shadow", "postmaster.pid")) as f:
                pid = int(f.readline())
        except (OSError, ValueError):
            return
        if alive(pid):
            try:
                os.kill(pid, signal.SIGQUIT)
            except ProcessLookupError:
                return
            wait_until(lambda: not alive(pid), 20, f"shadow {pid} does not end")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- what it says -----------------------------------------------------------------------

    def status(self):
        """`status --json` as a dict, or None while the daemon does not answer yet."""
        done = self.verb("status", "--json", check=False)
        if done.returncode != 0:
            return None
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"status --json is not JSON: {done.stdout!r}") from None

    def wait_status(self, condition, timeout=120, what="status"):
        """Waits until condition(status) is true; returns that status."""
        last = {}

        def probe():
            self.check_alive()
            status = self.status()
            if status is None:
                return None
            last["status"] = status
            return status if condition(status) else None

        return wait_until(
            probe, timeout, lambda: f"{what}: {last.get('status')}\n{tail(self.log)}", 0.1
        )

    def wait_state(self, state="streaming", timeout=120):
        return self.wait_status(lambda s: s["state"] == state, timeout, f"state {state}")

    def table(self, name):
        status = self.status()
        for table in (status or {}).get("tables", []):
            if table["name"] == name:
                return table
        return None

    def wait_table(self, name, state="streaming", timeout=120):
        """Waits until a table is in a state; returns its entry."""

        def found(status):
            return any(t["name"] == name and t["state"] == state for t in status["tables"])

        status = self.wait_status(found, timeout, f"{name} {state}")
        return next(t for t in status["tables"] if t["name"] == name)

    def wait_caught_up(self, timeout=120):
        """Everything the source has written until now is at every destination."""
        self.check_alive()
        done = self.verb("wait", "--timeout", str(timeout), check=False, timeout=timeout + 30)
        if done.returncode != 0:
            raise AssertionError(
                f"wait exited {done.returncode}: {done.stderr}\n{self.status()}\n{tail(self.log)}"
            )

    def sql(self, query, *options):
        """Rows of `walshadow sql` (TSV, final=1) as lists of str, still escaped."""
        out = self.verb("sql", *options, query, timeout=120).stdout
        return [line.split("\t") for line in out.split("\n")[:-1]]

    def sql_bytes(self, query, *options, timeout=300):
        return self.verb("sql", *options, query, text=False, timeout=timeout).stdout

    def engine_pid(self):
        """The embedded engine's process."""
        found = [p for p, line in children(self.process.pid).items() if " engine " in line]
        assert len(found) == 1, children(self.process.pid)
        return found[0]

    def peak_rss_bytes(self):
        """Most memory the daemon alone has used."""
        with open(f"/proc/{self.process.pid}/status") as f:
            for line in f:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")
