"""The judge: are the rows at the destination the rows at the source, value by value?

Independent of walshadow's own `verify`: the source's text comes from PostgreSQL's output functions
through COPY, the destination's from ClickHouse through `walshadow sql`, and the two are compared
here. Both sides give one line a row. Where a type's text differs by convention (bool, trailing zeros
of a Decimal, time stamps), the destination's value is brought to PostgreSQL's text by the query or,
field by field, by a rule that loses nothing (`same_value`).
"""

import collections
import datetime
import decimal
import re
import struct

# Rendering settings of the contract's "text form".
SESSION = (
    "SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';"
    "SET extra_float_digits = 1; SET bytea_output = 'hex'; SET lc_monetary = 'C';"
    "SET statement_timeout = 0; SET search_path = pg_catalog"
)

Column = collections.namedtuple("Column", "name type not_null")
Table = collections.namedtuple("Table", "schema name oid columns key partitioned")

_ESCAPES = {
    b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"0": b"\0",
}


def _unescape(match):
    return _ESCAPES.get(match.group(1), match.group(1))


def unescape(field):
    """One field of COPY text or TSV as bytes; None for NULL."""
    if field == b"\\N":
        return None
    if b"\\" not in field:
        return field
    return re.sub(rb"\\(.)", _unescape, field, flags=re.S)


def quote_pg(name):
    return '"' + name.replace('"', '""') + '"'


def quote_ch(name):
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal_ch(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def source_tables(connection, split=()):
    """Every ordinary and partitioned table of user schemas (leaves come through their root); of the roots
    named in split, the leaves."""
    with connection.cursor() as cursor:
        cursor.execute("""
            SELECT n.nspname, c.relname, c.oid, c.relkind = 'p' FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
              AND CASE WHEN c.relispartition THEN c.relkind = 'r' AND (SELECT r.relname FROM pg_class r
                  WHERE r.oid = pg_partition_root(c.oid)) = ANY (%(split)s) ELSE c.relname <> ALL (%(split)s) END
              AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
            ORDER BY 1, 2""", {"split": list(split)})
        found = cursor.fetchall()
        tables = []
        for schema, name, oid, partitioned in found:
            cursor.execute("""
                SELECT a.attname, coalesce(nullif(t.typbasetype, 0)::regtype, a.atttypid::regtype)::text,
                       a.attnotnull
                FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
                  AND a.attgenerated IN ('', 's') ORDER BY a.attnum""", (oid,))
            columns = [Column(*row) for row in cursor.fetchall()]
            # The rule for keys: the identity index, else an immediate primary key, else none; none also
            # where a column of it may still hold NULL (18: NOT NULL … NOT VALID).
            cursor.execute("""
                SELECT a.attname FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid,
                       unnest(i.indkey::int2[]) WITH ORDINALITY AS k(n, o)
                JOIN pg_attribute a ON a.attnum = k.n AND a.attrelid = %s
                WHERE c.oid = %s AND k.o <= i.indnkeyatts
                  AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                        WHEN 'n' THEN false ELSE i.indisprimary AND i.indimmediate END
                  AND NOT EXISTS (SELECT FROM pg_constraint x WHERE x.conrelid = i.indrelid AND x.contype = 'n'
                                  AND NOT x.convalidated AND x.conkey[1] = ANY (i.indkey))
                ORDER BY k.o""", (oid, oid))
            key = [row[0] for row in cursor.fetchall()]
            tables.append(Table(schema, name, oid, columns, key, partitioned))
        return tables


def source_lines(connection, table):
    """One line a row as COPY writes it: bytea as hex, everything else by its output function."""
    items = []
    for column in table.columns:
        name = quote_pg(column.name)
        # A bare format() turns NULL into ''. num_nulls also tells a NULL composite from (,).
        items.append(f"CASE WHEN num_nulls({name}) = 0 THEN format('%s', {name}) END")
    relation = f"{quote_pg(table.schema)}.{quote_pg(table.name)}"
    sink = _Sink()
    with connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.copy_expert(f"COPY (SELECT {', '.join(items)} FROM {relation}) TO STDOUT", sink)
    return sink.lines()


class _Sink:
    """Collects what COPY sends."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        self.parts.append(data)

    def lines(self):
        return b"".join(self.parts).split(b"\n")[:-1]


def target_types(daemon, database, target):
    rows = daemon.sql(
        "SELECT name, type FROM system.columns "
        f"WHERE database = {literal_ch(database)} AND table = {literal_ch(target)} ORDER BY position"
    )
    # TSV escapes quotes inside type names.
    return {unescape(n.encode()).decode(): unescape(t.encode()).decode() for n, t in rows}


def _plain(type_name):
    """A type without Nullable and LowCardinality around it."""
    while True:
        match = re.fullmatch(r"(?:Nullable|LowCardinality)\((.*)\)", type_name, re.S)
        if not match:
            return type_name
        type_name = match.group(1)


def target_expression(column, type_name):
    """ClickHouse expression whose text is nearest to PostgreSQL's for this pair of types."""
    name = quote_ch(column.name)
    plain = _plain(type_name)
    if plain == "Bool":
        return f"multiIf({name} IS NULL, NULL, {name}, 't', 'f')"
    if column.type == "bytea":
        return f"'\\\\x' || lower(hex({name}))"
    if plain.startswith("DateTime64"):
        # PostgreSQL drops trailing zeros of the fraction and a bare dot.
        text = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM toString({name})))"
        return f"{text} || '+00'" if "with time zone" in column.type else text
    if plain.startswith("Time64"):
        return f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM toString({name})))"
    return name


def target_lines(daemon, database, target, table, types):
    items = [target_expression(c, types[c.name]) for c in table.columns]
    data = daemon.sql_bytes(
        f"SELECT {', '.join(items)} FROM {quote_ch(database)}.{quote_ch(target)}"
    )
    if b"\\'" in data:  # TSV escapes a quote, COPY does not
        data = re.sub(rb"\\(.)", lambda m: b"'" if m.group(1) == b"'" else m.group(0), data,
                      flags=re.S)
    if b"\v" in data:  # and the other way round
        data = data.replace(b"\v", b"\\v")
    if b"\0" in data or b"\\0" in data:
        raise AssertionError(f"{target}: NUL byte in a text, which PostgreSQL cannot hold")
    return data.split(b"\n")[:-1]


def _timestamp(text):
    text = text.decode()
    text = re.sub(r"([+-]\d\d)$", r"\1:00", text)
    value = datetime.datetime.fromisoformat(text)
    if value.tzinfo is None:
        return value
    return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def same_value(column, type_name, source, target):
    """Equal as values although not as text? Both are unescaped bytes or None."""
    if source == target:
        return True
    if source is None or target is None:
        return False
    plain = _plain(type_name)
    try:
        if plain == "Float64":
            a, b = float(source), float(target)
            return struct.pack("<d", a) == struct.pack("<d", b) or (a != a and b != b)
        if plain == "Float32":
            a, b = float(source), float(target)
            return struct.pack("<f", a) == struct.pack("<f", b) or (a != a and b != b)
        if plain.startswith("Decimal"):
            return decimal.Decimal(source.decode()) == decimal.Decimal(target.decode())
        if plain.startswith("DateTime64"):
            return _timestamp(source) == _timestamp(target)
    except (ValueError, decimal.InvalidOperation, UnicodeDecodeError):
        return False
    return False


def _needs_value_rules(types):
    return any(_plain(t).startswith(("Float", "Decimal", "DateTime64")) for t in types)


class Difference:
    """What differs in one table; falsy when nothing does."""

    def __init__(self, table, rows):
        self.table = table
        self.rows = rows
        self.missing = []  # at the source only
        self.extra = []  # at the destination only
        self.different = []  # (source row, target row, names of columns)
        self.note = None

    def __bool__(self):
        return bool(self.missing or self.extra or self.different or self.note)

    def __str__(self):
        name = f"{self.table.schema}.{self.table.name}"
        if not self:
            return f"{name}: equal, {self.rows} rows"
        parts = [f"{name}: source rows {self.rows}, missing {len(self.missing)}, "
                 f"extra {len(self.extra)}, different {len(self.different)}"]
        if self.note:
            parts.append(self.note)
        for label, rows in (("missing", self.missing), ("extra", self.extra)):
            parts += [f"  {label}: {row[:300]!r}" for row in rows[:5]]
        for source, target, names in self.different[:5]:
            parts.append(f"  different in {', '.join(names)}:\n    source {source[:300]!r}\n"
                         f"    target {target[:300]!r}")
        return "\n".join(parts)


def compare_lines(table, types, source, target):
    """Compares two multisets of lines; equal rows by text first, the rest field by field."""
    result = Difference(table, len(source))
    source.sort()
    target.sort()
    if source == target:
        return result
    rest = collections.Counter(source)
    rest.subtract(collections.Counter(target))
    only_source = [line for line, n in rest.items() for _ in range(n) if n > 0]
    only_target = [line for line, n in rest.items() for _ in range(-n) if n < 0]
    names = [c.name for c in table.columns]
    type_list = [types[name] for name in names]
    key = [names.index(k) for k in table.key]

    def fields(line):
        return [unescape(f) for f in line.split(b"\t")]

    def key_of(row):
        # Values whose text may differ take no part in pairing; keys of such types pair by rule.
        return tuple(_canonical(table.columns[i], type_list[i], row[i]) for i in key)

    if not key:
        # Without a key rows pair by all their values.
        key = list(range(len(names)))
    waiting = collections.defaultdict(list)
    for line in only_target:
        waiting[key_of(fields(line))].append(line)
    for line in only_source:
        row = fields(line)
        candidates = waiting.get(key_of(row))
        if not candidates:
            result.missing.append(line)
            continue
        other = candidates.pop()
        pairs = zip(table.columns, type_list, row, fields(other))
        differing = [c.name for c, t, a, b in pairs if not same_value(c, t, a, b)]
        if differing:
            result.different.append((line, other, differing))
    for lines in waiting.values():
        result.extra.extend(lines)
    return result


def _canonical(column, type_name, value):
    """A hashable form in which equal values are equal."""
    if value is None:
        return None
    plain = _plain(type_name)
    try:
        if plain == "Float64":
            return struct.pack("<d", float(value))
        if plain == "Float32":
            return struct.pack("<f", float(value))
        if plain.startswith("Decimal"):
            return decimal.Decimal(value.decode()).normalize()
        if plain.startswith("DateTime64"):
            return _timestamp(value)
    except (ValueError, decimal.InvalidOperation, UnicodeDecodeError):
        pass
    return value


def compare_table(connection, daemon, table, database="app", target=None):
    """Compares one table; returns a Difference."""
    if target is None:
        target = table.name
    if table.schema != "public":
        database = f"{database}_{table.schema}"
    types = target_types(daemon, database, target)
    lacking = [c.name for c in table.columns if c.name not in types]
    if lacking:
        result = Difference(table, 0)
        result.note = (f"  {database}.{target} lacks {', '.join(lacking)}" if types
                       else f"  {database}.{target} does not exist")
        return result
    source = source_lines(connection, table)
    lines = target_lines(daemon, database, target, table, types)
    result = compare_lines(table, types, source, lines)
    if not table.key and not result and not table.partitioned:
        _compare_tids(connection, daemon, table, database, target, result)
    return result


def _compare_tids(connection, daemon, table, database, target, result):
    """Rows without a key are named by their TID: the sets of TIDs must be equal too."""
    relation = f"{quote_pg(table.schema)}.{quote_pg(table.name)}"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT ((ctid::text::point)[0]::bigint << 16) | (ctid::text::point)[1]::bigint "
            f"FROM {relation}"
        )
        source = {row[0] for row in cursor.fetchall()}
    rows = daemon.sql(f"SELECT _ctid FROM {quote_ch(database)}.{quote_ch(target)}")
    found = {int(row[0]) for row in rows}
    if source != found:
        result.note = (f"  TIDs differ: only source {sorted(source - found)[:5]}, "
                       f"only target {sorted(found - source)[:5]}")


def compare_all(pg, daemon, database="app", dbname="app", skip=(), split=()):
    """Compares every table of the source's user schemas; returns a list of Difference."""
    connection = pg.connect(dbname)
    try:
        return [
            compare_table(connection, daemon, table, database)
            for table in source_tables(connection, split)
            if f"{table.schema}.{table.name}" not in skip
        ]
    finally:
        connection.close()


def assert_equal(pg, daemon, database="app", dbname="app", skip=(), wait=True, split=()):
    """Waits until the destination has everything, then fails with what differs."""
    if wait:
        daemon.wait_caught_up()
    differences = compare_all(pg, daemon, database, dbname, skip, split)
    assert differences, "no table was compared"
    wrong = [str(d) for d in differences if d]
    assert not wrong, "\n".join(wrong)
    return differences
