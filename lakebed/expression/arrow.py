"""Running an expression tree with Arrow.

`emit` writes a node in terms of Arrow compute functions. They take arrays and `pyarrow.compute.Expression`s alike, so
evaluating a batch and building a scan filter are the same code with another leaf. Logic is SQL's with three values;
for floating point, NaN equals itself and is above everything else, as in Spark. Division by zero gives null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression.tree import (
    And,
    Arithmetic,
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
    is_floating,
)

Leaf: TypeAlias = Callable[[Field | Literal], Any]


def emit(node: Node, leaf: Leaf) -> Any:
    """The value of a node, over arrays or as an Arrow expression, depending on what `leaf` returns."""
    match node:
        case Field() | Literal():
            return leaf(node)
        case Compare(op, left, right):
            return _compare(op, emit(left, leaf), emit(right, leaf), is_floating(left) and is_floating(right))
        case And(args):
            return _fold(pc.and_kleene, [emit(arg, leaf) for arg in args])
        case Or(args):
            return _fold(pc.or_kleene, [emit(arg, leaf) for arg in args])
        case Not(arg):
            return pc.invert(emit(arg, leaf))
        case IsNull(arg):
            return pc.is_null(emit(arg, leaf))
        case In(arg, values):
            return _is_in(emit(arg, leaf), values, leaf)
        case Like(arg, pattern, ignore_case, regex):
            match_text = pc.match_substring_regex if regex else pc.match_like
            return match_text(emit(arg, leaf), pattern, ignore_case=ignore_case)
        case Arithmetic(op, left, right):
            return _arithmetic(op, emit(left, leaf), emit(right, leaf), leaf)
        case Cast(arg, data_type):
            return _cast(emit(arg, leaf), data_type)
        case Call(name, args):
            first = 1 if name in CONSTANT_ARGUMENTS else len(args)
            plain = [arg.value for arg in args[first:] if isinstance(arg, Literal)]
            return FUNCTIONS[name](*[emit(arg, leaf) for arg in args[:first]], *plain)


def _cast(value: Any, data_type: pa.DataType) -> Any:
    """Digits after the point or the day may go, a number that does not fit may not."""
    options = pc.CastOptions(
        data_type, allow_time_truncate=True, allow_float_truncate=True, allow_decimal_truncate=True
    )
    return value.cast(options=options)


_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _compare(op: str, left: Any, right: Any, floating: bool) -> Any:
    if op == "<=>":
        equal = pc.coalesce(_compare("=", left, right, floating), _false(left, right))
        return pc.or_kleene(equal, pc.and_kleene(pc.is_null(left), pc.is_null(right)))
    if not floating:
        return _COMPARE[op](left, right)
    if op in ("<", "<="):
        return _compare(">" if op == "<" else ">=", right, left, True)
    if op == "!=":
        return pc.invert(_compare("=", left, right, True))
    equal = pc.or_kleene(pc.equal(left, right), pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))
    if op == "=":
        return equal
    greater = pc.or_kleene(pc.greater(left, right), pc.and_kleene(pc.is_nan(left), pc.invert(pc.is_nan(right))))
    return greater if op == ">" else pc.or_kleene(greater, equal)


def _false(*like: Any) -> Any:
    return constant(False, pa.bool_(), expression=any(isinstance(value, pc.Expression) for value in like))


def constant(value: Any, data_type: pa.DataType, *, expression: bool) -> Any:
    """A constant for either kind of argument."""
    scalar = pa.scalar(value, data_type)
    return pc.scalar(scalar) if expression else scalar


def _fold(function: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    """Pairwise, so that a chain of a thousand conditions is ten levels deep."""
    while len(values) > 1:
        pairs = [function(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


def _is_in(value: Any, literals: tuple[Literal, ...], leaf: Leaf) -> Any:
    known = [literal for literal in literals if literal.value is not None]
    nothing = leaf(Literal(None, pa.bool_()))
    found = nothing
    if known:
        found = pc.is_in(value, value_set=pa.array([item.value for item in known], known[0].type))
        found = pc.if_else(pc.is_valid(value), found, nothing)
    return found if len(known) == len(literals) else pc.or_kleene(found, nothing)


def _arithmetic(op: str, left: Any, right: Any, leaf: Leaf) -> Any:
    if op == "+":
        return pc.add_checked(left, right)
    if op == "-":
        return pc.subtract_checked(left, right)
    if op == "*":
        return pc.multiply_checked(left, right)
    if op == "/":
        left, right = _cast(left, pa.float64()), _cast(right, pa.float64())
        return pc.divide(left, _no_zero(right, leaf(Literal(0.0, pa.float64())), leaf(Literal(None, pa.float64()))))
    left, right = _cast(left, pa.int64()), _cast(right, pa.int64())
    quotient = pc.divide(left, _no_zero(right, leaf(Literal(0, pa.int64())), leaf(Literal(None, pa.int64()))))
    return quotient if op == "div" else pc.subtract_checked(left, pc.multiply_checked(quotient, right))


def _no_zero(value: Any, zero: Any, nothing: Any) -> Any:
    return pc.if_else(pc.equal(value, zero), nothing, value)


# --- functions --------------------------------------------------------------------------------------------------------


def _substring(text: Any, start: int, length: int | None = None) -> Any:
    """Positions count from 1, or from the end when negative, which Arrow's slices do alike."""
    begin = start - 1 if start > 0 else start
    if length is None:
        return pc.utf8_slice_codeunits(text, begin)
    if length <= 0:
        return pc.utf8_slice_codeunits(text, 0, 0)
    stop = begin + length
    return pc.utf8_slice_codeunits(text, begin, None if begin < 0 <= stop else stop)


def _concat(*texts: Any) -> Any:
    expression = any(isinstance(text, pc.Expression) for text in texts)
    parts = [_cast(text, pa.string()) for text in texts]
    return pc.binary_join_element_wise(*parts, constant("", pa.string(), expression=expression))


def _part(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: _cast(function(value), pa.int32())


def _if(condition: Any, then: Any, otherwise: Any) -> Any:
    return pc.if_else(pc.coalesce(condition, _false(condition, then, otherwise)), then, otherwise)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": pc.abs_checked,
    "ceil": lambda value: _cast(pc.ceil(value), pa.int64()),
    "coalesce": pc.coalesce,
    "concat": _concat,
    "contains": pc.match_substring,
    "day": _part(pc.day),
    "endswith": pc.ends_with,
    "floor": lambda value: _cast(pc.floor(value), pa.int64()),
    "greatest": pc.max_element_wise,
    "hour": _part(pc.hour),
    "if": _if,
    "least": pc.min_element_wise,
    "length": lambda text: _cast(pc.utf8_length(text), pa.int32()),
    "lower": pc.utf8_lower,
    "minute": _part(pc.minute),
    "month": _part(pc.month),
    "negative": pc.negate_checked,
    "round": lambda value, digits=0: pc.round(value, digits, round_mode="half_towards_infinity"),
    "second": _part(pc.second),
    "startswith": pc.starts_with,
    "substring": _substring,
    "trim": lambda text: pc.utf8_trim(text, " "),
    "upper": pc.utf8_upper,
    "year": _part(pc.year),
}


CONSTANT_ARGUMENTS = frozenset({"contains", "endswith", "round", "startswith", "substring"})
"""Functions whose arguments after the first must be constants: Arrow takes them as options."""
