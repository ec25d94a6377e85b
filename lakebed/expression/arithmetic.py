"""Arithmetic over columns by the rules of Spark's ANSI mode: overflow and division by zero are errors.

Both sides of an operation come in one type, but decimals keep their own digits: their result is computed exactly and
then rounded half up to the type of the result (a quotient first to 39 digits behind the point, as Spark does). A null
on either side is null, also beside a zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression.decimals import (
    MACHINE_DIGITS,
    Unscaled,
    divided,
    rescaled,
    to_decimal,
    truncated,
    unscaled,
    valid,
    wide_enough,
)
from lakebed.expression.failures import Bools, RowFailure
from lakebed.expression.types import BIGINT, MOST_DIGITS, is_decimal, is_floating, is_whole, sql_name

_BY_ZERO = "Write nullif(divisor, 0) for null where the divisor is zero."
_TOO_LARGE = "Cast an operand to a wider type first."
_JAVA_DIGITS = MOST_DIGITS + 1
"""Digits that Spark lets Java keep of a quotient."""
_PLAIN = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}


def calculate(op: str, left: Any, right: Any, target: pa.DataType, rows: int) -> Any:
    """`left op right` for two columns or constants."""
    if op in _PLAIN and not (is_decimal(target) and target.precision == MOST_DIGITS):
        try:  # decimals of fewer digits have room for every result, and Arrow's rules for them are Spark's
            return _PLAIN[op](left, right)
        except pa.ArrowInvalid as error:
            raise RowFailure(f"{sql_name(target)} overflow in {op}", _TOO_LARGE) from error
    if op == "/" and not is_decimal(target):
        _refuse_zero(op, pc.and_(pc.equal(right, pa.scalar(0.0)), pc.is_valid(left)))
        return pc.divide(left, right)
    left, right = _filled(left, rows), _filled(right, rows)
    if is_decimal(left.type):
        return _decimals(op, left, right, target)
    present = valid(left) & valid(right)
    _refuse_zero(op, present & (_numbers(right) == 0))
    divisor = np.where(present, _numbers(right), 1)
    if is_floating(left.type):
        with np.errstate(invalid="ignore"):
            found = np.fmod(_numbers(left), divisor.astype(_numbers(left).dtype))
        return pa.array(found, target, mask=~present)
    return _whole_quotient(op, _numbers(left), divisor, present, target)


def _whole_quotient(op: str, dividend: Any, divisor: Any, present: Bools, target: pa.DataType) -> pa.Array:
    """Cut towards zero; the least bigint by -1 is one too large for its type."""
    by_minus_one = divisor == -1
    safe = np.where(by_minus_one, 1, divisor).astype(dividend.dtype)
    if op == "%":
        return pa.array(
            np.where(by_minus_one, 0, np.fmod(dividend, safe)).astype(dividend.dtype), target, mask=~present
        )
    least = np.iinfo(dividend.dtype).min
    if (present & by_minus_one & (dividend == least)).any():
        raise RowFailure("BIGINT overflow in div", _TOO_LARGE)
    rest = np.fmod(dividend, safe)
    quotient = (dividend - rest) // safe
    quotient = np.where(by_minus_one, -np.where(dividend == least, 0, dividend), quotient)
    return pa.array(quotient.astype(np.int64), BIGINT, mask=~present)


def _decimals(op: str, left: Any, right: Any, target: pa.DataType) -> pa.Array:
    one, other = left.type, right.type
    present = valid(left) & valid(right)
    a, b = unscaled(left), unscaled(right)
    if op in ("/", "%", "div"):
        _refuse_zero(op, present & np.asarray(b == 0, np.bool_))
        a, b = np.where(present, a, 0), np.where(present, b, 1)
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    if op == "*":
        digits, scale = one.precision + other.precision, one.scale + other.scale
        numbers = wide_enough(a, digits) * b
    elif op == "/":  # Spark cuts at 39 digits and rounds then: no cut hides which side of a half a quotient is on
        digits, scale, numbers = target.precision, target.scale, _quotient(a, b, one, other, target)
    else:
        a, b = _aligned(a, digits, scale - one.scale), _aligned(b, digits, scale - other.scale)
        numbers = _aligned_result(op, a, b)
    if op == "div":
        return _bigint(numbers, present)
    found, bad = to_decimal(rescaled(numbers, digits, target.scale - scale), present, target)
    if (bad & present).any():
        raise RowFailure(f"{sql_name(target)} overflow in {op}", _TOO_LARGE)
    return found


def _quotient(a: Unscaled, b: Unscaled, one: pa.DataType, other: pa.DataType, target: pa.DataType) -> Unscaled:
    """Rounded to the digits of the target, by machine numbers where they hold it."""
    shift = target.scale + other.scale - one.scale
    if one.precision + max(shift, 0) > MACHINE_DIGITS or other.precision + max(-shift, 0) > MACHINE_DIGITS:
        a, b = a.astype(object), b.astype(object)
    return divided(a * 10**shift, b) if shift >= 0 else divided(a, b * 10**-shift)


def _filled(value: Any, rows: int) -> Any:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


def _aligned(numbers: Unscaled, digits: int, shift: int) -> Unscaled:
    return wide_enough(numbers, digits) * 10**shift


def _aligned_result(op: str, a: Unscaled, b: Unscaled) -> Unscaled:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    quotient = truncated(a, b)
    if op == "%" and quotient.dtype == object:
        for number in abs(quotient[np.asarray(abs(quotient) >= 10**_JAVA_DIGITS, np.bool_)]):
            _refuse_long_quotient(number)
    return quotient if op == "div" else a - quotient * b


def _refuse_long_quotient(number: int) -> None:
    """Java finds a remainder if the quotient has no digit but zeros behind those that it keeps, and else fails."""
    if str(number)[_JAVA_DIGITS:].strip("0"):
        raise RowFailure(f"a quotient of more than {_JAVA_DIGITS} digits in %", _TOO_LARGE)


def _bigint(numbers: Unscaled, present: Bools) -> pa.Array:
    limits = np.iinfo(np.int64)
    bad = np.asarray((numbers > limits.max) | (numbers < limits.min), np.bool_)
    if (bad & present).any():
        raise RowFailure("BIGINT overflow in div", _TOO_LARGE)
    return pa.array(np.where(bad, 0, numbers).astype(np.int64), BIGINT, mask=~present)


def _refuse_zero(op: str, zero: Any) -> None:
    found = zero.as_py() if isinstance(zero, pa.Scalar) else pc.any(pa.array(zero)).as_py()
    if found:
        raise RowFailure(f"division by zero in {op}", _BY_ZERO)


def _numbers(array: Any) -> Any:
    return np.asarray(array.fill_null(0)) if array.null_count else np.asarray(array)


def negative(value: Any) -> Any:
    """`-value`; the least whole number has no opposite."""
    try:
        return pc.negate_checked(value)
    except pa.ArrowInvalid as error:
        raise RowFailure(f"{sql_name(value.type)} overflow in -", _TOO_LARGE) from error


def absolute(value: Any) -> Any:
    """`abs(value)`; the least whole number has none."""
    try:
        found = pc.abs_checked(value)
    except pa.ArrowInvalid as error:
        raise RowFailure(f"{sql_name(value.type)} overflow in abs", _TOO_LARGE) from error
    return found if is_whole(value.type) or is_floating(value.type) else found.cast(value.type)
