"""Where the programs under test and the servers are."""

import os
import pathlib

ROOT = pathlib.Path(os.environ.get("WALSHADOW_TEST_ROOT") or pathlib.Path(__file__).parents[3])
DEPS = ROOT / ".deps"
DEBUG_BIN = ROOT / os.environ.get("WALSHADOW_TEST_DEBUG_BUILD", "build-debug") / "walshadow"
# The program under test: script/test names a sanitizer build for those runs.
BUILD = os.environ.get("WALSHADOW_TEST_BUILD", "build")
BIN = ROOT / BUILD / "walshadow"
SANITIZED = BUILD.endswith(("-asan", "-tsan"))
# What runs the engine: libchdb cannot be loaded into a sanitizer build.
PLAIN_BIN = ROOT / "build" / "walshadow" if SANITIZED else BIN
LIBCHDB = DEPS / "libchdb.so"

MAJORS = (15, 16, 17, 18)
CLIENT_BIN = pathlib.Path("/usr/lib/postgresql/15/bin")  # psql, pgbench, pg_waldump, …


def postgres_bin(major):
    """Folder of initdb, pg_ctl and postgres of one major."""
    if major == 15:
        return CLIENT_BIN
    return DEPS / f"pg{major}" / "bin"
