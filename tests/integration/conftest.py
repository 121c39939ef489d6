"""Fixtures. A test gets its own source and daemon; what it started is gone when it ends, and when a
test fails the daemon's log is in the report."""

import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from lib import paths  # noqa: E402
from lib.daemon import Daemon  # noqa: E402
from lib.postgres import Postgres  # noqa: E402
from lib.process import tail  # noqa: E402


def _terminated(*_):
    raise KeyboardInterrupt


# script/test forwards its own end as SIGTERM: fixtures still clean up.
signal.signal(signal.SIGTERM, _terminated)


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="full depth: tests marked slow, longer runs")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="full depth only"))
        if item.get_closest_marker("fault_points") and not paths.DEBUG_BIN.exists():
            item.add_marker(pytest.mark.skip(reason="no build with fault points: script/build --debug"))
        # one server for the module, one small file system for all: their tests run in one process
        if {"shared", "small"} & set(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for daemon in getattr(item, "daemons", []):
            report.sections.append((f"log of {daemon.base}", tail(daemon.log, 60)))
            if daemon.running():
                report.sections.append(("status", str(daemon.status())))


@pytest.fixture
def full(request):
    """True at full depth."""
    return request.config.getoption("--full")


@pytest.fixture
def sources(request):
    """Function that starts a PostgreSQL with an empty database `app`: sources(major, settings)."""
    started = []

    def start(major=15, settings=None, **kwargs):
        pg = Postgres(major, settings, **kwargs)
        started.append(pg)
        return pg.start().create_app()

    yield start
    for pg in reversed(started):
        pg.close()


@pytest.fixture
def source(sources):
    return sources()


@pytest.fixture
def daemons(request, sources):
    """Function that makes a Daemon (not started): daemons(pg, destination, config, …).

    Depends on `sources` so that daemons end before the servers they read.
    """
    made = []
    request.node.daemons = made

    def make(*args, **kwargs):
        daemon = Daemon(*args, **kwargs)
        made.append(daemon)
        return daemon

    yield make
    errors = []
    for daemon in reversed(made):
        try:
            daemon.close()
        except AssertionError as error:
            errors.append(error)
    if errors:
        raise errors[0]
