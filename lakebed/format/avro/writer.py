"""Arrow columns encoded as Avro records, the counterpart of `avro/columns`: the loop is over fields, not over rows.

    a field of all rows    ->  fragments: Arrow arrays of bytes with one element per row, or one constant for all
    a row                  =   its fragments, one after the other
    a frame                =   int32 length | the row                          what an Avro block is made of

A number becomes a fragment of one to ten bytes per row, a string two fragments (length, bytes), an optional value a
constant branch byte and the value's fragments. Arrow then joins all fragments of a row in one pass, so nothing is
copied per field.
Rows without a value are encoded apart: those that have one are encoded densely and spread out again. Items of arrays
and maps are encoded as a column of their own; a row's items are consecutive, so its bytes are a slice of that.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import InvalidRequest, UnsupportedFormat
from lakebed.format.avro.compile import compile_record, full_name
from lakebed.format.avro.encoders import (
    BooleanEncoder,
    BytesEncoder,
    ConstantEncoder,
    DecimalEncoder,
    Encoder,
    EnumEncoder,
    FixedEncoder,
    FloatEncoder,
    IntegerEncoder,
    NullEncoder,
    OptionalEncoder,
    RecordEncoder,
    RepeatedEncoder,
    RequiredEncoder,
)
from lakebed.format.avro.fragments import data_of, fixed, join, lengths_of
from lakebed.model.nested_cast import cast_column
from lakebed.model.schema import avro_to_arrow, load_avro


def encode_frames_of(batch: pa.RecordBatch, schema_json: str) -> pa.Buffer:
    """Every row as a frame; the columns are those of the schema, by name."""
    encoder = _compiled(schema_json)
    fragments = encoder.fragments(
        pa.StructArray.from_arrays(_columns(batch, encoder.schema), fields=list(encoder.schema))
    )
    lengths = sum((lengths_of(fragment, batch.num_rows) for fragment in fragments), np.zeros(batch.num_rows, np.int64))
    if batch.num_rows and int(lengths.max()) >= 1 << 31:
        raise InvalidRequest("a row is larger than an Avro block can hold")
    framed = join([fixed(lengths.astype(">i4").view(np.uint8).reshape(-1, 4)), *fragments], batch.num_rows)
    return data_of(framed)


def encode_records(batch: pa.RecordBatch, schema_json: str) -> pa.Array:
    """Every row as bare Avro binary."""
    encoder = _compiled(schema_json)
    columns = _columns(batch, encoder.schema)
    return join(encoder.fragments(pa.StructArray.from_arrays(columns, fields=list(encoder.schema))), batch.num_rows)


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            raise InvalidRequest(f"rows have no column {field.name!r}")
        try:
            columns.append(cast_column(batch.column(position), field.type))
        except pa.ArrowException as error:
            raise InvalidRequest(f"the column {field.name!r} does not fit {field.type}: {error}") from error
    return columns


# --- from schemas -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _compiled(schema_json: str) -> RecordEncoder:
    try:
        compile_record(schema_json)  # nothing is written that could not be read again
    except UnsupportedFormat as error:
        raise InvalidRequest(
            f"rows of this schema cannot be kept as Avro: {error.what}",
            hint="Keep them as Parquet: hoodie.logfile.data.block.format=parquet.",
        ) from error
    loaded = load_avro(schema_json)
    arrow = avro_to_arrow(loaded)
    return _Compiler().record(loaded, "", pa.struct(list(arrow)))


class _Compiler:
    """Walks the Avro schema beside its Arrow type, which has been checked by `avro_to_arrow` already."""

    def __init__(self) -> None:
        self._named: dict[str, Encoder] = {}

    def record(self, schema: Mapping[str, Any], namespace: str, kind: pa.DataType) -> RecordEncoder:
        name, space = full_name(schema, namespace)
        fields = [
            self._field(raw["type"], space, field.type, raw["name"])
            for raw, field in zip(schema["fields"], kind, strict=True)
        ]
        encoder = RecordEncoder(pa.schema(list(kind)), fields)
        self._named[name] = encoder
        return encoder

    def _field(self, schema: Any, namespace: str, kind: pa.DataType, name: str) -> Encoder:
        while isinstance(schema, Mapping) and isinstance(schema.get("type"), (list, Mapping)):
            schema = schema["type"]
        if isinstance(schema, list):
            branches = [position for position, branch in enumerate(schema) if branch != "null"]
            if not branches:
                return ConstantEncoder(b"\x00")
            item = self._encoder(schema[branches[0]], namespace, kind)
            null = next((position for position, branch in enumerate(schema) if branch == "null"), None)
            return OptionalEncoder(item, branches[0], null)
        if schema == "null":
            return NullEncoder()
        return RequiredEncoder(self._encoder(schema, namespace, kind), name)

    def _encoder(self, schema: Any, namespace: str, kind: pa.DataType) -> Encoder:
        word = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(word, str):
            return self._encoder(word, namespace, kind)
        if isinstance(schema, Mapping):
            found = self._complex(schema, word, namespace, kind)
            if found is not None:
                return found
        leaf = _leaf(word, kind)
        if leaf is not None:
            return leaf
        full = word if "." in word or not namespace else f"{namespace}.{word}"
        return self._named[full] if full in self._named else self._named[word]

    def _complex(self, schema: Mapping[str, Any], word: str, namespace: str, kind: pa.DataType) -> Encoder | None:
        if word in ("record", "error"):
            return self.record(schema, namespace, kind)
        if word == "array":
            return RepeatedEncoder(self._field(schema["items"], namespace, kind.value_type, "element"))
        if word == "map":
            entry = pa.schema([kind.key_field, kind.item_field])
            value = self._field(schema["values"], namespace, kind.item_type, "value")
            return RepeatedEncoder(RecordEncoder(entry, [BytesEncoder(), value]))
        named: Encoder | None = None
        if word == "fixed":
            named = DecimalEncoder(schema["size"]) if pa.types.is_decimal(kind) else FixedEncoder()
        elif word == "enum":
            named = EnumEncoder(schema["symbols"])
        if named is not None:
            self._named[full_name(schema, namespace)[0]] = named
        return named


def _leaf(word: str, kind: pa.DataType) -> Encoder | None:
    if word == "bytes" and pa.types.is_decimal(kind):
        return DecimalEncoder(None)
    makers: Mapping[str, type[Encoder]] = {
        "null": NullEncoder,
        "boolean": BooleanEncoder,
        "int": IntegerEncoder,
        "long": IntegerEncoder,
        "float": FloatEncoder,
        "double": FloatEncoder,
        "bytes": BytesEncoder,
        "string": BytesEncoder,
    }
    return makers[word]() if word in makers else None
