"""Inserts ready Native blocks from memory: what the engine costs when nobody has to make the blocks.

Speaks ClickHouse's native protocol as a client of revision 54453, below the revision (54454) from which
each column carries a serialization flag: there a block on the wire is a block of `FORMAT Native` behind
its BlockInfo, so the bytes of a dump are sent as they are. Only columns of fixed width are understood.
"""

import socket

REVISION = 54453
BLOCK_INFO = bytes.fromhex("010002ffffffff00")
WIDTHS = {"Bool": 1, "Int8": 1, "UInt8": 1, "Int16": 2, "UInt16": 2, "Int32": 4, "UInt32": 4, "Int64": 8,
          "UInt64": 8, "Float32": 4, "Float64": 8, "Date32": 4, "UUID": 16}


def widths(kind):
    """Bytes a row of what a column of this type consists of: its null flags, its values."""
    if kind.startswith("Nullable("):
        return [1, *widths(kind[9:-1])]
    width = 8 if kind.startswith(("DateTime64", "Time64")) else WIDTHS.get(kind)
    if width is None:
        raise ValueError(f"{kind}: not a column of fixed width")
    return [width]


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def string(text):
    data = text.encode()
    return varint(len(data)) + data


class Reader:
    """Reads protocol items from a socket or from bytes."""

    def __init__(self, source):
        self.source = source
        self.data = source if isinstance(source, bytes) else b""
        self.at = 0

    def take(self, count):
        while len(self.data) - self.at < count:
            if isinstance(self.source, bytes):
                raise EOFError
            more = self.source.recv(1 << 16)
            if not more:
                raise EOFError
            self.data = self.data[self.at:] + more
            self.at = 0
        self.at += count
        return self.data[self.at - count:self.at]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self):
        return self.take(self.varint()).decode(errors="replace")

    def block(self):
        """Skips over a block after its BlockInfo; returns the number of rows."""
        columns, rows = self.varint(), self.varint()
        for _ in range(columns):
            self.string()
            self.column(self.string(), rows)
        return rows

    def column(self, kind, rows):
        if rows > 0:
            for width in widths(kind):
                self.take(rows * width)


def split_blocks(dump, most):
    """The rows of a FORMAT Native dump in blocks of at most so many: numbers of rows and bytes."""
    reader = Reader(dump)
    blocks = []
    while reader.at < len(dump):
        columns, rows = reader.varint(), reader.varint()
        parts = []  # a column's header, then the values of one width each
        for _ in range(columns):
            start = reader.at
            reader.string()
            kind = reader.string()
            parts.append((0, dump[start:reader.at]))
            for width in widths(kind):
                parts.append((width, reader.take(rows * width)))
        for first in range(0, rows, most):
            n = min(most, rows - first)
            body = [data[first * width:(first + n) * width] if width else data for width, data in parts]
            blocks.append((n, varint(columns) + varint(n) + b"".join(body)))
    return blocks


class Sender:
    def __init__(self, port, database):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.reader = Reader(self.socket)
        self.socket.sendall(b"\0" + string("bench") + varint(1) + varint(1) + varint(REVISION)
                            + string(database) + string("default") + string(""))
        if self.reader.varint() != 0:
            raise RuntimeError("no hello from the server")
        self.reader.string()
        self.reader.varint(), self.reader.varint(), self.reader.varint()
        self.reader.string(), self.reader.string()
        self.reader.varint()

    def insert(self, statement, blocks, settings=()):
        """One INSERT with all these blocks; returns after the end of the stream."""
        info = (b"\1" + string("") + string("") + string("0.0.0.0:0") + b"\0" * 8 + b"\1" + string("")
                + string("") + string("bench") + varint(1) + varint(1) + varint(REVISION) + string("")
                + varint(0) + varint(1) + b"\0" + varint(0) + varint(0) + varint(0))
        pairs = b"".join(string(k) + varint(0) + string(v) for k, v in settings)
        self.socket.sendall(b"\1" + string("") + info + pairs + string("") + string("") + varint(2)
                            + varint(0) + string(statement) + self.empty())
        while self.packet() != "sample":
            pass
        for block in blocks:
            self.socket.sendall(b"\2" + string("") + BLOCK_INFO + block)
        self.socket.sendall(self.empty())
        while self.packet() != "end":
            pass

    @staticmethod
    def empty():
        return b"\2" + string("") + BLOCK_INFO + varint(0) + varint(0)

    def packet(self):
        kind = self.reader.varint()
        if kind == 1:
            self.reader.string()
            self.block_info()
            self.reader.block()
            return "sample"
        if kind == 2:
            self.reader.take(4)
            raise RuntimeError(f"{self.reader.string()} {self.reader.string()}")
        if kind == 3:
            for _ in range(5):
                self.reader.varint()
            return "progress"
        if kind == 5:
            return "end"
        if kind == 11:
            self.reader.string(), self.reader.string()
            return "columns"
        raise RuntimeError(f"packet {kind} was not expected")

    def block_info(self):
        while True:
            field = self.reader.varint()
            if field == 0:
                return
            self.reader.take(1 if field == 1 else 4)
