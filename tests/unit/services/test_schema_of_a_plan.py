"""A service that was planned before a change of the schema and runs after it: no column turns to nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.config.compaction_options import CompactionOptions
from lakebed.datafile.writers import FileSchema
from lakebed.model.actions import CommitMetadata
from lakebed.model.instant import Instant
from lakebed.model.internal_schema import LATEST_SCHEMA, SCHEMA_ID, parse_internal_schema
from lakebed.read.reader_context import keyed_reader_context
from lakebed.read.schema_versions import version_of_plan
from lakebed.runner import SerialRunner
from lakebed.services import compaction
from lakebed.services.compaction import run_compaction
from lakebed.services.compaction_plan import schedule_compaction
from lakebed.services.compaction_strategy import Strategy
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.txn.options import TxnOptions
from lakebed.txn.txn_context import TxnContext
from tests.schema_changes import Add, Change, Drop, Promote, Rename, alter, begin_alter
from tests.unit.services.compaction_cases import EASY, KEPT, KINDS, answers, client_of, instants_of, slices, sound
from tests.unit.write.tables import Row, make

POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("a", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("s", POINT),
        pa.field("l", pa.list_(pa.field("element", POINT))),
    ]
)
KINDS_HERE = {
    **{name: KINDS[name] for name in ("v10-lsm", "v10-default", "v9-lsm", "v9-default")},
    "v9-avro": {"log_format": "v1", "layout": "default", "properties": {"hoodie.logfile.data.block.format": "avro"}},
}
CHANGES: dict[str, tuple[Change, ...]] = {
    "rename": (Rename("a", "b"),),
    "others": (
        Drop("a"),
        Add("a", pa.string()),
        Promote("n", pa.int64()),
        Rename("s.x", "z"),
        Rename("s.y", "x"),
        Drop("l.element.y"),
        Add("l.element.y", pa.string()),
        Rename("l", "old"),
        Add("l", pa.int64()),
    ),
}
SERVICES: dict[str, Callable[[Table], Any]] = {
    "compaction": lambda table: table.services.plan_compaction(),
    "log compaction": lambda table: table.services.plan_compaction(strategy="log", options=EASY),
    "clustering": lambda table: table.services.plan_clustering(
        {"hoodie.clustering.plan.strategy.sort.columns": "a"} if "v9" in table.name else {}
    ),
}


def item(ident: str, ts: int) -> Row:
    point = {"x": ts, "y": f"y{ts}"}
    return {"id": ident, "ts": ts, "a": f"a{ts}-{ident}", "n": ts, "s": point, "l": [point, None]}


def put(target: Table, *rows: Row, schema: pa.Schema = SCHEMA) -> None:
    target.upsert(pa.Table.from_pylist(list(rows), schema=schema))


def filled(kind: str, **more: Any) -> Table:
    settings = {**KINDS_HERE[kind], **more}
    settings["properties"] = {**KEPT, **settings.get("properties", {})}
    target = make(schema=SCHEMA, partition_by=None, **settings)
    target.bulk_insert(pa.Table.from_pylist([item(f"k{i}", 1) for i in range(6)], schema=SCHEMA))
    for ts in (2, 3, 4):
        put(target, *(item(f"k{i}", ts) for i in range(ts, ts + 3)))
    return target


def written_files(target: Table, instant: Instant) -> list[str]:
    body = client_of(target).body(instant)
    assert isinstance(body, CommitMetadata)
    return [stat.path or "" for stats in body.stats.values() for stat in stats]


# ---------------------------------------------------------------------- planned, changed, run
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_a_column_does_not_turn_null(kind: str, service: str, change: str) -> None:
    buckets = {} if service != "clustering" else {"index": "simple"}
    target = filled(kind, **buckets)
    planned = SERVICES[service](target)
    assert planned.instants
    alter(target, *CHANGES[change])
    known = instants_of(target)
    before = answers(target, known)
    target.services.run(planned)
    assert answers(target, known) == before
    target.update(set={"ts": "9"}, where="id = 'k1'")
    target.services.compact()
    now = {one["id"]: one for one in target.refresh().scan().to_arrow().to_pylist()}
    was = {one["id"]: one for one in target.scan(as_of=known[-1]).to_arrow().to_pylist()}
    changed = ("ts", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
    assert now["k1"]["ts"] == 9
    assert all({**now[key], **{name: was[key][name] for name in changed}} == was[key] for key in was)
    sound(target)


@pytest.mark.parametrize("kind", ["v10-lsm", "v9-lsm"])
def test_buckets_that_are_resized_after_a_change(kind: str) -> None:
    target = filled(kind, index="consistent_bucket", num_buckets=1)
    split = {"hoodie.bucket.index.max.num.buckets": "4", "hoodie.bucket.index.split.threshold": "0.0000001"}
    planned = target.services.plan_clustering(split)
    assert planned.instants
    alter(target, *CHANGES["others"])
    known = instants_of(target)
    before = answers(target, known)
    target.services.run(planned, options=split)
    assert answers(target, known) == before
    assert len(slices(target)) > 1


# ---------------------------------------------------------------------- what a file says of itself
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_a_file_says_which_schema_it_was_written_with(kind: str) -> None:
    target = filled(kind)
    planned = target.services.plan_compaction(strategy="log", options=EASY)
    [rename] = alter(target, Rename("a", "b"))
    [done] = target.services.run(planned)
    target.update(set={"ts": "9"}, where="id = 'k1'")
    write = client_of(target).completed_writes()[-1]
    [whole] = target.services.compact()
    storage = open_storage(target.url)
    for instant, version in ((done, "0"), (write, rename.requested_time), (whole, rename.requested_time)):
        body = client_of(target).body(instant)
        assert isinstance(body, CommitMetadata)
        assert parse_internal_schema(body.extra[LATEST_SCHEMA]).version == int(version)
        for path in written_files(target, instant):
            if path.endswith(".parquet"):
                metadata = pq.read_metadata(pa.BufferReader(storage.read(path))).metadata
                assert metadata[SCHEMA_ID.encode()].decode() == version, path
            elif "avro" not in kind:
                assert f"{SCHEMA_ID}".encode() in storage.read(path)


def test_a_table_without_versions_says_nothing_of_them() -> None:
    target = filled("v10-lsm")
    [done] = target.services.compact()
    storage = open_storage(target.url)
    for path in written_files(target, done):
        assert SCHEMA_ID.encode() not in pq.read_metadata(pa.BufferReader(storage.read(path))).metadata


# ---------------------------------------------------------------------- changes that take their time
@pytest.mark.parametrize("kind", KINDS_HERE)
@pytest.mark.parametrize("strategy", ["full", "log"])
@pytest.mark.parametrize("first", [True, False])
def test_a_change_that_began_before_the_plan_and_completes_after_the_run(kind: str, strategy: str, first: bool) -> None:
    target = filled(kind)
    if not first:
        alter(target, Rename("n", "a_number"))
    changing = begin_alter(target, Rename("a", "b"))
    before = {one["id"]: one["a"] for one in target.scan().to_arrow().to_pylist()}
    _run_beside(target, _planned_beside(target, strategy))
    changing.complete()
    assert {one["id"]: one["b"] for one in target.refresh().scan().to_arrow().to_pylist()} == before


@pytest.mark.parametrize("kind", KINDS_HERE)
@pytest.mark.parametrize("strategy", ["full", "log"])
def test_a_change_that_began_before_the_plan_and_completes_before_the_run(kind: str, strategy: str) -> None:
    target = filled(kind)
    changing = begin_alter(target, Rename("a", "b"))
    before = {one["id"]: one["a"] for one in target.scan().to_arrow().to_pylist()}
    planned = _planned_beside(target, strategy)
    changing.complete()
    known = instants_of(target)
    answered = answers(target, known)
    assert {one["id"]: one["b"] for one in target.scan().to_arrow().to_pylist()} == before
    _run_beside(target, planned)
    assert answers(target, known) == answered


def _txn_context(target: Table) -> TxnContext:
    """Of a writer that leaves alone what others have under way."""
    properties = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    return TxnContext.of(open_storage(target.url), TxnOptions.from_properties(properties))


def _planned_beside(target: Table, strategy: str) -> tuple[Instant, ...]:
    options = CompactionOptions.from_properties(EASY)
    chosen = Strategy(strategy)
    return schedule_compaction(client_of(target), _txn_context(target), chosen, options, force=True).instants


def _run_beside(target: Table, planned: tuple[Instant, ...]) -> None:
    for instant in planned:
        run_compaction(client_of(target), instant, _txn_context(target), SerialRunner())


# ---------------------------------------------------------------------- files that say nothing, and plans of others
@pytest.mark.parametrize("kind", ["v10-lsm", "v9-default", "v9-avro"])
@pytest.mark.parametrize("archived", [False, True])
def test_files_that_say_nothing_are_told_by_their_commit(
    kind: str, archived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As services wrote them that took the schema of the day for files of an older name."""
    target = filled(kind)
    planned = target.services.plan_compaction()
    alter(target, Rename("a", "b"))
    known = instants_of(target)
    before = answers(target, known)
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "reader_context_of_plan", lambda client, *_: keyed_reader_context(client))
        patched.setattr(FileSchema, "footer", {})
        target.services.run(planned)
    assert answers(target, known) == before
    if archived:
        for ts in range(20, 24):
            target.update(set={"ts": str(ts)}, where="id = 'k1'")
        rows = {one["id"]: one["b"] for one in target.scan().to_arrow().to_pylist()}
        target.services.archive(
            {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
        )
        assert client_of(target).history.find(planned.instants[0].requested_time)
        assert {one["id"]: one["b"] for one in target.refresh().scan().to_arrow().to_pylist()} == rows
        assert None not in rows.values()


def test_a_plan_whose_inputs_are_newer_than_it_loses_no_column() -> None:
    target = filled("v10-lsm")
    client = client_of(target)
    early = client.completed_writes()[-1].requested_time
    [added] = alter(target, Add("more", pa.int64()))
    on_read = keyed_reader_context(client_of(target)).on_read
    assert on_read is not None
    assert version_of_plan(on_read, early, [early]).version == 0
    assert version_of_plan(on_read, early, [early, added.completion_time or ""]).version == int(added.requested_time)


def test_the_schema_of_a_service_is_not_the_tables() -> None:
    target = filled("v10-lsm")
    changing = begin_alter(target, Rename("a", "b"))
    planned = _planned_beside(target, "full")
    changing.complete()
    _run_beside(target, planned)
    assert client_of(target).completed_writes()[-1].requested_time == planned[0].requested_time
    assert '"b"' in (client_of(target).schema_json() or "")
    assert "b" in target.refresh().schema.names
    target.update(set={"b": "'new'"}, where="id = 'k1'")
    assert target.scan(filter="b = 'new'").count() == 1
