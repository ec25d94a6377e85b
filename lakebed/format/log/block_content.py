"""The contents of version 1 log blocks as Arrow tables; Avro data itself is in `avro/columns`.

    AVRO_DATA, CDC_DATA   int32 3 | int32 count | count × (int32 length | record)
    DELETE                int32 3 | int32 length | HoodieDeleteRecordList as bare Avro binary
    HFILE_DATA            an HFile; value = Avro binary of the record with its key blanked, key = the record key
    PARQUET_DATA          a Parquet file, read in place by `datafile.log_file`

A delete is a key and perhaps an ordering value, wrapped in a record that names its type. The wrapper matters:
IntWrapper{0} is Hudi's mark for "no ordering value" while LongWrapper{0} is the value 0. Both kinds of delete come out
in the shape of a native `deletes` file: the key, then the ordering columns, all null where there is no value.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.avro.columns import decode_values
from lakebed.format.avro.container import decode_binary
from lakebed.format.hfile.reader import HFileReader
from lakebed.model.schema import RECORD_KEY, load_avro

DELETE_CONTENT_VERSION = 3
_KRYO_VERSIONS = (1, 2)
_DELETE_LIST = "HoodieDeleteRecordList"

_WRAPPERS: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "BooleanWrapper": pa.bool_(),
        "IntWrapper": pa.int32(),
        "LongWrapper": pa.int64(),
        "FloatWrapper": pa.float32(),
        "DoubleWrapper": pa.float64(),
        "BytesWrapper": pa.binary(),
        "StringWrapper": pa.string(),
        "DateWrapper": pa.date32(),
        "LocalDateWrapper": pa.date32(),
        "DecimalWrapper": pa.decimal128(30, 15),
        "TimeMicrosWrapper": pa.time64("us"),
        "TimestampMicrosWrapper": pa.timestamp("us", "UTC"),
    }
)
_ARRAY_WRAPPER = "ArrayWrapper"
_Value = tuple[str, Any] | None  # the wrapper's short name and what it wraps


# --- delete blocks ----------------------------------------------------------------------------------------------------


def decode_delete_block(content: bytes, ordering: Sequence[pa.Field], file: str, offset: int) -> pa.Table:
    """The deletes of a block: the key, then one column per ordering field, of that field's type."""
    if len(content) < 8:
        raise CorruptTable("a delete block is too short for its own header", file=file, offset=offset)
    version, length = struct.unpack_from(">ii", content)
    if version in _KRYO_VERSIONS:
        what = f"delete blocks of content version {version} hold serialised Java objects"
        raise UnsupportedFormat(what, file=file, offset=offset, hint="Compact the table with the Hudi that wrote it.")
    if version != DELETE_CONTENT_VERSION:
        raise UnsupportedFormat(f"content version {version} of a delete block", file=file, offset=offset)
    if length != len(content) - 8:
        what = f"a delete block of {len(content)} bytes claims {length} bytes of records"
        raise CorruptTable(what, file=file, offset=offset + 4)
    records = decode_binary(_DELETE_LIST, memoryview(content)[8:], file, offset + 8)["deleteRecordList"]
    keys = [record["recordKey"] for record in records]
    if None in keys:
        raise CorruptTable("a delete has no key", file=file, offset=offset)
    rows = [_ordering_values(record["orderingVal"], len(ordering), file, offset) for record in records]
    columns = [
        _ordering_column([row[position] for row in rows], field.type, file, offset)
        for position, field in enumerate(ordering)
    ]
    return pa.Table.from_arrays([pa.array(keys, pa.string()), *columns], schema=delete_schema(ordering))


def delete_schema(ordering: Sequence[pa.Field]) -> pa.Schema:
    """The shape in which all deletes are read: the key, and ordering columns that may be null."""
    return pa.schema([pa.field(RECORD_KEY, pa.string(), False), *(field.with_nullable(True) for field in ordering)])


def _ordering_values(wrapped: Any, count: int, file: str, offset: int) -> tuple[_Value, ...]:
    """One value per ordering field, all None where the delete has none."""
    if wrapped is None or count == 0:
        return (None,) * count
    name, value = wrapped[0].rpartition(".")[2], wrapped[1]
    if name == "IntWrapper" and value["value"] == 0:
        return (None,) * count
    if name != _ARRAY_WRAPPER:
        values: tuple[_Value, ...] = ((name, value["value"]),)
    else:
        items = value["wrappedValues"] or ()
        values = tuple(item and (item[0].rpartition(".")[2], item[1]["value"]) for item in items)
    if len(values) != count:
        raise CorruptTable(f"a delete has {len(values)} ordering values, the table {count}", file=file, offset=offset)
    return values


def _ordering_column(values: Sequence[_Value], data_type: pa.DataType, file: str, offset: int) -> pa.Array:
    """Values of one ordering field; a block may mix wrappers after the column's type was widened."""
    column = pa.nulls(len(values), data_type)
    for name in sorted({value[0] for value in values if value is not None}):
        natural = [value[1] if value is not None and value[0] == name else None for value in values]
        try:
            column = pc.coalesce(column, _as_type(pa.array(natural, _WRAPPERS[name]), data_type))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            what = f"the ordering value of a delete ({name}) does not fit {data_type}: {error}"
            raise CorruptTable(what, file=file, offset=offset) from error
    return column


def _as_type(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """A cast that goes a step further where Arrow has no direct way."""
    if pa.types.is_integer(array.type):
        if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
            array = array.cast(pa.int32())
        elif pa.types.is_decimal(data_type):
            array = array.cast(pa.int64()).cast(pa.decimal128(38, data_type.scale))
    return array.cast(data_type)


def normalize_deletes(batch: pa.RecordBatch, ordering: Sequence[pa.Field], file: str) -> pa.RecordBatch:
    """Rows of a native `deletes` file in the common shape, whether written after Hudi's schema or after RFC-103's."""
    names = batch.schema.names
    key = next((name for name in (RECORD_KEY, "record_key") if name in names), None)
    if key is None:
        raise CorruptTable("a file of deletes has no column with record keys", file=file)
    columns = [_delete_column(batch, key, pa.string(), file)]
    for field in ordering:
        source = field.name
        if source not in names and len(ordering) == 1 and "ordering_val" in names:
            source = "ordering_val"
        present = source in names
        columns.append(_delete_column(batch, source, field.type, file) if present else pa.nulls(len(batch), field.type))
    if columns[0].null_count:
        raise CorruptTable("a delete has no key", file=file)
    return pa.RecordBatch.from_arrays(columns, schema=delete_schema(ordering))


def _delete_column(batch: pa.RecordBatch, name: str, data_type: pa.DataType, file: str) -> pa.Array:
    array = batch.column(name)
    if array.type == data_type:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), data_type)
    try:
        return _as_type(array, data_type)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFormat(f"deletes carry {name} as {array.type}, not {data_type}", file=file) from error
    except pa.ArrowException as error:
        raise CorruptTable(f"the column {name} of a file of deletes does not fit {data_type}", file=file) from error


# --- data and CDC blocks ----------------------------------------------------------------------------------------------


def decode_hfile_block(
    reader: HFileReader, schema_json: str, file: str, offset: int, *, columns: Collection[str] | None = None
) -> pa.RecordBatch:
    """The records of an HFile block, their keys put back in."""
    entries = list(reader.entries())
    batch = decode_values([value for _, value in entries], schema_json, file, offset, columns=columns)
    key_field = RECORD_KEY if _has_field(schema_json, RECORD_KEY, file) else "key"
    position = batch.schema.get_field_index(key_field)
    if position < 0:
        return batch
    try:
        keys = pa.array([key for key, _ in entries], pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptTable("a key of an HFile is not UTF-8", file=file, offset=offset) from error
    return batch.set_column(position, batch.schema.field(position), keys)


def _has_field(schema_json: str, name: str, file: str) -> bool:
    return any(field["name"] == name for field in load_avro(schema_json, file=file)["fields"])


CDC_COLUMNS = ("op", "ts_ms", "record_key", "before", "after")


def cdc_mode(columns: Collection[str]) -> str:
    """The supplemental logging mode that wrote change rows with these columns."""
    if "after" in columns:
        return "DATA_BEFORE_AFTER"
    return "DATA_BEFORE" if "before" in columns else "OP_KEY_ONLY"
