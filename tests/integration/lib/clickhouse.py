"""Debian's ClickHouse server 18.16, as a destination and as a foreign client."""

import os
import signal

import clickhouse_driver

from .process import free_port, give_to_server_user, make_dir, remove_dir, run, spawn, stop, tail, wait_until

CONFIG = """<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <tcp_port>{port}</tcp_port><http_port>{http}</http_port>
  <listen_host>127.0.0.1</listen_host>
  <path>{base}/data/</path><tmp_path>{base}/tmp/</tmp_path>
  <user_files_path>{base}/files/</user_files_path>
  <format_schema_path>{base}/schemas/</format_schema_path>
  <users_config>{base}/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size><timezone>UTC</timezone>
</yandex>
"""
USERS = """<yandex>
  <profiles><default><max_memory_usage>4000000000</max_memory_usage></default></profiles>
  <users><default><password>{password}</password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota></default></users>
  <quotas><default/></quotas>
</yandex>
"""


class ClickHouse:
    """A server in a temporary directory on free ports of 127.0.0.1; user default."""

    def __init__(self, password="secret"):
        self.password = password
        self.base = make_dir("ws-ch-")
        self.port = free_port()
        self.http = free_port()
        self.log = os.path.join(self.base, "log")
        self.process = None
        values = {"base": self.base, "port": self.port, "http": self.http, "password": password}
        for name, text in (("config.xml", CONFIG), ("users.xml", USERS)):
            path = os.path.join(self.base, name)
            with open(path, "w") as f:
                f.write(text.format(**values))
            give_to_server_user(path)

    def start(self, timeout=60):
        with open(self.log, "ab") as log:
            give_to_server_user(self.log)
            self.process = spawn(
                ["clickhouse-server", f"--config-file={self.base}/config.xml"],
                death_signal=signal.SIGKILL, stdout=log, stderr=log, cwd=self.base,
            )

        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"clickhouse-server left\n{tail(self.log)}")
            try:
                return self.query("SELECT 1") == [(1,)]
            except (OSError, EOFError, clickhouse_driver.errors.Error):
                return False

        wait_until(ready, timeout, lambda: f"clickhouse-server not ready\n{tail(self.log)}", 0.2)
        return self

    def query(self, text):
        client = clickhouse_driver.Client(
            "127.0.0.1", port=self.port, user="default", password=self.password
        )
        try:
            return client.execute(text)
        finally:
            client.disconnect()

    def url(self, database):
        return f"clickhouse://default:{self.password}@127.0.0.1:{self.port}/{database}"

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def client(self, query, port=None, password=None, check=True):
        """Debian's clickhouse-client 18.16 against a port (this server's by default)."""
        argv = ["clickhouse-client", "--host", "127.0.0.1", "--port", str(port or self.port),
                "--query", query]
        secret = self.password if password is None else password
        if secret:
            argv += ["--password", secret]
        return run(argv, check=check, cwd=self.base)

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
