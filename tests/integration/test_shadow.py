"""Shadow, walsender and catalog reader with real servers of the majors that the unit run does not use."""

import os
import re
import subprocess

import pytest

from lib.paths import BIN, MAJORS, postgres_bin

PROGRAM = BIN.parent / "test_shadow_standby"


@pytest.mark.majors
@pytest.mark.parametrize("major", [m for m in MAJORS if m != 15])
def test_standby(major):
    """The unit test test_shadow_standby on another major; pg_receivewal is not packaged for every one."""
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
    names = set(re.findall(r"\[ RUN      \] (\w+)", output))
    passed = set(re.findall(r"\[       OK \] (\w+)", output))
    assert names - passed <= {"test_pg_receivewal"}, output
    assert len(passed) == int(re.search(r"\[  PASSED  \] (\d+) test", output)[1]) > 0, output
