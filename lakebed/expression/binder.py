"""SQL text -> expression tree, bound to a schema.

sqlglot reads the text (Spark's dialect); this module walks its tree, keeps what lakebed can run everywhere (in Arrow,
against statistics, on Spark) and refuses the rest by name. Types are checked by running the tree over zero rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.errors import InvalidRequest
from lakebed.expression import literals
from lakebed.expression.arrow import emit
from lakebed.expression.functions import FUNCTION_HANDLERS, KNOWN_FUNCTIONS
from lakebed.expression.tree import (
    And,
    Arithmetic,
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
)
from lakebed.model.schema_change import did_you_mean

_WHERE = "WHERE "
_COMPARE: Mapping[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: Mapping[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}


def parse(text: str, schema: pa.Schema) -> tuple[Node, pa.DataType]:
    """The bound tree of an SQL expression, and the type of its value."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("an expression is missing: the text is empty")
    try:
        where = sqlglot.parse_one(_WHERE + text, into=exp.Where, dialect="spark")
        return _Binder(text, schema).bind(where.this)
    except SqlglotError as error:
        raise InvalidRequest(f"cannot read {text!r}{_sqlglot_position(error)}") from error
    except RecursionError as error:
        raise InvalidRequest(f"the expression is nested too deeply ({len(text)} characters)") from error


def _sqlglot_position(error: SqlglotError) -> str:
    details: Sequence[Mapping[str, Any]] = getattr(error, "errors", ())
    if not details:
        return f": {str(error).splitlines()[0]}"
    start = len(str(details[0].get("start_context") or "")) - len(_WHERE)
    what = str(details[0].get("description") or "not understood").partition(" for <class")[0]
    return f" at character {max(0, start) + 1}, near {details[0].get('highlight')!r}: {what}"


class _Binder:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema

    def bind(self, tree: exp.Expression) -> tuple[Node, pa.DataType]:
        node = self.node(tree)
        return node, self.type_of(node, tree)

    def node(self, tree: Any) -> Node:
        kind = type(tree)
        if kind in _COMPARE:
            left, right = self.pair(tree.this, tree.expression)
            return Compare(_COMPARE[kind], left, right)
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], tree)
        if kind in FUNCTION_HANDLERS:
            return FUNCTION_HANDLERS[kind](self, tree)
        handler: Callable[[Any], Node] | None = getattr(self, f"_on_{kind.__name__.lower()}", None)
        if handler is None:
            name = tree.name if isinstance(tree, exp.Anonymous) else tree.sql(dialect="spark")[:40]
            raise self.refuse(tree, f"{name!r} is not supported", f"Functions: {KNOWN_FUNCTIONS}.")
        return handler(tree)

    # leaves

    def _on_column(self, tree: exp.Column) -> Node:
        parts = [part.name for part in tree.parts]
        return self._field(parts, tree)

    def _on_dot(self, tree: exp.Dot) -> Node:
        return self._field([part.name for part in tree.parts], tree)

    def _field(self, parts: list[str], tree: Any) -> Node:
        whole = ".".join(parts)
        if whole in self._schema.names:
            return Field((whole,), self._schema.field(whole).type)
        name = self._known(parts[0], self._schema.names)
        if name is None:
            raise self.refuse(tree, f"there is no column {parts[0]!r}", did_you_mean(parts[0], self._schema.names))
        path, data_type = [name], self._schema.field(name).type
        for part in parts[1:]:
            below = [child.name for child in data_type] if pa.types.is_struct(data_type) else []
            found = self._known(part, below)
            if found is None:
                raise self.refuse(tree, f"{'.'.join(path)!r} has no field {part!r}", did_you_mean(part, below))
            path.append(found)
            data_type = data_type.field(found).type
        return Field(tuple(path), data_type)

    @staticmethod
    def _known(name: str, names: Sequence[str]) -> str | None:
        """The column of that name; as in Spark, case matters only where two differ by nothing else."""
        if name in names:
            return name
        folded = [known for known in names if known.lower() == name.lower()]
        return folded[0] if len(folded) == 1 else None

    def _on_literal(self, tree: exp.Literal) -> Node:
        return Literal(tree.this, pa.string()) if tree.is_string else literals.of_number(tree.this)

    def _on_hexstring(self, tree: exp.HexString) -> Node:
        try:
            return Literal(bytes.fromhex(tree.this), pa.binary())
        except ValueError as error:
            raise self.refuse(tree, f"X'{tree.this}' is not hexadecimal") from error

    def _on_boolean(self, tree: exp.Boolean) -> Node:
        return Literal(bool(tree.this), pa.bool_())

    def _on_null(self, _: exp.Null) -> Node:
        return Literal(None, pa.null())

    def _on_paren(self, tree: exp.Paren) -> Node:
        return self.node(tree.this)

    # logic

    def _on_and(self, tree: exp.And) -> Node:
        return And(tuple(self._flat(tree, exp.And)))

    def _on_or(self, tree: exp.Or) -> Node:
        return Or(tuple(self._flat(tree, exp.Or)))

    def _flat(self, tree: exp.Expression, kind: type[exp.Expression]) -> list[Node]:
        """Long chains parse as deep left-hand trees; they are walked without recursion."""
        right: list[Node] = []
        rest = tree
        while type(rest) is kind:
            right.append(self.boolean(rest.args["expression"]))
            rest = rest.args["this"]
        return [self.boolean(rest), *reversed(right)]

    def boolean(self, tree: Any) -> Node:
        node = self.node(tree)
        data_type = self.type_of(node, tree)
        if pa.types.is_null(data_type):
            return Literal(None, pa.bool_())
        if not pa.types.is_boolean(data_type):
            raise self.refuse(tree, f"{tree.sql(dialect='spark')!r} is {data_type}, not true or false")
        return node

    def _on_not(self, tree: exp.Not) -> Node:
        return Not(self.boolean(tree.this))

    def _on_is(self, tree: exp.Is) -> Node:
        node = self.node(tree.this)
        if isinstance(tree.expression, exp.Null):
            return IsNull(node)
        if isinstance(tree.expression, exp.Boolean):
            return Compare("<=>", node, Literal(bool(tree.expression.this), pa.bool_()))
        raise self.refuse(tree, "IS takes NULL, TRUE or FALSE")

    def _on_between(self, tree: exp.Between) -> Node:
        low, high = self.pair(tree.this, tree.args["low"]), self.pair(tree.this, tree.args["high"])
        return And((Compare(">=", *low), Compare("<=", *high)))

    def _on_in(self, tree: exp.In) -> Node:
        if not tree.expressions:
            raise self.refuse(tree, "IN takes a list of constants")
        node = self.node(tree.this)
        target = self.type_of(node, tree.this)
        values = [self.coerce(self.constant(item), target, item) for item in tree.expressions]
        exact = [_exactly(value, target) for value in values]
        known = tuple(value for value in exact if value is not None)
        if len(known) < len(values):  # 2.5 next to whole numbers, say: one by one, in a type that holds both
            return Or(tuple(Compare("=", node, value) for value in values))
        return In(node, known)

    # text

    def _on_like(self, tree: exp.Like) -> Node:
        return self._like(tree, None)

    def _on_ilike(self, tree: exp.ILike) -> Node:
        return self._like(tree, None)

    def _on_escape(self, tree: exp.Escape) -> Node:
        if not isinstance(tree.this, (exp.Like, exp.ILike)):
            raise self.refuse(tree, "ESCAPE belongs to LIKE")
        return self._like(tree.this, self.string(tree.expression))

    def _like(self, tree: Any, escape: str | None) -> Node:
        pattern = self.string(tree.expression)
        if escape is not None and escape != "\\":
            if len(escape) != 1:
                raise self.refuse(tree, f"the escape {escape!r} is not one character")
            pattern = _reescape(pattern, escape)
        return Like(self.text_node(tree.this), pattern, ignore_case=isinstance(tree, exp.ILike))

    def _on_regexplike(self, tree: exp.RegexpLike) -> Node:
        return Like(self.text_node(tree.this), self.string(tree.expression), regex=True)

    def text_node(self, tree: Any) -> Node:
        node = self.node(tree)
        if not pa.types.is_string(self.type_of(node, tree)) and not pa.types.is_large_string(self.type_of(node, tree)):
            raise self.refuse(tree, f"{tree.sql(dialect='spark')!r} is not text")
        return node

    def string(self, tree: Any) -> str:
        value = self.constant(tree).value
        if not isinstance(value, str):
            raise self.refuse(tree, f"{tree.sql(dialect='spark')!r} is not a constant text")
        return value

    # types

    def whole(self, tree: Any) -> Literal:
        literal = self.constant(tree)
        if not isinstance(literal.value, int):
            raise self.refuse(tree, f"{tree.sql(dialect='spark')!r} is not a constant whole number")
        return literal

    def _arithmetic(self, op: str, tree: Any) -> Node:
        left, right = self.node(tree.this), self.node(tree.expression)
        for node, side in ((left, tree.this), (right, tree.expression)):
            data_type = self.type_of(node, side)
            if not (
                pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)
            ):
                raise self.refuse(side, f"{side.sql(dialect='spark')!r} is {data_type}, not a number")
        return Arithmetic(op, left, right)

    def pair(self, left_tree: Any, right_tree: Any) -> tuple[Node, Node]:
        left, right = self.alike([left_tree, right_tree])
        return left, right

    def alike(self, trees: list[Any]) -> list[Node]:
        """Nodes whose constants took the type of the first that is not a constant."""
        nodes = [self.node(tree) for tree in trees]
        order = sorted(range(len(nodes)), key=lambda i: (isinstance(nodes[i], Literal), _is_null(nodes[i]), i))
        first = order[0]
        target = self.type_of(nodes[first], trees[first])
        if pa.types.is_null(target):
            return nodes
        return [
            self.coerce(node, target, trees[i]) if isinstance(node, Literal) and i != first else node
            for i, node in enumerate(nodes)
        ]

    def constant(self, tree: Any) -> Literal:
        node = self.node(tree)
        if not isinstance(node, Literal):
            raise self.refuse(tree, f"{tree.sql(dialect='spark')!r} must be a constant")
        return node

    def coerce(self, literal: Literal, target: pa.DataType, tree: Any) -> Literal:
        try:
            return literals.coerce(literal, target)
        except (ValueError, OverflowError) as error:
            raise self.refuse(tree, str(error)) from error

    def type_of(self, node: Node, tree: Any) -> pa.DataType:
        if isinstance(node, (Field, Literal, Cast)):
            return node.type
        try:
            return emit(node, _empty).type
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self.refuse(tree, f"{tree.sql(dialect='spark')!r} does not work: {_first_line(error)}") from error

    def refuse(self, tree: Any, what: str, hint: str | None = None) -> InvalidRequest:
        starts = [node.meta["start"] for node in tree.walk() if "start" in node.meta]
        position = f" at character {min(starts) - len(_WHERE) + 1}" if starts else ""
        return InvalidRequest(f"in {self._text!r}{position}: {what}", hint=hint)


def _exactly(literal: Literal, target: pa.DataType) -> Literal | None:
    """The constant in exactly the column's type, None when that would change it."""
    if literal.type.equals(target) or literal.value is None:
        return Literal(literal.value, target)
    if not (pa.types.is_integer(target) or pa.types.is_decimal(target)):
        return None
    try:
        value = pa.scalar(literal.value, target).as_py()
    except (pa.ArrowException, TypeError, OverflowError):
        return None
    return Literal(value, target) if value == literal.value else None


def _is_null(node: Node) -> bool:
    return isinstance(node, Literal) and node.value is None


def _empty(leaf: Field | Literal) -> Any:
    return pa.array([], leaf.type) if isinstance(leaf, Field) else pa.scalar(leaf.value, leaf.type)


def _reescape(pattern: str, escape: str) -> str:
    """A LIKE pattern with another escape character, rewritten to use the backslash."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == escape and position + 1 < len(pattern):
            position += 1
            char = "\\" + pattern[position]
        elif char == "\\":
            char = "\\\\"
        out.append(char)
        position += 1
    return "".join(out)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
