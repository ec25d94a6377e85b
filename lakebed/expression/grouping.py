"""Checks that the parser applied operator precedence as Spark does.

Parsers differ in what binds tighter: for sqlglot 27, `1 + 5 % 3` is `(1 + 5) % 3`, and for all of its versions
`a || b + c` is `a || (b + c)`, where Spark goes from left to right. With Spark's order of operators, a text without
parentheses has one tree only. So a tree in which each operand binds at least as tightly as its position demands is
Spark's tree, and any other one is refused; parentheses make it clear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp

_OR, _AND, _NOT, _PREDICATE, _COMPARISON, _SUM, _PRODUCT, _SIGN, _VALUE = range(9)
_LEVELS: Mapping[str, int] = {
    "Or": _OR,
    "And": _AND,
    "Not": _NOT,
    **dict.fromkeys(("Is", "Between", "In", "Like", "ILike", "RegexpLike", "Escape"), _PREDICATE),
    **dict.fromkeys(("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "NullSafeNEQ"), _COMPARISON),
    **dict.fromkeys(("Add", "Sub", "DPipe"), _SUM),
    **dict.fromkeys(("Mul", "Div", "Mod", "IntDiv"), _PRODUCT),
    "Neg": _SIGN,
}


def misplaced(tree: Any) -> Any | None:
    """The first operand that Spark would have grouped otherwise; None when all is as Spark has it."""
    for operand, least in _operands(tree):
        if _level(operand) < least:
            return operand
    return None


def _level(tree: Any) -> int:
    return _LEVELS.get(type(tree).__name__, _VALUE)


def _operands(tree: Any) -> Iterator[tuple[Any, int]]:
    """The operands of a node, with how tightly each must bind."""
    level = _level(tree)
    if level == _VALUE:
        return
    if level == _PREDICATE:
        if isinstance(tree, exp.Escape):
            yield tree.expression, _VALUE
            return
        yield tree.this, _COMPARISON
        for name in ("expression", "low", "high"):
            if tree.args.get(name) is not None:
                yield tree.args[name], _COMPARISON
        return
    yield tree.this, level
    if level not in (_NOT, _SIGN):
        yield tree.expression, level if level in (_AND, _OR) else level + 1
