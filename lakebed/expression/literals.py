"""Constants: numbers as SQL writes them, and Python values for a column of a type."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.expression.tree import Literal
from lakebed.expression.types import BIGINT, DOUBLE, FLOAT, INT, MOST_DIGITS, SMALLINT, TINYINT

_TYPED = re.compile(r"(-?[0-9.]+(?:E[+-]?[0-9]{1,4})?)(L|S|Y|D|F|BD)")
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


def of_typed_number(text: str) -> Literal:
    """A number with its type behind it: 5L, 5S, 5Y, 1.5D, 1.5F, 1.5BD."""
    found = _TYPED.fullmatch(text.upper())
    if found is None:
        raise ValueError(f"{text} is not a number")
    digits, suffix = found.groups()
    if suffix == "BD":
        number = Decimal(digits)
        plain = Decimal(format(number, "f"))
        return Literal(plain, decimal_type(plain))
    if suffix in ("D", "F"):
        value = pa.array([digits]).cast(DOUBLE if suffix == "D" else FLOAT)[0].as_py()
        if not math.isfinite(value):
            raise ValueError(f"{text} is beyond the range of its type")
        return Literal(value, DOUBLE if suffix == "D" else FLOAT)
    kind = {"L": BIGINT, "S": SMALLINT, "Y": TINYINT}[suffix]
    bound = 1 << (kind.bit_width - 1)
    if not digits.lstrip("-").isdigit() or not -bound <= int(digits) < bound:
        raise ValueError(f"{text} is beyond the range of its type")
    return Literal(int(digits), kind)


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
