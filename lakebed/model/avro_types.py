"""Avro types to Arrow types and back, one by one.

The mapping is chosen so that a table schema turned to Arrow equals what Parquet gives for a file of that schema, up to
the spelling of list elements (`schema_evolution` bridges that):

    Avro                                      Arrow                     Avro                       Arrow
    string, enum, uuid                        string                    record                     struct
    bytes; fixed                              binary; fixed_size_binary  array                      list<element>
    bytes or fixed with decimal(p, s)         decimal128(p, s)          map                        map<string, value>
    int with date                             date32                    [null, X]                  X, nullable
    long with timestamp-millis/-micros        timestamp[ms|us, UTC]     long with local-timestamp  timestamp, no zone
    int time-millis, long time-micros         time32[ms], time64[us]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.model.avro_names import type_names

_MAX_DEPTH = 64
_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


class AvroTypes:
    """Named types are defined once and then referred to by name, so reading a schema keeps a table of them."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._named: dict[str, pa.DataType | None] = {}

    def record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> list[pa.Field]:
        name, space = self._name(schema, namespace)
        self._named[name] = None
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise self._corrupt(f"the Avro record {name} has no fields")
        out: list[pa.Field] = []
        seen: set[str] = set()
        for field in fields:
            if not isinstance(field, Mapping) or not isinstance(field.get("name"), str) or "type" not in field:
                raise self._corrupt(f"the Avro record {name} has a field without name or type")
            if not is_text(field["name"]):
                raise self._corrupt(f"the Avro record {name!r} has a field whose name is no text")
            if field["name"] in seen:
                raise self._corrupt(f"the Avro record {name} has the field {field['name']!r} twice")
            seen.add(field["name"])
            data_type, nullable = self._type(field["type"], space, depth + 1)
            out.append(pa.field(field["name"], data_type, nullable))
        self._named[name] = pa.struct(out)
        return out

    def _type(self, schema: Any, namespace: str, depth: int) -> tuple[pa.DataType, bool]:
        """The type, and whether it may be null."""
        if depth > _MAX_DEPTH:
            raise self._corrupt(f"an Avro schema is nested deeper than {_MAX_DEPTH}")
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema], schema == "null"
            return self._reference(schema, namespace), False
        if not isinstance(schema, Mapping):
            raise self._corrupt(f"an Avro type is a {type(schema).__name__}")
        kind = schema.get("type")
        if isinstance(kind, (Mapping, list)):
            return self._type(kind, namespace, depth + 1)
        return self._complex(schema, str(kind), namespace, depth)

    def _complex(self, schema: Mapping[str, Any], kind: str, namespace: str, depth: int) -> tuple[pa.DataType, bool]:
        logical = schema.get("logicalType")
        if kind in ("record", "error"):
            return pa.struct(self.record(schema, namespace, depth)), False
        if kind == "array":
            element, nullable = self._type(schema.get("items"), namespace, depth + 1)
            return pa.list_(pa.field("element", element, nullable)), False
        if kind == "map":
            value, nullable = self._type(schema.get("values"), namespace, depth + 1)
            return pa.map_(pa.string(), pa.field("value", value, nullable)), False
        if kind in ("fixed", "bytes") and logical == "decimal":
            data_type = self._decimal(schema)
            if kind == "fixed":
                self._named[self._name(schema, namespace)[0]] = data_type
            return data_type, False
        if kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 31:
                raise self._corrupt(f"an Avro fixed type has the size {size!r}")
            data_type = pa.binary(size)
            self._named[self._name(schema, namespace)[0]] = data_type
            return data_type, False
        if kind == "enum":
            self._named[self._name(schema, namespace)[0]] = pa.string()
            return pa.string(), False
        if isinstance(logical, str) and (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], False
        return self._type(kind, namespace, depth + 1)

    def _union(self, branches: list[Any], namespace: str, depth: int) -> tuple[pa.DataType, bool]:
        some = [branch for branch in branches if branch != "null"]
        if len(some) > 1:
            raise UnsupportedFormat(
                f"a column is a union of {len(some)} types, which has no Arrow type", file=self._file
            )
        if not some:
            return pa.null(), True
        data_type, nullable = self._type(some[0], namespace, depth + 1)
        return data_type, nullable or len(some) < len(branches)

    def _reference(self, name: str, namespace: str) -> pa.DataType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._named:
                data_type = self._named[candidate]
                if data_type is None:
                    raise UnsupportedFormat(f"the Avro type {name} contains itself", file=self._file)
                return data_type
        raise self._corrupt(f"the Avro type {name!r} is not defined")

    def _decimal(self, schema: Mapping[str, Any]) -> pa.DataType:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
            raise self._corrupt(f"an Avro decimal has precision {precision!r} and scale {scale!r}")
        if precision > 38:
            raise UnsupportedFormat(f"a decimal of precision {precision} is wider than 38 digits", file=self._file)
        return pa.decimal128(precision, scale)

    def _name(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """The full name of a named type, and the namespace that holds inside it."""
        name, space = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(space, str):
            raise self._corrupt("an Avro named type has no name")
        if "." in name:
            return name, name.rpartition(".")[0]
        return (f"{space}.{name}" if space else name), space

    def _corrupt(self, what: str) -> CorruptTable:
        return CorruptTable(what, file=self._file)


def is_text(name: str) -> bool:
    """JSON may spell half of a surrogate pair, which is no character."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


# --- Arrow to Avro ----------------------------------------------------------------------------------------------------


def decimal_bytes(precision: int) -> int:
    """The smallest width that holds every decimal of a precision: the size of Hudi's fixed type and Parquet's."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def avro_fields(fields: Iterable[pa.Field], space: str, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a record; named types below go into the namespace `space`, one per level as in Hudi."""
    out: list[dict[str, Any]] = []
    fields = list(fields)
    words = type_names([field.name for field in fields])
    for field in fields:
        item: dict[str, Any] = {"name": field.name, "type": _avro_nullable(field, field.name, words[field.name], space)}
        if field.name.startswith("_hoodie_") and field.name != "_hoodie_is_deleted":
            item["doc"] = ""  # as Hudi writes its own columns
        if field.nullable:
            item["default"] = None
        if field.name in defaults and defaults[field.name] is not None:
            item["default"] = defaults[field.name]
            if isinstance(item["type"], list):  # an Avro default has the type of the union's first branch
                item["type"] = item["type"][::-1]
        out.append(item)
    return out


def _avro_nullable(field: pa.Field, name: str, word: str, space: str) -> Any:
    avro = _avro_type(field.type, name, word, space)
    return ["null", avro] if field.nullable and avro != "null" else avro


def _avro_type(data_type: pa.DataType, name: str, word: str, space: str) -> Any:
    """The type of the column `name`, whose own types are called `word`."""
    types = pa.types
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return _avro_type(data_type.value_type, name, word, space)
    if types.is_decimal(data_type):
        if data_type.precision > 38 or data_type.scale < 0:
            raise InvalidRequest(f"column {name!r}: {data_type} cannot be stored; 38 digits and scale 0 or more can")
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{space}.{word}",
            "size": decimal_bytes(data_type.precision),
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    if types.is_fixed_size_binary(data_type):
        fixed = {"type": "fixed", "name": "fixed", "namespace": f"{space}.{word}"}
        return {**fixed, "size": data_type.byte_width}
    if types.is_struct(data_type):
        return {
            "type": "record",
            "name": word,
            "namespace": space,
            "fields": avro_fields(data_type, f"{space}.{word}", {}),
        }
    if types.is_map(data_type):
        if not _is_text(data_type.key_type):
            raise InvalidRequest(f"column {name!r}: map keys must be strings, not {data_type.key_type}")
        return {"type": "map", "values": _avro_nullable(data_type.item_field, name, word, space)}
    if is_list_like(data_type):
        return {"type": "array", "items": _avro_nullable(data_type.value_field, name, word, space)}
    if types.is_timestamp(data_type):
        unit = "millis" if data_type.unit in ("s", "ms") else "micros"
        return {"type": "long", "logicalType": f"{'timestamp' if data_type.tz else 'local-timestamp'}-{unit}"}
    plain = _plain_avro(data_type)
    if plain is None:
        raise InvalidRequest(f"column {name!r}: the type {data_type} cannot be stored in a Hudi table")
    return plain


def _plain_avro(data_type: pa.DataType) -> Any:
    types = pa.types
    if types.is_null(data_type):
        return "null"
    if types.is_boolean(data_type):
        return "boolean"
    if types.is_integer(data_type) and not types.is_uint64(data_type):
        return "int" if data_type.bit_width < 32 or types.is_int32(data_type) else "long"
    if types.is_floating(data_type):
        return "double" if types.is_float64(data_type) else "float"
    if _is_text(data_type):
        return "string"
    if types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_binary_view(data_type):
        return "bytes"
    if types.is_date(data_type):
        return {"type": "int", "logicalType": "date"}
    if types.is_time32(data_type):
        return {"type": "int", "logicalType": "time-millis"}
    if types.is_time64(data_type):
        return {"type": "long", "logicalType": "time-micros"}
    return None


def _is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def is_list_like(data_type: pa.DataType) -> bool:
    """Any Arrow list; a map is not one."""
    types = pa.types
    return bool(
        types.is_list(data_type)
        or types.is_large_list(data_type)
        or types.is_fixed_size_list(data_type)
        or types.is_list_view(data_type)
        or types.is_large_list_view(data_type)
    )
