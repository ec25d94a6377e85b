"""Thrift's compact protocol, as far as reading a Parquet footer takes it, from bytes that nobody vouches for.

    struct   field* 0x00
    field    (id delta << 4 | kind) value               delta 0: the id follows as a zigzag varint
    bool     in a struct it is the kind itself (1 true, 2 false), in a list one byte
    i8       one byte       i16 i32 i64   zigzag varint       double   eight bytes, little endian
    binary   varint length, bytes
    list     (size << 4 | kind) element*                size 15: the size follows as a varint; a set is the same
    map      varint size; unless it is 0: (key kind << 4 | value kind), then keys and values in turn

A struct is read against a shape that names the wanted fields; all others are stepped over without making objects,
which is what lets a footer of many thousand column chunks be opened for the few that matter. Each element of a list
takes a byte at least, so a size is believed only while that many bytes are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

from lakebed.errors import CorruptTable

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
INTEGERS = frozenset({I8, I16, I32, I64})
MAX_DEPTH = 12

Shape: TypeAlias = "Mapping[int, tuple[frozenset[int], Shape | None]]"
"""Wanted field ids -> the kinds that the value may have, and the shape of the struct."""

FLAG = (frozenset({TRUE, FALSE}), None)
NUMBER = (INTEGERS, None)
BYTES = (frozenset({BINARY}), None)
TEXTS = (frozenset({LIST}), None)


def nested(shape: Shape) -> tuple[frozenset[int], Shape]:
    """A field that holds a struct of this shape."""
    return frozenset({STRUCT}), shape


class CompactReader:
    """A position in the bytes that moves on as values are read. `start` is where the bytes begin in the file."""

    __slots__ = ("at", "data", "file", "start")

    def __init__(self, data: bytes, file: str, start: int = 0, at: int = 0) -> None:
        self.data = data
        self.file = file
        self.start = start
        self.at = at

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        where = min(self.at if at is None else at, len(self.data))
        raise CorruptTable(what, file=self.file, offset=self.start + where)

    # ------------------------------------------------------------------ single values
    def byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            self.fail("the footer ends within a value")
        self.at = at + 1
        return self.data[at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                self.fail("a number in the footer is too long")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        size = self.varint()
        end = self.at + size
        if end > len(self.data):
            self.fail(f"{size} bytes of text where {len(self.data) - self.at} are left")
        value = self.data[self.at : end]
        self.at = end
        return value

    def list_header(self) -> tuple[int, int]:
        """The size of a list and the kind of its elements."""
        head = self.byte()
        size = head >> 4
        if size == 15:
            size = self.varint()
        if size > len(self.data) - self.at:
            self.fail(f"a list of {size} where {len(self.data) - self.at} bytes are left")
        return size, head & 0x0F

    def fields(self) -> Iterator[tuple[int, int]]:
        """Id and kind of each field of the struct that begins here; the caller reads or skips each value."""
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            yield number, head & 0x0F

    # ------------------------------------------------------------------ structs by shape
    def struct(self, shape: Shape, depth: int = MAX_DEPTH) -> dict[int, Any]:
        """The wanted fields of the struct that begins here."""
        if depth <= 0:
            self.fail("the footer is nested too deeply")
        found: dict[int, Any] = {}
        for number, kind in self.fields():
            wanted = shape.get(number)
            if wanted is None:
                self.skip(kind)
                continue
            kinds, below = wanted
            if kind not in kinds:
                self.fail(f"field {number} is of the wrong kind ({kind})")
            found[number] = self.value(kind, below, depth - 1)
        return found

    def value(self, kind: int, shape: Shape | None, depth: int = MAX_DEPTH) -> Any:
        """The value of a field."""
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind == BINARY:
            return self.binary()
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == STRUCT:
            return self.struct(shape or {}, depth)
        if kind == I8:
            byte = self.byte()
            return byte - 256 if byte > 127 else byte
        if kind == LIST:
            return self.texts()
        raise AssertionError(f"no shape asks for kind {kind}")

    def texts(self) -> list[bytes]:
        """A list of binaries, the one kind of list that a shape can ask for."""
        size, element = self.list_header()
        if element != BINARY and size:
            self.fail(f"a list of the wrong kind ({element})")
        return [self.binary() for _ in range(size)]

    def skip(self, kind: int) -> None:
        """Step over a value."""
        at = self.at
        try:
            self.at = _after(self.data, at, kind, MAX_DEPTH)
        except (IndexError, ValueError):
            self.fail("the footer breaks off or is garbled", at)
        if self.at > len(self.data):
            self.fail("the footer ends within a value", at)


def _after(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where the value ends. The one hot loop: nothing is called for plain fields, and nested structs are counted."""
    if kind == STRUCT:
        opened = 1
        while True:
            head = data[at]
            at += 1
            inner = head & 0x0F
            if head < 0x10:
                if head == 0:
                    opened -= 1
                    if opened == 0:
                        return at
                    continue
                _, at = _varint(data, at)
            if inner in (I64, I32, I16):
                while data[at] > 0x7F:
                    at += 1
                at += 1
            elif inner == BINARY:
                size = data[at]
                at += 1
                if size > 0x7F:
                    size, at = _varint(data, at - 1)
                at += size
            elif inner == STRUCT:
                opened += 1
                if opened > depth:
                    raise ValueError("too deep")
            elif inner > FALSE:
                at = _after(data, at, inner, depth - opened)
            elif inner == 0:
                raise ValueError("no kind")
    if kind in (LIST, SET):
        return _after_list(data, at, depth)
    if kind == MAP:
        size, at = _varint(data, at)
        if size:
            kinds = data[at]
            at += 1
            for _ in range(_believed(data, at, size)):
                at = _after_element(data, at, kinds >> 4, depth)
                at = _after_element(data, at, kinds & 0x0F, depth)
        return at
    return _after_element(data, at, kind, depth) if kind > FALSE else at


def _after_list(data: bytes, at: int, depth: int) -> int:
    head = data[at]
    at += 1
    size, kind = head >> 4, head & 0x0F
    if size == 15:
        size, at = _varint(data, at)
    if size > len(data) - at:
        raise ValueError("too few bytes")
    if kind in (I16, I32, I64):
        for _ in range(size):
            while data[at] > 0x7F:
                at += 1
            at += 1
        return at
    for _ in range(size):
        at = _after_element(data, at, kind, depth)
    return at


def _after_element(data: bytes, at: int, kind: int, depth: int) -> int:
    if kind in (TRUE, FALSE, I8):
        return at + 1
    if kind in (I16, I32, I64):
        return _varint(data, at)[1]
    if kind == BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind == DOUBLE:
        return at + 8
    if kind == UUID:
        return at + 16
    if kind in (LIST, SET, MAP, STRUCT) and depth > 0:
        return _after(data, at, kind, depth - 1)
    raise ValueError("unknown kind, or too deep")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("too long")


def _believed(data: bytes, at: int, size: int) -> int:
    if size > len(data) - at:
        raise ValueError("too few bytes")
    return size
