"""Rows in the plain form in which the golden expectations keep them, so that two readers can be compared."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value as the recipe wrote it to JSON; the type tells an empty map from an empty list."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {str(key): plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if isinstance(value, bytes | bytearray):
        return {"b64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, decimal.Decimal):
        return format(value.normalize(), "f")
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def rows_of(table: pa.Table, columns: Iterable[str]) -> list[list[Any]]:
    """Sorted plain rows of some columns of an Arrow table."""
    lists = [
        [plain(item, table.schema.field(name).type) for item in table.column(name).to_pylist()] for name in columns
    ]
    return sorted_rows([list(row) for row in zip(*lists, strict=True)])


def expected_rows(wanted: dict[str, Any]) -> list[list[Any]]:
    """Sorted rows of an expectation; the text of a decimal depends on who printed it, so it is put in plain digits."""
    decimals = [index for index, kind in enumerate(wanted["types"]) if kind.startswith("decimal")]
    rows = [list(row) for row in wanted["rows"]]
    for row in rows:
        for index in decimals:
            row[index] = None if row[index] is None else format(decimal.Decimal(row[index]).normalize(), "f")
    return sorted_rows(rows)


def sorted_rows(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
