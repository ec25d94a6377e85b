"""ALTER TABLE as Hudi does it under schema-on-read: for tests of tables whose columns are renamed, dropped and added.

    alter(table, Rename("a", "b"))            rename, drop, add, promote; a dotted path means a nested column
    alter(table, Drop("a"), Add("a", pa.int64()))

Every change is an action of its own: a commit without files (ALTER_SCHEMA) whose report holds `schema` and
`latest_schema`, and the history of all versions in `.hoodie/.schema/<requested>_<completed>.schemacommit`. Columns keep
their ids through renames and promotions; a column that is added gets an id that was never used before. No lock is taken
and nothing is cleaned up first, so that a change may also come while other actions are under way: `begin_alter` starts
one that `Alteration.complete` finishes later.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.format.names import SCHEMA_DIR
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CommitMetadata
from lakebed.model.instant import Action, Instant, State
from lakebed.model.internal_schema import parse_internal_schema
from lakebed.model.schema import avro_to_arrow, table_avro, with_meta_fields, without_meta_fields
from lakebed.storage.open import open_storage
from lakebed.storage.storage import Storage
from lakebed.table import Table
from lakebed.timeline.active import complete, create_requested, to_inflight
from lakebed.timeline.clock import Clock, SystemClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.instants import greatest_time, next_time

Json = dict[str, Any]
_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.time32("ms"): "time_millis",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("ms", "UTC"): "timestamp_millis",
    pa.timestamp("us"): "local_timestamp_micros",
    pa.timestamp("ms"): "local_timestamp_millis",
    pa.string(): "string",
    pa.binary(): "binary",
}


@dataclass(frozen=True, slots=True)
class Rename:
    column: str
    to: str

    def apply(self, schema: Json) -> None:
        fields, place = _find(schema, self.column)
        fields[place]["name"] = self.to


@dataclass(frozen=True, slots=True)
class Drop:
    column: str

    def apply(self, schema: Json) -> None:
        fields, place = _find(schema, self.column)
        del fields[place]


@dataclass(frozen=True, slots=True)
class Add:
    column: str
    type: pa.DataType

    def apply(self, schema: Json) -> None:
        parent, _, name = self.column.rpartition(".")
        fields = _children(_at(schema, parent)) if parent else schema["fields"]
        assert name not in {item["name"] for item in fields}, f"{self.column} is there"
        fields.append(_field(pa.field(name, self.type), _Ids(schema)))


@dataclass(frozen=True, slots=True)
class Promote:
    column: str
    type: pa.DataType

    def apply(self, schema: Json) -> None:
        fields, place = _find(schema, self.column)
        fields[place]["type"] = _primitive(self.type)


Change = Rename | Drop | Add | Promote


def alter(table: Table | Storage | str, *changes: Change, clock: Clock | None = None) -> list[Instant]:
    """Change the schema, one action per change; the completed actions. A `Table` sees it after `refresh`."""
    return [begin_alter(table, change, clock=clock).complete() for change in changes]


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change that is under way: announced on the timeline, and not seen by anybody."""

    storage: Storage
    inflight: Instant
    schema: Json
    clock: Clock

    @property
    def requested_time(self) -> str:
        return self.inflight.requested_time

    def complete(self) -> Instant:
        """Store the history, then publish the commit."""
        client = MetaClient.open(self.storage)
        versions = [self.schema, *_versions(client)]
        done = next_time(self.clock, client.config.timezone, greatest_time(client.timeline))
        for state in ("requested", "inflight"):
            self.storage.put(f"{SCHEMA_DIR}/{self.requested_time}.schemacommit.{state}", b"")
        history = json.dumps({"schemas": versions}).encode()
        self.storage.put(f"{SCHEMA_DIR}/{self.requested_time}_{done}.schemacommit", history)
        text = json.dumps(self.schema)
        avro = json.dumps(table_avro(parse_internal_schema(text).arrow, client.config.name))
        body = CommitMetadata("ALTER_SCHEMA", {}, {"schema": avro, "latest_schema": text})
        data = encode_body(body, self.inflight.action, State.COMPLETED)
        return complete(self.storage, self.inflight, done, data, client.active.folder)


def begin_alter(table: Table | Storage | str, change: Change, *, clock: Clock | None = None) -> Alteration:
    """Announce a change, and leave it there."""
    storage = table if isinstance(table, Storage) else open_storage(table.url if isinstance(table, Table) else table)
    client, ticking = MetaClient.open(storage), clock or SystemClock()
    requested_time = next_time(ticking, client.config.timezone, greatest_time(client.timeline))
    action = Action.DELTA_COMMIT if client.config.is_mor else Action.COMMIT
    requested = create_requested(storage, requested_time, action, b"", client.active.folder)
    inflight = to_inflight(storage, requested, b"", client.active.folder)
    schema = copy.deepcopy(_versions(client)[0])
    change.apply(schema)
    schema["version_id"] = int(requested_time)
    schema["max_column_id"] = _Ids(schema).newest
    return Alteration(storage, inflight, schema, ticking)


# --- versions ---------------------------------------------------------------------------------------------------------


def _versions(client: MetaClient) -> list[Json]:
    """All versions, newest first; a table without a history has one, of number 0."""
    text = client.schema_history()
    if text is not None:
        found: list[Json] = json.loads(text)["schemas"]
        return found
    avro = client.schema_json()
    own = without_meta_fields(avro_to_arrow(avro)) if avro else pa.schema([])
    schema: Json = {"max_column_id": -1, "version_id": 0, "type": "record", "fields": []}
    ids = _Ids(schema)
    schema["fields"] = [_field(column, ids) for column in with_meta_fields(own)]
    schema["max_column_id"] = ids.newest
    return [schema]


class _Ids:
    """Ids that were never used."""

    def __init__(self, schema: Json) -> None:
        self.newest: int = max([schema["max_column_id"], *_ids(schema)])

    def take(self) -> int:
        self.newest += 1
        return self.newest


def _ids(node: Any) -> list[int]:
    if isinstance(node, list):
        return [one for item in node for one in _ids(item)]
    if not isinstance(node, dict):
        return []
    own = [node[key] for key in ("id", "element_id", "key_id", "value_id") if key in node]
    return [*own, *(one for value in node.values() for one in _ids(value))]


def _field(column: pa.Field, ids: _Ids) -> Json:
    own = ids.take()
    return {"id": own, "name": column.name, "optional": column.nullable, "type": _type(column.type, ids)}


def _type(kind: pa.DataType, ids: _Ids) -> Any:
    if pa.types.is_struct(kind):
        return {"type": "record", "fields": [_field(child, ids) for child in kind]}
    if pa.types.is_map(kind):
        key, value = ids.take(), ids.take()
        types = {"key": _type(kind.key_type, ids), "value": _type(kind.item_type, ids)}
        return {"type": "map", "key_id": key, "value_id": value, "value_optional": kind.item_field.nullable, **types}
    if pa.types.is_list(kind):
        own = ids.take()
        element = _type(kind.value_type, ids)
        return {"type": "array", "element_id": own, "element": element, "element_optional": kind.value_field.nullable}
    return _primitive(kind)


def _primitive(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    return _TYPES[kind]


# --- places in a schema -----------------------------------------------------------------------------------------------


def _find(schema: Json, path: str) -> tuple[list[Json], int]:
    """The list that holds the column of a path, and its place there."""
    parent, _, name = path.rpartition(".")
    fields = _children(_at(schema, parent)) if parent else schema["fields"]
    names = [item["name"] for item in fields]
    return fields, names.index(name)


def _at(schema: Json, path: str) -> Any:
    """The type of a column; `element` and `value` lead into lists and maps."""
    kind: Any = schema
    for name in path.split("."):
        if kind.get("type") in ("array", "map"):
            kind = kind[name]
        else:
            kind = next(item for item in kind["fields"] if item["name"] == name)["type"]
    return kind


def _children(kind: Any) -> list[Json]:
    fields: list[Json] = kind["fields"]
    return fields
