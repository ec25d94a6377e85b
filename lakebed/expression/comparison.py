"""Comparison of columns: SQL's three-valued logic, one order for all numeric types.

For floating point, NaN equals itself and is above everything else, and -0.0 equals 0.0, in every comparison, list,
choice and extreme. Text and binary values go by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression.types import is_floating

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FALSE = pa.scalar(False)
_UNKNOWN = pa.scalar(None, pa.bool_())


def compare(op: str, left: Any, right: Any) -> Any:
    """`left op right`; both are arrays or scalars of one type."""
    if op == "<=>":
        equal = pc.coalesce(compare("=", left, right), _FALSE)
        return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
    if not is_floating(left.type):
        return _COMPARE[op](left, right)
    if op in ("<", "<="):
        return compare(">" if op == "<" else ">=", right, left)
    if op == "!=":
        return pc.invert(compare("=", left, right))
    equal = pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if op == "=":
        return equal
    greater = pc.or_(pc.greater(left, right), pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right))))
    return greater if op == ">" else pc.or_(greater, equal)


def is_one_of(value: Any, constants: Sequence[Any]) -> Any:
    """`value IN (constants)`: null for null, and for no match where a constant is null."""
    known = pa.array([constant for constant in constants if constant is not None], value.type)
    if is_floating(value.type):  # one zero and one NaN: Arrow's sets go by the bits
        zero = pa.scalar(0.0, value.type)
        value, known = pc.add(value, zero), pc.add(known, zero)
    found = pc.is_in(value, value_set=known)
    if is_floating(value.type) and pc.any(pc.is_nan(known)).as_py():
        found = pc.or_(found, pc.fill_null(pc.is_nan(value), False))
    if len(known) < len(constants):
        found = pc.if_else(found, found, _UNKNOWN)
    if isinstance(value, pa.Array) and not value.null_count:
        return found
    return pc.if_else(pc.is_valid(value), found, _UNKNOWN)


def extreme(op: str, values: Sequence[Any]) -> Any:
    """The greatest (op >) or least (op <) of the values that are not null; the first of equal ones."""
    best = values[0]
    for value in values[1:]:
        better = pc.or_kleene(pc.fill_null(compare(op, value, best), False), pc.is_null(best))
        best = pc.if_else(better, value, best)
    return best
