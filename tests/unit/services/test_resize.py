"""Clustering under consistent hashing: buckets split and merge, no answer changes, and writers find every key."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app
from lakebed.datafile.base_file import open_base_file
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import HASHING_META_DIR
from lakebed.index.consistent import load_hashing
from lakebed.model.actions import RequestedReplace
from lakebed.model.instant import Action
from lakebed.storage.open import open_storage
from lakebed.table import Table
from tests.unit.services.compaction_cases import (
    EASY,
    KEPT,
    MARKED,
    answers,
    client_of,
    gone,
    instants_of,
    put,
    rows_of,
    slices,
    sound,
)
from tests.unit.write.tables import make, row, table

KINDS: dict[str, dict[str, Any]] = {
    "v10-lsm": {"log_format": "v2"},
    "v9-lsm": {"log_format": "v1"},
    "v10-default": {"log_format": "v2", "layout": "default"},
    "v9-default": {"log_format": "v1", "layout": "default"},
}
MOST, LEAST = "hoodie.bucket.index.max.num.buckets", "hoodie.bucket.index.min.num.buckets"
SPLIT = {"hoodie.parquet.max.file.size": "1000", "hoodie.bucket.index.split.threshold": "1.0", MOST: "8"}
MERGE = {LEAST: "1"}
WRITTEN = Path(__file__).parent / "data" / "written_while_resized_v9.zip"
"""Made by real Hudi: `pending` has a resize planned and updates in old and new buckets, `resized` ran it then."""
HUDIS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
}


def filled(kind: str, **more: Any) -> Table:
    given = {**KINDS[kind], "index": "consistent_bucket", "schema": MARKED, "properties": KEPT, **more}
    target = make(**given)
    put(target, *(row(f"k{i:03d}", 1, "ab"[i % 2], v=i, txt=f"t{i % 7}") for i in range(80)))
    put(target, *(row(f"k{i:03d}", 2 - i % 3, "ab"[i % 2], v=1000 + i) for i in range(0, 80, 5)))
    put(target, {**gone("k008", 3), "p": "a"}, row("new", 1, "a", v=5))
    target.delete(keys=[{"id": "k010", "p": "a"}, {"id": "k011", "p": "b"}])
    put(target, row("k010", 0, "a", v=-10))
    return target


def ring_sizes(target: Table) -> list[int]:
    found = [load_hashing(client_of(target), path) for path in ("p=a", "p=b")]
    return [len(ring.ring) for ring in found if ring is not None]


def check_rows_are_in_their_buckets(target: Table) -> None:
    """An update of every key and a look-up: no key is there twice."""
    now = target.refresh().scan().select("id", "p").to_arrow().to_pylist()
    put(target, *(row(one["id"], 99, one["p"], v=7) for one in now))
    after = target.scan().select("id", "v").to_arrow().to_pylist()
    assert sorted(one["id"] for one in after) == sorted(one["id"] for one in now)
    assert {one["v"] for one in after} == {7}
    on_rings = {node.file_id for path in ("p=a", "p=b") for node in load_hashing(client_of(target), path).ring}  # type: ignore[union-attr]
    assert {file_slice.file_group.file_id for file_slice in slices(target)} <= on_rings


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_changes(kind: str) -> None:
    target = filled(kind)
    known = instants_of(target)
    before = answers(target, known)
    [done] = target.services.cluster(SPLIT)
    assert done.action is Action.REPLACE_COMMIT
    assert answers(target, known) == before
    assert ring_sizes(target) == [4, 4]
    sound(target)
    storage = open_storage(target.url)
    names = {info.name for info in storage.list(f"{HASHING_META_DIR}/p=a")}
    assert {f"{done.requested_time}.hashing_meta", f"{done.requested_time}.commit"} <= names
    [merged] = target.services.cluster(MERGE)
    assert answers(target, known) == before
    assert ring_sizes(target) == [1, 1]
    assert len(slices(target)) == 2
    assert target.services.cluster(MERGE) == (), "nothing is left to do"
    sound(target)
    before = rows_of(target.scan())
    assert (
        rows_of(target.scan(as_of=done.requested_time)) == rows_of(target.scan(as_of=merged.requested_time)) == before
    )
    check_rows_are_in_their_buckets(target)


@pytest.mark.parametrize("kind", ["v10-lsm", "v9-lsm"])
def test_files_of_the_lsm_layout_are_sorted_and_marked(kind: str) -> None:
    target = filled(kind)
    target.services.cluster(SPLIT)
    storage = open_storage(target.url)
    for file_slice in slices(target):
        assert file_slice.base_file is not None
        assert not file_slice.log_files
        with open_base_file(storage, file_slice.base_file) as source:
            assert source.is_sorted
        keys = (
            pq.ParquetFile(storage.open_input(file_slice.base_file.path))
            .read(["_hoodie_record_key"])
            .column(0)
            .to_pylist()
        )
        assert keys == sorted(keys)


def test_default_layout_in_an_order_of_its_own() -> None:
    target = filled("v9-default")
    before = rows_of(target.scan())
    target.services.cluster({**SPLIT, "hoodie.clustering.plan.strategy.sort.columns": "v"})
    assert rows_of(target.scan()) == before
    storage = open_storage(target.url)
    for file_slice in slices(target):
        assert file_slice.base_file is not None
        values = pq.ParquetFile(storage.open_input(file_slice.base_file.path)).read(["v"]).column(0).to_pylist()
        assert values == sorted(values)
    check_rows_are_in_their_buckets(target)


def test_a_key_that_a_bucket_holds_twice_stays_there_twice() -> None:
    """Files that do not say that they are sorted may repeat keys; what comes of them does not say so either."""
    target = make(index="consistent_bucket", layout="default", log_format="v1", properties=KEPT, num_buckets=1)
    target.bulk_insert(table(*(row(f"k{i}", v=i) for i in range(50))))
    [file_slice], storage = slices(target), open_storage(target.url)
    assert file_slice.base_file is not None
    rows = pq.ParquetFile(storage.open_input(file_slice.base_file.path)).read()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables([rows, rows.slice(7, 1)]), sink, compression="none")
    storage.put(file_slice.base_file.path, sink.getvalue().to_pybytes().ljust(file_slice.base_file.size))
    path = ".hoodie/hoodie.properties"
    storage.put(path, storage.read(path).replace(b"storage.layout=default", b"storage.layout=lsm_tree"))
    target = lakebed.open(target.url)
    before = rows_of(target.scan())
    assert len(before) == 51
    target.services.cluster(SPLIT)
    assert rows_of(target.scan()) == before
    marks = []
    for made in slices(target):
        assert made.base_file is not None
        with open_base_file(storage, made.base_file) as source:
            marks.append(source.is_sorted)
    assert marks == [False, False]


def test_memory_is_bounded() -> None:
    target = filled("v10-lsm")
    before = rows_of(target.scan())
    target.services.cluster(SPLIT, memory="1MB")
    assert rows_of(target.scan()) == before


def test_without_bounds_nothing_happens_and_the_plan_says_why() -> None:
    target = filled("v10-lsm")
    options = {key: value for key, value in SPLIT.items() if key != MOST}
    assert "may not have more than 2 buckets" in target.services.explain_clustering(options).explain()
    assert target.services.cluster(options) == ()
    assert "may not have fewer than 2 buckets" in target.services.explain_clustering().explain()


# ---------------------------------------------------------------------- while a resize is pending
def test_writers_wait_for_a_resize_and_partitions_get_no_second() -> None:
    target = filled("v10-lsm")
    only = {"hoodie.clustering.plan.strategy.partition.selected": "p=a"}
    [planned] = target.services.plan_clustering({**SPLIT, **only}).instants
    with pytest.raises(ConflictError, match=planned.requested_time):
        put(target, row("k000", 9, "a"))
    put(target, row("k001", 9, "b", v=9))
    again = target.services.plan_clustering(SPLIT)
    assert {file_slice.file_group.partition_path for group in again.groups for file_slice in group} == {"p=b"}
    assert all(
        "will take it" in reason for group, reason in (again.left or {}).items() if group.partition_path == "p=a"
    )
    assert not {one.file_group.partition_path for one in slices(target)} - {"p=a", "p=b"}
    before = rows_of(target.scan())
    assert len(target.services.run(target.services.pending_clusterings())) == 2
    assert ring_sizes(target) == [4, 4]
    assert rows_of(target.scan()) == before
    check_rows_are_in_their_buckets(target)


def test_a_plan_that_was_rolled_back_is_no_more() -> None:
    target = filled("v9-lsm")
    [planned] = target.services.plan_clustering(SPLIT).instants
    target.services.rollback(planned)
    put(target, row("k000", 9, "a", v=9))
    assert ring_sizes(target) == [2, 2]
    [done] = target.services.cluster(SPLIT)
    target.services.rollback(done)
    assert ring_sizes(target) == [2, 2]
    storage = open_storage(target.url)
    assert not [
        info.name for info in storage.list(HASHING_META_DIR, recursive=True) if done.requested_time in info.name
    ]
    sound(target)
    check_rows_are_in_their_buckets(target)


def test_groups_that_were_replaced_since_are_left() -> None:
    """The ring that was planned for is not there any more."""
    target = filled("v10-lsm")
    [planned] = target.services.plan_clustering(SPLIT).instants
    target.overwrite_partitions(table({**row("only", 1, "a"), "_hoodie_is_deleted": False}, schema=MARKED))
    before = rows_of(target.scan())
    target.services.run(planned)
    assert ring_sizes(target) == [2, 4], "p=a has another ring, that of p=b was split"
    assert rows_of(target.scan()) == before
    check_rows_are_in_their_buckets(target)


def test_files_of_buckets_in_other_plans_stay() -> None:
    target = filled("v10-lsm")
    target.services.plan_compaction()
    assert target.services.plan_clustering(SPLIT).groups == ()
    assert all("will take it" in reason for reason in (target.services.explain_clustering(SPLIT).left or {}).values())


def test_other_hash_columns_than_the_writers_had_are_noticed() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int64())])
    hashed = {**KEPT, "hoodie.bucket.index.hash.field": "a"}
    target = make(schema=schema, record_key=["a", "b"], ordering=None, partition_by=None, index="consistent_bucket")
    target.upsert(pa.table({"a": [f"a{i}" for i in range(40)], "b": ["x"] * 40, "v": range(40)}, schema=schema))
    with pytest.raises(InvalidRequest, match=r"hash\.field"):
        target.services.cluster({**SPLIT, "hoodie.bucket.index.hash.field": "b"})
    [planned] = target.services.pending_clusterings()
    before = rows_of(target.scan())
    assert target.services.run(planned)
    assert rows_of(target.scan()) == before
    other = make(schema=schema, record_key=["a", "b"], ordering=None, partition_by=None, index="consistent_bucket",
                 properties=hashed)  # fmt: skip
    other.upsert(pa.table({"a": [f"a{i}" for i in range(40)], "b": ["x"] * 40, "v": range(40)}, schema=schema))
    before = rows_of(other.scan())
    assert other.services.cluster(SPLIT)
    assert rows_of(other.scan()) == before


# ---------------------------------------------------------------------- tables of real Hudi
@pytest.fixture
def written(tmp_path: Path) -> Path:
    with zipfile.ZipFile(WRITTEN) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_updates_that_hudi_wrote_into_buckets_to_come(written: Path) -> None:
    """Hudi read 101 rows of both, with these two."""

    def rows_of(scan: Any) -> list[str]:  # sequence numbers differ between the two logs of an update
        return sorted(map(str, scan.select("_hoodie_commit_time", "id", "ts", "p", "v").to_arrow().to_pylist()))

    late = [{"id": "k002", "ts": 5, "p": "p0", "v": 177}, {"id": "neu", "ts": 5, "p": "p0", "v": 177}]
    pending = lakebed.open(written / "pending", options=HUDIS)
    resized = lakebed.open(written / "resized", options=HUDIS)
    [planned] = pending.services.pending_clusterings()
    pending_rows = rows_of(pending.scan())
    for target in (pending, resized):
        assert target.scan().count() == 101
        assert target.scan(filter="ts = 5").select("id", "ts", "p", "v").to_arrow().sort_by("id").to_pylist() == late
        sound(target)
    assert rows_of(resized.scan()) == pending_rows
    assert rows_of(resized.scan(as_of="20261116031235128")) == pending_rows
    assert rows_of(resized.incremental("20261116030753752")) == rows_of(pending.scan(filter="ts = 5"))

    with pytest.raises(ConflictError, match="being clustered"):
        pending.upsert(pending.scan(filter="ts = 5").select("id", "ts", "p", "v").to_arrow())
    [done] = pending.services.run(planned)
    assert done.requested_time == planned.requested_time
    assert rows_of(pending.refresh().scan()) == pending_rows
    assert len(slices(pending)) == 4
    assert sum(len(file_slice.log_files) for file_slice in slices(pending)) == 2, "they lie above the new base files"
    sound(pending)
    for target in (pending, resized):
        target.upsert(target.scan(filter="ts = 5").select("id", "ts", "p", "v").to_arrow())
        assert target.scan().count() == 101
        target.services.compact()
        assert rows_of(target.scan(filter="ts < 5")) == [one for one in pending_rows if "'ts': 5" not in one]


def test_a_run_that_died_keeps_updates_of_buckets_to_come(written: Path) -> None:
    target = lakebed.open(written / "pending", options=HUDIS)
    before = rows_of(target.scan().select("id", "ts", "v"))
    [planned] = target.services.pending_clusterings()
    path = written / "pending" / ".hoodie" / "timeline"
    (path / f"{planned.requested_time}.clustering.inflight").write_bytes(b"")
    (
        written / "pending" / "p0" / f"7c6ab619-e8cc-4622-a3c0-799606c05415-0_0-0-1_{planned.requested_time}.parquet"
    ).touch()
    target.services.run(planned)
    assert rows_of(target.refresh().scan().select("id", "ts", "v")) == before
    sound(target)


def test_a_plan_with_such_updates_can_be_dropped(written: Path) -> None:
    target = lakebed.open(written / "pending", options=HUDIS)
    before = rows_of(target.scan())
    [planned] = target.services.pending_clusterings()
    target.services.rollback(planned)
    assert rows_of(target.refresh().scan()) == before
    assert not list((written / "pending" / "p0").glob(f"*{planned.requested_time}*"))
    target.upsert(target.scan(filter="ts = 5").select("id", "ts", "p", "v").to_arrow())
    assert target.scan().count() == 101


def test_updates_of_buckets_that_cannot_be_made_any_more(written: Path) -> None:
    """The ring changed under the plan, which Hudi prevents: rows must not turn up twice."""
    target = lakebed.open(written / "pending", options=HUDIS)
    [planned] = target.services.pending_clusterings()
    ring = written / "pending" / HASHING_META_DIR / "p0" / "00000000000000.hashing_meta"
    ring.write_text(ring.read_text().replace('"seqNo" : 0', '"seqNo" : 4'))
    with pytest.raises(ConflictError, match="cannot make any more"):
        target.services.run(planned)
    assert target.refresh().scan().count() == 101


# ---------------------------------------------------------------------- all at once
@pytest.mark.parametrize("kind", ["v10-lsm", "v9-default"])
def test_any_mix_of_writes_and_services(kind: str) -> None:
    chance = random.Random(kind)
    target = make(**{**KINDS[kind], "index": "consistent_bucket", "schema": MARKED, "properties": KEPT,
                     "partition_by": None, "ordering": None})  # fmt: skip
    model: dict[str, tuple[Any, ...]] = {}
    known: dict[str, list[str]] = {}
    for step in range(20):
        what = chance.choice(["put", "put", "delete", "split", "merge", "compact", "log"])
        if what == "put":
            some = [row(f"k{n}", step, v=step) for n in chance.sample(range(40), 12)]
            put(target, *some)
            model |= {one["id"]: (one["id"], step) for one in some}
        elif what == "delete" and model:
            lost = chance.sample(sorted(model), min(3, len(model)))
            target.delete(keys=lost)
            model = {key: one for key, one in model.items() if key not in lost}
        elif what in ("split", "merge"):
            target.services.cluster(SPLIT if what == "split" else MERGE)
        elif what in ("compact", "log"):
            target.services.compact("full" if what == "compact" else "log", EASY)
        found = target.scan().select("id", "v").to_arrow().to_pydict()
        assert sorted(zip(*found.values(), strict=True)) == sorted(model.values()), (step, what)
        known |= {instants_of(target)[-1]: rows_of(target.scan())} if instants_of(target) else {}
    for instant, rows in known.items():
        assert rows_of(target.scan(as_of=instant)) == rows, instant
    sound(target)


def test_the_command_line(tmp_path: Path) -> None:
    target = lakebed.create(tmp_path / "t", MARKED, record_key="id", index="consistent_bucket", num_buckets=2)
    put(target, *(row(f"k{i}", v=i) for i in range(50)))
    runner, given = CliRunner(), [part for key, value in SPLIT.items() for part in ("--set", f"{key}={value}")]
    said = runner.invoke(app, ["cluster", str(tmp_path / "t"), "--dry-run", *given])
    assert said.exit_code == 0, said.output
    assert "split at" in said.output
    said = runner.invoke(app, ["cluster", str(tmp_path / "t"), "--plan-only", "--json", *given])
    [instant] = json.loads(said.output)["instants"]
    plan = client_of(target).pending_clusterings()[0][1]
    assert isinstance(plan, RequestedReplace)
    assert plan.clustering is not None
    assert plan.clustering.strategy is not None
    assert plan.clustering.strategy.endswith("SparkConsistentBucketClusteringExecutionStrategy")
    said = runner.invoke(app, ["cluster", str(tmp_path / "t"), *given, "--set", f"{LEAST}=4", "--set", f"{MOST}=4"])
    assert said.exit_code == 0, said.output
    assert instant.split(".")[0][:17] in said.output
    assert len(target.refresh().inspect.file_slices().to_pylist()) == 4
