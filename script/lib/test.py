"""Runs the tests and counts them.

  script/test                everything at CI depth
  script/test unit           unit tests and the replay of the fuzz corpora
  script/test sanitize       the same, and the integration tests of `null:`, under ASan+UBSan and TSan
  script/test fuzz           every fuzz target, a minute each
  script/test integration    tests/integration at full depth
  script/test lint           script/lint and cppcheck
  script/test types|load|clickhouse|…   the integration tests of that name at full depth
  script/test PATTERN        unit tests and integration tests whose name matches
"""

import argparse
import collections
import os
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Parts of the contract, as files of tests/integration. Words without files have no tests yet.
TOPICS = {
    "drill": ["test_drill*.py", "test_restart*.py", "test_xacts*.py", "test_source_loss*.py",
              "test_unseen*.py"],
    "ddl": ["test_ddl*.py", "test_rewrite*.py", "test_temporary*.py"],
    "types": ["test_types*.py"],
    "load": ["test_load*.py", "test_toast*.py", "test_resync*.py"],
    "clickhouse": ["test_engine*.py", "test_client*.py"],
}
FUZZ_SECONDS_CI = 10
FUZZ_SECONDS_FULL = 60


class Count(collections.Counter):
    """passed, failed, skipped."""

    def line(self):
        text = f"{self['passed']} passed, {self['failed']} failed"
        return text + (f", {self['skipped']} skipped" if self["skipped"] else "")


def say(text):
    print(text, flush=True)


def call(argv, env=None, quiet=False):
    """Runs a command; with quiet returns (code, output), else output goes through."""
    merged = {**os.environ, **(env or {})}
    if quiet:
        done = subprocess.run(argv, cwd=ROOT, env=merged, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")
        return done.returncode, done.stdout
    return subprocess.run(argv, cwd=ROOT, env=merged, stdin=subprocess.DEVNULL).returncode, ""


def build(*options):
    """script/build; returns False, after saying why, when it fails."""
    say(f"-- build {' '.join(options)}")
    code, output = call(["script/build", *options], quiet=True)
    if code != 0:
        say(output)
        say(f"build {' '.join(options)} failed")
    return code == 0


def unit(directory, pattern=None, env=None):
    """Meson's unit suite of one build directory. Counts test programs."""
    argv = ["meson", "test", "-C", directory, "--suite", "unit", "--print-errorlogs",
            "--no-rebuild", "--num-processes", "2", "--timeout-multiplier", "3"]
    if pattern:
        code, listing = call(["meson", "test", "-C", directory, "--list", "--no-rebuild"], quiet=True)
        names = [line.split(" / ")[-1] for line in listing.splitlines() if pattern in line]
        if not names:
            return Count()
        argv += names
    code, output = call(argv, env=env, quiet=True)
    count = Count()
    for name, key in (("Ok", "passed"), ("Expected Fail", "passed"), ("Fail", "failed"),
                      ("Unexpected Pass", "failed"), ("Timeout", "failed"), ("Skipped", "skipped")):
        match = re.search(rf"^{name}:\s+(\d+)", output, re.M)
        count[key] += int(match.group(1)) if match else 0
    if code != 0 or not count["passed"]:
        say(output)
        count["failed"] = max(1, count["failed"])
    return count


SUMMARY = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected)")


def pytest(arguments, env=None):
    """Integration tests, as a user who may start servers. Counts test functions."""
    workers = min(os.cpu_count() or 1, 4)  # a test mostly waits for servers
    argv = ["script/lib/as-user", "/usr/bin/python3", "-m", "pytest", "-q", "--durations=15",
            "-n", str(workers), "--dist", "loadgroup",
            "-c", "tests/integration/pytest.ini", "--rootdir", "tests/integration", *arguments]
    # one for all processes of the run
    seed = os.environ.get("WALSHADOW_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
    say(f"-- WALSHADOW_TEST_SEED={seed}")
    process = subprocess.Popen(argv, cwd=ROOT,
                               env={**os.environ, "WALSHADOW_TEST_SEED": seed, **(env or {})},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    last = ""
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        if SUMMARY.search(line) and " in " in line:
            last = line
    code = process.wait()
    count = Count()
    for number, word in SUMMARY.findall(last):
        key = {"passed": "passed", "xfailed": "skipped", "skipped": "skipped",
               "deselected": None}.get(word, "failed")
        if key:
            count[key] += int(number)
    if code == 5:  # nothing was selected
        return count
    if code != 0:
        count["failed"] = max(1, count["failed"])
    return count


def part_lint():
    say("== lint")
    code, output = call(["script/lint"], quiet=True)
    *lines, last = output.splitlines() or [""]
    say("\n".join(lines)) if lines else None
    found = dict((k, int(n)) for n, k in SUMMARY.findall(last))
    count = Count(passed=found.get("passed", 0), failed=found.get("failed", 0))
    if code != 0:
        count["failed"] = max(1, count["failed"])
    count += cppcheck()
    return count


def cppcheck():
    say("-- cppcheck")
    code, output = call(["cppcheck", "-q", "-j2", "--std=c11", "--language=c", "-D_GNU_SOURCE",
                         "--enable=warning,portability", "--inline-suppr", "--error-exitcode=1",
                         # uthash's macros are not followed; shifts of negative numbers are defined
                         # by gcc and clang.
                         "--suppress=uninitvar", "--suppress=unknownMacro",
                         "--suppress=shiftNegativeLHS", "--suppress=missingIncludeSystem",
                         "-Isrc", "src"], quiet=True)
    if code != 0:
        say(output)
    return Count(passed=int(code == 0), failed=int(code != 0))


def part_unit(pattern=None):
    say("== unit")
    if not build("--all"):
        return Count(failed=1)
    return unit("build", pattern)


SANITIZERS = {
    "asan": {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
             "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"},
    "tsan": {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
}


def part_sanitize():
    count = Count()
    if not build():  # the engine of a sanitized daemon is the plain program
        return Count(failed=1)
    for kind, env in SANITIZERS.items():
        say(f"== sanitize: {kind}")
        if not build(f"--{kind}", "--all"):
            count["failed"] += 1
            continue
        count += unit(f"build-{kind}", env=env)
        count += pytest(["-m", "null", "tests/integration"],
                        env={"WALSHADOW_TEST_BUILD": f"build-{kind}"})
    return count


def part_fuzz(seconds):
    say(f"== fuzz, {seconds} s a target")
    if not build("--fuzz"):
        return Count(failed=1)
    count = Count()
    targets = sorted((ROOT / "build-fuzz").glob("fuzz_*"))
    targets = [t for t in targets if t.is_file() and os.access(t, os.X_OK)]
    running = []
    for target in targets + [None, None]:
        while len(running) >= (2 if target else 1) and running:
            count += fuzz_finish(running.pop(0))
        if target:
            running.append(fuzz_start(target, seconds))
    if not targets:
        say("no fuzz target was built")
        count["failed"] += 1
    return count


def fuzz_start(target, seconds):
    name = target.name.removeprefix("fuzz_")
    work = ROOT / "build-fuzz" / "corpus" / name  # what the run finds stays out of the checkout
    work.mkdir(parents=True, exist_ok=True)
    log = open(ROOT / "build-fuzz" / f"{name}.log", "w+")
    argv = [str(target), f"-max_total_time={seconds}", "-rss_limit_mb=2048", "-timeout=10",
            "-malloc_limit_mb=1024", "-print_final_stats=1",
            f"-artifact_prefix={ROOT}/build-fuzz/{name}-", str(work),
            str(ROOT / "tests/fuzz/corpus" / name)]
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1"}
    return name, log, subprocess.Popen(argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT)


def fuzz_finish(entry):
    name, log, process = entry
    code = process.wait()
    log.seek(0)
    text = log.read()
    log.close()
    if code != 0:
        say(f"fuzz {name} failed:\n" + "\n".join(text.splitlines()[-60:]))
        return Count(failed=1)
    return Count(passed=1)


def part_integration(arguments=(), full=False):
    say("== integration")
    if not build() or not build("--debug"):
        return Count(failed=1)
    return pytest([*(["--full"] if full else []), *(arguments or ["tests/integration"])])


def part_topic(word):
    found = sorted({str(p.relative_to(ROOT)) for glob in TOPICS[word]
                    for p in (ROOT / "tests/integration").glob(glob)})
    if not found:
        say(f"script/test: there are no tests of '{word}' yet")
        sys.exit(2)
    count = part_unit("types/") if word == "types" else Count()
    return count + part_integration(found, full=True)


def part_pattern(pattern):
    return part_unit(pattern) + part_integration(["-k", pattern, "tests/integration"], full=True)


def everything():
    for name, part in (("lint", part_lint), ("unit", part_unit), ("integration", part_integration),
                       ("sanitize", part_sanitize), ("fuzz", lambda: part_fuzz(FUZZ_SECONDS_CI))):
        yield name, part


def main():
    parser = argparse.ArgumentParser(prog="script/test", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?")
    part = parser.parse_args().part
    os.umask(0o022)
    total = Count()
    if part is None:
        times = {}
        for name, function in everything():
            started = time.monotonic()
            count = function()
            times[name] = f"{count.line()} ({time.monotonic() - started:.0f} s)"
            total += count
        for name, text in times.items():
            say(f"{name:12} {text}")
    elif part == "lint":
        total = part_lint()
    elif part == "unit":
        total = part_unit()
    elif part == "sanitize":
        total = part_sanitize()
    elif part == "fuzz":
        total = part_fuzz(FUZZ_SECONDS_FULL)
    elif part == "integration":
        total = part_integration(full=True)
    elif part in TOPICS:
        total = part_topic(part)
    else:
        total = part_pattern(part)
    if not total["passed"] and not total["failed"]:
        say(f"script/test: nothing matches '{part}'")
        sys.exit(2)
    say(total.line())
    sys.exit(1 if total["failed"] else 0)


if __name__ == "__main__":
    main()
