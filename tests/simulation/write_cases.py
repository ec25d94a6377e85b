"""Every write operation on a small table, with a plain dict that says what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.errors import TableNotFound
from lakebed.format.names import HEARTBEAT_DIR, TEMP_DIR
from lakebed.model.finding import Finding, Severity
from lakebed.runner import SerialRunner
from lakebed.storage.storage import Storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.txn_context import TxnContext
from lakebed.write.create.create_table import NewTable, create_table

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
Row = tuple[str, int, str, int]
Rows = dict[str, Row]
"""The table by key: no key is in two partitions here."""

KINDS = {"mor-v2": ("mor", "v2", "bucket"), "mor-v1": ("mor", "v1", "bucket"), "cow": ("cow", "v1", "simple")}
FIRST: list[Row] = [(f"k{i}", 1, f"p{i % 2}", i) for i in range(6)]
NEW: list[Row] = [("k1", 2, "p1", 100), ("k2", 2, "p0", 200), ("n1", 1, "p1", 7), ("n2", 1, "p2", 8)]
LAST: Row = ("z", 9, "p0", 99)


def data(rows: list[Row]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)], schema=SCHEMA
    )


def by_key(rows: list[Row]) -> Rows:
    return {row[0]: row for row in rows}


@dataclass(frozen=True, slots=True)
class Case:
    """One operation: what is called, and what the model becomes."""

    run: Callable[[Table], Any]
    model: Callable[[Rows], Rows]


def _without(rows: Rows, gone: Callable[[Row], bool]) -> Rows:
    return {key: row for key, row in rows.items() if not gone(row)}


CASES: dict[str, Case] = {
    "bulk_insert": Case(lambda t: t.bulk_insert(data(NEW[2:])), lambda rows: rows | by_key(NEW[2:])),
    "insert": Case(lambda t: t.insert(data(NEW[2:])), lambda rows: rows | by_key(NEW[2:])),
    "upsert": Case(lambda t: t.upsert(data(NEW)), lambda rows: rows | by_key(NEW)),
    "delete_keys": Case(
        lambda t: t.delete(keys=[{"id": "k0", "p": "p0"}, {"id": "k3", "p": "p1"}]),
        lambda rows: _without(rows, lambda row: row[0] in ("k0", "k3")),
    ),
    "delete_where": Case(lambda t: t.delete(where="v >= 3"), lambda rows: _without(rows, lambda row: row[3] >= 3)),
    "update": Case(
        lambda t: t.update(set={"v": "v + 10"}, where="p = 'p1'"),
        lambda rows: {key: (*row[:3], row[3] + 10) if row[2] == "p1" else row for key, row in rows.items()},
    ),
    "overwrite": Case(lambda t: t.overwrite(data(NEW)), lambda _: by_key(NEW)),
    "overwrite_partitions": Case(
        lambda t: t.overwrite_partitions(data(NEW[1:2])),
        lambda rows: _without(rows, lambda row: row[2] == "p0") | by_key(NEW[1:2]),
    ),
    "delete_partitions": Case(
        lambda t: t.delete_partitions(["p1"]), lambda rows: _without(rows, lambda row: row[2] == "p1")
    ),
}


def new_table(kind: str) -> NewTable:
    table_type, log_format, index = KINDS[kind]
    return NewTable(
        "t", SCHEMA, ("id",), ("p",), ("ts",), table_type=table_type, log_format=log_format, index=index, num_buckets=2
    )


def make_table(storage: Storage, kind: str) -> bool:
    return create_table(storage, new_table(kind))


def table_on(storage: Storage, txn_context: TxnContext | None = None) -> Table:
    """A table whose tasks run one after the other, so that a step number means the same in every run."""
    table = Table(MetaClient.open(storage), txn_context=txn_context)
    table._runner = SerialRunner()  # type: ignore[assignment]
    return table


def fill(storage: Storage, kind: str, txn_context: TxnContext | None = None) -> Rows:
    """A table with a base file and, where there are logs, logs; what it holds."""
    make_table(storage, kind)
    table = table_on(storage, txn_context)
    table.bulk_insert(data(FIRST))
    table.upsert(data([("k4", 2, "p0", 44), ("k5", 2, "p1", 55)]))
    return by_key(FIRST) | {"k4": ("k4", 2, "p0", 44), "k5": ("k5", 2, "p1", 55)}


def read(storage: Storage) -> Rows | None:
    """What a fresh reader sees; None when there is no table."""
    try:
        table = lakebed.table.Table(MetaClient.open(storage))
    except TableNotFound:
        return None
    rows = table.scan(columns=SCHEMA.names).to_arrow().to_pylist()
    found = by_key([tuple(row.values()) for row in rows])  # type: ignore[misc]
    assert len(found) == len(rows), "a key twice"
    return found


def serious(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def leftovers(storage: Storage) -> list[str]:
    """Heartbeats, markers and temporaries: nothing of these outlives a write."""
    found = [info.path for folder in (HEARTBEAT_DIR, TEMP_DIR) for info in storage.list(folder, recursive=True)]
    folders = list(storage.list_folders(TEMP_DIR))
    return [path for path in found if not path.endswith("/lakebed.lock")] + folders


def check_recovered(storage: Storage, before: set[str], wanted: Rows, txn_context: TxnContext | None = None) -> None:
    """The next write succeeds, and after it nothing is left of what died: no instant, no file, no marker."""
    table = table_on(storage, txn_context)
    table.upsert(data([LAST]))
    assert read(storage) == wanted | {"z": LAST}
    client = MetaClient.open(storage)
    assert not client.timeline.pending.instants
    assert leftovers(storage) == []
    assert serious(table.check()) == []
    known = {instant.requested_time for instant in client.timeline}
    for path in (info.path for info in storage.list("", recursive=True)):
        if path not in before and path.endswith((".parquet",)):
            assert any(requested_time in path for requested_time in known), f"{path} belongs to nothing"
