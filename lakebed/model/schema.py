"""The schema of a table: Hudi's meta columns, and Avro JSON to Arrow and back.

Hudi uses Avro wherever it stores a schema (commit metadata, log block headers, Parquet footers) and lakebed computes
in Arrow, so this module converts between the two; `avro_types` has the table of types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptTable
from lakebed.model.avro_names import avro_name
from lakebed.model.avro_types import AvroTypes, avro_fields

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
    return pa.schema(AvroTypes(file).record(loaded, "", 0))


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


# --- Arrow to Avro ----------------------------------------------------------------------------------------------------


def table_avro(schema: pa.Schema, table: str) -> dict[str, Any]:
    """The Avro schema under the names Hudi gives a table's record."""
    name = avro_name(table)
    return arrow_to_avro(schema, f"{name}_record", f"hoodie.{name}")


def arrow_to_avro(
    schema: pa.Schema, name: str, namespace: str = "", *, defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The Avro record schema of an Arrow schema; nested names follow Hudi's, one namespace per level.

    Nullable columns default to null as Hudi's do, which is what lets an older file be read with a newer schema.
    """
    record = {"type": "record", "name": name, **({"namespace": namespace} if namespace else {})}
    return {**record, "fields": avro_fields(schema, f"{namespace}.{name}" if namespace else name, defaults or {})}


# --- what is stored ---------------------------------------------------------------------------------------------------


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema a table has after data of this Arrow schema was written: the round trip through Avro.

    Narrow and unsigned integers widen, dictionaries decode, large and view types become plain ones.
    """
    return avro_to_arrow(arrow_to_avro(schema, "record"))
