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
from lakebed.model import literals
from lakebed.model.expression import (
    CONSTANT_ARGUMENTS,
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
    emit,
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
_KNOWN = "case, cast, coalesce, concat, greatest, if, least, like, nullif, rlike, round, substring, trim, " + ", ".join(
    sorted(set(_CALLS.values()))
)


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
        node = self._node(tree)
        return node, self._type(node, tree)

    def _node(self, tree: Any) -> Node:
        kind = type(tree)
        if kind in _COMPARE:
            left, right = self._pair(tree.this, tree.expression)
            return Compare(_COMPARE[kind], left, right)
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], tree)
        if kind in _CALLS:
            return self._call(_CALLS[kind], tree)
        handler: Callable[[Any], Node] | None = getattr(self, f"_on_{kind.__name__.lower()}", None)
        if handler is None:
            name = tree.name if isinstance(tree, exp.Anonymous) else tree.sql(dialect="spark")[:40]
            raise self._refuse(tree, f"{name!r} is not supported", f"Functions: {_KNOWN}.")
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
            raise self._refuse(tree, f"there is no column {parts[0]!r}", did_you_mean(parts[0], self._schema.names))
        path, data_type = [name], self._schema.field(name).type
        for part in parts[1:]:
            below = [child.name for child in data_type] if pa.types.is_struct(data_type) else []
            found = self._known(part, below)
            if found is None:
                raise self._refuse(tree, f"{'.'.join(path)!r} has no field {part!r}", did_you_mean(part, below))
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
            raise self._refuse(tree, f"X'{tree.this}' is not hexadecimal") from error

    def _on_boolean(self, tree: exp.Boolean) -> Node:
        return Literal(bool(tree.this), pa.bool_())

    def _on_null(self, _: exp.Null) -> Node:
        return Literal(None, pa.null())

    def _on_paren(self, tree: exp.Paren) -> Node:
        return self._node(tree.this)

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
            right.append(self._boolean(rest.args["expression"]))
            rest = rest.args["this"]
        return [self._boolean(rest), *reversed(right)]

    def _boolean(self, tree: Any) -> Node:
        node = self._node(tree)
        data_type = self._type(node, tree)
        if pa.types.is_null(data_type):
            return Literal(None, pa.bool_())
        if not pa.types.is_boolean(data_type):
            raise self._refuse(tree, f"{tree.sql(dialect='spark')!r} is {data_type}, not true or false")
        return node

    def _on_not(self, tree: exp.Not) -> Node:
        return Not(self._boolean(tree.this))

    def _on_is(self, tree: exp.Is) -> Node:
        node = self._node(tree.this)
        if isinstance(tree.expression, exp.Null):
            return IsNull(node)
        if isinstance(tree.expression, exp.Boolean):
            return Compare("<=>", node, Literal(bool(tree.expression.this), pa.bool_()))
        raise self._refuse(tree, "IS takes NULL, TRUE or FALSE")

    def _on_between(self, tree: exp.Between) -> Node:
        low, high = self._pair(tree.this, tree.args["low"]), self._pair(tree.this, tree.args["high"])
        return And((Compare(">=", *low), Compare("<=", *high)))

    def _on_in(self, tree: exp.In) -> Node:
        if not tree.expressions:
            raise self._refuse(tree, "IN takes a list of constants")
        node = self._node(tree.this)
        target = self._type(node, tree.this)
        values = [self._coerce(self._constant(item), target, item) for item in tree.expressions]
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
            raise self._refuse(tree, "ESCAPE belongs to LIKE")
        return self._like(tree.this, self._string(tree.expression))

    def _like(self, tree: Any, escape: str | None) -> Node:
        pattern = self._string(tree.expression)
        if escape is not None and escape != "\\":
            if len(escape) != 1:
                raise self._refuse(tree, f"the escape {escape!r} is not one character")
            pattern = _reescape(pattern, escape)
        return Like(self._text_node(tree.this), pattern, ignore_case=isinstance(tree, exp.ILike))

    def _on_regexplike(self, tree: exp.RegexpLike) -> Node:
        return Like(self._text_node(tree.this), self._string(tree.expression), regex=True)

    def _text_node(self, tree: Any) -> Node:
        node = self._node(tree)
        if not pa.types.is_string(self._type(node, tree)) and not pa.types.is_large_string(self._type(node, tree)):
            raise self._refuse(tree, f"{tree.sql(dialect='spark')!r} is not text")
        return node

    def _string(self, tree: Any) -> str:
        value = self._constant(tree).value
        if not isinstance(value, str):
            raise self._refuse(tree, f"{tree.sql(dialect='spark')!r} is not a constant text")
        return value

    # functions

    def _call(self, name: str, tree: Any) -> Node:
        args = [tree.this, *([tree.expression] if tree.args.get("expression") is not None else [])]
        nodes = [self._node(arg) for arg in args]
        if name == "negative" and isinstance(nodes[0], Literal) and isinstance(nodes[0].value, (int, float)):
            return (
                literals.of_number(f"-{tree.this.this}")
                if isinstance(tree.this, exp.Literal)
                else Call(name, (nodes[0],))
            )
        if name == "negative" and isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            return literals.of_number(f"-{tree.this.this}")
        if name in CONSTANT_ARGUMENTS:
            self._string(args[1])
        return Call(name, tuple(nodes))

    def _on_tsordstodate(self, tree: exp.TsOrDsToDate) -> Node:
        node = self._node(tree.this)
        if isinstance(tree.parent, (exp.Year, exp.Month, exp.Day, exp.DayOfMonth)):
            return node if not self._is_text(node, tree) else Cast(node, pa.date32())
        return Cast(node, pa.date32())

    def _is_text(self, node: Node, tree: Any) -> bool:
        return bool(pa.types.is_string(self._type(node, tree)))

    def _on_substring(self, tree: exp.Substring) -> Node:
        bounds = [part for part in (tree.args.get("start"), tree.args.get("length")) if part is not None]
        return Call("substring", (self._text_node(tree.this), *[self._whole(part) for part in bounds]))

    def _whole(self, tree: Any) -> Literal:
        literal = self._constant(tree)
        if not isinstance(literal.value, int):
            raise self._refuse(tree, f"{tree.sql(dialect='spark')!r} is not a constant whole number")
        return literal

    def _on_round(self, tree: exp.Round) -> Node:
        decimals = tree.args.get("decimals")
        return Call("round", (self._node(tree.this), *([self._whole(decimals)] if decimals is not None else [])))

    def _on_trim(self, tree: exp.Trim) -> Node:
        if tree.args.get("position") or tree.args.get("expression"):
            raise self._refuse(tree, "only the plain trim(text) is supported")
        return Call("trim", (self._text_node(tree.this),))

    def _on_concat(self, tree: exp.Concat) -> Node:
        return Call("concat", tuple(self._node(arg) for arg in tree.expressions))

    def _on_dpipe(self, tree: exp.DPipe) -> Node:
        return Call("concat", (self._node(tree.this), self._node(tree.expression)))

    def _on_coalesce(self, tree: exp.Coalesce) -> Node:
        return Call("coalesce", tuple(self._alike([tree.this, *tree.expressions])))

    def _on_greatest(self, tree: exp.Greatest) -> Node:
        return Call("greatest", tuple(self._alike([tree.this, *tree.expressions])))

    def _on_least(self, tree: exp.Least) -> Node:
        return Call("least", tuple(self._alike([tree.this, *tree.expressions])))

    def _on_nullif(self, tree: exp.Nullif) -> Node:
        left, right = self._pair(tree.this, tree.expression)
        return Call("if", (Compare("=", left, right), Literal(None, self._type(left, tree)), left))

    def _on_if(self, tree: exp.If) -> Node:
        then, otherwise = self._alike([tree.args["true"], tree.args.get("false") or exp.Null()])
        return Call("if", (self._boolean(tree.this), then, otherwise))

    def _on_case(self, tree: exp.Case) -> Node:
        branches = tree.args["ifs"]
        values = self._alike([*[branch.args["true"] for branch in branches], tree.args.get("default") or exp.Null()])
        out = values[-1]
        for branch, value in zip(reversed(branches), reversed(values[:-1]), strict=True):
            test = branch.this if tree.this is None else exp.EQ(this=tree.this.copy(), expression=branch.this)
            out = Call("if", (self._boolean(test), value, out))
        return out

    def _on_cast(self, tree: exp.Cast) -> Node:
        node = self._node(tree.this)
        target = self._named_type(tree.to)
        if isinstance(node, Literal):
            return self._cast_constant(node, target, tree)
        source = self._type(node, tree.this)
        if pa.types.is_string(target) and (pa.types.is_floating(source) or pa.types.is_timestamp(source)):
            raise self._refuse(tree, f"a cast of {source} to text differs between engines and is not supported")
        return Cast(node, target)

    _on_trycast = _on_cast

    def _cast_constant(self, node: Literal, target: pa.DataType, tree: Any) -> Literal:
        if pa.types.is_string(target) and node.value is not None:
            return Literal(str(node.value), target)
        coerced = self._coerce(node, target, tree)
        try:
            return Literal(pa.scalar(coerced.value, target).as_py(), target)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._refuse(tree, f"{coerced.value!r} does not fit into {target}") from error

    def _named_type(self, tree: exp.DataType) -> pa.DataType:
        name = tree.this.name if hasattr(tree.this, "name") else str(tree.this)
        if name == "DECIMAL":
            numbers = [int(param.this.this) for param in tree.expressions]
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])
            if 1 <= precision <= 38 and 0 <= scale <= precision:
                return pa.decimal128(precision, scale)
        if name in _TYPES:
            return _TYPES[name]
        raise self._refuse(tree, f"the type {tree.sql(dialect='spark')} is not supported in a cast")

    # types

    def _arithmetic(self, op: str, tree: Any) -> Node:
        left, right = self._node(tree.this), self._node(tree.expression)
        for node, side in ((left, tree.this), (right, tree.expression)):
            data_type = self._type(node, side)
            if not (
                pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)
            ):
                raise self._refuse(side, f"{side.sql(dialect='spark')!r} is {data_type}, not a number")
        return Arithmetic(op, left, right)

    def _pair(self, left_tree: Any, right_tree: Any) -> tuple[Node, Node]:
        left, right = self._alike([left_tree, right_tree])
        return left, right

    def _alike(self, trees: list[Any]) -> list[Node]:
        """Nodes whose constants took the type of the first that is not a constant."""
        nodes = [self._node(tree) for tree in trees]
        order = sorted(range(len(nodes)), key=lambda i: (isinstance(nodes[i], Literal), _is_null(nodes[i]), i))
        first = order[0]
        target = self._type(nodes[first], trees[first])
        if pa.types.is_null(target):
            return nodes
        return [
            self._coerce(node, target, trees[i]) if isinstance(node, Literal) and i != first else node
            for i, node in enumerate(nodes)
        ]

    def _constant(self, tree: Any) -> Literal:
        node = self._node(tree)
        if not isinstance(node, Literal):
            raise self._refuse(tree, f"{tree.sql(dialect='spark')!r} must be a constant")
        return node

    def _coerce(self, literal: Literal, target: pa.DataType, tree: Any) -> Literal:
        try:
            return literals.coerce(literal, target)
        except (ValueError, OverflowError) as error:
            raise self._refuse(tree, str(error)) from error

    def _type(self, node: Node, tree: Any) -> pa.DataType:
        if isinstance(node, (Field, Literal, Cast)):
            return node.type
        try:
            return emit(node, _empty).type
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._refuse(tree, f"{tree.sql(dialect='spark')!r} does not work: {_first_line(error)}") from error

    def _refuse(self, tree: Any, what: str, hint: str | None = None) -> InvalidRequest:
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
