"""Data skipping: key ranges, statistics tests and partition conditions derived from an expression tree.

Which keys can match, whether a file with these statistics can hold a match, what part of a condition refers to some
columns only. All of them err on the side of reading too much. They work on the positive form of a condition, in which
every NOT is directly before something that has no opposite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

from lakebed.expression.casts import keeps_order
from lakebed.expression.tree import (
    And,
    Call,
    Cast,
    Compare,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    fields,
)
from lakebed.expression.types import DOUBLE, MOST_DIGITS, is_decimal
from lakebed.model.key_range import KeyRange, prefix_range


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """What is known of a column in a file; None is unknown. Bounds need not be reached, but must hold.

    Values are Python's (`int`, `str`, `date`, ...); a timestamp without zone counts as UTC.
    """

    min: Any = None
    max: Any = None
    null_count: int | None = None
    rows: int | None = None

    @property
    def all_null(self) -> bool:
        return self.rows is not None and self.null_count is not None and self.null_count >= self.rows


_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_SWAPPED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "<=>": "<=>"}


def positive(node: Node, negate: bool = False) -> Node:
    """The same condition with every NOT pushed down to where it cannot go further; valid in three-valued logic."""
    match node:
        case Not(arg):
            return positive(arg, not negate)
        case And(args):
            parts = tuple(positive(arg, negate) for arg in args)
            return Or(parts) if negate else And(parts)
        case Or(args):
            parts = tuple(positive(arg, negate) for arg in args)
            return And(parts) if negate else Or(parts)
        case Compare(op, left, right) if negate and op in _OPPOSITE:
            return Compare(_OPPOSITE[op], left, right)
        case Literal(bool() as value, data_type) if negate:
            return Literal(not value, data_type)
    return Not(node) if negate else node


def conjuncts(node: Node) -> tuple[Node, ...]:
    """Conditions that must all hold."""
    return tuple(part for arg in node.args for part in conjuncts(arg)) if isinstance(node, And) else (node,)


def restrict(node: Node, columns: frozenset[str]) -> Node | None:
    """The part of a positive condition that needs only these columns; weaker than the whole, never stronger."""
    if isinstance(node, And):
        kept = [part for arg in node.args if (part := restrict(arg, columns)) is not None]
        return None if not kept else kept[0] if len(kept) == 1 else And(tuple(kept))
    if isinstance(node, Or):
        parts = [restrict(arg, columns) for arg in node.args]
        known = tuple(part for part in parts if part is not None)
        return Or(known) if len(known) == len(parts) else None
    mentioned = {field.path[0] for field in fields(node)}
    return node if mentioned <= columns else None


def _sided(node: Compare) -> tuple[str, Node, Any] | None:
    """`something op constant`, whichever way round it was written."""
    match node.left, node.right:
        case Literal(), Literal():
            return None
        case left, Literal(value):
            return node.op, left, value
        case Literal(value), right:
            return _SWAPPED[node.op], right, value
    return None


# --- keys -------------------------------------------------------------------------------------------------------------

_ALL = KeyRange()
_NONE = KeyRange.of_points(())


def key_range(node: Node, column: str) -> KeyRange:
    """A range that contains the column of every matching row."""
    match node:
        case And(args):
            out = _ALL
            for arg in args:
                out = out.intersect(key_range(arg, column))
            return out
        case Or(args):
            out = _NONE
            for arg in args:
                out = out.union(key_range(arg, column))
            return out
        case Literal(value):
            return _ALL if value is True else _NONE
        case Compare():
            sided = _sided(node)
            if sided is not None and isinstance(sided[1], Field) and sided[1].path == (column,):
                return _compare_range(sided[0], sided[2])
        case In(Field(path), values) if path == (column,):
            texts = [value.value for value in values if value.value is not None]
            return KeyRange.of_points(texts) if all(isinstance(text, str) for text in texts) else _ALL
        case Like(Field(path), pattern, False) if path == (column,):
            prefix, exact = like_prefix(pattern)
            return KeyRange.of_points([prefix]) if exact else prefix_range(prefix)
        case Call("startswith", (Field(path), Literal(str() as prefix))) if path == (column,):
            return prefix_range(prefix)
    return _ALL


def _compare_range(op: str, value: Any) -> KeyRange:
    if value is None:
        return _ALL if op == "<=>" else _NONE
    if not isinstance(value, str):
        return _ALL
    match op:
        case "=" | "<=>":
            return KeyRange.of_points([value])
        case "<" | "<=":
            return KeyRange(None, value, high_inclusive=op == "<=")
        case ">" | ">=":
            return KeyRange(value, None, low_inclusive=op == ">=")
    return _ALL


def like_prefix(pattern: str) -> tuple[str, bool]:
    """The fixed beginning of a LIKE pattern, and whether it is all there is."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char in "%_":
            return "".join(out), False
        if char == "\\" and position + 1 < len(pattern):
            position += 1
            char = pattern[position]
        out.append(char)
        position += 1
    return "".join(out), True


# --- statistics -------------------------------------------------------------------------------------------------------


def may_match(node: Node, stats: Mapping[str, ColumnStats]) -> bool:
    """False only when no row of a file with these statistics can match."""
    match node:
        case And(args):
            return all(may_match(arg, stats) for arg in args)
        case Or(args):
            return any(may_match(arg, stats) for arg in args)
        case Literal(value):
            return value is True
        case IsNull(Field() as field):
            known = stats.get(field.name)
            return known is None or known.null_count != 0
        case Not(IsNull(Field() as field)):
            known = stats.get(field.name)
            return known is None or not known.all_null
        case Compare():
            sided = _sided(node)
            if sided is not None:
                op, operand, value = sided
                return _compare_may_match(op, value, _bounds(operand, stats))
        case In(arg, values):
            bounds = _bounds(arg, stats)
            return any(_compare_may_match("=", value.value, bounds) for value in values)
        case Like(Field() as field, pattern, False):
            prefix, exact = like_prefix(pattern)
            return _range_may_match(
                KeyRange.of_points([prefix]) if exact else prefix_range(prefix), stats.get(field.name)
            )
        case Call("startswith", (Field() as field, Literal(str() as prefix))):
            return _range_may_match(prefix_range(prefix), stats.get(field.name))
    return True


def _range_may_match(wanted: KeyRange, known: ColumnStats | None) -> bool:
    if known is None:
        return True
    if known.all_null:
        return False
    low, high = known.min, known.max
    return wanted.overlaps(low if isinstance(low, str) else None, high if isinstance(high, str) else None)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The statistics of a column, or of a column in another type."""

    low: Any
    high: Any
    all_null: bool
    may_be_null: bool
    above_high: bool
    """Whether NaN may be among the values: it is above everything, and no statistics record it."""


def _bounds(node: Node, stats: Mapping[str, ColumnStats]) -> _Bounds | None:
    """Bounds of a column, or of a conversion of it that keeps the order: the bounds, converted. None for the rest."""
    match node:
        case Field():
            known = stats.get(node.name)
            return None if known is None else _of_stats(known, node.type, lambda value: value)
        case Cast(Field() as field, target, False) if keeps_order(field.type, target):
            known = stats.get(field.name)
            return None if known is None else _of_stats(known, field.type, lambda value: _converted(value, target))
    return None


def _of_stats(known: ColumnStats, data_type: pa.DataType, convert: Callable[[Any], Any]) -> _Bounds:
    low, high = (_comparable(convert(end)) for end in (known.min, known.max))
    return _Bounds(low, high, known.all_null, known.null_count != 0, bool(pa.types.is_floating(data_type)))


def _converted(value: Any, target: pa.DataType) -> Any:
    """A bound in another type, None (unknown) when it cannot be."""
    if value is None or isinstance(value, bool):
        return None
    if pa.types.is_timestamp(target):
        return datetime.combine(value, time()) if isinstance(value, date) and not isinstance(value, datetime) else value
    if target == DOUBLE:
        return float(value) if isinstance(value, int | float | Decimal) else None
    if is_decimal(target) and isinstance(value, Decimal):
        context = Context(prec=2 * MOST_DIGITS, rounding=ROUND_HALF_UP)
        return value.quantize(Decimal(1).scaleb(-target.scale), context=context)
    return value


def _compare_may_match(op: str, value: Any, known: _Bounds | None) -> bool:
    if value is None:
        return op == "<=>" and (known is None or known.may_be_null)
    if known is None:
        return True
    if known.all_null:
        return False
    low, high, value = known.low, known.high, _comparable(value)
    unordered = isinstance(value, float) and math.isnan(value)
    try:
        match op:
            case "=" | "<=>":
                return unordered or not ((low is not None and value < low) or (high is not None and value > high))
            case "!=":
                return known.above_high or low is None or high is None or not (low == high == value)
            case "<":
                return low is None or bool(low < value) or unordered
            case "<=":
                return low is None or bool(low <= value) or unordered
            case ">":
                return known.above_high or high is None or bool(high > value)
            case ">=":
                return known.above_high or high is None or bool(high >= value)
    except TypeError:  # statistics of another type than the column: they cannot be used
        return True
    return True


def _comparable(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
