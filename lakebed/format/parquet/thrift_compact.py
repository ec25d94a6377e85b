"""Thrift's compact protocol, as far as a Parquet footer needs it, for untrusted bytes.

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

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NoReturn, TypeAlias, TypeVar

from lakebed.errors import CorruptTable

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
INTEGERS = frozenset({I8, I16, I32, I64})
MAX_DEPTH = 12
_VARINTS = frozenset({I16, I32, I64})
_WIDTHS = {TRUE: 1, FALSE: 1, I8: 1, DOUBLE: 8, UUID: 16}

_T = TypeVar("_T")

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

    def number(self) -> int:
        value = self._read(_varint)
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        return self._read(_binary)

    def list_header(self) -> tuple[int, int]:
        """The size of a list and the kind of its elements."""
        return self._read(_list_header)

    def _read(self, read: Callable[[bytes, int], tuple[_T, int]]) -> _T:
        where = self.at
        try:
            value, self.at = read(self.data, where)
        except (IndexError, ValueError) as error:
            self.fail(f"the footer breaks off or is garbled: {error}", where)
        return value

    def fields(self) -> Iterator[tuple[int, int]]:
        """Id and kind of each field of the struct that begins here; the caller reads or skips each value."""
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.number()
            yield number, head & 0x0F

    # ------------------------------------------------------------------ whole values
    def struct(self, shape: Shape) -> dict[int, Any]:
        """The wanted fields of the struct that begins here."""
        return self._read(lambda data, at: _struct(data, at, shape))

    def skip(self, kind: int) -> None:
        """Step over a value."""
        where = self.at
        try:
            self.at = _after(self.data, where, kind, MAX_DEPTH)
        except (IndexError, ValueError) as error:
            self.fail(f"the footer breaks off or is garbled: {error}", where)
        if self.at > len(self.data):
            self.fail("the footer ends within a value", where)

    def skip_structs(self, count: int, *, many: bool = False) -> None:
        """Step over structs in a row; `many` when there will be thousands of them, which pays for a faster way."""
        if not many:
            for _ in range(count):
                self.skip(STRUCT)
            return
        match, data = _plain_struct().match, self.data
        for _ in range(count):
            found = match(data, self.at)
            if found is None:
                self.skip(STRUCT)
            else:
                self.at = found.end()


# The loops below run for every field of every column chunk, so they hold positions in local variables, call nothing for
# the common kinds and leave the end of the data to IndexError.


def _struct(data: bytes, at: int, shape: Shape, depth: int = MAX_DEPTH) -> tuple[dict[int, Any], int]:
    found: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head > 0x0F:
            number += head >> 4
        else:
            value, at = _varint(data, at)
            number = (value >> 1) ^ -(value & 1)
        wanted = shape.get(number)
        if wanted is None:
            at = _after(data, at, kind, depth)
            continue
        kinds, below = wanted
        if kind not in kinds:
            raise ValueError(f"field {number} is of the wrong kind ({kind})")
        if kind in _VARINTS:
            value = data[at]
            at += 1
            if value > 0x7F:
                value, at = _varint(data, at - 1)
            found[number] = (value >> 1) ^ -(value & 1)
        elif kind == BINARY:
            found[number], at = _binary(data, at)
        elif kind == STRUCT:
            if depth <= 0 or below is None:
                raise ValueError("nested too deeply")
            found[number], at = _struct(data, at, below, depth - 1)
        elif kind == LIST:
            found[number], at = _texts(data, at)
        elif kind == I8:
            found[number] = data[at] - ((data[at] & 0x80) << 1)
            at += 1
        else:
            found[number] = kind == TRUE
    return found, at + 1


def _binary(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(data, at)
    if size > len(data) - at:
        raise ValueError(f"{size} bytes of text where {len(data) - at} are left")
    return data[at : at + size], at + size


def _texts(data: bytes, at: int) -> tuple[list[bytes], int]:
    (size, kind), at = _list_header(data, at)
    if kind != BINARY and size:
        raise ValueError(f"a list of the wrong kind ({kind})")
    texts = []
    for _ in range(size):
        text, at = _binary(data, at)
        texts.append(text)
    return texts, at


def _after(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where the value of a field ends."""
    if kind in _VARINTS:
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if kind == STRUCT:
        return _after_struct(data, at, depth)
    if kind in (TRUE, FALSE):
        return at
    return _after_element(data, at, kind, depth)


def _after_struct(data: bytes, at: int, depth: int) -> int:
    opened = 1
    while opened:
        head = data[at]
        at += 1
        kind = head & 0x0F
        if head < 0x10:
            if head == 0:
                opened -= 1
                continue
            at = _varint(data, at)[1]
        if kind in _VARINTS:
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif kind == BINARY:
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = _varint(data, at - 1)
            at += size
        elif kind == STRUCT:
            opened += 1
            if opened > depth:
                raise ValueError("nested too deeply")
        elif kind > FALSE or kind == 0:
            at = _after_element(data, at, kind, depth - opened)
    return at


def _after_element(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where an element of a list ends; as fields, only flags differ."""
    if kind in _VARINTS:
        return _varint(data, at)[1]
    if kind == BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind in _WIDTHS:
        return at + _WIDTHS[kind]
    if depth <= 0:
        raise ValueError("nested too deeply")
    if kind == STRUCT:
        return _after_struct(data, at, depth - 1)
    if kind in (LIST, SET):
        (size, element), at = _list_header(data, at)
        if element in _VARINTS:
            for _ in range(size):
                while data[at] > 0x7F:
                    at += 1
                at += 1
            return at
        for _ in range(size):
            at = _after_element(data, at, element, depth - 1)
        return at
    if kind == MAP:
        size, at = _varint(data, at)
        if size > len(data) - at:
            raise ValueError(f"a map of {size} where {len(data) - at} bytes are left")
        kinds = data[at] if size else 0
        at += 1 if size else 0
        for _ in range(size):
            at = _after_element(data, at, kinds >> 4, depth - 1)
            at = _after_element(data, at, kinds & 0x0F, depth - 1)
        return at
    raise ValueError(f"unknown kind {kind}")


def _list_header(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    head = data[at]
    size, at = (head >> 4, at + 1) if head < 0xF0 else _varint(data, at + 1)
    if size > len(data) - at:
        raise ValueError(f"a list of {size} where {len(data) - at} bytes are left")
    return (size, head & 0x0F), at


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
            raise ValueError("a number is too long")


@cache
def _plain_struct() -> re.Pattern[bytes]:
    """A pattern for structs of the common make, two levels of structs deep; others are walked.

    The encoding is a prefix code: whatever matches is the struct and nothing else. Lengths cannot be counted by a
    pattern, so small sizes are spelled out one by one.
    """

    def heads(*kinds: int) -> bytes:
        return b"[%s]" % b"".join(re.escape(bytes([delta << 4 | kind])) for delta in range(1, 16) for kind in kinds)

    def sizes(kinds: tuple[int, ...], element: bytes, most: int) -> list[bytes]:
        firsts = [b"".join(re.escape(bytes([size << 4 | kind])) for kind in kinds) for size in range(most + 1)]
        return [b"[%s](?:%s){%d}" % (first, element, size) for size, first in enumerate(firsts)]

    varint = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
    number, flag = heads(I16, I32, I64) + varint, heads(TRUE, FALSE)
    binary = b"(?:%s)" % b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in range(100))
    numbers = sizes((I16, I32, I64), varint, 8)
    lists = [*numbers, *sizes((BINARY,), binary, 3), *sizes((STRUCT,), rb"(?:%s)*+\x00" % number, 6)]

    def struct(*values: bytes) -> bytes:
        return rb"(?:%s)*+\x00" % b"|".join((number, flag, *values))

    inner = struct(heads(BINARY) + binary, heads(LIST) + b"(?:%s)" % b"|".join(numbers))
    middle = struct(heads(LIST) + b"(?:%s)" % b"|".join(lists), heads(STRUCT) + inner)
    return re.compile(struct(heads(STRUCT) + middle), re.DOTALL)
