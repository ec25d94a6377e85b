"""Constants: numbers as SQL writes them, and Python values for a column of a type."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.expression.tree import Literal
from lakebed.expression.types import BIGINT, DOUBLE, INT, MOST_DIGITS

_INT = range(-(1 << 31), 1 << 31)
_BIGINT = range(-(1 << 63), 1 << 63)


def of_number(text: str) -> Literal:
    """A number as SQL writes it: whole, decimal with a point, or double with an exponent."""
    if "e" in text.lower():
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text} is beyond the range of DOUBLE")
        return Literal(value, DOUBLE)
    number = Decimal(text)
    if "." not in text and int(number) in _BIGINT:
        return Literal(int(number), INT if int(number) in _INT else BIGINT)
    return Literal(number, decimal_type(number))


def decimal_type(value: Decimal) -> pa.DataType:
    """The narrowest decimal that holds the number."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max((len(digits) if any(digits) else 0) + max(0, int(exponent)), scale, 1)
    if precision > MOST_DIGITS:
        raise ValueError(f"{value} has more than {MOST_DIGITS} digits")
    return pa.decimal128(precision, scale)


def of_python(value: Any, data_type: pa.DataType) -> Literal:
    """A Python value for a column of exactly this type; ValueError when it is none."""
    if isinstance(value, datetime) and pa.types.is_timestamp(data_type):
        utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        value = utc if data_type.tz else utc.replace(tzinfo=None)
    try:
        return Literal(pa.scalar(value, data_type).as_py(), data_type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ValueError(f"{value!r} is no {data_type}") from error
