"""Timeline bodies, against every timeline file and history row of the golden tables."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.format.avro.container import write_container
from lakebed.format.names import parse_instant_file
from lakebed.format.timeline.files import (
    ManifestEntry,
    decode_body,
    encode_body,
    parse_manifest,
    parse_version,
    render_manifest,
    render_version,
)
from lakebed.format.timeline.write_records import COMPACTION_KINDS_KEY
from lakebed.model.actions import (
    CleanMetadata,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    RequestedReplace,
    RestoreMetadata,
    RollbackPlan,
    SavepointMetadata,
    WriteStat,
)
from lakebed.model.instant import Action, State
from tests.conftest import FIXTURES, GOLDEN_NAMES

Body = tuple[str, Action, State, bytes]


def golden_bodies() -> Iterator[Body]:
    """Every timeline file, and the same bytes as history rows keep them."""
    for name in GOLDEN_NAMES:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
            for path in archive.namelist():
                if "/timeline/" not in path or path.endswith("/"):
                    continue
                if path.endswith(".parquet"):
                    for row in pq.read_table(io.BytesIO(archive.read(path))).to_pylist():
                        where = f"{path}#{row['instantTime']}"
                        yield where, Action(row["action"]), State.COMPLETED, row["metadata"] or b""
                        yield where, Action(row["action"]), State.REQUESTED, row["plan"] or b""
                    continue
                instant = parse_instant_file(path.rpartition("/")[2])
                if instant is not None:
                    yield path, instant.action, instant.state, archive.read(path)


@cache
def bodies() -> list[Body]:
    return list(golden_bodies())


def body_of(table: str, action: Action, state: State) -> Any:
    """The last such body of a golden table."""
    found = [one for one in bodies() if one[0].startswith(f"{table}/.hoodie/timeline/") and one[1:3] == (action, state)]
    return decode_body(action, state, found[-1][3], found[-1][0])


def without_known_differences(record: Any) -> Any:
    """Hudi leaves two fields of write stats null where lakebed writes a value: a count, and a text that says null."""
    if isinstance(record, list):
        return [without_known_differences(one) for one in record]
    if not isinstance(record, dict):
        return record
    out = {key: without_known_differences(value) for key, value in record.items()}
    if "totalLogFiles" in out and out["totalLogFiles"] is None:
        out["totalLogFiles"] = 0
    if "prevCommit" in out and out["prevCommit"] is None:
        out["prevCommit"] = "null"
    return out


def test_every_golden_body_decodes_and_encodes_back() -> None:
    kinds: Counter[str] = Counter()
    for path, action, state, data in bodies():
        body = decode_body(action, state, data, path)
        written = encode_body(body, action, state)
        assert decode_body(action, state, written, path) == body
        if not data:
            assert body is None
            assert written == b""
            continue
        theirs = next(fastavro.reader(io.BytesIO(data)))
        ours = next(fastavro.reader(io.BytesIO(written)))
        assert ours == without_known_differences(theirs), path
        kinds[type(body).__name__] += 1
    assert len(kinds) == 12, kinds
    assert kinds["CommitMetadata"] > 900


def test_a_delta_commit_names_its_files() -> None:
    commit = body_of("mor_avro_v9", Action.DELTA_COMMIT, State.COMPLETED)
    assert isinstance(commit, CommitMetadata)
    assert commit.schema_json is not None
    assert json.loads(commit.schema_json)["type"] == "record"
    for partition, stats in commit.stats.items():
        for stat in stats:
            assert stat.partition_path == partition
            assert stat.path is not None
            assert stat.path.startswith(f"{partition}/")
            assert stat.file_id in stat.path
            assert stat.file_size > 0


def test_stats_agree_with_the_files_in_the_table() -> None:
    with zipfile.ZipFile(FIXTURES / "mor_maint_v9.zip") as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    checked = 0
    for path, action, state, data in bodies():
        body = decode_body(action, state, data, path)
        if (
            path.startswith("mor_maint_v9/.hoodie/timeline/")
            and state is State.COMPLETED
            and isinstance(body, CommitMetadata)
        ):
            for stat in (stat for stats in body.stats.values() for stat in stats):
                if f"mor_maint_v9/{stat.path}" in sizes:
                    assert stat.file_size == sizes[f"mor_maint_v9/{stat.path}"]
                    checked += 1
    assert checked >= 3


def test_a_new_file_group_has_no_previous_commit() -> None:
    previous = Counter(
        stat.prev_commit is None
        for path, action, state, data in bodies()
        if path.startswith("cow_simple_v9/.hoodie/timeline/") and state is State.COMPLETED and action is Action.COMMIT
        for stats in decode_body(action, state, data, path).stats.values()  # type: ignore[union-attr]
        for stat in stats
    )
    assert previous[True] > 0
    assert previous[False] > 0


def test_replacing_commits_name_what_they_replace() -> None:
    dropped = body_of("cow_insert_overwrite_v9", Action.REPLACE_COMMIT, State.COMPLETED)
    assert dropped.operation == "DELETE_PARTITION"
    assert not any(dropped.stats.values())
    assert all(dropped.replaced_file_ids.values())
    asked = body_of("cow_insert_overwrite_v9", Action.REPLACE_COMMIT, State.REQUESTED)
    assert asked == RequestedReplace("DELETE_PARTITION")


def test_the_plan_of_an_insert_overwrite_is_empty_but_there() -> None:
    found = [
        (decode_body(action, state, data, path), data)
        for path, action, state, data in bodies()
        if path.startswith("cow_insert_overwrite_v9") and action is Action.REPLACE_COMMIT and state is State.REQUESTED
    ]
    assert len(found) == 2
    assert found[0][0] == RequestedReplace()
    assert found[0][1][:4] == b"Obj\x01"


def test_plans_of_real_tables() -> None:
    compaction = body_of("mor_pending_compaction_v9", Action.COMPACTION, State.REQUESTED)
    assert {operation.kind for operation in compaction.operations} == {"FULL"}
    assert all("/" not in log for operation in compaction.operations for log in operation.log_files)
    log_compaction = body_of("mor_logcompact_v8", Action.LOG_COMPACTION, State.REQUESTED)
    assert {operation.kind for operation in log_compaction.operations} == {"LOG"}
    assert log_compaction.preserve_metadata
    clustering = body_of("mor_pending_clustering_v9", Action.CLUSTERING, State.REQUESTED).clustering
    assert clustering.strategy_params == {"hoodie.clustering.plan.strategy.sort.columns": "v"}
    assert all(
        fragment.file_id in (fragment.base_file or "") for group in clustering.groups for fragment in group.slices
    )


def test_upkeep_of_real_tables() -> None:
    savepoint = body_of("mor_savepoint_restore_v9", Action.SAVEPOINT, State.COMPLETED)
    assert isinstance(savepoint, SavepointMetadata)
    assert set(savepoint.files) == {"p0", "p1"}
    restore = body_of("mor_savepoint_restore_v9", Action.RESTORE, State.COMPLETED)
    assert isinstance(restore, RestoreMetadata)
    assert set(restore.instants) == set(restore.rollbacks)
    rollback = body_of("mor_rolledback_v9", Action.ROLLBACK, State.REQUESTED)
    assert isinstance(rollback, RollbackPlan)
    assert rollback.instant.action == "deltacommit"
    clean = body_of("mor_maint_v9", Action.CLEAN, State.COMPLETED)
    assert isinstance(clean, CleanMetadata)
    assert clean.total_files_deleted == sum(len(done.deleted) for done in clean.partitions.values())


def test_a_hybrid_plan_keeps_the_kind_of_each_operation() -> None:
    operations = tuple(
        CompactionOperation("p", f"id-{kind}", None, None, ("a",), kind=kind) for kind in ("FULL", "LOG")
    )
    plan = CompactionPlan(operations, extra={"mine": "1"})
    data = encode_body(plan, Action.COMPACTION, State.REQUESTED)
    assert decode_body(Action.COMPACTION, State.REQUESTED, data, "f") == plan
    record = next(fastavro.reader(io.BytesIO(data)))
    assert record["extraMetadata"] == {"mine": "1", COMPACTION_KINDS_KEY: "FULL,LOG"}
    record["extraMetadata"][COMPACTION_KINDS_KEY] = "FULL"
    with pytest.raises(CorruptTable):
        decode_body(Action.COMPACTION, State.REQUESTED, write_container("HoodieCompactionPlan", record), "f")


def test_numbers_are_written_as_zero_and_versions_as_hudi_does() -> None:
    commit = CommitMetadata("UPSERT", {"p": (WriteStat("id", "p/id.parquet", "p"),)})
    record = next(fastavro.reader(io.BytesIO(encode_body(commit, Action.COMMIT, State.COMPLETED))))
    stat = record["partitionToWriteStats"]["p"][0]
    assert record["version"] is None
    assert stat["prevCommit"] == "null"
    nulls = {key for key, value in stat.items() if value is None}
    log_only = {"logVersion", "logOffset", "baseFile", "logFiles"}
    assert nulls == log_only | {"cdcStats", "prevBaseFile", "minEventTime", "maxEventTime", "tempPath"}


def test_nulls_of_other_writers_read_as_nothing() -> None:
    stat = {"fileId": "id", "path": "p/f", "prevCommit": None, "partitionPath": None}
    record = {"partitionToWriteStats": {"p": [stat]}, "version": None}
    body = decode_body(Action.COMMIT, State.COMPLETED, write_container("HoodieCommitMetadata", record), "f")
    assert body == CommitMetadata(None, {"p": (WriteStat("id", "p/f", "p"),)})
    empty = decode_body(Action.COMMIT, State.COMPLETED, write_container("HoodieCommitMetadata", {}), "f")
    assert empty == CommitMetadata(None, {})


def test_json_bodies_of_old_tables_are_refused_with_a_way_out() -> None:
    with pytest.raises(UnsupportedFormat, match="Upgrade"):
        decode_body(Action.COMMIT, State.COMPLETED, b'{"partitionToWriteStats": {}}', "f")


def test_a_record_of_another_action_is_refused() -> None:
    data = encode_body(RequestedReplace("CLUSTER"), Action.CLUSTERING, State.REQUESTED)
    with pytest.raises(CorruptTable, match="HoodieRequestedReplaceMetadata"):
        decode_body(Action.CLEAN, State.REQUESTED, data, "f")
    with pytest.raises(CorruptTable):
        decode_body(Action.SCHEMA_COMMIT, State.COMPLETED, data, "f")
    with pytest.raises(InvalidRequest):
        encode_body(RequestedReplace("CLUSTER"), Action.CLEAN, State.REQUESTED)
    commit = CommitMetadata("UPSERT", {}, replaced_file_ids={"p": ("a",)})
    with pytest.raises(InvalidRequest):  # the replaced ids would be lost
        encode_body(commit, Action.DELTA_COMMIT, State.COMPLETED)
    assert (
        decode_body(
            Action.REPLACE_COMMIT, State.COMPLETED, encode_body(commit, Action.CLUSTERING, State.COMPLETED), "f"
        )
        == commit
    )


def test_a_schema_that_lies_about_types_is_refused() -> None:
    for wrong in ("int", "bytes", {"type": "array", "items": "string"}):
        fields = [{"name": "operationType", "type": wrong}]
        schema = {"type": "record", "name": "HoodieCommitMetadata", "fields": fields}
        stream = io.BytesIO()
        fastavro.writer(stream, schema, [{"operationType": {"int": 1, "bytes": b"x"}.get(str(wrong), ["x"])}])
        with pytest.raises(CorruptTable, match="operationType"):
            decode_body(Action.COMMIT, State.COMPLETED, stream.getvalue(), "f")


@cache
def small_bodies() -> list[Body]:
    smallest: dict[tuple[Action, State], Body] = {}
    for one in bodies():
        if one[3] and (one[1:3] not in smallest or len(one[3]) < len(smallest[one[1:3]][3])):
            smallest[one[1:3]] = one
    return list(smallest.values())


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_bodies_give_our_error_or_a_value(data: st.DataObject) -> None:
    path, action, state, content = data.draw(st.sampled_from(small_bodies()))
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        body = decode_body(action, state, bytes(damaged), path)
    except LakebedError as problem:
        assert problem.file == path
        return
    assert body is not None
    assert decode_body(action, state, encode_body(body, action, state), path) is not None


def test_manifests_and_versions_of_real_tables() -> None:
    checked = 0
    for name in GOLDEN_NAMES:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            for path in sizes:
                folder, _, last = path.rpartition("/")
                if last == "_version_":
                    number = parse_version(archive.read(path), path)
                    assert render_version(number) == archive.read(path)
                    entries = parse_manifest(archive.read(f"{folder}/manifest_{number}"), path)
                    assert entries
                    assert all(sizes[f"{folder}/{entry.file_name}"] == entry.file_len for entry in entries)
                    assert parse_manifest(render_manifest(entries), path) == entries
                    checked += 1
    assert checked >= 2


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", '{"files": {}}', '{"files": [1]}', '{"files": [{"fileName": "x"}]}',
        '{"files": [{"fileName": "../../etc/passwd", "fileLen": 1}]}',
        '{"files": [{"fileName": "20261115102815294_20261115102816853_0.parquet", "fileLen": true}]}',
        '{"files": [{"fileName": "20261115102815294_20261115102816853_0.parquet", "fileLen": -1}]}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_malformed_manifests(text: str) -> None:
    with pytest.raises(CorruptTable):
        parse_manifest(text.encode(), "f")


def test_manifests_and_versions_by_hand() -> None:
    entry = ManifestEntry("20261115102815294_20261115102816853_0.parquet", 5)
    assert json.loads(render_manifest([entry])) == {"files": [{"fileName": entry.file_name, "fileLen": 5}]}
    assert parse_manifest(b'{"files": []}', "f") == ()
    assert parse_version(b"9\n", "f") == 9
    for bad in (b"", b"nine", b"-1", b"9" * 50, b"\xff", "٩".encode()):
        with pytest.raises(CorruptTable):
            parse_version(bad, "f")
