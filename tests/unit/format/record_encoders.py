"""Encoders of log blocks that go record by record through fastavro: what the encoders by columns are compared with."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidRequest
from lakebed.format.avro.by_record import bare_schema
from lakebed.format.avro.columns import CONTENT_VERSION
from lakebed.format.avro.container import NAMESPACE, encode_binary
from lakebed.format.log.block_content import _ARRAY_WRAPPER, _DELETE_LIST, _WRAPPERS, DELETE_CONTENT_VERSION, _as_type
from lakebed.model.schema import load_avro


def encode_frames(records: Sequence[bytes]) -> bytes:
    """The content of an Avro block from the Avro binary of its records."""
    parts: list[bytes] = [struct.pack(">ii", CONTENT_VERSION, len(records))]
    for record in records:
        parts += (struct.pack(">i", len(record)), record)
    return b"".join(parts)


def encode_avro_block(table: pa.Table, schema_json: str) -> bytes:
    """The content of an Avro block; the columns must be those of the schema."""
    parsed = bare_schema(load_avro(schema_json))
    return encode_frames([encode_binary(parsed, row) for row in plain_rows(table)])


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as fastavro takes them with a bare schema: dates and times as numbers, maps as dictionaries."""
    plain = pa.schema([field.with_type(_storage_type(field.type)) for field in table.schema])
    for row in table.cast(plain).to_pylist():
        yield {field.name: _python_value(row[field.name], field.type) for field in plain}


def _storage_type(data_type: pa.DataType) -> pa.DataType:
    """The type with dates and times replaced by the numbers that stand for them."""
    if pa.types.is_temporal(data_type):
        return pa.int32() if data_type.bit_width == 32 else pa.int64()
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_storage_type(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_type, data_type.item_field.with_type(_storage_type(data_type.item_type)))
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_storage_type(data_type.value_type)))
    return data_type


def _python_value(value: Any, data_type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(data_type):
        return {key: _python_value(item, data_type.item_type) for key, item in value}
    if pa.types.is_list(data_type):
        return [_python_value(item, data_type.value_type) for item in value]
    if pa.types.is_struct(data_type):
        return {field.name: _python_value(value[field.name], field.type) for field in data_type}
    return value


def encode_delete_block(deletes: pa.Table, partition_path: str) -> bytes:
    """The content of a delete block from rows in the common shape: key, ordering columns."""
    ordering = [_wrapped(column, name) for name, column in zip(deletes.column_names, deletes.columns, strict=True)][1:]
    records = []
    for place, key in enumerate(deletes.column(0).to_pylist()):
        values = [column[place] for column in ordering]
        if all(value is None for value in values):
            value: Any = _wrapper("IntWrapper", 0)
        elif len(values) == 1:
            value = values[0]
        else:
            value = (f"{NAMESPACE}.{_ARRAY_WRAPPER}", {"wrappedValues": values})
        records.append({"recordKey": key, "partitionPath": partition_path, "orderingVal": value})
    payload = encode_binary(_DELETE_LIST, {"deleteRecordList": records})
    return struct.pack(">ii", DELETE_CONTENT_VERSION, len(payload)) + payload


def _wrapper(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    return (f"{NAMESPACE}.{name}", {"value": value})


def _wrapped(column: pa.ChunkedArray, name: str) -> list[tuple[str, dict[str, Any]] | None]:
    """The values of an ordering column in the wrapper of their type."""
    wrapper = _wrapper_of(column.type)
    if wrapper is None:
        raise InvalidRequest(f"the ordering column {name} has the type {column.type}, which deletes cannot carry")
    try:
        values = _as_type(column.combine_chunks(), _WRAPPERS[wrapper])
    except pa.ArrowException as error:
        raise InvalidRequest(f"an ordering value of {name} does not fit a delete block: {error}") from error
    if wrapper == "DateWrapper":
        values = values.cast(pa.int32())
    return [None if value is None else _wrapper(wrapper, value) for value in values.to_pylist()]


def _wrapper_of(data_type: pa.DataType) -> str | None:
    """The wrapper Hudi uses. A timestamp goes as the number it is stored as, which is what Hudi orders rows by."""
    if pa.types.is_integer(data_type):
        return "IntWrapper" if data_type.bit_width <= 32 else "LongWrapper"
    if pa.types.is_timestamp(data_type):
        return "LongWrapper"
    if pa.types.is_decimal(data_type):
        return "DecimalWrapper"
    if pa.types.is_time(data_type):
        return "TimeMicrosWrapper"
    return next((short for short, natural in _WRAPPERS.items() if natural == data_type), None)
