"""Filters: one grammar (SQL text), and everything the engine asks of a filter.

A `Predicate` is a bound expression that is true, false or null. Besides being run it answers questions that let work
be skipped: which keys can match (`key_range`), whether a file with these statistics can hold a match (`may_match`), and
what part of it speaks about some columns only (`restricted_to`). All three err on the side of reading too much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.expression import binder, skipping
from lakebed.expression.arrow import constant, emit
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
    type: pa.DataType

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns it reads, each once, in order of mention."""
        return tuple(dict.fromkeys(field.path[0] for field in fields(self.root)))

    def to_sql(self) -> str:
        return to_sql(self.root)

    def to_arrow(self) -> pc.Expression:
        return emit(self.root, _as_expression)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Its value for each row, nulls included."""
        return _run(self.root, batch, self.type)


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

    def to_arrow(self) -> pc.Expression:
        return emit(self.root, _as_expression)

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for each row that matches; where SQL says null the row does not."""
        return pc.fill_null(_run(self.root, batch, pa.bool_()), False)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        mask = self.evaluate(batch)
        return batch if mask.true_count == len(mask) else batch.filter(mask)

    def key_range(self, column: str) -> KeyRange | None:
        """A range of a text column in which every match lies, None when it may be anywhere."""
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
    root, data_type = binder.parse(text, schema)
    if pa.types.is_null(data_type):
        root, data_type = Literal(None, pa.bool_()), pa.bool_()
    if not pa.types.is_boolean(data_type):
        raise InvalidRequest(f"{text!r} is {data_type}, not true or false", hint="A filter is a condition.")
    return Predicate(root)


def parse_expression(text: str, schema: pa.Schema) -> Expression:
    """A value from SQL text, checked against the schema."""
    return Expression(*binder.parse(text, schema))


def is_in(field: pa.Field, values: Iterable[Any]) -> Predicate:
    """`column IN (values)` for Python values, as look-ups and partition filters need it."""
    return Predicate(In(Field((field.name,), field.type), tuple(of_python(value, field.type) for value in values)))


# --- running ----------------------------------------------------------------------------------------------------------


def _as_expression(leaf: Field | Literal) -> Any:
    if isinstance(leaf, Literal):
        return constant(leaf.value, leaf.type, expression=True)
    return pc.field(*leaf.path)


def _run(root: Node, batch: pa.RecordBatch, data_type: pa.DataType) -> Any:
    def leaf(item: Field | Literal) -> Any:
        if isinstance(item, Literal):
            return pa.scalar(item.value, item.type)
        value = batch.column(item.path[0])
        return value if len(item.path) == 1 else pc.struct_field(value, list(item.path[1:]))

    try:
        out = emit(root, leaf)
    except pa.ArrowException as error:
        raise InvalidRequest(f"{to_sql(root)!r} failed on a row: {error}") from error
    except KeyError as error:
        raise InvalidRequest(f"{to_sql(root)!r} needs a column that is not there: {error}") from error
    return pa.repeat(out, batch.num_rows).cast(data_type) if isinstance(out, pa.Scalar) else out
