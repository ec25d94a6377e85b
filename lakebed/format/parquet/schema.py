"""The schema in a Parquet footer: a flat list of elements, depth first, of which only the leaves hold values.

    SchemaElement  1 type, 2 width, 3 repetition, 4 name, 5 children, 6 converted type (old), 7 scale, 8 precision,
                   10 logical type (a union: the field that is set is the type)

A leaf has a physical type, in which statistics are stored, and a logical one, which defines what they mean. Old writers
store only the converted type; both come out here as one `Logical`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any

from lakebed.format.parquet.thrift_compact import BYTES, FLAG, NUMBER, STRUCT, CompactReader, Shape, nested

MAX_NESTING = 200


class Physical(IntEnum):
    """How values are stored."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class Kind(StrEnum):
    """What values mean. `PLAIN` is the physical type itself, `OTHER` is nothing that bounds are taken from."""

    PLAIN = "plain"
    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type with its parameters."""

    kind: Kind
    scale: int = 0
    per_second: int = 0
    """The unit of a time or timestamp."""
    utc: bool = False
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that holds values."""

    index: int
    path: tuple[str, ...]
    raw_path: tuple[bytes, ...]
    physical: Physical
    width: int
    logical: Logical
    repeated: bool
    """Whether it, or a group around it, may have several values in a row."""
    by_type: bool = False
    """Whether the footer states that new statistics follow the order of the type."""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def with_order(self, by_type: bool) -> Leaf:
        return replace(self, by_type=by_type)


_UNIT: Shape = {1: nested({}), 2: nested({}), 3: nested({})}
_TIME: Shape = {1: FLAG, 2: nested(_UNIT)}
_LOGICAL: Shape = {
    1: nested({}),
    4: nested({}),
    5: nested({1: NUMBER, 2: NUMBER}),
    6: nested({}),
    7: nested(_TIME),
    8: nested(_TIME),
    10: nested({1: NUMBER, 2: FLAG}),
    12: nested({}),
}
_ELEMENT: Shape = {
    1: NUMBER,
    2: NUMBER,
    3: NUMBER,
    4: BYTES,
    5: NUMBER,
    6: NUMBER,
    7: NUMBER,
    8: NUMBER,
    10: nested(_LOGICAL),
}
_UNITS = {1: 10**3, 2: 10**6, 3: 10**9}
_REPEATED = 2

_MILLIS, _MICROS = 10**3, 10**6
_CONVERTED = {
    0: Logical(Kind.TEXT),
    4: Logical(Kind.TEXT),
    6: Logical(Kind.DATE),
    7: Logical(Kind.TIME, per_second=_MILLIS),
    8: Logical(Kind.TIME, per_second=_MICROS),
    9: Logical(Kind.TIMESTAMP, per_second=_MILLIS, utc=True),
    10: Logical(Kind.TIMESTAMP, per_second=_MICROS, utc=True),
    **{number: Logical(Kind.INTEGER, signed=False) for number in (11, 12, 13, 14)},
    **{number: Logical(Kind.INTEGER) for number in (15, 16, 17, 18)},
    19: Logical(Kind.TEXT),
}
_CONVERTED_DECIMAL = 5


def leaves_of(reader: CompactReader) -> tuple[Leaf, ...]:
    """The leaves of the list of schema elements that begins here."""
    size, kind = reader.list_header()
    if not size or kind != STRUCT:
        reader.fail("the footer has no schema")
    leaves: list[Leaf] = []
    open_groups: list[tuple[int, tuple[str, ...], bool]] = []
    """Groups that still wait for children: how many, their path, whether they repeat."""
    for number in range(size):
        where = reader.at
        raw = reader.struct(_ELEMENT)
        children = raw.get(5, 0)
        if 4 not in raw or not 0 <= children < size:
            reader.fail("a schema element has no name, or an impossible number of children", where)
        if number == 0:
            if 1 in raw or (size > 1 and not children):
                reader.fail("the schema does not begin with a group", where)
            open_groups.append((children, (), False))
            continue
        if not open_groups:
            reader.fail("the schema has an element outside of its root", where)
        left, path, repeated = open_groups.pop()
        if left > 1:
            open_groups.append((left - 1, path, repeated))
        path = (*path, _name(reader, raw[4], where))
        repeated = repeated or raw.get(3) == _REPEATED
        if 1 in raw and not children:
            leaves.append(_leaf(reader, raw, len(leaves), path, repeated, where))
        elif 1 in raw or not children:
            reader.fail("a schema element is both or neither of group and column", where)
        elif len(path) > MAX_NESTING:
            reader.fail("the schema is nested too deeply", where)
        else:
            open_groups.append((children, path, repeated))
    if any(left for left, _, _ in open_groups):
        reader.fail("the schema breaks off within a group")
    return tuple(leaves)


def _name(reader: CompactReader, raw: bytes, where: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        reader.fail("the name of a column is not text", where)


def _leaf(
    reader: CompactReader, raw: dict[int, Any], index: int, path: tuple[str, ...], repeated: bool, where: int
) -> Leaf:
    try:
        physical, width = Physical(raw[1]), raw.get(2, 0)
    except ValueError:
        reader.fail(f"unknown type {raw[1]}", where)
    if physical is Physical.FIXED_LEN_BYTE_ARRAY and width <= 0:
        reader.fail(f"values of {width} bytes", where)
    return Leaf(index, path, tuple(name.encode() for name in path), physical, width, _logical(raw), repeated)


def _logical(raw: dict[int, Any]) -> Logical:
    union = raw.get(10)
    if union is not None:
        return _logical_of_union(union)
    converted = raw.get(6)
    if converted == _CONVERTED_DECIMAL:
        return Logical(Kind.DECIMAL, scale=raw.get(7, 0))
    if converted is None:
        return Logical(Kind.PLAIN)
    return _CONVERTED.get(converted, Logical(Kind.OTHER))


def _logical_of_union(union: dict[int, Any]) -> Logical:
    """A union with another field than those below is a type that came later: its bounds are left alone."""
    match union:
        case {1: _} | {4: _} | {12: _}:
            return Logical(Kind.TEXT)
        case {5: parameters}:
            return Logical(Kind.DECIMAL, scale=parameters.get(1, 0))
        case {6: _}:
            return Logical(Kind.DATE)
        case {7: parameters} | {8: parameters}:
            unit = _UNITS.get(next(iter(parameters.get(2, {})), 0), 0)
            kind = Kind.OTHER if not unit else Kind.TIME if 7 in union else Kind.TIMESTAMP
            return Logical(kind, per_second=unit, utc=parameters.get(1, False))
        case {10: parameters}:
            return Logical(Kind.INTEGER, signed=parameters.get(2, True))
    return Logical(Kind.OTHER)
