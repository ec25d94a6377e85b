"""Columns set by expressions, in updates and merges alike."""

from __future__ import annotations

import pyarrow as pa

from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.expression.casts import can_cast, cast
from lakebed.expression.exact import exact_number
from lakebed.expression.failures import RowFailure
from lakebed.expression.predicate import Expression, parse_expression
from lakebed.expression.types import TIMESTAMP, is_decimal, is_floating, is_number, sql_name, sql_type_of
from lakebed.model.nested_cast import cast_column
from lakebed.model.schema_change import did_you_mean


def check_assignable(name: str, config: TableConfig, own: pa.Schema) -> None:
    """Whether an update may set the column at all."""
    if name not in own.names:
        raise InvalidRequest(f"the table has no column {name!r}", hint=did_you_mean(name, own.names))
    if name in config.key_fields or name in config.partition_fields:
        raise InvalidRequest(f"{name!r} is part of the key or partition", hint="Delete the row and insert it anew.")


def bind_assignment(text: str, schema: pa.Schema, column: pa.Field) -> Expression:
    """An expression whose value the column can take; between numbers and timestamps a cast must be written."""
    expression = parse_expression(text, schema)
    source, target = sql_type_of(expression.type), sql_type_of(column.type)
    if source is None or target is None:
        return expression
    silent = TIMESTAMP in (source, target) and (is_number(source) or is_number(target))
    if silent or not can_cast(source, target):
        raise InvalidRequest(
            f"{text!r} is {sql_name(source)} and the column {column.name!r} is {sql_name(target)}",
            hint="Write an explicit cast.",
        )
    return expression


def assigned(expression: Expression, batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
    """The value of an expression for every row; digits that do not fit the column are an error."""
    value = expression.evaluate(batch)
    source, target = sql_type_of(value.type), sql_type_of(column.type)
    try:
        if source is not None and target is not None:
            value = _converted(value, source, target)
        return cast_column(value, column.type)
    except (pa.ArrowException, RowFailure) as error:
        raise InvalidRequest(
            f"{expression.to_sql()!r} does not fit the column {column.name!r}: {error}",
            hint=error.hint if isinstance(error, RowFailure) else "Write a cast, or round(...), where digits may go.",
        ) from None


def _converted(value: pa.Array, source: pa.DataType, target: pa.DataType) -> pa.Array:
    """The SQL cast; between numbers it must lose nothing, which is left to Arrow's cast where that checks it."""
    if not (is_number(source) and is_number(target)):
        return cast(value, target)
    if is_floating(target) or (is_decimal(target) and not is_decimal(source)):
        return exact_number(value, target)
    return value
