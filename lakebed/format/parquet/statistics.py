"""Decodes the bounds in Parquet statistics: bytes and a leaf in, Python values out, None where a bound is unsure.

The new pair (`min_value`, `max_value`) counts where the footer states that it follows the order of the type. The old
pair was written in whatever order the writer's language had, so it counts for signed whole numbers only, where there is
just one. Text and bytes are ordered by unsigned bytes, which for valid UTF-8 is the order of Python's strings. Writers
may cut long values: the cut minimum is smaller, the raised maximum larger, so both still are bounds. NaN is in no
order, and a zero bound stands for both zeros. Where Python's types are coarser (nanoseconds), bounds are rounded
outwards.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, TypeAlias

from lakebed.errors import CorruptTable
from lakebed.format.parquet.footer import ColumnChunk
from lakebed.format.parquet.schema import Kind, Leaf, Physical

Bounds: TypeAlias = tuple[Any, Any]
_UNKNOWN: Bounds = (None, None)
_INTEGERS = {Physical.INT32: 4, Physical.INT64: 8}
_FLOATS = {Physical.FLOAT: "<f", Physical.DOUBLE: "<d"}
_BYTES = (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_DAY = 24 * 60 * 60
_EXACT = Context(prec=100)


def bounds(chunk: ColumnChunk, file: str) -> Bounds:
    """The smallest and largest value that the column chunk can hold, nulls aside."""
    raw = _ordered_bytes(chunk)
    decode = _decoder(chunk.leaf)
    if raw is None or decode is None:
        return _UNKNOWN
    try:
        low, high = decode(raw[0], False), decode(raw[1], True)
    except (ValueError, struct.error) as error:
        message = f"the statistics of {chunk.leaf.name!r} are not values of its type"
        raise CorruptTable(message, file=file, offset=chunk.offset) from error
    if low is None or high is None:
        return (None, None) if isinstance(low, float) or isinstance(high, float) else (low, high)
    return (low, high) if low <= high else _UNKNOWN


def null_count(chunk: ColumnChunk) -> int | None:
    """How many nulls, where the statistics state a plausible number."""
    found = chunk.statistics.null_count if chunk.statistics else None
    return found if found is not None and 0 <= found <= chunk.num_values else None


def byte_bounds(chunk: ColumnChunk) -> tuple[bytes, bytes] | None:
    """Both bounds as they are stored, whatever pair they come from."""
    found = chunk.statistics
    if found is None:
        return None
    low = found.min_value if found.min_value is not None else found.old_min
    high = found.max_value if found.max_value is not None else found.old_max
    return None if low is None or high is None else (low, high)


def _ordered_bytes(chunk: ColumnChunk) -> tuple[bytes | None, bytes | None] | None:
    """The pair of which the order is known; a side that is absent is None."""
    found, leaf = chunk.statistics, chunk.leaf
    if found is None:
        return None
    if leaf.by_type and (found.min_value is not None or found.max_value is not None):
        low, high = found.min_value, found.max_value
    elif leaf.physical in _INTEGERS and leaf.logical.signed:
        low, high = found.old_min, found.old_max
    else:
        return None
    if leaf.physical is not Physical.BYTE_ARRAY:  # some writers put nothing where all values are null
        low, high = low or None, high or None
    return None if low is None and high is None else (low, high)


_Decode: TypeAlias = "Callable[[bytes | None, bool], Any]"


def _decoder(leaf: Leaf) -> _Decode | None:
    """How a bound becomes a value; the flag marks the upper one. None: bounds of the type are not used."""
    kind, physical = leaf.logical.kind, leaf.physical
    if physical in _INTEGERS:
        return _integers(leaf, _INTEGERS[physical])
    if physical in _FLOATS and kind is Kind.PLAIN:
        return _floats(_FLOATS[physical])
    if physical is Physical.BOOLEAN and kind is Kind.PLAIN:
        return lambda raw, _: None if raw is None else bool(_whole(raw, 1, False))
    if physical in _BYTES:
        if kind is Kind.TEXT:
            return lambda raw, _: None if raw is None else _text(raw)
        if kind is Kind.PLAIN:
            return lambda raw, _: raw
        if kind is Kind.DECIMAL:
            width = leaf.width if physical is Physical.FIXED_LEN_BYTE_ARRAY else 0
            return lambda raw, _: None if raw is None else _big_decimal(raw, width, leaf.logical.scale)
    return None


def _integers(leaf: Leaf, width: int) -> _Decode | None:
    logical = leaf.logical
    meaning: Callable[[int, bool], Any]
    if logical.kind in (Kind.PLAIN, Kind.INTEGER):

        def meaning(value: int, up: bool) -> Any:
            return value

    elif logical.kind is Kind.DECIMAL:

        def meaning(value: int, up: bool) -> Any:
            return _decimal(value, logical.scale)

    elif logical.kind is Kind.DATE:

        def meaning(value: int, up: bool) -> Any:
            day = value + _EPOCH_DAY
            return dt.date.fromordinal(day) if 1 <= day <= dt.date.max.toordinal() else None

    elif logical.kind is Kind.TIME:

        def meaning(value: int, up: bool) -> Any:
            micros = _micros(value, logical.per_second, up)
            return (_EPOCH + dt.timedelta(microseconds=micros)).time() if 0 <= micros < _DAY * 10**6 else None

    elif logical.kind is Kind.TIMESTAMP:

        def meaning(value: int, up: bool) -> Any:
            try:
                found = _EPOCH + dt.timedelta(microseconds=_micros(value, logical.per_second, up))
            except OverflowError:
                return None
            return found if logical.utc else found.replace(tzinfo=None)

    else:
        return None
    return lambda raw, up: None if raw is None else meaning(_whole(raw, width, logical.signed), up)


def _floats(layout: str) -> _Decode:
    def decode(raw: bytes | None, up: bool) -> Any:
        if raw is None:
            return None
        (value,) = struct.unpack(layout, raw)
        if math.isnan(value):
            return None
        return (0.0 if up else -0.0) if value == 0 else value

    return decode


def _whole(raw: bytes, width: int, signed: bool) -> int:
    if len(raw) != width:
        raise ValueError("wrong width")
    return int.from_bytes(raw, "little", signed=signed)


def _text(raw: bytes) -> str | None:
    """None where a writer cut a value within a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _big_decimal(raw: bytes, width: int, scale: int) -> Decimal:
    if (width and len(raw) != width) or not 0 < len(raw) <= 32:
        raise ValueError("wrong width")
    return _decimal(int.from_bytes(raw, "big", signed=True), scale)


def _decimal(value: int, scale: int) -> Decimal:
    if not 0 <= scale <= 76:
        raise ValueError("impossible scale")
    return Decimal(value).scaleb(-scale, _EXACT)


def _micros(value: int, per_second: int, up: bool) -> int:
    whole = value * 10**6
    return -(-whole // per_second) if up else whole // per_second
