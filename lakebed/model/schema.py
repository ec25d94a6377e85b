"""The schema of a table: Hudi's meta columns, and Avro JSON <-> Arrow.

Hudi speaks Avro wherever it stores a schema (commit metadata, log block headers, Parquet footers) and lakebed computes
in Arrow, so this is the one place where the two meet. The mapping is chosen so that a table schema turned to Arrow
equals what Parquet gives for a file of that schema, up to the spelling of list elements (`schema_evolution` bridges
that):

    Avro                                      Arrow                     Avro                       Arrow
    string, enum, uuid                        string                    record                     struct
    bytes; fixed                              binary; fixed_size_binary  array                      list<element>
    bytes or fixed with decimal(p, s)         decimal128(p, s)          map                        map<string, value>
    int with date                             date32                    [null, X]                  X, nullable
    long with timestamp-millis/-micros        timestamp[ms|us, UTC]     long with local-timestamp  timestamp, no zone
    int time-millis, long time-micros         time32[ms], time64[us]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
OPERATION = "_hoodie_operation"
IS_DELETED = "_hoodie_is_deleted"

META_FIELDS: tuple[pa.Field, ...] = tuple(
    pa.field(name, pa.string()) for name in (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
)
META_FIELD_NAMES: tuple[str, ...] = tuple(field.name for field in META_FIELDS)
OPERATION_FIELD: pa.Field = pa.field(OPERATION, pa.string())
_META_NAMES = frozenset((*META_FIELD_NAMES, OPERATION))

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


def is_meta_field(name: str) -> bool:
    """Whether a column is one of Hudi's own; `_hoodie_is_deleted` is the user's."""
    return name in _META_NAMES


def with_meta_fields(schema: pa.Schema, *, operation: bool = False) -> pa.Schema:
    """The schema of a data file of the table: meta columns first, then the table's own."""
    meta = (*META_FIELDS, OPERATION_FIELD) if operation else META_FIELDS
    return pa.schema([*meta, *without_meta_fields(schema)], metadata=schema.metadata)


def without_meta_fields(schema: pa.Schema) -> pa.Schema:
    """The table's own columns."""
    return pa.schema([field for field in schema if not is_meta_field(field.name)], metadata=schema.metadata)


def decimal_bytes(precision: int) -> int:
    """The smallest width that holds every decimal of a precision: the size of Hudi's fixed type and Parquet's."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


# --- Avro to Arrow ----------------------------------------------------------------------------------------------------


def load_avro(schema: str | bytes | Mapping[str, Any], *, file: str | None = None) -> dict[str, Any]:
    """The parsed form of a record schema, checked only for being one."""
    if isinstance(schema, (str, bytes)):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise CorruptTable(f"an Avro schema is not JSON: {error}", file=file) from error
    if not isinstance(schema, Mapping) or schema.get("type") not in ("record", "error"):
        raise CorruptTable("an Avro schema is not a record", file=file)
    return dict(schema)


def avro_to_arrow(schema: str | bytes | Mapping[str, Any], *, file: str | None = None) -> pa.Schema:
    """The Arrow schema of an Avro record schema."""
    loaded = load_avro(schema, file=file)
    return pa.schema(_AvroReader(file).record(loaded, "", 0))


def column_defaults(schema: str | bytes | Mapping[str, Any], *, file: str | None = None) -> dict[str, Any]:
    """Avro defaults of the top-level columns that declare one, as Python values of the column's Arrow type.

    Partial updates in the mode IGNORE_DEFAULTS keep the older value where the newer one equals this.
    """
    loaded = load_avro(schema, file=file)
    arrow = avro_to_arrow(loaded, file=file)
    defaults: dict[str, Any] = {}
    for raw, field in zip(loaded["fields"], arrow, strict=True):
        if "default" in raw:
            defaults[field.name] = _default_value(raw["default"], field.type)
    return defaults


def _default_value(raw: Any, data_type: pa.DataType) -> Any:
    """Avro writes the default of bytes as a string of code points, of logical types as the plain number."""
    if raw is None:
        return None
    if isinstance(raw, str) and (pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type)):
        return raw.encode("latin-1", "replace")
    if isinstance(raw, str) and pa.types.is_decimal(data_type):
        unscaled = int.from_bytes(raw.encode("latin-1", "replace"), "big", signed=True)
        return pa.scalar(unscaled, pa.decimal128(38, 0)).as_py().scaleb(-data_type.scale)
    if isinstance(raw, int) and (pa.types.is_temporal(data_type)):
        storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pa.scalar(raw, storage).cast(data_type).as_py()
    return raw


class _AvroReader:
    """Named types are defined once and then referred to by name, so reading a schema needs a memory."""

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
        return self._type(some[0], namespace, depth + 1)[0], len(some) < len(branches)

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


# --- Arrow to Avro ----------------------------------------------------------------------------------------------------


def table_avro(schema: pa.Schema, table: str) -> dict[str, Any]:
    """The Avro schema under the names Hudi gives a table's record."""
    name = _avro_name(table)
    return arrow_to_avro(schema, f"{name}_record", f"hoodie.{name}")


def arrow_to_avro(
    schema: pa.Schema, name: str, namespace: str = "", *, defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The Avro record schema of an Arrow schema; nested names follow Hudi's, one namespace per level.

    Nullable columns default to null as Hudi's do, which is what lets an older file be read with a newer schema.
    """
    record = {"type": "record", "name": name, **({"namespace": namespace} if namespace else {})}
    return {**record, "fields": _avro_fields(schema, f"{namespace}.{name}" if namespace else name, defaults or {})}


def _avro_fields(fields: Iterable[pa.Field], space: str, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for field in fields:
        item: dict[str, Any] = {"name": field.name, "type": _avro_nullable(field, field.name, space)}
        if is_meta_field(field.name):
            item["doc"] = ""
        if field.nullable:
            item["default"] = None
        if field.name in defaults and defaults[field.name] is not None:
            item["default"] = defaults[field.name]
            if isinstance(item["type"], list):  # an Avro default has the type of the union's first branch
                item["type"] = item["type"][::-1]
        out.append(item)
    return out


def _avro_nullable(field: pa.Field, name: str, space: str) -> Any:
    avro = _avro_type(field.type, name, space)
    return ["null", avro] if field.nullable and avro != "null" else avro


def _avro_type(data_type: pa.DataType, name: str, space: str) -> Any:
    types = pa.types
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return _avro_type(data_type.value_type, name, space)
    if types.is_decimal(data_type):
        if data_type.precision > 38 or data_type.scale < 0:
            raise InvalidRequest(f"column {name!r}: {data_type} cannot be stored; 38 digits and scale 0 or more can")
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{space}.{_avro_name(name)}",
            "size": decimal_bytes(data_type.precision),
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    if types.is_fixed_size_binary(data_type):
        fixed = {"type": "fixed", "name": "fixed", "namespace": f"{space}.{_avro_name(name)}"}
        return {**fixed, "size": data_type.byte_width}
    if types.is_struct(data_type):
        record = _avro_name(name)
        return {
            "type": "record",
            "name": record,
            "namespace": space,
            "fields": _avro_fields(data_type, f"{space}.{record}", {}),
        }
    if types.is_map(data_type):
        if not _is_text(data_type.key_type):
            raise InvalidRequest(f"column {name!r}: map keys must be strings, not {data_type.key_type}")
        return {"type": "map", "values": _avro_nullable(data_type.item_field, name, space)}
    if is_list_like(data_type):
        return {"type": "array", "items": _avro_nullable(data_type.value_field, name, space)}
    if types.is_timestamp(data_type):
        unit = "millis" if data_type.unit in ("s", "ms") else "micros"
        return {"type": "long", "logicalType": f"{'timestamp' if data_type.tz else 'local-timestamp'}-{unit}"}
    plain = _plain_avro(data_type)
    if plain is None:
        raise InvalidRequest(f"column {name!r}: the type {data_type} has no place in a Hudi table")
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


def _avro_name(text: str) -> str:
    """Avro names are ASCII words; anything else becomes an underscore, as in Hudi's own sanitising."""
    word = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in text)
    return f"_{word}" if not word or word[0].isdigit() else word


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


# --- what is stored ---------------------------------------------------------------------------------------------------


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema a table has after data of this Arrow schema was written: the round trip through Avro.

    Narrow and unsigned integers widen, dictionaries decode, large and view types become plain ones.
    """
    return avro_to_arrow(arrow_to_avro(schema, "record"))
