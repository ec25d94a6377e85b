"""Filters as Spark columns, where Spark means by them exactly what lakebed means.

Comparisons of columns with constants of their own kind, null tests and their combinations are the same in both, and
reach Spark's Parquet reader. Everything else (division by zero is null here and an error there, functions, patterns) is
evaluated by lakebed itself, in an Arrow UDF over the columns that it names: the answer must not depend on the route.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows

from lakebed.expression.predicate import Predicate
from lakebed.expression.sql_text import sql_type
from lakebed.expression.tree import And, Call, Compare, Field, In, IsNull, Literal, Node, Not, Or
from lakebed.spark.udf import column_of, over_columns

_SUBSTRINGS = {"startswith": F.startswith, "endswith": F.endswith, "contains": F.contains}


def where(rows: DataFrame, predicate: Predicate, schema: pa.Schema) -> DataFrame:
    """The rows that match; `schema` says in which types the predicate was bound."""
    rest: list[Predicate] = []
    for part in predicate.conjuncts:
        condition = exact_column(part.root)
        if condition is None:
            rest.append(part)
        else:
            rows = rows.where(condition)
    if rest:
        rows = rows.where(_udf(reduce(lambda one, other: one & other, rest), schema))
    return rows


def exact_column(node: Node) -> Column | None:
    """The condition as a column, None where Spark may see it otherwise."""
    match node:
        case Literal(value, kind) if pa.types.is_boolean(kind):
            return F.lit(value).cast("boolean")
        case Field(path, kind) if pa.types.is_boolean(kind):
            return column_of(path)
        case Compare(op, (Field() | Literal()) as left, (Field() | Literal()) as right):
            return _compared(op, left, right)
        case IsNull(Field(path)):
            return column_of(path).isNull()
        case In(Field(path, kind), values) if not pa.types.is_floating(kind):
            found = [_literal(value) for value in values]
            if any(
                value is None or not _comparable(kind, item.type) for value, item in zip(found, values, strict=True)
            ):
                return None
            return column_of(path).isin(*found)
        case Not(arg):
            inner = exact_column(arg)
            return None if inner is None else ~inner
        case And(args):
            return _joined(args, lambda one, other: one & other)
        case Or(args):
            return _joined(args, lambda one, other: one | other)
        case Call(name, (Field(path, kind), Literal(str() as text))) if name in _SUBSTRINGS and _is_text(kind):
            return _SUBSTRINGS[name](column_of(path), F.lit(text))
    return None


def _joined(args: tuple[Node, ...], combine: Any) -> Column | None:
    parts = [exact_column(arg) for arg in args]
    known = [part for part in parts if part is not None]
    return reduce(combine, known) if len(known) == len(parts) else None


def _compared(op: str, left: Field | Literal, right: Field | Literal) -> Column | None:
    if not _comparable(left.type, right.type):
        return None
    one, other = _value(left), _value(right)
    if one is None or other is None:
        return None
    match op:
        case "=":
            return one == other
        case "!=":
            return one != other
        case "<":
            return one < other
        case "<=":
            return one <= other
        case ">":
            return one > other
        case ">=":
            return one >= other
    return one.eqNullSafe(other)


def _value(node: Field | Literal) -> Column | None:
    return column_of(node.path) if isinstance(node, Field) else _literal(node)


def _literal(literal: Literal) -> Column | None:
    """A constant in exactly its type: by way of text where Spark's own conversion would go by the session's zone."""
    value, kind = literal.value, literal.type
    if pa.types.is_timestamp(kind):
        name = "timestamp" if kind.tz else "timestamp_ntz"
    else:
        try:
            name = sql_type(kind)
        except KeyError:
            return None
    if value is None or isinstance(value, bool | int | float | str):
        return F.lit(value).cast(name)
    if isinstance(value, bytes):
        return F.unhex(F.lit(value.hex()))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return F.lit(value.isoformat()).cast(name)
    if pa.types.is_decimal(kind):
        return F.lit(format(value, "f")).cast(name)
    return None


def _comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two values are of one kind, so that nobody casts either of them to compare them."""
    return any(kind(left) and kind(right) for kind in _KINDS)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_KINDS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    _is_text,
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    pa.types.is_date,
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
    pa.types.is_decimal,
)


def _udf(predicate: Predicate, schema: pa.Schema) -> Column:
    if not predicate.columns:
        nothing = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["nothing"])
        return F.lit(predicate.evaluate(nothing)[0].as_py())
    wanted = pa.schema([schema.field(name).with_nullable(True) for name in predicate.columns])
    return over_columns(predicate.evaluate, wanted, "boolean")
