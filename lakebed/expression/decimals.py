"""Decimal columns as integers: every operation is exact, then rounded half up to the scale of its type.

A decimal is its unscaled number and a scale. Up to 18 digits the numbers are int64 and the arithmetic numpy's; beyond,
they are Python's integers in an array of objects, which have no limit. The caller states how many digits can occur.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakebed.expression.failures import Bools

Unscaled: TypeAlias = Any
"""An array of int64, or of Python's integers."""
MACHINE_DIGITS = 18
_EXACT_POWER = 22
_EXACT_NUMBER = 2.0**40


def unscaled(array: Any) -> Unscaled:
    """The numbers of a decimal128 array without their point; 0 for null."""
    if not len(array):
        return np.zeros(0, np.int64)
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
    low, high = words[0::2], words[1::2]
    if array.type.precision <= MACHINE_DIGITS:
        return np.where(valid(array), low, 0) if array.null_count else low
    numbers = high.astype(object) * (1 << 64) + low.view(np.uint64).astype(object)
    numbers[~valid(array)] = 0
    return numbers


def valid(array: Any) -> Bools:
    """True where there is a value."""
    found: Bools = np.asarray(array.is_valid())
    return found


def to_decimal(numbers: Unscaled, present: Bools, target: pa.DataType) -> tuple[pa.Array, Bools]:
    """The array of unscaled numbers in the target's scale, and where one has too many digits (and is null)."""
    limit = 10**target.precision
    if numbers.dtype == object or target.precision <= MACHINE_DIGITS:
        bad: Bools = (numbers >= limit) | (numbers <= -limit) if len(numbers) else np.zeros(0, np.bool_)
        bad = bad.astype(np.bool_)
    else:
        bad = np.zeros(len(numbers), np.bool_)
    kept = present & ~bad
    if numbers.dtype == object:
        numbers = np.where(kept, numbers, 0)
        data = b"".join(int(number).to_bytes(16, "little", signed=True) for number in numbers)
    else:
        words = np.empty(2 * len(numbers), np.int64)
        words[0::2] = numbers
        words[1::2] = numbers >> 63
        data = words.tobytes()
    bitmap = None if kept.all() else pa.array(kept).buffers()[1]
    return pa.Array.from_buffers(target, len(numbers), [bitmap, pa.py_buffer(data)]), bad


def rescaled(numbers: Unscaled, digits: int, delta: int) -> Unscaled:
    """Numbers of up to `digits` digits times 10^delta; where that takes digits away, halves go away from zero."""
    if delta == 0:
        return numbers
    if delta > 0:
        return wide_enough(numbers, digits + delta) * 10**delta
    if -delta > MACHINE_DIGITS:
        numbers = numbers.astype(object)
    return divided(numbers, 10**-delta)


def divided(numbers: Unscaled, divisor: Any) -> Unscaled:
    """The quotient, rounded half up, away from zero."""
    size, by = abs(numbers), abs(divisor)
    quotient = size // by
    quotient = quotient + ((size - quotient * by) * 2 >= by)
    return np.where((numbers < 0) != (divisor < 0), -quotient, quotient)


def truncated(numbers: Unscaled, divisor: Any) -> Unscaled:
    """The quotient without its fraction."""
    quotient = abs(numbers) // abs(divisor)
    return np.where((numbers < 0) != (divisor < 0), -quotient, quotient)


def wide_enough(numbers: Unscaled, digits: int) -> Unscaled:
    """The numbers in a form in which results of so many digits do not overflow."""
    return numbers if digits <= MACHINE_DIGITS else numbers.astype(object)


def of_digits(text: str, scale: int, most: int) -> int | None:
    """A number in plain or exponent form as an unscaled number, rounded half up; None when it has too many digits.

    The exponent is bounded before the digits are written out, so that 1e999999999 costs nothing.
    """
    mantissa, _, exponent = text.lower().partition("e")
    sign = -1 if mantissa.startswith("-") else 1
    whole, _, fraction = mantissa.lstrip("+-").partition(".")
    shift = (int(exponent) if exponent else 0) - len(fraction) + scale
    number = int((whole + fraction) or "0")
    if number == 0 or shift + len(str(number)) < 0:
        return 0
    if shift + len(str(number)) > most:
        return None
    if shift >= 0:
        return sign * number * int(10**shift)
    power = int(10**-shift)
    quotient, rest = divmod(number, power)
    quotient += rest * 2 >= power
    return sign * quotient if quotient < int(10**most) else None


def nearest_units(numbers: Any, scale: int) -> tuple[Any, Bools]:
    """The sizes of doubles in units of 10^-scale, halves up, and where that is sure to go by the digits Java prints.

    The digits differ from the binary number by less than its last place: far from a half, machine arithmetic decides.
    """
    if not 0 <= scale <= _EXACT_POWER:
        return np.zeros(len(numbers)), np.zeros(len(numbers), np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.abs(numbers) * 10.0**scale
        distance = np.abs(scaled - np.floor(scaled) - 0.5)
        sure: Bools = (scaled < _EXACT_NUMBER) & (distance > scaled * 2.0**-50)
    return np.floor(np.where(sure, scaled, 0) + 0.5), sure
