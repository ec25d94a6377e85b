"""The table's schema is that of the write which completed last, on the active timeline and in the history."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CommitMetadata
from lakebed.model.instant import Action, State
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.history_columns import BODIES_SCHEMA
from lakebed.timeline.history_writer import flush
from lakebed.timeline.meta_client import MetaClient
from tests.unit.txn.tables import new_table

Write = tuple[int, int, str, str]
"""Begin, completion, operation and schema."""


def t(number: int) -> str:
    return f"{20260101000000000 + number}"


def body(operation: str, schema: str) -> bytes:
    return encode_body(CommitMetadata(operation, {}, {"schema": schema}), Action.COMMIT, State.COMPLETED)


def table(*writes: Write) -> MemoryStorage:
    storage = new_table()
    for requested_time, done, operation, schema in writes:
        storage.put(f".hoodie/timeline/{t(requested_time)}_{t(done)}.commit", body(operation, schema))
    return storage


def archived(storage: MemoryStorage, *writes: Write) -> None:
    """One more file of the history, which may overlap the others."""
    rows = [
        (t(requested_time), t(done), "commit", body(operation, schema), None)
        for requested_time, done, operation, schema in writes
    ]
    arrays = [pa.array(column, item.type) for column, item in zip(zip(*rows, strict=True), BODIES_SCHEMA, strict=True)]
    flush(MetaClient.open(storage).history, pa.Table.from_arrays(arrays, schema=BODIES_SCHEMA))


def schema(storage: MemoryStorage, at: int | None = None) -> str | None:
    return MetaClient.open(storage).schema_json(t(at) if at is not None else None)


SLOW: tuple[Write, ...] = ((10, 60, "UPSERT", "new"), (20, 30, "UPSERT", "old"))


def test_what_completed_last_counts_though_it_began_first() -> None:
    assert schema(table(*SLOW)) == "new"
    assert schema(table(*SLOW), at=59) == "old"


@pytest.mark.parametrize("operation", ["COMPACT", "LOG_COMPACT", "CLUSTER"])
def test_a_service_that_read_the_schema_before_it_changed(operation: str) -> None:
    late: Write = (25, 90, operation, "old")
    assert schema(table(*SLOW, late)) == "new"
    assert schema(table(late)) == "old", "where nothing else says one"


def test_archived_writes_in_files_that_overlap() -> None:
    storage = table((100, 105, "UPSERT", ""))
    archived(storage, SLOW[0], (40, 45, "UPSERT", "between"))
    archived(storage, SLOW[1], (35, 70, "COMPACT", "of a service"))
    assert schema(storage) == "new"
    assert schema(storage, at=59) == "between"
    assert schema(storage, at=31) == "old"
    assert schema(storage, at=29) is None


def test_bodies_of_neighbours_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = table((1000, 1005, "UPSERT", ""))
    archived(storage, (1, 2, "UPSERT", "old"), *((n, n + 1, "UPSERT", "") for n in range(10, 200)))
    client = MetaClient.open(storage)
    opened = []
    read = client.history._reader._read
    monkeypatch.setattr(client.history._reader, "_read", lambda *args: opened.append(args) or read(*args))  # type: ignore[func-returns-value]
    assert client.schema_json() == "old"
    assert len(opened) < 5
