"""Avro records one by one with fastavro: the fallback decoder, with the same result as `avro/readers`.

Logical types are taken off the schema first (all but decimals), so that dates and times arrive as the numbers they are
stored as and no Python calendar limits them; pyarrow puts the Arrow type on again.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from lakebed.errors import CorruptTable
from lakebed.format.avro.compile import full_name
from lakebed.format.avro.cursor import Records
from lakebed.model.schema import load_avro

_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


def decode_plain(records: Records, schema_json: str, schema: pa.Schema) -> list[pa.Array]:
    """The columns of `schema` out of the records."""
    file, offset = records.file, records.offset
    try:
        parsed = bare_schema(load_avro(schema_json, file=file))
    except SchemaParseException as error:
        raise CorruptTable(f"the schema of a block is not readable: {error}", file=file, offset=offset) from error
    values: list[Any] = []
    for start, end in zip(records.starts.tolist(), records.ends.tolist(), strict=True):
        stream = io.BytesIO(records.data[start:end])
        try:
            values.append(schemaless_reader(stream, parsed))
        except Exception as error:  # fastavro raises whatever the bytes provoke
            raise CorruptTable(f"a record is not readable: {error!r}", file=file, offset=offset + start) from error
        if stream.tell() != end - start:
            raise CorruptTable("a record is longer than its fields", file=file, offset=offset + start)
    try:
        return [
            pa.array([_arrow_value(record[field.name], field.type) for record in values], field.type)
            for field in schema
        ]
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise CorruptTable(f"a value does not fit its column: {error}", file=file, offset=offset) from error


def _arrow_value(value: Any, data_type: pa.DataType) -> Any:
    """A fastavro value as pyarrow wants it: maps are lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(data_type):
        return [(key, _arrow_value(item, data_type.item_type)) for key, item in value.items()]
    if pa.types.is_list(data_type):
        return [_arrow_value(item, data_type.value_type) for item in value]
    if pa.types.is_struct(data_type):
        return {field.name: _arrow_value(value[field.name], field.type) for field in data_type}
    return value


def bare_schema(schema: Mapping[str, Any]) -> Any:
    """A schema for fastavro, without the logical types."""
    return parse_schema(_Bare().of(schema, ""))


class _Bare:
    """Walks a schema. Named types get numbers for names: some existing blocks have two types of one name."""

    def __init__(self) -> None:
        self._numbered: dict[str, str] = {}
        self._count = 0

    def of(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, list):
            return [self.of(branch, namespace) for branch in schema]
        if isinstance(schema, str):
            if schema in _PRIMITIVES:  # whatever records there are of that name, after a column `string`
                return schema
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            return self._numbered.get(full) or self._numbered.get(schema) or schema
        drop = () if schema.get("logicalType") == "decimal" else ("logicalType",)
        out = {key: value for key, value in schema.items() if key not in (*drop, "default", "aliases", "doc")}
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            full, namespace = full_name(schema, namespace)
            self._count += 1
            self._numbered[full] = out["name"] = f"type{self._count}"
            out.pop("namespace", None)
            if "fields" in out:
                fields = [(field, self.of(field["type"], namespace)) for field in out["fields"]]
                out["fields"] = [{"name": field["name"], "type": kind} for field, kind in fields]
            return out
        for key in ("type", "items", "values"):
            if key in out:
                out[key] = self.of(out[key], namespace)
        return out
