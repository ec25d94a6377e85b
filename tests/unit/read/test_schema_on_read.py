"""Tables whose columns are renamed, dropped and added under schema-on-read, read at every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.read.merge_vector_cache import MERGE_VECTORS, vectors_for_engines
from lakebed.table import Table
from lakebed.testing.clock import ManualClock
from lakebed.timeline.clock import SystemClock, instant_time_now
from lakebed.timeline.meta_client import MetaClient
from tests.schema_changes import Add, Drop, Promote, Rename, alter, begin_alter
from tests.unit.write.tables import make

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("n", pa.int32())])
KINDS: dict[str, dict[str, Any]] = {
    "cow": {"table_type": "cow", "index": "simple"},
    "cow-lsm": {"table_type": "cow"},
    "mor-lsm": {"log_format": "v2"},
    "mor-default": {"log_format": "v2", "layout": "default"},
    "mor-v1": {"log_format": "v1"},
    "mor-avro": {"log_format": "v1", "layout": "default", "properties": {"hoodie.logfile.data.block.format": "avro"}},
}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
Rows = list[dict[str, Any]]


def made(kind: str, path: Path | None = None) -> Table:
    settings = {**KINDS[kind]}
    settings["properties"] = {**QUIET, **settings.get("properties", {})}
    if path is None:
        return make(schema=SCHEMA, partition_by=None, **settings)
    return lakebed.create(path, SCHEMA, record_key="id", ordering="ts", num_buckets=1, **settings)


def own(scan: Any) -> Rows:
    rows = scan.to_arrow().to_pylist()
    kept = [{name: value for name, value in row.items() if not name.startswith("_hoodie")} for row in rows]
    return sorted(kept, key=lambda row: str(row["id"]))


def put(target: Table, *rows: dict[str, Any]) -> None:
    target.upsert(pa.Table.from_pylist(list(rows), schema=own_schema(target)))


def own_schema(target: Table) -> pa.Schema:
    return pa.schema([item for item in target.refresh().schema if not item.name.startswith("_hoodie")])


class Past:
    """The rows after every action, to be asked again after each later one."""

    def __init__(self, target: Table) -> None:
        self.target = target
        self.known: dict[str, Rows] = {}
        self.note()

    def note(self) -> None:
        client: MetaClient = self.target.refresh()._client
        newest = max(client.completed_writes(), key=lambda one: one.completion_time or "")
        self.known[newest.completion_time or ""] = own(self.target.scan())
        self.check()

    def check(self) -> None:
        for time, rows in self.known.items():
            assert own(self.target.scan(as_of=time)) == rows, time
            assert own(self.target.incremental("0", end=time)) == rows, time


@pytest.mark.parametrize("kind", KINDS)
def test_time_travel_before_a_column_was_dropped_and_added_again(kind: str) -> None:
    target = made(kind)
    put(target, {"id": "1", "ts": 1, "a": "one", "n": 1}, {"id": "2", "ts": 1, "a": "two", "n": 2})
    past = Past(target)
    put(target, {"id": "2", "ts": 2, "a": "deux", "n": 22})
    past.note()
    alter(target, Drop("a"))
    past.note()
    alter(target, Add("a", pa.string()))
    past.note()
    assert {row["a"] for row in own(target.scan())} == {None}
    put(target, {"id": "1", "ts": 3, "a": "again", "n": 3})
    past.note()
    assert [row["a"] for row in own(target.scan())] == ["again", None]
    if kind.startswith("mor"):
        target.services.compact()
        past.note()
    assert [[row["a"] for row in rows] for rows in list(past.known.values())[:2]] == [["one", "two"], ["one", "deux"]]


@pytest.mark.parametrize("kind", KINDS)
def test_time_travel_through_renames_and_promotions(kind: str) -> None:
    target = made(kind)
    put(target, {"id": "1", "ts": 1, "a": "one", "n": 1}, {"id": "2", "ts": 1, "a": "two", "n": 2})
    past = Past(target)
    for change in (Rename("a", "b"), Promote("n", pa.int64()), Rename("n", "a"), Rename("b", "n")):
        alter(target, change)
        past.note()
        newest = {"id": "2", "ts": len(past.known) + 1, "n": None}
        put(target, {**newest, **{name: None for name in own_schema(target).names if name not in newest}})
        past.note()
    assert own(target.scan())[0] == {"id": "1", "ts": 1, "n": "one", "a": 1}
    assert target.scan(filter="n = 'one'").count() == 1
    assert target.scan(filter="a = 'one'", as_of=next(iter(past.known))).count() == 1
    assert target.schema.field("a").type == pa.int64()
    assert target.scan(as_of=next(iter(past.known))).schema.field("n").type == pa.int32()


def test_a_time_between_the_beginning_and_the_end_of_a_change() -> None:
    target = made("mor-lsm")
    put(target, {"id": "1", "ts": 1, "a": "one", "n": 1})
    clock = ManualClock(SystemClock().now_ms() + 1000)
    under_way = begin_alter(target, Rename("a", "b"), clock=clock)
    clock.advance(5)
    between = instant_time_now(clock)
    clock.advance(5)
    changed = under_way.complete()
    assert changed.completion_time is not None
    assert changed.requested_time < between < changed.completion_time
    assert own(target.refresh().scan(as_of=changed.completion_time)) == [{"id": "1", "ts": 1, "b": "one", "n": 1}]
    assert own(target.scan(as_of=between)) == [{"id": "1", "ts": 1, "a": "one", "n": 1}]


def test_vectors_are_kept_for_a_version_of_the_schema(tmp_path: Path) -> None:
    """A column of one name and type may be two columns: what an engine may read natively differs."""
    target = made("mor-lsm", tmp_path / "t")
    put(target, {"id": "1", "ts": 1, "a": "one", "n": 1})
    put(target, {"id": "1", "ts": 2, "a": "uno", "n": 1})
    before = target.inspect.timeline().to_pylist()[-1]["instant"]
    alter(target, Drop("n"), Add("n", pa.int32()))
    past, now = target.refresh().scan(as_of=before).plan(), target.scan().plan()
    assert past.schema == now.schema
    assert vectors_for_engines(past.reader, past.splits[0]) is not None
    assert vectors_for_engines(now.reader, now.splits[0]) is None
    assert not now.schema_is_stable
    for _ in range(3):
        assert own(target.scan(as_of=before)) == [{"id": "1", "ts": 2, "a": "uno", "n": 1}]
        assert own(target.scan()) == [{"id": "1", "ts": 2, "a": "uno", "n": None}]
    MERGE_VECTORS.clear()


@pytest.mark.parametrize("kind", ["mor-lsm", "mor-v1", "cow"])
def test_text_behind_dictionaries_under_another_name(kind: str, tmp_path: Path) -> None:
    """What the file calls `a` is asked for as `t`, and the other way round."""
    target = made(kind, tmp_path / "t")
    alter(target, Add("t", pa.string()))
    put(target, *({"id": str(i), "ts": i, "a": "a" * (i % 3), "n": i, "t": f"t{i % 2}"} for i in range(50)))
    put(target, *({"id": str(i), "ts": i + 1, "a": "x", "n": i, "t": f"t{i % 2}"} for i in range(0, 50, 7)))
    before = {row["id"]: (row["a"], row["t"]) for row in own(target.scan())}
    alter(target, Rename("a", "other"), Rename("t", "a"), Rename("other", "t"))
    for _ in range(2):
        assert {row["id"]: (row["t"], row["a"]) for row in own(target.refresh().scan())} == before
    assert target.scan(filter="t = 'x'").count() == 8
