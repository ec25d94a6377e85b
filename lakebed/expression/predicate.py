"""Filters: one grammar (SQL text), evaluation, and the key ranges and statistics tests derived from a filter.

A `Predicate` is a bound expression that is true, false or null. Besides being run it answers questions that let work
be skipped: which keys can match (`key_range`), whether a file with these statistics can hold a match (`may_match`), and
what part of it refers to some columns only (`restricted_to`). All three err on the side of reading too much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.expression import skipping
from lakebed.expression.binder import bind
from lakebed.expression.evaluate import evaluate
from lakebed.expression.literals import of_python
from lakebed.expression.skipping import ColumnStats
from lakebed.expression.sql_text import to_sql
from lakebed.expression.tree import And, Field, In, Literal, Node, fields
from lakebed.model.key_range import KeyRange

__all__ = ["ColumnStats", "Expression", "KeyRange", "Predicate", "is_in", "parse_expression", "parse_predicate"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A bound expression of any type, as in `set={"qty": "qty + 1"}`."""

    root: Node

    @property
    def type(self) -> pa.DataType:
        return self.root.type

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns it reads, each once, in order of mention."""
        return tuple(dict.fromkeys(field.path[0] for field in fields(self.root)))

    def to_sql(self) -> str:
        return to_sql(self.root)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Its value for each row, nulls included."""
        return evaluate(self.root, batch)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A bound condition. Combine with `&`."""

    root: Node

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns it reads, each once, in order of mention."""
        return tuple(dict.fromkeys(field.path[0] for field in fields(self.root)))

    @property
    def conjuncts(self) -> tuple[Predicate, ...]:
        """Conditions that must all hold."""
        return tuple(Predicate(node) for node in skipping.conjuncts(skipping.positive(self.root)))

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(And((*skipping.conjuncts(self.root), *skipping.conjuncts(other.root))))

    def to_sql(self) -> str:
        return to_sql(self.root)

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for each row that matches; where SQL gives null the row does not match."""
        return pc.fill_null(evaluate(self.root, batch), False)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        mask = self.evaluate(batch)
        return batch if mask.true_count == len(mask) else batch.filter(mask)

    def key_range(self, column: str) -> KeyRange | None:
        """A range of a text column that contains every match, None when it may be anywhere."""
        found = skipping.key_range(skipping.positive(self.root), column)
        return None if found.is_all else found

    def may_match(self, stats: Mapping[str, ColumnStats]) -> bool:
        """False only when no row of a file with these statistics can match. Nested fields go by dotted name."""
        return skipping.may_match(skipping.positive(self.root), stats)

    def restricted_to(self, columns: Collection[str]) -> Predicate | None:
        """What the condition demands of these columns alone; None when nothing."""
        node = skipping.restrict(skipping.positive(self.root), frozenset(columns))
        return None if node is None else Predicate(node)


def parse_predicate(text: str | Predicate, schema: pa.Schema) -> Predicate:
    """A condition from SQL text, checked against the schema; a `Predicate` is checked only for its columns."""
    if isinstance(text, Predicate):
        unknown = [name for name in text.columns if name not in schema.names]
        if unknown:
            raise InvalidRequest(f"there is no column {unknown[0]!r}", hint=f"Columns: {', '.join(schema.names)}.")
        return text
    root = bind(text, schema)
    if pa.types.is_null(root.type):
        root = Literal(None, pa.bool_())
    if not pa.types.is_boolean(root.type):
        raise InvalidRequest(f"{text!r} is {root.type}, not true or false", hint="A filter is a condition.")
    return Predicate(root)


def parse_expression(text: str, schema: pa.Schema) -> Expression:
    """A value from SQL text, checked against the schema."""
    return Expression(bind(text, schema))


def is_in(field: pa.Field, values: Iterable[Any]) -> Predicate:
    """`column IN (values)` for Python values, as look-ups and partition filters need it."""
    try:
        constants = tuple(of_python(value, field.type) for value in values)
    except ValueError as error:
        raise InvalidRequest(f"the column {field.name!r} cannot be compared with that: {error}") from None
    return Predicate(In(Field((field.name,), field.type), constants))
