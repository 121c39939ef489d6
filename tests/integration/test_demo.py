"""script/demo as a person would run it, on every major."""

import subprocess

import pytest

from lib import paths


@pytest.mark.parametrize("major", paths.MAJORS)
def test_demo_ends_with_parity(major):
    run_demo("--pg", str(major))


def test_a_server_is_refused_by_name():
    done = demo("--destination", "clickhouse")
    assert done.returncode == 2
    assert "--destination clickhouse is not supported by this version" in done.stdout


def demo(*arguments):
    return subprocess.run(
        ["/usr/bin/python3", str(paths.ROOT / "script/lib/demo.py"), "--seconds", "5", "--scale", "1",
         *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=300,
    )


def run_demo(*arguments):
    done = demo(*arguments)
    assert done.returncode == 0, done.stdout
    assert "parity: ok" in done.stdout.splitlines()[-1], done.stdout
