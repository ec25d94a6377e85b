"""Filters as Spark columns, where Spark evaluates them exactly as lakebed does, whatever the session's settings.

A comparison of a column with a constant of its own type, null tests and their combinations are the same in both, and
reach Spark's Parquet reader. Everything else (casts, arithmetic, functions, patterns: their meaning follows the ANSI
flag and the time zone of the session) is evaluated by lakebed itself, in an Arrow UDF over the columns that it names,
so that the result does not depend on which of the two evaluates a filter.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows

from lakebed.expression.predicate import Predicate
from lakebed.expression.tree import And, Call, Compare, Field, In, IsNull, Literal, Node, Not, Or
from lakebed.expression.types import is_floating, sql_name, sql_type_of
from lakebed.spark.udf import column_of, over_columns

_SUBSTRINGS = {"startswith": F.startswith, "endswith": F.endswith, "contains": F.contains}


def where(rows: DataFrame, predicate: Predicate, schema: pa.Schema) -> DataFrame:
    """The rows that match; `schema` has the types that the predicate was bound with.

    The UDF evaluates the whole predicate, since an earlier condition may guard a later one against rows on which it
    fails (`b <> 0 AND a / b > 1`), and Spark may apply two filters in any order.
    """
    exact = [exact_column(part.root) for part in predicate.conjuncts]
    for condition in exact:
        rows = rows if condition is None else rows.where(condition)
    return rows.where(_udf(predicate, schema)) if any(part is None for part in exact) else rows


def exact_column(node: Node) -> Column | None:
    """The condition as a column, None where Spark may evaluate it differently."""
    match node:
        case Literal(value, kind) if pa.types.is_boolean(kind):
            return F.lit(value).cast("boolean")
        case Field(path, kind) if pa.types.is_boolean(kind):
            return column_of(path)
        case Compare(op, (Field() | Literal()) as left, (Field() | Literal()) as right):
            return _compared(op, left, right)
        case IsNull(Field(path)):
            return column_of(path).isNull()
        case In(Field(path, kind), values) if not is_floating(kind):
            found = [_literal(value) for value in values]
            if any(value is None for value in found) or not all(_comparable(kind, item.type) for item in values):
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
    """A constant in exactly its type: by way of text where Spark's own conversion depends on the session's zone."""
    value, kind = literal.value, literal.type
    known = sql_type_of(kind)
    if known is None or pa.types.is_time(kind):
        return None
    name = sql_name(known)
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
    """Whether two values are of one type, so that neither is cast for the comparison."""
    return left == right and sql_type_of(left) is not None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _udf(predicate: Predicate, schema: pa.Schema) -> Column:
    if not predicate.columns:
        nothing = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["nothing"])
        return F.lit(predicate.evaluate(nothing)[0].as_py())
    wanted = pa.schema([schema.field(name).with_nullable(True) for name in predicate.columns])
    return over_columns(predicate.evaluate, wanted, "boolean")
