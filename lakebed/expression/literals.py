"""Constants in filters: what a text or number means next to a column of a given type.

Spark casts; so do we, but only where nothing is lost: a text becomes the column's date, time or number, a number keeps
its own type when the column's cannot hold it (Arrow then compares in a type that holds both). Times without a zone are
UTC. A text that is no date raises `ValueError`, which the parser turns into an error that shows where.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from lakebed.expression.tree import Literal

_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_SHORT_DATE = re.compile(r"(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?")


def of_number(text: str) -> Literal:
    """A number as SQL writes it: whole, decimal with a point, or double with an exponent."""
    if "e" in text.lower():
        return Literal(float(text), pa.float64())
    value = Decimal(text)
    if "." not in text and int(value) in _INT64:
        return Literal(int(value), pa.int32() if int(value) in _INT32 else pa.int64())
    return decimal_literal(value)


def of_python(value: Any, data_type: pa.DataType) -> Literal:
    """A Python value for a column of a type."""
    match value:
        case None:
            return Literal(None, data_type)
        case bool():
            raw = Literal(value, pa.bool_())
        case int():
            raw = Literal(value, pa.int32() if value in _INT32 else pa.int64())
        case float():
            raw = Literal(value, pa.float64())
        case Decimal():
            raw = decimal_literal(value)
        case str():
            raw = Literal(value, pa.string())
        case bytes():
            raw = Literal(value, pa.binary())
        case datetime():
            raw = Literal(value, pa.timestamp("us", "UTC" if value.tzinfo else None))
        case date():
            raw = Literal(value, pa.date32())
        case time():
            raw = Literal(value, pa.time64("us"))
        case _:
            raise ValueError(f"a {type(value).__name__} is no constant for a filter")
    return coerce(raw, data_type)


def coerce(literal: Literal, target: pa.DataType) -> Literal:
    """The constant as it compares with a column of the type."""
    value = literal.value
    if value is None:
        return Literal(None, target)
    types = pa.types
    if types.is_dictionary(target):
        target = target.value_type
    if types.is_integer(target) or types.is_floating(target) or types.is_decimal(target):
        return _number(literal, target)
    if types.is_date(target):
        return Literal(_date(value), pa.date32())
    if types.is_timestamp(target):
        return Literal(_timestamp(value, zoned=target.tz is not None), pa.timestamp("us", target.tz))
    if types.is_time(target):
        return Literal(_time(value), pa.time64("us"))
    if types.is_boolean(target):
        return Literal(_boolean(value), pa.bool_())
    if types.is_binary(target) or types.is_large_binary(target) or types.is_fixed_size_binary(target):
        raw = value.encode() if isinstance(value, str) else value
        if not isinstance(raw, bytes):
            raise ValueError(f"{value!r} is not binary")
        return Literal(raw, target if not types.is_fixed_size_binary(target) else pa.binary())
    if types.is_string(target) or types.is_large_string(target) or types.is_string_view(target):
        if not isinstance(value, str):
            raise ValueError(f"the column is text and {value!r} is not: put it in quotes")
        return Literal(value, target)
    raise ValueError(f"a constant cannot be compared with {target}")


def _number(literal: Literal, target: pa.DataType) -> Literal:
    value, types = literal.value, pa.types
    if isinstance(value, str):
        try:
            value = Decimal(value.strip())
            literal = decimal_literal(value) if value.is_finite() else Literal(float(value), pa.float64())
            value = literal.value
        except InvalidOperation as error:
            raise ValueError(f"{value!r} is not a number") from error
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError(f"{value!r} is not a number")
    if types.is_floating(target):
        return Literal(float(value), pa.float64())
    if isinstance(value, float):
        return literal
    if types.is_integer(target):
        whole = int(value)
        if whole == value and whole in _INT64:
            return Literal(whole, pa.int32() if whole in _INT32 and target.bit_width <= 32 else pa.int64())
        return decimal_literal(Decimal(value))
    return decimal_literal(Decimal(value))


def decimal_literal(value: Decimal) -> Literal:
    """A decimal in the narrowest type that holds it; a double when it has more than 38 digits."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > 38:
        return Literal(float(value), pa.float64())
    return Literal(value, pa.decimal128(precision, scale))


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        short = _SHORT_DATE.fullmatch(value.strip())
        if short:
            return date(int(short[1]), int(short[2] or 1), int(short[3] or 1))
        return _parse(value, "a date").date()
    raise ValueError(f"{value!r} is not a date")


def _timestamp(value: Any, *, zoned: bool) -> datetime:
    if isinstance(value, str):
        short = _SHORT_DATE.fullmatch(value.strip())
        value = datetime.combine(_date(value), time()) if short else _parse(value, "a timestamp")
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError(f"{value!r} is not a timestamp")
    utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return utc if zoned else utc.replace(tzinfo=None)


def _time(value: Any) -> time:
    if isinstance(value, time):
        return value
    if isinstance(value, str):
        return time.fromisoformat(value.strip())
    raise ValueError(f"{value!r} is not a time")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "t": True, "yes": True, "false": False, "f": False, "no": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError(f"{value!r} is neither true nor false")


def _parse(text: str, what: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} is not {what}") from error
