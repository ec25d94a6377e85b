"""round, ceil and floor: halves go away from zero, and a double counts as the digits that Java prints for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression.casts import cast
from lakebed.expression.decimals import Unscaled, nearest_units, of_digits, rescaled, to_decimal, unscaled, valid
from lakebed.expression.failures import RowFailure
from lakebed.expression.types import (
    BIGINT,
    DIGITS,
    DOUBLE,
    FLOAT,
    MOST_DIGITS,
    TEXT,
    is_decimal,
    is_whole,
    sql_name,
)
from lakebed.model.java_text import java_floats

_BELOW_FLOAT = 2**29 - 1
"""The bits of a double that a float does not have."""


def rounded_type(data_type: pa.DataType, digits: int) -> pa.DataType:
    """The type of round(value, digits): a decimal has room for the carry and loses digits behind the point."""
    if not is_decimal(data_type):
        return data_type
    whole = data_type.precision - data_type.scale + 1
    if digits < 0:
        return pa.decimal128(min(max(whole, 1 - digits), MOST_DIGITS), 0)
    scale = min(data_type.scale, digits)
    return pa.decimal128(min(whole + scale, MOST_DIGITS), scale)


def whole_type(data_type: pa.DataType) -> pa.DataType:
    """The type of ceil(value) and floor(value)."""
    if not is_decimal(data_type):
        return BIGINT
    if data_type.scale == 0:
        return data_type
    return pa.decimal128(min(data_type.precision - data_type.scale + 1, MOST_DIGITS), 0)


def rounded(array: Any, digits: int, target: pa.DataType) -> Any:
    """`round(value, digits)`."""
    if is_decimal(array.type):
        return _decimal(array, digits, target, "round")
    if is_whole(array.type):
        return array if digits >= 0 else _whole(array, digits)
    return _floating(array, digits)


def _whole(array: Any, digits: int) -> pa.Array:
    present = valid(array)
    numbers = np.asarray(array.fill_null(0)).astype(object)
    numbers = rescaled(rescaled(numbers, DIGITS[array.type], max(digits, -40)), MOST_DIGITS, -max(digits, -40))
    limits = np.iinfo(array.type.to_pandas_dtype())
    if np.asarray((numbers > limits.max) | (numbers < limits.min), np.bool_).any():
        raise RowFailure(f"{sql_name(array.type)} overflow in round", "Cast it to a wider type first.")
    return pa.array(numbers.astype(array.type.to_pandas_dtype()), array.type, mask=~present)


def _floating(array: Any, digits: int) -> pa.Array:
    """Where the binary number is far from a half, machine arithmetic is exact; elsewhere its printed digits decide."""
    numbers = np.asarray(pc.fill_null(array.cast(DOUBLE), 0.0))
    finite = np.isfinite(numbers)
    units, easy = nearest_units(numbers, digits)
    nearest = units / 10.0 ** max(digits, 0) if easy.any() else units
    if array.type == FLOAT:  # a double halfway between two floats may not have been halfway before it was rounded
        easy &= (nearest.view(np.int64) & _BELOW_FLOAT) != (_BELOW_FLOAT + 1) // 2
    found = np.where(finite, np.copysign(np.where(easy, nearest, 0), numbers), numbers)
    found = np.where(finite, found + 0.0, found)  # a rounded zero has no sign
    hard = np.flatnonzero(finite & ~easy)
    result = pa.array(found.astype(array.type.to_pandas_dtype()), array.type, mask=~valid(array))
    if not len(hard):
        return result
    texts = java_floats(pa.array(numbers[hard])).dictionary_encode()
    exact = pa.array([_rounded_text(text, digits) for text in texts.dictionary.to_pylist()], TEXT).cast(array.type)
    mask = np.zeros(len(array), np.bool_)
    mask[hard] = True
    return pc.if_else(pc.is_valid(array), pc.replace_with_mask(result, pa.array(mask), exact.take(texts.indices)), None)


def _rounded_text(text: str, digits: int) -> str:
    """A number in Java's form, rounded; unchanged when it has no more digits behind the point."""
    mantissa, _, exponent = text.partition("E")
    if int(exponent or 0) - len(mantissa.partition(".")[2]) >= -digits:
        return text if float(text) else "0.0"
    number = of_digits(text, digits, 400)
    return f"{number}E{-digits}" if number else "0.0"


def to_whole(array: Any, up: bool, target: pa.DataType) -> Any:
    """`ceil(value)` when up, else `floor(value)`; NaN is 0, as in Java."""
    if is_decimal(array.type):
        return _decimal(array, 0, target, "ceil" if up else "floor")
    if is_whole(array.type):
        return array.cast(BIGINT)
    whole = pc.ceil(array) if up else pc.floor(array)
    if pc.any(pc.greater_equal(whole, pa.scalar(2.0**63, whole.type))).as_py():
        raise RowFailure(f"BIGINT overflow in {'ceil' if up else 'floor'}", "Write round(x) for a double.")
    return cast(pc.if_else(pc.fill_null(pc.is_nan(whole), False), pa.scalar(0, whole.type), whole), BIGINT)


def to_digits(array: Any, up: bool, digits: int, target: pa.DataType) -> Any:
    """`ceil(value, digits)` and `floor(value, digits)` of decimals."""
    return _decimal(array, digits, target, "ceil" if up else "floor")


def _decimal(array: Any, digits: int, target: pa.DataType, how: str) -> pa.Array:
    scale = array.type.scale
    numbers = unscaled(array)
    drop = max(scale - digits, 0)
    if drop:
        numbers = _dropped(numbers.astype(object) if drop > 18 else numbers, drop, how)
    numbers = rescaled(numbers, MOST_DIGITS, max(target.scale - (scale - drop), 0))
    found, bad = to_decimal(numbers, valid(array), target)
    if (bad & valid(array)).any():
        raise RowFailure(f"{sql_name(target)} overflow in {how}", "Cast it to a wider type first.")
    return found


def _dropped(numbers: Unscaled, drop: int, how: str) -> Unscaled:
    if how == "round":
        return rescaled(numbers, MOST_DIGITS, -drop)
    power = 10**drop
    return -(-numbers // power) if how == "ceil" else numbers // power


def fraction_type(data_type: pa.DataType) -> pa.DataType:
    """The decimal in which ceil and floor with a number of digits work."""
    if data_type in DIGITS:
        return pa.decimal128(DIGITS[data_type], 0)
    return {FLOAT: pa.decimal128(14, 7), DOUBLE: pa.decimal128(30, 15)}.get(data_type, data_type)
