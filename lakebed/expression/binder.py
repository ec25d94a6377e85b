"""SQL text to a typed tree, bound to a schema.

The binder walks the parser's tree, keeps what lakebed can run everywhere (in Arrow, against statistics, on Spark) and
refuses the rest by name: a node it does not know, an argument that is not read, operators that Spark groups otherwise.
It gives every node its type by the rules of Spark's ANSI mode, with each conversion written out as a cast, and computes
what is constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidRequest
from lakebed.expression.arguments import ARGUMENTS
from lakebed.expression.bind_conditions import CONDITIONS
from lakebed.expression.bind_values import VALUES
from lakebed.expression.casts import can_cast
from lakebed.expression.constants import folded, unwrapped
from lakebed.expression.failures import RowFailure
from lakebed.expression.functions import BY_NAME
from lakebed.expression.grouping import misplaced
from lakebed.expression.parser import Parsed, parse
from lakebed.expression.tree import Cast, Compare, Field, In, Literal, Node
from lakebed.expression.types import BOOLEAN, NULL, TEXT, common_type, sql_name, sql_type_of, text_partner

_HANDLERS: Mapping[str, Callable[[Any, Any], Node]] = {**CONDITIONS, **VALUES}
_OTHERS = {"case", "cast", "if", "nullif", "to_date", "try_cast"}
KNOWN_FUNCTIONS = ", ".join(sorted({name for name in BY_NAME if " " not in name} | _OTHERS))


def bind(text: str, schema: pa.Schema) -> Node:
    """The bound tree of an SQL expression."""
    try:
        parsed = parse(text)
        return Binder(parsed, schema).node(parsed.tree)
    except RecursionError as error:
        raise InvalidRequest(f"the expression is nested too deeply ({len(text)} characters)") from error


class Binder:
    """One walk over a parser's tree."""

    def __init__(self, parsed: Parsed, schema: pa.Schema) -> None:
        self._parsed = parsed
        self.schema = schema

    def node(self, tree: Any) -> Node:
        """The node of a parser's node; columns of any type as they are."""
        self.check(tree)
        handler = _HANDLERS.get(type(tree).__name__)
        if handler is None:
            raise self.refuse(tree, f"{written(tree)[:40]!r} is not supported", f"Functions: {KNOWN_FUNCTIONS}.")
        return handler(self, tree)

    def check(self, tree: Any) -> None:
        """No argument that the parser set may be left unread, and nothing grouped otherwise than Spark groups it."""
        declared = ARGUMENTS.get(type(tree).__name__)
        unread = declared.unread(tree) if declared is not None else None
        if unread is not None:
            kind = type(tree).__name__
            raise self.refuse(tree, f"{written(tree)[:60]!r} is not supported with {unread!r} of {kind}")
        wrong = misplaced(tree)
        if wrong is not None:
            raise self.refuse(
                tree, f"{written(wrong)[:60]!r} is not grouped here as Spark groups it", "Put it into parentheses."
            )

    # ------------------------------------------------------------------ operands
    def operand(self, tree: Any) -> Node:
        """The node in a type of the language."""
        return self.typed(self.node(tree), tree)

    def typed(self, node: Node, tree: Any) -> Node:
        """A node in the language's type for it."""
        target = sql_type_of(node.type)
        if target is None:
            raise self.refuse(tree, f"{written(tree)!r} is {node.type}, which can only be tested for null")
        return node if node.type == target else Cast(node, target)

    def condition(self, tree: Any) -> Node:
        """A node that is true, false or null."""
        node = self.operand(tree)
        if node.type == NULL:
            return Literal(None, BOOLEAN)
        if node.type != BOOLEAN:
            raise self.refuse(tree, f"{written(tree)!r} is {sql_name(node.type)}, not true or false")
        return node

    def text(self, tree: Any) -> Node:
        """A node as text: everything but binary values and nested types has one."""
        node = self.operand(tree)
        return self.cast(node, TEXT, tree)

    def alike(self, trees: Sequence[Any], *, promote: bool = True) -> list[Node]:
        """Nodes in the type that they have in common; constant text becomes what the others are when `promote`."""
        nodes = [self.node(tree) for tree in trees]
        kinds = {node.type for node in nodes} - {NULL}
        if len(kinds) == 1 and sql_type_of(next(iter(kinds))) is None:
            nested = next(iter(kinds))
            return [Literal(None, nested) if node.type == NULL else node for node in nodes]
        nodes = [self.typed(node, tree) for node, tree in zip(nodes, trees, strict=True)]
        rest = [node.type for node in nodes if node.type != TEXT]
        if promote and rest and any(node.type == TEXT for node in nodes):
            nodes = self._promoted(nodes, rest, trees)
        target = common_type(node.type for node in nodes)
        if target is None:
            names = ", ".join(dict.fromkeys(sql_name(node.type) for node in nodes))
            raise self.refuse(trees[0], f"{names} have no type in common", "Cast one of them.")
        return [self.cast(node, target, tree) for node, tree in zip(nodes, trees, strict=True)]

    def _promoted(self, nodes: list[Node], rest: list[pa.DataType], trees: Sequence[Any]) -> list[Node]:
        other = common_type(rest)
        if other is None or other == NULL:
            return nodes
        for node, tree in zip(nodes, trees, strict=True):
            if node.type == TEXT and not isinstance(node, Literal):
                raise self.refuse(
                    tree,
                    f"{written(tree)!r} is text and stands beside {sql_name(other)}",
                    "Put the constant in quotes, or cast one of the two.",
                )
        target = text_partner(other)
        return [
            self.cast(node, target, tree) if node.type == TEXT else node
            for node, tree in zip(nodes, trees, strict=True)
        ]

    def cast(self, node: Node, target: pa.DataType, tree: Any, *, lenient: bool = False) -> Node:
        """The node in another type, computed at once if it is constant."""
        if node.type == target:
            return node
        if not can_cast(node.type, target):
            raise self.refuse(tree, f"{written(tree)!r} is {sql_name(node.type)} and has no cast to {sql_name(target)}")
        inner = node.arg if isinstance(node, Cast) and isinstance(node.arg, Field) and _is_form(node) else node
        return self.fold(Cast(inner, target, lenient), tree)

    def fold(self, node: Node, tree: Any) -> Node:
        """The node, as a constant if it is one."""
        try:
            found = folded(node)
        except (RowFailure, pa.ArrowException, ValueError, OverflowError) as error:
            raise self.refuse(tree, _first_line(error), getattr(error, "hint", None)) from error
        return unwrapped(found) if isinstance(found, Compare | In) else found

    def constant(self, tree: Any, kind: type, what: str) -> Literal:
        """A constant argument, which may be null."""
        node = self.operand(tree)
        if not isinstance(node, Literal) or not (node.value is None or isinstance(node.value, kind)):
            raise self.refuse(tree, f"{written(tree)!r} must be a constant {what}")
        return node

    # ------------------------------------------------------------------ refusals
    def refuse(self, tree: Any, what: str, hint: str | None = None) -> InvalidRequest:
        """An error with the position in the text."""
        character = self._parsed.position(tree)
        position = "" if character is None else f" at character {character}"
        return InvalidRequest(f"in {self._parsed.text!r}{position}: {what}", hint=hint)


def written(tree: Any) -> str:
    """A parser's node as text, for messages."""
    return str(tree.sql(dialect="spark"))


def _is_form(node: Cast) -> bool:
    """Whether a cast only gives a stored column its type of the language."""
    return sql_type_of(node.arg.type) == node.type and not node.lenient


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
