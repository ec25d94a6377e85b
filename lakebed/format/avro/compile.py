"""From an Avro schema to the tree of column readers that decodes its records.

The Avro schema is walked beside its Arrow type, which `model.schema.avro_to_arrow` has made and thereby checked: the
Avro side defines the byte layout, the Arrow side the type of the column. Types without an Arrow type (unions of several
branches, types that contain themselves) are refused there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.avro.readers import (
    BooleanReader,
    BytesReader,
    DecimalReader,
    EnumReader,
    FixedReader,
    FloatReader,
    IntegerReader,
    NullReader,
    Reader,
    RecordReader,
    RepeatedReader,
    UnionReader,
)
from lakebed.model.schema import avro_to_arrow, load_avro


def compile_record(schema_json: str) -> RecordReader:
    """The reader of a record schema."""
    loaded = load_avro(schema_json)
    arrow = avro_to_arrow(loaded)
    return _Compiler().record(loaded, "", pa.struct(list(arrow)))


class _Compiler:
    """Walks the Avro schema beside its Arrow type, which has been checked by `avro_to_arrow` already."""

    def __init__(self) -> None:
        self._named: dict[str, Reader] = {}

    def record(self, schema: Mapping[str, Any], namespace: str, data_type: pa.DataType) -> RecordReader:
        name, space = full_name(schema, namespace)
        fields = [
            (raw["name"], self._reader(raw["type"], space, field.type))
            for raw, field in zip(schema["fields"], data_type, strict=True)
        ]
        reader = RecordReader(data_type, fields)
        self._named[name] = reader
        return reader

    def _reader(self, schema: Any, namespace: str, data_type: pa.DataType) -> Reader:
        if isinstance(schema, list):
            return self._union(schema, namespace, data_type)
        if isinstance(schema, str):
            return _leaf(schema, data_type) or self._reference(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._reader(kind, namespace, data_type)
        if kind in ("record", "error"):
            return self.record(schema, namespace, data_type)
        if kind == "array":
            return self._repeated(data_type, self._reader(schema["items"], namespace, data_type.value_type))
        if kind == "map":
            entry = pa.struct([data_type.key_field, data_type.item_field])
            value = self._reader(schema["values"], namespace, data_type.item_type)
            return self._repeated(data_type, RecordReader(entry, [("key", BytesReader(pa.string())), ("value", value)]))
        if kind == "fixed":
            size = schema["size"]
            decimal = pa.types.is_decimal(data_type)
            fixed: Reader = DecimalReader(data_type, size) if decimal else FixedReader(size)
            self._named[full_name(schema, namespace)[0]] = fixed
            return fixed
        if kind == "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                raise CorruptTable("an Avro enum has no list of symbols")
            reader = EnumReader(symbols)
            self._named[full_name(schema, namespace)[0]] = reader
            return reader
        return _leaf(kind, data_type) or self._reader(kind, namespace, data_type)

    def _repeated(self, data_type: pa.DataType, item: Reader) -> Reader:
        if not item.least:
            raise UnsupportedFormat("an array of items that take no bytes is not readable")
        return RepeatedReader(data_type, item)

    def _union(self, branches: list[Any], namespace: str, data_type: pa.DataType) -> Reader:
        at = next((index for index, branch in enumerate(branches) if branch != "null"), 0)
        item = self._reader(branches[at], namespace, data_type) if branches else NullReader()
        return UnionReader(item, len(branches), at)

    def _reference(self, name: str, namespace: str) -> Reader:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        return self._named[full] if full in self._named else self._named[name]


def _leaf(kind: str, data_type: pa.DataType) -> Reader | None:
    if kind == "null":
        return NullReader()
    if kind == "boolean":
        return BooleanReader()
    if kind in ("int", "long"):
        return IntegerReader(data_type, is_long=kind == "long")
    if kind in ("float", "double"):
        return FloatReader(data_type)
    if kind == "bytes" and pa.types.is_decimal(data_type):
        return DecimalReader(data_type, None)
    if kind in ("bytes", "string"):
        return BytesReader(data_type)
    return None


def full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace that holds inside it; as in `avro_to_arrow`."""
    name, space = schema["name"], schema.get("namespace", namespace)
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{space}.{name}" if space else name), space
