"""The types of the expression language and the common type of several values, by the rules of Spark's ANSI mode.

numbers      tinyint < smallint < int < bigint < decimal < float < double; a whole number beside a float is double
decimals     as many digits before and after the point as any of them; beyond 38, digits after the point go
times        date < timestamp_ntz < timestamp
text         a constant beside a number, date, time, boolean or binary value becomes one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

import pyarrow as pa

NULL, BOOLEAN, TEXT, BINARY, DATE = pa.null(), pa.bool_(), pa.string(), pa.binary(), pa.date32()
TINYINT, SMALLINT, INT, BIGINT = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
TIMESTAMP, TIMESTAMP_NTZ, TIME = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.time64("us")
WHOLE = (TINYINT, SMALLINT, INT, BIGINT)
MOST_DIGITS = 38
_FEWEST_FRACTION_DIGITS = 6
_NUMBERS = (*WHOLE, FLOAT, DOUBLE)
_TIMES = (DATE, TIMESTAMP_NTZ, TIMESTAMP)
DIGITS: Mapping[pa.DataType, int] = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
"""Digits of the decimal that a whole number becomes."""
NAMES: Mapping[pa.DataType, str] = {
    NULL: "VOID",
    BOOLEAN: "BOOLEAN",
    TINYINT: "TINYINT",
    SMALLINT: "SMALLINT",
    INT: "INT",
    BIGINT: "BIGINT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    TEXT: "STRING",
    BINARY: "BINARY",
    DATE: "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
    TIME: "TIME",
}
_STORED: Mapping[pa.DataType, pa.DataType] = {
    pa.uint8(): SMALLINT,
    pa.uint16(): INT,
    pa.uint32(): BIGINT,
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): FLOAT,
    pa.large_string(): TEXT,
    pa.string_view(): TEXT,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
    pa.date64(): DATE,
    pa.time32("s"): TIME,
    pa.time32("ms"): TIME,
    pa.time64("ns"): TIME,
}


def sql_type_of(stored: pa.DataType) -> pa.DataType | None:
    """The type of the language for a column's type, None for nested and other types, which only IS NULL may test."""
    if stored in NAMES:
        return stored
    if pa.types.is_dictionary(stored):
        return sql_type_of(stored.value_type)
    if pa.types.is_timestamp(stored):
        return TIMESTAMP if stored.tz else TIMESTAMP_NTZ
    if pa.types.is_fixed_size_binary(stored):
        return BINARY
    if pa.types.is_decimal(stored) and stored.precision <= MOST_DIGITS and 0 <= stored.scale <= stored.precision:
        return pa.decimal128(stored.precision, stored.scale)
    return _STORED.get(stored)


def sql_name(data_type: pa.DataType) -> str:
    """The type as a cast names it; other types under Arrow's name."""
    if is_decimal(data_type):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    return NAMES.get(data_type, str(data_type))


def is_decimal(data_type: pa.DataType) -> bool:
    """Whether it is a decimal of the language."""
    return bool(pa.types.is_decimal128(data_type))


def is_whole(data_type: pa.DataType) -> bool:
    """Whether it holds whole numbers."""
    return data_type in WHOLE


def is_floating(data_type: pa.DataType) -> bool:
    """Whether a value may be NaN."""
    return data_type in (FLOAT, DOUBLE)


def is_number(data_type: pa.DataType) -> bool:
    """Whether arithmetic is defined for it."""
    return data_type in _NUMBERS or is_decimal(data_type)


def is_time(data_type: pa.DataType) -> bool:
    """Whether it is a date or timestamp."""
    return data_type in _TIMES


def decimal_of(data_type: pa.DataType) -> pa.DataType:
    """The decimal that holds every value of a whole type; a decimal is itself."""
    return data_type if is_decimal(data_type) else pa.decimal128(DIGITS[data_type], 0)


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type in which values of these types compare or stand beside each other; None when there is none.

    Text is compared only with text here: a constant of it is converted by `text_partner` first.
    """
    return reduce(_wider, types, NULL)


def text_partner(other: pa.DataType) -> pa.DataType:
    """What a constant text becomes beside a value of another type."""
    if is_whole(other):
        return BIGINT
    if is_floating(other) or is_decimal(other):
        return DOUBLE
    return TEXT if other == NULL else other


def _wider(one: pa.DataType | None, other: pa.DataType) -> pa.DataType | None:
    if one is None or one == other:
        return one
    if NULL in (one, other):
        return other if one == NULL else one
    if is_number(one) and is_number(other):
        return _wider_number(one, other)
    if is_time(one) and is_time(other):
        return max(one, other, key=_TIMES.index)
    return None


def _wider_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if is_decimal(one) or is_decimal(other):
        if is_floating(one) or is_floating(other):
            return DOUBLE
        return wider_decimal(decimal_of(one), decimal_of(other))
    wider = max(one, other, key=_NUMBERS.index)
    return DOUBLE if wider == FLOAT and (is_whole(one) or is_whole(other)) else wider


def wider_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Digits for both before and after the point; what exceeds 38 is taken from behind the point."""
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    excess = max(0, precision - MOST_DIGITS)
    return pa.decimal128(precision - excess, max(0, scale - excess))


def decimal_result(op: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of + - * / % over two decimals."""
    p1, s1, p2, s2 = one.precision, one.scale, other.precision, other.scale
    scale = max(s1, s2)
    match op:
        case "+" | "-":
            precision = max(p1 - s1, p2 - s2) + scale + 1
        case "*":
            precision, scale = p1 + p2 + 1, s1 + s2
        case "/":
            scale = max(_FEWEST_FRACTION_DIGITS, s1 + p2 + 1)
            precision = p1 - s1 + s2 + scale
        case _:
            precision = min(p1 - s1, p2 - s2) + scale
    return _bounded(precision, scale)


def _bounded(precision: int, scale: int) -> pa.DataType:
    """Digits before the point come first; of those after it at least six stay."""
    if precision <= MOST_DIGITS:
        return pa.decimal128(precision, scale)
    kept = max(MOST_DIGITS - (precision - scale), min(scale, _FEWEST_FRACTION_DIGITS))
    return pa.decimal128(MOST_DIGITS, kept)
