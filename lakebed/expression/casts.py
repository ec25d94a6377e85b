"""Casts: which of them exist, and how they convert columns by the rules of Spark's ANSI mode.

    to         from: boolean  whole     float/double       decimal     text     binary  date   timestamp   timestamp_ntz
    boolean          -        != 0      != 0               != 0        word
    whole            0, 1     checked   cut, checked       cut         digits                  seconds
    float/double     0, 1     nearest   nearest            nearest     number                  seconds
    decimal          0, 1     checked   as Java prints it  half up     number                  seconds
    text             word     digits    as Java prints it  plain       -                ISO    ISO, UTC    ISO
    binary                                                             UTF-8    -
    date                                                               ISO              -      day in UTC  day
    timestamp                 seconds   seconds            seconds     ISO              0:00   -           UTC
    timestamp_ntz                                                      ISO              0:00   in UTC      -

An empty cell is a cast that does not exist. What does not fit is an error, or null under TRY_CAST; NaN and infinity as
decimals are null, as Spark has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression import text_casts
from lakebed.expression.decimals import nearest_units, of_digits, rescaled, to_decimal, truncated, unscaled, valid
from lakebed.expression.failures import Bools, checked
from lakebed.expression.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DIGITS,
    DOUBLE,
    FLOAT,
    NULL,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_decimal,
    is_floating,
    is_number,
    is_whole,
    sql_name,
    sql_type_of,
)
from lakebed.model.java_text import java_floats

_MICROS = 1_000_000
_SECONDS_DIGITS = 12
"""Whole digits of a decimal that counts seconds; beyond, Spark overflows unnoticed."""
_MOST_DAYS = (2**63 - 1) // (86_400 * _MICROS)
"""Days before and after 1970 that are timestamps."""
_USE_TRY_CAST = "Use try_cast, which gives null."


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the cast exists."""
    if source in (target, NULL):
        return True
    number = is_number(source) or source == BOOLEAN
    if target in (TIMESTAMP, BOOLEAN):
        other = {TIMESTAMP: (DATE, TIMESTAMP_NTZ), BOOLEAN: ()}[target]
        too_long = target == TIMESTAMP and is_decimal(source) and source.precision - source.scale > _SECONDS_DIGITS
        return source == TEXT or source in other or (is_number(source) and not too_long)
    if is_number(target):
        return number or source in (TEXT, TIMESTAMP)
    if target == TEXT:
        return number or source in (DATE, TIMESTAMP, TIMESTAMP_NTZ)
    if target in (DATE, TIMESTAMP_NTZ):
        return source in {TEXT, DATE, TIMESTAMP, TIMESTAMP_NTZ}
    return source == TEXT and target in (BINARY, TIME)


def cast(array: pa.Array, target: pa.DataType, lenient: bool = False) -> pa.Array:
    """The array in another type. Columns in a stored form take their type of the language on the way."""
    source = sql_type_of(array.type)
    assert source is not None
    if array.type != source:
        array = array.cast(source, safe=False)
    if source == target:
        return array
    if source == NULL:
        return pa.nulls(len(array), target)
    return _kernel(source, target)(array, target, lenient)


def _kernel(source: pa.DataType, target: pa.DataType) -> Callable[[Any, pa.DataType, bool], pa.Array]:
    if source == TEXT:
        return text_casts.parse if target != BINARY else _plain
    if target == TEXT:
        return lambda array, *_: text_casts.write(array)
    if target == BOOLEAN:
        return _to_boolean
    if target == TIMESTAMP and is_number(source):
        return _seconds_to_timestamp
    if source == TIMESTAMP and is_number(target):
        return _timestamp_to_number
    if is_whole(target):
        return _to_whole
    if is_floating(target):
        return _to_floating
    return _to_decimal if is_decimal(target) else _plain


def _plain(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    """Between dates and times, and text to binary: Arrow's own, which reckons in UTC and cuts the time of day.

    Days may be farther from 1970 than 64 bits of microseconds reach; nothing else can fail.
    """
    if array.type != DATE:
        return array.cast(target, safe=target != DATE)
    days = np.asarray(array.cast(pa.int32()).fill_null(0))
    bad: Bools = np.abs(days.astype(np.int64)) > _MOST_DAYS
    if bad.any():
        near = pc.if_else(pa.array(bad), pa.scalar(None, DATE), array)
        return checked(near.cast(target), bad, array, lenient, _overflow(target), _USE_TRY_CAST)
    return array.cast(target)


def _to_boolean(array: Any, _: pa.DataType, __: bool) -> pa.Array:
    zero = pa.scalar(0, array.type)
    return pc.not_equal(array, zero)


# --- whole numbers ----------------------------------------------------------------------------------------------------


def _to_whole(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    if array.type == BOOLEAN or is_whole(array.type):
        if array.type == BOOLEAN or array.type.bit_width <= target.bit_width:
            return array.cast(target)
        numbers = np.asarray(array.fill_null(0)) if array.null_count else np.asarray(array)
    elif is_decimal(array.type):
        numbers = truncated(unscaled(array), 10**array.type.scale) if array.type.scale else unscaled(array)
    else:
        return _float_to_whole(array, target, lenient)
    return _fitted(numbers, array, target, lenient)


def _fitted(numbers: Any, array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    limits = np.iinfo(target.to_pandas_dtype())
    bad = np.asarray((numbers > limits.max) | (numbers < limits.min), np.bool_)
    kept = np.where(bad, 0, numbers).astype(target.to_pandas_dtype())
    value = pa.array(kept, target, mask=~valid(array) if array.null_count else None)
    return checked(value, bad, array, lenient, _overflow(target), _USE_TRY_CAST)


def _float_to_whole(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    """Cut towards zero. As in Java, 2^63 passes for the greatest bigint."""
    numbers = np.trunc(np.asarray(pc.fill_null(array.cast(DOUBLE), 0.0)))
    limits = np.iinfo(target.to_pandas_dtype())
    bad: Bools = ~((numbers <= float(limits.max)) & (numbers >= float(limits.min)))
    greatest = numbers >= 2.0**63
    kept = np.where(bad | greatest, 0, numbers).astype(np.int64)
    kept[greatest & ~bad] = limits.max
    value = pa.array(kept.astype(target.to_pandas_dtype()), target, mask=~valid(array) if array.null_count else None)
    return checked(value, bad, array, lenient, _overflow(target), _USE_TRY_CAST)


def _overflow(target: pa.DataType) -> str:
    return f"{{}} does not fit into {sql_name(target)}"


# --- fractions --------------------------------------------------------------------------------------------------------


def _to_floating(array: Any, target: pa.DataType, _: bool) -> pa.Array:
    """The nearest number of the type."""
    if array.type == BOOLEAN:
        return array.cast(pa.int8()).cast(target)
    if not is_decimal(array.type):
        return array.cast(target, safe=False)
    if target == DOUBLE and array.type.precision <= 15 and array.type.scale <= 22:
        exact = np.asarray(unscaled(array), np.float64) / 10.0**array.type.scale
        return pa.array(exact, target, mask=~valid(array) if array.null_count else None)
    return array.cast(TEXT).cast(target)


def _to_decimal(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    if is_floating(array.type):
        return _float_to_decimal(array, target, lenient)
    if array.type == BOOLEAN:
        array = array.cast(pa.int8())
    if is_whole(array.type):
        if target.precision - target.scale >= DIGITS[array.type]:
            return array.cast(target)
        numbers = np.asarray(array.fill_null(0)) if array.null_count else np.asarray(array)
        numbers, digits, scale = numbers.astype(np.int64), DIGITS[array.type], 0
        numbers = numbers.astype(object) if array.type == BIGINT else numbers
    else:
        digits, scale = array.type.precision, array.type.scale
        if target.scale >= scale and target.precision - target.scale >= digits - scale:
            return array.cast(target)
        numbers = unscaled(array)
    found, bad = to_decimal(rescaled(numbers, digits, target.scale - scale), valid(array), target)
    return checked(found, bad, array, lenient, _overflow(target), _USE_TRY_CAST)


def _float_to_decimal(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    """The digits that Java prints for a double; NaN and infinity have none and are null."""
    doubles = np.asarray(array.cast(DOUBLE).fill_null(0.0))
    finite = np.isfinite(doubles) & valid(array)
    units, sure = nearest_units(doubles, target.scale)
    numbers = np.where(doubles < 0, -units, units).astype(np.int64)
    bad = units >= 10.0**target.precision
    hard = np.flatnonzero(finite & ~sure)
    if len(hard):
        numbers = numbers.astype(object)
        texts = java_floats(pa.array(doubles[hard])).to_pylist()
        found = [of_digits(text, target.scale, target.precision) for text in texts]
        bad[hard] = [number is None for number in found]
        numbers[hard] = [number or 0 for number in found]
    value, _ = to_decimal(numbers, finite & ~bad, target)
    return checked(value, bad, array, lenient, _overflow(target), _USE_TRY_CAST)


# --- seconds ----------------------------------------------------------------------------------------------------------


def _timestamp_to_number(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    """Seconds since 1970; whole ones for whole types, rounded down."""
    micros = array.cast(BIGINT)
    if is_whole(target):
        seconds = np.floor_divide(np.asarray(micros.fill_null(0)), _MICROS)
        return _fitted(seconds, array, target, lenient)
    if is_decimal(target):
        return cast(_decimal_of_micros(micros), target, lenient)
    seconds = pc.divide(micros.cast(DOUBLE, safe=False), pa.scalar(float(_MICROS)))
    return cast(seconds, target, lenient)


def _decimal_of_micros(micros: Any) -> pa.Array:
    """Seconds with six digits behind the point."""
    numbers = np.asarray(micros.fill_null(0)) if micros.null_count else np.asarray(micros)
    found, _ = to_decimal(numbers.astype(object), valid(micros), pa.decimal128(19, 6))
    return found


def _seconds_to_timestamp(array: Any, _: pa.DataType, lenient: bool) -> pa.Array:
    """Whole seconds beyond the range are its ends, as in Java; fractions beyond it are errors."""
    if is_whole(array.type):
        most = (2**63 - 1) // _MICROS
        seconds = np.asarray(array.cast(BIGINT).fill_null(0))
        micros = np.clip(seconds, -most - 1, most) * _MICROS
        micros = np.where(seconds > most, 2**63 - 1, np.where(seconds < -most - 1, -(2**63), micros))
        found = pa.array(micros, BIGINT, mask=~valid(array) if array.null_count else None)
    elif is_decimal(array.type):
        numbers = unscaled(array).astype(object) * _MICROS
        found = _fitted(truncated(numbers, 10**array.type.scale), array, BIGINT, lenient)
    else:
        found = cast(pc.multiply(array.cast(DOUBLE), pa.scalar(float(_MICROS))), BIGINT, lenient)
    return found.cast(TIMESTAMP)


# --- what conversions keep --------------------------------------------------------------------------------------------


def keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a <= b gives cast(a) <= cast(b) for all values, none of which can fail."""
    if keeps_values(source, target):
        return True
    if target == DOUBLE:
        return is_number(source)
    return is_decimal(target) and is_decimal(source) and _has_room_for_a_carry(source, target)


def _has_room_for_a_carry(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(target.precision - target.scale > source.precision - source.scale)


def keeps_values(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the cast gives every value back as it was, so that constants may be moved to the other side of it."""
    if source == target:
        return True
    if is_whole(source) and is_whole(target):
        return bool(source.bit_width <= target.bit_width)
    if is_decimal(target) and (is_whole(source) or is_decimal(source)):
        digits, scale = (DIGITS[source], 0) if is_whole(source) else (source.precision, source.scale)
        return bool(target.scale >= scale and target.precision - target.scale >= digits - scale)
    if target == DOUBLE:
        return source == FLOAT or (is_whole(source) and source != BIGINT)
    if pa.types.is_timestamp(source):
        return target in (TIMESTAMP, TIMESTAMP_NTZ) and source.unit != "ns"
    if pa.types.is_large_string(source):
        return bool(target == TEXT)
    return bool(source == DATE and target in (TIMESTAMP, TIMESTAMP_NTZ))
