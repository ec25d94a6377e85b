"""A column's values as the text that Hudi's key generators make of them, for keys and partition paths.

| type | text |
|---|---|
| whole numbers, booleans, dates | digits, `true` or `false`, `yyyy-MM-dd` |
| float, double | as Java prints them (`java_text`) |
| decimal | Java's BigDecimal, with the column's scale: `1.50`, `0E-10`; Arrow prints the same |
| timestamp | the number that is stored (micros mostly), or `yyyy-MM-dd HH:mm:ss.SSS` in UTC where the table is set so |
| binary | hex, lower case |

All of it works on whole arrays; floating-point numbers are formatted once per distinct value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.model.java_text import java_floats
from lakebed.model.schema_change import did_you_mean

_YEAR_0, _YEAR_9999 = -719_528, 2_932_896
_GREGORIAN = -12_219_292_800_000  # 1582-10-15 in millis: before it java.sql.Timestamp counts in the Julian calendar
_PER_MILLI = {"us": 1_000, "ns": 1_000_000}
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)


def column_of(batch: pa.RecordBatch | pa.Table, path: str) -> Any:
    """The column of a dotted name; null below a null struct."""
    index = batch.schema.get_field_index(path)
    if index >= 0:
        return batch.column(index)
    first, *rest = path.split(".")
    index = batch.schema.get_field_index(first)
    if index < 0:
        raise InvalidRequest(f"the data lacks the column {path!r}", hint=did_you_mean(path, batch.schema.names))
    column = batch.column(index)
    for name in rest:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            raise InvalidRequest(f"the data lacks the column {path!r}: there is no {name!r} in {column.type}")
        column = pc.struct_field(column, name)
    return column


def value_text(column: Any, name: str, *, logical_timestamps: bool = False) -> Any:
    """The texts of a column, null where it is null; `InvalidRequest` for types that have no text."""
    kind, types = column.type, pa.types
    if types.is_string(kind):
        return column
    if types.is_dictionary(kind):
        texts = value_text(column.dictionary, name, logical_timestamps=logical_timestamps)
        return texts.take(column.indices)
    if types.is_timestamp(kind):
        if logical_timestamps and kind.tz is not None:
            return _timestamp_text(column, name)
        return column.cast(pa.int64()).cast(pa.string())
    if types.is_date(kind):
        return _date_text(column.cast(pa.date32()), name)
    if types.is_time(kind):
        return column.cast(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.string())
    if types.is_floating(kind):
        return java_floats(column)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _hex_text(column.cast(pa.large_binary()))
    if types.is_nested(kind) or types.is_duration(kind) or types.is_interval(kind):
        raise InvalidRequest(f"the column {name!r} is {kind}, of which no key or partition can be made")
    return column.cast(pa.string())


def _date_text(column: Any, name: str) -> Any:
    days = pc.min_max(column.cast(pa.int32())).as_py()
    if days["min"] is not None and (days["min"] < _YEAR_0 or days["max"] > _YEAR_9999):
        raise InvalidRequest(f"the column {name!r} holds dates outside the years 0 to 9999")
    return column.cast(pa.string())


def _timestamp_text(column: Any, name: str) -> Any:
    """java.sql.Timestamp of the millis: smaller units are cut towards 1970, and zeros at the end are dropped."""
    stored = column.cast(pa.int64())
    scale = _PER_MILLI.get(column.type.unit)
    if scale is not None:
        millis = pc.divide(stored, scale)
    else:
        millis = pc.multiply(stored, 1_000) if column.type.unit == "s" else stored
    bounds = pc.min_max(millis).as_py()
    if bounds["min"] is not None and (bounds["min"] < _GREGORIAN or bounds["max"] >= (_YEAR_9999 + 1) * 86_400_000):
        raise InvalidRequest(f"the column {name!r} holds timestamps outside the years 1582 to 9999")
    text = millis.cast(pa.timestamp("ms")).cast(pa.string())  # always three digits after the second
    return pc.replace_substring_regex(text, r"(\.\d+?)0+$", r"\1")


def _hex_text(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_hex_text(chunk) for chunk in column.chunks], pa.string())
    count = len(column)
    validity, offset_buffer, data = column.buffers()
    if count == 0 or offset_buffer is None:
        return pa.nulls(count, pa.string())
    offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + count + 1]
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.zeros(0, np.uint8)
    moved = ((offsets - offsets[0]) * 2).astype(np.int64)
    buffers = [None, pa.py_buffer(moved), pa.py_buffer(_HEX[raw].tobytes())]
    text = pa.Array.from_buffers(pa.large_string(), count, buffers)
    if validity is not None and column.null_count:
        text = pc.if_else(column.is_valid(), text, pa.scalar(None, pa.large_string()))
    return text.cast(pa.string())
