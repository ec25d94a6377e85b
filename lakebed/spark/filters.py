"""Filters that Spark pushes into the source, as predicates; what cannot be said exactly is left to Spark."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as pushed

from lakebed.model.expression import Call, Compare, Field, In, IsNull, Node, Not
from lakebed.model.literals import of_python
from lakebed.model.predicate import Predicate
from lakebed.spark.expressions import comparable

_COMPARISONS: dict[type[pushed.Filter], str] = {
    pushed.EqualTo: "=",
    pushed.EqualNullSafe: "<=>",
    pushed.GreaterThan: ">",
    pushed.GreaterThanOrEqual: ">=",
    pushed.LessThan: "<",
    pushed.LessThanOrEqual: "<=",
}
_TEXTS: dict[type[pushed.Filter], str] = {
    pushed.StringStartsWith: "startswith",
    pushed.StringEndsWith: "endswith",
    pushed.StringContains: "contains",
}


def split_filters(filters: Iterable[pushed.Filter], schema: pa.Schema) -> tuple[Predicate | None, list[pushed.Filter]]:
    """What lakebed applies itself, and the filters that it does not."""
    taken: list[Predicate] = []
    left: list[pushed.Filter] = []
    for one in filters:
        node = to_node(one, schema)
        if node is None:
            left.append(one)
        else:
            taken.append(Predicate(node))
    return (reduce(lambda one, other: one & other, taken) if taken else None), left


def to_node(given: pushed.Filter, schema: pa.Schema) -> Node | None:
    """The filter as an expression, None where Spark had better look itself."""
    if isinstance(given, pushed.Not):
        inner = to_node(given.child, schema)
        return None if inner is None else Not(inner)
    path: tuple[str, ...] = getattr(given, "attribute", ())
    field = _field(path, schema)
    if field is None:
        return None
    if isinstance(given, pushed.IsNull):
        return IsNull(field)
    if isinstance(given, pushed.IsNotNull):
        return Not(IsNull(field))
    try:
        return _with_value(given, field)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None


def _with_value(given: pushed.Filter, field: Field) -> Node | None:
    value: Any = getattr(given, "value", None)
    if isinstance(given, pushed.In):
        values = tuple(of_python(item, field.type) for item in value)
        if pa.types.is_floating(field.type) or not all(comparable(field.type, item.type) for item in values):
            return None
        return In(field, values)
    literal = of_python(value, field.type)
    if literal.value is None or not comparable(field.type, literal.type):
        return None
    if type(given) in _COMPARISONS:
        return Compare(_COMPARISONS[type(given)], field, literal)
    if type(given) in _TEXTS and pa.types.is_string(field.type) and isinstance(value, str):
        return Call(_TEXTS[type(given)], (field, literal))
    return None


def _field(path: tuple[str, ...], schema: pa.Schema) -> Field | None:
    kind: Any = pa.struct(list(schema))
    for part in path:
        index = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if index < 0:
            return None
        kind = kind.field(index).type
    return Field(path, kind) if path and not pa.types.is_nested(kind) else None
