"""Small tables to write to, and what is in them."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.model.schema import META_FIELD_NAMES
from lakebed.storage.open import open_storage
from lakebed.table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("p", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("txt", pa.string()),
    ]
)
Row = dict[str, Any]


def make(**settings: Any) -> Table:
    """A table in memory; keys `id`, ordered by `ts`, partitioned by `p`, two buckets, unless told otherwise."""
    chosen: dict[str, Any] = {"record_key": "id", "ordering": "ts", "partition_by": "p", "num_buckets": 2}
    if settings.get("index", "bucket") not in ("bucket", "consistent_bucket") or not settings.get("record_key", "id"):
        chosen["num_buckets"] = None
    schema = settings.pop("schema", SCHEMA)
    return lakebed.create(f"memory://write/{uuid.uuid4().hex}", schema, **(chosen | settings))


def row(ident: str, ts: int | None = 1, p: str = "a", v: int | None = 0, txt: str | None = None, **more: Any) -> Row:
    return {"id": ident, "ts": ts, "p": p, "v": v, "txt": txt, **more}


def table(*rows: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def held(target: Table, *columns: str) -> list[Row]:
    """The rows of a table without meta columns, by partition and key."""
    wanted = columns or tuple(name for name in target.schema.names if name not in META_FIELD_NAMES)
    rows = target.scan().select(*wanted).to_arrow().to_pylist()
    return sorted(rows, key=lambda item: [str(value) for value in item.values()])


def values(target: Table, *columns: str) -> list[tuple[Any, ...]]:
    """The same as tuples."""
    return sorted((tuple(item.values()) for item in held(target, *columns)), key=lambda item: list(map(str, item)))


def files(target: Table, folder: str = "") -> dict[str, bytes]:
    """Every file of the table with its content."""
    storage = open_storage(target.url)
    return {info.path: storage.read(info.path) for info in storage.list(folder, recursive=True)}
