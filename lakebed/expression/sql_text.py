"""An expression tree as Spark SQL text, for messages, `explain()` and engines that take text."""

from __future__ import annotations

import math
from datetime import date, datetime, time

import pyarrow as pa

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
)


def to_sql(node: Node) -> str:
    """The node as Spark SQL; parsing that gives the node back."""
    match node:
        case Field(path):
            return ".".join(part if _is_word(part) else f"`{part.replace('`', '``')}`" for part in path)
        case Literal():
            return _literal_sql(node)
        case Compare(op, left, right):
            return f"{_inner(left)} {op} {_inner(right)}"
        case And(args):
            return " AND ".join(f"({to_sql(arg)})" if isinstance(arg, (Or, And)) else to_sql(arg) for arg in args)
        case Or(args):
            return " OR ".join(f"({to_sql(arg)})" if isinstance(arg, Or) else to_sql(arg) for arg in args)
        case Not(arg):
            return f"NOT ({to_sql(arg)})"
        case IsNull(arg):
            return f"{_inner(arg)} IS NULL"
        case In(arg, values):
            return f"{_inner(arg)} IN ({', '.join(map(_literal_sql, values))})"
        case Like(arg, pattern, ignore_case, regex):
            word = "RLIKE" if regex else "ILIKE" if ignore_case else "LIKE"
            return f"{_inner(arg)} {word} {_quote(pattern)}"
        case Arithmetic(op, left, right):
            return f"{_inner(left)} {op} {_inner(right)}"
        case Cast(arg, data_type):
            return f"CAST({to_sql(arg)} AS {sql_type(data_type)})"
        case Call("negative", (arg,)):
            return f"-{_inner(arg)}"
        case Call(name, args):
            return f"{name}({', '.join(map(to_sql, args))})"


def _inner(node: Node) -> str:
    bare = isinstance(node, (Field, Literal, Call, Cast))
    return to_sql(node) if bare else f"({to_sql(node)})"


def _literal_sql(literal: Literal) -> str:
    value = literal.value
    match value:
        case None:
            return "NULL"
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
            return f"'{value.isoformat()}'"
        case float():
            return f"CAST('{value}' AS DOUBLE)" if not math.isfinite(value) else f"{value!r}D"
    return str(value)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _is_word(text: str) -> bool:
    return text.isidentifier() and text.isascii() and text.lower() not in _RESERVED


_RESERVED = frozenset(
    {"and", "or", "not", "null", "true", "false", "in", "is", "like", "between", "case", "when", "end"}
)
_SQL_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def sql_type(data_type: pa.DataType) -> str:
    """A type that a cast can name."""
    if pa.types.is_decimal(data_type):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    return _SQL_TYPES[data_type]
