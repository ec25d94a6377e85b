"""Binds the values of the parser's tree: columns, constants, arithmetic, CASE, casts and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakebed.expression import literals
from lakebed.expression.bind_conditions import Walk
from lakebed.expression.functions import BY_NAME, BY_NODE, FUNCTIONS, Function, Kind
from lakebed.expression.parser import is_typed_number
from lakebed.expression.rounding import fraction_type
from lakebed.expression.tree import Arithmetic, Call, Case, Compare, Field, IsNull, Literal, Node, Not
from lakebed.expression.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    common_type,
    decimal_of,
    decimal_result,
    is_decimal,
    is_floating,
    is_number,
    is_time,
    is_whole,
    sql_name,
    text_partner,
)
from lakebed.model.schema_change import did_you_mean

_BIGINT_DIGITS = 18
_SURE_DIGITS = 34
"""Beyond, Spark rounds a decimal when it changes its sign."""
_TYPES: Mapping[str, pa.DataType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": TINYINT,
    "SMALLINT": SMALLINT,
    "INT": INT,
    "BIGINT": BIGINT,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "TEXT": TEXT,
    "BINARY": BINARY,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
}


# --- columns and constants --------------------------------------------------------------------------------------------


def _field(walk: Walk, tree: Any) -> Node:
    for part in tree.parts:
        walk.check(part)
    parts = [part.name for part in tree.parts]
    whole, names = ".".join(parts), walk.schema.names
    if whole in names:
        return Field((whole,), walk.schema.field(whole).type)
    name = _known(parts[0], names)
    if name is None:
        raise walk.refuse(tree, f"there is no column {parts[0]!r}", did_you_mean(parts[0], names))
    path, data_type = [name], walk.schema.field(name).type
    for part in parts[1:]:
        below = [child.name for child in data_type] if pa.types.is_struct(data_type) else []
        found = _known(part, below)
        if found is None:
            raise walk.refuse(tree, f"{'.'.join(path)!r} has no field {part!r}", did_you_mean(part, below))
        path.append(found)
        data_type = data_type.field(found).type
    return Field(tuple(path), data_type)


def _known(name: str, names: Sequence[str]) -> str | None:
    """The column of that name; as in Spark, case matters only where two differ by nothing else."""
    if name in names:
        return name
    folded = [known for known in names if known.lower() == name.lower()]
    return folded[0] if len(folded) == 1 else None


def _literal(walk: Walk, tree: Any) -> Node:
    return Literal(tree.this, TEXT) if tree.is_string else _number(walk, tree, str(tree.this))


def _number(walk: Walk, tree: Any, text: str) -> Literal:
    try:
        return literals.of_typed_number(text) if text[-1:].isalpha() else literals.of_number(text)
    except (ValueError, ArithmeticError) as error:
        raise walk.refuse(tree, str(error) or f"{text} is not a number") from error


def _hex(walk: Walk, tree: Any) -> Node:
    try:
        return Literal(bytes.fromhex(tree.this), BINARY)
    except ValueError as error:
        raise walk.refuse(tree, f"X'{tree.this}' is not hexadecimal") from error


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _arithmetic(op: str) -> Callable[[Walk, Any], Node]:
    return lambda walk, tree: _operation(walk, op, tree)


def _operation(walk: Walk, op: str, tree: Any) -> Node:
    trees = (tree.this, tree.expression)
    nodes = [walk.operand(side) for side in trees]
    others = [node.type for node in reversed(nodes)]
    for at, (node, side) in enumerate(zip(nodes, trees, strict=True)):
        if isinstance(node, Literal) and node.type == TEXT and is_number(others[at]):
            nodes[at] = walk.cast(node, text_partner(others[at]), side)
        elif node.type != NULL and not is_number(node.type):
            raise walk.refuse(side, f"{side.sql(dialect='spark')!r} is {sql_name(node.type)}, not a number", "Cast it.")
    left, right = _of_kind(walk, op, nodes, trees, tree)
    if (
        op == "div"
        and is_decimal(left.type)
        and left.type.precision - left.type.scale + right.type.scale > _BIGINT_DIGITS
    ):
        raise walk.refuse(
            tree, "div of so many digits may exceed a bigint, which Spark does not notice", "Write floor(a / b)."
        )
    return walk.fold(Arithmetic(op, left, right, _result(op, left.type, right.type)), tree)


def _of_kind(walk: Walk, op: str, nodes: Sequence[Node], trees: Sequence[Any], tree: Any) -> list[Node]:
    """Both operands in the kind of number in which the operation works."""
    types = [node.type for node in nodes]
    target = common_type(types) or NULL
    if is_decimal(target) and not (op == "/" and types[0] == NULL):
        return [_as_decimal(walk, node, side, target) for node, side in zip(nodes, trees, strict=True)]
    if target == NULL:
        target = DOUBLE if op != "div" else BIGINT
    if op == "/":
        target = DOUBLE
    if op == "div":
        if is_floating(target):
            raise walk.refuse(tree, "div is for whole numbers and decimals", "Write floor(a / b).")
        target = BIGINT
    return [walk.cast(node, target, side) for node, side in zip(nodes, trees, strict=True)]


def _as_decimal(walk: Walk, node: Node, tree: Any, common: pa.DataType) -> Node:
    """A decimal in its own digits; a whole number that stands in the text has only the digits it shows."""
    if node.type == NULL:
        return walk.cast(node, common, tree)
    if isinstance(node, Literal) and is_whole(node.type) and node.type != TINYINT and _is_written(tree):
        return walk.cast(node, pa.decimal128(len(str(abs(node.value))), 0), tree)
    return walk.cast(node, decimal_of(node.type), tree)


def _is_written(tree: Any) -> bool:
    while isinstance(tree, exp.Paren | exp.Neg):
        tree = tree.this
    return isinstance(tree, exp.Literal) or is_typed_number(tree)


def _result(op: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if op == "div":
        return BIGINT
    return decimal_result(op, left, right) if is_decimal(left) else left


def _negative(walk: Walk, tree: Any) -> Node:
    """A minus before a number belongs to it: the least number of a type has no opposite."""
    walk.check(tree.this)
    if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        return _number(walk, tree, f"-{tree.this.this}")
    if is_typed_number(tree.this):
        return _number(walk, tree, f"-{tree.this.expressions[0].this}")
    return _call(walk, FUNCTIONS["negative"], [tree.this], tree)


# --- choices ----------------------------------------------------------------------------------------------------------


def _if(walk: Walk, tree: Any) -> Node:
    then, otherwise = walk.alike([tree.args["true"], tree.args.get("false") or exp.Null()])
    return walk.fold(Case(((walk.condition(tree.this), then),), otherwise, then.type), tree)


def _case(walk: Walk, tree: Any) -> Node:
    branches = tree.args["ifs"]
    for branch in branches:
        walk.check(branch)
    values = walk.alike([*[branch.args["true"] for branch in branches], tree.args.get("default") or exp.Null()])
    tests = [_test(walk, tree.this, branch.this) for branch in branches]
    return walk.fold(Case(tuple(zip(tests, values[:-1], strict=True)), values[-1], values[-1].type), tree)


def _test(walk: Walk, value: Any, wanted: Any) -> Node:
    """The condition of a branch: as it is written, or that the value of the CASE equals what is written."""
    if value is not None:
        return walk.node(exp.EQ(this=exp.Paren(this=value.copy()), expression=exp.Paren(this=wanted.copy())))
    if walk.node(wanted).type == NULL:
        raise walk.refuse(wanted, "WHEN takes a condition, not NULL")
    return walk.condition(wanted)


def _nullif(walk: Walk, tree: Any) -> Node:
    left, right = walk.alike([tree.this, tree.expression])
    value = walk.operand(tree.this)
    test = walk.fold(Compare("=", left, right), tree)
    return walk.fold(Case(((test, Literal(None, value.type)),), value, value.type), tree)


# --- casts and functions ----------------------------------------------------------------------------------------------


_UNCALLABLE = {"TIMESTAMPNTZ": "timestamp_ntz", "TIMESTAMPLTZ": "timestamp_ltz"}
"""Types whose names Spark does not have as functions, as it has `date(x)`."""


def _cast(walk: Walk, tree: Any) -> Node:
    node = walk.operand(tree.this)
    target = _named_type(walk, tree.to)
    name = _UNCALLABLE.get(tree.to.this.name if hasattr(tree.to.this, "name") else "")
    if name is not None and not isinstance(tree, exp.TryCast) and not _is_quoted(tree.this):
        raise walk.refuse(tree, f"there is no function {name}", f"Write CAST(... AS {name.upper()}).")
    return walk.cast(node, target, tree, lenient=bool(tree.args.get("safe")))


def _is_quoted(tree: Any) -> bool:
    return isinstance(tree, exp.Literal) and bool(tree.is_string)


def _named_type(walk: Walk, tree: Any) -> pa.DataType:
    walk.check(tree)
    name = tree.this.name if hasattr(tree.this, "name") else str(tree.this)
    numbers = []
    for param in tree.expressions:
        walk.check(param)
        numbers.append(int(param.this.this))
    if name == "DECIMAL":
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    elif name in _TYPES and not numbers:
        return _TYPES[name]
    raise walk.refuse(tree, f"the type {tree.sql(dialect='spark')} is not supported in a cast")


def _to_date(walk: Walk, tree: Any) -> Node:
    return walk.cast(walk.operand(tree.this), DATE, tree)


def _pipe(walk: Walk, tree: Any) -> Node:
    """A chain of || is one concatenation."""
    parts: list[Any] = []
    rest = tree
    while isinstance(rest, exp.DPipe):
        walk.check(rest)
        parts.append(rest.expression)
        rest = rest.this
    return _call(walk, FUNCTIONS["concat"], [rest, *reversed(parts)], tree)


def _trim(walk: Walk, tree: Any) -> Node:
    names = {None: "trim", "": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
    position = tree.args.get("position")
    if position not in names:
        raise walk.refuse(tree, f"trim has no position {position!r}")
    characters = tree.args.get("expression")
    return _call(walk, FUNCTIONS[names[position]], [tree.this, *([] if characters is None else [characters])], tree)


def _by_node(walk: Walk, tree: Any) -> Node:
    function = BY_NODE[type(tree).__name__]
    if function.name in ("ceil", "floor") and tree.args.get("decimals") is not None:
        if walk.operand(tree.this).type == TEXT:
            raise walk.refuse(
                tree, f"{function.name} with digits is not for text", "Write cast(... as decimal(p, s)) first."
            )
        function = FUNCTIONS[f"{function.name} with digits"]
    values: list[Any] = []
    for name in function.reads:
        value = tree.args.get(name)
        values += value if isinstance(value, list) else [value] if value is not None else []
    return _call(walk, function, values, tree)


def _by_name(walk: Walk, tree: Any) -> Node:
    if is_typed_number(tree):
        return _number(walk, tree, str(tree.expressions[0].this))
    if str(tree.this).lower() in ("isnull", "isnotnull") and len(tree.expressions) == 1:
        test = walk.fold(IsNull(walk.node(tree.expressions[0])), tree)
        return test if str(tree.this).lower() == "isnull" else walk.fold(Not(test), tree)
    function = BY_NAME.get(str(tree.this).lower())
    if function is None:
        known = ", ".join(sorted({name for name in BY_NAME if " " not in name}))
        raise walk.refuse(tree, f"{str(tree.this)!r} is not supported", f"Functions: {known}.")
    return _call(walk, function, list(tree.expressions), tree)


def _call(walk: Walk, function: Function, values: list[Any], tree: Any) -> Node:
    most = None if function.variadic else len(function.kinds)
    if len(values) < function.required or (most is not None and len(values) > most):
        raise walk.refuse(tree, f"{function.name} takes another number of arguments than {len(values)}")
    if function.kinds[0] in (Kind.ALIKE, Kind.ALIKE_STRICT):
        nodes = walk.alike(values, promote=function.kinds[0] is Kind.ALIKE)
    elif function.kinds[0] is Kind.TEXT_OR_BINARY:
        plain = [walk.operand(arg) for arg in values]
        binary = all(node.type == BINARY for node in plain)
        nodes = plain if binary else [walk.cast(node, TEXT, arg) for node, arg in zip(plain, values, strict=True)]
    else:
        nodes = [_argument(walk, function.kind(at), arg) for at, arg in enumerate(values)]
    if any(function.kind(at).is_constant and isinstance(n, Literal) and n.value is None for at, n in enumerate(nodes)):
        return Literal(None, function.result([*nodes[:1]]))
    if function.name in ("abs", "negative") and is_decimal(nodes[0].type) and nodes[0].type.precision > _SURE_DIGITS:
        raise walk.refuse(tree, f"Spark rounds {function.name} of more than {_SURE_DIGITS} digits", "Write 0 - x.")
    return walk.fold(Call(function.name, tuple(nodes), function.result(nodes)), tree)


def _argument(walk: Walk, kind: Kind, tree: Any) -> Node:
    match kind:
        case Kind.TEXT:
            return walk.text(tree)
        case Kind.CONSTANT_TEXT:
            return walk.cast(walk.constant(tree, str, "text"), TEXT, tree)
        case Kind.CONSTANT_WHOLE:
            return walk.cast(walk.constant(tree, int, "whole number"), INT, tree)
    node = walk.operand(tree)
    if kind in (Kind.DATE, Kind.TIMESTAMP):
        if not is_time(node.type) and node.type not in (TEXT, NULL):
            raise walk.refuse(tree, f"{tree.sql(dialect='spark')!r} is {sql_name(node.type)}, not a {kind.value}")
        target = DATE if kind is Kind.DATE else TIMESTAMP if node.type != TIMESTAMP_NTZ else TIMESTAMP_NTZ
        return walk.cast(node, target, tree)
    if node.type in (TEXT, NULL):
        node = walk.cast(node, pa.decimal128(38, 18) if kind is Kind.DECIMAL and node.type == NULL else DOUBLE, tree)
    if not is_number(node.type):
        raise walk.refuse(tree, f"{tree.sql(dialect='spark')!r} is {sql_name(node.type)}, not a number")
    if kind is Kind.FLOATING:
        return node if is_floating(node.type) else walk.cast(node, DOUBLE, tree)
    return walk.cast(node, fraction_type(node.type), tree) if kind is Kind.DECIMAL else node


VALUES: Mapping[str, Callable[[Any, Any], Node]] = {
    **dict.fromkeys(BY_NODE, _by_node),
    "Column": _field,
    "Dot": _field,
    "Literal": _literal,
    "RawString": lambda _, tree: Literal(str(tree.this), TEXT),
    "HexString": _hex,
    "Boolean": lambda _, tree: Literal(bool(tree.this), BOOLEAN),
    "Null": lambda *_: Literal(None, NULL),
    "Paren": lambda walk, tree: walk.node(tree.this),
    "Add": _arithmetic("+"),
    "Sub": _arithmetic("-"),
    "Mul": _arithmetic("*"),
    "Div": _arithmetic("/"),
    "Mod": _arithmetic("%"),
    "IntDiv": _arithmetic("div"),
    "Neg": _negative,
    "If": _if,
    "Case": _case,
    "Nullif": _nullif,
    "Cast": _cast,
    "TryCast": _cast,
    "TsOrDsToDate": _to_date,
    "DPipe": _pipe,
    "Trim": _trim,
    "Anonymous": _by_name,
}
