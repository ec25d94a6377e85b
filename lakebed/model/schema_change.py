"""Which schema changes a write may make: a pure function from the table's and the data's schema to the new one.

Allowed: new nullable columns, which go to the end, and numbers that widen along int, long, float, double; both at any
depth. Narrower data goes into a wider column as it is. Everything else would make old files unreadable or lose what is
stored, and is refused with the reason. Columns that keys and partition paths are made of keep their type where another
would change their text: `1` as a double is `1.0`, another key.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

import pyarrow as pa

from lakebed.errors import InvalidRequest
from lakebed.model.avro_types import is_list_like
from lakebed.model.schema import stored_schema, without_meta_fields

_LADDER = {pa.int32(): 0, pa.int64(): 1, pa.float32(): 2, pa.float64(): 3}
_UNITS = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def evolve(
    table: pa.Schema, incoming: pa.Schema, *, allow_missing: bool = False, keys: Collection[str] = ()
) -> pa.Schema:
    """The table schema after a write of `incoming`; `InvalidRequest` when the table cannot take that data.

    `allow_missing` is for partial updates: data that lacks columns of the table then leaves them as they are. `keys`
    are the (dotted) columns whose text must stay: data of a number type that would change it has to fit the table's.
    """
    own = without_meta_fields(table)
    data = stored_schema(without_meta_fields(incoming))
    if not allow_missing:
        missing = [name for name in own.names if name not in data.names]
        if missing:
            raise InvalidRequest(
                f"the data lacks the column {missing[0]!r} of the table"
                + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
                hint="Add it (null is fine where the column allows it), or write a partial update.",
            )
    return pa.schema(_fields(list(own), list(data), "", frozenset(keys)), metadata=table.metadata)


def _fields(table: list[pa.Field], data: list[pa.Field], path: str, keys: frozenset[str]) -> list[pa.Field]:
    known = {field.name: field for field in table}
    folded = {field.name.lower(): field.name for field in table}
    incoming = {field.name: field for field in data}
    out = [
        field
        if field.name not in incoming
        else field.with_type(_type(field.type, incoming[field.name].type, path + field.name, keys))
        for field in table
    ]
    for field in data:
        if field.name in known:
            continue
        twin = folded.get(field.name.lower())
        if twin is not None:
            raise InvalidRequest(
                f"the column {path + field.name!r} differs from {path + twin!r} only by case",
                hint=f"Name it {twin!r}.",
            )
        if pa.types.is_null(field.type):
            continue
        out.append(field.with_nullable(True))
    return out


def _type(table: pa.DataType, data: pa.DataType, path: str, keys: frozenset[str]) -> pa.DataType:
    types = pa.types
    if data.equals(table) or types.is_null(data):
        return table
    if types.is_null(table):
        return data
    if table in _LADDER and data in _LADDER:
        stays = path in keys and pa.types.is_integer(table) and not pa.types.is_integer(data)
        return table if stays or _LADDER[data] <= _LADDER[table] else data
    if types.is_struct(table) and types.is_struct(data):
        return pa.struct(_fields(list(table), list(data), f"{path}.", keys))
    if is_list_like(table) and is_list_like(data):
        element = _type(table.value_type, data.value_type, f"{path}.element", keys)
        return pa.list_(table.value_field.with_type(element))
    if types.is_map(table) and types.is_map(data):
        value = _type(table.item_type, data.item_type, f"{path}.value", keys)
        return pa.map_(pa.string(), table.item_field.with_type(value))
    if types.is_decimal(table) and types.is_decimal(data) and _decimal_fits(table, data):
        return table
    if types.is_timestamp(table) and types.is_timestamp(data) and _timestamp_fits(table, data):
        return table
    raise InvalidRequest(f"the column {path!r} is {table} in the table and {data} in the data", hint=_hint(table, data))


def _decimal_fits(table: pa.DataType, data: pa.DataType) -> bool:
    return bool(data.scale <= table.scale and data.precision - data.scale <= table.precision - table.scale)


def _timestamp_fits(table: pa.DataType, data: pa.DataType) -> bool:
    return (table.tz is None) == (data.tz is None) and _UNITS[data.unit] <= _UNITS[table.unit]


def _hint(table: pa.DataType, data: pa.DataType) -> str:
    if table in _LADDER and data not in _LADDER:
        return f"A number column takes numbers only: cast the data to {table}."
    if pa.types.is_timestamp(table) and pa.types.is_timestamp(data):
        return f"Cast the data to {table}; a zone or digits after the second would be lost otherwise."
    return f"Cast the data to {table}; only int, long, float, double widen in place."


def did_you_mean(name: str, names: list[str]) -> str | None:
    """A hint that names the nearest known column."""
    folded = {known.lower(): known for known in names}
    near = get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)
    return f"Did you mean {folded[near[0]]!r}?" if near else None
