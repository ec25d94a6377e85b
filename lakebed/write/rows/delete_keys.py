"""Keys to delete, from values, dicts of key columns, arrays or tables to a table of key columns.

A key is found by its text, so its values are cast to the types of the table's columns first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidRequest, UnsupportedFormat
from lakebed.model.schema_change import did_you_mean
from lakebed.model.schema_evolution import resolve
from lakebed.write.rows.prepare import as_reader


def key_table(keys: Any, key_fields: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The keys of the user as a table of key columns; a field of a struct has its dotted name."""
    if not key_fields:
        raise InvalidRequest("the table has no record key", hint="Use delete(where=...).")
    if isinstance(keys, str | bytes | Mapping):
        raise InvalidRequest("keys is a list", hint=f"Use [{keys!r}].")
    try:
        if isinstance(keys, pa.Table | pa.RecordBatch) or hasattr(keys, "columns"):
            return _typed(as_reader(keys).read_all(), key_fields, schema)
        values = _values(keys)
        if isinstance(values, list) and values and all(isinstance(row, Mapping) for row in values):
            return _from_dicts(values, key_fields, schema)
        if len(key_fields) != 1:
            raise InvalidRequest(
                "the record key has several columns",
                hint=f"Give dicts with {', '.join(key_fields)} instead of plain values.",
            )
        return _typed(pa.table({key_fields[0]: _array(values, _type_of(key_fields[0], schema))}), key_fields, schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the keys do not fit the key columns: {error}") from None


def _values(keys: Any) -> Any:
    """Single values: a list, or an Arrow array, as Arrow converts values of numpy and pandas exactly."""
    if not isinstance(keys, pa.Array | pa.ChunkedArray):
        keys = pa.array(keys) if hasattr(keys, "__array__") else list(keys)
    return keys.to_pylist() if not isinstance(keys, list) and pa.types.is_struct(keys.type) else keys


def _from_dicts(rows: list[Mapping[str, Any]], key_fields: Sequence[str], schema: pa.Schema) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    if any(len(row) < len(names) for row in rows):
        raise InvalidRequest("some keys name more columns than others", hint="Delete them in two calls.")
    columns = {name: _array([row[name] for row in rows], _type_of(name, schema)) for name in names}
    return _typed(pa.table(columns), key_fields, schema)


def _array(values: Any, kind: pa.DataType) -> Any:
    """Values in the type that they have, where casting them to `kind` could silently drop digits."""
    if not isinstance(values, list):
        return values
    fine = any(getattr(value, "nanosecond", 0) for value in values)  # pandas timestamps, cut off unless the type is ns
    found = pa.array(values, pa.timestamp("ns")) if fine else pa.array(values)
    types = pa.types
    cuts = (types.is_floating, types.is_temporal, types.is_struct)
    return found if any(is_one(found.type) for is_one in cuts) else pa.array(values, kind)


def _typed(data: pa.Table, key_fields: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The columns that the table has, in its types; a value that the cast would change is refused."""
    own = pa.schema([pa.field(name, _type_of(name, schema)) for name in data.schema.names if _knows(schema, name)])
    for item in own:
        source = data.schema.field(item.name).type
        if pa.types.is_string(item.type) and pa.types.is_primitive(source):
            raise InvalidRequest(f"the key column {item.name!r} is text, not {source}")
    try:
        project = resolve(data.schema, own, exact=(*own.names, *key_fields))
        return pa.Table.from_batches([project(batch) for batch in data.to_batches()], own)
    except UnsupportedFormat as error:
        raise InvalidRequest(f"the keys do not fit the key columns: {error.what}") from None


def _knows(schema: pa.Schema, name: str) -> bool:
    return name.partition(".")[0] in schema.names


def _type_of(name: str, schema: pa.Schema) -> pa.DataType:
    """The type of a column by its dotted name."""
    first, *rest = [name] if name in schema.names else name.split(".")
    field = schema.field(first) if first in schema.names else None
    for part in rest:
        known = field is not None and pa.types.is_struct(field.type) and field.type.get_field_index(part) >= 0
        field = field.type.field(part) if field is not None and known else None
    if field is None:
        raise InvalidRequest(f"the table has no column {name!r}", hint=did_you_mean(name, schema.names))
    return field.type
