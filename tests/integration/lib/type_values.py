"""Columns of every type and of types made of them, with seeded values as SQL expressions.

The plain values are those of the fixtures' generator (tests/fixtures/types/capture.py).
"""

import importlib.util

from lib import paths

_spec = importlib.util.spec_from_file_location(
    "capture", paths.ROOT / "tests" / "fixtures" / "types" / "capture.py")
capture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(capture)
rnd = capture.rnd

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy', 'quo"te', 'ü');
CREATE TYPE pair AS (a int, b text, c mood, d numeric[]);
CREATE TYPE nest AS (p pair, ps pair[], r int4range, j jsonb);
CREATE TYPE worn AS (a int, b text, c float8, d "char");
ALTER TYPE worn DROP ATTRIBUTE b;
ALTER TYPE worn ADD ATTRIBUTE e text;
CREATE TYPE textrange AS RANGE (subtype = text);
CREATE DOMAIN dom_int AS int;
CREATE DOMAIN dom_texts AS text[];
CREATE DOMAIN dom_dom AS dom_texts;
CREATE DOMAIN dom_mood AS mood;
CREATE DOMAIN dom_pair AS pair;
CREATE DOMAIN dom_range AS int4range;
"""
TEXTS = ["", "a", "NULL", "null", 'a"b', "a\\b", "{}", "a,b", "a;b", "(x)", "[y]", " sp ", "tab\t", "nl\n", "\v\f\r", "日本", "it's",
         "x" * 200, "'", "\u00a0", "e\u0301"]
MOODS = ["sad", "ok", "very happy", 'quo"te', "ü"]
RANGES = {
    "int4range": ("int4", lambda: str(rnd.randint(-2**31 + 1, 2**31 - 2) >> rnd.randint(0, 31))),
    "int8range": ("int8", lambda: str(rnd.randint(-2**63 + 1, 2**63 - 2) >> rnd.randint(0, 63))),
    "numrange": ("numeric", lambda: rnd.choice(["0", "1.50", "-12345.678", "1e30", "NaN", "Infinity", capture.random_numeric()])),
    "daterange": ("date", lambda: f"{rnd.randint(1, 4700):04}-0{rnd.randint(1, 9)}-{rnd.randint(10, 28)}{rnd.choice(['', '', ' BC'])}"),
    "tsrange": ("timestamp", lambda: f"{rnd.randint(1, 9998):04}-02-03 0{rnd.randint(0, 9)}:00:00.{rnd.randint(0, 999999)}"),
    "tstzrange": ("timestamptz", lambda: f"{rnd.randint(1, 9998):04}-02-03 04:05:06+0{rnd.randint(0, 9)}"),
    "textrange": ("text", lambda: rnd.choice(TEXTS)),
}
MULTIRANGES = {"int4range": "int4multirange", "int8range": "int8multirange", "numrange": "nummultirange", "daterange": "datemultirange",
               "tsrange": "tsmultirange", "tstzrange": "tstzmultirange", "textrange": "textmultirange"}


def literal(text):
    """A string constant without psycopg's or the server's escapes."""
    return "'" + text.replace("'", "''") + "'"


def texts():
    return [literal(t) for t in TEXTS]


def numbers(n):
    return [literal(str(v)) for v in [0, 1, -1] + [rnd.randint(-2**63, 2**63 - 1) >> rnd.randint(64 - n, 63) for _ in range(20)]]


def range_value(name):
    subtype, bound = RANGES[name]
    if rnd.random() < .1:
        return f"'empty'::{name}"
    low, high = (None if rnd.random() < .15 else f"{literal(bound())}::{subtype}" for _ in range(2))
    low, high = low or "NULL", high or "NULL"
    ordered = f"least({low}, {high}), greatest({low}, {high})" if "NULL" not in (low, high) else f"{low}, {high}"
    return f"{name}({ordered}, '{rnd.choice(['[]', '()', '[)', '(]'])}')"


def multirange_value(name):
    parts = ", ".join(range_value(name) for _ in range(rnd.choice([0, 1, 2, 5, 9])))
    return f"{MULTIRANGES[name]}({parts})"


def array_value(element, values):
    """One to three dimensions, NULLs, lower bounds."""
    def items(n):
        return [("NULL" if rnd.random() < .15 else rnd.choice(values)) for _ in range(n)]
    kind = rnd.randint(0, 5)
    if kind == 0:
        return f"'{{}}'::{element}[]"
    if kind <= 3:
        flat = f"ARRAY[{', '.join(items(rnd.choice([1, 2, 3, 17])))}]::{element}[]"
        return flat
    if kind == 4:
        rows = ", ".join(f"ARRAY[{', '.join(items(3))}]" for _ in range(rnd.randint(1, 3)))
        return f"ARRAY[{rows}]::{element}[]"
    n = rnd.randint(1, 4)
    low = rnd.randint(-9, 9)
    return f"(('[{low}:{low + n - 1}]=' || (ARRAY[{', '.join(items(n))}]::{element}[])::text)::{element}[])"


def pair_value():
    parts = [rnd.choice(["NULL", str(rnd.randint(-99, 99))]), rnd.choice(["NULL"] + texts()),
             rnd.choice(["NULL"] + [literal(m) for m in MOODS]),
             rnd.choice(["NULL", array_value("numeric", ["'1.50'", "'NaN'", "0", "'-1e30'"])])]
    return f"ROW({', '.join(parts)})::pair"


def nest_value():
    pairs = "NULL" if rnd.random() < .2 else f"ARRAY[{', '.join(pair_value() for _ in range(rnd.randint(1, 3)))}]::pair[]"
    return (f"ROW({rnd.choice(['NULL', pair_value()])}, {pairs}, {range_value('int4range')}, "
            f"{literal(capture.random_json(3))}::jsonb)::nest")


def worn_value():
    return f"ROW({rnd.randint(-9, 9)}, {rnd.choice(['NULL', '1.5', literal('NaN')])}, {literal(rnd.choice(['a', '', ',']))}, " \
           f"{rnd.choice(['NULL'] + texts())})::worn"


def many(make, n=40):
    return [make() for _ in range(n)]


def columns(have_xml=True):
    """Yields name, SQL type, values as SQL expressions."""
    for name, sql_type, values in capture.text_types():
        if name != "xml" or have_xml:
            yield name, sql_type, [f"{v}::{sql_type}" if v[0] == "'" else v for v in values]
    if have_xml:
        yield "xml_newline", "xml", ["E'\\n\\n<a/>'::xml", "E'<?xml version=\"1.0\"?>\\n\\n<a/>'::xml", "E' \\n<a/>'::xml"]
    elements = {e[0]: e for e in capture.types()}
    typed = {name: [f"{v}::{elements[name][1]}" if v[0] == "'" else v for v in elements[name][3]]
             for name in ("int2", "int4", "int8", "oid", "float4", "float8", "numeric", "bool", "date", "timestamp", "timestamptz", "time",
                          "timetz", "interval", "uuid", "bytea", "json", "name", "varchar")}
    plain = {name: [f"{v}::{sql_type}" if v[0] == "'" else v for v in values]
             for name, sql_type, values in capture.text_types()}
    for name, values in typed.items():
        yield "a_" + name, name + "[]", many(lambda: array_value(name, values))
    for name in ("inet", "cidr", "macaddr", "bit_7", "varbit", "point", "box", "polygon", "tsvector", "tsquery", "money", "pg_lsn", "tid",
                 "xid8", "int2vector", "jsonpath"):
        sql_type = "bit(7)" if name == "bit_7" else name
        yield "a_" + name, sql_type + "[]", many(lambda: array_value(sql_type, plain[name]), 20)
    small = [v for v in plain["jsonb"] if len(v) < 300]
    yield "a_jsonb", "jsonb[]", many(lambda: array_value("jsonb", small))
    yield "a_text", "text[]", many(lambda: array_value("text", texts()), 80)
    yield "a_char5", "char(5)[]", many(lambda: array_value("char(5)", ["'a'", "''", "'abcde'"]), 10)
    yield "a_qchar", '"char"[]', many(lambda: array_value('"char"', ["'a'", "''", "','", "'\"'", "' '"]), 20)
    for name in RANGES:
        yield "r_" + name, name, many(lambda: range_value(name), 50)
        yield "m_" + name, MULTIRANGES[name], many(lambda: multirange_value(name), 30)
    yield "a_range", "textrange[]", many(lambda: array_value("textrange", many(lambda: range_value("textrange"), 9)), 30)
    yield "a_multirange", "int4multirange[]", many(lambda: array_value("int4multirange", many(lambda: multirange_value("int4range"), 9)), 20)
    moods = [f"{literal(m)}::mood" for m in MOODS]
    yield "e", "mood", moods
    yield "a_e", "mood[]", many(lambda: array_value("mood", moods))
    yield "c_pair", "pair", many(pair_value, 60)
    yield "c_nest", "nest", many(nest_value, 60)
    yield "c_worn", "worn", many(worn_value, 30)
    yield "a_pair", "pair[]", many(lambda: array_value("pair", many(pair_value, 9)), 30)
    yield "a_nest", "nest[]", many(lambda: array_value("nest", many(nest_value, 5)), 15)
    yield "d_texts", "dom_texts", many(lambda: array_value("text", texts()), 20)
    yield "d_dom", "dom_dom", many(lambda: array_value("text", texts()), 20)
    yield "d_mood", "dom_mood", moods
    yield "d_pair", "dom_pair", many(pair_value, 20)
    yield "d_range", "dom_range", many(lambda: range_value("int4range"), 20)
    yield "a_d_mood", "dom_mood[]", many(lambda: array_value("dom_mood", moods), 20)
    yield "a_d_int", "dom_int[]", many(lambda: array_value("dom_int", ["1", "-5"]), 10)
    yield "a_d_pair", "dom_pair[]", many(lambda: array_value("dom_pair", many(pair_value, 5)), 10)
