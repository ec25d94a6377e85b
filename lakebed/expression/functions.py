"""The functions of the filter language: how sqlglot's nodes for them become calls of ours.

Each handler gets the binder that is at work, so that arguments are bound and typed in the one way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from lakebed.errors import InvalidRequest
from lakebed.expression import literals
from lakebed.expression.arrow import CONSTANT_ARGUMENTS
from lakebed.expression.tree import Call, Cast, Compare, Literal, Node

_CALLS: Mapping[type[exp.Expression], str] = {
    exp.Abs: "abs",
    exp.Ceil: "ceil",
    exp.Contains: "contains",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.EndsWith: "endswith",
    exp.Floor: "floor",
    exp.Hour: "hour",
    exp.Length: "length",
    exp.Lower: "lower",
    exp.Minute: "minute",
    exp.Month: "month",
    exp.Neg: "negative",
    exp.Second: "second",
    exp.StartsWith: "startswith",
    exp.Upper: "upper",
    exp.Year: "year",
}
_TYPES: Mapping[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}


class Binder(Protocol):
    """What a handler may ask of the walk over the tree."""

    def node(self, tree: Any) -> Node: ...
    def text_node(self, tree: Any) -> Node: ...
    def boolean(self, tree: Any) -> Node: ...
    def pair(self, left_tree: Any, right_tree: Any) -> tuple[Node, Node]: ...
    def alike(self, trees: list[Any]) -> list[Node]: ...
    def string(self, tree: Any) -> str: ...
    def whole(self, tree: Any) -> Literal: ...
    def coerce(self, literal: Literal, target: pa.DataType, tree: Any) -> Literal: ...
    def type_of(self, node: Node, tree: Any) -> pa.DataType: ...
    def refuse(self, tree: Any, what: str, hint: str | None = None) -> InvalidRequest: ...


def _call(binder: Binder, name: str, tree: Any) -> Node:
    args = [tree.this, *([tree.expression] if tree.args.get("expression") is not None else [])]
    nodes = [binder.node(arg) for arg in args]
    if name == "negative" and isinstance(nodes[0], Literal) and isinstance(nodes[0].value, (int, float)):
        return (
            literals.of_number(f"-{tree.this.this}") if isinstance(tree.this, exp.Literal) else Call(name, (nodes[0],))
        )
    if name == "negative" and isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        return literals.of_number(f"-{tree.this.this}")
    if name in CONSTANT_ARGUMENTS:
        binder.string(args[1])
    return Call(name, tuple(nodes))


def _on_tsordstodate(binder: Binder, tree: exp.TsOrDsToDate) -> Node:
    node = binder.node(tree.this)
    if isinstance(tree.parent, (exp.Year, exp.Month, exp.Day, exp.DayOfMonth)):
        return node if not _is_text(binder, node, tree) else Cast(node, pa.date32())
    return Cast(node, pa.date32())


def _is_text(binder: Binder, node: Node, tree: Any) -> bool:
    return bool(pa.types.is_string(binder.type_of(node, tree)))


def _on_substring(binder: Binder, tree: exp.Substring) -> Node:
    bounds = [part for part in (tree.args.get("start"), tree.args.get("length")) if part is not None]
    return Call("substring", (binder.text_node(tree.this), *[binder.whole(part) for part in bounds]))


def _on_round(binder: Binder, tree: exp.Round) -> Node:
    decimals = tree.args.get("decimals")
    return Call("round", (binder.node(tree.this), *([binder.whole(decimals)] if decimals is not None else [])))


def _on_trim(binder: Binder, tree: exp.Trim) -> Node:
    if tree.args.get("position") or tree.args.get("expression"):
        raise binder.refuse(tree, "only the plain trim(text) is supported")
    return Call("trim", (binder.text_node(tree.this),))


def _on_concat(binder: Binder, tree: exp.Concat) -> Node:
    return Call("concat", tuple(binder.node(arg) for arg in tree.expressions))


def _on_dpipe(binder: Binder, tree: exp.DPipe) -> Node:
    return Call("concat", (binder.node(tree.this), binder.node(tree.expression)))


def _on_coalesce(binder: Binder, tree: exp.Coalesce) -> Node:
    return Call("coalesce", tuple(binder.alike([tree.this, *tree.expressions])))


def _on_greatest(binder: Binder, tree: exp.Greatest) -> Node:
    return Call("greatest", tuple(binder.alike([tree.this, *tree.expressions])))


def _on_least(binder: Binder, tree: exp.Least) -> Node:
    return Call("least", tuple(binder.alike([tree.this, *tree.expressions])))


def _on_nullif(binder: Binder, tree: exp.Nullif) -> Node:
    left, right = binder.pair(tree.this, tree.expression)
    return Call("if", (Compare("=", left, right), Literal(None, binder.type_of(left, tree)), left))


def _on_if(binder: Binder, tree: exp.If) -> Node:
    then, otherwise = binder.alike([tree.args["true"], tree.args.get("false") or exp.Null()])
    return Call("if", (binder.boolean(tree.this), then, otherwise))


def _on_case(binder: Binder, tree: exp.Case) -> Node:
    branches = tree.args["ifs"]
    values = binder.alike([*[branch.args["true"] for branch in branches], tree.args.get("default") or exp.Null()])
    out = values[-1]
    for branch, value in zip(reversed(branches), reversed(values[:-1]), strict=True):
        test = branch.this if tree.this is None else exp.EQ(this=tree.this.copy(), expression=branch.this)
        out = Call("if", (binder.boolean(test), value, out))
    return out


def _on_cast(binder: Binder, tree: exp.Cast) -> Node:
    node = binder.node(tree.this)
    target = _named_type(binder, tree.to)
    if isinstance(node, Literal):
        return _cast_constant(binder, node, target, tree)
    source = binder.type_of(node, tree.this)
    if pa.types.is_string(target) and (pa.types.is_floating(source) or pa.types.is_timestamp(source)):
        raise binder.refuse(tree, f"a cast of {source} to text differs between engines and is not supported")
    return Cast(node, target)


def _cast_constant(binder: Binder, node: Literal, target: pa.DataType, tree: Any) -> Literal:
    if pa.types.is_string(target) and node.value is not None:
        return Literal(str(node.value), target)
    coerced = binder.coerce(node, target, tree)
    try:
        return Literal(pa.scalar(coerced.value, target).as_py(), target)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise binder.refuse(tree, f"{coerced.value!r} does not fit into {target}") from error


def _named_type(binder: Binder, tree: exp.DataType) -> pa.DataType:
    name = tree.this.name if hasattr(tree.this, "name") else str(tree.this)
    if name == "DECIMAL":
        numbers = [int(param.this.this) for param in tree.expressions]
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    if name in _TYPES:
        return _TYPES[name]
    raise binder.refuse(tree, f"the type {tree.sql(dialect='spark')} is not supported in a cast")


def _simple(name: str) -> Callable[[Binder, Any], Node]:
    return lambda binder, tree: _call(binder, name, tree)


FUNCTION_HANDLERS: Mapping[type[exp.Expression], Callable[[Binder, Any], Node]] = {
    **{kind: _simple(name) for kind, name in _CALLS.items()},
    exp.Case: _on_case,
    exp.Cast: _on_cast,
    exp.Coalesce: _on_coalesce,
    exp.Concat: _on_concat,
    exp.DPipe: _on_dpipe,
    exp.Greatest: _on_greatest,
    exp.If: _on_if,
    exp.Least: _on_least,
    exp.Nullif: _on_nullif,
    exp.Round: _on_round,
    exp.Substring: _on_substring,
    exp.Trim: _on_trim,
    exp.TsOrDsToDate: _on_tsordstodate,
    exp.TryCast: _on_cast,
}
_OTHERS = "case cast coalesce concat greatest if least nullif round substring to_date trim"
KNOWN_FUNCTIONS = ", ".join(sorted({*_CALLS.values(), *_OTHERS.split()} - {"negative"}))
