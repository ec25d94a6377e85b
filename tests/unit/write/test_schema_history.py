"""Writes to tables whose columns have ids: the history goes on, and nobody writes past a change of the schema."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import SCHEMA_DIR
from lakebed.model.internal_schema import parse_schema_history
from lakebed.read.reader_context import reader_context_of
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.write import job
from tests.schema_changes import Add, Drop, Rename, alter
from tests.unit.write.tables import make, row, table, values

KEEP_FEW = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "1"}


def made() -> Table:
    target = make(partition_by=None, properties={"hoodie.archive.automatic": "false"})
    target.upsert(table(row("1", v=1, txt="one"), row("2", v=2, txt="two")))
    return target


def saved(target: Table) -> list[str]:
    return sorted(info.name for info in open_storage(target.url).list(SCHEMA_DIR))


def client_of(target: Table) -> MetaClient:
    return MetaClient.open(open_storage(target.url))


def test_every_write_saves_the_history_anew() -> None:
    target = made()
    assert saved(target) == []
    [changed] = alter(target, Rename("txt", "label"))
    target.refresh().update(set={"v": "9"}, where="id = '1'")
    write = client_of(target).completed_writes()[-1]
    names = [name for name in saved(target) if name.startswith(write.requested_time)]
    assert [name.partition(".")[2] for name in names] == [
        "schemacommit.inflight",
        "schemacommit.requested",
        "schemacommit",
    ]
    text = open_storage(target.url).read(f"{SCHEMA_DIR}/{names[-1]}")
    assert [one.version for one in parse_schema_history(text).versions] == [0, int(changed.requested_time)]
    first = open_storage(target.url).read(
        f"{SCHEMA_DIR}/{changed.requested_time}_{changed.completion_time}.schemacommit"
    )
    assert json.loads(text) == json.loads(first)


def test_histories_of_archived_writes_go_and_the_columns_stay() -> None:
    target = made()
    alter(target, Rename("txt", "label"), Drop("v"), Add("v", pa.int64()))
    target.refresh()
    for turn in range(12):
        target.update(set={"ts": str(turn + 5)}, where="id = '1'")
        target.services.archive(KEEP_FEW)
    completed = [name for name in saved(target) if name.endswith(".schemacommit")]
    assert len(completed) <= 9
    active = {one.requested_time for one in client_of(target).completed_writes()}
    assert completed[-1].partition("_")[0] in active
    assert values(target.refresh(), "id", "label", "v") == [("1", "one", None), ("2", "two", None)]


def test_a_client_older_than_every_history_is_told() -> None:
    target = made()
    alter(target, Rename("txt", "label"))
    target.refresh().update(set={"v": "9"}, where="id = '1'")
    old = client_of(target)
    storage = open_storage(target.url)
    storage.delete([f"{SCHEMA_DIR}/{name}" for name in saved(target)])
    storage.put(f"{SCHEMA_DIR}/29990101000000000_29990101000000001.schemacommit", b'{"schemas": []}')
    with pytest.raises(ConflictError, match="has changed"):
        reader_context_of(old)


def test_a_history_that_vanishes_while_it_is_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    target = made()
    alter(target, Rename("txt", "label"))
    read = MemoryStorage.read

    def vanished(self: MemoryStorage, path: str) -> bytes:
        if path.startswith(SCHEMA_DIR):
            raise FileNotFoundError(path)
        return read(self, path)

    monkeypatch.setattr(MemoryStorage, "read", vanished)
    with pytest.raises(ConflictError, match="has changed"):
        reader_context_of(client_of(target))


@pytest.mark.parametrize("first", [True, False])
def test_rows_prepared_before_a_change_are_not_written_after_it(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest write tells the schema: one that knows nothing of the change would take it back."""
    target = made()
    if not first:
        alter(target, Add("more", pa.int64()))
    known: list[str] = []
    begin = job.begin

    def after_a_change(*given: Any) -> Any:
        alter(target, Rename("txt", "label"))
        known.extend(saved(target))
        return begin(*given)

    with monkeypatch.context() as patched:
        patched.setattr(job, "begin", after_a_change)
        with pytest.raises(ConflictError, match="changed the schema"):
            target.refresh().update(set={"v": "9"}, where="id = '1'")
    assert saved(target) == known
    assert values(target.refresh(), "id", "label") == [("1", "one"), ("2", "two")]
    target.update(set={"v": "9"}, where="id = '1'")
    assert values(target, "id", "label", "v") == [("1", "one", 9), ("2", "two", 2)]


def test_a_change_that_completes_during_a_write_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    target = made()
    alter(target, Add("more", pa.int64()))
    target.refresh()
    context = job.write_context

    def changed_meanwhile(*given: Any) -> Any:
        alter(target, Rename("txt", "label"))
        return context(*given)

    with monkeypatch.context() as patched:
        patched.setattr(job, "write_context", changed_meanwhile)
        with pytest.raises(ConflictError, match="changed the schema"):
            target.update(set={"v": "9"}, where="id = '1'")
    assert values(target.refresh(), "id", "label", "v") == [("1", "one", 1), ("2", "two", 2)]
    versions = reader_context_of(client_of(target)).on_read
    assert versions is not None
    assert [len(one.fields) for one in versions.history.versions] == [10, 11, 11]
    undone = [name for name in saved(target) if not client_of(target).is_committed(name[:17])]
    assert undone == []
    target.update(set={"label": "'x'"}, where="id = '1'")
    assert values(target, "id", "label", "v") == [("1", "x", 1), ("2", "two", 2)]


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [("more", pa.int64(), "new columns"), ("v", pa.float64(), r"other types \(v\)")],
)
def test_data_that_would_change_the_schema_is_refused(column: str, kind: pa.DataType, words: str) -> None:
    target = made()
    alter(target, Rename("txt", "label"))
    target.refresh()
    own = pa.schema([item for item in target.schema if not item.name.startswith("_hoodie")])
    data = pa.Table.from_pylist([{"id": "1", "ts": 5, "p": "a", "v": 1, "label": "x"}], schema=own)
    place = own.get_field_index(column)
    other = pa.array([1], kind)
    data = data.append_column(column, other) if place < 0 else data.set_column(place, column, other)
    with pytest.raises(InvalidRequest, match=words):
        target.upsert(data)
    assert values(target.refresh(), "id", "label", "v") == [("1", "one", 1), ("2", "two", 2)]
