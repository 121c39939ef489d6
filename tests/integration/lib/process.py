"""Child processes that never outlive the test run, free ports, waiting."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Timeout(AssertionError):
    """A condition did not come true in time; the text says which and what was seen last."""


def wait_until(condition, timeout, what, interval=0.05):
    """Calls condition until it returns something true and returns that.

    `what` is text or a function giving text; it ends up in the error.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            text = what() if callable(what) else what
            raise Timeout(f"after {timeout:g} s: {text}")
        time.sleep(interval)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def server_user():
    """The user servers run as: None for the caller's own."""
    if os.geteuid() != 0:
        return None
    return os.environ.get("WALSHADOW_TEST_USER", "postgres")


def make_dir(prefix="ws-"):
    """A short temporary directory (socket paths have 107 bytes), owned by the server user."""
    path = tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("WALSHADOW_TEST_TMP", "/tmp"))
    give_to_server_user(path)
    return path


def give_to_server_user(path):
    user = server_user()
    if user:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def remove_dir(path):
    shutil.rmtree(path, ignore_errors=True)


def _user_arguments():
    user = server_user()
    if not user:
        return {}
    entry = pwd.getpwnam(user)
    return {
        "user": entry.pw_uid,
        "group": entry.pw_gid,
        "extra_groups": os.getgrouplist(user, entry.pw_gid),
    }


def spawn(argv, death_signal=signal.SIGTERM, own_group=True, **kwargs):
    """Popen as the server user; the child gets death_signal when this process dies."""

    def prepare():
        _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(
        [str(a) for a in argv],
        preexec_fn=prepare,
        start_new_session=own_group,
        **_user_arguments(),
        **kwargs,
    )


def run(argv, timeout=60, check=True, text=True, **kwargs):
    """Runs a program to its end as the server user and returns the completed process.

    With check, a non-zero exit raises with everything the program said.
    """
    argv = [str(a) for a in argv]
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=text,
        timeout=timeout,
        **_user_arguments(),
        **kwargs,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout!s}\n{done.stderr!s}"
        )
    return done


def stop(process, signal_number=signal.SIGTERM, timeout=30):
    """Sends a signal and waits; kills what does not leave. Returns the exit code."""
    if process.poll() is None:
        process.send_signal(signal_number)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise Timeout(f"pid {process.pid} did not end within {timeout} s") from None
    return process.returncode


def alive(pid):
    """True while a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


def children(pid):
    """Direct children of a process: {pid: command line}."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as f:
                parent = int(f.read().rsplit(b")", 1)[1].split()[1])
            if parent == pid:
                with open(f"/proc/{entry}/cmdline", "rb") as f:
                    found[int(entry)] = f.read().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def tail(path, lines=40):
    try:
        with open(path, errors="replace") as f:
            return "".join(f.readlines()[-lines:])
    except FileNotFoundError:
        return ""
