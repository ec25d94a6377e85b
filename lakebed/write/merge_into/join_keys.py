"""How rows of a MERGE match: SQL equality, computed on keys and partition paths that are text.

A value of the source is cast to the type of the table's column. One that the cast changes, like 1.5 to an integer or a
time of day to a date, equals no value of the table, and its row matches nothing. As texts -0.0 and 0.0 differ, though
they are equal: on both sides the zero of a float column loses its sign before texts are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.expression.casts import can_cast, cast, keeps_values
from lakebed.expression.comparison import compare
from lakebed.expression.failures import RowFailure
from lakebed.expression.types import common_type, sql_name, sql_type_of
from lakebed.merge.arrow_numpy import Bools, truths


def can_match(table: pa.DataType, source: pa.DataType) -> bool:
    """Whether equality with a value of the source can be looked up: at most one value of the table is equal to it."""
    one, other = sql_type_of(table), sql_type_of(source)
    if one is None or other is None:
        return bool(table == source)
    common = common_type([one, other])
    return bool(common is not None and keeps_values(one, common) and can_cast(other, one))


def as_table_values(column: Any, kind: pa.DataType) -> tuple[pa.Array, Bools]:
    """The column in the table's type, and where that is equal to what it was; null is equal to nothing.

    Nor is a value outside the range of the common type, such as a date beyond all timestamps.
    """
    one, other = sql_type_of(kind), sql_type_of(column.type)
    if one is None or other is None:
        return column, truths(pc.is_valid(column))
    try:
        own = cast(column, one, lenient=True)
        own = own if kind == one else own.cast(kind, safe=False)
        if column.type == kind:
            return own, truths(pc.is_valid(own))
        common = common_type([one, other])
        assert common is not None
        sides = cast(own, common, lenient=True), cast(column, common, lenient=True)
    except (RowFailure, pa.ArrowException) as error:
        raise InvalidRequest(
            f"a key of the source cannot be compared with {sql_name(one)}: {error}",
            hint="Cast the column of the source to the type of the table's column first.",
        ) from error
    return own, truths(pc.fill_null(compare("=", *sides), False))


def floats_of(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the columns that are floats, which have 0.0 and -0.0."""
    return tuple(name for name in names if name in schema.names and pa.types.is_floating(schema.field(name).type))


def with_one_zero(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with 0.0 for -0.0 in some columns."""
    for name in names:
        column = batch.column(name)
        position = batch.schema.get_field_index(name)
        batch = batch.set_column(position, batch.schema.field(position), pc.add(column, pa.scalar(0.0, column.type)))
    return batch


def has_zero(batch: pa.RecordBatch, names: Sequence[str]) -> bool:
    """Whether a zero is among the values."""
    return any(bool(np.any(np.asarray(pc.fill_null(pc.equal(batch.column(name), 0.0), False)))) for name in names)
