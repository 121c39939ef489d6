"""Values of every carried type, from each PostgreSQL major to what ClickHouse makes of the payload.

The fixtures program (tests/unit/types/fixtures.c) compares walshadow's text and payloads with files that
capture.py writes from a live server's pages; here it gets fresh files, with other random values. The second
test shows that ClickHouse reads those payloads as the values PostgreSQL printed.
"""

import os
import subprocess
import sys
from decimal import Decimal

import pytest

from lib import paths
from lib.process import make_dir, remove_dir

FIXTURES = paths.ROOT / "tests" / "fixtures" / "types"

# Writes the text of column v of Native files; argv[1] lists path and expression, argv[2] is libchdb.
READER = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[2])
lib.chdb_connect.restype = ctypes.POINTER(ctypes.c_void_p)
lib.chdb_query.restype = lib.chdb_result_buffer.restype = ctypes.c_void_p
lib.chdb_query.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
lib.chdb_result_buffer.argtypes = lib.chdb_result_length.argtypes = [ctypes.c_void_p]
lib.chdb_result_length.restype = ctypes.c_size_t
lib.chdb_result_error.argtypes = [ctypes.c_void_p]
lib.chdb_result_error.restype = ctypes.c_char_p
argv = [b"reader"]
con = lib.chdb_connect(1, (ctypes.c_char_p * 1)(*argv))
for line in open(sys.argv[1]):
    path, expression = line.rstrip("\\n").split("\\t")
    query = f"SELECT hex({expression}) FROM file('{path}', Native)"
    result = lib.chdb_query(con[0], query.encode(), b"TSV")
    error = lib.chdb_result_error(result)
    if error:
        raise SystemExit(f"{path}: {error.decode()}")
    with open(path + ".out", "wb") as out:
        out.write(ctypes.string_at(lib.chdb_result_buffer(result), lib.chdb_result_length(result)))
sys.stdout.flush()
import os
os._exit(0)
"""


def fixture_files():
    return sorted(p.name for p in FIXTURES.glob("*.tsv"))


def read_fixture(name):
    with open(FIXTURES / name, encoding="utf-8") as f:
        target = f.readline().rstrip("\n").split(" ", 4)[4]
        rows = [line.rstrip("\n").split("\t") for line in f]
    return target, [(text, bytes.fromhex(payload)) for _, text, payload in rows if payload != "BAD"]


@pytest.mark.parametrize("major", paths.MAJORS)
def test_values_of_a_live_server(major, full):
    if not full and major != 18:
        pytest.skip("full depth only: 15 wrote the fixtures, 18 differs most")
    program = paths.ROOT / paths.BUILD / "test_types_fixtures"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    base = make_dir("ws-types-")
    try:
        out = os.path.join(base, "tests", "fixtures", "types")
        os.makedirs(out)
        for seed in range(5 if full else 1):
            subprocess.run([sys.executable, FIXTURES / "capture.py", paths.postgres_bin(major), out,
                            str(1000 * major + seed)], check=True, stderr=subprocess.DEVNULL)
            done = subprocess.run([program], env={**os.environ, "SOURCE_ROOT": base}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 0, done.stdout[-2000:]
    finally:
        remove_dir(base)


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def native(target, payloads):
    """A Native file with one column v."""
    return (varint(1) + varint(len(payloads)) + b"\1v" + varint(len(target)) + target.encode()
            + b"".join(payloads))


def expression(target):
    if target.startswith("Decimal"):
        return "toDecimalString(v, %s)" % target.rstrip(")").split(", ")[1]
    return "toString(v)"


def expected(target, text):
    """PostgreSQL's text as ClickHouse would print the same value."""
    if target == "Bool":
        return {"t": "true", "f": "false"}[text]
    if target.startswith(("DateTime64", "Time64")):
        digits = int(target[target.index("(") + 1])
        text = text.replace("+00", "")
        main, _, fraction = text.removesuffix(" BC").partition(".")
        main = main + ("." + fraction.ljust(digits, "0") if digits else "")
        text = main + (" BC" if text.endswith(" BC") else "")
    if text.endswith(" BC"):  # year 0 is 1 BC; earlier years do not fit
        assert text.startswith("0001-")
        text = "0000" + text[4:-3]
    return text


def same(target, got, text):
    if target.startswith("Float"):
        if text == "NaN":
            return got == "nan"
        return float(got) == float(text) or (target == "Float32" and abs(float(got) / float(text) - 1) < 1e-7)
    if target.startswith("Decimal"):
        return Decimal(got) == Decimal(text)
    return got == expected(target, text)


def test_payloads_in_clickhouse():
    if not paths.LIBCHDB.exists():
        pytest.skip(f"no {paths.LIBCHDB}")
    base = make_dir("ws-types-")
    try:
        plan = os.path.join(base, "plan")
        cases = {}
        with open(plan, "w") as f:
            for name in fixture_files():
                target, rows = read_fixture(name)
                cases[name] = target, rows
                path = os.path.join(base, name + ".native")
                with open(path, "wb") as out:
                    out.write(native(target, [payload for _, payload in rows]))
                f.write(f"{path}\t{expression(target)}\n")
        subprocess.run([sys.executable, "-c", READER, plan, str(paths.LIBCHDB)], check=True, cwd=base)
        values = 0
        for name, (target, rows) in cases.items():
            with open(os.path.join(base, name + ".native.out")) as f:
                got = [bytes.fromhex(line.rstrip("\n")) for line in f]
            assert len(got) == len(rows), name
            for value, (text, _) in zip(got, rows):
                if name == "bytea.tsv":
                    assert value.hex() == text[2:]
                else:
                    assert same(target, value.decode(), text), (name, text, value)
                values += 1
        assert values > 2500
    finally:
        remove_dir(base)
