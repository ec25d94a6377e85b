"""Numbers as Java prints them, for columns whose type was changed to text.

Java writes at least one digit after the point, and from 10^7 upward or below 10^-3 the form 1.0E7. The digits are the
shortest that give the number back, as in Java 19 and later; older versions print a longer form for a few values.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa


def java_floats(array: Any) -> pa.Array:
    """An array of floats or doubles as text; each distinct value is formatted once."""
    encoded = array.dictionary_encode()
    texts = [java_float(value, text) for value, text in _pairs(encoded.dictionary)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def java_float(value: float, shortest: str | None = None) -> str:
    """One number; `shortest` gives the digits when they are not those of a double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    _, digit_tuple, exponent = Decimal(shortest if shortest is not None else repr(value)).as_tuple()
    digits = "".join(map(str, digit_tuple)).rstrip("0") or "0"
    point = len(digit_tuple) + int(exponent)  # the number is 0.digits * 10^point
    if -3 < point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        whole = digits[:point].ljust(point, "0")
        return f"{sign}{whole}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _pairs(values: Any) -> Any:
    return zip(values.to_pylist(), values.cast(pa.string()).to_pylist(), strict=True)
