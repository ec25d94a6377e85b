"""Columns set by expressions, in updates and merges alike."""

from __future__ import annotations

import pyarrow as pa

from lakebed.config.options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Expression
from lakebed.model.nested_cast import cast_column
from lakebed.model.schema_change import did_you_mean


def check_assignable(name: str, config: TableConfig, own: pa.Schema) -> None:
    """Whether an update may set the column at all."""
    if name not in own.names:
        raise InvalidRequest(f"the table has no column {name!r}", hint=did_you_mean(name, own.names))
    if name in config.key_fields or name in config.partition_fields:
        raise InvalidRequest(f"{name!r} is part of the key or partition", hint="Delete the row and insert it anew.")


def assigned(expression: Expression, batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
    """The value of an expression for every row, as the column takes it."""
    value = expression.evaluate(batch)
    try:
        return cast_column(value, column.type)
    except pa.ArrowException as error:
        raise InvalidRequest(f"{expression.to_sql()!r} does not fit the column {column.name!r}: {error}") from None
