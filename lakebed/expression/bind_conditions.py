"""Binds the conditions of the parser's tree: comparisons, logic, null tests, lists, patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from lakebed.errors import InvalidRequest
from lakebed.expression.java_regex import to_re2
from lakebed.expression.parser import is_number_constant
from lakebed.expression.text import check_like
from lakebed.expression.tree import And, Call, Compare, In, IsNull, Like, Literal, Node, Not, Or
from lakebed.expression.types import BOOLEAN, NULL, TEXT, is_decimal, is_whole

_ORDERS = ("<", "<=", ">", ">=")
_LEAST, _GREATEST = -(2**63), 2**63 - 1
"""The ends of a bigint."""


class Walk(Protocol):
    """What a handler may call on the walk over the tree."""

    schema: pa.Schema

    def node(self, tree: Any) -> Node: ...
    def check(self, tree: Any) -> None: ...
    def operand(self, tree: Any) -> Node: ...
    def typed(self, node: Node, tree: Any) -> Node: ...
    def condition(self, tree: Any) -> Node: ...
    def text(self, tree: Any) -> Node: ...
    def alike(self, trees: list[Any], *, promote: bool = True) -> list[Node]: ...
    def cast(self, node: Node, target: pa.DataType, tree: Any, *, lenient: bool = False) -> Node: ...
    def fold(self, node: Node, tree: Any) -> Node: ...
    def constant(self, tree: Any, kind: type, what: str) -> Literal: ...
    def refuse(self, tree: Any, what: str, hint: str | None = None) -> InvalidRequest: ...


def _compare(op: str) -> Callable[[Walk, Any], Node]:
    def bound(walk: Walk, tree: Any) -> Node:
        return _compared(walk, op, [tree.this, tree.expression], tree)

    return bound


def _compared(walk: Walk, op: str, trees: list[Any], tree: Any) -> Node:
    _refuse_beyond_bigint(walk, op, trees)
    left, right = _comparable(walk, trees)
    return walk.fold(Compare(op, left, right), tree)


def _refuse_beyond_bigint(walk: Walk, op: str, trees: list[Any]) -> None:
    """The order of a whole number and a decimal constant that no bigint reaches is refused.

    Spark's analysis makes TRUE or FALSE of it, for null as well, and never computes the whole number; other engines
    answer null for null. A delete by such a condition would take rows in one engine that it leaves in another. Equality
    is compared as ever.
    """
    if op not in _ORDERS:
        return
    for at, tree in enumerate(trees):
        number = walk.node(tree) if is_number_constant(tree) else None
        if isinstance(number, Literal) and is_decimal(number.type) and not _LEAST <= number.value <= _GREATEST:
            if is_whole(walk.operand(trees[1 - at]).type):
                raise walk.refuse(
                    tree,
                    "lies beyond every BIGINT, and engines differ in the result for null",
                    "Compare with a number within BIGINT, or write IS NOT NULL.",
                )
            return


def _comparable(walk: Walk, trees: list[Any]) -> list[Node]:
    """Nodes of one type that has an order."""
    nodes = walk.alike(trees)
    if pa.types.is_nested(nodes[0].type):
        raise walk.refuse(trees[0], f"values of type {nodes[0].type} cannot be compared", "Compare a field of it.")
    if nodes[0].type == NULL:
        return [walk.cast(node, BOOLEAN, tree) for node, tree in zip(nodes, trees, strict=True)]
    return nodes


def _differs(walk: Walk, tree: Any) -> Node:
    left, right = _comparable(walk, [tree.this, tree.expression])
    return _not(walk, walk.fold(Compare("<=>", left, right), tree), tree)


def _not(walk: Walk, node: Node, tree: Any) -> Node:
    return walk.fold(Not(node), tree)


def _and(walk: Walk, tree: Any) -> Node:
    return walk.fold(And(tuple(_flat(walk, tree, exp.And))), tree)


def _or(walk: Walk, tree: Any) -> Node:
    return walk.fold(Or(tuple(_flat(walk, tree, exp.Or))), tree)


def _flat(walk: Walk, tree: Any, kind: type[Any]) -> list[Node]:
    """Long chains parse as deep left-hand trees; they are walked without recursion."""
    right: list[Node] = []
    rest = tree
    while type(rest) is kind:
        walk.check(rest)
        right.append(walk.condition(rest.args["expression"]))
        rest = rest.args["this"]
    return [walk.condition(rest), *reversed(right)]


def _on_not(walk: Walk, tree: Any) -> Node:
    return _not(walk, walk.condition(tree.this), tree)


def _is(walk: Walk, tree: Any) -> Node:
    walk.check(tree.expression)
    node = walk.node(tree.this)
    if isinstance(tree.expression, exp.Null):
        found = walk.fold(IsNull(node), tree)
    elif isinstance(tree.expression, exp.Boolean):
        wanted = Literal(bool(tree.expression.this), BOOLEAN)
        found = walk.fold(Compare("<=>", walk.condition(tree.this), wanted), tree)
    else:
        raise walk.refuse(tree, "IS takes NULL, TRUE or FALSE")
    return _not(walk, found, tree) if tree.args.get("negate") else found


def _between(walk: Walk, tree: Any) -> Node:
    parts = []
    for op, bound in ((">=", tree.args["low"]), ("<=", tree.args["high"])):
        parts.append(_compared(walk, op, [tree.this, bound], tree))
    return walk.fold(And(tuple(parts)), tree)


def _in(walk: Walk, tree: Any) -> Node:
    if not tree.expressions:
        raise walk.refuse(tree, "IN takes a list of values")
    arg, *values = _comparable(walk, [tree.this, *tree.expressions])
    constants = tuple(value for value in values if isinstance(value, Literal))
    if len(constants) == len(values):
        return walk.fold(In(arg, constants), tree)
    tests = tuple(walk.fold(Compare("=", arg, value), tree) for value in values)
    return tests[0] if len(tests) == 1 else Or(tests)


# --- patterns ---------------------------------------------------------------------------------------------------------


def _on_like(walk: Walk, tree: Any) -> Node:
    return _like(walk, tree, "\\")


def _escape(walk: Walk, tree: Any) -> Node:
    if not isinstance(tree.this, (exp.Like, exp.ILike)):
        raise walk.refuse(tree, "ESCAPE belongs to LIKE")
    walk.check(tree.this)
    escape = walk.constant(tree.expression, str, "text").value
    if not isinstance(escape, str) or len(escape) != 1 or escape in "%_":
        raise walk.refuse(tree, f"the escape {escape!r} is not one character other than % and _")
    return _like(walk, tree.this, escape)


def _like(walk: Walk, tree: Any, escape: str) -> Node:
    ignore_case = isinstance(tree, exp.ILike)
    if ignore_case and escape != escape.lower():
        raise walk.refuse(tree, f"the escape {escape!r} of ILIKE is a capital letter")
    arg = walk.text(tree.this)
    pattern = walk.constant(tree.expression, str, "text").value
    if pattern is None:
        return Literal(None, BOOLEAN)
    try:
        pattern = check_like(pattern.lower() if ignore_case else pattern, escape)
    except ValueError as error:
        raise walk.refuse(tree, str(error)) from error
    if ignore_case:
        arg = walk.fold(Call("lower", (arg,), TEXT), tree)
    found = walk.fold(Like(arg, pattern), tree)
    return _not(walk, found, tree) if tree.args.get("negate") else found


def _regexp_like(walk: Walk, tree: Any) -> Node:
    pattern = walk.constant(tree.expression, str, "text").value
    arg = walk.text(tree.this)
    if pattern is None:
        return Literal(None, BOOLEAN)
    try:
        to_re2(pattern)
    except ValueError as error:
        raise walk.refuse(tree, str(error), "Use LIKE, contains, startswith or a simpler pattern.") from error
    return walk.fold(Like(arg, pattern, regex=True), tree)


CONDITIONS: Mapping[str, Callable[[Any, Any], Node]] = {
    "EQ": _compare("="),
    "NEQ": _compare("!="),
    "LT": _compare("<"),
    "LTE": _compare("<="),
    "GT": _compare(">"),
    "GTE": _compare(">="),
    "NullSafeEQ": _compare("<=>"),
    "NullSafeNEQ": _differs,
    "And": _and,
    "Or": _or,
    "Not": _on_not,
    "Is": _is,
    "Between": _between,
    "In": _in,
    "Like": _on_like,
    "ILike": _on_like,
    "Escape": _escape,
    "RegexpLike": _regexp_like,
}
