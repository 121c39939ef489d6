"""Shadow, walsender and catalog reader with real servers of the majors that the unit run does not use."""

import os
import subprocess

import pytest

from lib.paths import BIN, MAJORS, postgres_bin

PROGRAM = BIN.parent / "test_shadow_standby"


@pytest.mark.majors
@pytest.mark.parametrize("major", [m for m in MAJORS if m != 15])
def test_standby(major):
    """The unit test test_shadow_standby, which ends with a line of what passed, on another major."""
    bin_dir = postgres_bin(major)
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    if not (bin_dir / "postgres").exists():
        pytest.skip(f"there is no PostgreSQL {major} in {bin_dir}")
    done = subprocess.run(
        [PROGRAM],
        env={**os.environ, "WALSHADOW_TEST_PG_BIN": str(bin_dir)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "[  PASSED  ] 10 test(s)." in output, output
