"""An expression tree as Spark SQL text, for messages, `explain()` and engines that take text."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal

from lakebed.expression.literals import decimal_type
from lakebed.expression.tree import (
    And,
    Arithmetic,
    Call,
    Case,
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
from lakebed.expression.types import FLOAT, INT, NULL, is_decimal, sql_name, sql_type_of


def to_sql(node: Node) -> str:
    """The node as Spark SQL; parsing that gives a node of the same meaning."""
    match node:
        case Field(path):
            return ".".join(part if _is_word(part) else f"`{part.replace('`', '``')}`" for part in path)
        case Literal():
            return _literal_sql(node)
        case Compare(op, left, right):
            return f"{_side(left, right)} {op} {_side(right, left)}"
        case And(args):
            return " AND ".join(f"({to_sql(arg)})" if isinstance(arg, (Or, And)) else to_sql(arg) for arg in args)
        case Or(args):
            return " OR ".join(f"({to_sql(arg)})" if isinstance(arg, Or) else to_sql(arg) for arg in args)
        case Not(arg):
            return f"NOT ({to_sql(arg)})"
        case IsNull(arg):
            return f"{_inner(arg)} IS NULL"
        case In(arg, values):
            return f"{_inner(arg)} IN ({', '.join(map(_bare, values))})"
        case Like(arg, pattern, regex):
            return f"{_inner(arg)} {'RLIKE' if regex else 'LIKE'} {_quote(pattern)}"
        case Arithmetic(op, left, right):
            return f"{_inner(left)} {op} {_inner(right)}"
        case Cast(arg, data_type, lenient):
            return f"{'TRY_CAST' if lenient else 'CAST'}({to_sql(arg)} AS {sql_name(data_type)})"
        case Case(branches, default):
            whens = " ".join(f"WHEN {to_sql(condition)} THEN {to_sql(value)}" for condition, value in branches)
            return f"CASE {whens} ELSE {to_sql(default)} END"
        case Call("negative", (arg,)):
            return f"-{_inner(arg)}" if not isinstance(arg, Literal) else f"-({to_sql(arg)})"
        case Call(("trim" | "ltrim" | "rtrim") as name, (arg, characters)):
            return f"trim({_TRIM[name]} {to_sql(characters)} FROM {to_sql(arg)})"
        case Call(name, args):
            return f"{name.partition(' ')[0]}({', '.join(map(to_sql, args))})"


def _inner(node: Node) -> str:
    negative = isinstance(node, Call) and node.name == "negative"
    bare = isinstance(node, (Field, Literal, Call, Cast, Case)) and not negative
    return to_sql(node) if bare else f"({to_sql(node)})"


def _side(node: Node, other: Node) -> str:
    """One side of a comparison; a constant beside something else takes its type, and needs none of its own."""
    return _bare(node) if isinstance(node, Literal) and not isinstance(other, Literal) else _inner(node)


def _bare(literal: Literal) -> str:
    if literal.value is None:
        return "NULL"
    if isinstance(literal.value, int | Decimal) and not isinstance(literal.value, bool):
        return format(literal.value, "f") if isinstance(literal.value, Decimal) else str(literal.value)
    return _literal_sql(literal)


def _literal_sql(literal: Literal) -> str:
    """The constant in exactly its type."""
    value = literal.value
    match value:
        case None:
            return "NULL" if literal.type == NULL else f"CAST(NULL AS {_type_name(literal)})"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return _quote(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            return f"{'TIMESTAMP' if literal.type.tz else 'TIMESTAMP_NTZ'} '{value.isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return f"CAST('{value.isoformat()}' AS TIME)"
        case float() if literal.type == FLOAT or not math.isfinite(value):
            return f"CAST('{value}' AS {'FLOAT' if literal.type == FLOAT else 'DOUBLE'})"
        case float():
            return f"{value!r}D" if "e" not in repr(value) else repr(value)
        case Decimal() if is_decimal(literal.type):
            plain = format(value, "f")
            return (
                plain
                if decimal_type(value) == literal.type and "." in plain
                else f"CAST('{plain}' AS {_type_name(literal)})"
            )
    return str(value) if literal.type == INT else f"CAST({value} AS {_type_name(literal)})"


def _type_name(literal: Literal) -> str:
    return sql_name(sql_type_of(literal.type) or literal.type)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _is_word(text: str) -> bool:
    return text.isidentifier() and text.isascii() and text.lower() not in _RESERVED


_TRIM = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_RESERVED = frozenset(
    {"and", "or", "not", "null", "true", "false", "in", "is", "like", "between", "case", "when", "end", "cast", "if"}
)
