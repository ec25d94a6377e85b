"""Partition columns from partition paths: path text to typed values, used as statistics.

    hive style       country=de/day=2024-01-01        otherwise   de/2024-01-01
    url encoded      a b%2Fc  ->  a b/c               null or ""  __HIVE_DEFAULT_PARTITION__

A path that cannot be mapped with certainty gives no statistics: another number of segments than columns (a value with a
slash in it, written without encoding), a segment that is not `column=...` in a hive-style table, a value that is not of
the column's type, and columns whose folders the timestamp or a custom key generator formatted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lakebed.config.read_options import TableConfig
from lakebed.expression.predicate import ColumnStats
from lakebed.model.partition_path import DEFAULT_PARTITION

_FORMATTING_GENERATORS = frozenset({"TIMESTAMP", "TIMESTAMP_AVRO"})
_EMPTY = ColumnStats("", "")
_OWN_NAME = ColumnStats(DEFAULT_PARTITION, DEFAULT_PARTITION)


def mapped_columns(config: TableConfig) -> tuple[str | None, ...]:
    """The partition columns whose values are in the path as they are; None at the position of the others."""
    if config.keygen_type in _FORMATTING_GENERATORS:
        return (None,) * len(config.partition_fields)
    types = config.partition_types or (None,) * len(config.partition_fields)
    named = config.keygen_type not in ("CUSTOM", "CUSTOM_AVRO")
    return tuple(
        name if kind == "SIMPLE" or (kind is None and named) else None
        for name, kind in zip(config.partition_fields, types, strict=True)
    )


def partition_stats(path: str, config: TableConfig, schema: pa.Schema) -> dict[str, ColumnStats]:
    """Statistics of the partition columns that hold for every row of the partition; without the unknown ones."""
    segments = path.split("/")
    columns = mapped_columns(config)
    if not path or len(segments) != len(columns):
        return {}
    found: dict[str, ColumnStats] = {}
    for name, segment in zip(columns, segments, strict=True):
        if name is None:
            continue
        text = _value_text(name, segment, config)
        data_type = _type_of(schema, name)
        stats = _stats(text, data_type) if text is not None and data_type is not None else None
        if stats is not None:
            found[name] = stats
    return found


def possible_stats(path: str, config: TableConfig, schema: pa.Schema) -> Iterator[dict[str, ColumnStats]]:
    """The statistics of a partition, in every form that its rows may have.

    The folder for null also holds the empty string, and the string that equals its name, where a writer allowed it.
    """
    stats = partition_stats(path, config, schema)
    doubtful = [name for name, found in stats.items() if found == _EMPTY]
    for forms in product((_EMPTY, _OWN_NAME), repeat=len(doubtful)):
        yield {**stats, **dict(zip(doubtful, forms, strict=True))}


def partition_values(path: str, config: TableConfig, schema: pa.Schema) -> dict[str, Any] | None:
    """The values of the partition columns of every row of a partition; None where the path does not have them all.

    Rows in the folder for null have null; the empty string, which is stored there too, only if null is not allowed.
    """
    segments = path.split("/")
    columns = mapped_columns(config)
    if not path or len(segments) != len(columns):
        return None
    found: dict[str, Any] = {}
    for name, segment in zip(columns, segments, strict=True):
        text = _value_text(name, segment, config) if name is not None else None
        if name is None or name not in schema.names or text is None:
            return None
        field = schema.field(name)
        is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        if text == DEFAULT_PARTITION and field.nullable:
            found[name] = None
            continue
        value = ("" if text == DEFAULT_PARTITION else text) if is_text else _typed(text, field.type)
        if value is None:
            return None
        found[name] = value
    return found


def _value_text(name: str, segment: str, config: TableConfig) -> str | None:
    if config.hive_style:
        prefix = f"{name}="
        if not segment.startswith(prefix):
            return None
        segment = segment[len(prefix) :]
    return unquote(segment) if config.url_encode else segment


def _stats(text: str, data_type: pa.DataType) -> ColumnStats | None:
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    if text == DEFAULT_PARTITION:  # of a string column also the empty string, and of a binary one the empty bytes
        if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
            return None
        return _EMPTY if is_text else ColumnStats(null_count=1, rows=1)
    value = text if is_text else _typed(text, data_type)
    return None if value is None else ColumnStats(value, value, null_count=0, rows=1)


def _typed(text: str, data_type: pa.DataType) -> Any:
    """The value of a text that Hudi's key generators write for the type; None when it cannot be parsed."""
    for is_type, parse in _PARSERS:
        if is_type(data_type):
            try:
                return parse(text)
            except (ValueError, InvalidOperation, KeyError):
                return None
    return None


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
    (pa.types.is_integer, int),
    (pa.types.is_boolean, lambda text: {"true": True, "false": False}[text]),
    (pa.types.is_date, dt.date.fromisoformat),
    (pa.types.is_decimal, Decimal),
)


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    """The type of a column by its dotted name."""
    first, *rest = name.split(".")
    index = schema.get_field_index(first)
    data_type = schema.field(index).type if index >= 0 else None
    for part in rest:
        if data_type is None or not pa.types.is_struct(data_type) or data_type.get_field_index(part) < 0:
            return None
        data_type = data_type.field(part).type
    return data_type
