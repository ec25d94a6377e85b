"""Constant folding, and conversion of constants to the column's type where that keeps the result.

A comparison of a converted column with a constant, as in `smallint = 5`, is a comparison of the column itself with the
constant in the column's type, if that type holds it and the conversion keeps every value. Such a comparison needs no
conversion of rows, and can be tested against keys, against statistics and by Spark's Parquet reader.
"""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.expression.casts import keeps_values
from lakebed.expression.evaluate import constant_value
from lakebed.expression.tree import Cast, Compare, Field, In, Literal, Node, children
from lakebed.expression.types import DATE, is_decimal, is_floating, is_whole


def folded(node: Node) -> Node:
    """The node as a constant if it has no columns; `RowFailure` if it has no value."""
    below = children(node)
    if isinstance(node, Field | Literal) or not all(isinstance(child, Literal) for child in below):
        return node
    return Literal(constant_value(node), node.type)


def unwrapped(node: Compare | In) -> Node:
    """The same condition without a conversion of the column, where the constants allow that."""
    match node:
        case Compare(op, Cast(Field() as field, target, False), Literal() as literal) if keeps_values(
            field.type, target
        ):
            moved = _moved(literal, field.type)
            return node if moved is None else Compare(op, field, moved)
        case Compare(op, Literal() as literal, Cast(Field() as field, target, False)) if keeps_values(
            field.type, target
        ):
            moved = _moved(literal, field.type)
            return node if moved is None else Compare(op, moved, field)
        case In(Cast(Field() as field, target, False), values) if keeps_values(field.type, target):
            found = [_moved(value, field.type) for value in values]
            kept = tuple(value for value in found if value is not None)
            return In(field, kept) if len(kept) == len(values) else node
    return node


def _moved(literal: Literal, target: pa.DataType) -> Literal | None:
    """The constant in the column's type; None when that type has no such value."""
    value = literal.value
    if value is None:
        return Literal(None, target)
    moved = _as(value, target)
    return None if moved is None else Literal(moved, target)


def _as(value: Any, target: pa.DataType) -> Any:
    if is_whole(target):
        if isinstance(value, float) and not value.is_integer():
            return None
        bound = 1 << (target.bit_width - 1)
        return int(value) if value == int(value) and -bound <= int(value) < bound else None
    if target == DATE:
        midnight = (
            isinstance(value, datetime) and (value.hour, value.minute, value.second, value.microsecond) == (0,) * 4
        )
        return value.date() if midnight else None
    if is_decimal(target) and isinstance(value, Decimal):
        return _exact(value, target)
    if is_floating(target):
        narrow = pa.scalar(value, target).as_py()
        return narrow if narrow == value or math.isnan(value) else None
    if pa.types.is_timestamp(target) and isinstance(value, datetime):
        return _exact(value.replace(tzinfo=None) if target.tz is None else value, target)
    return value if isinstance(value, str) else None


def _exact(value: Any, target: pa.DataType) -> Any:
    try:
        moved = pa.scalar(value, target).as_py()
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return moved if moved == value else None
