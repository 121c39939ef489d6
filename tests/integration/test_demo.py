"""script/demo as a person would run it, on every major."""

import subprocess

import pytest

from lib import paths


@pytest.mark.parametrize("major", paths.MAJORS)
def test_demo_ends_with_parity(major):
    run_demo("--pg", str(major))


def test_demo_with_a_server():
    run_demo("--destination", "clickhouse")


def run_demo(*arguments):
    done = subprocess.run(
        ["/usr/bin/python3", str(paths.ROOT / "script/lib/demo.py"), "--seconds", "5", "--scale", "1",
         *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "parity: ok" in done.stdout.splitlines()[-1], done.stdout
