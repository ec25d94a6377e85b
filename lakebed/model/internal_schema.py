"""Schema on read: columns that keep an id through renames, drops and type changes.

Hudi stores every version of such a schema as JSON, in the commit's `latest_schema` and, all versions together, in
`.hoodie/.schema/*.schemacommit`:

    {"schemas": [{"max_column_id": 11, "version_id": <requested time>, "type": "record",
                  "fields": [{"id": 7, "name": "v", "optional": true, "type": "long"}, ...]}, ...]}

    nested types   {"type": "record", "fields": [...]}
                   {"type": "array", "element_id": 9, "element": T, "element_optional": true}
                   {"type": "map", "key_id": 10, "key": T, "value_id": 11, "value": T, "value_optional": true}

The version that a file was written with is recorded in the footer key `lakebed.schema.id` where lakebed wrote it as
Parquet, else in the report of its commit, which Hudi reads first as well. A file without either was written with the
newest version that is not younger than its requested time. Its columns are matched with the reader's by id, which
`renames` turns into what `schema_evolution.resolve` wants: the old name of each field, or none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.model.avro_types import is_text

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "time_millis": pa.time32("ms"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_millis": pa.timestamp("ms", "UTC"),
    "local_timestamp_micros": pa.timestamp("us"),
    "local_timestamp_millis": pa.timestamp("ms"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.string(),
}
_FIXED = re.compile(r"fixed\[(\d{1,9})\]")
_DECIMAL = re.compile(r"decimal(?:_fixed|_bytes)?\((\d{1,3}),\s*(\d{1,3})\)(?:\[\d+\])?")
_MAX_DEPTH = 64
SCHEMA_ID = "lakebed.schema.id"
"""The footer key under which a Parquet file, or a Parquet block of a log, records its version."""
LATEST_SCHEMA = "latest_schema"
"""Where a commit's report keeps the version that its files were written with, all of it, as JSON."""


@dataclass(frozen=True, slots=True)
class IdField:
    """A field with its id. Lists and maps have theirs too, under the names `element`, `key` and `value`."""

    id: int
    name: str
    optional: bool
    type: pa.DataType
    children: tuple[IdField, ...] = ()

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, self.type, self.optional)


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """One version of a table's schema. `version` is the requested time of the change, 0 for the schema before any."""

    version: int
    max_column_id: int
    fields: tuple[IdField, ...]
    json: str = field(default="", compare=False, repr=False)
    """The text it was read from, to be repeated in the reports of writes."""

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([field.arrow for field in self.fields])

    @property
    def ids(self) -> dict[str, int]:
        """Every dotted path and its id."""
        return {path: field.id for path, field in _walk(self.fields, "")}


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """All versions of a table's schema, oldest first."""

    versions: tuple[InternalSchema, ...]

    @property
    def latest(self) -> InternalSchema:
        return self.versions[-1]

    def at(self, requested_time: str) -> InternalSchema | None:
        """The schema under which a file of that requested time was written; None before the history starts."""
        if not requested_time.isdigit():
            return None
        version = int(requested_time)
        return next((schema for schema in reversed(self.versions) if schema.version <= version), None)

    def numbered(self, version: int) -> InternalSchema | None:
        """The version of that number."""
        return next((schema for schema in self.versions if schema.version == version), None)


@dataclass(frozen=True, slots=True)
class SchemaOnRead:
    """The versions of a table's schema, with the one that a reader reads with, or a writer writes with."""

    history: SchemaHistory
    wanted: InternalSchema
    reported: Mapping[str, int] = field(default_factory=dict)
    """The version that a commit reports, by requested time, where it is not the one that this time implies."""

    def of_file(self, requested_time: str, stated: str | None = None) -> InternalSchema | None:
        """The version of a file: its own footer counts before its commit's report, and that before its name."""
        if stated is not None and stated.isascii() and stated.isdigit():
            found = self.history.numbered(int(stated))
            if found is not None:
                return found
        reported = self.reported.get(requested_time)
        return (self.history.numbered(reported) if reported is not None else None) or self.history.at(requested_time)

    def renames(self, requested_time: str, stated: str | None = None) -> dict[str, str | None]:
        """The names of the reader's columns in a file."""
        stored = self.of_file(requested_time, stated)
        return {} if stored is None or stored.version == self.wanted.version else renames(stored, self.wanted)


def renames(file_schema: InternalSchema, reader: InternalSchema) -> dict[str, str | None]:
    """For every field of the reader whose name in the file differs: that name, or None where the file has no such id.

    Paths are the reader's, dotted. A column that was dropped and added again under its old name has a new id, and so
    is absent from older files although they hold a column of that name.
    """
    out: dict[str, str | None] = {}
    _match(file_schema.fields, reader.fields, "", out)
    return out


def _match(before: Sequence[IdField], now: Sequence[IdField], path: str, out: dict[str, str | None]) -> None:
    by_id = {one.id: one for one in before}
    for one in now:
        old = by_id.get(one.id)
        if old is None:
            out[path + one.name] = None
            continue
        if old.name != one.name:
            out[path + one.name] = old.name
        _match(old.children, one.children, f"{path}{one.name}.", out)


def _walk(fields: Sequence[IdField], path: str) -> Iterator[tuple[str, IdField]]:
    for one in fields:
        yield path + one.name, one
        yield from _walk(one.children, f"{path}{one.name}.")


def reported_version(report: Mapping[str, str]) -> int | None:
    """The number of the version that the report of a commit names (`latest_schema`), if it does."""
    try:
        loaded = json.loads(report.get(LATEST_SCHEMA) or "null")
    except (ValueError, RecursionError):
        return None
    version = loaded.get("version_id") if isinstance(loaded, Mapping) else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None


# --- JSON -------------------------------------------------------------------------------------------------------------


def parse_internal_schema(data: str | bytes, *, file: str | None = None) -> InternalSchema:
    """The JSON of one version (`latest_schema`)."""
    return _schema(_load(data, file), file)


def parse_schema_history(data: str | bytes, *, file: str | None = None) -> SchemaHistory:
    """The JSON of a `.schemacommit`: all versions, newest first on storage."""
    loaded = _load(data, file)
    entries = loaded.get("schemas")
    if not isinstance(entries, list) or not entries:
        raise CorruptTable("a schema history without schemas", file=file)
    return SchemaHistory(tuple(sorted((_schema(entry, file) for entry in entries), key=lambda schema: schema.version)))


def render_schema_history(history: SchemaHistory) -> str:
    """The JSON of a `.schemacommit` with all versions."""
    return f'{{"schemas":[{",".join(version.json for version in reversed(history.versions))}]}}'


def _load(data: str | bytes, file: str | None) -> Mapping[str, Any]:
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"a stored schema is not JSON: {error}", file=file) from error
    if not isinstance(loaded, Mapping):
        raise CorruptTable("a stored schema is not a JSON object", file=file)
    return loaded


def _schema(entry: Any, file: str | None) -> InternalSchema:
    if not isinstance(entry, Mapping):
        raise CorruptTable("a stored schema is not a JSON object", file=file)
    fields = _Parser(file).fields(entry, 0)
    version = _whole(entry, "version_id", file, default=0)
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    return InternalSchema(version, _whole(entry, "max_column_id", file, default=-1), fields, text)


def _whole(entry: Mapping[str, Any], name: str, file: str | None, default: int | None = None) -> int:
    value = entry.get(name, entry.get(name.replace("_id", "-id"), default))  # before 1.0 ids were spelt with a dash
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptTable(f"a stored schema has {name} = {value!r}", file=file)
    return value


class _Parser:
    def __init__(self, file: str | None) -> None:
        self._file = file

    def fields(self, record: Mapping[str, Any], depth: int) -> tuple[IdField, ...]:
        raw = record.get("fields")
        if not isinstance(raw, list):
            raise CorruptTable("a record of a stored schema has no fields", file=self._file)
        return tuple(self._field(item, depth) for item in raw)

    def _field(self, item: Any, depth: int) -> IdField:
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str) or not is_text(item["name"]):
            raise CorruptTable("a field of a stored schema has no name", file=self._file)
        optional = item.get("optional", True) is not False
        return self._typed(_whole(item, "id", self._file), item["name"], optional, item.get("type"), depth + 1)

    def _typed(self, field_id: int, name: str, optional: bool, raw: Any, depth: int) -> IdField:
        if depth > _MAX_DEPTH:
            raise CorruptTable(f"a stored schema is nested deeper than {_MAX_DEPTH}", file=self._file)
        if isinstance(raw, str):
            return IdField(field_id, name, optional, self._primitive(raw.lower()))
        if not isinstance(raw, Mapping):
            raise CorruptTable(f"the field {name!r} of a stored schema has no type", file=self._file)
        kind = raw.get("type")
        if kind == "record":
            children = self.fields(raw, depth)
            return IdField(field_id, name, optional, pa.struct([child.arrow for child in children]), children)
        if kind == "array":
            element = self._child(raw, "element", raw.get("element_optional", True) is not False, depth)
            return IdField(field_id, name, optional, pa.list_(element.arrow), (element,))
        if kind == "map":
            key = self._child(raw, "key", False, depth)
            value = self._child(raw, "value", raw.get("value_optional", True) is not False, depth)
            return IdField(field_id, name, optional, pa.map_(key.type, value.arrow), (key, value))
        raise CorruptTable(f"the field {name!r} of a stored schema has the type {kind!r}", file=self._file)

    def _child(self, raw: Mapping[str, Any], name: str, optional: bool, depth: int) -> IdField:
        return self._typed(_whole(raw, f"{name}_id", self._file), name, optional, raw.get(name), depth + 1)

    def _primitive(self, text: str) -> pa.DataType:
        if text in _PRIMITIVES:
            return _PRIMITIVES[text]
        fixed = _FIXED.fullmatch(text)
        if fixed and int(fixed[1]) > 0:
            return pa.binary(int(fixed[1]))
        decimal = _DECIMAL.fullmatch(text)
        if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        raise UnsupportedFormat(f"a stored schema has the type {text!r}", file=self._file)
