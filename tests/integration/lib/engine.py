"""`walshadow engine` started alone: the embedded ClickHouse behind its native protocol."""

import os
import signal

import clickhouse_driver

from . import paths
from .process import free_port, give_to_server_user, make_dir, remove_dir, spawn, stop, tail, wait_until


class Engine:
    """An engine with its own data directory, on a unix socket and on a TCP port of 127.0.0.1."""

    def __init__(self, *args, binary=None, directory=None, http=False):
        self.base = directory or make_dir("ws-e-")
        self.path = os.path.join(self.base, "chdb")
        self.socket = os.path.join(self.base, "engine.sock")
        self.port = free_port()
        self.http_port = free_port() if http else None
        self.log = os.path.join(self.base, "engine.log")
        self.process = None
        self.argv = [binary or paths.PLAIN_BIN, "engine", "--path", self.path,
                     "--listen", f"unix:{self.socket}", "--listen", f"tcp:127.0.0.1:{self.port}"]
        if http:
            self.argv += ["--http", f"127.0.0.1:{self.http_port}"]
        self.argv += args

    def start(self, timeout=60):
        with open(self.log, "ab") as log:
            give_to_server_user(self.log)
            self.process = spawn(self.argv, stdout=log, stderr=log, cwd=self.base,
                                 env={**os.environ, "LD_LIBRARY_PATH": str(paths.DEPS)})

        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the engine left {self.process.returncode}\n{tail(self.log)}")
            try:
                return self.query("SELECT 1") == [(1,)]
            except (OSError, EOFError, clickhouse_driver.errors.Error):
                return False

        wait_until(ready, timeout, lambda: f"engine not ready\n{tail(self.log)}", 0.1)
        return self

    def query(self, text, **kwargs):
        client = clickhouse_driver.Client("127.0.0.1", port=self.port)
        try:
            return client.execute(text, **kwargs)
        finally:
            client.disconnect()

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def stop(self, timeout=30):
        return stop(self.process, signal.SIGTERM, timeout)

    def close(self):
        try:
            if self.process is not None:
                stop(self.process, signal.SIGTERM, 30)
        finally:
            remove_dir(self.base)

    def __enter__(self):
        return self.start() if self.process is None else self

    def __exit__(self, *_):
        self.close()
